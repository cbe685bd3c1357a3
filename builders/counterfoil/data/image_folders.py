"""Folders of image files, wherever they lie: here or on the Hub, with tables and a description
beside them or without.

A path is SPLIT/CLASS/…/FILE if every top folder has the name of a split, and CLASS/…/FILE
otherwise. Ambiguous folders are refused. A table beside the images adds columns, and labels if it
has them; a description may list the files of each split, and name the labels in their order.
`datasets` takes words in paths for splits. If it would read a folder differently, the rows get a
digest of their own, so that an answer remembered for one row is never used for another.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.folder_cards import CARD, SETTINGS, FolderCard, pattern_matches, read_card
from counterfoil.data.folder_splits import (
    SPLIT_WORDS,
    WORD,
    listed_splits,
    root_of,
    shown_name,
    splits_of,
)
from counterfoil.data.messages import message, refusal
from counterfoil.data.metadata_tables import TABLES, Metadata, read_metadata
from counterfoil.data.pins import InputDataset, binary_columns
from counterfoil.errors import Problems, UserError, first_of, quoted, some_of
from counterfoil.recipe.names import did_you_mean, names_alike, plain_name
from counterfoil.regular_files import is_utf8
from counterfoil.report.words import format_count, format_list
from counterfoil.store.decoding import PHOTOGRAPH_ENDINGS

if TYPE_CHECKING:
    from counterfoil.store.inside import Listing

# The column of classes that folders give.
LABEL = "label"
# Folders of previews, of deleted files and of archive programs, in lower case.
_JUNK = frozenset(
    ("@eadir", "#recycle", "#snapshot", "$recycle.bin", "system volume information", "lost+found")
)
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
_MOST_SHOWN = 5
_MARK = "rows read by counterfoil: "


@dataclass(frozen=True)
class SplitTable:
    """The lines of tables for the images of a split, in the order of its rows."""

    metadata: Metadata
    lines: tuple[int | None, ...]
    """(n,) the line of each image in `metadata`, or None."""
    labels: bool
    """Whether the tables decide the labels, or which images are rows."""
    by_folder: int = 0
    """The number of images without a line whose class is their folder."""
    unlisted: int = 0
    """The number of images without a line that are left out."""
    repeated: int = 0
    """The number of lines that repeat another one."""
    alike: bool = False
    """Whether the rows are all lines of one table, in its order."""
    elsewhere: int = 0
    """The number of images whose label is a class, and another one than their folder."""

    def notes(self, *, left_out: bool) -> Iterator[str]:
        """Yield sentences on images without a line and on repeated lines. left_out: also on what
        makes no row."""
        images = len(self.lines) + self.unlisted
        if self.elsewhere:
            lie = "lies" if self.elsewhere == 1 else "lie"
            yield (
                f"{self.elsewhere:,} of {format_count(images, 'image')} {lie} in the folder of another"
                f" class than {self.metadata.shown} says, which decides"
            )
        if self.repeated and left_out:
            lines = format_count(self.repeated, "line")
            yield f"{lines} of {self.metadata.shown} repeat an image, and each image counts once"
        unlisted = self.unlisted if left_out else 0
        for lacking, what in (
            (self.by_folder, ": their class is the folder that they are in"),
            (unlisted, ", and are left out"),
        ):
            if lacking:
                have = "has" if lacking == 1 else "have"
                yield (
                    f"{lacking:,} of {format_count(images, 'image')} {have} no line in"
                    f" {self.metadata.shown}{what}"
                )


@dataclass(frozen=True)
class ImageFolder:
    """A folder of image files, and how Counterfoil reads it."""

    folder: Path
    """Its path."""
    root: str
    """The folder that holds all others."""
    splits: Mapping[str, tuple[str, ...]]
    """Split → its images, as paths below the folder."""
    starts: Mapping[str, str]
    """Split → the folder that contains its classes; it may be empty."""
    files: _Files
    """The files of the folder by kind."""
    linked: Mapping[str, Path]
    """Folders that are links → their targets."""
    unlisted: tuple[str, ...]
    """Images that the description lists in no split."""
    tables: Mapping[str, SplitTable] = field(default_factory=dict)
    """Split → what tables say of its images."""

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """Column → the names of its labels, as the folder's description declares them."""
        return self.files.card.names

    def class_of(self, split: str, path: str) -> str | None:
        """Return the class of an image, or None if the image is in no class folder."""
        below = path[len(self.starts[split]) :]
        first, within, _ = below.partition("/")
        return first if within else None

    @cached_property
    def _unsorted(self) -> frozenset[str]:
        """The splits whose images are all in one folder that is no class of the other splits, such
        as val/images/ beside train/mug/ and train/star/."""
        folders = {}
        classes = set[str | None]()
        for split, paths in self.splits.items():
            if self.decided(split):
                continue
            names = {self.class_of(split, path) for path in paths}
            if len(names) == 1:
                folders[split] = names
            else:
                classes |= names
        classes.discard(None)
        unsorted = set()
        for split, names in folders.items():
            if classes and classes.isdisjoint(names):
                unsorted.add(split)
        return frozenset(unsorted)

    def loose(self, split: str) -> list[str]:
        """Return the images of a split that are in no class folder."""
        if split in self._unsorted:
            return [*self.splits[split]]
        return [path for path in self.splits[split] if self.class_of(split, path) is None]

    def decided(self, split: str) -> bool:
        """Check whether a table decides the labels of a split."""
        return split in self.tables and self.tables[split].labels

    def by_folders(self, split: str) -> bool:
        """Check whether class folders give the labels of a split: all its images are in one, and no
        table decides."""
        return not self.decided(split) and not self.loose(split)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of all splits that folders label, in the description's order, or in Python's
        order of text.

        If a table labels other splits with text, its labels are classes too.
        """
        names = set()
        for split, paths in self.splits.items():
            if self.by_folders(split):
                names.update(self.class_of(split, path) or "" for path in paths)
        if not names:
            return ()
        for split in self.tables:
            names.update(label for label in self._written(split) if isinstance(label, str))
        declared = self.names.get(LABEL, ())
        if not declared:
            return tuple(sorted(names))
        undeclared = sorted(names.difference(declared))
        if undeclared:
            known = some_of(map(quoted, declared))
            odd = some_of(quoted(shown_name(name)) for name in undeclared)
            count = len(declared)
            raise refusal("unknown-label.declared", self.folder, odd, known, classes=count)
        return declared

    def _written(self, split: str) -> Sequence[Any]:
        """Return the labels that tables give the images of a split; empty if they give none."""
        table = self.tables[split]
        values = table.metadata.values
        if not table.labels or LABEL not in values.column_names:
            return ()
        return _cells(values.column(LABEL), table.lines).to_pylist()

    def classless(self, split: str) -> UserError | None:
        """Return the error for a split with images outside class folders, or None if each has a
        class or a table."""
        if split not in self.splits or self.decided(split):
            return None
        start = f"{self.folder}/{self.starts[split]}".rstrip("/")
        loose = self.loose(split)
        if not loose:
            return None
        if len(loose) < len(self.splits[split]):
            paths = some_of(map(shown_name, loose), _MOST_SHOWN)
            return refusal("missing-label.loose", start, paths, images=len(loose))
        if self.files.others.get(".csv"):
            return refusal("missing-label.beside-csv", start)
        return refusal("missing-label.one-folder", start)

    def is_flat(self, split: str) -> bool:
        """Check whether a split has neither class folders nor a table. Unlabelled images are stored
        like this."""
        return split not in self.tables and len(self.loose(split)) == len(self.splits[split])

    def refuse_alike(self) -> None:
        """Raise UserError with the names of class folders that no recipe and no model can
        distinguish."""
        problems = Problems(message)
        for names in names_alike(self.classes):
            shown = [f"'{shown_name(name)}'" for name in names]
            distinct = {unicodedata.normalize("NFKC", name) for name in names}
            if len(distinct) < len(names):
                shown = [ascii(name) for name in names]  # they look alike
            alike = format_list(shown)
            problems.add("unclear-label.folders", self.folder, alike)
        problems.refuse()

    def notes(self, splits: Sequence[str] | None = None, *, left_out: bool = True) -> list[str]:
        """Return sentences on how the folder is read, for some of its splits or for all.

        left_out: whether images without a line and repeated lines, which make no row, are among
        them.
        """
        chosen = [split for split in self.starts if splits is None or split in splits]
        notes = []
        if self.root:
            notes.append(
                f"all images are in {shown_name(self.root)}, so splits and classes are looked for"
                " there"
            )
        links = []
        for name, target in self.linked.items():
            links.append(f"{shown_name(name)} is a link: its images come from {target}")
        notes += links[:_MOST_SHOWN]
        more = len(links) - _MOST_SHOWN
        if more > 0:
            notes.append(f"and {more:,} more folders are links")
        labelled = [split for split in chosen if self.by_folders(split)]
        notes += self._deeper(labelled)
        for split in chosen:
            if split in self.tables:
                notes += self.tables[split].notes(left_out=left_out)
        if self.unlisted:
            notes.append(
                f"{format_count(len(self.unlisted), 'image')} are in no split that {CARD} lists, and are"
                " left out"
            )
        empty = self._empty_classes(labelled)
        if empty:
            notes.append(
                f"no image is in {format_count(len(empty), 'class folder')}:"
                f" {some_of(empty, _MOST_SHOWN)}"
            )
        skipped = []
        for name, count in sorted(self.files.skipped.items()):
            skipped.append(f"{format_count(count, 'image')} in {shown_name(name)}")
        if skipped:
            notes.append(
                "skipped, as folders of previews, of deleted files and hidden ones are:"
                f" {', '.join(skipped)}"
            )
        notes += _unread_notes(self.files.others)
        if self.files.hidden:
            notes.append(f"{format_count(self.files.hidden, 'hidden file')} ignored")
        others = self.files.others
        ignored = sum(count for ending, count in others.items() if ending not in _UNREAD)
        if ignored:
            notes.append(f"{format_count(ignored, 'file')} of other kinds ignored")
        return notes

    def _deeper(self, splits: Sequence[str]) -> Iterator[str]:
        """Yield a sentence on images in subfolders of class folders, if there are any."""
        below = defaultdict[tuple[str, str], set[str]](set)
        deeper = []
        for split in splits:
            for path in self.splits[split]:
                inside = path[len(self.starts[split]) :]
                cls, *folders, _ = inside.split("/")
                if folders:
                    deeper.append(path)
                    below[split, cls].add("/".join(folders))
        if not deeper:
            return
        classes = 0
        for split in splits:
            of_split = {self.class_of(split, path) for path in self.splits[split]}
            classes += len(of_split)
        numbers = [len(folders) for folders in below.values()]
        if len(below) == classes and len({*numbers}) == 1:
            subfolders = f"{format_count(numbers[0], 'subfolder')} a class"
        else:
            subfolders = format_count(sum(numbers), "subfolder")
        if len(deeper) <= _MOST_SHOWN:
            subfolders += f" ({', '.join(map(shown_name, deeper))})"
        top = "the splits"
        if self.starts[splits[0]] == self.root:
            top = shown_name(self.root) or "the top"
        yield (
            f"classes are the folders of level 1 below {top}:"
            f" {some_of(map(shown_name, self.classes), _MOST_SHOWN)}."
            f" Subfolders are joined with them: {format_count(len(deeper), 'image')} in {subfolders}"
        )

    def _empty_classes(self, splits: Sequence[str]) -> list[str]:
        empty = []
        for split in splits:
            start = self.starts[split]
            known = {self.class_of(split, path) for path in self.splits[split]}
            with os.scandir(self.folder / start) as entries:
                names = [entry.name for entry in entries if entry.is_dir()]
            for name in sorted(names):
                if name not in known and not _is_junk(name):
                    empty.append(shown_name(f"{start}{name}"))
        return empty

    def table(self, split: str) -> Any:
        """Return the rows of a split (also `train[:80%]`) as a table of `datasets`, with labels if
        every image has a class.
        """
        import datasets

        if split in self.splits:
            return self._table(split)
        rows = {name: len(paths) for name, paths in self.splits.items()}
        try:
            parts = datasets.ReadInstruction.from_spec(split).to_absolute(rows)
        except (ValueError, AssertionError) as error:
            known = []
            for name, start in self.starts.items():
                known.append(f"{name} ({start.rstrip('/')}/)" if start else name)
            name = "unknown-split.listed" if self.files.chosen else "unknown-split.folder"
            where = f"source: '{self.folder}'"
            hint = did_you_mean(split, self.splits)
            raise refusal(name, where, split, known, hint) from error
        tables = []
        for part in parts:
            chosen = range(part.from_, part.to)
            tables.append(self._table(part.splitname).select(chosen))
        return datasets.concatenate_datasets(tables)

    def _table(self, split: str) -> Any:
        import datasets
        import pyarrow

        paths = self.splits[split]
        columns = {"image": file_column(self.folder, paths)}
        features = datasets.Features({"image": datasets.Image()})
        by_folders = self.by_folders(split)
        described = self.tables.get(split)
        if described is not None:
            values = described.metadata.values
            of_table = datasets.Features.from_arrow_schema(values.schema)
            for name in values.column_names:
                column = _cells(values.column(name), described.lines)
                if name in described.metadata.files:
                    columns[name] = file_column(self.folder, column.to_pylist())
                    features[name] = datasets.Image()
                elif name != "image" and not (by_folders and name == LABEL):
                    columns[name], features[name] = self._labelled(name, column, of_table[name])
        if by_folders:
            classes = [self.class_of(split, path) for path in paths]
            texts = pyarrow.array(classes, pyarrow.string())
            columns[LABEL], features[LABEL] = _numbered(texts, self.classes, str(self.folder))
        mark = ""
        if not self.read_alike:
            rows = "\n".join((split, *paths))
            mark = _MARK + hashlib.sha256(rows.encode()).hexdigest()
        return memory_table(columns, features, mark, split)

    def _labelled(self, name: str, column: Any, feature: Any) -> tuple[Any, Any]:
        """Return a column of a table and its feature: labels with names if these are known, else as
        it is written."""
        import pyarrow

        is_text = column.type in (pyarrow.string(), pyarrow.large_string())
        names = self.names.get(name)
        if name == LABEL and is_text and self.classes:
            names = self.classes
        is_plain = is_text or pyarrow.types.is_integer(column.type)
        if names is None or not is_plain:
            return column, feature
        return _numbered(column, names, str(self.folder))

    @cached_property
    def read_alike(self) -> bool:
        """Whether `datasets` certainly reads the same rows of these files."""
        from datasets.packaged_modules import imagefolder

        taken = frozenset(imagefolder.ImageFolder.EXTENSIONS)
        files = self.files
        previews = any(not name.startswith((".", "__")) for name in files.skipped)
        if files.chosen is not None or previews or not taken.isdisjoint(files.others):
            return False
        alike = {split for split, table in self.tables.items() if table.alike}
        if self.tables and not alike.issuperset(self.splits):
            return False
        root = self.root
        if (root and not self.tables) or WORD.search(root):
            return False
        for split, paths in self.splits.items():
            start = self.starts[split]
            if start != root and start[len(root) : -1] not in SPLIT_WORDS[split]:
                return False
            for path in paths:
                rest = path[len(start) :]
                ending = os.path.splitext(path)[1]  # noqa: PTH122 (as below)
                known = ending.lower() in taken and ending in (ending.lower(), ending.upper())
                deep = rest.count("/") != 1 and not self.tables
                if deep or WORD.search(rest) or not known:
                    return False
        return True


def memory_table(
    columns: Mapping[str, Any],
    features: Any,
    description: str,
    split: str,
) -> Any:
    """Return a split's columns as a table of `datasets` with a description."""
    import datasets
    import pyarrow
    from datasets.table import InMemoryTable

    return datasets.Dataset(
        InMemoryTable(pyarrow.table(dict(columns))),
        info=datasets.DatasetInfo(description=description, features=features),
        split=datasets.NamedSplit(split),
        # unused; without a fingerprint `datasets` would hash the content
        fingerprint="counterfoil",
    )


