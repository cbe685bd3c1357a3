"""Accuracy (over all images, averaged over classes, and by class), recall, precision, confusions,
chance level."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from counterfoil import accuracy_stats
from counterfoil.arrays import Bools, Ints
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Measure, answer_names
from counterfoil.evaluation.tasks.classes.resampling import weighted_mean
from counterfoil.prediction.class_map import Outputs
from counterfoil.report.reference import OVER_ALL, OVER_CLASSES
from counterfoil.report.results import ResultRow, row
from counterfoil.resampled_stats import share_estimate
from counterfoil.stats import Estimate, wilson_estimate


def _over_images(answered: AllAnswers, name: str, correct: Bools) -> Iterator[ResultRow]:
    places = [(answered.group(index).name, answered.rows(index)) for index in answered.places]
    if not answered.subject.base:
        places.append(("", np.flatnonzero(answered.answers.readable)))
    for group, rows in places:
        for number, model in enumerate(answered.models):
            if len(rows):
                estimate = share_estimate(correct[rows, number], answered.shared_units(rows))
                key = {
                    "at": str(answered.maps[number].top_k) if name == "top_k" else "",
                    "n": len(rows),
                }
                yield row(
                    name, estimate, model=model, group=group, units=answered.unit_count(rows), **key
                )


def _accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    for index in answered.places:
        group = answered.group(index).name
        seen = answered.seen(index)
        images = sum(cls.counts[1] for cls in seen)
        values: list[Estimate] | list[float] = []
        units = answered.unit_count(answered.rows(index))
        if answered.subject.base and index == 0:
            averages = answered.averages()
            values = [averages.interval(model) for model in range(len(answered.models))]
        elif seen:
            by_class = [
                accuracy_stats.accuracy_per_class(cls.shift_present, cls.shift_correct)
                for cls in seen
            ]
            values = np.mean(by_class, axis=0).tolist()
        yield from (
            row("accuracy", value, model=name, group=group, n=images, units=units)
            for name, value in zip(answered.models, values, strict=False)
        )
        for cls in answered.enough(index):
            by_model = accuracy_stats.accuracy_per_class(
                cls.shift_present, cls.shift_correct
            ).tolist()
            yield from (
                row(
                    "accuracy",
                    value,
                    model=name,
                    group=group,
                    class_id=cls.class_id,
                    n=cls.counts[1],
                )
                for name, value in zip(answered.models, by_model, strict=True)
            )


def _base_accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    if not answered.subject.base:
        return
    for shift in answered.shifts:
        group = answered.group(shift).name
        for cls in answered.enough(shift):
            by_model = accuracy_stats.accuracy_per_class(
                cls.base_present, cls.base_correct
            ).tolist()
            near = answered.near_chance.cells[cls.class_id]
            for model, value in enumerate(by_model):
                key = {"model": answered.models[model], "group": group, "class_id": cls.class_id}
                yield row(
                    "base_accuracy",
                    value,
                    n=cls.counts[0],
                    note="near chance" if near[model] else "",
                    **key,
                )


# Report this many of the most frequent confusions; every answer is in predictions.parquet.
MOST_MISTAKEN = 50_000


def _answered_labels(answered: AllAnswers, model: int) -> Ints:
    """Return the class of each answer, (images,): the image's class if it is right, -1 if the
    output has no class."""
    means = np.full(answered.maps[model].num_classes, -1, dtype=np.int64)
    for label, outputs in reversed(list(enumerate(answered.maps[model].targets))):
        means[list(outputs)] = label
    mean = means[answered.answers.prediction[:, model].clip(0)]
    return np.where(answered.answers.correct[:, model], answered.subject.labels, mean)


def _class_shares(name: str) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    """Return recall or precision by class: the share right of its images, or of the answers that
    name the class."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        classes = answered.subject.classes
        for model, group, rows, answers in _each(answered):
            labels = answered.subject.labels[rows] if name == "recall" else answers
            known = labels >= 0
            right = answered.answers.correct[rows, model]
            whole = np.bincount(labels[known], minlength=len(classes))
            part = np.bincount(labels[known], weights=right[known], minlength=len(classes))
            units = answered.shared_units(rows)
            for label in np.flatnonzero(whole).tolist():
                share = wilson_estimate(int(part[label]), int(whole[label]))
                if units is not None:
                    share = share_estimate(right[labels == label], units[labels == label])
                key = {
                    "model": answered.models[model],
                    "group": group,
                    "class_id": classes[label].id,
                }
                yield row(name, share, n=int(whole[label]), **key)

    return rows_of


