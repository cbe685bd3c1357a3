"""Score multi-label classifiers on a built dataset: what differs from other tasks, the tables of
labels, the sections of the page, and its failures.

In the browser of failures an image appears once for each label that a model misses or wrongly
gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.failures import (
    base_partners,
    choose_failures,
    write_sheets,
)
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import (
    compared_section,
    csv_cells,
    csv_numbers,
    group_section,
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
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image

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
    truth_columns = ("conditions",)
    answer_columns = ("missed", "wrongly_given")

    def open(self) -> None:
        limit = self.options.limit
        self.subject, self.truth = open_conditions(self.subject)
        self.of_whole: Bools | None = None
        if limit is not None:
            preview, self.of_whole = preview_labels(
                self.subject, self.truth, self.min_images, limit
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
        refuse_one_label(name, class_map.most_ranked, [cls.name for cls in dataset.classes])
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
        readable = np.all([scores.readable for scores in answers.values()], axis=0)
        subject = MultilabelSubject.of(
            dataset, self.truth, readable, self.min_images, self.of_whole
        )
        self.conditions = subject
        models = []
        for name, scores in answers.items():
            class_map = self.chosen.maps[name]
            models.append(measure_classifier(subject, name, scores, class_map, self.options.seed))
        self.models = models
        self.left_out = len(dataset.keys) - subject.rows.size, ", or that cannot be read,"
        unreadable = np.flatnonzero(~readable).tolist()
        self.unreadable = tuple(dataset.keys[row] for row in unreadable)

    def results(self) -> Results:
        subject = self.conditions
        return self.shared_results(
            subject.images,
            len(subject.labels),
            multilabel_rows(subject, self.models),
            subject.units,
            few=subject.few,
            classes=[ClassFacts(cls.id, cls.name) for cls in subject.labels],
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
            yield (
                "Not measured and in no mean, because fewer than"
                f" {max(2, results.min_images_per_class)} images have the"
                f" label, or are known to lack it: {format_list(few, _MOST_NAMED)}."
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
        subject = self.conditions
        models = self.models
        dataset = subject.dataset
        truth = subject.truth
        # A question is one known label of one image, image after image. An unknown label asks no
        # question: no answer to it is a failure.
        groups = len(subject.rows)
        order = np.argsort(subject.rows, axis=None)
        known = np.tile(truth.known, (groups, 1))[order]
        present = np.tile(truth.present, (groups, 1))[order][known]
        image, label = np.nonzero(known)
        rows = subject.rows.ravel()[order][image]
        answers = []
        for model in models:
            of_images = model.answers.reshape(known.shape)
            answers.append(of_images[order][known])
        right = np.stack(answers, axis=1) == present[:, None]
        shifts = dataset.shifts[rows]
        classes = []
        for number, cls in enumerate(subject.labels):
            classes.append(replace(cls, label=number))
        questions = replace(
            dataset,
            classes=tuple(classes),
            keys=tuple(dataset.keys[row] for row in rows.tolist()),
            labels=label,
            shifts=shifts,
            indices=dataset.indices[rows],
        )
        readable = np.ones(len(right), dtype=bool)
        compared = range(1, len(dataset.groups))
        partners = base_partners(label, shifts, questions.indices, readable, compared)
        chosen = choose_failures(right, readable, label, shifts, partners)
        base, *others = (group.name for group in dataset.groups)
        outcomes = 2 * present[:, None] + right
        no_shares = np.full(right.shape, np.nan, np.float32)
        names = [(model.name, _OUTCOMES.__getitem__, "") for model in models]

        times = Counter(questions.keys[question] for question in chosen.images.tolist())

        def pictures() -> Iterator[Image | None]:
            for key, encoded in dataset.images(frozenset(times)):
                yield from repeat(readable_image(encoded), times[key])

        return write_sheets(
            folder,
            "failures-of-labels.html.j2",
            results,
            questions,
            (outcomes, right, no_shares),
            chosen,
            names,
            [*others, base],
            pictures(),
            images=len(right),
            paired=True,
            changed=True,
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
        subject = self.conditions
        truth = subject.truth
        names = np.array([label.name for label in subject.labels], dtype=object)
        numbers = np.array([label.label for label in subject.labels])
        answers = np.stack([model.answers for model in self.models], axis=2)
        having = truth.having[:, None]
        lacking = truth.lacking[:, None]
        wrong = (having & ~answers) | (lacking & answers)
        failing = wrong.any(axis=(2, 3))
        for group, image in np.argwhere(failing).tolist():
            labels = names[having[image, 0]]
            of_models = []
            of_image = wrong[group, image]
            for answered, mistaken in zip(answers[group, image], of_image, strict=True):
                given = list(names[answered])
                missed = names[mistaken & ~answered]
                wrongly_given = names[mistaken & answered]
                columns = {
                    "conditions": "; ".join(labels),
                    "missed": "; ".join(missed),
                    "wrongly_given": "; ".join(wrongly_given),
                }
                right = not mistaken.any()
                coco = [{"answer": given}]
                of_models.append(ModelAnswer(_labels(given), right, columns, coco))
            row = int(subject.rows[group, image])
            shift = self.subject.groups[group].name
            annotations = []
            for number in numbers[having[image, 0]].tolist():
                annotations.append({"category_id": number})
            yield Failure(row, shift, _labels(labels), annotations, of_models)

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the rows of images, and their columns: conditions, those that are unknown if any
        is, then three columns for each model.

        `missed.MODEL`, `wrongly_given.MODEL` and `scores.MODEL` are about the measured labels.
        """
        subject = self.conditions
        import pyarrow as pa

        names = np.array([cls.name for cls in subject.labels], dtype=object)
        groups = (len(subject.rows), 1, 1)

        def names_in(mask: Bools) -> Any:
            """Return the labels of each image, from a mask (groups, images, labels)."""
            lists = []
            for of_image in mask.reshape(-1, len(names)):
                lists.append(names[of_image].tolist())
            return pa.array(lists, pa.list_(pa.string()))

        truth = subject.truth
        having = np.tile(truth.having, groups)
        columns: dict[str, Any] = {"conditions": names_in(having)}
        if not truth.known.all():
            columns[UNKNOWN] = names_in(np.tile(~truth.known, groups))
        labels = [cls.label for cls in subject.labels]
        for model in self.models:
            columns[f"missed.{model.name}"] = names_in(truth.having & ~model.answers)
            columns[f"wrongly_given.{model.name}"] = names_in(truth.lacking & model.answers)
            scores = model.answered.values[subject.rows.ravel()][:, labels]
            values = pa.array(scores.tolist(), pa.list_(pa.float64()))
            columns[f"scores.{model.name}"] = values
        return subject.rows.ravel(), columns


