"""Test hypotheses on the confirm half, on rendered images or on both, and make the findings
document.

Tests are one-sided and have a margin. Counts are divided by the design effect of units before a
test. The q-values are computed over all tested hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.mining import findings as document
from counterfoil.mining.audited import Audited, Question, keys_sha256
from counterfoil.mining.findings_layer import drawing_prompt
from counterfoil.mining.hypotheses import (
    CandidateCaptions,
    ClassNote,
    Found,
    Hypothesis,
    LabelledRows,
    MiningRun,
    SetAndRest,
)
from counterfoil.mining.rounds import NO_PROMPT, ROUND, AnsweredRound
from counterfoil.prediction.class_map import ClassMap
from counterfoil.progress import track
from counterfoil.recipe import Recipe, RecipeClass
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


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The test of one hypothesis."""

    in_set: FailureCount
    rest: FailureCount
    p: float
    q: float
    confirmed: bool
    level: float | None
    """The confidence of a finding's intervals, or None if it was not confirmed."""

    def compared(self) -> document.Compared:
        return compared(self.in_set, self.rest, self.level)


def confirm_sets(
    counts: Sequence[SetAndRest],
    p_values: Sequence[float],
    fdr: float,
) -> list[Confirmation]:
    """Test sets against their rests, as one family of q-values (Benjamini and Hochberg). p_values:
    (m,).

    Sets of one class overlap, mostly with positive dependence, for which the procedure holds.
    """
    q_values = benjamini_hochberg(p_values)
    reported = sum(q <= fdr for q in q_values)
    # On average, at least 95 % of the reported intervals cover their true difference. No interval
    # is narrower than a plain 95 % interval.
    level = false_coverage_level(reported, len(counts), min(fdr, MISSING))
    results = []
    for sides, p_value, q in zip(counts, p_values, q_values, strict=True):
        confirmed = q <= fdr
        of_level = level if confirmed else None
        results.append(Confirmation(*sides, p_value, q, confirmed, of_level))
    return results


def compared(
    in_set: FailureCount,
    rest: FailureCount,
    level: float | None = None,
) -> document.Compared:
    """Return both rates and their difference, with intervals at 95 % and at `level`. `level` allows
    for selection."""
    value = reported = None
    if in_set.rows > 0 and rest.rows > 0:
        value = in_set.rate - rest.rate
    if level is not None:
        reported = newcombe_interval(in_set, rest, level)
    difference = document.Difference(value, newcombe_interval(in_set, rest), reported)
    return document.Compared(rate_of(in_set), rate_of(rest), difference)


def rate_of(count: FailureCount) -> document.Rate:
    rate = count.rate if count.rows else None
    interval = rate_interval(count)
    return document.Rate(count.rows, count.units, count.failures, rate, interval)


_TYPICAL_SHARE = 0.2  # share of a class, used if no hypothesis was tested


