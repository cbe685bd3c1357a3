"""Labelled images: any pinned set of images with labels, whether it was built, loaded or lies in a folder.

Predictions, embeddings, thresholds and evaluations are made of this one value. It holds what is small, and gives the
images on demand, in order, as they are encoded; `Chunks` are stretches of them that can be sent to workers.

`deal_halves` deals labelled rows into a discover half and a confirm half that share nothing: no unit and no image.
What is found on one half is tested on the other, so rows that show the same garment, patient or photograph stay
together. Rows go with others of their unit, and with every row of the same image content, and with whatever those go
with: the *clusters* are dealt, whole.

Large clusters are dealt first, and clusters of one size in the order of a hash of seed and unit (content where there
are no units). Each goes to the half that has fewer rows of its classes so far, and where that is even, to the half
that its hash tells. So a class is dealt evenly to within its largest cluster and mostly to within one row, and the
result depends on the seed and on what the rows are, never on their order. A class of one cluster is in one half only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure
from counterfoil.recipe import sha256_json
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image


# (key, encoded image) of the rows whose keys are asked for, or of every row, in order; None where there is no image.
Reading = Callable[[frozenset[str] | None], Iterator[tuple[str, bytes | None]]]

# What is hashed with a key, so that which images are looked at has to do with nothing else that hashes keys.
_SALT = "reference"


@dataclass(frozen=True)
class LabelledImages:
    """A set of n images in a fixed order.

    keys: one a row, unique. labels: (n,) int64, positions in the classes that they are read with. content: sha256 over
    the images and their order; equal content means equal answers. groups: (n,) int64, positions in `group_names`; the
    shifts of a built dataset, one group where there are none. units: what rows share (a garment, a patient), one text a
    row; None where every row stands for itself. read: the images on demand. class_names: what the labels are called,
    where they are the dataset's own and no recipe's. photographs: whether images may be of more formats, and larger,
    than a build stores them. left_out: rows that the dataset has beside these, by label, for no class is theirs.
    paths: of a folder of image files, one a row: where each lies below it. They may name people: they are shown on this
    machine alone, and are of no hash and of nothing that is published. other_paths: those of rows that are left out.
    notes: what must be said of how a folder was read, a sentence each.
    """

    name: str
    content: str
    keys: tuple[str, ...]
    labels: NDArray[np.int64]
    groups: NDArray[np.int64]
    group_names: tuple[str, ...]
    read: Reading
    units: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    photographs: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[str, ...] | None = None
    other_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def decoded(self, encoded: bytes | None) -> Image | None:
        """An image as RGB; None for bytes that are no image, one cut short, or one too large."""
        return readable_image(encoded, photograph=self.photographs)

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """(key, encoded image) of every row, or of those named in `keys`, in order."""
        return self.read(keys)

    def shown(self, keys: Sequence[str]) -> list[str]:
        """What messages on this machine call some rows: their paths on a line each, or keys where there are none."""
        known = {} if self.paths is None else dict(zip(self.keys, self.paths, strict=True))
        return [on_a_line(known.get(key, key)) for key in keys]


def on_a_line(name: str) -> str:
    """A file's name, which may hold anything, without line breaks and control characters: their escapes stand there."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)


def thinned(images: LabelledImages, most: int) -> LabelledImages:
    """At most `most` of some images, evenly spaced."""
    if len(images) <= most:
        return images
    return rows_of(images, np.unique(np.linspace(0, len(images) - 1, most).round().astype(np.int64)))


def rows_of(images: LabelledImages, chosen: NDArray[np.int64]) -> LabelledImages:
    """Some of the images, by ascending rows, under a content of their own."""
    keys = tuple(images.keys[row] for row in chosen.tolist())
    own = frozenset(keys)
    return replace(
        images,
        content=sha256_json([images.content, "rows", chosen.tolist()]),
        keys=keys,
        labels=images.labels[chosen],
        groups=images.groups[chosen],
        units=None if images.units is None else tuple(images.units[row] for row in chosen.tolist()),
        paths=None if images.paths is None else tuple(images.paths[row] for row in chosen.tolist()),
        read=lambda wanted: images.read(own if wanted is None else own & wanted),
    )


