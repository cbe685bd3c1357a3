"""Score multi-label classifiers on a built dataset: what differs from other tasks, and the tables
of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.options import EvaluationOptions
from counterfoil.evaluation.resampled_page import csv_cells
from counterfoil.evaluation.scored_models import choose_models, classifier_facts
from counterfoil.evaluation.task import ResampledTask, write_key_list
from counterfoil.evaluation.tasks.labels.failures import label_columns, write_label_failures
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
from counterfoil.evaluation.tasks.labels.report import label_sections, multilabel_notes
from counterfoil.evaluation.tasks.labels.subject import (
    MultilabelSubject,
    open_conditions,
    preview_labels,
)
from counterfoil.models.classifiers.classifier import apart_from_scores
from counterfoil.models.devices import resolve_device
from counterfoil.multilabel_stats import REPLICATES
from counterfoil.prediction.failures import ConditionScores, condition_scores, refuse_one_label
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.tasks.labels import LabelsSource
from counterfoil.report.results import (
    DROP,
    DROP_BASE,
    ClassFacts,
    ModelFacts,
    ResultRows,
    Results,
)
from counterfoil.report.sections import MeasureFacts, ReportSection
from counterfoil.report.words import csv_interval, csv_percent


class LabelsTask(ResampledTask[MeasuredClassifier]):
    """Classifiers that score several labels of each image."""

    name = "labels"
    outputs = "labels"
    of_dataset = "several labels an image, and classifiers of these"
    takes = frozenset(("transform", "version", "min_images_per_class"))
    table = LabelsSource.table
    noun = LabelsSource.noun
    metric = "mAP (macro average precision)"
    shown = (tuple(MEANS), tuple(MEANS))
    truth_columns = ("conditions",)
    answer_columns = ("missed", "wrongly_given")

    def __init__(
        self,
        subject: OpenDataset,
        models: Any,
        options: EvaluationOptions,
    ) -> None:
        super().__init__(subject, models, options)
        self.subject, self.truth = open_conditions(subject)
        self.of_whole: Bools | None = None
        if options.limit is not None:
            preview, self.of_whole = preview_labels(
                self.subject, self.truth, self.min_images, options.limit
            )
            self.subject, self.truth = open_conditions(preview)

    @property
    def measures(self) -> Mapping[str, MeasureFacts]:
        return {facts.name: facts for facts in FACTS if facts.name in MEANS}

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
        return condition_scores(
            dataset.labelled(),
            name,
            class_map,
            dataset.workplace / "predictions",
            resolve_device(self.options.device),
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
        self.unreadable = tuple(dataset.keys[row] for row in np.flatnonzero(~readable).tolist())

    def results(self) -> Results:
        subject = self.conditions
        return self.shared_results(
            subject.images,
            len(subject.labels),
            self.subject.preview,
            subject.few,
            min_images_per_class=self.min_images,
            replicates=REPLICATES,
            classes=tuple(ClassFacts(cls.id, cls.name) for cls in subject.labels),
            models=map(self._facts, self.models),
            units=subject.units,
            measures=FACTS,
            rows=ResultRows(multilabel_rows(subject, self.models)),
        )

    def _facts(self, model: MeasuredClassifier) -> ModelFacts:
        truth = model.subject.truth
        classifier = model.answered.classifier
        return classifier_facts(
            classifier,
            outputs=self.outputs,
            top_k=1,
            chance=float(truth.having.sum() / truth.known.sum()),
            near_chance=not model.above_chance,
            tied=0,
            matched=model.class_map.matched,
            read=apart_from_scores(classifier.read),
        )

    def tables(self, results: Results) -> dict[str, tuple[str, str]]:
        return {
            "shifts": (self.table, multilabel_csv(results)),
            "labels": ("labels.csv", labels_csv(results)),
        }

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        yield from multilabel_notes(results)

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        return "is near chance on the base for every label"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        return label_sections(results)

    def write_failures(self, results: Results, folder: Path) -> Path:
        return write_label_failures(self.conditions, self.models, results.preview_sentence, folder)

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
                columns = {
                    "conditions": "; ".join(labels),
                    "missed": "; ".join(names[mistaken & ~answered]),
                    "wrongly_given": "; ".join(names[mistaken & answered]),
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
        return self.conditions.rows.ravel(), label_columns(self.conditions, self.models)


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
    of_drops = {model.name: len(drop_labels(results, model.name)) for model in results.models}
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
            for name in MEANS.values():
                row |= csv_interval(name, number(name, **key))
                row |= csv_interval(f"drop_{name}", number(DROP, at=name, **key))
            for name in (MISSED, WRONGLY_GIVEN):
                row |= csv_interval(name, number(name, **key))
            key["group"] = results.base or ""
            for half in ("1", "2"):
                threshold = results.rows.value(THRESHOLD, at=f"half {half}", **key)
                row[f"threshold_{half}"] = threshold
            rows.append(row)
    return csv_text(rows)
