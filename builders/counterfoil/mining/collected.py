"""Hypotheses, their tests and everything beside them, gathered into the findings document.

Each set's failure rate is compared with the rest's on the confirm half, with its test, interval and q-value.

A set far from a caption is tested on rows outside of its classes' hard sets, as the discover half fixed these, and
counts in the family whatever becomes of them. Tests are one-sided against the rest of the class, with a margin, on
counts divided by the design effect of units. q-values are over all hypotheses that were carried to the test, and the
document lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.generate.screen import ScreenDoubts
from counterfoil.mining.audited import Audited, keys_sha256
from counterfoil.mining.findings import (
    AnswersTold,
    AuditedImages,
    CaptionCheck,
    ClassAudit,
    Compared,
    CurvePoint,
    DealtHalves,
    Difference,
    Evidence,
    Finding,
    Findings,
    Half,
    LabelCheck,
    MethodUsed,
    MinedRecipe,
    NearestImage,
    NotTested,
    OtherClassifier,
    Rate,
    RenderedTest,
    SmallestDifference,
    Target,
)
from counterfoil.mining.findings_layer import drawing_prompt
from counterfoil.mining.hypotheses import CandidateCaptions, Found, Hypothesis, MiningRun
from counterfoil.mining.rounds import NO_PROMPT, AnsweredRound
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import (
    MISSING,
    POWER,
    FailureCount,
    benjamini_hochberg,
    count_failures,
    false_coverage_level,
    newcombe_interval,
    rate_interval,
    score_test,
    smallest_difference,
)

_TYPICAL_SHARE = 0.2  # of a class, where no hypothesis came as far as a test


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """n rows of one half: features (n, width), labels, failed, units (n,); taken_for (n,), the class answered or -1."""

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    units: NDArray[np.int64]
    taken_for: NDArray[np.int64]

    def of_classes(self, labels: Sequence[int]) -> NDArray[np.int64]:
        return np.flatnonzero(np.isin(self.labels, labels))


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What became of one hypothesis. `level` is that of a reported finding's intervals, None where not confirmed."""

    in_set: FailureCount
    rest: FailureCount
    p: float
    q: float
    confirmed: bool
    level: float | None

    def compared(self) -> Compared:
        return compared(self.in_set, self.rest, self.level)


@dataclass(frozen=True, slots=True)
class Counted:
    """A hypothesis' counts, (the set, the rest), on what it is tested on: rows of the confirm half, rendered images."""

    rows: tuple[FailureCount, FailureCount] | None
    rendered: tuple[FailureCount, FailureCount] | None

    @property
    def tested_on(self) -> Literal["rows", "rendered", "both"]:
        if self.rendered is None:
            return "rows"
        return "rendered" if self.rows is None else "both"

    @property
    def first(self) -> tuple[FailureCount, FailureCount]:
        """The counts that its rates are of: rows, where it is tested on them."""
        counts = self.rendered if self.rows is None else self.rows
        assert counts is not None
        return counts

    def p(self, margin: float) -> float:
        """Of both tests the larger p: either hypothesis alone would be enough to refute it (intersection-union)."""
        return max(score_test(*each, margin) for each in (self.rows, self.rendered) if each is not None)


def count_hypothesis(hypothesis: Hypothesis, rows: LabelledRows) -> tuple[FailureCount, FailureCount]:
    """Failures of the set and of the rest of its classes among those of some rows that it is tested on."""
    own = np.flatnonzero(hypothesis.tested_on(rows.features, rows.labels))
    members = hypothesis.members(rows.features[own], rows.labels[own])
    counted = hypothesis.counted(rows.failed[own], rows.taken_for[own])
    return count_failures(counted, rows.units[own], members)


def confirm(
    counts: Sequence[tuple[FailureCount, FailureCount]], margin: float, fdr: float, p: Sequence[float] | None = None
) -> list[Confirmation]:
    """Test m sets against their rests; confirmed are those with q ≤ `fdr` (Benjamini and Hochberg over all m).

    Sets of one class overlap, mostly with positive dependence, for which the procedure holds. `p` where the p-values
    come from elsewhere.
    """
    values = [score_test(in_set, rest, margin) for in_set, rest in counts] if p is None else list(p)
    adjusted = benjamini_hochberg(values)
    reported = sum(q <= fdr for q in adjusted)
    # Of the intervals of what is reported one in twenty misses on average: never narrower than the usual ones.
    level = false_coverage_level(reported, len(counts), min(fdr, MISSING))
    return [
        Confirmation(in_set, rest, value, q, q <= fdr, level if q <= fdr else None)
        for (in_set, rest), value, q in zip(counts, values, adjusted, strict=True)
    ]


