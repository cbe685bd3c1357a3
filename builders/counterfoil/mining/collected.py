"""Hypotheses, their tests and everything beside them, gathered into the findings document."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.audited import Audited, answers_of
from counterfoil.mining.condition_judgements import chosen_thresholds, conditions_scored, judged_conditions
from counterfoil.mining.confirmation import (
    Confirmation,
    LabelledRows,
    compared,
    confirm,
    count_hypothesis,
    rate_of,
    would_have_been_seen,
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
    OtherClassifier,
    Target,
)
from counterfoil.mining.findings_layer import prompt_of
from counterfoil.mining.method import CandidateCaptions, Found, Hypothesis, MethodSettings
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failure_rules import failures
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.under_way import Stage, UnderWay

_MOST_EVIDENCE = 12  # a half and finding
_NEAREST = 20
# How many of the closest images the curve of accuracy takes (figures 7b and 10b of Jain 2023 go from 10 to 100).
_CURVE = (10, 20, 30, 50, 75, 100, 150, 200, 300, 500)


def collect_findings(
    recipe: Recipe,
    mine: Mine,
    settings: MethodSettings,
    audits: Sequence[Audited],
    captions: CandidateCaptions,
    found: Found,
    device: str,
) -> UnderWay[Stage, Findings]:
    """Test every hypothesis on the confirm half, and put what it is worth beside it.

    Each is tested among the rows and the failures of the audit whose classes are its own; all tests are of one family.
    """
    audited = audits[0]  # what the audits share is told by any of them
    places = [place_of(audits, one.labels[0]) for one in found.hypotheses]
    confirm_rows = [rows_of(one, one.halves.confirm) for one in audits]
    counts = [count_hypothesis(one, confirm_rows[at]) for one, at in zip(found.hypotheses, places, strict=True)]
    confirmations = confirm(counts, mine.margin, mine.fdr)
    others = yield from _other_failures(recipe, mine, audits, device)
    findings = []
    for hypothesis, at, confirmation in zip(found.hypotheses, places, confirmations, strict=True):
        own, there = audits[at], confirm_rows[at]
        before = compared(*count_hypothesis(hypothesis, rows_of(own, own.halves.discover)))
        findings.append(_finding(recipe, own, captions, found, hypothesis, confirmation, before, there, others[at]))
        yield Stage("findings", len(findings), len(found.hypotheses))
    # Confirmed first, the largest difference first.
    findings.sort(key=lambda one: (not one.confirmed, -(one.difference.value or 0.0), one.name))
    classifier = audited.target.classifier
    return Findings(
        recipe=MinedRecipe(recipe.name, recipe.recipe_hash),
        method=MethodUsed(mine.method, settings.model_dump(mode="json")),
        target=Target(mine.target or classifier.name, classifier.sha256, audited.target.about),
        on=tuple(AuditedImages(part.name, part.content, len(part)) for part in audited.parts),
        failure=mine.failure,
        halves=DealtHalves(mine.seed, _half(audited, audited.halves.discover), _half(audited, audited.halves.confirm)),
        margin=mine.margin,
        fdr=mine.fdr,
        tested=len(findings),
        smallest_difference=would_have_been_seen(counts, confirm_rows, mine.margin, mine.fdr),
        classes=tuple(
            _audit(recipe, audits[place_of(audits, label)], found, label) for label in range(len(recipe.classes))
        ),
        findings=tuple(findings),
        unreadable=len(audited.unreadable),
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
    own = there.of_classes(hypothesis.labels)
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
        prompt=_prompt(hypothesis, found, recipe),
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
        caption_check=_caption_check(audited, captions, hypothesis, rows[own]),
        nearest_curve=tuple(
            CurvePoint(k, float(1 - there.failed[own][order[:k]].mean())) for k in _CURVE if k <= len(own)
        ),
        others=tuple(
            OtherClassifier(name, *map(rate_of, _counted_again(hypothesis, there, failed[rows])))
            for name, failed in others.items()
        ),
        about=hypothesis.about,
    )


def _prompt(hypothesis: Hypothesis, found: Found, recipe: Recipe) -> str | None:
    """What draws the set: its caption; or, far from a caption, the hardest one of the class that no other draws."""
    classes = [recipe.classes[label] for label in hypothesis.labels]
    if hypothesis.role == "hard":
        return prompt_of(hypothesis.caption, classes)
    drawn = {one.caption for one in found.hypotheses if one.role == "hard" and one.labels == hypothesis.labels}
    hard = found.notes[hypothesis.labels[0]].hard if len(classes) == 1 else ()
    left = [one.caption for one in hard if one.score < 0 and one.caption not in drawn]
    return prompt_of(left[0], classes) if left else None


def _evidence(
    audited: Audited, recipe: Recipe, rows: NDArray[np.int64], scores: NDArray[np.floating], half: Any
) -> list[Evidence]:
    """The first right and the first wrong ones of some rows, in their order."""
    failed = audited.failed[rows]
    rank = np.where(failed, np.cumsum(failed), np.cumsum(~failed))
    chosen = np.flatnonzero(rank <= _MOST_EVIDENCE // 2)
    predictions, class_map = audited.target.predictions, audited.target.class_map
    return [
        Evidence(
            key=audited.keys[row],
            score=float(scores[place]),
            failed=bool(audited.failed[row]),
            half=half,
            label=recipe.classes[int(audited.labels[row])].name,
            answered=_answered(int(predictions.prediction[audited.rows[row]]), recipe, class_map),
        )
        for place in chosen.tolist()
        for row in [int(rows[place])]
    ]


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
            )
            for place in order[:8].tolist()
        ),
    )


def _other_failures(
    recipe: Recipe, mine: Mine, audits: Sequence[Audited], device: str
) -> UnderWay[Stage, list[dict[str, NDArray[np.bool_]]]]:
    """By audit, (n,) failures of the recipe's other classifiers on the same images, by the same rule."""
    names = [name for name in dict.fromkeys(recipe.evaluate.models) if name != mine.target]
    found: list[dict[str, NDArray[np.bool_]]] = [{} for _ in audits]
    audited, conditions = audits[0], recipe.source.conditions
    if conditions is not None:
        present = np.stack([one.labels == one.classes[0] for one in audits], axis=1)
        for name in names:
            scored = yield from conditions_scored(audited.parts, name, recipe, conditions, device)
            own = replace(scored, values=scored.values[audited.rows])
            thresholds = chosen_thresholds(own, present, audited.halves.discover, conditions.names)
            for place, one in enumerate(judged_conditions(own, present, thresholds)):
                found[place][name] = one.failed
    elif names:
        answers = yield from answers_of(audited.parts, names, recipe, device)
        labels = np.concatenate([part.labels for part in audited.parts])
        for name, own in answers.items():
            failed = failures(mine.failure, own.predictions, labels, recipe.classes, own.class_map)
            found[0][name] = failed[audited.rows]
    return found


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
    )


def _half(audited: Audited, rows: NDArray[np.int64]) -> Half:
    keys: Sequence[str] = [audited.keys[row] for row in rows.tolist()]
    return Half(len(rows), len(np.unique(audited.units[rows])), hashlib.sha256("\n".join(keys).encode()).hexdigest())
