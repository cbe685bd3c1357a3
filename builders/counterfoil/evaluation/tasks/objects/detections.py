"""The detections of a model on every image of a dataset: read from a file, or of a detector that
runs here, which is asked once for each content, weights, preparation and set of libraries. Also the
list of images for a program that detects elsewhere.

A file is a JSON list of COCO results (`image_id`, `category_id`, `bbox`, `score`), or a Parquet or
CSV table with a row a detection: `key`, `category`, `score`, and `bbox`, or `x`, `y`, `width`,
`height`, or two corners. An image is named by its key, by a file name that ends in its key, or by
its `id` in the file that `--write-keys` wrote. An entry that names only an image says that the
model found nothing in that image.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats, Ints
from counterfoil.data.labelled_images import rows_of
from counterfoil.data.written_objects import is_box, is_number
from counterfoil.detection_stats import Detections
from counterfoil.documents import csv_text, document_text, parse_entries
from counterfoil.errors import Problems, UserError, quoted
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.messages import message, refusal
from counterfoil.evaluation.tasks.objects.categories import (
    category_ids,
    map_categories,
    map_names,
)
from counterfoil.evaluation.tasks.objects.notes import BestBoxes, misplaced_detections
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject, open_objects
from counterfoil.foreign_tables import (
    NUMBER,
    NUMBERS,
    TEXT,
    WHOLE,
    parquet_types,
    read_foreign_parquet,
)
from counterfoil.models.answer_tables import csv_form
from counterfoil.models.detectors import Detector
from counterfoil.models.detectors.detector import refuse_unnamed_labels
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key
from counterfoil.prediction.asking import AskedFunction, Pass
from counterfoil.recipe.tasks.objects import MOST_OBJECTS
from counterfoil.regular_files import UnfitFile, named_path, read_regular
from counterfoil.report.words import safe_text
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import open_image

PREFIX = "predictions:"
# The largest file that is read. 4,952 images in 20 groups with 100 detections each are 10 million
# rows: 1 GB of JSON.
_MOST_BYTES = 1 << 31
_MOST_DETECTIONS = 20_000_000
_KEYS = ("key", "image_id", "file_name", "image", "path")
_LISTED = ("key", "file_name", "shift")
_CATEGORIES = ("category", "name", "label", "class_name", "category_id", "class")
_MOST_PROBLEMS = 1000
_SIDES = ("x", "y", "width", "height")
_CORNERS = ("x1", "y1", "x2", "y2")
_SCORES = ("score", "confidence")


@dataclass(frozen=True)
class ModelDetections:
    """The d detections of a model, in arrays of length d."""

    name: str
    """What the model is called."""
    row: Ints
    """The image's place in the dataset's order."""
    box: Floats
    """(d, 4), x, y, width and height in pixels."""
    category: Ints
    """The index in the dataset's categories."""
    score: Floats
    """How sure the model is."""
    matched: str = ""
    """A sentence on how categories were matched."""
    sha256: str = ""
    """The hash of the file or of the model's weights, if known."""
    complete: bool = False
    """Whether the detector is known to keep answers of any score."""

    def of_group(self, subject: DetectionSubject, place: int) -> Detections:
        """Return the detections on a group's images, by the numbers of images."""
        image = subject.number_of[self.row]
        in_group = subject.dataset.shifts[self.row] == place
        kept = in_group & (image >= 0)
        return Detections.of(image[kept], self.box[kept], self.category[kept], self.score[kept])