def compared(in_set: FailureCount, rest: FailureCount, level: float | None = None) -> Compared:
    """Both rates and their difference, with 95 % intervals; and at `level`, for what was selected to be reported."""
    there = in_set.rows > 0 and rest.rows > 0
    return Compared(
        set=rate_of(in_set),
        rest=rate_of(rest),
        difference=Difference(
            value=in_set.rate - rest.rate if there else None,
            interval=newcombe_interval(in_set, rest),
            reported_interval=None if level is None else newcombe_interval(in_set, rest, level),
        ),
    )


def rate_of(count: FailureCount) -> Rate:
    return Rate(count.rows, count.units, count.failures, count.rate if count.rows else None, rate_interval(count))


def would_have_been_seen(
    counts: Sequence[tuple[FailureCount, FailureCount]],
    rows: Sequence[LabelledRows],
    margin: float,
    fdr: float,
    tested: int | None = None,
) -> SmallestDifference | None:
    """Return the smallest difference that this run would have shown in its typical (median) set; None without any row.

    rows: those of each audit. Where no hypothesis was tested, the typical set is a fifth of a class. tested: how many
    were, where `counts` are not all of them.
    """
    carried = max(len(counts), 1) if tested is None else tested
    sizes = list(counts)
    for own in () if counts else rows:
        for label in np.unique(own.labels).tolist():
            of_class = own.of_classes([label])
            members = np.zeros(len(of_class), dtype=bool)
            members[: max(1, round(len(of_class) * _TYPICAL_SHARE))] = True
            sizes.append(count_failures(own.failed[of_class], own.units[of_class], members))
    # One that could be shown by no difference is worse than any.
    seen = [(smallest_difference(*each, margin, fdr, carried), each) for each in sizes]
    seen.sort(key=lambda one: (one[0] is None, one[0] or 0.0))
    if not seen:
        return None
    difference, (in_set, rest) = seen[(len(seen) - 1) // 2]
    return SmallestDifference(difference, POWER, in_set.rows, rest.rows, rest.rate if rest.rows else 0.0)


def smallest_seen(counted: Sequence[Counted], rows: Sequence[LabelledRows], mine: Mine) -> SmallestDifference | None:
    """Return `would_have_been_seen` on what `mine.confirm` says; of two tests that must both reject, what sees less.

    Where no hypothesis was tested, as many images as would have been rendered, which fail as the rows of a class do.
    """
    seen = []
    if mine.confirm != "rendered":
        on_rows = [one.rows for one in counted if one.rows is not None]
        seen.append(would_have_been_seen(on_rows, rows, mine.margin, mine.fdr))
    drawn = [one.rendered for one in counted if one.rendered is not None]
    if mine.confirm == "rendered" and not drawn:
        # Of each class as many images that fail as its rows do, and as many more.
        drawn = []
        for own in rows:
            for label in np.unique(own.labels).tolist():
                failed = round(mine.rendered * float(own.failed[own.of_classes([label])].mean()))
                count = FailureCount(mine.rendered, mine.rendered, failed, float(mine.rendered))
                drawn.append((count, count))
        seen.append(would_have_been_seen(drawn, rows, mine.margin, mine.fdr, tested=1))
    elif drawn:
        seen.append(would_have_been_seen(drawn, rows, mine.margin, mine.fdr, tested=len(counted)))
    known = [one for one in seen if one is not None]
    return max(known, key=lambda one: 1.0 if one.difference is None else one.difference) if known else None


_MOST_EVIDENCE = 12  # a half and finding
_NEAREST = 20
# How many of the closest images the curve of accuracy takes (figures 7b and 10b of Jain 2023 go from 10 to 100).
_CURVE = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500)


