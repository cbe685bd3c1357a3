"""Hypotheses, their tests and everything beside them, gathered into the findings document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.audited import Audited
from counterfoil.mining.confirmation import (
    Confirmation,
    Counted,
    LabelledRows,
    compared,
    confirm,
    count_hypothesis,
    rate_of,
    smallest_seen,
)
from counterfoil.mining.findings import (
    AuditedImages,
    CaptionCheck,
    ClassAudit,
    CurvePoint,
    DealtHalves,
    Evidence,
    Finding,
    Findings,
    Half,
    MethodUsed,
    MinedRecipe,
    NearestImage,
    NotTested,
    OtherClassifier,
    RenderedTest,
    Target,
)
from counterfoil.mining.findings_layer import drawing_prompt
from counterfoil.mining.method import CandidateCaptions, Found, Hypothesis
from counterfoil.mining.other_classifiers import other_failures
from counterfoil.mining.rendered_round import NO_PROMPT, RenderedRound
from counterfoil.mining.rows_hash import keys_sha256
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.section import Section
from counterfoil.stats import score_test

_MOST_EVIDENCE = 12  # a half and finding
_NEAREST = 20
# How many of the closest images the curve of accuracy takes (figures 7b and 10b of Jain 2023 go from 10 to 100).
_CURVE = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500)


def collect_findings(
    recipe: Recipe,
    mine: Mine,
    settings: Section,
    audits: Sequence[Audited],
    captions: CandidateCaptions,
    found: Found,
    maps: Mapping[str, ClassMap],
    device: str,
    rendered: RenderedRound | None = None,
) -> Findings:
    """Test every hypothesis on what `mine.confirm` says, and put what it is worth beside it.

    rendered: the images that were rendered for hypotheses. One that has none is tested on the confirm half alone, or,
    where only rendered images may test, not at all. Each is tested among the rows and the failures of the audit whose
    classes are its own; all tests are of one family.
    """
    audited = audits[0]  # what the audits share is told by any of them
    confirm_rows = [rows_of(one, one.halves.confirm) for one in audits]
    sets = {} if rendered is None else rendered.sets
    carried = [one for one in found.hypotheses if mine.confirm != "rendered" or one.name in sets]
    places = [place_of(audits, one.labels[0]) for one in carried]
    counted = [
        Counted(
            rows=None if mine.confirm == "rendered" else count_hypothesis(one, confirm_rows[at]),
            rendered=sets[one.name].counts if one.name in sets else None,
        )
        for one, at in zip(carried, places, strict=True)
    ]
    p = [one.p(mine.margin) for one in counted]
    confirmations = confirm([one.first for one in counted], mine.margin, mine.fdr, p)
    others = other_failures(recipe, mine, audits, maps, device)
    findings = []
    each = zip(carried, places, counted, confirmations, strict=True)
    for hypothesis, at, counts, confirmation in track(each, "findings", len(carried)):
        own, there = audits[at], confirm_rows[at]
        before = compared(*count_hypothesis(hypothesis, rows_of(own, own.halves.discover)))
        finding = _finding(recipe, own, captions, found, hypothesis, confirmation, before, there, others[at])
        if rendered is not None and counts.rendered is not None:
            finding = _with_rendered(finding, recipe, mine, own, rendered, counts, confirmation)
        findings.append(finding)
    # Confirmed first, the largest difference first.
    findings.sort(key=lambda one: (not one.confirmed, -(one.difference.value or 0.0), one.name))
    classifier = audited.target.classifier
    return Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, settings.model_dump(mode="json")),
        target=Target(mine.target or classifier.name, classifier.sha256, audited.target.about),
        on=tuple(AuditedImages(part.name, part.content, len(part)) for part in audited.parts),
        failure=mine.failure,
        halves=DealtHalves(
            mine.seed, _half(audited, audited.halves.discover), _half(audited, audited.halves.confirm), audited.dealt_by
        ),
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=smallest_seen(counted, confirm_rows, mine),
        classes=tuple(
            _audit(recipe, audits[place_of(audits, label)], found, label) for label in range(len(recipe.classes))
        ),
        findings=tuple(findings),
        unreadable=len(audited.unreadable),
        whitened_by=audited.whitened_by,
        not_tested=tuple(
            NotTested(one.name, tuple(recipe.classes[label].id for label in one.labels), one.words, NO_PROMPT)
            for one in found.hypotheses
            if mine.confirm == "rendered" and one.name not in sets
        ),
    )


def place_of(audits: Sequence[Audited], label: int) -> int:
    """Which of the audits is of a class."""
    return next(place for place, one in enumerate(audits) if label in one.classes)


def rows_of(audited: Audited, rows: NDArray[np.int64]) -> LabelledRows:
    """Some rows of what is audited, as tests take them."""
    return LabelledRows(audited.features[rows], audited.labels[rows], audited.failed[rows], audited.units[rows])


def _finding(
    recipe: Recipe,
    audited: Audited,
    captions: CandidateCaptions,
    found: Found,
    hypothesis: Hypothesis,
    confirmation: Confirmation,
    before: Any,
    there: LabelledRows,
    others: Mapping[str, NDArray[np.bool_]],
) -> Finding:
    classes = [recipe.classes[label] for label in hypothesis.labels]
    after = confirmation.compared()
    rows = audited.halves.confirm
    own = np.flatnonzero(hypothesis.tested_on(there.features, there.labels))
    members = hypothesis.members(there.features[own], there.labels[own])
    towards = hypothesis.cosines(there.features[own]) * (1 if hypothesis.role == "hard" else -1)
    order = np.argsort(-towards, kind="stable")
    return Finding(
        name=hypothesis.name,
        classes=tuple(cls.id for cls in classes),
        class_names=tuple(cls.name for cls in classes),
        role=hypothesis.role,
        words=hypothesis.words,
        caption=hypothesis.caption,
        prompt=drawing_prompt(hypothesis, found, recipe),
        confirmed=confirmation.confirmed,
        set=after.set,
        rest=after.rest,
        difference=after.difference,
        p=confirmation.p,
        q=confirmation.q,
        discover=before,
        evidence=(
            *_evidence(audited, recipe, rows[own[order[members[order]]]], towards[order[members[order]]], "confirm"),
            *_evidence(audited, recipe, audited.halves.discover[hypothesis.evidence], hypothesis.scores, "discover"),
        ),
        caption_check=_caption_check(audited, captions, hypothesis, rows[there.of_classes(hypothesis.labels)]),
        nearest_curve=tuple(
            CurvePoint(k, float(1 - there.failed[own][order[:k]].mean())) for k in _CURVE if k <= len(own)
        ),
        others=tuple(
            OtherClassifier(name, *map(rate_of, _counted_again(hypothesis, there, failed[rows])))
            for name, failed in others.items()
        ),
        about=hypothesis.about,
        outside=tuple(one.name for one in hypothesis.outside),
        easiest=tuple(
            _shown_row(audited, recipe, int(row), float(score), "discover")
            for row, score in zip(audited.halves.discover[hypothesis.easiest], hypothesis.easiest_scores, strict=True)
        ),
    )


def _with_rendered(
    finding: Finding,
    recipe: Recipe,
    mine: Mine,
    audited: Audited,
    rendered: RenderedRound,
    counts: Counted,
    confirmation: Confirmation,
) -> Finding:
    """A finding with what became of the images that were rendered for it; where these are the test, they come first."""
    assert counts.rendered is not None
    numbers = compared(*counts.rendered, confirmation.level)
    drawn = rendered.sets[finding.name]
    own = _rendered_evidence(recipe, audited, rendered, drawn.rows, drawn.scores)
    here = [one for one in finding.evidence if one.half == "confirm"]
    before = [one for one in finding.evidence if one.half == "discover"]
    evidence = (*own, *here, *before) if counts.rows is None else (*here, *own, *before)
    return replace(
        finding,
        evidence=evidence,
        tested_on=counts.tested_on,
        rendered=RenderedTest(numbers.set, numbers.rest, numbers.difference, score_test(*counts.rendered, mine.margin)),
    )


def _rendered_evidence(
    recipe: Recipe, audited: Audited, rendered: RenderedRound, rows: NDArray[np.int64], scores: NDArray[np.floating]
) -> list[Evidence]:
    class_map = audited.target.class_map
    return [
        Evidence(
            key=rendered.key(row),
            score=float(scores[place]),
            failed=bool(rendered.failed[row]),
            half="rendered",
            label=recipe.classes[int(rendered.images.labels[row])].name,
            answered=_answered(int(rendered.predictions.prediction[row]), recipe, class_map),
        )
        for place in _first_of_both(rendered.failed[rows])
        for row in [int(rows[place])]
    ]


def _evidence(
    audited: Audited, recipe: Recipe, rows: NDArray[np.int64], scores: NDArray[np.floating], half: Any
) -> list[Evidence]:
    """The first right and the first wrong ones of some rows, in their order."""
    return [
        _shown_row(audited, recipe, int(rows[place]), float(scores[place]), half)
        for place in _first_of_both(audited.failed[rows])
    ]


def _shown_row(audited: Audited, recipe: Recipe, row: int, score: float, half: Any) -> Evidence:
    answer = int(audited.target.predictions.prediction[audited.rows[row]])
    return Evidence(
        key=audited.keys[row],
        score=score,
        failed=bool(audited.failed[row]),
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


def _counted_again(hypothesis: Hypothesis, there: LabelledRows, failed: NDArray[np.bool_]) -> Any:
    return count_hypothesis(hypothesis, LabelledRows(there.features, there.labels, failed, there.units))


def _audit(recipe: Recipe, audited: Audited, found: Found, label: int) -> ClassAudit:
    own = audited.labels == label
    rows, errors = int(own.sum()), int(audited.failed[own].sum())
    note, cls = found.notes[label], recipe.classes[label]
    return ClassAudit(
        id=cls.id,
        name=cls.name,
        rows=rows,
        errors=errors,
        rate=errors / rows if rows else None,
        direction=note.direction,
        reason=note.reason,
        hard=note.hard,
        easy=note.easy,
        contexts=note.contexts,
    )


def _half(audited: Audited, rows: NDArray[np.int64]) -> Half:
    keys: Sequence[str] = [audited.keys[row] for row in rows.tolist()]
    return Half(len(rows), len(np.unique(audited.units[rows])), keys_sha256(keys))
