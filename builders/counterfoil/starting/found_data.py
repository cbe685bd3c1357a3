"""Find out what a newcomer's dataset holds: its columns, splits, classes and counts.

The dataset may come from anyone and have any size. None of its code runs, and at most
`MOST_LOOKED_AT` images (or `MOST_BYTES`), spread over all images, are decoded.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from statistics import median_low
from typing import Any

from counterfoil.data.folder_splits import shown_name
from counterfoil.data.image_folders import ImageFolder
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.labels import (
    ABSENT,
    PRESENT,
    UNKNOWN,
    condition_number,
    joined_splits,
    labels_of,
    refuse_alike,
)
from counterfoil.data.open_source import OpenSource, open_source
from counterfoil.data.pictures import MOST_BYTES, MOST_LOOKED_AT, evenly_spread, look_at_pictures
from counterfoil.data.pins import SourcePin
from counterfoil.data.tables import Outline, plain_folder
from counterfoil.errors import RunFailure, UserError, first_of, some_of
from counterfoil.generate.screen.thresholds import images_needed
from counterfoil.models.names import LAB
from counterfoil.recipe.layering import class_slug
from counterfoil.recipe.names import LONGEST_NAME, is_local, label_by_name
from counterfoil.recipe.tasks.masks import MASK
from counterfoil.recipe.tasks.objects import OBJECTS
from counterfoil.regular_files import read_regular
from counterfoil.report.words import format_count
from counterfoil.starting.found_masks import (
    find_masks,
    mask_folder,
    masks_beside,
    masks_column,
)
from counterfoil.starting.found_objects import (
    FoundTruth,
    find_objects,
    object_folder,
    objects_column,
    turned_photographs,
)
from counterfoil.starting.options import InitOptions

# Ids that stand for names elsewhere: WordNet's, and plain numbers.
_NO_WORD = re.compile(r"n\d{8}|[\d_.\- ]+")


def prompt_names(labels: Sequence[str]) -> list[str]:
    """Return labels as prompts say them: `ankle_boot` is "ankle boot". UserError for empty,
    unprintable or very long ones.
    """
    names = [" ".join(label.replace("_", " ").split()) for label in labels]
    problems = []
    for label, name in zip(labels, names, strict=True):
        if not name:
            problems.append(f"the class {label[:LONGEST_NAME]!r} has no name")
        elif not all(each.isprintable() for each in label):
            problems.append(
                f"the class {label[:LONGEST_NAME]!a} has unprintable characters in its name"
            )
        elif len(name) > LONGEST_NAME:
            problems.append(
                f"the class '{name[:40]}…' has a name of {len(name):,} characters, expected at most"
                f" {LONGEST_NAME}"
            )
    if problems:
        raise UserError(
            first_of(problems, _MOST_SHOWN), "Rename these classes: prompts use a class's name."
        )
    return names


def wordless(names: Sequence[str]) -> list[str]:
    """Return the names without a word to draw by: numbers and WordNet ids."""
    return [name for name in names if _NO_WORD.fullmatch(name)]


def class_entries(
    names: Sequence[str], source_labels: Sequence[int], labels: Sequence[str]
) -> list[Any]:
    """List the classes as a recipe does, by name alone if a build derives the same id and label
    from it."""
    # A letter may come to several of ASCII, and an id is as long as a name may be.
    made = [class_slug(name)[:LONGEST_NAME] for name in names]
    # A name that is written out may not take an id that another one is given by its letters.
    taken = {slug for slug in made if slug}
    owners: set[str] = set()
    entries: list[Any] = []
    width = len(str(len(labels)))
    for name, slug, label in zip(names, made, source_labels, strict=True):
        if (
            slug
            and slug == class_slug(name)
            and slug not in owners
            and label_by_name(slug, name, labels) == (label,)
        ):
            owners.add(slug)
            entries.append(name)
            continue
        id = slug
        if not slug or slug in owners:
            id = slug or f"class-{label:0{width}d}"
            numbered = (f"{id[: LONGEST_NAME - 8]}-{number}" for number in count(2))
            id = next(each for each in chain([id], numbered) if each not in taken | owners)
        owners.add(id)
        entries.append({"id": id, "name": name, "source_label": label})
    return entries


_LARGEST_IMAGE = 1 << 28
_MOST_FILES_SHOWN = 5


def look_at_files(folder: ImageFolder, *, corrupts: bool) -> tuple[list[str], int | None]:
    """Return notes on a folder and some of its images, and their median shorter side. corrupts:
    skips unreadable images.
    """
    files = [path for paths in folder.splits.values() for path in paths]
    looked = evenly_spread(files, MOST_LOOKED_AT)
    paths = [folder.folder / name for name in looked]
    size = sum(path.stat().st_size for path in paths if path.exists())
    if size > MOST_BYTES:
        looked = evenly_spread(looked, max(1, len(looked) * MOST_BYTES // size))
    contents = ((name, _content(folder.folder / name)) for name in looked)
    pictures = look_at_pictures(contents, len(looked), decode=True)
    notes = [*folder.notes(), *pictures.notes(len(files))]
    if corrupts:
        notes += pictures.twice_compressed(len(files))
    if pictures.damaged:
        named = [f"{shown_name(name)} ({reason})" for name, reason in pictures.damaged.items()]
        notes.append(
            f"{format_count(len(pictures.damaged), 'image')} cannot be read, and a build"
            f" {'leaves out' if corrupts else 'would stop there. Remove or replace'}"
            f" {some_of(named, _MOST_FILES_SHOWN)}"
        )
    if len(looked) < len(files):
        notes.append(
            f"{len(looked):,} of {len(files):,} images were opened to check that they can be read"
        )
    sides = [min(size) for size in pictures.sides]
    return notes, median_low(sides) if sides else None


def _content(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_IMAGE)
    except OSError:
        return None


# The number of classes of ImageNet. A column with more values does not hold classes, or belongs to
# a special benchmark.
MOST_CLASSES = 1000
# The most bytes that are fetched to count images. A larger dataset on the Hub is known only by its
# description.
MOST_FETCHED = 20_000_000_000
PERCENTILE = 5
_TRAIN = ("train", "training")
_VALIDATION = ("validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
_LABEL_NAMES = ("label", "labels", "class", "class_label", "fine_label", "category", "target")
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FoundClass:
    """A class: its name in prompts, its label in the data, and images by split, None if there are
    too many to fetch."""

    name: str
    source_label: int
    images: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class FoundData:
    """A dataset as a recipe's `source` names it, with its classes in label order and notes on it."""

    origin: NamedDataset
    rows: Mapping[str, int | None]
    """By split."""
    train_split: str
    validation_split: str
    labels: tuple[str, ...]
    """Every label of the data, also those that are no class here."""
    classes: tuple[FoundClass, ...]
    notes: tuple[str, ...]
    side: int | None = None
    """The median shorter side of opened images, in pixels."""
    placed: FoundTruth | None = None
    """The boxes or masks of images, which have no classes."""


