"""Score detectors on a built dataset with objects: what differs from other tasks, the table of
detectors and the sections of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.detection_stats import COCO_MEASURES, Detections, Objects
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer
from counterfoil.evaluation.figures import lines_of_models
from counterfoil.evaluation.gate import GateLine
from counterfoil.evaluation.messages import message
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import (
    caption_of_model,
    compared_section,
    csv_cells,
    group_section,
    largest_drop_first,
    severity_section,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.task import ResampledTask, difference_rows
from counterfoil.evaluation.tasks.objects.categories import given_names, given_order
from counterfoil.evaluation.tasks.objects.curves import curve_figure
from counterfoil.evaluation.tasks.objects.detections import (
    PREFIX,
    ModelDetections,
    read_detections,
    run_detector,
    write_image_keys,
)
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS, MISSED
from counterfoil.evaluation.tasks.objects.failures import write_detection_failures
from counterfoil.evaluation.tasks.objects.measures import (
    BY_CATEGORY,
    CURVE,
    ERRORS,
    F1,
    FACTS,
    MPC,
    NAMES,
    OBJECTS,
    REPLICATES,
    RPC,
    TAKEN_FOR,
    MeasuredModel,
    detector_rows,
    measure_levels,
    measure_model,
)
from counterfoil.evaluation.tasks.objects.notes import crowded_sentence, cut_sentence, truth_notes
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject, open_objects
from counterfoil.models.classifiers.of_python import refuse_unnamed
from counterfoil.models.detectors import load_detector
from counterfoil.models.devices import resolve_device
from counterfoil.recipe.names import PYTHON
from counterfoil.recipe.tasks.objects import ObjectsSource
from counterfoil.report.results import DROP, ClassFacts, ModelFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.severity import at
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    count_cell,
    csv_interval,
    format_count,
    format_percent,
    in_words,
    points_cell,
    text_cell,
)

SIZES = ("AP_small", "AP_medium", "AP_large")
_MOST_CATEGORIES = 40
_MOST_CONFUSIONS = 20
_FEW_IMAGES = 50


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
    facts = FACTS
    gated = NAMES
    replicates = REPLICATES
    shown = (("AP", "AP50", "AP75", F1), ("AP", F1))
    beside = F1
    compared: DetectionSubject  # pyrefly: ignore[bad-override-mutable-attribute]
    truth_columns = ("objects",)
    answer_columns = ("f1", "found", "missed", "false")

    def open(self) -> None:
        subject = open_objects(self.subject, self.options.limit)
        self.compared = subject
        crowded = crowded_sentence(subject.truth, subject.images, subject.categories)
        notes = [*truth_notes(subject), crowded]
        self.of_dataset_notes = tuple(filter(None, notes))

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        return write_image_keys(subject, file)

    @property
    def classes(self) -> tuple[ClassFacts, ...]:
        # The id of a category is its name.
        return tuple(ClassFacts(name, name) for name in self.compared.categories)

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        if line.class_name and line.share != "AP":
            yield message("unfit-line.category")

    def answers(self, name: str) -> ModelDetections:
        detector = self.given[name]
        subject = self.compared
        order = self.options.class_order
        if isinstance(detector, str) and detector.startswith(PREFIX):
            detections = read_detections(detector, subject, given_order(order, name))
            return replace(detections, name=name)
        names = given_names(order, name, subject.categories, "labels")
        device = "cpu"
        if isinstance(detector, str):
            if detector.startswith(PYTHON):
                refuse_unnamed(detector)
            device = resolve_device(self.options.device)
            detector = load_detector(detector, device)
        return run_detector(
            name,
            detector,
            subject,
            names,
            self.options.batch_size,
            device,
        )

    def measure(self, answers: Mapping[str, ModelDetections]) -> None:
        seed = self.options.seed
        self.models = [measure_model(self.compared, each, seed) for each in answers.values()]

    def results(self) -> Results:
        subject = self.compared
        models = self.models
        categories = len(subject.categories)
        severities, of_levels = measure_levels(subject, models, "AP", CURVE, categories)
        rows = [
            *detector_rows(subject, models),
            *difference_rows(models, self.subject.groups, "AP"),
            *of_levels,
        ]
        measured = len(np.unique(subject.truth.category))
        return self.shared_results(measured, rows, classes=self.classes, severity=severities)

    def facts_of(self, model: MeasuredModel) -> ModelFacts:
        detections = model.detections
        cut = ""
        if not detections.complete:
            names = [group.name for group in self.subject.groups]
            answers = list(zip(model.answers, model.matches, strict=True))
            cut = cut_sentence(names, answers)
        notes = filter(None, (detections.matched, cut))
        return self.model_facts(
            model.name,
            len(self.compared.categories),
            0.0,
            model.near_chance,
            detections.sha256,
            "; ".join(notes),
        )

    def tables(self, results: Results) -> Tables:
        return {"detection": (self.table, detection_csv(results))}

    def notes(self, results: Results) -> Iterator[str]:
        yield from super().notes(results)
        for model in results.models:
            if model.matched:
                yield f"{model.short_name}: {model.matched}."
            if model.near_chance:
                yield (
                    f"{model.short_name} may have an AP50 under 10 % on the base: its drops mean"
                    " little, and it has no rPC and is compared with no other detector."
                )
        images = results.groups[0].images
        if images < _FEW_IMAGES:
            few = format_count(images, "image")
            yield f"The dataset has only {few} in each group: intervals of so few say little."

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        base = results.rows.value("AP", model=model.name, group=results.base or "")
        return f"finds next to nothing on the base (AP {format_percent(base or 0.0)})"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        measures = [name for name in (*COCO_MEASURES, F1) if name not in SIZES]
        yield group_section(results, measures, ("AP", "AP50", F1), title="Every group")
        yield from severity_section(results, CURVE)
        yield from compared_section(
            results, "detector", "Detectors that find next to nothing on the base are left out."
        )
        yield ReportSection(title="Over all shifts", tables=[_mean_table(results)])
        yield from _error_sections(results)
        yield group_section(
            results,
            SIZES,
            (),
            title="By size of object",
            short="Sizes",
            note="Small objects have less than 32² pixels of the stored image, large ones more than"
            " 96². A dash: no such object.",
        )
        yield ReportSection(
            title="By category",
            short="Categories",
            tables=[_category_table(results, model) for model in results.models],
            note="Categories without an object are left out; AP of few objects says little. The shift"
            f" of each category is the worst of {len(results.shifts)}, chosen after the fact, and its"
            " interval is of that drop alone.",
        )

    def write_failures(self, results: Results, folder: Path) -> Path:
        preview = results.preview_sentence
        return write_detection_failures(self.compared, self.models, preview, folder)

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["missed"] + frame["false"] > 0

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("f1", kind="stable")

    def failures(self) -> Iterator[Failure]:
        subject = self.compared
        truth = subject.truth
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
                of_image = detections.image == image
                of_image &= detections.score >= model.score
                detected = []
                for index in np.flatnonzero(of_image).tolist():
                    result = _coco_box(detections, index)
                    result["score"] = float(detections.score[index])
                    detected.append(result)
                counts: dict[str, float] = {"objects": int(columns["objects"][number])}
                for name in self.answer_columns:
                    column = columns[f"{name}.{model.name}"]
                    counts[name] = float(column[number])
                right = bool(model.f1[group, image] == 1)
                label = self._labels(image, detected)
                answers.append(ModelAnswer(label, right, counts, detected))
            label = self._labels(image, annotations)
            yield self.failure(group, image, label, annotations, answers)

    def _labels(self, image: int, boxes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return boxes as FiftyOne has them: x, y, width and height as shares of the image."""
        subject = self.compared
        sides = np.tile(subject.sides[image], 2)
        detections = []
        for box in boxes:
            detection = {"_cls": "Detection", "tags": []}
            detection["label"] = subject.categories[box["category_id"]]
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
        subject = self.compared
        images = subject.images
        truth = subject.truth
        of_images = np.bincount(truth.image[~truth.crowd], minlength=images)
        objects = np.tile(of_images, len(subject.rows))
        columns: dict[str, Any] = {"objects": objects}
        for model in self.models:
            hits_of_groups = []
            false = []
            for matches in model.matches:
                counted = matches.counting(model.score)
                true = matches.matched[0, 0]
                hits = matches.image[counted & true]
                others = matches.image[counted & ~true]
                hits_of_groups.append(np.bincount(hits, minlength=images))
                false.append(np.bincount(others, minlength=images))
            of_groups = np.concatenate(hits_of_groups)
            columns[f"f1.{model.name}"] = np.concatenate(model.f1)
            columns[f"found.{model.name}"] = of_groups
            columns[f"missed.{model.name}"] = objects - of_groups
            columns[f"false.{model.name}"] = np.concatenate(false)
        return subject.rows.ravel(), columns