@dataclass(frozen=True, slots=True)
class Carried:
    """A hypothesis carried to the test: the place of its audit, what it is tested on, and what became of it."""

    hypothesis: Hypothesis
    place: int
    counts: Counted
    result: Confirmation

    def order(self) -> tuple[bool, float, str]:
        """By what findings are sorted: confirmed ones first, the largest difference first."""
        difference = self.result.compared().difference.value
        return not self.result.confirmed, -(difference or 0.0), self.hypothesis.name


def carried_to_test(
    mine: Mine, audits: Sequence[Audited], found: Found, rendered: AnsweredRound | None = None
) -> list[Carried]:
    """Test every hypothesis on what `mine.confirm` says, in the order in which they were found.

    rendered: the images that were rendered for hypotheses. One that has none is tested on the confirm half alone, or,
    where only rendered images may test, not at all. Each is tested among the rows and the failures of the audit whose
    classes are its own; all tests are of one family.
    """
    rows = [rows_of(one, one.halves.confirm) for one in audits]
    sets = {} if rendered is None else rendered.sets
    hypotheses = [one for one in found.hypotheses if mine.confirm != "rendered" or one.name in sets]
    places = [place_of(audits, one.labels[0]) for one in hypotheses]
    counted = [
        Counted(
            rows=None if mine.confirm == "rendered" else count_hypothesis(one, rows[place]),
            rendered=sets[one.name].counts if one.name in sets else None,
        )
        for one, place in zip(hypotheses, places, strict=True)
    ]
    p = [one.p(mine.margin) for one in counted]
    results = confirm([one.first for one in counted], mine.margin, mine.fdr, p)
    return list(map(Carried, hypotheses, places, counted, results))


def collect_findings(
    run: MiningRun,
    audits: Sequence[Audited],
    captions: CandidateCaptions,
    found: Found,
    tested: Sequence[Carried],
    others: Sequence[Mapping[str, NDArray[np.bool_]]],
    *,
    rendered: AnsweredRound | None = None,
    checks: Mapping[str, LabelCheck] | None = None,
    doubts: ScreenDoubts | None = None,
    without_words: tuple[str, ...] = (),
    answered: AnswersTold | None = None,
    notes: tuple[str, ...] = (),
) -> Findings:
    """Return the document of what was tested, with everything beside it.

    others: by audit, (n,) failures of other classifiers. rendered: the images that were rendered for hypotheses.
    checks: of labels, by hypothesis. doubts: what speaks against CLIP; without_words: why there is none.
    """
    recipe, mine = run.recipe, run.mine
    audited = audits[0]  # what the audits share is in any of them
    confirm_rows = [rows_of(one, one.halves.confirm) for one in audits]
    findings = []
    for one in track(sorted(tested, key=Carried.order), "testing findings", len(tested)):
        findings.append(
            _finding(
                run,
                audits[one.place],
                captions,
                found,
                one,
                confirm_rows[one.place],
                others[one.place],
                rendered,
                labels=(checks or {}).get(one.hypothesis.name),
                doubts=doubts,
            )
        )
    carried = {one.hypothesis.name for one in tested}
    classifier = audited.target.classifier
    return Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, run.settings.model_dump(mode="json")),
        target=Target(mine.target or classifier.name, classifier.sha256, audited.target.about),
        on=tuple(AuditedImages(part.name, part.content, len(part)) for part in audited.parts),
        failure=mine.failure,
        halves=DealtHalves(
            mine.seed,
            half_of(audited, audited.halves.discover),
            half_of(audited, audited.halves.confirm),
            audited.dealt_by,
        ),
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=smallest_seen([one.counts for one in tested], confirm_rows, mine),
        classes=tuple(
            _class_audit(recipe, audits[place_of(audits, label)], found, label) for label in range(len(recipe.classes))
        ),
        findings=tuple(findings),
        unreadable=len(audited.unreadable),
        whitened_by=audited.whitened_by or None,
        not_tested=tuple(
            NotTested(one.name, tuple(recipe.classes[label].id for label in one.labels), one.words, NO_PROMPT)
            for one in found.hypotheses
            if one.name not in carried
        ),
        notes=notes,
        doubts=without_words if doubts is None else tuple(doubts.lines()),
        answered=answered,
    )


def place_of(audits: Sequence[Audited], label: int) -> int:
    """Which of the audits is of a class."""
    return next(place for place, one in enumerate(audits) if label in one.classes)