def find_data(wanted: InitOptions, *, drawn: bool) -> FoundData:
    """Find the columns, splits, classes and counts of a dataset.

    drawn: whether images of the classes are drawn and screened, with thresholds from the dataset's
    images. UserError if a column, a split or the classes are missing or ambiguous; RunFailure if
    the network fails.
    """
    source = wanted.source
    origin = replace(NamedDataset.parse(source), config=wanted.config)
    if origin.split is not None:
        raise UserError(
            f"{str(source)[:200]}: found a split after the colon, expected the whole dataset",
            "Name splits with --train-split and --validation-split.",
        )
    boxes = masks = None
    if wanted.label_column is None and wanted.mask_column is None:
        boxes = object_folder(origin)
    if boxes is not None:
        origin = replace(origin, objects=OBJECTS)
    elif wanted.label_column is None:
        masks = mask_folder(origin, wanted.mask_column or MASK)
        origin = replace(origin, mask_column=None if masks is None else masks.column)
    folder = plain_folder(origin) if boxes is None and masks is None else None
    if folder is not None:
        named = (wanted.train_split, wanted.validation_split)
        # A split may be without classes, unless it is named.
        needed = [split for split in folder.splits if split in named or not folder.is_flat(split)]
        for split in needed or folder.splits:
            problem = folder.classless(split)
            if problem is not None:
                raise problem
        folder.refuse_alike()
    opened = open_source(origin)
    name = origin.dataset
    if (
        not is_local(name)
        and not name.startswith(LAB)
        and "/" not in name
        and opened.pin.revision is None
    ):
        # A bare word that neither the Hub nor a cache knows: a folder was meant.
        raise RunFailure(
            f"there is no folder {name[:80]} in {Path.cwd()}, and no dataset of this name was found"
            " on the Hub",
            "Name the folder of your images, or user/name on the Hub (which may be unreachable just"
            " now).",
        )
    outline = opened.outline(MOST_FETCHED)
    column = objects_column(outline) if wanted.label_column is None else None
    if column is not None:
        origin = replace(origin, image_column=_image_column(outline, wanted), objects=column)
        train, validation = _splits(outline, wanted)
        if boxes is None:
            rows = open_source(origin, pin=opened.pin).rows(validation, labelled=False)
            exif = turned_photographs(rows)
        else:
            exif = boxes.turning(validation)
        origin = replace(origin, exif=exif or "ignore")
        rows = open_source(origin, pin=opened.pin).rows(validation, labelled=False)
        objects = find_objects(rows, column, boxes, exif)
        of_masks = None if boxes is None else masks_beside(boxes)
        if of_masks is not None:
            note = f"images have masks too: for a segmenter, add --mask-column {of_masks}"
            objects = replace(objects, notes=(*objects.notes, note))
        return _placed(origin, outline, train, validation, objects)
    column = wanted.mask_column or origin.mask_column
    if column is None and wanted.label_column is None and wanted.image_column is None:
        column = masks_column(outline)
    if column is not None:
        if column not in outline.columns:
            raise UserError(
                f"--mask-column: there is no column '{column[:80]}'",
                f"Its columns are {_shown(outline)}. A folder needs images/ and masks/ with files of"
                " one name, or COCO files with outlines.",
            )
        origin = replace(origin, image_column=_image_column(outline, wanted, column))
        train, validation = _splits(outline, wanted)
        marked = find_masks(origin, opened.pin, validation, column, masks)
        return _placed(origin, outline, train, validation, marked)
    return _find_classes(origin, opened.pin, outline, folder, wanted, drawn=drawn)