def _coco_box(boxes: Objects | Detections, index: int) -> dict[str, Any]:
    """Return a box and its category, as COCO has them."""
    box = boxes.box[index].tolist()
    return {"category_id": int(boxes.category[index]), "bbox": box}


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


def _mean_table(results: Results) -> Table:
    """Return one row for each detector: AP on the base, mPC and rPC."""
    rows = []
    for model in results.models:
        on_base = results.base_number(model.name)
        cells: list[TableCell | str] = [model.short_name, points_cell(on_base)]
        for name in (MPC, RPC):
            mean = results.rows.estimate(name, model=model.name, at="AP")
            cells.append(points_cell(mean))
        rows.append(cells)
    columns = (
        TableColumn("detector", "name"),
        "AP on the base (%)",
        "mPC: mean AP over shifts (%)",
        "rPC: share of the base (%)",
    )
    return Table.of("Over all shifts", columns, rows)


def _category_table(results: Results, model: ModelFacts) -> Table:
    """Return the table of categories. The category with the largest drop of AP under any shift is
    first."""
    rows = []
    for cls in results.classes:
        key = {"model": model.name, "class_id": cls.id}
        base = results.rows.estimate(BY_CATEGORY, group=results.base or "", **key)
        if base is None:
            continue
        objects = results.rows.value(OBJECTS, class_id=cls.id) or 0
        cells = [text_cell(cls.name), count_cell(int(objects)), points_cell(base)]
        worst = worst_drop(results, BY_CATEGORY, key)
        if worst is None:
            cells += [points_cell(None)] * 2
        else:
            cells += worst_cells(results, worst)
        rows.append(TableRow(tuple(cells)))
    columns = (
        TableColumn("category", "name"),
        "objects",
        "AP on the base (%)",
        TableColumn("loses most under", "text"),
        "drop of AP (points)",
    )
    largest_drop_first(rows, columns, "drop of AP (points)")
    caption = caption_of_model(results, model, "by category")
    table = Table.of(caption, columns, rows)
    return table.first(_MOST_CATEGORIES, "categories", "measures.csv")


