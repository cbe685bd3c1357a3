"""The CSV files of an evaluation: timm's results with shift columns, and the long robustness tables.

Every accuracy is in percent and every drop in percentage points, as in timm's own results files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.csv_text import csv_text
from counterfoil.evaluation.answer_names import answer_names
from counterfoil.evaluation.distances.distances_table import distance_rows
from counterfoil.evaluation.results import ClassScore, Evaluation, Score, ShiftResult
from counterfoil.report.nested import FindingScore, MinedShiftResult, ReferenceResult
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.evaluation.scores import Answers
    from counterfoil.evaluation.subject import Subject
    from counterfoil.prediction.class_map import ClassMap


def results_csv(evaluation: Evaluation) -> str:
    """One line a model, best first, as timm writes it; then `accuracy.SHIFT` and `drop.SHIFT` for each shift.

    top1 and top5 are on the accepted base images, each image counting once, as timm counts; they stand in this table
    alone. top5 counts the top k of `top_k`, which is below 5 only for models with fewer than six outputs. `base` is the
    accuracy that people are shown, averaged over the classes that are measured; `near_chance` marks models that are in
    no average, and `tied` counts images whose two best scores are equal. `validation` is accuracy on the source's
    images of the same classes, `validation_gap` that less the base's, in points.
    """
    rows = []
    for model in sorted(evaluation.models, key=lambda one: (-one.top1.value, one.name)):
        row: dict[str, Any] = {
            # timm's columns, in timm's order (results/results-imagenet.csv).
            "model": model.name,
            "img_size": model.img_size,
            "top1": percent(model.top1.value),
            "top1_err": percent(1 - model.top1.value),
            "top5": percent(model.top_k_accuracy.value),
            "top5_err": percent(1 - model.top_k_accuracy.value),
            "param_count": "" if model.param_count is None else f"{model.param_count / 1e6:.2f}",
            "crop_pct": model.crop_pct,
            "interpolation": model.interpolation,
            # Ours.
            "top_k": model.top_k,
            "tied": model.tied,
            **interval_columns("base", model.base),
            "near_chance": int(model.near_chance),
            "average_drop": percent(model.average_drop),
            **_reference_columns(evaluation.reference, model.name),
        }
        for shift in evaluation.shifts:
            score = evaluation.score(model.name, shift.name)
            row[f"accuracy.{shift.name}"] = percent(score.accuracy)
            row[f"drop.{shift.name}"] = percent(score.drop.value if score.drop else None)
        rows.append(row)
    return csv_text(rows)


def robustness_csv(evaluation: Evaluation) -> str:
    """One line a model and shift: accuracies, the drop, the relative and the pairs-only drop with their intervals."""
    kinds = {shift.name: shift.kind or "" for shift in evaluation.shifts}
    near = {model.name for model in evaluation.models if model.near_chance}
    return csv_text([_robustness_row(score, kinds[score.shift], score.model in near) for score in evaluation.scores])


def shifts_csv(evaluation: Evaluation) -> str:
    """One line a shift, the base first: yield, classes measured and left out, impact, ID/OOD slope."""
    return csv_text([_shift_row(shift) for shift in evaluation.groups])


def classes_csv(evaluation: Evaluation) -> str:
    """One line a shift and class: images, accuracies and drop averaged over models; then `drop.MODEL` for each.

    A class with too few images has its counts and nothing else. One that is near chance on the base (`near_chance`) has
    its accuracies, and no drop averaged over models. The interval resamples the class's images.
    """
    kinds = {shift.name: shift.kind or "" for shift in evaluation.shifts}
    return csv_text([_class_row(score, kinds[score.shift], evaluation) for score in evaluation.class_scores])


def findings_csv(evaluation: Evaluation) -> str:
    """One line a mined shift and model: failure rates over the candidates that passed the screen, and over the base.

    Rates are averages over classes, in percent; failures and images are their sums. What cannot be measured is empty,
    and `note` says why.
    """
    return csv_text([_finding_row(finding, score) for finding in evaluation.findings for score in finding.scores])


def distances_csv(evaluation: Evaluation) -> str:
    """One line a model of features and set of images: KID with its interval, FID, and how many images of either side.

    `what` is the dataset, a group of it, or the source against itself; `note` says why a line has no numbers.
    """
    return csv_text(distance_rows(evaluation.distances))


def predictions_parquet(
    subject: Subject, answers: Answers, confidence: NDArray[np.float32], maps: Mapping[str, ClassMap]
) -> bytes:
    """One row an image: key, label, class_id, shift, class, and path where images were read from a folder of them; then
    `answer.MODEL`, `answered.MODEL`, `confidence.MODEL` and `right.MODEL` each, of `maps` by model.

    An answer is the number of the model's output, `answered` its name. All four are empty for an image that cannot be
    decoded.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = [one.id for one in subject.classes]
    names = [group.name for group in subject.groups]
    absent = ~answers.readable
    columns: dict[str, pa.Array] = {
        "key": pa.array(subject.keys, pa.string()),
        "label": pa.array(subject.labels, pa.int64()),
        "class_id": pa.array([ids[label] for label in subject.labels.tolist()], pa.string()),
        "shift": pa.array([names[shift] for shift in subject.shifts.tolist()], pa.string()),
        "class": pa.array([subject.classes[label].name for label in subject.labels.tolist()], pa.string()),
    }
    if subject.paths is not None:
        columns["path"] = pa.array(subject.paths, pa.string())
    for place, (model, own) in enumerate(maps.items()):
        called = answer_names(subject.classes, own)
        outputs, inverse = np.unique(np.where(absent, -1, answers.prediction[:, place]), return_inverse=True)
        spoken = pa.array([None if output < 0 else called(output) for output in outputs.tolist()], pa.string())
        columns[f"answer.{model}"] = pa.array(answers.prediction[:, place], pa.int32(), mask=absent)
        columns[f"answered.{model}"] = spoken.take(pa.array(inverse))
        columns[f"confidence.{model}"] = pa.array(confidence[:, place], pa.float32(), mask=absent)
        columns[f"right.{model}"] = pa.array(answers.correct[:, place], pa.bool_(), mask=absent)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue().to_pybytes()


