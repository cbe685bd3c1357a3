"""Labelled images in stretches that can be sent to workers: read once, in order, and let go when they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure
from counterfoil.sources.labelled_images import LabelledImages


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Rows `start` … `start + len(encoded)` - 1 of some images, encoded as they are stored, and their labels (n,)."""

    start: int
    encoded: tuple[bytes | None, ...]
    labels: NDArray[np.int64]

    @property
    def id(self) -> str:
        """What people are told of it: its first and its last row."""
        return f"rows {self.start} to {self.stop - 1}"

    @property
    def stop(self) -> int:
        return self.start + len(self.encoded)


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