def first_of_classes(keys: Sequence[str], labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many rows of each label, ascending: those whose keys come first by a hash, whatever else there is.

    Fewer are among more, so that whoever looks at some of a class looks at the same ones.
    """
    digests = np.array([hashlib.sha256(f"{_SALT}\0{key}".encode()).hexdigest() for key in keys])
    chosen = [
        rows[np.argsort(digests[rows])][:most] for rows in (np.flatnonzero(labels == one) for one in np.unique(labels))
    ]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows `start` … `start + len(encoded)` - 1 of some images, encoded as they are stored, and their labels (n,)."""

    start: int
    encoded: tuple[bytes | None, ...]
    labels: NDArray[np.int64]

    @property
    def id(self) -> str:
        """What people are shown of it: its first and its last row."""
        return f"rows {self.start} to {self.stop - 1}"

    @property
    def stop(self) -> int:
        return self.start + len(self.encoded)


# Batches of a stretch at most: enough that sending costs little beside answering.
_MOST_BATCHES = 8
# Stretches that each worker takes at least, while there are batches for them: so all end together.
_TURNS = 4


def stretch_rows(rows: int, batch_size: int, workers: int) -> int:
    """Return how many rows each stretch has if so many workers share them: whole batches."""
    batches = -(-rows // batch_size)
    return batch_size * max(1, min(_MOST_BATCHES, batches // (workers * _TURNS)))


class Chunks(Sequence[Chunk]):
    """The stretches of `size` rows from row `first` on, each read when it is asked for.

    They are asked for in order, and again only before they are `released`: what is held is what workers are at.
    RunFailure where fewer images come than there are keys.
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

    @overload
    def __getitem__(self, at: int) -> Chunk: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, at: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        while place >= self._read:
            self._held[self._read] = self._next(self._starts[self._read])
            self._read += 1
        if place not in self._held:
            raise ValueError(f"rows from {self._starts[place]} on are asked for again, and were released")
        return self._held[place]

    def release(self, chunk: Chunk) -> None:
        """Let go of a stretch that is done."""
        self._held.pop(self._starts.index(chunk.start), None)

    def _next(self, start: int) -> Chunk:
        if self._stream is None:
            self._stream = islice((encoded for _, encoded in self._images.images()), start, None)
        encoded = tuple(islice(self._stream, self._size))
        if len(encoded) < min(self._size, len(self._images) - start):
            raise RunFailure(
                f"{self._images.name}: {len(self._images)} images were expected and {start + len(encoded)} were read:"
                " the data files changed meanwhile"
            )
        return Chunk(start, encoded, self._images.labels[start : start + self._size])


@dataclass(frozen=True, slots=True)
class Halves:
    """Rows of each half, int64, ascending; together every row once."""

    discover: NDArray[np.int64]
    confirm: NDArray[np.int64]


def deal_halves(
    labels: NDArray[np.int64],
    seed: int,
    units: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
) -> Halves:
    """Halves of n rows: `labels` [n], and for each row what it shares: its unit, its image's content, or both.

    Rows of equal unit and rows of equal content are in the same half. ValueError where neither is given, or one is not
    of n rows.
    """
    given = [each for each in (units, contents) if each is not None]
    if not given or any(len(each) != len(labels) for each in given):
        raise ValueError(f"expected units, contents or both, one for each of {len(labels)} rows")
    clusters = _clusters([[(which, value) for value in each] for which, each in enumerate(given)])
    names, places = np.unique(labels, return_inverse=True)
    dealt = []
    for rows in clusters:
        # Clusters are apart in units where there are any, so the least name is theirs alone.
        name = min(given[0][row] for row in rows)
        digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
        dealt.append((-len(rows), digest, rows))
    surplus = np.zeros(len(names), dtype=np.int64)  # rows of each class that the discover half has more
    half = np.zeros(len(labels), dtype=bool)
    for _, digest, rows in sorted(dealt, key=lambda entry: entry[:2]):
        counts = np.bincount(places[rows], minlength=len(names))
        lean = int(surplus @ counts)
        discover = lean < 0 if lean else bool(digest[-1] & 1)
        half[rows] = discover
        surplus += counts if discover else -counts
    return Halves(np.flatnonzero(half), np.flatnonzero(~half))


def _clusters(shared: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """Rows that share a value of any sequence, directly or through others; each cluster's rows ascending."""
    parents = list(range(len(shared[0])))

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for values in shared:
        first: dict[Hashable, int] = {}
        for row, value in enumerate(values):
            parents[root(row)] = root(first.setdefault(value, row))
    clusters: dict[int, list[int]] = {}
    for row in range(len(parents)):
        clusters.setdefault(root(row), []).append(row)
    return list(clusters.values())
