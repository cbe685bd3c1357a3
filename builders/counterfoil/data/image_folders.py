"""Folders of image files, read by names alone.

A path is SPLIT/CLASS/…/FILE if every top folder has the name of a split, and CLASS/…/FILE otherwise. Ambiguous folders
are refused. `datasets` takes words in paths for splits. If it would read a folder differently, the rows get a digest of
their own, so that an answer remembered for one row is never used for another.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError, first_of, some_of
from counterfoil.recipe.names import did_you_mean, plain_name
from counterfoil.regular_files import is_utf8, read_regular
from counterfoil.report.words import counted, listed
from counterfoil.store.decoding import PHOTOGRAPH_ENDINGS

if TYPE_CHECKING:
    from counterfoil.store.inside import Listing

# The words that `datasets` takes for splits (`data_files.SPLIT_KEYWORDS`), and the characters that it allows beside a
# word.
_SPLIT_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SPLIT_OF = {word: split for split, words in _SPLIT_WORDS.items() for word in words}
_WORD = re.compile(rf"(?:^|[-._ 0-9/])({'|'.join(_SPLIT_OF)})(?=[-._ 0-9/]|$)", re.IGNORECASE)
DEFAULT_SPLIT = "train"
# Folders of previews, of deleted files and of archive programs, in lower case.
_JUNK = frozenset(("@eadir", "#recycle", "#snapshot", "$recycle.bin", "system volume information", "lost+found"))
# File endings of images that Counterfoil does not decode, and the names of the formats.
_UNREAD = {
    ".heic": "HEIC", ".heif": "HEIC", ".hif": "HEIC", ".jp2": "JPEG 2000", ".j2k": "JPEG 2000", ".jpx": "JPEG 2000",
    ".jpf": "JPEG 2000", ".j2c": "JPEG 2000", ".jpc": "JPEG 2000", ".jxl": "JPEG XL", ".tga": "TGA", ".ico": "ICO",
    ".psd": "PSD", ".dcm": "DICOM", ".dng": "raw", ".cr2": "raw", ".cr3": "raw", ".nef": "raw", ".arw": "raw",
    ".orf": "raw", ".rw2": "raw", ".raf": "raw", ".svg": "SVG", ".eps": "EPS", ".pcx": "PCX", ".dds": "DDS",
    ".exr": "EXR", ".sgi": "SGI", ".ras": "RAS", ".xbm": "XBM", ".xpm": "XPM",
}  # fmt: skip
_TABLES = frozenset((".parquet", ".arrow", ".tar"))
_DATA = (*_TABLES, ".csv", ".json", ".jsonl", ".zip", ".gz", ".tgz", ".zst", ".h5", ".lance")
_TABLE_SHARD = re.compile(r"data/[^/]*-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")
_METADATA = frozenset(("metadata.csv", "metadata.jsonl", "metadata.parquet"))
_CARD = "README.md"
_DESCRIPTIONS = frozenset((".huggingface.yaml", "dataset_infos.json"))
# The keys with which a card lists files and splits. `datasets` follows such a list.
_CARD_SETTINGS = re.compile(r"configs|dataset_info")
_MOST_CARD = 16_000_000
_MOST_SHOWN = 5
_MARK = "rows read by counterfoil: "


@dataclass(frozen=True)
class ImageFolder:
    """A folder of image files, and how Counterfoil reads it.

    root: the folder that holds all others. starts: split → the folder that contains its classes; it may be empty.
    skipped: image files in junk folders. others: the number of other files, by ending. linked: folders that are links →
    their targets.
    """

    folder: Path
    root: str
    splits: Mapping[str, tuple[str, ...]]
    starts: Mapping[str, str]
    skipped: Mapping[str, int]
    hidden: int
    others: Mapping[str, int]
    linked: Mapping[str, Path]

    def class_of(self, split: str, path: str) -> str | None:
        """Return the class of an image, or None if the image is in no class folder."""
        first, within, _ = path[len(self.starts[split]) :].partition("/")
        return first if within else None

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of all splits, in Python's order of text: capitals come first."""
        names = {self.class_of(split, path) for split, paths in self.splits.items() for path in paths}
        return tuple(sorted(name for name in names if name is not None))

    def classless(self, split: str) -> UserError | None:
        """Return the error for a split with images outside class folders, or None if all images are in one."""
        if split not in self.splits:
            return None
        start = f"{self.folder}/{self.starts[split]}".rstrip("/")
        loose = [path for path in self.splits[split] if self.class_of(split, path) is None]
        if len(loose) == len(self.splits[split]):
            hint = "Put the images of each class into a folder of its own: mug/1.jpg, star/1.jpg."
            if self.others.get(".csv"):
                hint += (
                    " A CSV file with labels is read if it is called metadata.csv, stands in the folder of the images"
                    " or above, and has the columns file_name (the path from there) and label."
                )
            return UserError(f"{start}: all images are in one folder, so there are no classes", hint)
        if loose:
            return UserError(
                f"{start}: {counted(len(loose), 'image lies', 'images lie')} beside the class folders, in none of them:"
                f" {some_of([shown_name(path) for path in loose], _MOST_SHOWN)}",
                "Move each image into the folder of its class, or out of the dataset.",
            )
        return None

    def is_flat(self, split: str) -> bool:
        """Check whether a split has no class folder at all. Unlabelled images are stored like this."""
        return all(self.class_of(split, path) is None for path in self.splits[split])

    def refuse_alike(self) -> None:
        """Raise UserError with the names of class folders that no recipe and no model can distinguish."""
        groups: dict[str, list[str]] = {}
        for name in self.classes:
            groups.setdefault(plain_name(unicodedata.normalize("NFKC", name)), []).append(name)
        alike: list[list[str]] = []
        for names in groups.values():
            if len(names) > 1:
                look_alike = len({unicodedata.normalize("NFKC", name) for name in names}) < len(names)
                alike.append([ascii(name) if look_alike else f"'{shown_name(name)}'" for name in names])
        if alike:
            raise UserError(
                first_of([f"{self.folder}: the class folders {listed(names)} have one name" for names in alike]),
                "Rename them, or join them in one folder. Capitals, spaces at the ends, _ and -, and two ways to"
                " encode an accent tell no class from another.",
            )

    def notes(self, splits: Sequence[str] | None = None) -> list[str]:
        """Return sentences on how the folder is read, for some of its splits or for all."""
        chosen = [split for split in self.starts if splits is None or split in splits]
        notes = [f"{shown_name(name)} is a link: its images come from {target}" for name, target in self.linked.items()]
        if len(notes) > _MOST_SHOWN:
            notes[_MOST_SHOWN:] = [f"and {len(notes) - _MOST_SHOWN:,} more folders are links"]
        notes += self._deeper(chosen)
        if self.root:
            notes.insert(0, f"all images are in {shown_name(self.root)}, so splits and classes are looked for there")
        if empty := self._empty_classes(chosen):
            notes.append(f"no image is in {counted(len(empty), 'class folder')}: {some_of(empty, _MOST_SHOWN)}")
        if self.skipped:
            shown = ", ".join(f"{counted(count, 'image')} in {shown_name(n)}" for n, count in self.skipped.items())
            notes.append(f"skipped, as folders of previews, of deleted files and hidden ones are: {shown}")
        notes += _unread_notes(self.others)
        if self.hidden:
            notes.append(f"{counted(self.hidden, 'hidden file')} ignored")
        if others := sum(count for ending, count in self.others.items() if ending not in _UNREAD):
            notes.append(f"{counted(others, 'file')} of other kinds ignored")
        return notes

    def _deeper(self, splits: Sequence[str]) -> Iterator[str]:
        """Yield a sentence on images in subfolders of class folders, if there are any."""
        below: dict[tuple[str, str], set[str]] = {}
        deeper: list[str] = []
        for split in splits:
            for path in self.splits[split]:
                cls, *folders = path[len(self.starts[split]) :].split("/")[:-1] or [""]
                if folders:
                    deeper.append(path)
                    below.setdefault((split, cls), set()).add("/".join(folders))
        if not deeper:
            return
        numbers = {len(folders) for folders in below.values()}
        classes = sum(len({self.class_of(split, path) for path in self.splits[split]}) for split in splits)
        every = len(numbers) == 1 and len(below) == classes
        many = counted(max(numbers) if every else sum(map(len, below.values())), "subfolder")
        named = "" if len(deeper) > _MOST_SHOWN else f" ({', '.join(map(shown_name, deeper))})"
        top = "the splits" if self.starts[splits[0]] != self.root else shown_name(self.root) or "the top"
        yield (
            f"classes are the folders of level 1 below {top}: {some_of([*map(shown_name, self.classes)], _MOST_SHOWN)}."
            f" Subfolders are joined with them: {counted(len(deeper), 'image')} in {many}{' a class' if every else ''}"
            f"{named}"
        )

    def _empty_classes(self, splits: Sequence[str]) -> list[str]:
        empty = []
        for split in splits:
            start = self.starts[split]
            known = {self.class_of(split, path) for path in self.splits[split]}
            if known == {None}:
                continue
            with os.scandir(self.folder / start) as entries:
                names = [entry.name for entry in entries if entry.is_dir() and not _is_junk(entry.name)]
            empty += [shown_name(f"{start}{name}") for name in sorted(names) if name not in known]
        return empty

    def table(self, split: str) -> Any:
        """Return the rows of a split (also `train[:80%]`) as a table of `datasets`, with labels if every image has a
        class.
        """
        import datasets

        if split in self.splits:
            return self._table(split)
        try:
            parts = datasets.ReadInstruction.from_spec(split).to_absolute({n: len(p) for n, p in self.splits.items()})
        except (ValueError, AssertionError) as error:
            known = [f"{name} ({start.rstrip('/')}/)" if start else name for name, start in self.starts.items()]
            raise UserError(
                f"source: '{self.folder}' has no split '{split[:80]}'{did_you_mean(split, self.splits)}",
                f"Its splits are {', '.join(known)}. A split is a folder at the top that is named so.",
            ) from error
        tables = [self._table(part.splitname).select(range(part.from_, part.to)) for part in parts]
        return datasets.concatenate_datasets(tables)

    def _table(self, split: str) -> Any:
        import datasets
        import pyarrow
        from datasets.table import InMemoryTable

        paths = self.splits[split]
        files = pyarrow.array([f"{self.folder}/{path}" for path in paths], pyarrow.string())
        nothing = pyarrow.nulls(len(paths), pyarrow.binary())
        columns = {"image": pyarrow.StructArray.from_arrays([nothing, files], names=["bytes", "path"])}
        features = datasets.Features({"image": datasets.Image()})
        if self.classless(split) is None:
            number = {name: position for position, name in enumerate(self.classes)}
            features["label"] = datasets.ClassLabel(names=list(self.classes))
            labels = [number[self.class_of(split, path) or ""] for path in paths]
            columns["label"] = pyarrow.array(labels, pyarrow.int64())
        mark = "" if self.read_alike else _MARK + hashlib.sha256("\n".join((split, *paths)).encode()).hexdigest()
        return datasets.Dataset(
            InMemoryTable(pyarrow.table(columns)),
            info=datasets.DatasetInfo(description=mark, features=features),
            split=datasets.NamedSplit(split),
            fingerprint="counterfoil",  # otherwise `datasets` computes it from the content; it is not used here
        )

    @cached_property
    def read_alike(self) -> bool:
        """Whether `datasets` certainly reads the same rows of these files."""
        from datasets.packaged_modules import imagefolder

        taken = frozenset(imagefolder.ImageFolder.EXTENSIONS)
        previews = any(not name.startswith((".", "__")) for name in self.skipped)
        if self.root or previews or not taken.isdisjoint(self.others):
            return False
        for split, paths in self.splits.items():
            start = self.starts[split]
            if start and start[:-1] not in _SPLIT_WORDS[split]:
                return False
            for path in paths:
                rest, ending = path[len(start) :], os.path.splitext(path)[1]  # noqa: PTH122 (as below)
                known = ending.lower() in taken and ending in (ending.lower(), ending.upper())
                if rest.count("/") != 1 or _WORD.search(rest) or not known:
                    return False
        return True


