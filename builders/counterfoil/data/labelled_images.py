"""Labelled images of any origin, stretches of these images for workers, and the two halves of
mining."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.messages import failure
from counterfoil.documents import sha256_json
from counterfoil.regular_files import on_a_line
from counterfoil.report.words import format_count, format_list
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image


# A reading function yields (key, encoded image) of the rows with these keys, or of every row, in
# order. The image is None if it is missing.
Reading = Callable[[frozenset[str] | None], Iterator[tuple[str, bytes | None]]]

# The label of rows that have none.
NO_LABEL = "no label"
_MOST_SHOWN = 5
# The salt is hashed with each key, so that this choice of rows is independent of other choices.
_SALT = "reference"


@dataclass(frozen=True)
class LabelledImages:
    """A set of n images in a fixed order. Arrays are (n,) int64."""

    name: str
    """The name of the set in messages."""
    content: str
    """The sha256 over the images and their order."""
    keys: tuple[str, ...]
    """Distinct names of the images."""
    labels: Ints
    """Positions among the classes."""
    groups: Ints
    """Indices of `group_names`, the shifts of a built dataset."""
    group_names: tuple[str, ...]
    """The names of the groups, in the order of their numbers."""
    read: Reading
    """Yields the images with some keys, or all of them."""
    units: tuple[str, ...] | None = None
    """What rows share (a garment, a patient)."""
    class_names: tuple[str, ...] | None = None
    """The names of labels, if these are the dataset's own."""
    label_names: tuple[str, ...] | None = None
    """The names of all labels that the dataset declares, by number."""
    photographs: bool = False
    """Whether images may have more formats and larger sizes than a build stores."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Label → the number of rows without a class."""
    repeated: int = 0
    """The number of lines that repeat another one."""
    unlisted: int = 0
    """The number of image files of a folder that no row names."""
    paths: tuple[str, ...] | None = None
    """The paths of image files in a folder. They may name people, so they are shown on this machine
    only and enter no hash."""
    other_paths: tuple[str, ...] = ()
    """The paths of rows that were left out."""
    notes: tuple[str, ...] = ()
    """Sentences on how the images were read."""
    preview: int | None = None
    """The most images of a group, if these images are a preview."""
    seeds: Ints | None = None
    """(n,) the seeds of what is computed from the images at random."""
    copies: bool = False
    """Whether the images after the first group are changed copies of its images, and have their
    labels."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def scored_sentence(self) -> str:
        """Say how many of the given images these are, and why others are left out; empty if none
        is."""
        if self.preview is not None or not (self.left_out or self.repeated or self.unlisted):
            return ""
        unknown = dict(self.left_out)
        reasons = []
        if count := unknown.pop(NO_LABEL, 0):
            reasons.append(f"{count:,} {'has' if count == 1 else 'have'} no label")
        if unknown:
            count = sum(unknown.values())
            labels = [f"{on_a_line(label)[:40]} ({images:,})" for label, images in unknown.items()]
            named = format_list(labels, _MOST_SHOWN)
            reasons.append(
                f"{count:,} {'is' if count == 1 else 'are'} of classes that are not scored: {named}"
            )
        if count := self.unlisted:
            reasons.append(
                f"{count:,} {'has' if count == 1 else 'have'} no line in the table of labels"
            )
        left_out = sum(self.left_out.values()) + self.unlisted
        texts = []
        if left_out:
            scored = f"{len(self):,} of {len(self) + left_out:,} images are scored"
            texts.append(f"{scored}; {format_list(reasons)}")
        if self.repeated:
            what = format_count(
                self.repeated, "line that repeats another is", "lines that repeat another are"
            )
            texts.append(f"{what} left out")
        return "; ".join(texts) + "."

    def decoded(self, encoded: bytes | None) -> Image | None:
        """Decode an image as RGB. Return None if it is unreadable."""
        return readable_image(encoded, photograph=self.photographs)

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield (key, encoded image) of every row, or of the rows named in `keys`, in order."""
        return self.read(keys)

    def shown(self, keys: Sequence[str]) -> list[str]:
        """Return names of rows for messages on this machine: paths if there are any, otherwise
        keys."""
        known = dict(zip(self.keys, self.paths or self.keys, strict=True))
        return [on_a_line(known.get(key, key)) for key in keys]


def evenly_thinned(images: LabelledImages, most: int) -> LabelledImages:
    """Return at most `most` of the images, evenly spaced."""
    if len(images) <= most:
        return images
    spaced = np.linspace(0, len(images) - 1, most)
    rows = np.unique(spaced.round().astype(np.int64))
    return rows_of(images, rows)


def rows_of(images: LabelledImages, chosen: Ints) -> LabelledImages:
    """Return the images of ascending rows, with a content hash of their own."""
    rows = chosen.tolist()
    keys = tuple(images.keys[row] for row in rows)
    known = frozenset(keys)
    units = images.units
    if units is not None:
        units = tuple(units[row] for row in rows)
    paths = images.paths
    if paths is not None:
        paths = tuple(paths[row] for row in rows)
    seeds = images.seeds
    if seeds is not None:
        seeds = seeds[chosen]
    return replace(
        images,
        content=sha256_json([images.content, "rows", rows]),
        keys=keys,
        labels=images.labels[chosen],
        groups=images.groups[chosen],
        units=units,
        paths=paths,
        seeds=seeds,
        read=lambda wanted: images.read(known if wanted is None else known & wanted),
    )


def first_of_classes(keys: Sequence[str], labels: Ints, most: int) -> Ints:
    """Return at most `most` rows of each label. The rows whose keys have the lowest hashes are
    taken, so all callers get the same rows.
    """
    digests = np.array([_hashed(key) for key in keys])
    chosen = [np.empty(0, dtype=np.int64)]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        order = np.argsort(digests[rows])
        chosen.append(rows[order[:most]])
    return np.sort(np.concatenate(chosen))