def _find_classes(
    origin: NamedDataset,
    pin: SourcePin,
    outline: Outline,
    folder: ImageFolder | None,
    wanted: InitOptions,
    *,
    drawn: bool,
) -> FoundData:
    """Return what was found of images with one class each. Raise the errors of `find_data`."""
    flat = []
    if folder is not None:
        flat = list(filter(folder.is_flat, folder.splits))
    with_classes = {split: count for split, count in outline.rows.items() if split not in flat}
    outline = replace(outline, rows=with_classes)
    origin = replace(origin, image_column=_image_column(outline, wanted))
    train, validation = _splits(outline, wanted)
    several = _several_labels(open_source(origin, pin=pin), outline, validation)
    columns = [name for name, kind in outline.columns.items() if kind == "classes"]
    for kind in ("text", "integers"):
        columns = columns or [name for name in _LABEL_NAMES if outline.columns.get(name) == kind]
    column = _column(wanted.label_column, columns, outline, "labels", "--label-column", several)
    origin = replace(origin, label_column=column)
    splits = tuple(dict.fromkeys((train, validation)))
    names, classes, left_out = _classes(open_source(origin, pin=pin), outline, splits, several)
    kept, without = _with_validation_images(classes, validation)
    notes = []
    if train == validation and drawn:
        notes.append(
            f"there is only one split, {train}. It serves for training and for thresholds, so"
            " object thresholds are percentiles of training images. If your model was trained on"
            " them, its accuracy there is no reference"
        )
    elif train == validation:
        notes.append(
            f"all images are in one split, {train}: accuracy is too high on images that your model"
            " was trained on"
        )
    elif drawn and validation.lower().startswith(("test", "eval")):
        notes.append(f"there is no validation split, so thresholds are percentiles of {validation}")
    notes += left_out + without
    if drawn:
        notes += _class_notes(kept, validation)
    if not outline.read:
        notes.append(
            f"images are not counted: that would download {(outline.bytes or 0) / 1e9:,.0f} GB"
        )
    if several:
        notes.append(several.rstrip("."))
    for split in flat:
        notes.append(
            f"split {split} has no class folders, so its images have no class and are left out"
        )
    side = None
    if folder is not None:
        of_files, side = look_at_files(folder, corrupts=not drawn)
        notes += of_files
    return FoundData(
        origin, outline.rows, train, validation, names, tuple(kept), tuple(notes), side
    )