def read_image_folder(folder: Path, listing: Listing) -> ImageFolder | None:
    """Return how a folder is read, or None if it has no image or tables list its images. Raise UserError if it is
    ambiguous.
    """
    # For each path, the first folder on it that is hidden or known junk, or None.
    junk = {
        parent: next(filter(_is_junk, parent.split("/")), None) if parent else None
        for parent in {name.rpartition("/")[0] for name in listing.files}
    }
    images, skipped, others = list[str](), Counter[str](), Counter[str]()
    hidden, described = 0, not _DESCRIPTIONS.isdisjoint(listing.files)
    for name in listing.files:
        parent, _, last = name.rpartition("/")
        ending = os.path.splitext(last)[1].lower()  # noqa: PTH122 (a Path for each file takes seconds)
        part = junk[parent]
        if last.startswith(".") or (part is not None and ending not in PHOTOGRAPH_ENDINGS):
            hidden += 1
        elif part is not None:
            skipped[part] += 1
        elif ending in PHOTOGRAPH_ENDINGS:
            images.append(name)
        else:
            others[ending] += 1
            described |= last in _METADATA or _TABLE_SHARD.fullmatch(name) is not None
    tables = sum(others[ending] for ending in _TABLES)
    if described or (tables and tables >= len(images)) or _has_settings(folder / _CARD):
        return None
    if not images:
        if listing.unfit or any(others[ending] for ending in _DATA):
            return None  # links are reported when the folder is pinned
        unread = "".join(f": {note}" for note in _unread_notes(others)[:1])
        raise UserError(f"{folder} holds no image{unread}", "Name a folder that has a folder of images for each class.")
    if odd := [name for name in images if not is_utf8(name)]:
        raise UserError(
            first_of([f"{folder}/{shown_name(name)}: the name is not UTF-8 text" for name in odd], _MOST_SHOWN),
            "Rename the file or the folder. In the name shown, \\xe9 is the byte E9.",
        )
    root = _root(images)
    splits, starts = _splits(folder, images, root)
    return ImageFolder(folder, root, splits, starts, dict(sorted(skipped.items())), hidden, others, listing.linked)


