"""Make planted worlds: datasets of wardrobe scenes with one known failure, or none, whose slice is
known row by row.

* `correlation`: in train, the planted class has a context (a background or a colour) with the
  world's strength as probability; other classes seldom have it. Slice: the class *without* the
  context.
* `rare`: labels are merged classes, and one subtype is scarce in train. Slice: the rows of that
  subtype.
* `noisy`: in the slice, the planted class *with* a context, labels are flipped to one other class;
  in train (even seeds) or in all splits (odd seeds).
* `null`: nothing is planted. Accuracies of classes still differ.
* `corruption`: a tenth of train and half of the other splits have Gaussian noise (Jain 2023, B.3).
  Slice: these rows.

Nothing else is biased. Seeds 0 to 3 are for choosing settings; printed tables use seeds from 100.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from counterfoil.lab.scenery import SIDE
from counterfoil.lab.scenes import OUTDOORS, neutral_background, one_of, rare_conditions
from counterfoil.lab.vocabulary import CLASSES, COLOURS, PATTERNS
from counterfoil.lab.world import Scene, load_garments, render

KINDS = ("correlation", "rare", "noisy", "null", "corruption")
"""A kind's position seeds its random numbers: append new kinds."""

GARMENTS = {"train": "pretrain", "validation": "train", "test": "validation", "proof": "heldout"}
"""Split → garments, which are disjoint. No CLIP and no generator of the lab has seen those of any
split but train."""

ROWS = {"train": 6000, "validation": 6000, "test": 4000, "proof": 50_000}
SPLITS = tuple(ROWS)
VERSION = "2"
"""Raise it with every change of a pixel or a label of a world."""

MOST_SEED = 99_999
_NAME = re.compile(r"(?P<kind>[a-z]+)-(?P<seed>0|[1-9][0-9]{0,4})")

# P(context | planted class) in train, by seed modulo 8; chosen on seeds 0 to 3.
STRENGTHS = (0.88, 0.77, 0.45, 0.7, 0.07, 0.3, 0.6, 0.82)
SCARCE = 0.1
FLIPPED = {"train": 0.6, "all": 0.5}
"""Share of flipped labels in a noisy world's slice, if train alone is noisy and if all splits
are."""
CORRUPTED = {"train": 0.1, "validation": 0.5, "test": 0.5, "proof": 0.5}
# Standard deviation as a share of a pixel's range.
NOISE = 0.25

# The slice's share of the planted class, unless a kind has another one.
_THIRD = 1 / 3
# The share of other classes' pictures with the context that keep it, in train of a correlation
# world.
_SELDOM = 0.15

_CONFUSABLE = ("t-shirt", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "ankle boot")
# White and black may also come from the light or the photograph.
_VIVID = ("red", "orange", "yellow", "green", "blue")
# Ways to merge classes, and for each the subtypes that may be scarce: they resemble parts of other
# classes.
_MERGES: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("t-shirt", "dress"),
        ("pullover", "trouser"),
        ("coat", "bag"),
        ("shirt", "ankle boot"),
        ("sandal", "sneaker"),
    ),
    (
        ("t-shirt", "trouser"),
        ("shirt", "bag"),
        ("pullover", "dress"),
        ("coat", "sandal"),
        ("sneaker", "ankle boot"),
    ),
    (
        ("sandal", "bag"),
        ("sneaker", "trouser"),
        ("ankle boot", "dress"),
        ("t-shirt", "shirt"),
        ("pullover", "coat"),
    ),
)
_SCARCE_SUBTYPES = (
    ("pullover", "coat", "shirt"),
    ("t-shirt", "shirt", "pullover", "coat"),
    ("sandal", "sneaker", "ankle boot"),
)


@lru_cache(maxsize=4)
def _garments(world: PlantedWorld, split: str) -> tuple[str, ...]:
    """Return the garments of a split. A run asks for them several times, and each row costs a
    scene."""
    ids = load_garments(GARMENTS[split]).ids
    return tuple(ids[world.scene(split, row).garment] for row in range(ROWS[split]))


