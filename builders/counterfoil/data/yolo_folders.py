"""Folders of images with a text file of labels for each image, as YOLO's loaders read them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.data.folder_cards import yaml_mapping
from counterfoil.data.folder_splits import shown_name
from counterfoil.data.messages import message, refusal
from counterfoil.data.written_objects import (
    ObjectFolder,
    WrittenObjects,
    add_object,
    file_text,
    is_number,
    written_id,
)
from counterfoil.errors import Problems, quoted
from counterfoil.recipe.tasks.objects import MOST_OBJECTS, categories_problem, no_objects
from counterfoil.report.words import format_count

# The keys of a split; YOLO's loaders read `validation` too.
_SPLITS = {
    "train": ("train",),
    "validation": ("val", "validation", "valid"),
    "test": ("test",),
}
# The first line of a file of labels.
_BOX = re.compile(r"\s*\d+(\.0+)?([ \t]+-?\d*\.?\d+(e-?\d+)?){4}", re.IGNORECASE)
# Shares may leave the image by rounding. YOLO's loaders allow as much.
_BEYOND = 0.01


def yolo_folder(
    folder: Path,
    names: Sequence[str],
    images: Sequence[str],
    split: str | None,
) -> ObjectFolder | None:
    """Return a folder of YOLO files, with the objects of one split or of all, or None for another
    folder."""
    labels = _labels(names)
    named = _description(folder, names) if labels else None
    if named is None:
        return None
    yaml_path, document = named
    categories = _names(yaml_path, document)
    listed: dict[str, list[str]] = {}
    absent = {}
    notes = []
    for split_name, keys in _SPLITS.items():
        entry = next(filter(None, map(document.get, keys)), None)
        paths, missing = _listed(yaml_path, document, entry, names, images)
        if paths:
            listed[split_name] = paths
            absent[split_name] = missing
        elif entry and split_name == "validation":
            notes.append(
                f"{yaml_path.name} names {quoted(str(entry))} for the split validation, and no image"
                " is there"
            )
    if not listed:
        raise refusal("invalid-yolo.folders", yaml_path)
    points = "kpt_shape" in document
    splits: dict[str, list[WrittenObjects]] = {}
    unused = set(labels)
    for split_name, paths in listed.items():
        files = {path: _stem_of_labels(path) for path in paths}
        unused -= set(files.values())
        # If two images had the same file of labels, its boxes would be of one of them.
        image_of = {}
        for image, stem in files.items():
            first = image_of.setdefault(stem, image)
            if first != image and stem in labels:
                of = f"{shown_name(first)} or of {shown_name(image)}"
                raise refusal("invalid-yolo.several", folder, shown_name(labels[stem]), of)
        problems = Problems(message)
        splits[split_name] = []
        for path, stem in files.items():
            lists = no_objects()
            if split in (None, split_name) and stem in labels:
                lists = _objects(folder, labels[stem], len(categories), points, problems)
            splits[split_name].append(WrittenObjects(path, lists))
        problems.refuse()
    if unused:
        notes.append(
            f"{format_count(len(unused), 'file')} of labels, such as {quoted(labels[min(unused)])}, of"
            " no image in a split"
        )
    return ObjectFolder(folder, "YOLO", categories, splits, absent, notes=tuple(notes))


def refuse_nameless(folder: Path, names: Sequence[str], images: Sequence[str]) -> None:
    """Raise UserError if images have labels of YOLO, and no file names the categories."""
    labels = _labels(names)
    stems = map(_stem_of_labels, images)
    first = next((labels[stem] for stem in stems if stem in labels), None)
    if first is not None and _BOX.match(file_text(folder / first)):
        raise refusal("invalid-yolo.unnamed", folder, shown_name(first))


def _labels(names: Sequence[str]) -> dict[str, str]:
    """Return the files of labels by the path without its ending, which may be in capitals."""
    labels = {}
    for name in names:
        if name.lower().endswith(".txt") and "labels" in name.split("/")[:-1]:
            labels[name[:-4]] = name
    return labels


def _description(folder: Path, names: Sequence[str]) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the YAML file that names the categories, and its content; None if there is none."""
    documents: dict[str, Mapping[str, Any]] = {}
    for name in names:
        if "/" in name or not name.lower().endswith((".yaml", ".yml")):
            continue
        document = yaml_mapping(file_text(folder / name), str(folder / name))
        if isinstance(document.get("names"), list | Mapping):
            documents[name] = document
    if len(documents) > 1:
        raise refusal("unclear-choice.yolo", folder, documents)
    if not documents:
        return None
    [(name, document)] = documents.items()
    return folder / name, document