def _unread_notes(others: Mapping[str, int]) -> list[str]:
    """Return a sentence for each kind of photograph that Counterfoil cannot decode."""
    kinds = Counter[str]()
    for ending, count in others.items():
        kinds.update({_UNREAD[ending]: count} if ending in _UNREAD else {})
    return [
        f"{counted(count, f'{kind} photograph')} cannot be read here: convert {'it' if count == 1 else 'them'} to JPEG"
        for kind, count in sorted(kinds.items())
    ]


def rows_mark(description: str | None) -> str | None:
    """Return the digest of a table's rows if `datasets` might read other rows of the same files, else None."""
    return description if description is not None and description.startswith(_MARK) else None


def shown_name(name: str) -> str:
    """Return a file's name for people, in which unprintable characters and bytes that are no text are escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def split_of_name(name: str) -> str | None:
    """Return the split whose word is in a name (`instances_val2017`: validation), or None."""
    match = _WORD.search(name)
    return None if match is None else _SPLIT_OF[match[1].lower()]


def in_junk(path: str) -> bool:
    """Check whether a file is hidden, or is in a folder of previews, of deleted files or of archive programs."""
    folder, _, name = path.rpartition("/")
    return name.startswith(".") or any(_is_junk(part) for part in folder.split("/") if part)


def _is_junk(folder: str) -> bool:
    return folder.startswith((".", "__")) or folder.lower() in _JUNK


def _has_settings(card: Path) -> bool:
    """Check whether a card lists the dataset's files."""
    if not card.is_file():
        return False
    try:
        text = read_regular(card, _MOST_CARD).decode("utf-8", "replace")
    except OSError as error:
        raise RunFailure(f"{card} {error.strerror or 'cannot be read'}") from error
    parts = text.split("---", 2)
    return text.startswith("---") and len(parts) == 3 and _CARD_SETTINGS.search(parts[1]) is not None


