"""Accuracy (over all images, averaged over classes, and by class), recall, precision, confusions,
chance level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from counterfoil.accuracy_stats import image_counts
from counterfoil.arrays import Bools, Ints
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    Measure,
    answer_names,
)
from counterfoil.evaluation.tasks.classes.resampling import weighted_mean
from counterfoil.prediction.class_map import Outputs
from counterfoil.report.reference import OVER_ALL, OVER_CLASSES
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.resampled_stats import share_estimate
from counterfoil.stats import Estimate


def _over_images(
    answered: AllAnswers,
    name: str,
    correct: Bools,
) -> Iterator[ResultRow]:
    rows_of = {}
    for index in answered.places:
        group = answered.group(index).name
        rows_of[group] = answered.rows(index)
    if not answered.subject.base:
        # The key of results over all groups.
        rows_of[""] = np.flatnonzero(answered.answers.readable)
    for group, rows in rows_of.items():
        if not len(rows):
            continue
        units = answered.shared_units(rows)
        key: dict[str, Any] = {
            "group": group,
            "n": len(rows),
            "units": answered.unit_count(rows),
        }
        for number, model in enumerate(answered.models):
            if name == "top_k":
                key["at"] = str(answered.maps[number].top_k)
            estimate = share_estimate(correct[rows, number], units)
            yield estimate_row(name, estimate, model=model, **key)


def _accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    for index in answered.places:
        group = answered.group(index).name
        seen = answered.seen(index)
        _, images = image_counts(seen)
        values: list[Estimate] | list[float] = []
        units = answered.unit_count(answered.rows(index))
        if answered.subject.base and index == 0:
            averages = answered.averages()
            values = list(map(averages.interval, range(len(answered.models))))
        elif seen:
            of_classes = [cls.shift_accuracy for cls in seen]
            values = np.mean(of_classes, axis=0).tolist()
        if values:
            key = {
                "group": group,
                "n": images,
                "units": units,
            }
            yield from answered.model_rows("accuracy", values, **key)
        for cls in answered.enough(index):
            _, images = cls.counts
            key = {
                "group": group,
                "class_id": cls.class_id,
                "n": images,
            }
            accuracies = cls.shift_accuracy.tolist()
            yield from answered.model_rows("accuracy", accuracies, **key)


def _base_accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    if not answered.subject.base:
        return
    for shift in answered.shifts:
        group = answered.group(shift).name
        for cls in answered.enough(shift):
            images, _ = cls.counts
            near_chance = answered.near_chance.cells[cls.class_id]
            accuracies = cls.base_accuracy.tolist()
            for model, name in enumerate(answered.models):
                note = ""
                if near_chance[model]:
                    note = "near chance"
                accuracy = accuracies[model]
                yield estimate_row(
                    "base_accuracy",
                    accuracy,
                    model=name,
                    group=group,
                    class_id=cls.class_id,
                    n=images,
                    note=note,
                )


# Report this many of the most frequent confusions; every answer is in predictions.parquet.
MOST_MISTAKEN = 50_000


def _answered_labels(answered: AllAnswers, model: int) -> Ints:
    """Return the class of each answer, (images,). A right answer has the image's class; an output
    without a class has -1."""
    class_map = answered.maps[model]
    label_of = np.full(class_map.num_classes, -1, np.int64)
    # The first class of an output is written last, and stays.
    for label in reversed(range(len(class_map.targets))):
        outputs = class_map.targets[label]
        label_of[list(outputs)] = label
    # An unreadable image has the prediction -1; no measure reads its label.
    outputs = answered.answers.prediction[:, model].clip(0)
    right = answered.answers.correct[:, model]
    return np.where(right, answered.subject.labels, label_of[outputs])


def _class_shares(name: str) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    """Return recall or precision by class. Recall is the share of the class's images that are
    right; precision is the share of the answers with the class that are right."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        classes = answered.subject.classes
        for model, index, labels in _answered_groups(answered):
            rows = answered.rows(index)
            if name == "recall":
                labels = answered.subject.labels[rows]
            right = answered.answers.correct[rows, model]
            units = answered.shared_units(rows)
            key = answered.key(model, index)
            known = labels[labels >= 0]
            for label in np.unique(known).tolist():
                of_class = np.flatnonzero(labels == label)
                of_units = None if units is None else units[of_class]
                share = share_estimate(right[of_class], of_units)
                yield estimate_row(
                    name,
                    share,
                    class_id=classes[label].id,
                    n=len(of_class),
                    **key,
                )

    return rows_of


