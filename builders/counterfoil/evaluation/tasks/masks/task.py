"""Score semantic segmenters on a built dataset with masks: what differs from other tasks, and the
files of segmenters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.gate import GateLine
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import (
    caption_of_model,
    compared_section,
    csv_cells,
    csv_numbers,
    group_section,
    severity_section,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.task import ResampledTask
from counterfoil.evaluation.tasks.masks.answers import (
    ModelMasks,
    Segmenting,
    as_segmenter,
    read_masks,
    run_segmenter,
)
from counterfoil.evaluation.tasks.masks.failures import write_mask_failures
from counterfoil.evaluation.tasks.masks.measures import (
    CURVE,
    FACTS,
    MEAN_IOU,
    MEANS,
    OF_CLASS,
    SHARE,
    MeasuredSegmenter,
    measure_segmenter,
    segmenter_rows,
)
from counterfoil.evaluation.tasks.masks.subject import open_masks
from counterfoil.evaluation.tasks.objects.categories import given_names
from counterfoil.evaluation.tasks.objects.detections import write_key_table
from counterfoil.evaluation.tasks.objects.measures import measure_levels
from counterfoil.mask_stats import BOUNDARY, IOU, PIXELS, RECALL, REPLICATES
from counterfoil.models.devices import resolve_device
from counterfoil.models.segmenters import load_segmenter
from counterfoil.recipe.names import PREDICTIONS
from counterfoil.recipe.tasks.masks import MasksSource
from counterfoil.report.results import DROP, ClassFacts, ModelFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    format_list,
    over_classes,
    points_cell,
    text_cell,
)

# An image of a lower IoU is among the failures.
_HALF = 0.5
_MOST_CLASSES = 60
_MOST_NAMED = 12


class MasksTask(ResampledTask[MeasuredSegmenter]):
    """Segmenters on a dataset with masks."""

    name = "masks"
    outputs = "masks"
    of_dataset = "masks, and segmenters"
    takes = frozenset(("transform",))
    table = MasksSource.table
    noun = MasksSource.noun
    hint = (
        "Name segmenters as predictions:FOLDER (KEY.png for each image) or predictions:FILE.parquet"
        " (key and mask), transformers:FOLDER, onnx:FOLDER or python:MODULE:NAME; in Python, hand"
        " over a function or a torch module: evaluate(dataset, {'mine': segmenter})."
    )
    metric = "mIoU"
    facts = FACTS
    gated = (*MEANS, *OF_CLASS)
    replicates = REPLICATES
    shown = ((MEAN_IOU, PIXELS, BOUNDARY), (MEAN_IOU, BOUNDARY))
    beside = PIXELS
    truth_columns = ("classes",)
    answer_columns = ("iou", "pixel_accuracy")

    def open(self) -> None:
        self.masks = open_masks(self.subject, self.options.limit)
        self.left_out = self.masks.left_out, ""

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        return write_key_table(subject, file)

    @property
    def classes(self) -> tuple[ClassFacts, ...]:
        # The id of a class is its name.
        return tuple(ClassFacts(name, name) for name in self.masks.classes)

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        if line.class_name and line.share == PIXELS:
            yield f"{PIXELS} is of all classes together: name {IOU} or {RECALL}"
        if not line.class_name and line.share in (IOU, RECALL):
            yield f"{line.share} is of one class: name it, as in {line.share}(fog, class=NAME)"

    def answers(self, name: str) -> ModelMasks:
        segmenter = self.given[name]
        subject = self.masks
        names = given_names(self.options.class_order, name, subject.classes, "classes")
        if isinstance(segmenter, str) and segmenter.startswith(PREDICTIONS):
            return replace(read_masks(segmenter, subject, names), name=name)
        device = resolve_device(self.options.device)
        return run_segmenter(
            name,
            self._opened(name, device),
            subject,
            names,
            self.options.batch_size,
            device,
        )

    def _opened(self, name: str, device: str) -> Callable[[], AbstractContextManager[Segmenting]]:
        """Return what gives a model for a while: a named one is loaded each time."""
        segmenter = self.given[name]
        if isinstance(segmenter, str):
            return lambda: nullcontext(load_segmenter(segmenter, device))
        transform = self.options.transform
        if isinstance(transform, Mapping):
            transform = transform.get(name)
        return partial(as_segmenter, name, segmenter, transform, device)

    def measure(self, answers: Mapping[str, ModelMasks]) -> None:
        seed = self.options.seed
        models = []
        for answered in answers.values():
            models.append(measure_segmenter(self.masks, answered, seed))
        self.models = models

    def results(self) -> Results:
        subject = self.masks
        classes = len(subject.measured)
        sound = [model for model in self.models if model.sound]
        severities, level_rows = measure_levels(
            self.subject,
            sound,
            MEAN_IOU,
            CURVE,
            subject.images,
            classes,
        )
        rows = list(segmenter_rows(subject, self.models))
        rows += level_rows
        return self.shared_results(
            subject.images,
            classes,
            rows,
            subject.units,
            preview=None if self.options.limit is None else subject.images,
            classes=self.classes,
            severity=severities,
        )

    def facts_of(self, model: MeasuredSegmenter) -> ModelFacts:
        subject = self.masks
        answered = model.answered
        chance = float(subject.shares.max() / len(subject.measured))
        return self.model_facts(
            model.name,
            len(subject.classes),
            chance,
            not model.sound,
            answered.sha256,
            answered.matched,
        )

    def tables(self, results: Results) -> Tables:
        return {"segmentation": (self.table, segmentation_csv(results))}

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        measured = [share.class_id for share in results.rows.where(SHARE)]
        absent = [cls.name for cls in results.classes if cls.id not in measured]
        if absent:
            yield f"Not measured, because no pixel has them: {format_list(absent, _MOST_NAMED)}."
        for model in results.models:
            if model.matched:
                yield f"{model.short_name}: {model.matched}."
            drops = results.rows.where(DROP, model=model.name, at=IOU)
            sound = {drop.class_id for drop in drops}
            guessed = [name for name in measured if name not in sound]
            if results.shifts and guessed and not model.near_chance:
                over = over_classes(len(measured) - len(guessed), len(measured))
                yield (
                    f"{model.short_name}: near chance on the base for {format_list(guessed, _MOST_NAMED)}."
                    f" Mean drops are {over}."
                )

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        return "is near chance on the base for every class"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        models = results.models
        means = tuple(MEANS)
        yield group_section(results, means, means, title="Every group")
        yield from severity_section(results, CURVE)
        yield from compared_section(
            results,
            "segmenter",
            "Differences are over the classes that neither segmenter answers near chance on the base.",
        )
        yield ReportSection(
            title="Class by class",
            short="Classes",
            tables=[class_table(results, model) for model in models],
            note="IoU, recall and boundary F1 are on the base. Intervals of classes’ drops are for all"
            " classes and shifts at once.",
        )

    def write_failures(self, results: Results, folder: Path) -> Path:
        return write_mask_failures(self.masks, self.models, results.preview_sentence, folder)

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["iou"] < _HALF

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("iou", kind="stable")

    def failures(self) -> Iterator[Failure]:
        subject = self.masks
        iou = np.stack([model.image_iou for model in self.models], axis=-1)
        _, columns = self.image_columns()
        failing = (iou < _HALF).any(axis=-1)
        for group, image in np.argwhere(failing).tolist():
            number = group * subject.images + image
            pixels = subject.pixels[image]
            having = np.flatnonzero(pixels).tolist()
            shown = [classification(subject.classes[label]) for label in having]
            annotations = []
            for label in having:
                annotations.append({"category_id": label, "area": int(pixels[label])})
            answers = []
            for model in self.models:
                values = {}
                for name in self.answer_columns:
                    column = columns[f"{name}.{model.name}"]
                    values[name] = float(column[number])
                value = values["iou"]
                answer = {"_cls": "Regression", "tags": [], "value": value}
                answers.append(ModelAnswer(answer, value >= _HALF, values, [values]))
            row = int(subject.rows[group, image])
            shift = self.subject.groups[group].name
            truth = {"_cls": "Classifications", "classifications": shown}
            yield Failure(row, shift, truth, annotations, answers)

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the rows of images, and columns: the classes that each has; `iou.MODEL`, the mean
        over these, and `pixel_accuracy.MODEL`."""
        import pyarrow as pa

        subject = self.masks
        names = np.array(subject.classes, dtype=object)
        of_images = [names[having].tolist() for having in subject.pixels > 0]
        classes = pa.array(of_images * len(subject.rows), pa.list_(pa.string()))
        columns: dict[str, Any] = {"classes": classes}
        for model in self.models:
            columns[f"iou.{model.name}"] = model.image_iou.ravel()
            accuracies = []
            for counts in model.counts:
                accuracies.append(counts.image_accuracy())
            columns[f"pixel_accuracy.{model.name}"] = np.concatenate(accuracies)
        return subject.rows.ravel(), columns