def minimum_detectable_difference(
    tested: Sequence[Carried],
    halves: Sequence[LabelledRows],
    mine: Mine,
) -> document.SmallestDifference | None:
    """Return the smallest difference that this run could show in its median set, or None if it has
    no rows. If no hypothesis was tested, the set is assumed to be a fifth of a class, or rendered
    images that fail as often as it.
    """
    on_rows = [carried.rows for carried in tested if carried.rows is not None]
    drawn = [carried.rendered for carried in tested if carried.rendered is not None]
    for half in halves if not tested else ():
        for label in np.unique(half.labels).tolist():
            rows = half.of_classes([label])
            failed = half.failed[rows]
            if mine.confirm == "rendered":
                images = mine.rendered
                failures = round(images * float(failed.mean()))
                count = FailureCount(images, images, failures, float(images))
                drawn.append((count, count))
                continue
            size = max(1, round(len(rows) * _TYPICAL_SHARE))
            members = np.arange(len(rows)) < size
            counts = count_failures(failed, half.units[rows], members)
            on_rows.append(counts)

    def order(smallest: document.SmallestDifference) -> float:
        # A set that can show no difference comes last.
        return math.inf if smallest.difference is None else smallest.difference

    typical = []
    family = max(len(tested), 1)
    for sets in (on_rows, drawn):
        detectable = []
        for in_set, rest in sets:
            difference = smallest_difference(in_set, rest, mine.margin, mine.fdr, family)
            smallest = document.SmallestDifference(
                difference=difference,
                power=POWER,
                set_rows=in_set.rows,
                rest_rows=rest.rows,
                rest_rate=rest.rate if rest.rows else 0.0,
            )
            detectable.append(smallest)
        detectable.sort(key=order)
        if detectable:
            typical.append(detectable[(len(detectable) - 1) // 2])
    return max(typical, key=order, default=None)


_MOST_EVIDENCE = 12  # images of one finding from one half
_NEAREST = 20
# The curve of accuracy has a point for each of these numbers of closest images (figures 7b and 10b
# of Jain 2023 go from 10 to 100).
_CURVE = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500)


@dataclass(frozen=True, slots=True)
class Carried:
    """A tested hypothesis."""

    hypothesis: Hypothesis
    audit: int
    """The index of its audit."""
    rows: SetAndRest | None
    """The failures on rows of the confirm half."""
    rendered: SetAndRest | None
    """The failures on rendered images."""
    result: Confirmation

    @property
    def tested_on(self) -> Literal["rows", "rendered", "both"]:
        if self.rendered is None:
            return "rows"
        return "rendered" if self.rows is None else "both"

    def order(self) -> tuple[bool, float, str]:
        """Return the sort key of findings: confirmed first, then the largest difference."""
        difference = self.result.compared().difference.value
        return not self.result.confirmed, -(difference or 0.0), self.hypothesis.name


@dataclass(frozen=True)
class HypothesisTests:
    """The hypotheses of a method and their tests, in the method's order."""

    run: MiningRun
    audits: Sequence[Audited]
    """One for each question."""
    captions: CandidateCaptions
    outcome: Found
    rendered: AnsweredRound | None
    tested: Sequence[Carried]

    @classmethod
    def of(
        cls,
        run: MiningRun,
        audits: Sequence[Audited],
        captions: CandidateCaptions,
        outcome: Found,
        rendered: AnsweredRound | None = None,
    ) -> HypothesisTests:
        """Test every hypothesis that `mine.confirm` can test, as one family."""
        mine = run.mine
        drawn = {} if rendered is None else rendered.sets
        confirm_halves = [audited.labelled.chosen(audited.halves.confirm) for audited in audits]
        tests = []
        p_values = []
        firsts = []
        for hypothesis in outcome.hypotheses:
            index = _audit_index(audits, hypothesis.labels[0])
            on_rows = on_rendered = None
            counts: list[SetAndRest] = []
            if mine.confirm != "rendered":
                on_rows = hypothesis.count(confirm_halves[index])
                counts.append(on_rows)
            if hypothesis.name in drawn:
                on_rendered = drawn[hypothesis.name].counts
                counts.append(on_rendered)
            if counts:
                tests.append((hypothesis, index, on_rows, on_rendered))
                # Both tests must reject, so the larger p-value counts.
                p = max(score_test(*sides, mine.margin) for sides in counts)
                p_values.append(p)
                # The rates are those on rows, if there are any.
                firsts.append(counts[0])
        results = confirm_sets(firsts, p_values, mine.fdr)
        tested = []
        for test, result in zip(tests, results, strict=True):
            tested.append(Carried(*test, result))
        return cls(
            run,
            audits,
            captions,
            outcome,
            rendered,
            tested,
        )

    @property
    def images(self) -> list[tuple[str, LabelledImages]]:
        """The images of the findings' evidence, each part with the prefix of its keys."""
        images = [("", part) for part in self.audits[0].parts]
        if self.rendered is not None:
            images.insert(0, (f"{ROUND}/", self.rendered.images))
        return images

    @property
    def by_weight(self) -> list[Carried]:
        return sorted(self.tested, key=Carried.order)

    @property
    def confirmed_sets(self) -> dict[str, Bools]:
        """Return for each confirmed finding, by name, which rows of the first audit are in its set,
        (n,) bool. For a finding about one answer, only rows with this answer are included.
        """
        audited = self.audits[0]
        sets = {}
        for carried in self.tested:
            if not carried.result.confirmed:
                continue
            hypothesis = carried.hypothesis
            members = hypothesis.tested_members(audited.features, audited.labels)
            if hypothesis.answered is not None:
                members &= audited.taken_for == hypothesis.answered
            sets[hypothesis.name] = members
        return sets


def collect_findings(
    tests: HypothesisTests,
    others: Sequence[Mapping[str, Question]],
    checks: Mapping[str, document.LabelCheck],
    *,
    without_words: tuple[str, ...] = (),
    answered: document.AnswersTold | None = None,
    notes: tuple[str, ...] = (),
) -> document.Findings:
    """Return the findings document. others: for each audit, the answers of other classifiers by
    name. checks: checks of labels, by hypothesis. without_words: why no words were looked for.
    """
    run = tests.run
    audits = tests.audits
    outcome = tests.outcome
    recipe = run.recipe
    mine = run.mine
    audited = audits[0]
    findings = []
    for carried in track(tests.by_weight, "testing findings", len(tests.tested)):
        finding = _finding(tests, carried, others[carried.audit])
        check = checks.get(finding.name)
        findings.append(replace(finding, labels=check))
    classes = []
    of_note = [field.name for field in fields(ClassNote)]
    for label, cls in enumerate(recipe.classes):
        audit = audits[_audit_index(audits, label)]
        of_class = audit.labels == label
        rows = int(of_class.sum())
        errors = int(audit.failed[of_class].sum())
        rate = errors / rows if rows else None
        note = outcome.notes[label]
        facts = {name: getattr(note, name) for name in of_note}
        of_class = document.ClassAudit(cls.id, cls.name, rows, errors, rate, **facts)
        classes.append(of_class)
    tested_names = {finding.name for finding in findings}
    not_tested = []
    for hypothesis in outcome.hypotheses:
        if hypothesis.name not in tested_names:
            ids = tuple(recipe.classes[label].id for label in hypothesis.labels)
            untested = document.NotTested(hypothesis.name, ids, hypothesis.words, NO_PROMPT)
            not_tested.append(untested)
    images = []
    previews = []
    for part in audited.parts:
        audited_part = document.AuditedImages(part.name, part.content, len(part))
        images.append(audited_part)
        if part.preview is not None:
            previews.append(part.preview)
    target = audited.target
    discover = half_of(audited, audited.halves.discover)
    confirm = half_of(audited, audited.halves.confirm)
    confirm_halves = [audit.labelled.chosen(audit.halves.confirm) for audit in audits]
    settings = run.settings.model_dump(mode="json")
    return document.Findings(
        recipe=document.MinedRecipe(recipe.name, recipe.recipe_hash),
        method=document.MethodUsed(mine.method, settings),
        target=document.Target(run.target, target.classifier.sha256, target.about),
        on=tuple(images),
        failure=mine.failure,
        halves=document.DealtHalves(mine.seed, discover, confirm, audited.dealt_by),
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=minimum_detectable_difference(tests.tested, confirm_halves, mine),
        classes=tuple(classes),
        findings=tuple(findings),
        unreadable=len(audited.unreadable),
        whitened_by=audited.whitened_by or None,
        not_tested=tuple(not_tested),
        notes=notes,
        doubts=without_words,
        answered=answered,
        preview=min(previews, default=None),
    )


def _audit_index(audits: Sequence[Audited], label: int) -> int:
    has_class = [label in audited.classes for audited in audits]
    return has_class.index(True)


def _finding(
    tests: HypothesisTests, carried: Carried, others: Mapping[str, Question]
) -> document.Finding:
    """Return a hypothesis with its test and evidence. Rendered images come first if they are the
    only test."""
    run = tests.run
    hypothesis = carried.hypothesis
    audited = tests.audits[carried.audit]
    result = carried.result
    numbers = result.compared()
    recipe_classes = run.recipe.classes
    classes = [recipe_classes[label] for label in hypothesis.labels]
    prompt = answered = None
    if tests.captions.texts:
        prompt = drawing_prompt(hypothesis, tests.outcome, run.recipe)
    if hypothesis.answered is not None:
        answered = recipe_classes[hypothesis.answered].name
    confirm_rows = audited.halves.confirm
    half = audited.labelled.chosen(confirm_rows)
    is_tested = hypothesis.tested_on(half.features, half.labels)
    tested_rows = np.flatnonzero(is_tested)
    tested = half.chosen(tested_rows)
    members = hypothesis.members(tested.features, tested.labels)
    closeness = hypothesis.closeness(tested.features)
    order = np.argsort(-closeness, kind="stable")
    inside = order[members[order]]
    curve = []
    # A column that only says whether a row is in the set gives no order.
    if len(np.unique(closeness)) > 2:
        for k in _CURVE:
            if k <= len(tested_rows):
                failed = tested.failed[order[:k]]
                accuracy = float(1 - failed.mean())
                curve.append(document.CurvePoint(k, accuracy))
    rows = confirm_rows[tested_rows[inside]]
    evidence, easiest = _shown(tests, carried, rows, closeness[inside])
    test = None
    if carried.rendered is not None:
        rates = compared(*carried.rendered, result.level)
        p = score_test(*carried.rendered, run.mine.margin)
        test = document.RenderedTest(
            rates.set,
            rates.rest,
            rates.difference,
            p,
        )
    of_others = []
    if hypothesis.answered is None:
        for name, answers in others.items():
            of_other = replace(half, failed=answers.failed[confirm_rows])
            in_set, rest = map(rate_of, hypothesis.count(of_other))
            of_others.append(document.OtherClassifier(name, in_set, rest))
    discover_half = audited.labelled.chosen(audited.halves.discover)
    return document.Finding(
        name=hypothesis.name,
        classes=tuple(cls.id for cls in classes),
        class_names=tuple(cls.name for cls in classes),
        role=hypothesis.role,
        words=hypothesis.words,
        caption=hypothesis.caption,
        prompt=prompt,
        confirmed=result.confirmed,
        set=numbers.set,
        rest=numbers.rest,
        difference=numbers.difference,
        p=result.p,
        q=result.q,
        discover=compared(*hypothesis.count(discover_half)),
        evidence=tuple(evidence),
        caption_check=_caption_check(audited, tests.captions, hypothesis),
        nearest_curve=tuple(curve),
        others=tuple(of_others),
        tested_on=carried.tested_on,
        rendered=test,
        against_others=bool(hypothesis.against),
        answered=answered,
        about=hypothesis.about,
        outside=tuple(other.name for other in hypothesis.outside),
        easiest=tuple(easiest),
    )


def _shown(
    tests: HypothesisTests,
    carried: Carried,
    rows: Ints,
    scores: AnyFloats,
) -> tuple[list[document.Evidence], list[document.Evidence]]:
    """Return the evidence of a hypothesis and its easiest images. rows: the set on the confirm half,
    the clearest row first, with `scores`."""
    hypothesis = carried.hypothesis
    audited = tests.audits[carried.audit]
    classes = tests.run.recipe.classes
    names = output_names(tests.run.recipe, audited.target.class_map)
    outputs = audited.target.predictions.prediction[audited.rows]
    images = _Images(
        audited.keys,
        audited.labels,
        outputs,
        classes,
        names,
        audited.paths,
    )
    counted = hypothesis.counted(audited.failed, audited.taken_for)
    shown = images.both(rows, scores, counted, "confirm")
    rendered = tests.rendered
    if rendered is not None and carried.rendered is not None:
        drawn = _Images(
            [f"{rendered.images.name}/{key}" for key in rendered.images.keys],
            rendered.images.labels,
            rendered.predictions.prediction,
            classes,
            names,
            {},
        )
        of_set = rendered.sets[hypothesis.name]
        evidence = drawn.both(of_set.rows, of_set.scores, rendered.failed, "rendered")
        shown = evidence + shown if carried.rows is None else shown + evidence
    discover = audited.halves.discover
    shown += images.both(discover[hypothesis.evidence], hypothesis.scores, counted, "discover")
    easiest = images.evidence(
        discover[hypothesis.easiest],
        hypothesis.easiest_scores,
        audited.failed,
        "discover",
    )
    return shown, easiest


_Half = Literal["discover", "confirm", "rendered"]


@dataclass(frozen=True)
class _Images:
    """n images that may be shown as evidence."""

    keys: Sequence[str]
    labels: Ints
    outputs: np.ndarray
    """(n,), what the target answers."""
    classes: Sequence[RecipeClass]
    names: Sequence[str]
    """The name of each output."""
    paths: Mapping[str, str]

    def both(
        self,
        rows: Ints,
        scores: AnyFloats,
        counted: Bools,
        half: _Half,
    ) -> list[document.Evidence]:
        """Return evidence of the first right and the first wrong rows, in their order."""
        failed = counted[rows]
        wrong = np.cumsum(failed)
        right = np.cumsum(~failed)
        rank = np.where(failed, wrong, right)
        first = rank <= _MOST_EVIDENCE // 2
        return self.evidence(rows[first], scores[first], counted, half)

    def evidence(
        self,
        rows: Ints,
        scores: AnyFloats,
        counted: Bools,
        half: _Half,
    ) -> list[document.Evidence]:
        """Return evidence of rows (m,). counted: (n,), whether a row counts as failing."""
        evidence = []
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            key = self.keys[row]
            image = document.Evidence(
                key,
                score,
                failed=bool(counted[row]),
                half=half,
                label=self.classes[self.labels[row]].name,
                answered=self.names[self.outputs[row]],
                path=self.paths.get(key),
            )
            evidence.append(image)
        return evidence


def output_names(recipe: Recipe, class_map: ClassMap) -> list[str]:
    """Return the name of each output: its class's name, or else the classifier's name for it."""
    count = class_map.num_classes
    names = [f"output {output}" for output in range(count)]
    if class_map.label_names:
        names = [class_map.label_names[output] for output in range(count)]
    targets = list(zip(recipe.classes, class_map.targets, strict=True))
    for cls, outputs in reversed(targets):
        for output in outputs:
            names[output] = cls.name
    return names


def _caption_check(
    audited: Audited,
    captions: CandidateCaptions,
    hypothesis: Hypothesis,
) -> document.CaptionCheck | None:
    """Check a caption on the images nearest to it. Return how many of them have a best caption that
    says the same as this caption, or more.
    """
    rows = audited.halves.confirm
    rows = rows[np.isin(audited.labels[rows], hypothesis.labels)]
    if not captions.texts or not len(rows):
        return None
    label = hypothesis.labels[0]
    candidates = captions.candidates[label]
    texts = [captions.texts[row] for row in candidates.tolist()]
    reference = captions.texts[captions.references[label]]
    added = set(hypothesis.caption.split())
    added -= set(reference.split())
    says = [added.issubset(text.split()) for text in texts]
    says_it = np.asarray(says)
    features = audited.features[rows].astype(np.float32)
    cosines = features @ captions.vectors[candidates].T
    best = np.argmax(cosines, axis=1)
    matching = says_it[best]
    cosines = hypothesis.cosines(features)
    order = np.argsort(-cosines, kind="stable")[:_NEAREST]
    nearest = []
    for position in order[:8].tolist():
        row = rows[position]
        key = audited.keys[row]
        image = document.NearestImage(
            key,
            texts[best[position]],
            matches=bool(matching[position]),
            failed=bool(audited.failed[row]),
            path=audited.paths.get(key),
        )
        nearest.append(image)
    checked = matching[order]
    return document.CaptionCheck(
        images=len(order),
        matching=int(checked.sum()),
        share=float(checked.mean()),
        class_share=float(matching.mean()),
        nearest=tuple(nearest),
    )


def half_of(audited: Audited, rows: Ints) -> document.Half:
    keys = [audited.keys[row] for row in rows.tolist()]
    sha256 = keys_sha256(keys)
    units = np.unique(audited.units[rows])
    return document.Half(len(rows), len(units), sha256)