def _placed(
    origin: NamedDataset, outline: Outline, train: str, validation: str, marked: FoundTruth
) -> FoundData:
    """Return what was found of images with boxes or masks."""
    return FoundData(
        origin,
        outline.rows,
        train,
        validation,
        labels=(),
        classes=(),
        notes=marked.notes,
        side=marked.side,
        placed=marked,
    )


def _image_column(outline: Outline, wanted: InitOptions, masks: str | None = None) -> str:
    images = [name for name, kind in outline.columns.items() if kind == "image" and name != masks]
    more = ""
    if len(images) > 1 and masks is None:
        more = "If one of them holds masks, name it with --mask-column."
    return _column(wanted.image_column, images, outline, "images", "--image-column", more)


def _several_labels(opened: OpenSource, outline: Outline, split: str) -> str:
    """Return a sentence on what columns of 0 and 1 are good for, or an empty text if a dataset has
    none."""
    plain = [
        name
        for name, kind in outline.columns.items()
        if kind.startswith(("int", "bool", "float", "text"))
    ]
    if not plain or not outline.read:
        return ""
    rows = opened.rows(split, labelled=False)
    values = {
        name: set(map(condition_number, rows.column(name)))
        for name in plain
        if name in rows.columns
    }
    known = {PRESENT, ABSENT}
    unknown = {UNKNOWN, None}
    binary = [
        name
        for name, of_column in values.items()
        if of_column & known and of_column <= known | unknown
    ]
    if not binary:
        return ""
    names = ", ".join(json.dumps(name, ensure_ascii=False) for name in binary[:_MOST_SHOWN])
    more = ", …" if len(binary) > _MOST_SHOWN else ""
    keys = f"columns: [{names}{more}]"
    if any(values[name] & unknown for name in binary):
        keys += ", unknown: ignore"
    return (
        "Columns of 0 and 1 can be labels of which an image has several: to test a classifier of"
        " them, write a recipe"
        f" with generator.kind corrupt and, instead of classes, source.conditions: {{{keys}}}."
    )


def _column(
    wanted: str | None,
    candidates: Sequence[str],
    outline: Outline,
    what: str,
    option: str,
    more: str = "",
) -> str:
    if wanted is not None and wanted not in outline.columns:
        raise UserError(
            f"{option}: there is no column '{wanted[:80]}'", f"Its columns are {_shown(outline)}."
        )
    if wanted is not None or len(candidates) == 1:
        return wanted or candidates[0]
    several = f"several columns may hold the {what}: {', '.join(candidates)[:500]}"
    problem = several if candidates else f"no column holds {what}"
    raise UserError(
        problem, f"Name one with {option}. The columns are {_shown(outline)}. {more}".rstrip()
    )


def _shown(outline: Outline) -> str:
    return some_of([f"{name[:80]} ({kind})" for name, kind in outline.columns.items()], _MOST_SHOWN)


def _splits(outline: Outline, wanted: InitOptions) -> tuple[str, str]:
    known = list(outline.rows)
    for option, split in (
        ("--train-split", wanted.train_split),
        ("--validation-split", wanted.validation_split),
    ):
        if split is not None and split not in known:
            raise UserError(
                f"{option}: there is no split '{split[:80]}'",
                f"Its splits are {', '.join(known)[:500]}.",
            )
    train = (
        wanted.train_split
        or _first(known, _TRAIN)
        or max(known, key=lambda name: outline.rows[name] or 0)
    )
    others = [name for name in known if name != train]
    validation = wanted.validation_split or _first(others, _VALIDATION) or train
    return train, validation