def _confusion(answered: AllAnswers) -> Iterator[ResultRow]:
    classes = answered.subject.classes
    # Two outputs may share a name: add their shares and counts in one row.
    confusions: dict[tuple[str, ...], tuple[float, int]] = {}
    for model, index, answered_labels in _answered_groups(answered):
        output_name = answer_names(classes, answered.maps[model])
        rows = answered.rows(index)
        labels = answered.subject.labels[rows]
        images = np.bincount(labels, minlength=len(classes))
        # An output that belongs to no class is listed under the name of the output.
        predicted = answered.answers.prediction[rows, model]
        outputs = np.where(answered_labels < 0, predicted, -1)
        answers = np.stack([labels, answered_labels, outputs])
        confused, counts = np.unique(answers, axis=1, return_counts=True)
        model_name = answered.models[model]
        group = answered.group(index).name
        counted = np.vstack([confused, counts]).T
        for label, answer, output, count in counted.tolist():
            against = output_name(output) if answer < 0 else classes[answer].id
            key = (model_name, group, classes[label].id, against)
            share, n = confusions.get(key, (0.0, 0))
            share += count / int(images[label])
            confusions[key] = (share, n + count)
    least = 1
    if len(confusions) > MOST_MISTAKEN:
        images_of_all = sorted(n for _, n in confusions.values())
        # Confusions as frequent as the last are left out together.
        least = images_of_all[-MOST_MISTAKEN] + 1
    for (model_name, group, class_id, against), (share, n) in confusions.items():
        if n < least:
            continue
        yield estimate_row(
            "confusion",
            share,
            n=n,
            model=model_name,
            group=group,
            class_id=class_id,
            against=against,
        )


def _answered_groups(answered: AllAnswers) -> Iterator[tuple[int, int, Ints]]:
    """Yield the index of every model and of every group, with the classes that the model answers to
    the group's readable images."""
    for model in range(len(answered.models)):
        labels_of_model = partial(_answered_labels, answered, model)
        answered_labels = answered.once(("answered labels", model), labels_of_model)
        for index in answered.places:
            yield model, index, answered_labels[answered.rows(index)]


MEASURES: dict[str, Measure] = {
    "top1": Measure(
        lambda answered: _over_images(answered, "top1", answered.answers.correct),
        "Accuracy over all images",
        "percent",
        "The share of images that the model gets right, with its Wilson interval. Every image"
        " counts once.",
        resampled=lambda images, weights: weighted_mean(images.correct, weights),
    ),
    "top_k": Measure(
        lambda answered: _over_images(answered, "top_k", answered.answers.correct_top_k),
        "Top-k accuracy over all images",
        "percent",
        "The share of images whose class is among the model's k best answers. `at` gives k.",
        resampled=lambda images, weights: weighted_mean(images.correct_top_k, weights),
    ),
    "accuracy": Measure(
        _accuracy,
        "Accuracy averaged over classes",
        "percent",
        "The mean over all classes, those near chance too; the interval on the base is a bootstrap"
        " interval.",
    ),
    "base_accuracy": Measure(
        _base_accuracy,
        "Accuracy on the base, by class",
        "percent",
        "Accuracy on the base images of one class.",
    ),
}


def _accuracy_over(measure: str, way: Outputs) -> Measure:
    """Return accuracy over `way`: all outputs, or the classes' outputs alone. Models whose two
    accuracies cannot differ have no row."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        for index in answered.places:
            seen = [answered.label_of[cls.class_id] for cls in answered.seen(index)]
            if not seen:
                continue
            rows = answered.rows_of_labels(index, seen)
            labels = answered.subject.labels[rows]
            images = np.bincount(labels)
            for model, scores in enumerate(answered.scored):
                predictions = scores.predictions
                correct = predictions.correct_otherwise
                if correct is None:
                    continue
                if scores.class_map.leads == way:
                    correct = predictions.correct
                right = np.bincount(labels, weights=correct[rows])
                of_classes = right[seen] / images[seen]
                accuracy = float(of_classes.mean())
                key = answered.key(model, index)
                yield estimate_row(measure, accuracy, n=len(rows), **key)

    over = "the outputs of the dataset's classes alone"
    if way == "all":
        over = "all outputs of a model"
    return Measure(
        rows_of,
        f"Accuracy over {over}",
        "percent",
        f"Accuracy averaged over classes where an answer is the best of {over}.",
        shown=("report",),
    )


def _chance(answered: AllAnswers) -> Iterator[ResultRow]:
    chances = [float(class_map.chances.mean()) for class_map in answered.maps]
    yield from answered.model_rows("chance", chances)


# The rows of these measures come after the rows of drops.
MORE_MEASURES: dict[str, Measure] = {
    OVER_ALL: _accuracy_over(OVER_ALL, "all"),
    OVER_CLASSES: _accuracy_over(OVER_CLASSES, "classes"),
    "chance": Measure(
        _chance,
        "Chance level",
        "percent",
        "The share of right answers if a model guesses at random among its outputs, averaged over"
        " classes.",
    ),
    "recall": Measure(
        _class_shares("recall"),
        "Recall",
        "percent",
        "The share of a class's images that the model predicts as this class, with its Wilson"
        " interval.",
        shown=("report",),
    ),
    "precision": Measure(
        _class_shares("precision"),
        "Precision",
        "percent",
        "The share of predictions of a class that are right, with its Wilson interval. It depends"
        " on how many images each class has.",
        shown=("report",),
    ),
    "confusion": Measure(
        _confusion,
        "Confusion",
        "percent",
        "The share of a class's images that the model predicts as `against`: a class id, or the"
        " name of an output.",
        shown=("report",),
    ),
}
