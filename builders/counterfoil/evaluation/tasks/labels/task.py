"""Score multi-label classifiers on a built dataset: what differs from other tasks, the tables of
labels, the sections of the page, and its failures.

In the browser of failures an image appears once for each label that a model misses or wrongly
gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.failures import base_partners
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import (
    compared_section,
    csv_cells,
    csv_numbers,
    group_section,
    largest_drop_first,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.scored_models import choose_models, classifier_facts
from counterfoil.evaluation.task import ResampledTask, write_key_list
from counterfoil.evaluation.tasks.labels.measures import (
    FACTS,
    MEANS,
    MISSED,
    THRESHOLD,
    WRONGLY_GIVEN,
    MeasuredClassifier,
    drop_labels,
    measure_classifier,
    multilabel_rows,
)
from counterfoil.evaluation.tasks.labels.subject import (
    FEWEST,
    MultilabelSubject,
    open_conditions,
    preview_labels,
)
from counterfoil.models.classifiers.classifier import apart_from_scores
from counterfoil.models.devices import resolve_device
from counterfoil.multilabel_stats import ACCURACY, AUROC, PRECISION, REPLICATES
from counterfoil.prediction.failures import ConditionScores, condition_scores, refuse_one_label
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.tasks.labels import UNKNOWN, LabelsSource
from counterfoil.report.results import (
    DROP,
    DROP_BASE,
    ClassFacts,
    ModelFacts,
    Results,
)
from counterfoil.report.sections import ReportSection
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    count_cell,
    csv_interval,
    csv_percent,
    format_count,
    format_list,
    format_percent,
    points_cell,
    text_cell,
)

_OF_LABELS = (PRECISION, AUROC, ACCURACY, MISSED, WRONGLY_GIVEN)
_MOST_LABELS = 60
_MOST_NAMED = 12
# The outcome for one label. Its index is 2 · (the image has the label) + (the model is right).
_OUTCOMES = ("wrongly given", "rightly not given", "missed", "found")


class LabelsTask(ResampledTask[MeasuredClassifier]):
    """Classifiers that score several labels of each image."""

    name = "labels"
    outputs = "labels"
    of_dataset = "several labels an image, and classifiers of these"
    takes = frozenset(("transform", "version", "min_images_per_class"))
    table = LabelsSource.table
    noun = LabelsSource.noun
    metric = "mAP (macro average precision)"
    facts = FACTS
    gated = MEANS
    replicates = REPLICATES
    shown = (tuple(MEANS), tuple(MEANS))
    left_out_because = ", or that cannot be read,"
    compared: MultilabelSubject  # pyrefly: ignore[bad-override-mutable-attribute]
    truth_columns = ("conditions",)
    answer_columns = ("missed", "wrongly_given")

    def open(self) -> None:
        limit = self.options.limit
        self.subject, self.truth = open_conditions(self.subject)
        self.of_whole: Bools | None = None
        if limit is not None:
            preview, self.of_whole = preview_labels(
                self.subject,
                self.truth,
                self.min_images,
                limit,
            )
            self.subject, self.truth = open_conditions(preview)

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        opened, _ = open_conditions(subject)
        return write_key_list(subject, file, [label.name for label in opened.classes])

    @property
    def classes(self) -> tuple[RecipeClass, ...]:
        return self.subject.classes

    def choose_models(self, against: Sequence[str]) -> Sequence[str]:
        self.chosen = choose_models(self.subject, self.named, self.options, against)
        return self.chosen.names

    def answers(self, name: str) -> ConditionScores:
        dataset = self.subject
        class_map = self.chosen.maps[name]
        names = [cls.name for cls in dataset.classes]
        refuse_one_label(name, class_map.most_ranked, names)
        device = resolve_device(self.options.device)
        return condition_scores(
            dataset.labelled(),
            name,
            class_map,
            dataset.workplace / "predictions",
            device,
            self.options.batch_size,
            self.chosen.load,
        )

    def measure(self, answers: Mapping[str, ConditionScores]) -> None:
        dataset = self.subject
        of_models = [scores.readable for scores in answers.values()]
        readable = np.all(of_models, axis=0)
        unreadable = np.flatnonzero(~readable).tolist()
        self.unreadable = tuple(dataset.keys[row] for row in unreadable)
        self.compared = MultilabelSubject.of(
            dataset,
            self.truth,
            readable,
            self.min_images,
            self.of_whole,
        )
        models = []
        for name, scores in answers.items():
            model = measure_classifier(
                self.compared,
                name,
                scores,
                self.chosen.maps[name],
                self.options.seed,
            )
            models.append(model)
        self.models = models

    def results(self) -> Results:
        subject = self.compared
        classes = [ClassFacts(cls.id, cls.name) for cls in subject.labels]
        return self.shared_results(
            len(classes),
            multilabel_rows(subject, self.models),
            few=subject.few,
            classes=classes,
            min_images=self.min_images,
        )

    def facts_of(self, model: MeasuredClassifier) -> ModelFacts:
        truth = model.subject.truth
        classifier = model.answered.classifier
        return classifier_facts(
            classifier,
            outputs=self.outputs,
            top_k=1,
            chance=float(truth.having.sum() / truth.known.sum()),
            near_chance=not model.sound,
            tied=0,
            matched=model.class_map.matched,
            read=apart_from_scores(classifier.read),
        )

    def tables(self, results: Results) -> Tables:
        return {
            "shifts": (self.table, multilabel_csv(results)),
            "labels": ("labels.csv", labels_csv(results)),
        }

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        base = results.groups[0]
        for model in results.models:
            if model.matched:
                yield f"{model.short_name}: outputs were matched {model.matched}."
            if model.read:
                yield f"{model.short_name}: {model.read}."
        if base.left_out:
            few = [label.name for label in base.left_out]
            fewest = max(FEWEST, results.min_images_per_class)
            yield (
                f"Not measured and in no mean, because fewer than {fewest} images have the label, or"
                f" are known to lack it: {format_list(few, _MOST_NAMED)}."
            )
        partly = []
        for label in results.classes:
            images = _known_images(results, label)
            if images < base.images:
                partly.append(f"{label.name} ({format_count(images, 'image')})")
        if partly:
            yield (
                "Each label is measured on the images for which it is known. These labels are known for"
                f" fewer than {format_count(base.images, 'image')}: {format_list(partly, _MOST_NAMED)}."
            )
        yield from near_chance_notes(results)

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        return "is near chance on the base for every label"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        measures = tuple(MEANS)
        near_chance = " ".join(near_chance_notes(results))
        yield group_section(results, measures, measures, title="Every group", note=near_chance)
        yield from compared_section(
            results,
            "classifier",
            "Differences are over the labels that neither classifier ranks near chance on the base.",
        )
        yield ReportSection(
            title="Label by label",
            tables=[label_table(results, model) for model in results.models],
            note="The columns from AP to wrongly given are on the base. Missed: share of the images"
            " with the label that are not given it. Wrongly given: share of the images without it"
            " that are given it. Intervals of labels’ drops are for all labels and shifts at once.",
        )

    def write_failures(self, results: Results, folder: Path) -> Path:
        subject = self.compared
        truth = subject.truth
        # A question is one known label of one image, image after image. An unknown label asks no
        # question: no answer to it is a failure.
        groups = len(subject.rows)
        order = np.argsort(subject.rows, axis=None)
        known = np.tile(truth.known, (groups, 1))[order]
        present = np.tile(truth.present, (groups, 1))[order]
        has = present[known][:, None]
        image, label = np.nonzero(known)
        rows = subject.rows.ravel()[order]
        answers = []
        for model in self.models:
            of_images = model.answers.reshape(known.shape)[order]
            answers.append(of_images[known])
        right = np.stack(answers, axis=1) == has
        classes = []
        for number, cls in enumerate(subject.labels):
            classes.append(replace(cls, label=number))
        asked_images = subject.dataset.of_rows(rows[image])
        questions = replace(asked_images, classes=tuple(classes), labels=label)
        readable = np.ones(len(label), dtype=bool)
        partners = base_partners(
            label,
            questions.shifts,
            questions.indices,
            readable,
            range(1, groups),
        )
        return self.write_answers(
            results,
            folder,
            "failures-of-labels.html.j2",
            questions,
            (2 * has + right, right),
            partners,
            _OUTCOMES.__getitem__,
            len(label),
        )

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return cls._mistakes(frame) > 0

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        worst = cls._mistakes(frame).sort_values(ascending=False, kind="stable")
        return frame.loc[worst.index]

    @classmethod
    def _mistakes(cls, frame: Any) -> Any:
        return frame["missed"].map(len) + frame["wrongly_given"].map(len)

    def failures(self) -> Iterator[Failure]:
        subject = self.compared
        truth = subject.truth
        names = np.array([label.name for label in subject.labels], dtype=object)
        answers = np.stack([model.answers for model in self.models], axis=2)
        having = truth.having[:, None]
        lacking = truth.lacking[:, None]
        wrong = (having & ~answers) | (lacking & answers)
        failing = wrong.any(axis=(2, 3))
        for group, image in np.argwhere(failing).tolist():
            present = truth.having[image]
            labels = names[present]
            of_models = []
            of_image = zip(answers[group, image], wrong[group, image], strict=True)
            for answered, mistaken in of_image:
                given = list(names[answered])
                missed = names[mistaken & ~answered]
                wrongly_given = names[mistaken & answered]
                columns = {
                    "conditions": "; ".join(labels),
                    "missed": "; ".join(missed),
                    "wrongly_given": "; ".join(wrongly_given),
                }
                answer = ModelAnswer(
                    _labels(given),
                    not mistaken.any(),
                    columns,
                    [{"answer": given}],
                )
                of_models.append(answer)
            annotations = []
            for index in np.flatnonzero(present).tolist():
                annotations.append({"category_id": subject.labels[index].label})
            yield self.failure(group, image, _labels(labels), annotations, of_models)

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the rows of images, and their columns: conditions, those that are unknown if any
        is, then three columns for each model.

        `missed.MODEL`, `wrongly_given.MODEL` and `scores.MODEL` are about the measured labels.
        """
        import pyarrow as pa

        subject = self.compared
        truth = subject.truth
        rows = subject.rows.ravel()
        labels = [cls.label for cls in subject.labels]
        names = np.array([cls.name for cls in subject.labels], dtype=object)

        def names_in(mask: Bools) -> Any:
            """Return the labels of each image, from a mask (groups, images, labels)."""
            lists = []
            for of_image in mask.reshape(-1, len(names)):
                lists.append(names[of_image].tolist())
            return pa.array(lists, pa.list_(pa.string()))

        groups = (len(subject.rows), 1, 1)
        having = np.tile(truth.having, groups)
        columns: dict[str, Any] = {"conditions": names_in(having)}
        if not truth.known.all():
            unknown = np.tile(~truth.known, groups)
            columns[UNKNOWN] = names_in(unknown)
        for model in self.models:
            missed = truth.having & ~model.answers
            wrongly_given = truth.lacking & model.answers
            scores = model.answered.values[rows][:, labels]
            columns[f"missed.{model.name}"] = names_in(missed)
            columns[f"wrongly_given.{model.name}"] = names_in(wrongly_given)
            of_images = pa.array(scores.tolist(), pa.list_(pa.float64()))
            columns[f"scores.{model.name}"] = of_images
        return rows, columns


