"""What a newcomer's dataset holds: its columns, splits and classes, found without being told, and counted.

A stranger's dataset is read as a build reads it (pinned, none of its code run); a folder is listed as well, so that
what the reading leaves out is told and not lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.names import LAB
from counterfoil.recipe.names import is_local
from counterfoil.report.words import counted
from counterfoil.screen.thresholds import images_needed
from counterfoil.sources import Reference
from counterfoil.sources.class_matching import labels_of
from counterfoil.sources.input_datasets import read_rows_by_split, source_outline
from counterfoil.sources.label_names import label_names
from counterfoil.sources.pins import SourcePin, pin_source
from counterfoil.sources.tables import Outline
from counterfoil.starting.class_names import spoken_names, wordless
from counterfoil.starting.image_files import ImageFiles, image_files, look_at_files

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

    reference: Reference
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
    reference = replace(Reference.parse(source), config=wanted.config)
    if reference.split is not None:
        raise UserError(
            f"{str(source)[:200]}: found a split behind the colon, expected the whole dataset",
            "Name splits by --train-split and --validation-split.",
        )
    files = image_files(Path(reference.dataset)) if is_local(reference.dataset) else None
    if files is not None and not files.images and not files.listed and not files.unfit:
        raise UserError(f"{files.folder} holds no image", "Name a folder that has a folder of images for each class.")
    pin = pin_source(reference)
    _refuse_no_folder(source, reference, pin)
    outline = source_outline(reference, pin, MOST_FETCHED)
    if files is not None and not files.listed:
        _refuse_unread(files, outline, wanted)
    columns = {"image_column": _image_column(outline, wanted), "label_column": _label_column(outline, wanted)}
    reference = replace(reference, **columns)
    train, validation = _splits(outline, wanted)
    names, classes, left_out = _classes(reference, pin, outline, tuple(dict.fromkeys((train, validation))))
    kept, without = _with_validation_images(classes, validation)
    notes = [*left_out, *without]
    if wanted.drawn:
        notes = [*_split_notes(train, validation), *notes, *_class_notes(kept, validation)]
    elif train == validation:
        notes.insert(0, f"all images are in one split, {train}: what your model has learned from flatters it")
    if not outline.read:
        notes.append(f"images are not counted: {(outline.bytes or 0) / 1e9:,.0f} GB would be fetched for it")
    side = None
    if files is not None:
        looked = look_at_files(files, stops=wanted.drawn)
        notes, side = [*notes, *looked.notes], looked.side
    return FoundData(reference, outline.rows, train, validation, names, tuple(kept), tuple(notes), side)


def _refuse_no_folder(source: str | Path, reference: Reference, pin: SourcePin) -> None:
    """RunFailure for a bare word that is no folder, and that neither the Hub nor a cache knows: a folder was meant."""
    name = reference.dataset
    if not is_local(name) and not name.startswith(LAB) and "/" not in name and pin.revision is None:
        raise RunFailure(
            f"there is no folder {name[:80]} in {Path.cwd()}, and no dataset of the Hub was found by this name",
            "Name the folder of your images, or user/name of the Hub (which may be out of reach just now).",
        )


def _refuse_unread(files: ImageFiles, outline: Outline, wanted: Wanted) -> None:
    """UserError for a folder whose images are read in part, or without classes: names are taken for splits."""
    read = sum(count or 0 for count in outline.rows.values())
    folder = files.folder
    if read < len(files.images):
        raise UserError(
            f"{folder} has {len(files.images):,} images, of which {read:,} would be read, as"
            f" {' and '.join(outline.rows)}: a folder or file whose name holds a word such as train, test or val is"
            " taken for a split, and what is in no split is left out",
            "Put everything into folders of splits (train/mug/1.jpg, validation/mug/2.jpg), or rename the others.",
        )
    if not any(kind == "classes" for kind in outline.columns.values()) and wanted.label_column is None:
        beside = {name.split("/")[-2] if "/" in name else "" for name in files.images}
        found = "all images lie in one folder" if len(beside) == 1 else "no folder tells a class"
        raise UserError(
            f"{folder}: {found}, so there are no classes to tell apart",
            "Give each class a folder of its images: mug/1.jpg, star/1.jpg.",
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
    raise UserError(several, f"Name one by {option}. The columns are {_shown(outline)}.")


def _shown(outline: Outline) -> str:
    shown = [f"{name[:80]} ({kind})" for name, kind in outline.columns.items()]
    return ", ".join(shown[:_MOST_SHOWN]) + (
        f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    )


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
            f"there is one split to read, {train}, which is taken for both: object thresholds are then percentiles of"
            " training images; where a model of yours was trained on them, its accuracy there is no reference"
        )
    elif validation.lower().startswith(("test", "eval")):
        yield f"there is no validation split: thresholds are percentiles of {validation}"


def _classes(
    reference: Reference, pin: SourcePin, outline: Outline, splits: Sequence[str]
) -> tuple[tuple[str, ...], list[FoundClass], list[str]]:
    """What every label is called, the classes of these splits with their images by split; what is left out, in words.

    UserError for labels without names, too many of them, or too few.
    """
    column, names = reference.label_column, outline.class_names.get(reference.label_column)
    if outline.columns[column] == "integers" and not reference.dataset.startswith(LAB):
        raise UserError(
            f"the labels of '{column}' are numbers without names, and a generator draws a class by its name",
            f"Name a column of names by --label-column; there are {_shown(outline)}.",
        )
    names = names or label_names(reference, splits, pin)
    if not outline.read:
        return names, _found(names, range(len(names)), None), []
    number = {name: label for label, name in enumerate(names)}
    counts: dict[str, Counter[int | None]] = {}
    for split, rows in read_rows_by_split(reference, splits, pin).items():
        values = labels_of(rows, column).values
        counts[split] = Counter(number[value] if isinstance(value, str) else value for value in values)
    present = [label for label in range(len(names)) if any(counts[split][label] for split in splits)]
    nameless = sum(counts[split][None] for split in splits)
    left_out = [f"left out, since they have no label: {counted(nameless, 'image')}"] if nameless else []
    images = {label: {split: counts[split][label] for split in splits} for label in present}
    return names, _found(names, present, images), left_out


def _found(
    names: Sequence[str], present: Sequence[int], images: Mapping[int, Mapping[str, int]] | None
) -> list[FoundClass]:
    if len(present) > MOST_CLASSES:
        raise UserError(
            f"there are {len(present):,} classes, expected at most {MOST_CLASSES:,}",
            "Name another column by --label-column, or write the recipe after one that there is:"
            " counterfoil show imagenet-star.",
        )
    if len(present) < 2:
        found = "no class" if not present else "one class"
        raise UserError(f"there is {found}, and classifiers tell several apart", "Give it images of two.")
    spoken = spoken_names([names[label] for label in present])
    return [
        FoundClass(name, label, None if images is None else images[label])
        for name, label in zip(spoken, present, strict=True)
    ]


def _with_validation_images(classes: Sequence[FoundClass], validation: str) -> tuple[list[FoundClass], list[str]]:
    """Classes with a threshold to take, and words of those without."""
    kept = [each for each in classes if each.images is None or each.images[validation]]
    if len(kept) == len(classes):
        return kept, []
    left = [each.name for each in classes if each not in kept]
    if len(kept) < 2:
        raise UserError(
            f"split {validation}: {len(kept)} of {len(classes)} classes have images there, and thresholds are"
            " percentiles of a class's own",
            "Name another split by --validation-split.",
        )
    return kept, [f"left out, since split {validation} has no image of them: {_listed(left)}"]


def _class_notes(classes: Sequence[FoundClass], validation: str) -> Iterator[str]:
    needs = images_needed(PERCENTILE)
    few = [each.name for each in classes if each.images is not None and each.images[validation] < needs]
    if few:
        which = "all classes have" if len(few) == len(classes) else f"{_listed(few)}:"
        yield (
            f"{which} fewer than {needs} images in split {validation}, so that percentile {PERCENTILE} is little more"
            " than their least: weak thresholds"
        )
    odd = wordless([each.name for each in classes])
    if odd:
        yield f"these names hold no word that could be drawn: {_listed(odd)}; give each class its name in the recipe"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more