def _error_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each group: how many errors of each kind."""
    rows = []
    for group in results.groups:
        key = {"model": model.name, "group": group.name}
        counts = []
        for kind in (*KINDS, MISSED):
            count = results.rows.value(ERRORS, at=kind, **key)
            counts.append(count_cell(int(count or 0)))
        rows.append((group.name, *counts))
    columns = (TableColumn("group", "shift"), *KINDS, MISSED)
    return Table.of(caption_of_model(results, model, "kinds of errors"), columns, rows)


def _confusion_table(results: Results, model: ModelFacts) -> Table:
    """Return a row for each pair of categories, the most frequent under any shift first."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for taken in results.rows.where(TAKEN_FOR, model=model.name):
        pair = taken.class_id, taken.against
        by_group = counts.setdefault(pair, {})
        by_group[taken.group] = int(taken.value or 0)
    rows = []
    shifts = [group.name for group in results.shifts]
    for (true, detected), by_group in counts.items():
        objects = results.rows.value(OBJECTS, class_id=true) or 0
        worst = max(shifts, key=lambda name: by_group.get(name, 0), default="")
        most_under = NOTHING
        if shifts:
            most_under = in_words(worst)
        cells = (
            text_cell(true),
            text_cell(detected),
            count_cell(int(objects)),
            count_cell(by_group.get(results.base or "", 0)),
            text_cell(most_under),
            count_cell(by_group.get(worst, 0)),
        )
        rows.append(TableRow(cells))

    def most(row: TableRow) -> float:
        _, _, _, on_base, _, under_shift = row.cells
        return max(float(on_base.sort), float(under_shift.sort))

    rows.sort(key=most, reverse=True)
    columns = (
        TableColumn("category", "name"),
        TableColumn("taken for", "name"),
        "objects",
        "times on the base",
        TableColumn("most under", "text"),
        "times",
    )
    caption = caption_of_model(results, model, "confusions")
    table = Table.of(caption, columns, rows)
    return table.first(_MOST_CONFUSIONS, "pairs of categories", "measures.csv")


def _error_sections(results: Results) -> Iterator[ReportSection]:
    """Yield precision against recall, the kinds of errors, and the confusions if there are any."""
    shown = results.best_sound
    figure = curve_figure(results, shown)
    if figure is not None:
        yield ReportSection(
            title="Precision and recall",
            figures=[figure],
            legend=lines_of_models(shown),
            note="At IoU .50, the mean over categories; the mean of a curve is AP50. Dashed: the"
            " base. Shifts that cost most AP50 come first.",
        )
    yield ReportSection(
        title="Kinds of errors",
        tables=[_error_table(results, model) for model in results.models],
        note="Counted among the boxes from the score on that is best on the base, as F1 is. Kinds"
        " are those of TIDE (Bolya and others 2020), at an overlap (IoU) of .5 and .1. Class: right"
        " place, wrong category. Place: right category, overlap of .1 to .5. Both: wrong category"
        " and an overlap of .1 to .5. Double: a second box of an object. Background: a box where no"
        " object is. Missed: an object that no box finds, and no error of class or place is about.",
    )
    confusions = []
    for model in results.models:
        table = _confusion_table(results, model)
        if table.rows:
            confusions.append(table)
    if confusions:
        yield ReportSection(
            title="Confusions between categories",
            short="Confusions",
            tables=confusions,
            note="Errors of class: a box on an object of one category that names another. The shift"
            " is the one with most.",
        )
