"""What a newcomer's dataset holds: its columns, splits and classes, found without being named, and counted.

A stranger's dataset is read as a build reads it (pinned, none of its code run). A folder is listed as well, so that
what the reading leaves out (hidden files, other files, images that do not open) is reported and not lost. It may be
anybody's and of any size: only names are listed, and at most `MOST_DECODED` images (or `MOST_BYTES` of them) are
decoded, spread over all of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from statistics import median_low
from typing import Any

from counterfoil.data import NamedDataset
from counterfoil.data.folders import folder_listing
from counterfoil.data.labels import labels_of
from counterfoil.data.open_source import OpenSource, open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.tables import Outline
from counterfoil.errors import RunFailure, UserError, first_of, some_of
from counterfoil.generate.screen.thresholds import images_needed
from counterfoil.models.names import LAB
from counterfoil.progress import report
from counterfoil.recipe.layering import class_slug
from counterfoil.recipe.names import LONGEST_NAME, is_local, label_by_name
from counterfoil.regular_files import read_regular
from counterfoil.report.words import counted
from counterfoil.store.decoding import UnreadableImage, rgb_image

# Ids that stand for names elsewhere: WordNet's, and plain numbers.
_NO_WORD = re.compile(r"n\d{8}|[\d_.\- ]+")


def prompt_names(labels: Sequence[str]) -> list[str]:
    """Labels as prompts say them: `ankle_boot` is "ankle boot". UserError for what is no name, all of them together.

    A label comes from whoever made the dataset, so one that would move a terminal's cursor, or fill a page, is refused.
    """
    names = [" ".join(label.replace("_", " ").split()) for label in labels]
    problems = []
    for label, name in zip(labels, names, strict=True):
        if not name:
            problems.append(f"the class {label[:LONGEST_NAME]!r} has no name")
        elif not all(each.isprintable() for each in label):
            problems.append(f"the class {label[:LONGEST_NAME]!a} has unprintable characters in its name")
        elif len(name) > LONGEST_NAME:
            problems.append(
                f"the class '{name[:40]}…' has a name of {len(name):,} characters, expected at most {LONGEST_NAME}"
            )
    if problems:
        raise UserError(first_of(problems, _MOST_SHOWN), "Rename these classes: prompts use a class's name.")
    return names


def wordless(names: Sequence[str]) -> list[str]:
    """The names that hold no word that anything could be drawn by: numbers, ids of WordNet."""
    return [name for name in names if _NO_WORD.fullmatch(name)]


def class_entries(names: Sequence[str], source_labels: Sequence[int], labels: Sequence[str]) -> list[Any]:
    """The classes as a recipe lists them: the name alone, where a build makes the same id and finds the same label.

    labels: what the data calls every label, in order. Others are written out: names that come to one id, or to none.
    """
    # A letter may come to several of ASCII, and an id is as long as a name may be.
    made = [class_slug(name)[:LONGEST_NAME] for name in names]
    # A name that is written out may not take an id that another one is given by its letters.
    taken = {slug for slug in made if slug}
    owners: set[str] = set()
    entries: list[Any] = []
    width = len(str(len(labels)))
    for name, slug, label in zip(names, made, source_labels, strict=True):
        if slug and slug == class_slug(name) and slug not in owners and label_by_name(slug, name, labels) == (label,):
            owners.add(slug)
            entries.append(name)
            continue
        own = slug if slug and slug not in owners else _unique(slug or f"class-{label:0{width}d}", taken | owners)
        owners.add(own)
        entries.append({"id": own, "name": name, "source_label": label})
    return entries


def _unique(slug: str, taken: Set[str]) -> str:
    """The slug, or with the first number from 2 that makes it none of those that are taken."""
    tries = (f"{slug[: LONGEST_NAME - 8]}-{number}" for number in count(2))
    return slug if slug not in taken else next(each for each in tries if each not in taken)


MOST_DECODED = 1000
# Photographs of a camera take a second for every ten.
MOST_BYTES = 200_000_000
_LARGEST_IMAGE = 1 << 28
_MOST_FILES_SHOWN = 5
# What `datasets` takes for an image, of what is decoded here, and what it takes for images that are packed.
_IMAGES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".jfif", ".jpe"))
_PACKED = frozenset((".parquet", ".arrow", ".tar"))
# What names the images that `datasets` reads, and their columns, in place of folders.
_METADATA = frozenset(("metadata.csv", "metadata.jsonl"))


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The files of a folder: image files by path, sorted, how many are hidden, how many are of another kind.

    listed: whether tables say which images there are, so that folders need not. unfit: links and the like, with what
    they are. linked: folders that are links, with where they lead.
    """

    folder: Path
    images: tuple[str, ...]
    hidden: int
    others: int
    listed: bool
    unfit: Mapping[str, str]
    linked: Mapping[str, Path]


