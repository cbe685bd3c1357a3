"""Folders of images with an XML file of annotations for each image, in the form of Pascal VOC.

VOC counts pixels from 1, and a box includes its last pixel: xmin 1 and xmax 10 are the first ten
pixels. A box here begins at xmin - 1 and is xmax - xmin + 1 wide. Objects that are `difficult` are
neither found nor missed, as for VOC.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.folder_splits import DEFAULT_SPLIT, shown_name, split_of_name
from counterfoil.data.messages import message, refusal
from counterfoil.data.written_objects import (
    ObjectFolder,
    Size,
    WrittenObjects,
    add_object,
    file_content,
    file_text,
    is_box,
    is_rotated,
    rotated_notes,
)
from counterfoil.errors import Problems, some_of
from counterfoil.recipe.tasks.objects import categories_problem, no_objects
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


# An annotation of an image with 1,000 objects takes 300 kB.
_MOST_XML = 4_000_000
_DEEPEST = 20
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
# Folders of drawings that have the names of the photographs.
_MASKS = frozenset(("SegmentationClass", "SegmentationObject", "SegmentationClassRaw"))
# The lists of ImageSets that are splits. Other lists in ImageSets/Main are of one category
# (aeroplane_train.txt).
_LISTS = {"train": "train", "val": "validation", "test": "test"}
_BOTH = "trainval"


@dataclass(frozen=True)
class _Annotation:
    """The content of an annotation file. objects: name, box [x, y, width, height] and whether it is
    difficult. rotated: the number of rotated boxes."""

    size: Size | None
    objects: list[tuple[str, list[float], bool]]
    rotated: int


def voc_folder(folder: Path, names: Sequence[str], images: Sequence[str]) -> ObjectFolder | None:
    """Return a folder of VOC files, or None if no file in it is one."""
    annotations = _annotations(folder, names)
    if not annotations:
        return None
    photographs = [image for image in images if _MASKS.isdisjoint(image.split("/")[:-1])]
    by_stem = defaultdict[str, list[str]](list)
    for image in photographs:
        by_stem[_stem(image)].append(image)
    image_of = {}
    without = 0
    for file in annotations:
        matches = _images_of(file, by_stem.get(_stem(file), []))
        if len(matches) > 1:
            known = some_of(map(shown_name, matches))
            raise refusal("invalid-voc.several", folder, shown_name(file), known)
        if matches:
            image_of[file] = matches[0]
        else:
            without += 1
    if not image_of:
        raise refusal("invalid-voc.images", folder, len(annotations))
    if len(set(image_of.values())) < len(image_of):
        raise refusal("invalid-voc.again", folder)
    files, absent = _splits(folder, names, image_of, without)
    named = set()
    for annotation in annotations.values():
        named.update(name for name, _, _ in annotation.objects)
    categories = sorted(named)
    if not categories:
        raise refusal("invalid-voc.objects", folder)
    problem = categories_problem(categories)
    if problem is not None:
        raise refusal("invalid-voc.categories", folder, problem)
    index_of = {name: index for index, name in enumerate(categories)}
    splits: dict[str, list[WrittenObjects]] = {}
    for split, listed in files.items():
        splits[split] = []
        for file in listed:
            lists = no_objects()
            for number, (name, box, difficult) in enumerate(annotations[file].objects):
                add_object(
                    lists,
                    id=number,
                    bbox=box,
                    category=index_of[name],
                    area=box[2] * box[3],
                    iscrowd=difficult,
                )
            splits[split].append(WrittenObjects(image_of[file], lists, annotations[file].size))
    unlabelled = len(photographs) - len(set(image_of.values()))
    notes = tuple(_notes([*annotations.values()], unlabelled))
    return ObjectFolder(folder, "Pascal VOC", tuple(categories), splits, absent, notes=notes)


def _stem(name: str) -> str:
    return posixpath.splitext(name.rpartition("/")[2])[0]


def _annotations(folder: Path, names: Sequence[str]) -> dict[str, _Annotation]:
    """Return the annotation files of a folder by name. Raise UserError with the problems of all
    files."""
    annotations = {}
    problems = Problems(message)
    for name in names:
        if not name.lower().endswith(".xml"):
            continue
        content = file_content(folder / name, _MOST_XML)
        where = f"{folder}/{shown_name(name)}"
        try:
            root = _parsed(content)
        except ValueError as error:
            problems.add("invalid-voc.xml", where, error)
            continue
        if root.tag == "annotation":
            attributes = root.iterfind("object/attributes/attribute")
            rotated = sum(
                entry.findtext("name") == "rotation" and is_rotated(entry.findtext("value"))
                for entry in attributes
            )
            objects = _objects(root, where, problems)
            annotations[name] = _Annotation(_written_size(root), objects, rotated)
    if annotations:
        problems.refuse()
    return annotations


def _parsed(content: bytes) -> Element:
    """Parse XML without entities. Raise ValueError for other content: an entity may name a file, or
    expand without end.
    """
    from xml.etree.ElementTree import TreeBuilder
    from xml.parsers import expat

    builder = TreeBuilder()
    depth = 0
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise ValueError(f"is nested deeper than {_DEEPEST} elements")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def declared(*_: Any) -> None:
        raise ValueError("has a document type, which is not read: remove <!DOCTYPE …>")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = declared
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"is not XML: {error}") from error
    return builder.close()


def _written_size(root: Element) -> Size | None:
    """Return the image's width and height, or None: some programs write 0."""
    size = root.find("size")
    if size is None:
        return None
    sides = []
    for side in ("width", "height"):
        text = (size.findtext(side) or "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            return None
        sides.append(int(text))
    width, height = sides
    return (width, height) if width and height else None


def _objects(root: Element, where: str, problems: Problems) -> list[tuple[str, list[float], bool]]:
    objects = []
    for number, entry in enumerate(root.findall("object"), start=1):
        of_object = f"{where}: object {number}"
        category = (entry.findtext("name") or "").strip()
        bounds = entry.find("bndbox")
        texts = [""] * len(_CORNERS)
        if bounds is not None:
            texts = [(bounds.findtext(corner) or "").strip() for corner in _CORNERS]
        difficult = (entry.findtext("difficult") or "0").strip()
        try:
            corners = [float(text) for text in texts]
        except ValueError:
            corners = []
        if not category:
            problems.add("invalid-voc.name", of_object)
        elif not is_box(corners) or corners[2] < corners[0] or corners[3] < corners[1]:
            problems.add("invalid-voc.bndbox", of_object, ", ".join(texts))
        elif difficult not in ("0", "1"):
            problems.add("invalid-voc.difficult", of_object, difficult)
        else:
            left, top, right, bottom = corners
            width = right - left + 1
            height = bottom - top + 1
            box = [left - 1, top - 1, width, height]
            objects.append((category, box, difficult == "1"))
    return objects


def _images_of(file: str, images: Sequence[str]) -> Sequence[str]:
    """Return the images that an annotation file may be of, from those of its name: one beside it,
    or the nearest."""
    home = file.rpartition("/")[0]
    beside = [image for image in images if image.rpartition("/")[0] == home]
    if beside or len(images) < 2:
        return beside or images
    # VOC2007/Annotations/1.xml is of VOC2007/JPEGImages/1.jpg.
    by_length = defaultdict[int, list[str]](list)
    for image in images:
        shared, _, _ = posixpath.commonprefix([f"{home}/", image]).rpartition("/")
        by_length[len(shared)].append(image)
    nearest = by_length[max(by_length)]
    # Annotations/train/1.xml is of JPEGImages/train/1.jpg.
    below = []
    named = []
    for image in nearest:
        *folders, _ = image.split("/")
        if folders[-1:] == home.split("/")[-1:]:
            below.append(image)
        if not {"jpegimages", "images"}.isdisjoint(map(str.lower, folders)):
            named.append(image)
    return below or named or nearest


def voc_lists(folder: Path, names: Sequence[str], of: str) -> dict[str, list[str]]:
    """Return the lines of each split's lists in ImageSets/OF, and nothing without lists. names: the
    folder's files."""
    lists = defaultdict[str, list[str]](list)
    for name in names:
        home, _, file = f"/{name}".rpartition("/")
        if file.lower().endswith(".txt") and home.endswith(f"/ImageSets/{of}"):
            lists[_stem(name)].append(name)
    chosen = {split: lists[word] for word, split in _LISTS.items() if word in lists}
    if _BOTH in lists and not {"train", "validation"} & set(chosen):
        chosen[_LISTS["train"]] = lists[_BOTH]
    listed = {}
    for split, files in chosen.items():
        listed[split] = []
        for file in files:
            lines = file_text(folder / file).splitlines()
            filled = filter(str.strip, lines)
            listed[split] += [line.strip() for line in filled]
    return listed


def listed_stem(line: str, known: Container[str]) -> str:
    """Return the stem that a line of a list names, one of the known ones if it can be. Names may have
    spaces, or paths and endings, and a mark behind them."""
    first = line.split()[0]
    stems = (line, first, _stem(line), _stem(first))
    return next(filter(known.__contains__, stems), _stem(first))


def _splits(
    folder: Path,
    names: Sequence[str],
    image_of: Mapping[str, str],
    without: int,
) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the annotation files of each split that have an image, and the number of listed images
    that lack one."""
    chosen = voc_lists(folder, names, "Main")
    files = defaultdict[str, list[str]](list)
    if not chosen:
        for file, image in image_of.items():
            homes = (home.rpartition("/")[0] for home in (image, file))
            split = next(filter(None, map(split_of_name, homes)), DEFAULT_SPLIT)
            files[split].append(file)
        absent = dict.fromkeys(files, without) if len(files) == 1 else {}
        return dict(sorted(files.items())), absent
    file_of = {_stem(file): file for file in image_of}
    if len(file_of) < len(image_of):
        raise refusal("invalid-voc.twice", folder)
    absent = {}
    for split, written in chosen.items():
        listed = dict.fromkeys(listed_stem(line, file_of) for line in written)
        of_split = [file_of[stem] for stem in listed if stem in file_of]
        absent[split] = len(listed) - len(of_split)
        if of_split:
            files[split] = of_split
    if not files:
        raise refusal("invalid-voc.lists", folder)
    return files, absent


def _notes(annotations: Sequence[_Annotation], unlabelled: int) -> list[str]:
    objects = [entry for annotation in annotations for entry in annotation.objects]
    notes = ["boxes count pixels from 1 and include their last pixel, as Pascal VOC has it"]
    at_zero = sum(min(box[:2]) < 0 for _, box, _ in objects)
    if at_zero:
        notes.append(
            f"{format_count(at_zero, 'box', 'boxes')} with a corner at pixel 0: the files may count from"
            " 0, and then every box is read one pixel too far to the upper left and one pixel too"
            " large"
        )
    difficult = sum(hard for *_, hard in objects)
    if difficult:
        notes.append(
            f"{format_count(difficult, 'object')} marked difficult, which are neither found nor missed"
        )
    notes += rotated_notes(sum(annotation.rotated for annotation in annotations))
    if unlabelled:
        notes.append(
            f"{format_count(unlabelled, 'image')} without a file of annotations, and left out"
        )
    return notes
