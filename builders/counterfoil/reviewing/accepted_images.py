"""The accepted images of a dataset, and the ids by which pages and answers name them, which say nothing of an image."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure
from counterfoil.store.planned_rows import IDENTITY, PlannedRows
from counterfoil.store.reading import read_shard
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.recipe import RecipeClass
    from counterfoil.store import Receipt

# Real images of a class that a page may mix in. Their ids are of class and number alone, so that whoever counts answers
# needs no input dataset.
MOST_CONTROLS = 64
_ID_LENGTH = 20


@dataclass(frozen=True, slots=True)
class AcceptedImage:
    """An accepted image: its key, shift and label, and at which receipt it is."""

    key: str
    shift: str
    label: int
    at: int


@dataclass(frozen=True, slots=True)
class RealControl:
    """A real image of a class, from the source's validation split, by its number in the class."""

    label: int
    number: int


def accepted_images(directory: Path, plan: Plan, receipts: Sequence[Receipt]) -> list[AcceptedImage]:
    """The accepted images of a finished dataset in the plan's order; no image is read.

    RunFailure, with the file, for rows that are no samples of the recipe, or that are there twice.
    """
    images: list[AcceptedImage] = []
    for at, (shard, receipt) in enumerate(zip(plan.shards, receipts, strict=True)):
        planned = PlannedRows(directory, receipt, "data", plan, shard)
        seen: set[str] = set()
        for row in read_shard(directory, receipt, IDENTITY, "data"):
            planned.refuse_other(*(row[name] for name in IDENTITY))
            if row["key"] in seen:
                path = directory / (receipt.file("data") or receipt).path
                raise RunFailure(f"{path} has the row {row['key']} twice", remake_hint(directory, receipt.path))
            seen.add(row["key"])
            images.append(AcceptedImage(row["key"], row["shift"], row["label"], at))
    return images


def image_id(content: str, image: AcceptedImage) -> str:
    """The id of an image in a dataset with this content."""
    return _opaque(content, "image", image.key)


def control_id(content: str, class_id: str, number: int) -> str:
    """The id of a real image that is mixed in."""
    return _opaque(content, "control", class_id, str(number))


def known_ids(
    content: str, images: Sequence[AcceptedImage], classes: Sequence[RecipeClass]
) -> Mapping[str, AcceptedImage | RealControl]:
    """What every id stands for that a page of the dataset can hold."""
    known: dict[str, AcceptedImage | RealControl] = {image_id(content, image): image for image in images}
    for cls in classes:
        for number in range(MOST_CONTROLS):
            known[control_id(content, cls.id, number)] = RealControl(cls.label, number)
    return known


def rank(seed: int, *words: str) -> bytes:
    """What things are ordered by where chance decides: the same on every machine, and for more images than before."""
    return hashlib.sha256("\0".join((str(seed), *words)).encode()).digest()


def _opaque(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:_ID_LENGTH]