def segmentation_csv(results: Results) -> str:
    """Write one line for each model, group and class, the first without a class: measures in
    percent, drops in points, both with intervals."""
    rows = []
    names = ["", *(cls.id for cls in results.classes)]
    for _, key, first_columns in csv_cells(results):
        for class_id in names:
            key["class_id"] = class_id
            row = first_columns | {"class": class_id}
            measures = OF_CLASS if class_id else tuple(MEANS)
            rows.append(row | csv_numbers(results, measures, key))
    columns = dict.fromkeys(name for row in rows for name in row)
    return csv_text(rows, tuple(columns))


def class_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each class: its numbers on the base, and the shift that costs it most. The
    class with the largest drop is first."""
    rows = []
    for share in results.rows.where(SHARE):
        key = {"model": model.name, "class_id": share.class_id}
        base = {"group": results.base or "", **key}
        cells = worst_cells(results, worst_drop(results, IOU, key))
        row = [text_cell(share.class_id), points_cell(share.estimate)]
        for name in OF_CLASS:
            row.append(points_cell(results.rows.estimate(name, **base)))
        rows.append(TableRow((*row, *cells)))
    rows.sort(key=lambda row: -float(row.cells[6].sort or -1.0))
    columns = (
        TableColumn("class", "name"),
        "share of pixels (%)",
        "IoU (%)",
        "recall (%)",
        "boundary F1 (%)",
        TableColumn("loses most under", "text"),
        "drop of IoU (points)",
    )
    table = Table.of(caption_of_model(results, model, "by class"), columns, rows)
    return table.first(_MOST_CLASSES, "classes", "segmentation.csv")