def percent(value: float | None) -> str:
    """A fraction as percent with three decimals, as timm prints it; nothing for None."""
    return "" if value is None else f"{100 * value:.3f}"


def _reference_columns(reference: ReferenceResult | None, model: str) -> dict[str, Any]:
    """A model on validation images and its gap to the base; empty where it was not scored there."""
    gap = None if reference is None else reference.of(model)
    return {
        **interval_columns("validation", gap.validation if gap else None),
        "validation_images": reference.images if reference is not None and gap is not None else "",
        "validation_classes": reference.classes if reference is not None and gap is not None else "",
        **interval_columns("validation_gap", gap.gap if gap else None),
    }


def _robustness_row(score: Score, kind: str, near_chance: bool) -> dict[str, Any]:
    return {
        "model": score.model,
        "shift": score.shift,
        "kind": kind,
        "n_classes": score.classes,
        "n_images": score.images,
        "n_base_images": score.base_images,
        "near_chance": int(near_chance),
        "base_accuracy": percent(score.base_accuracy),
        "accuracy": percent(score.accuracy),
        **interval_columns("drop", score.drop),
        "pairs": score.pairs,
        **interval_columns("pairs_drop", score.pairs_drop),
        **interval_columns("top1", score.top1),
        **interval_columns("top5", score.top_k_accuracy),
        **{key: value for name, found in score.metrics.items() for key, value in interval_columns(name, found).items()},
    }


def _class_row(score: ClassScore, kind: str, evaluation: Evaluation) -> dict[str, Any]:
    known = bool(score.accuracy)
    drops = score.drops if known else (None,) * len(evaluation.models)
    return {
        "shift": score.shift,
        "kind": kind,
        "class_id": score.class_id,
        "class": score.name,
        "measured": int(known and not score.class_near_chance),
        "near_chance": int(score.class_near_chance),
        "n_images": score.shift_images,
        "n_base_images": score.base_images,
        "base_accuracy": percent(evaluation.averaged(score.base_accuracy)) if known else "",
        "accuracy": percent(evaluation.averaged(score.accuracy)) if known else "",
        **interval_columns("drop", score.impact),
        **{f"drop.{model.name}": percent(drop) for model, drop in zip(evaluation.models, drops, strict=True)},
    }


def _finding_row(finding: MinedShiftResult, score: FindingScore) -> dict[str, Any]:
    measured = score.measured_on is not None
    return {
        "shift": finding.shift,
        "words": finding.words or "",
        "role": finding.role or "",
        "class_ids": " ".join(finding.class_ids),
        "model": score.model,
        "target": int(score.target),
        "measured_on": score.measured_on or "",
        "candidates": finding.candidates,
        "screened": finding.screened,
        "accepted": finding.accepted,
        "n_classes": score.classes if measured else "",
        "n_images": score.images if measured else "",
        "failures": score.failures if measured else "",
        "n_base_images": score.base_images if measured else "",
        "base_failures": "" if score.base_failures is None else score.base_failures,
        "rate": percent(score.rate),
        "base_rate": percent(score.base_rate),
        **interval_columns("difference", score.difference),
        "near_chance": int(score.near_chance),
        "classes_near_chance": ", ".join(finding.near_chance),
        "note": score.note or "",
    }


def _shift_row(shift: ShiftResult) -> dict[str, Any]:
    line = shift.slope
    return {
        "shift": shift.name,
        "kind": shift.kind or "",
        "prompt": shift.prompt,
        "group": shift.group,
        "candidates": shift.candidates,
        "accepted": shift.accepted,
        "yield": percent(shift.share_kept),
        "unreadable": shift.unreadable,
        "n_classes": shift.classes,
        "n_images": shift.images,
        "n_base_images": shift.base_images,
        "classes_left_out": " ".join(one.class_id for one in shift.left_out),
        "classes_near_chance": " ".join(one.class_id for one in shift.left_out if one.why == "near chance"),
        **interval_columns("impact", shift.impact),
        "slope": _number(line.slope if line else None),
        "slope_low": _number(line.low if line else None),
        "slope_high": _number(line.high if line else None),
        "intercept": percent(line.intercept if line else None),
        "r_squared": _number(line.r_squared if line else None),
        "n_models": line.n_models if line else "",
    }


def interval_columns(name: str, estimate: Estimate | None) -> dict[str, str]:
    """An estimate as three columns, in percentage points: NAME, NAME_low and NAME_high."""
    low, high = (estimate.low, estimate.high) if estimate else (None, None)
    value = estimate.value if estimate else None
    return {name: percent(value), f"{name}_low": percent(low), f"{name}_high": percent(high)}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
