"""The reference: the models on the source's validation images, to interpret accuracy on the base.

The same 50 images of each class at most, scored like the dataset's own. A source that is not available is skipped with
the reason, and never ends an evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import ClassUnits, near_chance
from counterfoil.data import LabelledImages, first_of_classes, labelled_split, rows_of
from counterfoil.data.pins import prepared_folders
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.measures.distances import pinned_source, shown_source, skipped_because, with_source_placed
from counterfoil.evaluation.scores import AllAnswers, NestedMeasure, Request
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.models.names import LAB
from counterfoil.prediction.passes import Scored
from counterfoil.progress import renamed
from counterfoil.recipe.names import PREDICTIONS, is_local
from counterfoil.report.reference import VALIDATION, VALIDATION_BASE, VALIDATION_GAP, ReferenceResult
from counterfoil.report.results import ResultRow, row
from counterfoil.store.layout import user_cache

# Wilson's interval of a class of this many is at most 27 points wide, and of ten classes 9.
IMAGES_A_CLASS = 50
_SALT = "reference"  # of the bootstrap
_FOLDER = "predictions"
_SOURCE = "the input dataset"


@dataclass(frozen=True)
class PreparedReference(Request):
    """The images to score, DATASET:SPLIT, and the models that are not scored there, each with the reason.

    images is None if nothing is scored; `skipped` then says why, or nothing if no reference is wanted.
    """

    images: LabelledImages | None = None
    split: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    skipped: str | None = None


def prepared_reference(
    subject: Subject, stands_for: Mapping[str, object], mended: Sequence[str], wanted: bool | None
) -> PreparedReference:
    """Open the validation split of a built dataset's source, before any long step.

    stands_for: each model's name → what it is. mended: names of mended models, which may have seen any image of the
    source. wanted: None for a source that is on this machine, True to fetch one from the Hub. The base of corrupted
    rows is the source's own, so it is compared on request only.
    """
    if wanted is False or subject.recipe is None or subject.directory is None:
        return PreparedReference()
    if wanted is None and subject.recipe.kind.unchanged_base:
        return PreparedReference()
    subject = with_source_placed(subject)
    assert subject.recipe is not None
    left_out = {
        name: "a file of recorded predictions"
        for name, model in stands_for.items()
        if isinstance(model, str) and model.startswith(PREDICTIONS)
    }
    left_out |= dict.fromkeys(mended, "which was mended and may have seen these images")
    split = shown_source(subject.recipe.source.dataset, subject.recipe.source.validation_split)
    try:
        if not set(stands_for) - set(left_out):
            raise UserError("no model can be scored on it: " + "; ".join(f"{k} is {v}" for k, v in left_out.items()))
        if subject.recipe.source.conditions is not None:
            raise UserError("each row of the source has several labels, expected one class per row")
        pin, source = pinned_source(subject), subject.recipe.source
        # A dataset of the Hub may be of any size.
        large = not (source.dataset.startswith(LAB) or is_local(source.dataset))
        if large and wanted is None and not any(folder.name == pin.revision for folder in prepared_folders(source)):
            raise UserError(f"'{source.dataset}' is not on this machine", "Add --reference to download it.")
        images = labelled_split(source, source.validation_split, subject.recipe.classes, pin, units=False)
        images = rows_of(images, first_of_classes(images.keys, images.labels, IMAGES_A_CLASS))
    except reading_errors() as error:
        reason = skipped_because(skipped_reason(_SOURCE, error))
        return PreparedReference(split=split, left_out=left_out, skipped=reason)
    return PreparedReference(images, split, left_out)


def measure_reference(answered: AllAnswers) -> tuple[ReferenceResult | None, list[ResultRow]]:
    """Return every model's gap between validation images and the base, over the classes that the base measures.

    None if no reference is wanted. A source that cannot be read is skipped and a model that fails there is left out,
    each with the reason.
    """
    prepared = answered.request(PreparedReference) or PreparedReference()
    if prepared.images is None:
        if prepared.skipped is None:
            return None, []
        return ReferenceResult(prepared.split, skipped=prepared.skipped, left_out=prepared.left_out), []
    images, scorable = prepared.images, [name for name in answered.models if name not in prepared.left_out]
    failed: dict[str, CounterfoilError] = {}
    try:
        with renamed(lambda stage: replace(stage, name=f"{stage.name}, validation")):
            scored = answered.asking.scored(images, scorable, user_cache() / _FOLDER, failed)
    except reading_errors() as error:
        reason = skipped_because(skipped_reason(_SOURCE, error))
        return ReferenceResult(prepared.split, skipped=reason, left_out=prepared.left_out), []
    if not scored:
        reason = "; ".join(skipped_because(error) for error in failed.values())
        return ReferenceResult(prepared.split, skipped=reason, left_out=prepared.left_out), []
    whys = {name: f"which failed there: {skipped_because(failed[name])}" for name in scorable if name in failed}
    prepared = replace(prepared, left_out={**prepared.left_out, **whys})
    # What was remembered comes first in `scored`: in the order of the models, equal answers give equal bytes.
    return _measured(answered, prepared, images, {name: scored[name] for name in scorable if name in scored})


def _measured(
    answered: AllAnswers, prepared: PreparedReference, images: LabelledImages, scored: Mapping[str, Scored]
) -> tuple[ReferenceResult, list[ResultRow]]:
    subject, near = answered.subject, answered.near_chance
    places = [answered.models.index(name) for name in scored]
    readable = np.all([scores.predictions.readable for scores in scored.values()], axis=0)
    correct = np.stack([scores.predictions.correct for scores in scored.values()], axis=1)
    label_of = {cls.id: label for label, cls in enumerate(subject.classes)}
    both, enough = [], answered.enough(0)
    for cls in enough:
        rows = np.flatnonzero((images.labels == label_of[cls.class_id]) & readable)
        if rows.size:
            # A class's answers (n, models) on validation images as one side, and on base images as the other.
            together = np.concatenate([correct[rows], cls.base_correct[cls.base_present][:, places]])
            first = np.arange(len(together)) < len(rows)
            both.append(ClassUnits(cls.class_id, first, together, ~first, together))
    measured = [cls for cls in both if cls.class_id not in near.classes]
    others = [cls for cls in both if cls.class_id in near.classes]
    unseen, unseen_known = None, False
    if others:
        sound = ~near.models[places]
        shares = [accuracy_stats.accuracy_per_class(other.base_present, other.base_correct) for other in others]
        unseen = float(np.mean(shares, axis=0)[sound if sound.any() else np.ones_like(sound)].mean())
        # Whether classes near chance on the base are clearly above chance here.
        chance = float(np.mean([near.chances[other.class_id] for other in others]))
        unseen_known = not near_chance(np.array([unseen]), sum(other.counts[0] for other in others), chance).item()
    why = "it has no readable image of these classes" if enough else "no class has enough images on the base"
    result = ReferenceResult(
        split=prepared.split,
        images=sum(cls.counts[0] for cls in measured),
        classes=len(measured),
        skipped=None if both else why,
        left_out=prepared.left_out,
        unseen=unseen,
        unseen_known=unseen_known,
    )
    if not measured:
        return result, []
    drops = accuracy_stats.drops(measured, paired=False, seed=answered.seed, salt=_SALT)
    shown = accuracy_stats.averages(measured, seed=answered.seed, salt=_SALT)
    bases = [
        ClassUnits(cls.class_id, cls.shift_present, cls.shift_correct, cls.shift_present, cls.shift_correct)
        for cls in measured
    ]
    base = accuracy_stats.averages(bases, seed=answered.seed, salt=subject.groups[0].name)
    return result, [
        row(measure, numbers.interval(column), model=name, n=result.images)
        for column, name in enumerate(scored)
        for measure, numbers in ((VALIDATION, shown), (VALIDATION_BASE, base), (VALIDATION_GAP, drops))
    ]


MEASURE = NestedMeasure(measure_reference)
