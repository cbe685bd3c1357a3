"""Score semantic segmenters on a built dataset with masks: what differs from other tasks, and the
files of segmenters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.gate import GateLine
from counterfoil.evaluation.messages import message
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import (
    caption_of_model,
    compared_section,
    csv_cells,
    csv_numbers,
    group_section,
    largest_drop_first,
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
from counterfoil.evaluation.tasks.masks.subject import MaskSubject, open_masks
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
    compared: MaskSubject  # pyrefly: ignore[bad-override-mutable-attribute]
    truth_columns = ("classes",)
    answer_columns = ("iou", "pixel_accuracy")

    def open(self) -> None:
        self.compared = open_masks(self.subject, self.options.limit)

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        return write_key_table(subject, file)

    @property
    def classes(self) -> tuple[ClassFacts, ...]:
        # The id of a class is its name.
        return tuple(ClassFacts(name, name) for name in self.compared.classes)

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        if line.class_name and line.share == PIXELS:
            yield message("unfit-line.pixels", None, PIXELS, f"{IOU} or {RECALL}")
        if not line.class_name and line.share in (IOU, RECALL):
            yield message("unfit-line.class", None, line.share)

    def answers(self, name: str) -> ModelMasks:
        segmenter = self.given[name]
        subject = self.compared
        names = given_names(self.options.class_order, name, subject.classes, "classes")
        if isinstance(segmenter, str) and segmenter.startswith(PREDICTIONS):
            return replace(read_masks(segmenter, subject, names), name=name)
        device = resolve_device(self.options.device)
        transform = self.options.transform
        if isinstance(transform, Mapping):
            transform = transform.get(name)

        def opened() -> AbstractContextManager[Segmenting]:
            if isinstance(segmenter, str):
                return nullcontext(load_segmenter(segmenter, device))
            return as_segmenter(name, segmenter, transform, device)

        return run_segmenter(
            name,
            opened,
            subject,
            names,
            self.options.batch_size,
            device,
        )

    def measure(self, answers: Mapping[str, ModelMasks]) -> None:
        seed = self.options.seed
        self.models = [measure_segmenter(self.compared, each, seed) for each in answers.values()]

    def results(self) -> Results:
        subject = self.compared
        classes = len(subject.measured)
        sound = [model for model in self.models if model.sound]
        severities, of_levels = measure_levels(subject, sound, MEAN_IOU, CURVE, classes)
        rows = [*segmenter_rows(subject, self.models), *of_levels]
        return self.shared_results(classes, rows, classes=self.classes, severity=severities)

    def facts_of(self, model: MeasuredSegmenter) -> ModelFacts:
        subject = self.compared
        answered = model.answered
        most = subject.shares.max()
        chance = float(most / len(subject.measured))
        facts = self.model_facts(
            model.name,
            len(subject.classes),
            chance,
            not model.sound,
            answered.sha256,
            answered.matched,
        )
        likely = answered.likely_order(subject)
        return replace(facts, likely_order=likely)

    def tables(self, results: Results) -> Tables:
        return {"segmentation": (self.table, segmentation_csv(results))}

    def warnings(self, results: Results) -> Iterator[str]:
        numbered = [f"{number} {name}" for number, name in enumerate(self.compared.classes)]
        numbers = format_list(numbered, _MOST_NAMED)
        for model in results.models:
            if model.likely_order:
                yield (
                    f"The answers of {model.short_name} look {model.likely_order}. The dataset's"
                    f" numbers are {numbers}, and 255 is no class. --class-order names others."
                )

    def notes(self, results: Results) -> Iterator[str]:
        yield from self.warnings(results)
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
                sound_classes = len(measured) - len(guessed)
                over = over_classes(sound_classes, len(measured))
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
        return write_mask_failures(self.compared, self.models, results.preview_sentence, folder)

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["iou"] < _HALF

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("iou", kind="stable")

    def failures(self) -> Iterator[Failure]:
        subject = self.compared
        iou = np.stack([model.image_iou for model in self.models])
        _, columns = self.image_columns()
        failing = (iou < _HALF).any(axis=0)
        for group, image in np.argwhere(failing).tolist():
            number = group * subject.images + image
            pixels = subject.pixels[image]
            shown = []
            annotations = []
            for number_of_class in np.flatnonzero(pixels).tolist():
                shown.append(classification(subject.classes[number_of_class]))
                area = int(pixels[number_of_class])
                annotations.append({"category_id": number_of_class, "area": area})
            answers = []
            for model in self.models:
                values = {}
                for name in self.answer_columns:
                    column = columns[f"{name}.{model.name}"]
                    values[name] = float(column[number])
                value = values["iou"]
                right = value >= _HALF
                label = {"_cls": "Regression", "tags": [], "value": value}
                answers.append(ModelAnswer(label, right, values, [values]))
            truth = {"_cls": "Classifications", "classifications": shown}
            yield self.failure(group, image, truth, annotations, answers)

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the rows of images, and columns: the classes that each has; `iou.MODEL`, the mean
        over these, and `pixel_accuracy.MODEL`."""
        import pyarrow as pa

        subject = self.compared
        names = np.array(subject.classes, dtype=object)
        of_images = [names[having].tolist() for having in subject.pixels > 0]
        of_groups = of_images * len(subject.rows)
        classes = pa.array(of_groups, pa.list_(pa.string()))
        columns: dict[str, Any] = {"classes": classes}
        for model in self.models:
            columns[f"iou.{model.name}"] = model.image_iou.ravel()
            accuracies = [counts.image_accuracy() for counts in model.counts]
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
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    return csv_text(rows, tuple(columns))


def class_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each class: its numbers on the base, and the shift that costs it most. The
    class with the largest drop is first."""
    rows = []
    for share in results.rows.where(SHARE):
        key = {"model": model.name, "class_id": share.class_id}
        base = {"group": results.base or "", **key}
        cells = [text_cell(share.class_id), points_cell(share.estimate)]
        for name in OF_CLASS:
            number = results.rows.estimate(name, **base)
            cells.append(points_cell(number))
        worst = worst_drop(results, IOU, key)
        cells += worst_cells(results, worst)
        rows.append(TableRow(tuple(cells)))
    columns = (
        TableColumn("class", "name"),
        "share of pixels (%)",
        "IoU (%)",
        "recall (%)",
        "boundary F1 (%)",
        TableColumn("loses most under", "text"),
        "drop of IoU (points)",
    )
    largest_drop_first(rows, columns, "drop of IoU (points)")
    caption = caption_of_model(results, model, "by class")
    table = Table.of(caption, columns, rows)
    return table.first(_MOST_CLASSES, "classes", "segmentation.csv")