def rows_of(audited: Audited, rows: NDArray[np.int64]) -> LabelledRows:
    """Some rows of what is audited, as tests take them."""
    return LabelledRows(
        audited.features[rows], audited.labels[rows], audited.failed[rows], audited.units[rows], audited.taken_for[rows]
    )


def _finding(
    run: MiningRun,
    audited: Audited,
    captions: CandidateCaptions,
    found: Found,
    one: Carried,
    there: LabelledRows,
    others: Mapping[str, NDArray[np.bool_]],
    rendered: AnsweredRound | None,
    *,
    labels: LabelCheck | None,
    doubts: ScreenDoubts | None,
) -> Finding:
    """Return a hypothesis with its test and its evidence; where rendered images are the test, these come first.

    there: the rows of the confirm half.
    """
    recipe, hypothesis, after = run.recipe, one.hypothesis, one.result.compared()
    classes = [recipe.classes[label] for label in hypothesis.labels]
    rows = audited.halves.confirm
    own = np.flatnonzero(hypothesis.tested_on(there.features, there.labels))
    members = hypothesis.members(there.features[own], there.labels[own])
    towards = hypothesis.cosines(there.features[own]) * (1 if hypothesis.role == "hard" else -1)
    order = np.argsort(-towards, kind="stable")
    every = hypothesis.counted(audited.failed, audited.taken_for)
    # Of a column that only says whether a row is in the set there is no order.
    ordered = len(np.unique(towards)) > 2
    confirmed_rows = rows[own[order[members[order]]]]
    evidence = _evidence(audited, recipe, every, confirmed_rows, towards[order[members[order]]], "confirm")
    test = None
    if rendered is not None and one.counts.rendered is not None:
        drawn = _drawn_evidence(recipe, audited, rendered, hypothesis.name)
        evidence = drawn + evidence if one.counts.rows is None else evidence + drawn
        numbers = compared(*one.counts.rendered, one.result.level)
        p = score_test(*one.counts.rendered, run.mine.margin)
        test = RenderedTest(numbers.set, numbers.rest, numbers.difference, p)
    evidence += _evidence(
        audited, recipe, every, audited.halves.discover[hypothesis.evidence], hypothesis.scores, "discover"
    )
    return Finding(
        name=hypothesis.name,
        classes=tuple(cls.id for cls in classes),
        class_names=tuple(cls.name for cls in classes),
        role=hypothesis.role,
        words=hypothesis.words,
        caption=hypothesis.caption,
        prompt=drawing_prompt(hypothesis, found, recipe) if captions.texts else None,
        confirmed=one.result.confirmed,
        set=after.set,
        rest=after.rest,
        difference=after.difference,
        p=one.result.p,
        q=one.result.q,
        discover=compared(*count_hypothesis(hypothesis, rows_of(audited, audited.halves.discover))),
        evidence=tuple(evidence),
        caption_check=_caption_check(audited, captions, hypothesis, rows[there.of_classes(hypothesis.labels)]),
        nearest_curve=tuple(
            CurvePoint(k, float(1 - there.failed[own][order[:k]].mean())) for k in _CURVE if ordered and k <= len(own)
        ),
        others=tuple(
            OtherClassifier(name, *map(rate_of, count_hypothesis(hypothesis, replace(there, failed=failed[rows]))))
            for name, failed in others.items()
            if hypothesis.answered is None
        ),
        tested_on=one.counts.tested_on,
        rendered=test,
        against_others=bool(hypothesis.against),
        answered=None if hypothesis.answered is None else recipe.classes[hypothesis.answered].name,
        about=hypothesis.about,
        outside=tuple(other.name for other in hypothesis.outside),
        words_untrusted=doubts is not None and doubts.of_any([cls.id for cls in classes]),
        labels=labels,
        easiest=tuple(
            _shown_row(audited, recipe, audited.failed, int(row), float(score), "discover")
            for row, score in zip(audited.halves.discover[hypothesis.easiest], hypothesis.easiest_scores, strict=True)
        ),
    )