def _labels(names: Iterable[str]) -> dict[str, Any]:
    """Return labels as FiftyOne has them."""
    return {"_cls": "Classifications", "classifications": list(map(classification, names))}


def multilabel_csv(results: Results) -> str:
    """Write one line for each model and group: means over labels and their drops with intervals, in
    percent and points.

    Drops leave out labels near chance: `n_labels` and `n_labels_of_drop` count the labels of
    either, and `drop_base` is the measure on the base over the labels of the drop.
    """
    number = results.rows.one
    rows = []
    of_drops = {model.name: len(drop_labels(results, model)) for model in results.models}
    for group, key, row in csv_cells(results):
        model = key["model"]
        row["n_images"] = group.images
        row["n_labels"] = len(results.classes)
        row["n_labels_of_drop"] = of_drops[model]
        for name in MEANS:
            row |= csv_interval(name, results.rows.estimate(name, **key))
            drop = number(DROP, at=name, **key)
            base = None
            if drop is not None:
                on_base = number(name, model=model, group=results.base or "")
                base = number(DROP_BASE, at=name, **key) or on_base
            row |= csv_interval(f"drop_{name}", drop.estimate if drop else None)
            row[f"drop_base_{name}"] = csv_percent(base.value if base else None)
        rows.append(row)
    return csv_text(rows)


def labels_csv(results: Results) -> str:
    """Write one line for each model, group and label: measures and drops with intervals; thresholds
    as scores."""
    rows = []
    number = results.rows.estimate
    for _, of_group, first_columns in csv_cells(results):
        for label in results.classes:
            key = of_group | {"class_id": label.id}
            sides = [results.rows.one(name, **key) for name in (MISSED, WRONGLY_GIVEN)]
            having, lacking = (getattr(side, "n", 0) or 0 for side in sides)
            counts = {"label": label.name, "n_known": having + lacking, "n_with": having}
            row = first_columns | counts
            row |= csv_numbers(results, MEANS.values(), key)
            for name in (MISSED, WRONGLY_GIVEN):
                row |= csv_interval(name, number(name, **key))
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
            left_out = "this label" if len(guessed) == 1 else "these labels"
            averaged = f"{len(of_drops)} of {len(results.classes)} labels"
            yield (
                f"{model.short_name}: near chance on the base for {format_list(guessed, _MOST_NAMED)}."
                f" Mean drops leave out {left_out}: they are over {averaged}. On the base,"
                f" {results.lead} is {format_percent(base)} over the labels of the drops, and"
                f" {all_percent} over all labels."
            )


def _known_images(results: Results, label: ClassFacts) -> int:
    model = results.models[0].name
    return _images(results, PRECISION, model=model, group=results.base or "", class_id=label.id)


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
        group = results.base or ""
        having = _images(results, MISSED, group=group, **key)
        cells = [text_cell(label.name), count_cell(_known_images(results, label))]
        cells.append(count_cell(having))
        for name in _OF_LABELS:
            cells.append(points_cell(results.rows.estimate(name, group=group, **key)))
        worst = worst_drop(results, PRECISION, key)
        cells += worst_cells(results, worst)
        for name in (MISSED, WRONGLY_GIVEN):
            there = worst.group if worst else ""
            cells.append(points_cell(results.rows.estimate(name, group=there, **key)))
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
    drop_column = columns.index("drop of AP (points)")
    # Labels without a drop come last.
    rows.sort(key=lambda row: -float(row.cells[drop_column].sort or -1.0))
    caption = f"{model.short_name}: label by label"
    return Table.of(caption, columns, rows).first(_MOST_LABELS, "labels", "labels.csv")