def file_column(folder: Path, paths: Sequence[str | None]) -> Any:
    """Return a column of images that are files of a folder."""
    import pyarrow

    named = []
    for path in paths:
        named.append(None if path is None else f"{folder}/{path}")
    files = pyarrow.array(named, pyarrow.string())
    nothing = pyarrow.nulls(len(paths), pyarrow.binary())
    mask = pyarrow.array([path is None for path in paths])
    return pyarrow.StructArray.from_arrays([nothing, files], names=["bytes", "path"], mask=mask)


def _cells(column: Any, lines: Sequence[int | None]) -> Any:
    """Return the values of a table's column at its `lines`, null for None."""
    import pyarrow

    return column.combine_chunks().take(pyarrow.array(lines, pyarrow.int64()))


def _numbered(column: Any, names: Sequence[str], where: str) -> tuple[Any, Any]:
    """Return a column of text or of numbers as labels with names. Raise UserError for values that
    have no name."""
    import datasets
    import pyarrow

    positions = range(len(names))
    number: dict[Any, int | None] = dict(zip(names, positions, strict=True))
    number |= zip(positions, positions, strict=True)
    number |= {-1: -1, None: None}
    values = column.to_pylist()
    odd = sorted({str(value) for value in values if value not in number})
    if odd:
        labels = some_of(map(quoted, odd))
        known = some_of(map(quoted, names))
        raise refusal("unknown-label.numbered", where, labels, known)
    numbers = [number[value] for value in values]
    feature = datasets.ClassLabel(names=list(names))
    return pyarrow.array(numbers, pyarrow.int64()), feature


