"""Graded pictures, drawn and true, and what the oracle, CLIP and the classifiers say of each.

A *unit* is one scene: its base and its picture at each level of every shift. Drawn scenes are of
the builds of one way; true ones are rows of the audit split, whose garments no model of the lab has
seen.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterfoil.arrays import Bools, Floats, Floats32
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, SHIFTS_BY_NAME
from counterfoil.lab.world import render_graded
from counterfoil.models.clip import load_clip
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.severity import level_name
from counterfoil.store.reading import read_rows
from interface_proof.looks import Viewer, guesses
from proof_files import CLASSIFIERS, saved

SHIFTS = ("in_the_grass", "in_the_snow", "in_the_rain", "in_the_fog", "at_night", "red")
LEVELS = (0.25, 0.5, 0.75, 1.0)
STRENGTHS = (0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
"""Of true scenes. Levels are among them."""

_EDITS = (
    "generator.kind=edit",
    "generator.split=audit",
    "screen.keep=[{same_image: {}}, thresholds]",
)
WAYS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "prompt": ("prompt", "raw", ()),
    "prompt, attention": ("prompt", "raw", ("samples.pairs=attention",)),
    "prompt, realised": ("prompt", "realised", ()),
    "steps": ("steps", "raw", ()),
    "mix": ("mix", "raw", _EDITS),
}
"""By which way, what its levels are shares of, and what else it changes."""
_PART = 20  # pictures that CLIP sees at once


def recipe_of(way: str, units: int, seed: int, guidance: float) -> Recipe:
    """Return `wardrobe-star` with these shifts by degrees."""
    by, axis, others = WAYS[way]
    levels = f"{{{axis}: {list(LEVELS)}}}"
    changes = [
        f"samples.candidates={units}", f"samples.seed={seed}", *others,
        f"generator.guidance={guidance}", "generator.batch_size=20", "screen.keep_rejected=true",
        "output.rows_per_shard=100", "evaluate.min_images_per_class=3",
        *(f"prompts.shifts.{name}=null" for name in load_recipe("wardrobe-star").prompts.shifts if name not in SHIFTS),
        *(f"prompts.shifts.{name}.severity={{by: {by}, levels: {levels}}}" for name in SHIFTS),
    ]  # fmt: skip
    return load_recipe("wardrobe-star", changes)


@dataclass(frozen=True)
class Seen:
    """Arrays over (shift, side, class, unit), sides being the base and each strength; `said` also
    over models.

    present: whether there is a picture. sure: the oracle's probability of the shift. seen, colour:
    what it reads.
    object_score, shift_score: CLIP's. said: the classifiers' labels.
    """

    strengths: Floats
    present: Bools
    sure: Floats32
    seen: NDArray[np.int8]
    colour: NDArray[np.int8]
    object_score: Floats32
    shift_score: Floats32
    said: NDArray[np.int8]

    def save(self, path: Path) -> None:
        saved(path, lambda to: np.savez_compressed(to, **self.__dict__))

    @classmethod
    def read(cls, path: Path) -> Seen:
        with np.load(path) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    @property
    def right(self) -> Bools:
        """(shift, side, class, unit, model)."""
        return self.said == np.arange(len(CLASSES))[None, None, :, None, None]


# A picture's unit and its pixels, by shift, side and class.
Cell = Sequence[tuple[int, NDArray[np.uint8]]]
Pictures = Callable[[int, int, int], Cell]


class Looking:
    """The oracle, the screening CLIP and the classifiers, loaded once."""

    def __init__(self) -> None:
        shifts = load_recipe("wardrobe-star").prompts.shifts
        self.viewer = Viewer([f"lab:{name}" for name in CLASSIFIERS])
        self.clip = load_clip("lab:clip")
        self.of_shifts = self.clip.embed_texts([shifts[name].caption or "" for name in SHIFTS])
        self.of_classes = self.clip.embed_texts([f"a photo of a {name}" for name in CLASSES])

    def look(self, strengths: Sequence[float], units: int, pictures: Pictures) -> Seen:
        """Look at what `pictures(shift, side, label)` gives of each cell; bases (side 0) are the
        first shift's."""
        shape = (len(SHIFTS), 1 + len(strengths), len(CLASSES), units)
        score = np.full(shape, np.nan, np.float32)
        seen = Seen(
            strengths=np.asarray(strengths),
            present=np.zeros(shape, bool),
            sure=score,
            seen=np.full(shape, -1, np.int8),
            colour=np.full(shape, -1, np.int8),
            object_score=score.copy(),
            shift_score=score.copy(),
            said=np.full((*shape, len(CLASSIFIERS)), -1, np.int8),
        )
        for shift in range(len(SHIFTS)):
            for side in range(1 + len(strengths)):
                for label in range(len(CLASSES)):
                    if side or not shift:  # the base is one picture for all shifts
                        self._look(seen, shift, side, label, pictures(shift, side, label))
            print(f"  looked at {SHIFTS[shift]}", flush=True)
        return seen

    def _look(self, seen: Seen, own_shift: int, side: int, label: int, pictures: Cell) -> None:
        if not pictures:
            return
        units = np.array([unit for unit, _ in pictures])
        pixels = np.stack([image for _, image in pictures])
        sure = self.viewer.oracle.confidences(pixels)
        vectors = self.clip.embed_images([Image.fromarray(pixel) for pixel in pixels], _PART)
        guessed = [guesses(classifier, pixels) for classifier in self.viewer.classifiers]
        for shift in [own_shift] if side else range(len(SHIFTS)):
            change = SHIFTS_BY_NAME[SHIFTS[shift]]
            at = shift, side, label, units
            seen.present[at] = True
            seen.sure[at] = sure[change.attribute][
                :, ATTRIBUTES[change.attribute].index(change.value)
            ]
            seen.seen[at], seen.colour[at] = (
                sure[attribute].argmax(1) for attribute in ("class", "colour")
            )
            seen.object_score[at] = vectors @ self.of_classes[label]
            seen.shift_score[at] = vectors @ self.of_shifts[shift]
            seen.said[at] = np.stack(guessed, axis=1)


def true_pictures(units: int) -> Pictures:
    """Return the scenes of the audit split under each strength of a shift."""
    strengths = (0.0, *STRENGTHS)

    def pictures(shift: int, side: int, label: int) -> Cell:
        scenes = (wardrobe_scene("audit", unit * len(CLASSES) + label) for unit in range(units))
        return [
            (unit, render_graded(scene, SHIFTS[shift], strengths[side]))
            for unit, scene in enumerate(scenes)
        ]

    return pictures


def drawn_pictures(directory: Path) -> Pictures:
    """Return the pictures of a dataset, with the rejected ones that it keeps."""
    places = {"base": (0, 0)}
    for shift, name in enumerate(SHIFTS):
        places |= {level_name(name, level): (shift, side) for side, level in enumerate(LEVELS, 1)}
    cells: dict[tuple[int, int, int], list[tuple[int, bytes]]] = {}
    for what in ("data", "rejected"):
        for row in read_rows(directory, columns=["image", "label", "shift", "index"], what=what):
            cell = cells.setdefault((*places[row["shift"]], row["label"]), [])
            cell.append((row["index"], row["image"]["bytes"]))

    def pictures(shift: int, side: int, label: int) -> Cell:
        cell = cells.get((shift, side, label), [])
        return [
            (unit, np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))) for unit, file in cell
        ]

    return pictures