def _root(images: Sequence[str]) -> str:
    """Return the folder that contains the splits or classes. If the top has only one folder ("data/"), look in it, and
    so on.
    """
    root = ""
    while True:
        first = images[0][len(root) :].partition("/")[0]
        inside = f"{root}{first}/"
        if first.lower() in _SPLIT_OF or not all(path.startswith(inside) for path in images):
            return root
        root = inside


def _splits(folder: Path, images: Sequence[str], root: str) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the images of each split, and the folder that contains its classes. Raise UserError if it is ambiguous."""
    by_top: dict[str, list[str]] = {}
    for path in images:
        first, within, _ = path[len(root) :].partition("/")
        by_top.setdefault(first if within else "", []).append(path)
    tops = [top for top in by_top if top]
    split_of = {top: _SPLIT_OF[top.lower()] for top in tops if top.lower() in _SPLIT_OF}
    flat = {top for top in tops if all(path.count("/") == root.count("/") + 1 for path in by_top[top])}
    if not split_of:
        split_of = _splits_by_word(by_top, root, tops, flat)
    outside = [top for top in by_top if top not in split_of]
    # "train" may be a class of vehicles. It is a class if the folders beside it have no subfolders either.
    if split_of and outside and not (flat.issuperset(tops) and len(tops) > len(split_of)):
        named = ", ".join(f"{root}{top}/" for top in split_of)
        count = sum(len(by_top[top]) for top in outside)
        first = [f"{root}{top}/" if top else path for top in outside for path in by_top[top][: 1 if top else None]]
        raise UserError(
            f"{folder}: {shown_name(named)} {'is' if len(split_of) == 1 else 'are'} named as splits, and"
            f" {counted(count, 'image lies', 'images lie')} outside of them: {some_of([*map(shown_name, first)])}",
            "Put all images into folders of splits (train/mug/1.jpg, validation/mug/2.jpg), or rename a folder that is"
            " no split.",
        )
    if not split_of or outside:
        if doubtful := [f"'{root}{top}'" for top in tops if top not in flat and _WORD.search(top)]:
            raise UserError(
                f"{folder}: {shown_name(listed(doubtful))} may be a split or a class: the name has a word of splits,"
                " and there are folders below",
                "Rename folders of splits to train, validation and test. Put folders of classes into one of them:"
                " train/test tube/1.jpg.",
            )
        _refuse_splits_below(folder, images, root)
        return {DEFAULT_SPLIT: tuple(images)}, {DEFAULT_SPLIT: root}
    twice = [split for split, count in Counter(split_of.values()).items() if count > 1]
    if twice:
        named = listed([f"{root}{top}/" for top, split in split_of.items() if split == twice[0]])
        raise UserError(f"{folder}: {shown_name(named)} all name the split '{twice[0]}'", "Join them, or rename one.")
    top_of = {split: top for top, split in split_of.items()}
    ordered = {split: top_of[split] for split in _SPLIT_WORDS if split in top_of}
    images_of = {split: tuple(by_top[top]) for split, top in ordered.items()}
    return images_of, {split: f"{root}{top}/" for split, top in ordered.items()}


def _splits_by_word(
    by_top: Mapping[str, Sequence[str]], root: str, tops: Sequence[str], flat: set[str]
) -> dict[str, str]:
    """Find splits by a word in the names of top folders (`imgs_train`, `imgs_test`), if all have one and they share a
    class.
    """
    words = {top: match[1] for top in tops if (match := _WORD.search(top))}
    split_of = {top: _SPLIT_OF[word.lower()] for top, word in words.items()}
    if len(tops) < 2 or "" in by_top or flat or len(set(split_of.values())) < len(by_top):
        return {}
    classes = [{path[len(root) + len(top) + 1 :].partition("/")[0] for path in by_top[top]} for top in tops]
    return split_of if set.intersection(*classes) else {}


def _refuse_splits_below(folder: Path, images: Sequence[str], root: str) -> None:
    """Raise UserError for CLASS/SPLIT/FILE, because reading it by classes would mix the images of all splits."""
    paths = (path[len(root) :].split("/") for path in images)
    split_folders = dict.fromkeys(
        f"{root}{parts[0]}/{parts[1]}/" for parts in paths if len(parts) > 2 and parts[1].lower() in _SPLIT_OF
    )
    if split_folders:
        raise UserError(
            f"{folder}: {counted(len(split_folders), 'folder is', 'folders are')} named as splits and lie below class"
            f" folders: {some_of([*map(shown_name, split_folders)])}",
            "Splits come first: train/mug/1.jpg, test/mug/2.jpg. Move them to the top, or rename them.",
        )