def image_files(folder: Path) -> ImageFiles:
    """List a folder. Raises as `folder_listing`."""
    listing = folder_listing(folder)
    shown = [name for name in listing.files if not _is_hidden(name)]
    kinds = [os.path.splitext(name)[1].lower() for name in shown]  # noqa: PTH122 (a Path each takes seconds)
    return ImageFiles(
        folder=folder,
        images=tuple(name for name, kind in zip(shown, kinds, strict=True) if kind in _IMAGES),
        hidden=len(listing.files) - len(shown),
        others=sum(kind not in _IMAGES for kind in kinds),
        listed=any(kind in _PACKED for kind in kinds) or any(n.rpartition("/")[2] in _METADATA for n in shown),
        unfit=listing.unfit,
        linked=listing.linked,
    )


def look_at_files(files: ImageFiles, *, stops: bool = True) -> tuple[list[str], int | None]:
    """Open some images: a line each for links, hidden, other and unreadable files, and the median shorter side.

    stops: whether a build stops at an image that cannot be read, and takes no other in its place.
    """
    notes = [f"{name} is a link: its images come from {target}" for name, target in files.linked.items()]
    if len(notes) > _MOST_FILES_SHOWN:
        notes[_MOST_FILES_SHOWN:] = [f"and {len(notes) - _MOST_FILES_SHOWN:,} more folders are links"]
    if files.hidden:
        notes.append(f"{counted(files.hidden, 'hidden file')} ignored")
    if files.others:
        notes.append(f"{counted(files.others, 'file')} of other kinds ignored")
    looked, damaged, sides = evenly_spread(files.images, MOST_DECODED), [], list[int]()
    size = sum(path.stat().st_size for path in (files.folder / name for name in looked) if path.exists())
    if size > MOST_BYTES:
        looked = evenly_spread(looked, max(1, len(looked) * MOST_BYTES // size))
    for number, name in enumerate(looked):
        if number % 50 == 0:
            report("opening images", number, len(looked))
        side = _shorter_side(files.folder / name)
        if side is None:
            damaged.append(name)
        else:
            sides.append(side)
    report("opening images", len(looked), len(looked))
    if damaged:
        notes.append(
            f"{counted(len(damaged), 'image')} cannot be read, and a build"
            f" {'would stop there. Remove or replace' if stops else 'leaves out'}"
            f" {some_of(damaged, _MOST_FILES_SHOWN)}"
        )
    if len(looked) < len(files.images):
        notes.append(f"{len(looked):,} of {len(files.images):,} images were opened to check that they can be read")
    return notes, median_low(sides) if sides else None


def evenly_spread(items: Sequence[str], most: int) -> list[str]:
    """At most so many items, evenly spread over all, in order."""
    if len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__")) or "/." in name or "/__" in name


def _shorter_side(path: Path) -> int | None:
    """In pixels; None for an image that cannot be read."""
    try:
        return min(rgb_image(read_regular(path, _LARGEST_IMAGE), photograph=True).size)
    except (UnreadableImage, OSError):
        return None


# As many as ImageNet has. More are a column of something else than classes, or a benchmark of its own.
MOST_CLASSES = 1000
# What is fetched to be counted; a dataset of the Hub of more is known by its description.
MOST_FETCHED = 20_000_000_000
PERCENTILE = 5
_TRAIN = ("train", "training")
_VALIDATION = ("validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
_LABEL_NAMES = ("label", "labels", "class", "class_label", "fine_label", "category", "target")
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FoundClass:
    """A class: the name that prompts say, its label in the data, and images by split.

    images: None where the dataset is too large to be fetched for a count.
    """

    name: str
    source_label: int
    images: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class FoundData:
    """A dataset as a recipe's `source` names it, with its classes in label order and what should be said of it.

    rows: by split. labels: what the data calls every label, those that are no class here too. side: the median of the
    shorter sides of its images in pixels, where some were opened.
    """

    origin: NamedDataset
    rows: Mapping[str, int | None]
    train_split: str
    validation_split: str
    labels: tuple[str, ...]
    classes: tuple[FoundClass, ...]
    notes: tuple[str, ...]
    side: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person says of a dataset, where finding is not enough; None for what is to be found.

    drawn: whether its classes are to be drawn and screened, so that thresholds are taken from its images.
    """

    config: str | None = None
    image_column: str | None = None
    label_column: str | None = None
    train_split: str | None = None
    validation_split: str | None = None
    drawn: bool = True


def find_data(source: str | Path, wanted: Wanted) -> FoundData:
    """Columns, splits, classes and counts of a folder, a dataset of the Hub or the lab's.

    UserError for what is not there and for what cannot be told apart, with what there is; RunFailure without network.
    """
    origin = replace(NamedDataset.parse(source), config=wanted.config)
    if origin.split is not None:
        raise UserError(
            f"{str(source)[:200]}: found a split after the colon, expected the whole dataset",
            "Name splits with --train-split and --validation-split.",
        )
    files = image_files(Path(origin.dataset)) if is_local(origin.dataset) else None
    if files is not None and not files.images and not files.listed and not files.unfit:
        raise UserError(f"{files.folder} holds no image", "Name a folder that has a folder of images for each class.")
    opened = open_source(origin)
    _refuse_no_folder(source, origin, opened.pin)
    outline = opened.outline(MOST_FETCHED)
    if files is not None and not files.listed:
        _refuse_unread(files, outline, wanted)
    columns = {"image_column": _image_column(outline, wanted), "label_column": _label_column(outline, wanted)}
    origin = replace(origin, **columns)
    train, validation = _splits(outline, wanted)
    names, classes, left_out = _classes(
        open_source(origin, pin=opened.pin), outline, tuple(dict.fromkeys((train, validation)))
    )
    kept, without = _with_validation_images(classes, validation)
    notes = [*left_out, *without]
    if wanted.drawn:
        notes = [*_split_notes(train, validation), *notes, *_class_notes(kept, validation)]
    elif train == validation:
        notes.insert(
            0, f"all images are in one split, {train}: accuracy is too high on images that your model was trained on"
        )
    if not outline.read:
        notes.append(f"images are not counted: that would download {(outline.bytes or 0) / 1e9:,.0f} GB")
    side = None
    if files is not None:
        of_files, side = look_at_files(files, stops=wanted.drawn)
        notes += of_files
    return FoundData(origin, outline.rows, train, validation, names, tuple(kept), tuple(notes), side)


def _refuse_no_folder(source: str | Path, origin: NamedDataset, pin: SourcePin) -> None:
    """RunFailure for a bare word that is no folder, and that neither the Hub nor a cache knows: a folder was meant."""
    name = origin.dataset
    if not is_local(name) and not name.startswith(LAB) and "/" not in name and pin.revision is None:
        raise RunFailure(
            f"there is no folder {name[:80]} in {Path.cwd()}, and no dataset of this name was found on the Hub",
            "Name the folder of your images, or user/name on the Hub (which may be unreachable just now).",
        )


def _refuse_unread(files: ImageFiles, outline: Outline, wanted: Wanted) -> None:
    """UserError for a folder whose images are read in part, or without classes: names are taken for splits."""
    read = sum(count or 0 for count in outline.rows.values())
    folder = files.folder
    if read < len(files.images):
        raise UserError(
            f"{folder} has {len(files.images):,} images, of which {read:,} would be read, as"
            f" {' and '.join(outline.rows)}: a folder or file with a word such as train, test or val in its name is"
            " taken for a split, and files outside the splits are left out",
            "Put all images into folders of splits (train/mug/1.jpg, validation/mug/2.jpg), or rename those that"
            " only look like splits.",
        )
    if not any(kind == "classes" for kind in outline.columns.values()) and wanted.label_column is None:
        beside = {name.split("/")[-2] if "/" in name else "" for name in files.images}
        found = "all images are in one folder" if len(beside) == 1 else "no folder names a class"
        raise UserError(
            f"{folder}: {found}, so there are no classes",
            "Put the images of each class into a folder of its own: mug/1.jpg, star/1.jpg.",
        )


def _image_column(outline: Outline, wanted: Wanted) -> str:
    if wanted.image_column is not None:
        return _named(wanted.image_column, outline, "--image-column")
    return _one(
        [name for name, kind in outline.columns.items() if kind == "image"], outline, "images", "--image-column"
    )


def _label_column(outline: Outline, wanted: Wanted) -> str:
    if wanted.label_column is not None:
        return _named(wanted.label_column, outline, "--label-column")
    with_names = [name for name, kind in outline.columns.items() if kind == "classes"]
    if not with_names:
        with_names = [n for n in _LABEL_NAMES if outline.columns.get(n) == "text"]
    if not with_names:
        with_names = [n for n in _LABEL_NAMES if outline.columns.get(n) == "integers"]
    return _one(with_names, outline, "labels", "--label-column")


def _named(column: str, outline: Outline, option: str) -> str:
    if column not in outline.columns:
        raise UserError(f"{option}: there is no column '{column[:80]}'", f"Its columns are {_shown(outline)}.")
    return column


def _one(found: Sequence[str], outline: Outline, what: str, option: str) -> str:
    if len(found) == 1:
        return found[0]
    several = f"several columns may hold the {what}: {', '.join(found)[:500]}" if found else f"no column holds {what}"
    raise UserError(several, f"Name one with {option}. The columns are {_shown(outline)}.")


def _shown(outline: Outline) -> str:
    return some_of([f"{name[:80]} ({kind})" for name, kind in outline.columns.items()], _MOST_SHOWN)


def _splits(outline: Outline, wanted: Wanted) -> tuple[str, str]:
    """The splits for tokens and for percentiles; one and the same where there is one."""
    known = list(outline.rows)
    for option, split in (("--train-split", wanted.train_split), ("--validation-split", wanted.validation_split)):
        if split is not None and split not in known:
            raise UserError(f"{option}: there is no split '{split[:80]}'", f"Its splits are {', '.join(known)[:500]}.")
    train = wanted.train_split or _first(known, _TRAIN) or max(known, key=lambda name: outline.rows[name] or 0)
    others = [name for name in known if name != train]
    validation = wanted.validation_split or _first(others, _VALIDATION) or train
    return train, validation


def _first(known: Sequence[str], names: Sequence[str]) -> str | None:
    return next((split for name in names for split in known if split.lower() == name), None)


def _split_notes(train: str, validation: str) -> Iterator[str]:
    if train == validation:
        yield (
            f"there is only one split, {train}. It serves for training and for thresholds, so object thresholds are"
            " percentiles of training images. If your model was trained on them, its accuracy there is no reference"
        )
    elif validation.lower().startswith(("test", "eval")):
        yield f"there is no validation split, so thresholds are percentiles of {validation}"


def _classes(
    opened: OpenSource, outline: Outline, splits: Sequence[str]
) -> tuple[tuple[str, ...], list[FoundClass], list[str]]:
    """What every label is called, the classes of these splits with their images by split; what is left out, in words.

    UserError for labels without names, too many of them, or too few.
    """
    origin = opened.source
    column, names = origin.label_column, outline.class_names.get(origin.label_column)
    if outline.columns[column] == "integers" and not origin.dataset.startswith(LAB):
        raise UserError(
            f"the labels in '{column}' are numbers without names, and prompts need a name for each class",
            f"Name a column of class names with --label-column. The columns are {_shown(outline)}.",
        )
    names = names or opened.names(splits)
    if not outline.read:
        return names, _found(names, range(len(names)), None), []
    number = {name: label for label, name in enumerate(names)}
    counts: dict[str, Counter[int | None]] = {}
    for split, rows in opened.rows_by_split(splits).items():
        values = labels_of(rows, column).values
        counts[split] = Counter(number[value] if isinstance(value, str) else value for value in values)
    present = [label for label in range(len(names)) if any(counts[split][label] for split in splits)]
    nameless = sum(counts[split][None] for split in splits)
    left_out = [f"left out, because they have no label: {counted(nameless, 'image')}"] if nameless else []
    images = {label: {split: counts[split][label] for split in splits} for label in present}
    return names, _found(names, present, images), left_out


def _found(
    names: Sequence[str], present: Sequence[int], images: Mapping[int, Mapping[str, int]] | None
) -> list[FoundClass]:
    if len(present) > MOST_CLASSES:
        raise UserError(
            f"there are {len(present):,} classes, expected at most {MOST_CLASSES:,}",
            "Name another column with --label-column, or write the recipe by hand. For an example, run"
            " counterfoil show imagenet-star.",
        )
    if len(present) < 2:
        found = "no class" if not present else "only one class"
        raise UserError(f"there is {found}, expected at least two", "Give images of two classes or more.")
    in_prompts = prompt_names([names[label] for label in present])
    return [
        FoundClass(name, label, None if images is None else images[label])
        for name, label in zip(in_prompts, present, strict=True)
    ]


def _with_validation_images(classes: Sequence[FoundClass], validation: str) -> tuple[list[FoundClass], list[str]]:
    """Classes with a threshold to take, and words of those without."""
    kept = [each for each in classes if each.images is None or each.images[validation]]
    if len(kept) == len(classes):
        return kept, []
    left = [each.name for each in classes if each not in kept]
    if len(kept) < 2:
        raise UserError(
            f"split {validation}: only {len(kept)} of {len(classes)} classes have images there, and a class's threshold"
            " is a percentile of its own images",
            "Name another split with --validation-split.",
        )
    return kept, [f"left out, because split {validation} has no image of them: {_listed(left)}"]


def _class_notes(classes: Sequence[FoundClass], validation: str) -> Iterator[str]:
    needs = images_needed(PERCENTILE)
    few = [each.name for each in classes if each.images is not None and each.images[validation] < needs]
    if few:
        which = "all classes have" if len(few) == len(classes) else f"{_listed(few)}:"
        yield (
            f"{which} fewer than {needs} images in split {validation}, so percentile {PERCENTILE} is close to the"
            " lowest score: weak thresholds"
        )
    odd = wordless([each.name for each in classes])
    if odd:
        yield (
            f"these class names contain no word to put into a prompt: {_listed(odd)}. Give each"
            " class a name in the recipe"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more