def _first(known: Sequence[str], names: Sequence[str]) -> str | None:
    return next((split for name in names for split in known if split.lower() == name), None)


def _classes(
    opened: OpenSource, outline: Outline, splits: Sequence[str], several: str
) -> tuple[tuple[str, ...], list[FoundClass], list[str]]:
    """Return the names of labels, the classes with their images by split, and notes. several: about
    several labels.

    UserError if labels have no names, or if there are too many or too few labels.
    """
    origin = opened.source
    column = origin.label_column
    names = outline.class_names.get(origin.label_column)
    if outline.columns[column] == "integers" and not origin.dataset.startswith(LAB):
        raise UserError(
            f"the labels in '{column}' are numbers without names, and prompts need a name for each"
            " class",
            f"Name a column of class names with --label-column. The columns are {_shown(outline)}."
            f" {several}".rstrip(),
        )
    if not names:
        names = opened.names(splits)
        refuse_alike(names, f"source: '{origin.dataset}'", column)
    if not outline.read:
        return names, _found(names, range(len(names)), {}), []
    number = {name: label for label, name in enumerate(names)}
    counts: dict[str, Counter[int | None]] = {}
    joined = list[str]()
    for split, rows in opened.rows_by_split(splits).items():
        joined += joined_splits(rows)
        values = labels_of(rows, column).values
        counts[split] = Counter()
        for value in values:
            label = number[value] if isinstance(value, str) else value
            counts[split][label] += 1
    every = sum(counts.values(), Counter())
    present = [label for label in range(len(names)) if every[label]]
    left_out = joined
    if every[None]:
        left_out.append(
            f"left out, because they have no label: {format_count(every[None], 'image')}"
        )
    images = {}
    for label in present:
        images[label] = {split: counts[split][label] for split in splits}
    return names, _found(names, present, images), left_out


def _found(
    names: Sequence[str], present: Sequence[int], images: Mapping[int, Mapping[str, int]]
) -> list[FoundClass]:
    if len(present) > MOST_CLASSES:
        raise UserError(
            f"there are {len(present):,} classes, expected at most {MOST_CLASSES:,}",
            "Name another column with --label-column, or write the recipe by hand. For an example,"
            " run counterfoil show imagenet-star.",
        )
    if len(present) < 2:
        count = "no class" if not present else "only one class"
        raise UserError(
            f"there is {count}, expected at least two", "Give images of two classes or more."
        )
    in_prompts = prompt_names([names[label] for label in present])
    return [
        FoundClass(name, label, images.get(label))
        for name, label in zip(in_prompts, present, strict=True)
    ]


def _with_validation_images(
    classes: Sequence[FoundClass], validation: str
) -> tuple[list[FoundClass], list[str]]:
    kept = [cls for cls in classes if cls.images is None or cls.images[validation]]
    if len(kept) == len(classes):
        return kept, []
    left = [cls.name for cls in classes if cls not in kept]
    if len(kept) < 2:
        raise UserError(
            f"split {validation}: only {len(kept)} of {len(classes)} classes have images there, and"
            " a class's threshold is a percentile of its own images",
            "Name another split with --validation-split.",
        )
    return kept, [
        f"left out, because split {validation} has no image of them: {some_of(left, _MOST_SHOWN)}"
    ]


def _class_notes(classes: Sequence[FoundClass], validation: str) -> Iterator[str]:
    needs = images_needed(PERCENTILE)
    few = [cls.name for cls in classes if cls.images is not None and cls.images[validation] < needs]
    if few:
        which = "all classes have" if len(few) == len(classes) else f"{some_of(few, _MOST_SHOWN)}:"
        yield (
            f"{which} fewer than {needs} images in split {validation}, so percentile {PERCENTILE}"
            " is close to the lowest score: weak thresholds"
        )
    odd = wordless([cls.name for cls in classes])
    if odd:
        yield (
            f"these class names contain no word to put into a prompt: {some_of(odd, _MOST_SHOWN)}."
            " Give each class a name in the recipe"
        )