def read_image_folder(
    folder: Path, listing: Listing, source: InputDataset | None = None
) -> ImageFolder | None:
    """Return how a folder is read, or None if it has no image or its rows are in table files. Raise
    UserError if it is ambiguous.

    source: the config and the columns that are asked for.
    """
    files = _files_of(folder, listing, None if source is None else source.config)
    if files is None:
        return None
    images = files.images
    if not images:
        has_data = files.tables or any(files.others[ending] for ending in _DATA)
        if listing.unfit or has_data:
            return None  # links are reported when the folder is pinned
        unread = "".join(f": {note}" for note in _unread_notes(files.others)[:1])
        raise refusal("no-images.folder", folder, unread)
    odd = []
    for name in (*images, *files.tables):
        if not is_utf8(name):
            odd.append(message("unreadable-data.name", f"{folder}/{shown_name(name)}"))
    if odd:
        raise UserError(first_of(odd, _MOST_SHOWN))
    label_column = LABEL
    wanted = [LABEL]
    conditions: Sequence[str] = ()
    if source is not None:
        label_column = source.label_column
        conditions = binary_columns(source)
        wanted = [label_column, *conditions, *filter(None, [source.objects])]
    metadata = read_metadata(folder, files.tables, images, guess=bool(conditions))
    known = () if metadata is None else metadata.values.column_names
    deciding = [column for column in wanted if column in known]
    if files.chosen is None:
        root = root_of(images)
        declared = files.card.names.get(LABEL, ())
        splits, starts = splits_of(folder, images, root, declared, decided=bool(deciding))
    else:
        root = ""
        splits, starts = listed_splits(folder, files.chosen, files.card)
    unlisted = sorted(set(images).difference(*splits.values()))
    plain = ImageFolder(folder, root, splits, starts, files, listing.linked, tuple(unlisted))
    if metadata is None:
        return plain
    return _with_tables(plain, metadata, deciding, label_column)