def _drawn_evidence(recipe: Recipe, audited: Audited, rendered: AnsweredRound, name: str) -> list[Evidence]:
    """Return the first right and the first wrong ones of the images that were rendered for a hypothesis."""
    drawn = rendered.sets[name]
    evidence = []
    for place in _first_of_both(rendered.failed[drawn.rows]):
        row = int(drawn.rows[place])
        evidence.append(
            Evidence(
                key=rendered.key(row),
                score=float(drawn.scores[place]),
                failed=bool(rendered.failed[row]),
                half="rendered",
                label=recipe.classes[int(rendered.images.labels[row])].name,
                answered=_answered(int(rendered.predictions.prediction[row]), recipe, audited.target.class_map),
            )
        )
    return evidence


def _evidence(
    audited: Audited,
    recipe: Recipe,
    failed: NDArray[np.bool_],
    rows: NDArray[np.int64],
    scores: NDArray[np.floating],
    half: Any,
) -> list[Evidence]:
    """The first right and the first wrong ones of some rows, in their order; `failed` is of all audited rows."""
    return [
        _shown_row(audited, recipe, failed, int(rows[place]), float(scores[place]), half)
        for place in _first_of_both(failed[rows])
    ]


def _shown_row(
    audited: Audited, recipe: Recipe, failed: NDArray[np.bool_], row: int, score: float, half: Any
) -> Evidence:
    answer = int(audited.target.predictions.prediction[audited.rows[row]])
    return Evidence(
        key=audited.keys[row],
        score=score,
        failed=bool(failed[row]),
        half=half,
        label=recipe.classes[int(audited.labels[row])].name,
        answered=_answered(answer, recipe, audited.target.class_map),
        path=audited.paths.get(audited.keys[row]),
    )


def _first_of_both(failed: NDArray[np.bool_]) -> list[int]:
    """Places of the first wrong and the first right ones."""
    rank = np.where(failed, np.cumsum(failed), np.cumsum(~failed))
    return np.flatnonzero(rank <= _MOST_EVIDENCE // 2).tolist()


def _answered(output: int, recipe: Recipe, class_map: ClassMap) -> str:
    for label, targets in enumerate(class_map.targets):
        if output in targets:
            return recipe.classes[label].name
    return class_map.label_names[output] if class_map.label_names else f"output {output}"


def _caption_check(
    audited: Audited, captions: CandidateCaptions, hypothesis: Hypothesis, rows: NDArray[np.int64]
) -> CaptionCheck | None:
    """Whether the images nearest to a caption are nearest, of all candidates, to one that says the same, or more."""
    if not captions.texts:
        return None
    label = hypothesis.labels[0]
    candidates = captions.candidates[label]
    said = set(captions.texts[captions.references[label]].split())
    own = set(hypothesis.caption.split()) - said
    says_it = np.asarray([own <= set(captions.texts[row].split()) for row in candidates.tolist()])
    features = audited.features[rows].astype(np.float32)
    places = np.argmax(features @ captions.vectors[candidates].T, axis=1)
    best = candidates[places]
    order = np.argsort(-hypothesis.cosines(features), kind="stable")[:_NEAREST]
    if not len(order):
        return None
    matching = says_it[places]
    return CaptionCheck(
        images=len(order),
        matching=int(matching[order].sum()),
        share=float(matching[order].mean()),
        class_share=float(matching.mean()),
        nearest=tuple(
            NearestImage(
                audited.keys[rows[place]],
                captions.texts[int(best[place])],
                bool(matching[place]),
                bool(audited.failed[rows[place]]),
                audited.paths.get(audited.keys[rows[place]]),
            )
            for place in order[:8].tolist()
        ),
    )


def _class_audit(recipe: Recipe, audited: Audited, found: Found, label: int) -> ClassAudit:
    own = audited.labels == label
    rows, errors = int(own.sum()), int(audited.failed[own].sum())
    note, cls = found.notes[label], recipe.classes[label]
    return ClassAudit(
        id=cls.id,
        name=cls.name,
        rows=rows,
        errors=errors,
        rate=errors / rows if rows else None,
        **{one.name: getattr(note, one.name) for one in fields(note)},
    )


def half_of(audited: Audited, rows: NDArray[np.int64]) -> Half:
    """One half of what is audited, as documents have it."""
    keys = [audited.keys[row] for row in rows.tolist()]
    return Half(len(rows), len(np.unique(audited.units[rows])), keys_sha256(keys))
