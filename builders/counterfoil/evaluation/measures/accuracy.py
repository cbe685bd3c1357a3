"""How often models are right: over all images, averaged over classes, of single classes; and how often guessing is.

Of single classes: how many of their images are found, how many answers of them are right, and what is mistaken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from counterfoil import accuracy_stats
from counterfoil.evaluation.scores import AllAnswers, Measure, answer_names
from counterfoil.prediction.class_map import Outputs
from counterfoil.report.reference import OVER_ALL, OVER_CLASSES
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate, wilson_estimate, wilson_interval


def _over_images(answered: AllAnswers, name: str, correct: NDArray[np.bool_]) -> Iterator[ResultRow]:
    places = [(answered.group(place).name, answered.rows(place)) for place in answered.places]
    if not answered.subject.base:
        places.append(("", np.flatnonzero(answered.answers.readable)))
    for group, rows in places:
        for place, model in enumerate(answered.models):
            if len(rows):
                found = wilson_estimate(int(correct[rows, place].sum()), len(rows))
                at = str(answered.maps[place].top_k) if name == "top_k" else ""
                yield row(name, found, model=model, group=group, at=at, n=len(rows))


def _accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    averages = answered.averages() if answered.subject.base else None
    for place in answered.places:
        group, kept = answered.group(place).name, answered.kept(place)
        images = sum(one.counts[1] for one in kept)
        if averages is not None and place == 0:
            found = [averages.interval(model) for model in range(len(answered.models))]
        elif answered.subject.base:
            drops = answered.drops(place)
            found = drops.accuracy.tolist() if drops else []
        else:
            by_class = [accuracy_stats.accuracy_per_class(one.base_present, one.base_correct) for one in kept]
            found = np.mean(by_class, axis=0).tolist() if by_class else []
        yield from (
            row("accuracy", value, model=name, group=group, n=images)
            for name, value in zip(answered.models, found, strict=False)
        )
        for one in answered.enough(place):
            own = accuracy_stats.accuracy_per_class(one.shift_present, one.shift_correct).tolist()
            yield from (
                row("accuracy", value, model=name, group=group, class_id=one.class_id, n=one.counts[1])
                for name, value in zip(answered.models, own, strict=True)
            )


def _base_accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    if not answered.subject.base:
        return
    for shift in answered.shifts:
        group, found = answered.group(shift).name, answered.drops(shift)
        if found:
            images = sum(one.counts[0] for one in answered.kept(shift))
            for name, value in zip(answered.models, found.base_accuracy.tolist(), strict=True):
                yield row("base_accuracy", value, model=name, group=group, n=images)
        for one in answered.enough(shift):
            own = accuracy_stats.accuracy_per_class(one.base_present, one.base_correct).tolist()
            near = answered.near_chance.cells[one.class_id]
            for model, value in enumerate(own):
                note = "near chance" if near[model] else ""
                yield ResultRow(
                    "base_accuracy",
                    answered.models[model],
                    group,
                    one.class_id,
                    value=value,
                    n=one.counts[0],
                    note=note,
                )


def _chance(answered: AllAnswers) -> Iterator[ResultRow]:
    for name, own in zip(answered.models, answered.maps, strict=True):
        yield row("chance", float(own.chances.mean()), model=name)


# The pairs of classes that are mistaken most; every answer is in predictions.parquet.
MOST_MISTAKEN = 50_000


def _answered_labels(answered: AllAnswers, model: int) -> NDArray[np.int64]:
    """Return (images,) the class of an answer (its own, if right for several), -1 for an output right for none."""
    means = np.full(answered.maps[model].num_classes, -1, dtype=np.int64)
    for label, outputs in reversed(list(enumerate(answered.maps[model].targets))):
        means[list(outputs)] = label
    mean = means[answered.answers.prediction[:, model].clip(0)]
    return np.where(answered.answers.correct[:, model], answered.subject.labels, mean)


def _class_shares(name: str) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    """Return the share of right answers of each class: of its images (recall), or of the answers that mean it."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        classes = answered.subject.classes
        for model, group, rows, answers in _each(answered):
            labels = answered.subject.labels[rows] if name == "recall" else answers
            known, right = labels >= 0, answered.answers.correct[rows, model]
            whole = np.bincount(labels[known], minlength=len(classes))
            part = np.bincount(labels[known], weights=right[known], minlength=len(classes))
            for label in np.flatnonzero(whole).tolist():
                ends = wilson_interval(float(part[label]), float(whole[label]))
                share = Estimate(float(part[label] / whole[label]), *ends)
                key = {"model": answered.models[model], "group": group, "class_id": classes[label].id}
                yield row(name, share, n=int(whole[label]), **key)

    return rows_of