def _confusion(answered: AllAnswers) -> Iterator[ResultRow]:
    # Two outputs may share a name: add their shares and counts in one row.
    confusions: dict[tuple[str, str, str, str], tuple[float, int]] = {}
    for model, group, rows, answered_labels in _each(answered):
        called = answer_names(answered.subject.classes, answered.maps[model])
        labels = answered.subject.labels[rows]
        images = np.bincount(labels, minlength=len(answered.subject.classes))
        outputs = answered.answers.prediction[rows, model]
        # An output that belongs to no class is listed under the name of the output.
        keys, counts = np.unique(
            np.stack([labels, answered_labels, np.where(answered_labels < 0, outputs, -1)]),
            axis=1,
            return_counts=True,
        )
        for (label, answer, output), count in zip(keys.T.tolist(), counts.tolist(), strict=True):
            against = answered.subject.classes[answer].id if answer >= 0 else called(output)
            key = answered.models[model], group, answered.subject.classes[label].id, against
            share, n = confusions.get(key, (0.0, 0))
            confusions[key] = share + count / int(images[label]), n + count
    most = sorted((n for _, n in confusions.values()), reverse=True)[:MOST_MISTAKEN]
    least = most[-1] if len(confusions) > MOST_MISTAKEN else 0
    for (model_name, group, class_id, against), (share, n) in confusions.items():
        if n > least or least == 0:
            yield row(
                "confusion",
                share,
                model=model_name,
                group=group,
                class_id=class_id,
                against=against,
                n=n,
            )


def _each(answered: AllAnswers) -> Iterator[tuple[int, str, Ints, Ints]]:
    """Yield for every model and group: index of the model, the group, its readable images, their
    answered classes."""
    for model in range(len(answered.models)):
        answered_labels = answered.once(
            ("said", model), lambda model=model: _answered_labels(answered, model)
        )
        for index in answered.places:
            rows = answered.rows(index)
            yield model, answered.group(index).name, rows, answered_labels[rows]


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


def _either_way(measure: str, way: Outputs) -> Measure:
    """Return accuracy over all outputs or over the classes' outputs alone, for models where the two
    can differ."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        label_of = {cls.id: label for label, cls in enumerate(answered.subject.classes)}
        for index in answered.places:
            seen = [label_of[cls.class_id] for cls in answered.seen(index)]
            rows = answered.rows(index)
            labels = answered.subject.labels[rows]
            images = np.bincount(labels, minlength=len(label_of))[seen]
            for model, class_map in enumerate(answered.maps):
                predictions = answered.scored[model].predictions
                if seen and predictions.correct_otherwise is not None:
                    correct = (
                        predictions.correct
                        if class_map.leads == way
                        else predictions.correct_otherwise
                    )[rows]
                    right = np.bincount(labels, weights=correct, minlength=len(label_of))[seen]
                    key = {"model": answered.models[model], "group": answered.group(index).name}
                    yield row(measure, float((right / images).mean()), n=int(images.sum()), **key)

    over = (
        "all outputs of a model" if way == "all" else "the outputs of the dataset's classes alone"
    )
    reading = f"Accuracy averaged over classes where an answer is the best of {over}."
    return Measure(rows_of, f"Accuracy over {over}", "percent", reading, shown=("report",))


# The rows of these measures come after the rows of drops.
MORE_MEASURES: dict[str, Measure] = {
    OVER_ALL: _either_way(OVER_ALL, "all"),
    OVER_CLASSES: _either_way(OVER_CLASSES, "classes"),
    "chance": Measure(
        lambda answered: (
            row("chance", float(class_map.chances.mean()), model=name)
            for name, class_map in zip(answered.models, answered.maps, strict=True)
        ),
        "Chance level",
        "percent",
        "How often a random guess among the outputs that a model answers over is right, averaged"
        " over classes.",
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
        " on how many images"
        " each class has.",
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