def read_detections(
    name: str,
    subject: DetectionSubject,
    order: str | Sequence[str] | None,
) -> ModelDetections:
    """Read `predictions:FILE`. Raise UserError with all problems if the file has another form or
    names other images."""
    path = named_path(name.removeprefix(PREFIX))
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise refusal("invalid-detections.file", name, error) from error
    entries = _entries(path, content, name)
    rows, answered = _listed(name, entries, subject.dataset.keys)
    counts = Counter(category for _, _, category, _ in rows)
    categories = map_categories(
        counts,
        subject.categories,
        name,
        order,
        subject.category_ids,
    )
    boxes = []
    scores = []
    images_of_boxes = []
    indices = []
    different = set()
    for row, box, category, score in rows:
        answered.add(row)
        different.add((row, *box, category, score))
        if category in categories.index_of:
            images_of_boxes.append(row)
            boxes.append(box)
            indices.append(categories.index_of[category])
            scores.append(score)
    # A model that detects nothing in a whole group was probably not run on its images.
    dataset = subject.dataset
    shifts = dataset.shifts[sorted(answered)]
    silent_groups = []
    for index, group in enumerate(dataset.groups):
        if index not in shifts:
            silent_groups.append(group.name)
    if silent_groups:
        raise refusal("missing-answers.detections", name, silent_groups[:10])
    detections = ModelDetections(
        name=name,
        row=np.array(images_of_boxes, np.int64),
        box=np.array(boxes, np.float64).reshape(-1, 4),
        category=np.array(indices, np.int64),
        score=np.array(scores, np.float64),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    most, misplaced = misplaced_detections(
        subject, detections.row, detections.box, detections.score
    )
    if most:
        raise refusal("invalid-detections.file", name, misplaced)
    best = BestBoxes.of(subject, detections.row, detections.score)
    form = best.other_form(detections.box, detections.box)
    if form:
        raise refusal("invalid-detections.file", name, form)
    order_note = best.other_order(detections.box, detections.category)
    notes = [categories.matched, misplaced, order_note]
    repeats = len(rows) - len(different)
    if repeats:
        notes.append(f"exact copies of other detections: {repeats:,}")
    compared = subject.rows.ravel().tolist()
    silent = len(set(compared) - answered)
    if silent:
        notes.append(f"{silent:,} of {len(compared):,} images have no detection")
    return replace(detections, matched="; ".join(filter(None, notes)))


def _listed(
    name: str,
    entries: Iterable[Mapping[str, Any]],
    keys: Sequence[str],
) -> tuple[list[tuple[int, list[float], Any, float]], set[int]]:
    """Return the detections that a file lists (row of the image, box, category as it is written,
    score), and the rows of images that it lists without one.

    Raise UserError with all problems, or if nothing is listed.
    """
    rows = []
    without = set[int]()
    counts = Counter[int]()
    # Each problem → the first entry that has it, and how many have it.
    problems: dict[str, tuple[int, int]] = {}
    row_of = {key: row for row, key in enumerate(keys)}
    for index, entry in enumerate(entries):
        image = _first(entry, _KEYS)
        problem = None
        row = _row_of(image, row_of, len(keys))
        category = _first(entry, _CATEGORIES)
        box = _box(entry)
        score = _first(entry, _SCORES)
        if isinstance(category, float) and category.is_integer():
            category = int(category)
        if row is None:
            problem = f"there is no image {quoted(str(image))} in the dataset"
        elif box is None and category is None and score is None:
            without.add(row)
        elif box is None:
            problem = f"{_box_as_given(entry)}, expected [x, y, width, height] in pixels"
        elif not is_number(score):
            problem = f"score is {quoted(str(score))}, expected a number"
        elif type(category) not in (int, str):
            problem = f"category is {quoted(str(category))}, expected a name or a number"
        else:
            rows.append((row, box, category, float(score)))
            counts[row] += 1
            if counts[row] > MOST_OBJECTS:
                raise refusal("invalid-detections.image", name, MOST_OBJECTS, image=keys[row])
        if problem is not None:
            first, count = problems.get(problem, (index, 0))
            if count or len(problems) < _MOST_PROBLEMS:
                problems[problem] = first, count + 1
        if len(rows) > _MOST_DETECTIONS:
            raise refusal("invalid-detections.many", name, _MOST_DETECTIONS)
    shown = Problems(message)
    for problem, (first, count) in problems.items():
        of = "entry" if count == 1 else "entries"
        shown.add(f"invalid-detections.{of}", name, problem, first=first, more=count - 1)
    shown.refuse()
    if not rows and not without:
        raise refusal("invalid-detections.empty", name)
    return rows, without


def _row_of(
    name: Any,
    row_of: Mapping[str, int],
    images: int,
) -> int | None:
    """Find an image by its key, by a file name that ends in its key, or by its number from 1; None
    if none matches."""
    if type(name) is float and name.is_integer():
        name = int(name)
    if type(name) is int:
        return name - 1 if 1 <= name <= images else None
    if not isinstance(name, str):
        return None
    stem = PurePosixPath(name.replace("\\", "/")).stem
    return row_of.get(name, row_of.get(stem))


def _first(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if entry.get(name) is not None:
            return entry[name]
    return None


def _box_as_given(entry: Mapping[str, Any]) -> str:
    """Return a box that cannot be read, in words: its column or columns, and what they hold."""
    columns: tuple[str, ...] = ("bbox",)
    if "bbox" not in entry:
        for names in (_CORNERS, _SIDES):
            if entry.keys() & set(names):
                columns = names
    values = ", ".join(str(entry.get(name)) for name in columns)
    return f"{', '.join(columns)} is {quoted(values)}"


def _box(entry: Mapping[str, Any]) -> list[float] | None:
    box: Any = entry.get("bbox")
    if box is None:
        box = [entry.get(name) for name in _SIDES]
        corners: Any = [entry.get(name) for name in _CORNERS]
        if is_box(corners):
            left, top, right, bottom = corners
            box = [left, top, right - left, bottom - top]
    # A box with zero width is valid but matches nothing. A negative width means that the box has
    # another form.
    if is_box(box) and box[2] >= 0 and box[3] >= 0:
        return list(map(float, box))
    return None


def _entries(
    path: Path,
    content: bytes,
    name: str,
) -> Iterator[Mapping[str, Any]]:
    """Yield each detection of a file as a mapping. Raise UserError if the file has another form."""
    ending = path.suffix.lower()
    try:
        if ending == ".json":
            yield from parse_entries(content)
        elif ending == ".parquet":
            file = io.BytesIO(content)
            columns = _columns(parquet_types(file))
            for batch in read_foreign_parquet(file, columns, most_rows=_MOST_DETECTIONS):
                yield from batch.to_pylist()
        elif ending == ".csv":
            form = csv_form(io.BytesIO(content), _KEYS)
            if not set(form.columns) & set(_KEYS):
                header = ", ".join(form.columns)[:200]
                raise ValueError(f"its columns are {header}: none of {', '.join(_KEYS)}")
            text = io.TextIOWrapper(io.BytesIO(content), form.encoding, newline="")
            lines = csv.DictReader(
                text,
                form.columns,
                delimiter=form.delimiter,
                skipinitialspace=form.spaced,
                strict=True,
            )
            next(lines)
            for line in lines:
                line.pop(None, None)  # cells beyond the header
                entry = {}
                for key, cell in line.items():
                    entry[key] = _value(key, cell, form.decimal)
                yield entry
        else:
            raise ValueError(
                f"its name ends in {ending or 'nothing'}, expected .json, .parquet or .csv"
            )
    except UserError:
        raise
    except UnfitFile as error:
        raise refusal("invalid-detections.file", name, error) from error
    except Exception as error:  # files may hold anything
        raise refusal("invalid-detections.read", name, error) from error


def _columns(types: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the columns of a Parquet file that are read, and what each may hold.

    A nested column is left out if another one says the same; else the reader refuses it.
    """
    names = (TEXT, WHOLE, NUMBER)
    kinds: dict[tuple[str, ...], tuple[str, ...]] = {
        _KEYS: names,
        _CATEGORIES: names,
        _SCORES: (NUMBER,),
    }
    for side in (*_SIDES, *_CORNERS):
        kinds[(side,)] = (NUMBER,)
    kinds[("bbox",)] = (NUMBERS,)
    columns: dict[str, tuple[str, ...]] = {}
    for aliases, wanted in kinds.items():
        present = [alias for alias in aliases if alias in types]
        fit = [alias for alias in present if set(types[alias]) & set(wanted)]
        columns |= dict.fromkeys(fit or present, wanted)
    return columns


_NUMBERS = frozenset((*_SIDES, *_CORNERS, *_SCORES, "category_id", "image_id"))


def _value(
    column: str,
    text: str | None,
    decimal: str,
) -> Any:
    """Return a cell of a CSV file as the number or list that its column holds; None if it is
    empty."""
    if not text:
        return None
    if column not in {*_NUMBERS, "bbox"}:
        return text
    written = text if column == "bbox" else text.replace(decimal, ".")
    try:
        value = json.loads(written)
    except ValueError:
        return text
    if column in ("category_id", "image_id"):
        # Tables write whole numbers as 3.0 if a cell of the column is empty.
        whole = isinstance(value, float) and value.is_integer()
        return int(value) if whole else value
    return float(value) if isinstance(value, int) else value


def write_image_keys(dataset: OpenDataset, path: Path) -> int:
    """Write the list of a dataset's images, and return their number.

    If the name of the file ends in .json, the file is a COCO file (images, annotations,
    categories). A file of results may then name images and categories by the ids of the COCO file.
    Any other file is a CSV of keys.
    """
    if path.suffix.lower() != ".json":
        return write_key_table(dataset, path)
    document = coco_document(open_objects(dataset))
    write_atomically(path, document_text(document).encode())
    return len(dataset.keys)


def write_key_table(dataset: OpenDataset, path: Path) -> int:
    """Write a CSV of the keys of a dataset's images, and return their number."""
    suffix = dataset.recipe.output.image.format
    rows = []
    for key, shift in zip(dataset.keys, dataset.shifts, strict=True):
        group = dataset.groups[shift].name
        rows.append({"key": key, "file_name": f"{key}.{suffix}", "shift": group})
    text = csv_text(rows, _LISTED)
    write_atomically(path, text.encode())
    return len(rows)


def coco_document(subject: DetectionSubject) -> dict[str, Any]:
    """Return the dataset as a COCO document. A file of results may name images and categories by
    the ids in it."""
    dataset = subject.dataset
    suffix = dataset.recipe.output.image.format
    ids = category_ids(subject.categories, subject.category_ids)
    images = []
    annotations: list[dict[str, Any]] = []
    for row, (key, encoded) in enumerate(dataset.images()):
        with open_image(encoded) as picture:
            width, height = picture.size
        group = dataset.groups[dataset.shifts[row]]
        image = {
            "id": row + 1,
            "file_name": f"{key}.{suffix}",
            "width": width,
            "height": height,
            "group": group.name,
        }
        images.append(image)
        objects = subject.objects[row]
        for index, box in enumerate(objects["bbox"]):
            category = objects["category"][index]
            annotation = {
                "id": len(annotations) + 1,
                "image_id": row + 1,
                "category_id": ids[category],
                "bbox": box,
                "area": objects["area"][index],
                "iscrowd": int(objects["iscrowd"][index]),
            }
            annotations.append(annotation)
    categories = []
    for number, name in zip(ids, subject.categories, strict=True):
        categories.append({"id": number, "name": name})
    return {"images": images, "annotations": annotations, "categories": categories}


_EDGES = ("left", "top", "right", "bottom")


def are_detections(columns: Columns, rows: range) -> bool:
    """Return whether columns can be the detections in these rows of the images."""
    kinds = {name: column.dtype.kind for name, column in columns.items()}
    expected = dict.fromkeys((*_EDGES, "score"), "f")
    if kinds != {"row": "i", "label": "i", **expected}:
        return False
    inside = bool(np.isin(columns["row"], rows).all())
    return inside and all(np.isfinite(values).all() for values in columns.values())


def run_detector(
    name: str,
    detector: Callable[[list[Any]], Sequence[Mapping[str, Any]]],
    subject: DetectionSubject,
    names: Sequence[str] | None,
    batch_size: int,
    device: str = "cpu",
) -> ModelDetections:
    """Ask a detector about every image.

    detector: takes a list of PIL images, and returns for each image its `boxes` (corners in
    pixels), `scores` and `labels`, as torchvision's detectors do. names: the name of each label
    number; None: the detector's `label_names`. Raise UserError if there are no names, or if an
    answer has another form.
    """
    if names is None:
        names = getattr(detector, "label_names", None)
    if names is None:
        raise refusal("class-order.labels", name)
    names = [str(label) for label in names]
    categories = map_names(names, subject.categories, name)
    chosen = np.unique(subject.rows)
    images = rows_of(subject.dataset.labelled(), chosen)
    cache = None
    if isinstance(detector, Detector):
        key = answers_key(
            device, data=images.content, weights=detector.sha256, input=detector.input_key
        )
        folder = subject.dataset.workplace / "detections"
        cache = AnswerCache(folder, name, key, len(images), are_detections)

    def of_answer(answer: Any, row: int) -> Columns:
        return _answer_columns(answer, row, name)

    answering = AskedFunction(name, detector, images, of_answer)
    asking = Pass(images, f"detecting with {name}", batch_size, device)
    columns = asking.answers_of(answering, cache)
    labels = columns["label"]
    refuse_unnamed_labels(name, labels, names, "label_names")
    shifted = ""
    if len(labels) and 0 in categories.index_of and labels.min():
        shifted = (
            f"no box has label 0, '{safe_text(names[0])}': if its labels count from 1, label_names"
            " lacks a first name that stands for none"
        )
    known = np.isin(labels, list(categories.index_of))
    rows = chosen[columns["row"][known]]
    edges = [columns[side][known] for side in _EDGES]
    corners = np.stack(edges, axis=1).astype(np.float64)
    boxes = corners.copy()
    extent = boxes[:, 2:] - boxes[:, :2]
    boxes[:, 2:] = np.maximum(0.0, extent)
    scores = columns["score"][known].astype(np.float64)
    _, misplaced = misplaced_detections(subject, rows, boxes, scores)
    best = BestBoxes.of(subject, rows, scores)
    form = best.other_form(corners, boxes)
    indices = [categories.index_of[label] for label in labels[known].tolist()]
    category = np.array(indices, np.int64)
    order = best.other_order(boxes, category)
    notes = filter(None, (categories.matched, shifted, form or misplaced, order))
    return ModelDetections(
        name=name,
        row=rows,
        box=boxes,
        category=category,
        score=scores,
        matched="; ".join(notes),
        sha256=getattr(detector, "sha256", ""),
        complete=getattr(detector, "complete", False),
    )


def _answer_columns(
    answer: Any,
    row: int,
    name: str,
) -> Columns:
    """Return one image's answer as columns."""
    try:
        boxes = _floats(answer["boxes"]).reshape(-1, 4)
        scores = _floats(answer["scores"])
        labels = _array(answer["labels"])
        if not len(boxes) == len(scores) == len(labels):
            raise ValueError(f"{len(boxes)} boxes, {len(scores)} scores and {len(labels)} labels")
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError("a box or a score that is not finite")
        if (labels % 1 != 0).any():
            raise ValueError("a label that is no whole number")
        labels = labels.astype(np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise refusal("invalid-detections.answer", name, error) from error
    edges = dict(zip(_EDGES, boxes.T, strict=True))
    rows = np.full(len(scores), row, np.int64)
    return {"row": rows, **edges, "score": scores, "label": labels}


def _floats(values: Any) -> NDArray[Any]:
    """Return numbers as floats. float32 stays float32, because that halves the size of the kept
    files."""
    array = _array(values)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _array(values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