def _labels(names: Iterable[str]) -> dict[str, Any]:
    """Return labels as FiftyOne has them."""
    labels = list(map(classification, names))
    return {"_cls": "Classifications", "classifications": labels}


def multilabel_csv(results: Results) -> str:
    """Write one line for each model and group: means over labels and their drops with intervals, in
    percent and points.

    Drops leave out labels near chance: `n_labels` and `n_labels_of_drop` count the labels of
    either, and `drop_base` is the measure on the base over the labels of the drop.
    """
    numbers = results.rows
    rows = []
    of_drops = {}
    for facts in results.models:
        labels = drop_labels(results, facts)
        of_drops[facts.name] = len(labels)
    for group, key, row in csv_cells(results):
        model = key["model"]
        row["n_images"] = group.images
        row["n_labels"] = len(results.classes)
        row["n_labels_of_drop"] = of_drops[model]
        for name in MEANS:
            row |= csv_interval(name, numbers.estimate(name, **key))
            key_of_drop = {"at": name, **key}
            drop = numbers.estimate(DROP, **key_of_drop)
            base = numbers.value(DROP_BASE, **key_of_drop)
            if base is None and drop is not None:
                base = numbers.value(name, model=model, group=results.base or "")
            row |= csv_interval(f"drop_{name}", drop)
            row[f"drop_base_{name}"] = csv_percent(base)
        rows.append(row)
    return csv_text(rows)


