"""The CSV tables of classifiers, and every answer. In them accuracies are in percent, drops in
percentage points."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from counterfoil.documents import csv_text
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.report.reference import VALIDATION, VALIDATION_GAP
from counterfoil.report.results import DROP_BASE, NESTED, ResultRow, Results, classes_of
from counterfoil.report.words import csv_interval as interval_columns
from counterfoil.report.words import csv_percent as percent

# The first columns of robustness.csv; other measures of a model and a group follow.
_OWN = ("accuracy", DROP_BASE, "drop", "pairs_drop", "top1", "top_k")


def result_tables(results: Results) -> dict[str, tuple[str, str]]:
    """Write every table of these results: short name → (file name, CSV)."""
    tables = {
        "results": ("results.csv", results_csv(results)),
        "robustness": ("robustness.csv", robustness_csv(results)),
        "shifts": ("shifts.csv", shifts_csv(results)),
    }
    if results.base is not None:  # classes are shown by their drops
        tables["classes"] = ("classes.csv", classes_csv(results))
    for shown in NESTED.values():
        if (text := shown.csv(results)) is not None:
            tables[Path(shown.file).stem] = (shown.file, text)
    return tables


def results_csv(results: Results) -> str:
    """Write one line for each model, best first: timm's columns, then `accuracy.SHIFT` and
    `drop.SHIFT` of each shift.

    top1 and top5 are on the accepted base images, each image counting once, as timm counts; top5
    counts the top `top_k`. `base` is averaged over all classes, and so is `accuracy.SHIFT`;
    `drop.SHIFT` is over the classes that shifts.csv counts. `tied` counts images whose two best
    scores are equal.
    """
    rows = []
    number = results.rows
    group = results.base or ""
    top1 = {
        model.name: number.value("top1", model=model.name, group=group) or 0.0
        for model in results.models
    }
    for model in sorted(
        results.models, key=lambda model_facts: (-top1[model_facts.name], model_facts.name)
    ):
        top_k = number.value("top_k", model=model.name, group=group, at=str(model.top_k)) or 0.0
        validation, gap = (
            number.estimate(name, model=model.name) for name in (VALIDATION, VALIDATION_GAP)
        )
        reference = results.reference if gap else None
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
            **interval_columns("validation", validation),
            "validation_images": reference.images if reference else "",
            "validation_classes": reference.classes if reference else "",
            **interval_columns("validation_gap", gap),
        }
        for shift in results.shifts:
            row[f"accuracy.{shift.name}"] = percent(
                number.value("accuracy", model=model.name, group=shift.name)
            )
            row[f"drop.{shift.name}"] = percent(
                number.value("drop", model=model.name, group=shift.name)
            )
        rows.append(row)
    return csv_text(rows)


def robustness_csv(results: Results) -> str:
    """Write one line for each model and shift: accuracies, drops with their intervals, other
    measures.

    Accuracies are averaged over all classes. `drop_base`, drops and counts are of the `n_classes`
    of the drop.
    """
    nested = {facts.name for shown in NESTED.values() for facts in shown.measures}
    shown = {facts.name for facts in results.measures} - nested - set(_OWN)
    others = list(
        dict.fromkeys(
            result.measure
            for result in results.rows
            if result.measure in shown
            and result.model
            and result.group
            and not (result.class_id or result.against or result.at)
        )
    )
    # A table without drops has this column too, so that all tables have the same columns.
    others = list(dict.fromkeys(["relative_drop", *others]))
    rows = []
    number = results.rows
    for shift, model in product(results.shifts, results.models):
        key = {"model": model.name, "group": shift.name}
        pairs = number.one("pairs_drop", **key)
        row: dict[str, Any] = {
            "model": model.name,
            "shift": shift.name,
            "kind": shift.kind or "",
            "n_classes": shift.classes,
            "n_classes_left_out": len(shift.left_out),
            "n_images": shift.images,
            "n_base_images": shift.base_images,
            "near_chance": int(model.near_chance),
            "base_accuracy": percent(
                base.value if (base := results.base_number(model.name)) else None
            ),
            "accuracy": percent(number.value("accuracy", **key)),
            DROP_BASE: percent(number.value(DROP_BASE, **key)),
            **interval_columns("drop", number.estimate("drop", **key)),
            "pairs": pairs.n if pairs else 0,
            **interval_columns("pairs_drop", pairs.estimate if pairs else None),
            **interval_columns("top1", number.estimate("top1", **key)),
            **interval_columns("top5", number.estimate("top_k", at=str(model.top_k), **key)),
        }
        for name in others:
            row |= interval_columns(name, number.estimate(name, **key))
        rows.append(row)
    return csv_text(rows)


def shifts_csv(results: Results) -> str:
    """Write one line for each shift, the base first: yield, classes measured and left out, impact,
    ID/OOD slope."""
    rows = []
    number = results.rows
    for shift in results.groups:
        left_out = results.near_chance_classes if shift is results.base_group else shift.left_out
        near_chance = [
            class_left_out.class_id
            for class_left_out in left_out
            if class_left_out.why == "near chance"
        ]
        line, probit = (number.one(name, group=shift.name) for name in ("slope", "probit_slope"))
        rows.append(
            {
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
                "classes_left_out": " ".join(
                    class_left_out.class_id for class_left_out in shift.left_out
                ),
                "classes_near_chance": " ".join(near_chance),
                **interval_columns("impact", number.estimate("impact", group=shift.name)),
                **_slope_columns("slope", line),
                "intercept": percent(number.value("intercept", group=shift.name)),
                "r_squared": _number(number.value("r_squared", group=shift.name)),
                **_slope_columns("probit_slope", probit),
                "probit_r_squared": _number(number.value("probit_r_squared", group=shift.name)),
                "n_models": line.n if line else "",
            }
        )
    return csv_text(rows)


def classes_csv(results: Results) -> str:
    """Write one line for each shift and class: images, accuracies and drop averaged over models,
    `drop.MODEL` for each.

    A class with too few images has only counts. A class near chance on the base has no drop
    averaged over models.
    """
    rows = []
    for shift in results.shifts:
        for numbers in classes_of(results, shift.name):
            known = bool(numbers.accuracy)
            drops = numbers.drops if known else (None,) * len(results.models)
            row: dict[str, Any] = {
                "shift": shift.name,
                "kind": shift.kind or "",
                "class_id": numbers.class_id,
                "class": numbers.name,
                "measured": int(known and not numbers.class_near_chance),
                "near_chance": int(numbers.class_near_chance),
                "n_images": numbers.shift_images,
                "n_base_images": numbers.base_images,
                "base_accuracy": percent(results.mean_accuracy(numbers.base_accuracy))
                if known
                else "",
                "accuracy": percent(results.mean_accuracy(numbers.accuracy)) if known else "",
                **interval_columns("drop", numbers.impact),
            }
            row |= {
                f"drop.{model.name}": percent(drop)
                for model, drop in zip(results.models, drops, strict=True)
            }
            rows.append(row)
    return csv_text(rows)


def image_answers(answered: AllAnswers) -> dict[str, Any]:
    """Return columns of each image: its class, and each model's answer, confidence and whether it
    is right.

    Answers are empty if the image cannot be decoded.
    """
    import numpy as np
    import pyarrow as pa

    subject = answered.subject
    answers = answered.answers
    absent = ~answers.readable
    labels = subject.labels.tolist()
    columns: dict[str, pa.Array] = {
        "label": pa.array(subject.labels, pa.int64()),
        "class_id": pa.array([subject.classes[label].id for label in labels], pa.string()),
        "class": pa.array([subject.classes[label].name for label in labels], pa.string()),
    }
    for index, (model, class_map) in enumerate(zip(answered.models, answered.maps, strict=True)):
        called = answer_names(subject.classes, class_map)
        outputs, inverse = np.unique(
            np.where(absent, -1, answers.prediction[:, index]), return_inverse=True
        )
        shown_names = [called(output) for output in outputs.tolist() if output >= 0]
        # -1, which stands for no answer, comes first.
        output_names = pa.array(
            [*[None] * (len(outputs) - len(shown_names)), *shown_names], pa.string()
        )
        columns[f"answer.{model}"] = pa.array(answers.prediction[:, index], pa.int32(), mask=absent)
        columns[f"answered.{model}"] = output_names.take(pa.array(inverse))
        sure = answered.confidence[:, index]
        columns[f"confidence.{model}"] = pa.array(sure, pa.float32(), mask=absent | np.isnan(sure))
        columns[f"right.{model}"] = pa.array(answers.correct[:, index], pa.bool_(), mask=absent)
    return columns


def _slope_columns(name: str, line: ResultRow | None) -> dict[str, str]:
    ends = {name: line.value, f"{name}_low": line.low, f"{name}_high": line.high} if line else {}
    return {column: _number(ends.get(column)) for column in (name, f"{name}_low", f"{name}_high")}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