def lists_images(folder: Path, listing: Listing, config: str | None) -> bool:
    """Check whether the rows of a folder are image files."""
    files = _files_of(folder, listing, config)
    return files is not None and bool(files.images)


@dataclass(frozen=True)
class _Files:
    """The files of a folder by kind."""

    card: FolderCard
    images: Sequence[str]
    tables: Sequence[str]
    skipped: Counter[str]
    """The number of image files in junk folders, by folder."""
    others: Counter[str]
    """The number of other files, by ending."""
    hidden: int
    """The number of hidden files."""
    chosen: Mapping[str, Sequence[str]] | None
    """Split → images, if the description lists them."""


def _files_of(folder: Path, listing: Listing, config: str | None) -> _Files | None:
    """Return the files of a folder by kind, or None if its rows are in table files, or several
    configs may be meant."""
    card = read_card(folder, listing.files, config)
    if card is None:
        return None  # `datasets` says which configs there are
    # For each folder, the first one on its path that is hidden or known junk, or None.
    junk: dict[str, str | None] = {"": None}
    for parent in {name.rpartition("/")[0] for name in listing.files if "/" in name}:
        junk[parent] = next(filter(_is_junk, parent.split("/")), None)
    images = list[str]()
    tables = list[str]()
    skipped = Counter[str]()
    others = Counter[str]()
    hidden = 0
    shards = False
    for name in listing.files:
        if not name.startswith(card.folder):
            continue
        parent, _, last = name.rpartition("/")
        ending = os.path.splitext(last)[1].lower()  # noqa: PTH122 (a Path for each file takes seconds)
        part = junk[parent]
        if last.startswith(".") or (part is not None and ending not in PHOTOGRAPH_ENDINGS):
            hidden += last != SETTINGS
        elif part is not None:
            skipped[part] += 1
        elif ending in PHOTOGRAPH_ENDINGS:
            images.append(name)
        elif last in TABLES:
            tables.append(name)
        else:
            others[ending] += 1
            shards |= _TABLE_SHARD.fullmatch(name) is not None
    chosen: dict[str, list[str]] | None = None
    if card.files is not None:
        chosen = {}
        for split, patterns in card.files.items():
            chosen[split] = []
            for image in images:
                if any(pattern_matches(pattern, image) for pattern in patterns):
                    chosen[split].append(image)
    packed = sum(others[ending] for ending in _TABLES)
    if chosen is None and (shards or (packed and packed >= len(images))):
        return None
    if chosen is not None and not any(chosen.values()):
        return None  # the description lists tables
    return _Files(card, images, tables, skipped, others, hidden, chosen)