def evenly_chosen(
    names: Sequence[str],
    labels: Ints,
    most: int,
    preferred: Collection[str] = (),
) -> Ints:
    """Return at most `most` rows, ascending, spread over the labels as evenly as the rows allow.
    `preferred` rows come first, then rows in the order of their hashed names. most: at least one.
    """

    def order(row: int) -> tuple[bool, str]:
        return names[row] not in preferred, _hashed(names[row])

    in_order = sorted(range(len(names)), key=order)
    taken: Counter[int] = Counter()
    turns = {}
    for row in in_order:
        label = int(labels[row])
        turns[row] = taken[label]
        taken[label] += 1
    by_turn = sorted(in_order, key=lambda row: turns[row])
    return np.sort(np.array(by_turn[:most], dtype=np.int64))


def _hashed(name: str) -> str:
    return hashlib.sha256(f"{_SALT}\0{name}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows `start` … `stop` - 1 of some images: the encoded images as stored, their labels (n,),
    and their seeds (n,) if they have some."""

    start: int
    encoded: tuple[bytes | None, ...]
    labels: Ints
    seeds: Ints | None = None

    @property
    def id(self) -> str:
        """The stretch's name for people."""
        return f"rows {self.start} to {self.stop - 1}"

    @property
    def stop(self) -> int:
        return self.start + len(self.encoded)


# The most batches in a stretch. With this many batches, sending a stretch costs little beside
# computing it.
_MOST_BATCHES = 8
# The fewest stretches for each worker, if there are enough batches. All workers then end at about
# the same time.
_TURNS = 4


def stretch_rows(rows: int, batch_size: int, workers: int) -> int:
    """Return the number of rows of each stretch for this many workers. A stretch consists of whole
    batches."""
    batches = -(-rows // batch_size)
    return batch_size * max(1, min(_MOST_BATCHES, batches // (workers * _TURNS)))


class Chunks(Sequence[Chunk]):
    """The stretches of `size` rows, beginning with row `first`. They are read in order, when
    accessed, and stay in memory until `released`.
    """

    def __init__(self, images: LabelledImages, size: int, first: int = 0) -> None:
        self._images = images
        self._starts = range(first, len(images), size)
        self._size = size
        self._stream: Iterator[bytes | None] | None = None
        self._held: dict[int, Chunk] = {}
        self._read = 0

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, at: Any) -> Any:
        """Return a stretch by its number."""
        index = range(len(self))[at]
        while index >= self._read:
            self._held[self._read] = self._next(self._starts[self._read])
            self._read += 1
        if index not in self._held:
            raise ValueError(
                f"rows from {self._starts[index]} on are asked for again, and were released"
            )
        return self._held[index]

    def release(self, chunk: Chunk) -> None:
        """Drop a finished stretch from memory."""
        self._held.pop(self._starts.index(chunk.start), None)

    def _next(self, start: int) -> Chunk:
        if self._stream is None:
            every = (encoded for _, encoded in self._images.images())
            self._stream = islice(every, start, None)
        encoded = tuple(islice(self._stream, self._size))
        expected = min(self._size, len(self._images) - start)
        if len(encoded) < expected:
            raise failure(
                "changed-data.meanwhile", self._images.name, start + len(encoded), len(self._images)
            )
        rows = slice(start, start + self._size)
        seeds = self._images.seeds
        of_rows = None if seeds is None else seeds[rows]
        return Chunk(start, encoded, self._images.labels[rows], of_rows)


@dataclass(frozen=True, slots=True)
class Halves:
    """The rows of each half, int64, ascending. Every row is in exactly one half."""

    discover: Ints
    confirm: Ints


def deal_halves(
    labels: Ints,
    seed: int,
    units: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
) -> Halves:
    """Deal n rows into halves. Rows that share a unit or content, directly or through other rows,
    form one cluster, and a cluster is in one half.

    Large clusters are dealt first. Clusters of equal size are dealt in the order of a hash of seed
    and unit. Each cluster goes to the half with fewer rows of the cluster's `labels` [n], and on a
    tie to the half that its hash gives. The order of rows therefore has no effect.
    """
    given = [values for values in (units, contents) if values is not None]
    names, positions = np.unique(labels, return_inverse=True)
    dealt = []
    for rows in _clusters(given):
        # Clusters share no unit (or content), so the first name of a cluster in sorted order
        # belongs to no other cluster.
        name = min(given[0][row] for row in rows)
        digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
        dealt.append((-len(rows), digest, rows))
    # rows of each class that the discover half has more
    surplus = np.zeros(len(names), dtype=np.int64)
    half = np.zeros(len(labels), dtype=bool)
    for _, digest, rows in sorted(dealt, key=lambda entry: entry[:2]):
        counts = np.bincount(positions[rows], minlength=len(names))
        lean = int(surplus @ counts)
        discover = lean < 0 if lean else bool(digest[-1] & 1)
        half[rows] = discover
        surplus += counts if discover else -counts
    return Halves(np.flatnonzero(half), np.flatnonzero(~half))


def _clusters(shared: Sequence[Sequence[str]]) -> list[list[int]]:
    """Group rows that share a value of any sequence, directly or through other rows. The rows of
    each cluster ascend.
    """
    parents = list(range(len(shared[0])))

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for values in shared:
        first = {}
        for row, value in enumerate(values):
            parents[root(row)] = root(first.setdefault(value, row))
    clusters = defaultdict[int, list[int]](list)
    for row in range(len(parents)):
        clusters[root(row)].append(row)
    return list(clusters.values())
