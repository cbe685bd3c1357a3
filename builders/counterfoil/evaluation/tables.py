"""The CSV files of an evaluation: timm's results with shift columns, and the long robustness tables.

Every accuracy is in percent and every drop in percentage points, as in timm's own results files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from counterfoil.csv_text import csv_text
from counterfoil.evaluation.answer_names import answer_names
from counterfoil.report.comparison import compare_csv
from counterfoil.report.distances import distances_csv
from counterfoil.report.findings import findings_csv
from counterfoil.report.reference import VALIDATION, VALIDATION_GAP
from counterfoil.report.results import ClassNumbers, GroupFacts, ModelFacts, ResultRow, Results, classes_of, rounded_row
from counterfoil.report.transfer import transfer_csv
from counterfoil.report.words import csv_interval as interval_columns
from counterfoil.report.words import csv_percent as percent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.evaluation.scores import ModelAnswers
    from counterfoil.evaluation.subject import Subject
    from counterfoil.prediction.class_map import ClassMap


# The columns of robustness.csv that stand in an order of their own; other measures of a model and a group follow.
_OWN = ("base_accuracy", "accuracy", "drop", "pairs_drop", "top1", "top_k")


def result_tables(results: Results) -> dict[str, tuple[str, str]]:
    """Every table of these results: short name → (file name, CSV)."""
    tables = {
        "results": ("results.csv", results_csv(results)),
        "robustness": ("robustness.csv", robustness_csv(results)),
        "shifts": ("shifts.csv", shifts_csv(results)),
        "measures": ("measures.csv", measures_csv(results)),
    }
    if results.base is not None:  # classes are told by their drops
        tables["classes"] = ("classes.csv", classes_csv(results))
    if results.findings:
        tables["findings"] = ("findings.csv", findings_csv(results))
    if results.transfer:
        tables["transfer"] = ("transfer.csv", transfer_csv(results))
    if results.comparison is not None:
        tables["compare"] = ("compare.csv", compare_csv(results))
    if any(one.sets for one in results.distances):
        tables["distances"] = ("distances.csv", distances_csv(results))
    return tables


def measures_csv(results: Results) -> str:
    """Every number, a line each, in the columns of a row: fractions, as results.json has them, but of classes too."""
    return csv_text(map(rounded_row, results.rows), [one.name for one in fields(ResultRow)])


def results_csv(results: Results) -> str:
    """One line a model, best first, as timm writes it; then `accuracy.SHIFT` and `drop.SHIFT` for each shift.

    top1 and top5 are on the accepted base images, each image counting once, as timm counts; they stand in this table
    alone. top5 counts the top k of `top_k`, which is below 5 only for models with fewer than six outputs. `base` is the
    accuracy that people are shown, averaged over the classes that are measured; `near_chance` marks models that are in
    no average, and `tied` counts images whose two best scores are equal. `validation` is accuracy on the source's
    images of the same classes, `validation_gap` that less the base's, in points.
    """
    rows, number = [], results.rows
    group = results.base or ""
    top1 = {model.name: number.value("top1", model=model.name, group=group) or 0.0 for model in results.models}
    for model in sorted(results.models, key=lambda one: (-top1[one.name], one.name)):
        top_k = number.value("top_k", model=model.name, group=group, at=str(model.top_k)) or 0.0
        row: dict[str, Any] = {
            # timm's columns, in timm's order (results/results-imagenet.csv).
            "model": model.name,
            "img_size": model.img_size,
            "top1": percent(top1[model.name]),
            "top1_err": percent(1 - top1[model.name]),
            "top5": percent(top_k),
            "top5_err": percent(1 - top_k),
            "param_count": "" if model.param_count is None else f"{model.param_count / 1e6:.2f}",
            "crop_pct": model.crop_pct,
            "interpolation": model.interpolation,
            # Ours.
            "top_k": model.top_k,
            "tied": model.tied,
            **interval_columns("base", results.base_number(model.name)),
            "near_chance": int(model.near_chance),
            "average_drop": percent(number.value("average_drop", model=model.name)),
            **_reference_columns(results, model.name),
        }
        for shift in results.shifts:
            row[f"accuracy.{shift.name}"] = percent(number.value("accuracy", model=model.name, group=shift.name))
            row[f"drop.{shift.name}"] = percent(number.value("drop", model=model.name, group=shift.name))
        rows.append(row)
    return csv_text(rows)


def robustness_csv(results: Results) -> str:
    """One line a model and shift: accuracies, the drop and the pairs-only drop with their intervals, other measures."""
    shown = {measure.name for measure in results.measures if measure.name not in _OWN}
    others = list(
        dict.fromkeys(
            one.measure
            for one in results.rows
            if one.measure in shown and one.model and one.group and not (one.class_id or one.against or one.at)
        )
    )
    # Of a table without drops too, so that tables of all kinds have the same columns.
    others = list(dict.fromkeys(["relative_drop", *others]))
    return csv_text(
        _robustness_row(results, shift, model, others) for shift in results.shifts for model in results.models
    )


def shifts_csv(results: Results) -> str:
    """One line a shift, the base first: yield, classes measured and left out, impact, ID/OOD slope."""
    return csv_text([_shift_row(results, shift) for shift in results.groups])


def classes_csv(results: Results) -> str:
    """One line a shift and class: images, accuracies and drop averaged over models; then `drop.MODEL` for each.

    A class with too few images has its counts and nothing else. One that is near chance on the base (`near_chance`) has
    its accuracies, and no drop averaged over models. The interval resamples the class's images.
    """
    return csv_text(
        _class_row(results, shift, one) for shift in results.shifts for one in classes_of(results, shift.name)
    )


def predictions_parquet(
    subject: Subject, answers: ModelAnswers, confidence: NDArray[np.float32], maps: Mapping[str, ClassMap]
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


def _reference_columns(results: Results, model: str) -> dict[str, Any]:
    """A model on validation images and its gap to the base; empty where it was not scored there."""
    validation, gap = (results.rows.estimate(name, model=model) for name in (VALIDATION, VALIDATION_GAP))
    reference = results.reference if gap else None
    return {
        **interval_columns("validation", validation),
        "validation_images": reference.images if reference else "",
        "validation_classes": reference.classes if reference else "",
        **interval_columns("validation_gap", gap),
    }


def _robustness_row(results: Results, shift: GroupFacts, model: ModelFacts, others: Sequence[str]) -> dict[str, Any]:
    key, number = {"model": model.name, "group": shift.name}, results.rows
    pairs = number.one("pairs_drop", **key)
    top_k = number.estimate("top_k", at=str(model.top_k), **key)
    return {
        "model": model.name,
        "shift": shift.name,
        "kind": shift.kind or "",
        "n_classes": shift.classes,
        "n_images": shift.images,
        "n_base_images": shift.base_images,
        "near_chance": int(model.near_chance),
        "base_accuracy": percent(number.value("base_accuracy", **key)),
        "accuracy": percent(number.value("accuracy", **key)),
        **interval_columns("drop", number.estimate("drop", **key)),
        "pairs": pairs.n if pairs else 0,
        **interval_columns("pairs_drop", pairs.estimate if pairs else None),
        **interval_columns("top1", number.estimate("top1", **key)),
        **interval_columns("top5", top_k),
        **{
            column: value
            for name in others
            for column, value in interval_columns(name, number.estimate(name, **key)).items()
        },
    }


def _class_row(results: Results, shift: GroupFacts, one: ClassNumbers) -> dict[str, Any]:
    known = bool(one.accuracy)
    drops = one.drops if known else (None,) * len(results.models)
    return {
        "shift": shift.name,
        "kind": shift.kind or "",
        "class_id": one.class_id,
        "class": one.name,
        "measured": int(known and not one.class_near_chance),
        "near_chance": int(one.class_near_chance),
        "n_images": one.shift_images,
        "n_base_images": one.base_images,
        "base_accuracy": percent(results.mean_of_sound(one.base_accuracy)) if known else "",
        "accuracy": percent(results.mean_of_sound(one.accuracy)) if known else "",
        **interval_columns("drop", one.impact),
        **{f"drop.{model.name}": percent(drop) for model, drop in zip(results.models, drops, strict=True)},
    }


def _shift_row(results: Results, shift: GroupFacts) -> dict[str, Any]:
    line = results.rows.one("slope", group=shift.name)
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
        **interval_columns("impact", results.rows.estimate("impact", group=shift.name)),
        "slope": _number(line.value if line else None),
        "slope_low": _number(line.low if line else None),
        "slope_high": _number(line.high if line else None),
        "intercept": percent(results.rows.value("intercept", group=shift.name)),
        "r_squared": _number(results.rows.value("r_squared", group=shift.name)),
        "n_models": line.n if line else "",
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