def _confusion(answered: AllAnswers) -> Iterator[ResultRow]:
    # Two outputs may have one name: their shares and counts are one row's.
    found: dict[tuple[str, str, str, str], tuple[float, int]] = {}
    for model, group, rows, said in _each(answered):
        called = answer_names(answered.subject.classes, answered.maps[model])
        labels = answered.subject.labels[rows]
        images = np.bincount(labels, minlength=len(answered.subject.classes))
        outputs = answered.answers.prediction[rows, model]
        # An answer that means no class is named by its output's name.
        keys, counts = np.unique(np.stack([labels, said, np.where(said < 0, outputs, -1)]), axis=1, return_counts=True)
        for (label, answer, output), count in zip(keys.T.tolist(), counts.tolist(), strict=True):
            against = answered.subject.classes[answer].id if answer >= 0 else called(output)
            key = answered.models[model], group, answered.subject.classes[label].id, against
            share, n = found.get(key, (0.0, 0))
            found[key] = share + count / int(images[label]), n + count
    most = sorted((n for _, n in found.values()), reverse=True)[:MOST_MISTAKEN]
    least = most[-1] if len(found) > MOST_MISTAKEN else 0
    for (model_name, group, class_id, against), (share, n) in found.items():
        if n > least or least == 0:
            yield row("confusion", share, model=model_name, group=group, class_id=class_id, against=against, n=n)


def _each(answered: AllAnswers) -> Iterator[tuple[int, str, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield every model in every group: its number, the group, readable images, and the classes answered."""
    for model in range(len(answered.models)):
        said = answered.once(("said", model), lambda model=model: _answered_labels(answered, model))
        for place in answered.places:
            rows = answered.rows(place)
            yield model, answered.group(place).name, rows, said[rows]


MEASURES: dict[str, Measure] = {
    "top1": Measure(
        lambda answered: _over_images(answered, "top1", answered.answers.correct),
        "Accuracy over all images",
        "percent",
        "The share of images that the model gets right, with its Wilson interval. Every image counts once.",
        shown=(),
    ),
    "top_k": Measure(
        lambda answered: _over_images(answered, "top_k", answered.answers.correct_top_k),
        "Top-k accuracy over all images",
        "percent",
        "The share of images whose class is among the model's k best answers. `at` gives k.",
        shown=(),
    ),
    "accuracy": Measure(
        _accuracy,
        "Accuracy averaged over classes",
        "percent",
        "The mean over classes with enough images; the interval on the base is a bootstrap interval.",
        shown=(),
    ),
    "base_accuracy": Measure(
        _base_accuracy,
        "Accuracy on the base",
        "percent",
        "Accuracy on the base images of the shift's measured classes: the drop is from this number.",
        shown=(),
    ),
}


def _either_way(measure: str, way: Outputs) -> Measure:
    """Return accuracy by one of both ways of answering, of the models that have both."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        label_of = {cls.id: label for label, cls in enumerate(answered.subject.classes)}
        for place in answered.places:
            kept = [label_of[one.class_id] for one in answered.kept(place)]
            rows = answered.rows(place)
            labels = answered.subject.labels[rows]
            images = np.bincount(labels, minlength=len(label_of))[kept]
            for model, own in enumerate(answered.maps):
                predictions = answered.scored[model].predictions
                if kept and predictions.correct_otherwise is not None:
                    correct = (predictions.correct if own.leads == way else predictions.correct_otherwise)[rows]
                    right = np.bincount(labels, weights=correct, minlength=len(label_of))[kept]
                    key = {"model": answered.models[model], "group": answered.group(place).name}
                    yield row(measure, float((right / images).mean()), n=int(images.sum()), **key)

    over = "all outputs of a model" if way == "all" else "the outputs of the dataset's classes alone"
    reading = f"Accuracy averaged over classes where an answer is the best of {over}."
    return Measure(rows_of, f"Accuracy over {over}", "percent", reading, shown=("report",))


# Rows of these come after those of drops.
MORE_MEASURES: dict[str, Measure] = {
    OVER_ALL: _either_way(OVER_ALL, "all"),
    OVER_CLASSES: _either_way(OVER_CLASSES, "classes"),
    "chance": Measure(
        _chance,
        "Chance level",
        "percent",
        "How often a random guess among the outputs that a model answers over is right, averaged over classes.",
        shown=(),
    ),
    "recall": Measure(
        _class_shares("recall"),
        "Recall",
        "percent",
        "The share of a class's images that the model predicts as this class, with its Wilson interval.",
        shown=("report",),
    ),
    "precision": Measure(
        _class_shares("precision"),
        "Precision",
        "percent",
        "The share of predictions of a class that are right, with its Wilson interval. It depends on how many images"
        " each class has.",
        shown=("report",),
    ),
    "confusion": Measure(
        _confusion,
        "Confusion",
        "percent",
        "The share of a class's images that the model predicts as `against`: a class id, or the name of an output.",
        shown=("report",),
    ),
}