def _with_tables(
    plain: ImageFolder,
    metadata: Metadata,
    deciding: Sequence[str],
    label_column: str,
) -> ImageFolder:
    """Return a folder with the lines of its tables. Raise UserError if it is unknown what images
    without a line are."""
    repeated = frozenset(metadata.repeated(deciding, plain.folder))
    split_of = {}
    for split, paths in plain.splits.items():
        split_of |= dict.fromkeys(paths, split)
    lines_of = defaultdict[str, list[int]](list)
    for line, path in enumerate(metadata.paths):
        lines_of[split_of.get(path, "")].append(line)
    splits = dict(plain.splits)
    tables = dict[str, SplitTable]()
    for split, images in plain.splits.items():
        every = lines_of.get(split)
        if every is None:
            continue
        lines = [line for line in every if line not in repeated]
        listed = {metadata.paths[line] for line in lines}
        lacking = [path for path in images if path not in listed]
        flat = plain.is_flat(split)
        by_folders = not deciding and not flat
        elsewhere = 0
        if label_column in deciding and not plain.loose(split):
            labels = _cells(metadata.values.column(label_column), lines).to_pylist()
            pairs = []
            for line, label in zip(lines, labels, strict=True):
                cls = plain.class_of(split, metadata.paths[line]) or ""
                pairs.append((plain_name(str(label)), plain_name(cls)))
            other = [label for label, cls in pairs if label != cls]
            # Whether every image with a line has its folder's name as label.
            by_folders = bool(lacking) and not other
            names_of_labels = {label for label, _ in pairs}
            if names_of_labels == {cls for _, cls in pairs}:
                elsewhere = len(other)
        if flat and not deciding:
            lines = every  # captions, of which an image may have several
        names = sorted({metadata.names[metadata.tables[line]] for line in lines})
        paths = [metadata.paths[line] for line in lines]
        line_of_rows: list[int | None] = [*lines]
        by_folder = unlisted = 0
        if by_folders:
            by_folder = len(lacking)
            paths += lacking
            line_of_rows += [None] * by_folder
        else:
            unlisted = len(lacking)
            # Images outside the folders of the tables that have lines of this split.
            homes = tuple(name[: name.rfind("/") + 1] for name in names)
            beyond = [path for path in lacking if not path.startswith(homes)]
            if beyond:
                raise refusal(
                    "missing-label.outside",
                    plain.folder,
                    shown_name(beyond[0]),
                    some_of(names),
                    images=len(beyond),
                )
        start = plain.starts[split]
        top = "" if start == plain.root else start
        first, *others = names
        has_word = WORD.search(first[len(top) :])
        beside = not others and first.startswith(top) and not has_word
        splits[split] = tuple(paths)
        tables[split] = SplitTable(
            metadata,
            tuple(line_of_rows),
            labels=not by_folders,
            by_folder=by_folder,
            unlisted=unlisted,
            repeated=len(every) - len(lines),
            alike=beside and not lacking and len(lines) == len(every),
            elsewhere=elsewhere,
        )
    return replace(plain, splits=splits, tables=tables)


