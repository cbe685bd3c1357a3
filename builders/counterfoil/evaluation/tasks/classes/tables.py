"""The CSV tables of classifiers, and every answer. In them accuracies are in percent, drops in
percentage points."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.documents import csv_text
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.report.reference import VALIDATION, VALIDATION_GAP
from counterfoil.report.results import (
    DROP_BASE,
    NESTED,
    ModelFacts,
    ResultRow,
    Results,
    classes_of,
)
from counterfoil.report.words import csv_interval as interval_columns
from counterfoil.report.words import csv_percent as percent

# The first columns of robustness.csv; other measures of a model and a group follow.
_OWN = ("accuracy", DROP_BASE, "drop", "pairs_drop", "top1", "top_k")


def result_tables(results: Results) -> Tables:
    """Write every table of these results: short name → (file name, CSV)."""
    tables = {
        "results": ("results.csv", results_csv(results)),
        "robustness": ("robustness.csv", robustness_csv(results)),
        "shifts": ("shifts.csv", shifts_csv(results)),
    }
    if results.base is not None:  # classes are shown by their drops
        tables["classes"] = ("classes.csv", classes_csv(results))
    corruptions = corruptions_csv(results)
    if corruptions is not None:
        tables["corruptions"] = ("corruptions.csv", corruptions)
    for shown in NESTED.values():
        text = shown.csv(results)
        if text is not None:
            name = Path(shown.file).stem
            tables[name] = (shown.file, text)
    return tables


def results_csv(results: Results) -> str:
    """Write one line for each model, best first: timm's columns, then `accuracy.SHIFT` and
    `drop.SHIFT` of each shift.

    top1 and top5 are over the accepted base images. Each image counts once, as in timm. top5 is
    the accuracy of the `top_k` best answers. `base` and `accuracy.SHIFT` are averaged over all
    classes, `drop.SHIFT` over the `n_classes` of shifts.csv. `tied` counts images whose two best
    scores are equal.
    """
    measured = results.rows
    group = results.base or ""
    model_of = {model.name: model for model in results.models}
    top1_of = {}
    for name in model_of:
        top1 = measured.value("top1", model=name, group=group)
        top1_of[name] = top1 or 0.0
    rows = []
    for name in sorted(model_of, key=lambda name: (-top1_of[name], name)):
        model = model_of[name]
        top1 = top1_of[name]
        at = str(model.top_k)
        top_k = measured.value("top_k", model=name, group=group, at=at) or 0.0
        gap = measured.estimate(VALIDATION_GAP, model=name)
        millions = ""
        if model.param_count is not None:
            millions = f"{model.param_count / 1e6:.2f}"
        # timm's columns, in timm's order (results/results-imagenet.csv).
        row: dict[str, Any] = {
            "model": name,
            "img_size": model.img_size,
            "top1": percent(top1),
            "top1_err": percent(1 - top1),
            "top5": percent(top_k),
            "top5_err": percent(1 - top_k),
            "param_count": millions,
            "crop_pct": model.crop_pct,
            "interpolation": model.interpolation,
        }
        # Ours.
        row |= {"top_k": model.top_k, "tied": model.tied}
        row |= interval_columns("base", results.base_number(name))
        row["near_chance"] = int(model.near_chance)
        average_drop = measured.value("average_drop", model=name)
        row["average_drop"] = percent(average_drop)
        accuracy = measured.estimate(VALIDATION, model=name)
        row |= interval_columns("validation", accuracy)
        # What the gap was measured on.
        reference = results.reference if gap else None
        row["validation_images"] = reference.images if reference else ""
        row["validation_classes"] = reference.classes if reference else ""
        row |= interval_columns("validation_gap", gap)
        for shift in results.shifts:
            for measure in ("accuracy", "drop"):
                value = measured.value(measure, model=name, group=shift.name)
                row[f"{measure}.{shift.name}"] = percent(value)
        rows.append(row)
    return csv_text(rows)


def robustness_csv(results: Results) -> str:
    """Write one line for each model and shift: accuracies, drops with their intervals, other
    measures.

    Accuracies are averaged over all classes. `drop_base`, drops and counts are over `n_classes`
    classes.
    """
    shown = {facts.name for facts in results.measures}
    shown -= set(_OWN)
    for nested in NESTED.values():
        shown -= {facts.name for facts in nested.measures}
    # A table without drops has this column too, so that all tables have the same columns.
    others = ["relative_drop"]
    for result in results.rows:
        whole_shift = result.model and result.group
        detail = result.class_id or result.against or result.at
        if result.measure in shown and whole_shift and not detail:
            others.append(result.measure)
    others = list(dict.fromkeys(others))
    rows = []
    measured = results.rows
    for shift, model in product(results.shifts, results.models):
        key = {"model": model.name, "group": shift.name}
        pairs = measured.one("pairs_drop", **key)
        at = str(model.top_k)
        row: dict[str, Any] = {
            "model": model.name,
            "shift": shift.name,
            "kind": shift.kind or "",
            "n_classes": shift.classes,
            "n_classes_left_out": len(shift.left_out),
            "n_images": shift.images,
            "n_base_images": shift.base_images,
            "near_chance": int(model.near_chance),
            "base_accuracy": _base_accuracy(results, model),
            "accuracy": percent(measured.value("accuracy", **key)),
            DROP_BASE: percent(measured.value(DROP_BASE, **key)),
        }
        row |= interval_columns("drop", measured.estimate("drop", **key))
        row["pairs"] = pairs.n if pairs else 0
        for name in ("pairs_drop", "top1"):
            row |= interval_columns(name, measured.estimate(name, **key))
        top5 = measured.estimate("top_k", at=at, **key)
        row |= interval_columns("top5", top5)
        for name in others:
            row |= interval_columns(name, measured.estimate(name, **key))
        rows.append(row)
    return csv_text(rows)


def corruptions_csv(results: Results) -> str | None:
    """Write one line for each model and reference; without a reference, one for each model.

    mCE and relative mCE are in percent of the reference's error. None if nothing is measured.
    """
    measured = results.rows
    rows = []
    for model in results.models:
        name = model.name
        means = measured.where("mPC", model=name)
        if not means:
            continue
        mean = means[0]
        retained = measured.estimate("rPC", model=name)
        residual = None
        line = ""
        for robustness in measured.where("mean_effective_robustness", model=name):
            residual = robustness.estimate
            line = robustness.against
        # Without a reference, a line has no mCE.
        for error in measured.where("mCE", model=name) or [mean]:
            key = {"model": name, "against": error.against}
            row: dict[str, Any] = {
                "model": name,
                "reference": error.against,
                "n_kinds": mean.at,
                "n_images": mean.n,
                "near_chance": int(model.near_chance),
                "base_accuracy": _base_accuracy(results, model),
            }
            row |= interval_columns("mPC", mean.estimate)
            row |= interval_columns("rPC", retained)
            for measure in ("mCE", "relative_mCE"):
                row |= interval_columns(measure, measured.estimate(measure, **key))
            row |= interval_columns("effective_robustness", residual)
            row["effective_robustness_reference"] = line
            relative = measured.one("relative_mCE", **key)
            row["comparable"] = relative.note if relative else error.note
            rows.append(row)
    return csv_text(rows) if rows else None


def shifts_csv(results: Results) -> str:
    """Write one line for each shift, the base first: yield, classes measured and left out, impact,
    ID/OOD slope."""
    rows = []
    measured = results.rows
    for shift in results.groups:
        left_out = shift.left_out
        if shift is results.base_group:
            left_out = results.near_chance_classes
        near_chance = [cls.class_id for cls in left_out if cls.why == "near chance"]
        ids_left_out = [cls.class_id for cls in shift.left_out]
        key = {"group": shift.name}
        slope = measured.one("slope", **key)
        row: dict[str, Any] = {
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
            "classes_left_out": " ".join(ids_left_out),
            "classes_near_chance": " ".join(near_chance),
        }
        row |= interval_columns("impact", measured.estimate("impact", **key))
        row |= _slope_columns("slope", slope)
        row["intercept"] = percent(measured.value("intercept", **key))
        row["r_squared"] = _number(measured.value("r_squared", **key))
        row |= _slope_columns("probit_slope", measured.one("probit_slope", **key))
        row["probit_r_squared"] = _number(measured.value("probit_r_squared", **key))
        row["n_models"] = slope.n if slope else ""
        rows.append(row)
    return csv_text(rows)


def classes_csv(results: Results) -> str:
    """Write one line for each shift and class: images, accuracies and drop averaged over models,
    `drop.MODEL` for each.

    A class with too few images has only counts. A class near chance on the base has no drop
    averaged over models.
    """
    rows = []
    names = [model.name for model in results.models]
    for shift in results.shifts:
        for numbers in classes_of(results, shift.name):
            measured = bool(numbers.accuracy)
            base_accuracy = None
            accuracy = None
            if measured:
                base_accuracy = results.mean_accuracy(numbers.base_accuracy)
                accuracy = results.mean_accuracy(numbers.accuracy)
            row: dict[str, Any] = {
                "shift": shift.name,
                "kind": shift.kind or "",
                "class_id": numbers.class_id,
                "class": numbers.name,
                "measured": int(measured and not numbers.class_near_chance),
                "near_chance": int(numbers.class_near_chance),
                "n_images": numbers.shift_images,
                "n_base_images": numbers.base_images,
                "base_accuracy": percent(base_accuracy),
                "accuracy": percent(accuracy),
            }
            row |= interval_columns("drop", numbers.impact)
            for model, name in enumerate(names):
                drop = numbers.drops[model] if measured else None
                row[f"drop.{name}"] = percent(drop)
            rows.append(row)
    return csv_text(rows)


def image_answers(answered: AllAnswers) -> dict[str, Any]:
    """Return columns of each image: its class, and each model's answer, confidence and whether it
    is right.

    Answers are empty if the image cannot be decoded, or if the model cannot take its shift.
    """
    import pyarrow as pa

    subject = answered.subject
    classes = [subject.classes[label] for label in subject.labels.tolist()]
    class_ids = [cls.id for cls in classes]
    class_names = [cls.name for cls in classes]
    columns: dict[str, pa.Array] = {
        "label": pa.array(subject.labels, pa.int64()),
        "class_id": pa.array(class_ids, pa.string()),
        "class": pa.array(class_names, pa.string()),
    }
    for index, model in enumerate(answered.models):
        output_name = answer_names(subject.classes, answered.maps[index])
        absent = ~answered.given[:, index]
        predicted = answered.answers.prediction[:, index]
        predicted = np.where(absent, -1, predicted)
        outputs, inverse = np.unique(predicted, return_inverse=True)
        names = []
        for output in outputs.tolist():
            names.append(output_name(output) if output >= 0 else None)
        answers = pa.array(names, pa.string())
        confidence = answered.confidence[:, index]
        unknown = absent | np.isnan(confidence)
        right = answered.answers.correct[:, index]
        columns[f"answer.{model}"] = pa.array(predicted, pa.int32(), mask=absent)
        columns[f"answered.{model}"] = answers.take(pa.array(inverse))
        columns[f"confidence.{model}"] = pa.array(confidence, pa.float32(), mask=unknown)
        columns[f"right.{model}"] = pa.array(right, pa.bool_(), mask=absent)
    return columns


def _base_accuracy(results: Results, model: ModelFacts) -> str:
    base = results.base_number(model.name)
    return "" if base is None else percent(base.value)


def _slope_columns(name: str, line: ResultRow | None) -> dict[str, str]:
    columns = dict.fromkeys((name, f"{name}_low", f"{name}_high"), "")
    if line is not None:
        numbers = map(_number, (line.value, line.low, line.high))
        columns = dict(zip(columns, numbers, strict=True))
    return columns


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