def labels_csv(results: Results) -> str:
    """Write one line for each model, group and label: measures and drops with intervals; thresholds
    as scores."""
    rows = []
    for _, of_group, first_columns in csv_cells(results):
        for label in results.classes:
            key = of_group | {"class_id": label.id}
            having = _images(results, MISSED, **key)
            lacking = _images(results, WRONGLY_GIVEN, **key)
            row = first_columns | {"label": label.name}
            row["n_known"] = having + lacking
            row["n_with"] = having
            row |= csv_numbers(results, MEANS.values(), key)
            for name in (MISSED, WRONGLY_GIVEN):
                row |= csv_interval(name, results.rows.estimate(name, **key))
            key["group"] = results.base or ""
            for half in ("1", "2"):
                threshold = results.rows.value(THRESHOLD, at=f"half {half}", **key)
                row[f"threshold_{half}"] = threshold
            rows.append(row)
    return csv_text(rows)


def near_chance_notes(results: Results) -> Iterator[str]:
    """Yield a sentence for each model whose drops leave out labels: it names the labels and gives
    `drop_base`."""
    for model in results.models:
        of_drops = drop_labels(results, model)
        guessed = [label.name for label in results.classes if label not in of_drops]
        if results.shifts and guessed and not model.near_chance:
            key = {"model": model.name, "group": results.shifts[0].name}
            base = results.rows.value(DROP_BASE, at=results.lead, **key)
            of_all = results.base_number(model.name)
            all_percent = format_percent(of_all.value if of_all else None)
            left_out = "these labels"
            if len(guessed) == 1:
                left_out = "this label"
            averaged = f"{len(of_drops)} of {len(results.classes)} labels"
            yield (
                f"{model.short_name}: near chance on the base for {format_list(guessed, _MOST_NAMED)}."
                f" Mean drops leave out {left_out}: they are over {averaged}. On the base,"
                f" {results.lead} is {format_percent(base)} over the labels of the drops, and"
                f" {all_percent} over all labels."
            )


