"""Score detectors on a built dataset with objects: what differs from other tasks, and the files of
detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.detection_stats import Detections, Objects
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer
from counterfoil.evaluation.gate import GateLine
from counterfoil.evaluation.options import EvaluationOptions
from counterfoil.evaluation.resampled_page import csv_cells
from counterfoil.evaluation.scored_models import short_names
from counterfoil.evaluation.task import ResampledTask, difference_rows
from counterfoil.evaluation.tasks.objects.categories import given_names, given_order
from counterfoil.evaluation.tasks.objects.detections import (
    PREFIX,
    ModelDetections,
    read_detections,
    write_image_keys,
)
from counterfoil.evaluation.tasks.objects.failures import (
    ScoredDetector,
    detection_failures,
    write_detection_failures,
)
from counterfoil.evaluation.tasks.objects.measures import (
    CURVE,
    F1,
    FACTS,
    MPC,
    NAMES,
    REPLICATES,
    RPC,
    MeasuredModel,
    detector_rows,
    measure_levels,
    measure_model,
)
from counterfoil.evaluation.tasks.objects.notes import crowded_sentence, cut_sentence, truth_notes
from counterfoil.evaluation.tasks.objects.report import detection_notes, detection_sections
from counterfoil.evaluation.tasks.objects.running import run_detector
from counterfoil.evaluation.tasks.objects.subject import open_objects
from counterfoil.models.classifiers.of_python import refuse_unnamed
from counterfoil.models.detectors import load_detector
from counterfoil.models.devices import resolve_device
from counterfoil.recipe.names import PYTHON
from counterfoil.recipe.tasks.objects import ObjectsSource
from counterfoil.report.results import DROP, ClassFacts, ModelFacts, ResultRows, Results
from counterfoil.report.sections import MeasureFacts, ReportSection
from counterfoil.report.severity import at
from counterfoil.report.words import csv_interval, format_percent
from counterfoil.store.decoding import readable_image


class ObjectsTask(ResampledTask[MeasuredModel]):
    """Detectors on a dataset with objects."""

    name = "objects"
    outputs = "detections"
    of_dataset = "objects, and detectors"
    table = ObjectsSource.table
    noun = ObjectsSource.noun
    hint = (
        "Name detectors as predictions:FILE (.json of COCO results, .parquet or .csv),"
        " transformers:FOLDER, onnx:FILE or"
        " lab:NAME; in Python, hand over a function: evaluate(dataset, {'mine': detector})."
    )
    metric = "mAP (COCO, AP@IoU=0.50:0.95)"
    shown = (("AP", "AP50", "AP75", F1), ("AP", F1))
    beside = F1
    truth_columns = ("objects",)
    answer_columns = ("f1", "found", "missed", "false")

    def __init__(
        self,
        subject: OpenDataset,
        models: Any,
        options: EvaluationOptions,
    ) -> None:
        super().__init__(subject, models, options)
        self.objects = open_objects(subject, options.limit)
        self.left_out = self.objects.left_out, ""
        crowded = crowded_sentence(self.objects.truth, self.objects.images, self.objects.categories)
        self.of_dataset_notes = (*truth_notes(self.objects), *filter(None, [crowded]))

    @property
    def measures(self) -> Mapping[str, MeasureFacts]:
        return {facts.name: facts for facts in FACTS if facts.name in NAMES}

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        return write_image_keys(subject, file)

    @property
    def classes(self) -> tuple[ClassFacts, ...]:
        # The id of a category is its name.
        return tuple(ClassFacts(name, name) for name in self.objects.categories)

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        if line.class_name and line.share != "AP":
            yield "only AP is measured by category"

    def answers(self, name: str) -> ModelDetections:
        detector = self.given[name]
        subject = self.objects
        batch_size = self.options.batch_size
        order = self.options.class_order
        if isinstance(detector, str) and detector.startswith(PREFIX):
            detections = read_detections(detector, subject, given_order(order, name))
            return replace(detections, name=name)
        names = given_names(order, name, subject.categories, "labels")
        if not isinstance(detector, str):
            return run_detector(name, detector, subject, names, batch_size)
        if detector.startswith(PYTHON):
            refuse_unnamed(detector)
        device = resolve_device(self.options.device)
        loaded = load_detector(detector, device)
        return run_detector(name, loaded, subject, names, batch_size, device)

    def measure(self, answers: Mapping[str, ModelDetections]) -> None:
        models = []
        for detections in answers.values():
            models.append(measure_model(self.objects, detections, self.options.seed))
        self.models = models

    def results(self) -> Results:
        subject = self.objects
        models = self.models
        preview = self.subject.preview
        if self.options.limit is not None:
            preview = subject.images
        rows = list(detector_rows(subject, models))
        rows += difference_rows(models, self.subject.groups, "AP")
        severities, severity_rows = measure_levels(
            self.subject, models, "AP", CURVE, subject.images, len(subject.categories)
        )
        rows += severity_rows
        return self.shared_results(
            subject.images,
            len(np.unique(subject.truth.category)),
            preview,
            min_images_per_class=1,
            replicates=REPLICATES,
            classes=self.classes,
            models=map(self._facts, models),
            units=subject.units,
            measures=FACTS,
            rows=ResultRows(rows),
            severity=severities,
        )

    def _facts(self, model: MeasuredModel) -> ModelFacts:
        cut = ""
        if not model.detections.complete:
            groups = list(zip(model.answers, model.matches, strict=True))
            cut = cut_sentence(model.groups, groups)
        detections = model.detections
        matched = "; ".join(filter(None, (detections.matched, cut)))
        categories = len(self.objects.categories)
        return self.model_facts(
            model.name, categories, 0.0, model.near_chance, detections.sha256, matched
        )

    def tables(self, results: Results) -> dict[str, tuple[str, str]]:
        return {"detection": (self.table, detection_csv(results))}

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        yield from detection_notes(results)

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        base = results.rows.value("AP", model=model.name, group=results.base or "") or 0.0
        return f"finds next to nothing on the base (AP {format_percent(base)})"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        return detection_sections(results)

    def write_failures(self, results: Results, folder: Path) -> Path:
        subject = self.objects
        groups = [group.name for group in subject.dataset.groups]
        keys = [subject.keys_of(index) for index in range(len(groups))]
        short = short_names([model.name for model in self.models])
        detectors = []
        for model in self.models:
            answers = list(zip(model.answers, model.matches, strict=True))
            scored = ScoredDetector(short[model.name], model.score, answers, model.errors)
            detectors.append(scored)
        chosen = detection_failures(
            subject.truth, detectors, groups, subject.categories, subject.sides, keys
        )
        shown = frozenset(keys[group][image] for group, image in chosen.pictures)
        encoded = dict(subject.dataset.images(shown))

        def picture(group: int, image: int) -> Any:
            return readable_image(encoded.get(keys[group][image]))

        return write_detection_failures(
            subject.dataset.name, chosen, subject.images, picture, folder, results.preview_sentence
        )

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["missed"] + frame["false"] > 0

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("f1", kind="stable")

    def failures(self) -> Iterator[Failure]:
        subject = self.objects
        truth = self.objects.truth
        f1 = np.stack([model.f1 for model in self.models])
        failing = (f1 < 1).any(axis=0)
        _, columns = self.image_columns()
        for group, image in np.argwhere(failing).tolist():
            number = group * subject.images + image
            annotations = []
            shown = (truth.image == image) & ~truth.crowd
            for index in np.flatnonzero(shown).tolist():
                annotation = _coco_box(truth, index)
                annotation["area"] = float(truth.area[index])
                annotation["iscrowd"] = 0
                annotations.append(annotation)
            answers = []
            for model in self.models:
                detections = model.answers[group]
                of_image = (detections.image == image) & (detections.score >= model.score)
                detected = []
                for index in np.flatnonzero(of_image).tolist():
                    result = _coco_box(detections, index)
                    result["score"] = float(detections.score[index])
                    detected.append(result)
                counts: dict[str, float] = {"objects": int(columns["objects"][number])}
                for name in self.answer_columns:
                    counts[name] = float(columns[f"{name}.{model.name}"][number])
                right = bool(model.f1[group, image] == 1)
                answers.append(ModelAnswer(self._labels(image, detected), right, counts, detected))
            row = int(subject.rows[group, image])
            label = self._labels(image, annotations)
            yield Failure(
                row,
                self.subject.groups[group].name,
                label,
                annotations,
                answers,
            )

    def _labels(self, image: int, boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return boxes as FiftyOne has them: x, y, width and height as shares of the image."""
        sides = np.tile(self.objects.sides[image], 2)
        detections = []
        for box in boxes:
            detection = {"_cls": "Detection", "tags": []}
            detection["label"] = self.objects.categories[box["category_id"]]
            detection["bounding_box"] = (box["bbox"] / sides).tolist()
            if "score" in box:
                detection["confidence"] = box["score"]
            detections.append(detection)
        return {"_cls": "Detections", "detections": detections}

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the rows of images, and columns: objects; `f1`, `found`, `missed` and `false` for
        each model.

        They are named `f1.MODEL` and so on, and count at IoU .50, from the score with the best F1
        on the base.
        """
        images = self.objects.images
        columns: dict[str, Any] = {}
        for model in self.models:
            objects = []
            true = []
            boxes = []
            for matches in model.matches:
                counted = matches.counting(model.score)
                hit = counted & matches.matched[0, 0]
                true.append(np.bincount(matches.image[hit], minlength=images))
                boxes.append(np.bincount(matches.image[counted], minlength=images))
                present = matches.object_image[matches.counted[0]]
                objects.append(np.bincount(present, minlength=images))
            # The objects are the same for every model.
            columns["objects"] = np.concatenate(objects)
            hits = np.concatenate(true)
            columns[f"f1.{model.name}"] = np.concatenate(model.f1)
            columns[f"found.{model.name}"] = hits
            columns[f"missed.{model.name}"] = columns["objects"] - hits
            columns[f"false.{model.name}"] = np.concatenate(boxes) - hits
        return self.objects.rows.ravel(), columns


def _coco_box(boxes: Objects | Detections, index: int) -> dict[str, Any]:
    """Return a box and its category, as COCO has them."""
    return {"category_id": int(boxes.category[index]), "bbox": boxes.box[index].tolist()}


def detection_csv(results: Results) -> str:
    """Write one line for each model and group: measures in percent, drops in points, both with
    intervals.

    The column `level` is the level of a graded shift, and 0 for the base.
    """
    level_of = {results.base: "0"}
    for shift in results.severity:
        for level in shift.levels:
            level_of[level.group] = at(level.level)
    number = results.rows.estimate
    rows = []
    for group, key, row in csv_cells(results):
        row["level"] = level_of.get(group.name, "")
        row["n_images"] = group.images
        for name in NAMES:
            row |= csv_interval(name, number(name, **key))
        for name in NAMES:
            row |= csv_interval(f"drop_{name}", number(DROP, at=name, **key))
        for name in (MPC, RPC):
            mean = None
            if group is results.base_group:
                mean = number(name, model=key["model"], at="AP")
            row |= csv_interval(name, mean)
        rows.append(row)
    return csv_text(rows)