def _unread_notes(others: Mapping[str, int]) -> list[str]:
    """Return a sentence for each kind of photograph that Counterfoil cannot decode."""
    kinds = Counter[str]()
    for ending in _UNREAD.keys() & others.keys():
        kinds[_UNREAD[ending]] += others[ending]
    notes = []
    for kind, count in sorted(kinds.items()):
        photographs = format_count(count, f"{kind} photograph")
        them = "it" if count == 1 else "them"
        notes.append(f"{photographs} cannot be read here: convert {them} to JPEG")
    return notes


def rows_mark(description: str | None) -> str | None:
    """Return the digest of a table's rows if `datasets` might read other rows of the same files,
    else None."""
    return description if description is not None and description.startswith(_MARK) else None


def in_junk(path: str) -> bool:
    """Check whether a file is hidden, or is in a folder of previews, of deleted files or of archive
    programs."""
    folder, _, name = path.rpartition("/")
    return name.startswith(".") or any(_is_junk(part) for part in folder.split("/") if part)


def visible_files(listing: Listing) -> tuple[list[str], list[str]]:
    """Return the files of a folder that are not `in_junk`, and those of them that are
    photographs."""
    names = [name for name in listing.files if not in_junk(name)]
    images = [name for name in names if posixpath.splitext(name)[1].lower() in PHOTOGRAPH_ENDINGS]
    return names, images


def _is_junk(folder: str) -> bool:
    return folder.startswith((".", "__")) or folder.lower() in _JUNK