def _known_images(results: Results, label: ClassFacts) -> int:
    return _images(
        results,
        PRECISION,
        model=results.models[0].name,
        group=results.base or "",
        class_id=label.id,
    )


def _images(results: Results, measure: str, **key: str) -> int:
    row = results.rows.one(measure, **key)
    if row is None or row.n is None:
        return 0
    return row.n


def label_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each label: its numbers on the base, and under the shift where its AP
    drops most."""
    rows = []
    for label in results.classes:
        key = {"model": model.name, "class_id": label.id}
        of_base = {"group": results.base or "", **key}
        having = _images(results, MISSED, **of_base)
        known = _known_images(results, label)
        cells = [text_cell(label.name), count_cell(known), count_cell(having)]
        for name in _OF_LABELS:
            number = results.rows.estimate(name, **of_base)
            cells.append(points_cell(number))
        worst = worst_drop(results, PRECISION, key)
        cells += worst_cells(results, worst)
        there = worst.group if worst else ""
        for name in (MISSED, WRONGLY_GIVEN):
            number = results.rows.estimate(name, group=there, **key)
            cells.append(points_cell(number))
        rows.append(TableRow(tuple(cells)))
    columns = [
        TableColumn("label", "name"),
        "images that know it",
        "with it",
        "AP (%)",
        "AUROC (%)",
        "accuracy (%)",
        "missed (%)",
        "wrongly given (%)",
        TableColumn("AP drops most under", "text"),
        "drop of AP (points)",
        "missed there (%)",
        "wrongly given there (%)",
    ]
    largest_drop_first(rows, columns, "drop of AP (points)")
    table = Table.of(f"{model.short_name}: label by label", columns, rows)
    return table.first(_MOST_LABELS, "labels", "labels.csv")