def _names(path: Path, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the category names in the order of their numbers, from a list or a mapping that starts
    at 0."""
    names = document["names"]
    if isinstance(names, Mapping):
        by_number = {written_id(number): name for number, name in names.items()}
        if set(by_number) != set(range(len(names))):
            raise refusal("invalid-yolo.numbers", path, expected=len(names) - 1)
        names = [by_number[number] for number in range(len(names))]
    count = document.get("nc")
    if type(count) is int and count != len(names):
        raise refusal("invalid-yolo.count", path, count, len(names))
    texts = tuple(str(name) for name in names)
    problem = categories_problem(texts) if texts else "found no name"
    if problem is not None:
        raise refusal("invalid-yolo.names", path, problem)
    return texts


def _listed(
    yaml_path: Path,
    document: Mapping[str, Any],
    entry: Any,
    names: Sequence[str],
    images: Sequence[str],
) -> tuple[list[str], int]:
    """Return the images of a split, from the folders or lists of files that `entry` names, and the
    number of listed images that the folder lacks.
    """
    known = frozenset(images)
    paths = {}
    absent = 0
    for text in entry if isinstance(entry, list) else [entry]:
        if text is None:
            continue
        if not isinstance(text, str):
            raise refusal("invalid-yolo.folder", yaml_path, text)
        # Some exports write ../train/images for a folder that is beside the file.
        name = _inside(text)
        if not name.lower().endswith(".txt"):
            inside = "" if name == "." else f"{name}/"
            paths |= dict.fromkeys(image for image in images if image.startswith(inside))
            continue
        lines = file_text(yaml_path.parent / name).splitlines() if name in names else []
        written_root = str(document.get("path") or "")
        root = written_root.replace("\\", "/").rstrip("/")
        for line in filter(None, map(str.strip, lines)):
            image = line.replace("\\", "/")
            # A list may have paths below the dataset's own place, as data.yaml writes it.
            image = _inside(image.removeprefix(f"{root}/") if root else image)
            if image in known:
                paths[image] = None
            else:
                absent += 1
    return [*paths], absent


def _inside(path: str) -> str:
    name = posixpath.normpath(path.replace("\\", "/"))
    while name.startswith("../"):
        name = name[3:]
    return name


def _stem_of_labels(image: str) -> str:
    """Return the path of an image's labels without its ending: the last folder images/ of the path
    is labels/, as for YOLO's own loaders.
    """
    before, inside, after = f"/{image}".rpartition("/images/")
    labels = f"{before}/labels/{after}" if inside else f"/labels{after}"
    stem, _ = posixpath.splitext(labels)
    return stem.lstrip("/")


def _objects(
    folder: Path,
    file: str,
    categories: int,
    points: bool,
    problems: Problems,
) -> dict[str, list[Any]]:
    """Return the objects of a file of labels, with boxes as shares of the image: centre and
    size."""
    objects = no_objects()
    path = folder / file
    lines = file_text(path).splitlines()
    for row, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            continue
        if len(objects["id"]) == MOST_OBJECTS:
            raise refusal("too-much-data.boxes", path, expected=MOST_OBJECTS)
        try:
            category = written_id(float(parts[0]))
            numbers = [float(part) for part in parts[1:]]
        except ValueError:
            category = None
            numbers = []
        is_polygon = len(numbers) >= 6 and len(numbers) % 2 == 0 and not points
        # A fifth number is a score. In a pose file, the numbers after the box are points.
        has_box = is_polygon or len(numbers) in (4, 5) or (points and len(numbers) > 4)
        shares = numbers if is_polygon else numbers[:4]
        known = isinstance(category, int) and 0 <= category < categories
        if not (known and has_box and all(map(is_number, numbers))):
            problem = "line"
        elif is_polygon and len(numbers) == 6 and float(parts[6]) >= 1 and parts[6].isdecimal():
            problem = "track"
        elif min(shares) < -_BEYOND or max(shares) > 1 + _BEYOND:
            problem = "shares"
        elif not is_polygon and min(shares[2:]) < 0:
            problem = "side"
        else:
            problem = ""
        if problem:
            where = f"{path}: line {row}"
            problems.add(f"invalid-yolo.{problem}", where, line.strip(), categories - 1)
            continue
        if is_polygon:
            across = numbers[::2]
            down = numbers[1::2]
            left = min(across)
            top = min(down)
            right = max(across)
            bottom = max(down)
            centre = [(left + right) / 2, (top + bottom) / 2]
            shares = [*centre, right - left, bottom - top]
        number = len(objects["id"])
        add_object(objects, id=number, bbox=shares, category=category, area=0.0, iscrowd=False)
    return objects