@dataclass(frozen=True, slots=True)
class PlantedWorld:
    """A planted world."""

    kind: str
    seed: int
    subtypes: tuple[tuple[str, ...], ...]
    """By label, its wardrobe classes: one, or several merged ones."""
    planted: int | None = None
    """The planted class's label."""
    attribute: str | None = None
    value: str | None = None
    """The context (`background`, `beach`), or the scarce subtype (`class`, `pullover`)."""
    strength: float | None = None
    """P(context | planted class) or the subtype's share of its class, in train; the share of
    flipped labels in the slice; or of train rows with noise."""
    flipped: int | None = None
    """The label that replaces flipped ones."""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels; of a merged class `pullover or shirt`."""
        return tuple(" or ".join(subtypes) for subtypes in self.subtypes)

    @property
    def noisy_splits(self) -> tuple[str, ...]:
        if self.kind != "noisy":
            return ()
        return SPLITS if self.seed % 2 else ("train",)

    def true_class(self, row: int) -> int:
        """Return the label of a row before any was flipped; classes take turns."""
        return row % len(self.subtypes)

    def label(self, split: str, row: int) -> int:
        if self.flipped is not None and self.strength is not None and split in self.noisy_splits:
            _, flip = self._chances(split, row)
            if flip < self.strength and self.in_slice(split, row):
                return self.flipped
        return self.true_class(row)

    def in_slice(self, split: str, row: int) -> bool:
        if self.kind == "corruption":
            noise, _ = self._chances(split, row)
            return bool(noise < CORRUPTED[split])
        if self.attribute is None or self.true_class(row) != self.planted:
            return False
        has_value = self.scene(split, row).attributes()[self.attribute] == self.value
        # Of a correlation, those without the context; of other kinds, those with it.
        return has_value != (self.kind == "correlation")

    def scene(self, split: str, row: int) -> Scene:
        """Return the scene of a row. IndexError for a row, KeyError for a split that does not
        exist."""
        if not 0 <= row < ROWS[split]:
            raise IndexError(f"row {row} of {ROWS[split]}")
        rng = self._rng(split, row)
        label = self.true_class(row)
        of_place, of_subtype, of_context, of_pattern, outside, beside, of_garment, of_seed = (
            rng.random(8)
        )
        background = neutral_background(rng) if of_place < 0.5 else one_of(rng, OUTDOORS)
        chosen = {"background": background, "colour": one_of(rng, COLOURS)}
        # Drawn for every row, so that a context changes nothing else of a scene.
        others = {
            "background": one_of(rng, tuple(name for name in OUTDOORS if name != self.value)),
            "colour": one_of(rng, tuple(name for name in COLOURS if name != self.value)),
        }
        if self.attribute in chosen and self.value is not None:
            drawn = chosen[self.attribute] == self.value
            if self._has_context(split, label, drawn, of_context):
                chosen[self.attribute] = self.value
            elif drawn:
                chosen[self.attribute] = others[self.attribute]
        pattern = "plain" if of_pattern < 0.92 else one_of(rng, PATTERNS[1:])
        weather, light, companion = rare_conditions(rng, outside, beside)
        subtype = CLASSES.index(self._subtype(split, label, of_subtype))
        garments = load_garments(GARMENTS[split]).of_class(subtype)
        return Scene(
            GARMENTS[split],
            int(garments[int(of_garment * len(garments))]),
            subtype,
            chosen["colour"],
            pattern,
            chosen["background"],
            weather,
            light,
            companion,
            seed=int(of_seed * 2**53),
        )

    def pixels(self, split: str, row: int) -> NDArray[np.uint8]:
        picture = render(self.scene(split, row))
        if self.kind != "corruption" or not self.in_slice(split, row):
            return picture
        noise = self._rng(split, row, 2).standard_normal((SIDE, SIDE, 3))
        levels = np.rint(picture + noise * (NOISE * 255))
        return np.clip(levels, 0, 255).astype(np.uint8)

    def labels(self, split: str) -> NDArray[np.int64]:
        if split not in self.noisy_splits:
            return self.true_classes(split)
        labels = [self.label(split, row) for row in range(ROWS[split])]
        return np.asarray(labels, dtype=np.int64)

    def true_classes(self, split: str) -> NDArray[np.int64]:
        return np.arange(ROWS[split], dtype=np.int64) % len(self.subtypes)

    def slice(self, split: str) -> NDArray[np.bool_]:
        return np.asarray([self.in_slice(split, row) for row in range(ROWS[split])], dtype=np.bool_)

    def garments(self, split: str) -> tuple[str, ...]:
        """Return the id of each row's garment photograph (`t10k-00412`). Rows share garments,
        splits do not."""
        return _garments(self, split)

    def _subtype(self, split: str, label: int, draw: float) -> str:
        subtypes = self.subtypes[label]
        if len(subtypes) == 1:
            return subtypes[0]
        if label != self.planted:
            return subtypes[int(draw * len(subtypes))]
        share = (self.strength or 0.0) if split == "train" else _THIRD
        (usual,) = (subtype for subtype in subtypes if subtype != self.value)
        return str(self.value) if draw < share else usual

    def _has_context(self, split: str, label: int, drawn: bool, draw: float) -> bool:
        """Return whether a row has the context; `drawn` is whether it would have it without
        bias."""
        if label != self.planted:
            is_rare = self.kind == "correlation" and split == "train"
            return drawn and (draw < _SELDOM or not is_rare)
        if self.kind == "noisy":
            return draw < _THIRD
        return draw < ((self.strength or 0.0) if split == "train" else 1 - _THIRD)

    def _rng(self, split: str, row: int, purpose: int = 0) -> np.random.Generator:
        kind = KINDS.index(self.kind)
        return np.random.default_rng([kind, self.seed, SPLITS.index(split), row, purpose])

    def _chances(self, split: str, row: int) -> NDArray[np.float64]:
        """Return two numbers in 0…1, which decide whether a row has noise and whether its label is
        flipped."""
        return self._rng(split, row, 1).random(2)


@cache
def planted_world(kind: str, seed: int) -> PlantedWorld:
    """Return the world of one of `KINDS` and a seed of 0 to `MOST_SEED`."""
    rng = np.random.default_rng([KINDS.index(kind), seed])
    single = tuple((name,) for name in CLASSES)
    if kind == "null":
        return PlantedWorld(kind, seed, single)
    if kind == "corruption":
        return PlantedWorld(kind, seed, single, strength=CORRUPTED["train"])
    if kind == "rare":
        index = int(rng.integers(len(_MERGES)))
        merges = _MERGES[index]
        subtype = one_of(rng, _SCARCE_SUBTYPES[index])
        planted = next(label for label, subtypes in enumerate(merges) if subtype in subtypes)
        return PlantedWorld(kind, seed, merges, planted, "class", subtype, SCARCE)
    planted = CLASSES.index(one_of(rng, _CONFUSABLE))
    attribute = "background" if rng.random() < 2 / 3 else "colour"
    value = one_of(rng, OUTDOORS if attribute == "background" else _VIVID)
    if kind == "correlation":
        strength = STRENGTHS[seed % len(STRENGTHS)]
        return PlantedWorld(kind, seed, single, planted, attribute, value, strength)
    others = [label for label in range(len(CLASSES)) if label != planted]
    flipped = int(rng.choice(others))
    strength = FLIPPED["all" if seed % 2 else "train"]
    return PlantedWorld(kind, seed, single, planted, attribute, value, strength, flipped)


def named_world(name: str) -> PlantedWorld | None:
    """Return the world that `KIND-SEED` names; None for any other text."""
    match = _NAME.fullmatch(name)
    if match is None or match["kind"] not in KINDS:
        return None
    return planted_world(match["kind"], int(match["seed"]))
