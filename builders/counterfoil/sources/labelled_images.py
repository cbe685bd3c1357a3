"""Labelled images: any pinned set of images with labels, whether it was built, loaded or lies in a folder.

Predictions, embeddings, thresholds and evaluations are made of this one value. It holds what is small, and gives the
images on demand, in order, as they are encoded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
    paths: of a folder of image files, one a row: where each lies below it. They may name people: they are told on this
    machine alone, and are of no hash and of nothing that is published. other_paths: those of rows that are left out.
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

    def __len__(self) -> int:
        return len(self.keys)

    def decoded(self, encoded: bytes | None) -> Image | None:
        """An image as RGB; None for bytes that are no image, one cut short, or one too large."""
        return readable_image(encoded, photograph=self.photographs)

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """(key, encoded image) of every row, or of those named in `keys`, in order."""
        return self.read(keys)

    def told(self, keys: Sequence[str]) -> list[str]:
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
