"""Planted worlds: slices are what the scenes say, garments are disjoint, and nothing is planted
undeclared."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from counterfoil.lab.planted import (
    CORRUPTED,
    FLIPPED,
    GARMENTS,
    KINDS,
    MOST_SEED,
    NOISE,
    ROWS,
    SCARCE,
    SPLITS,
    STRENGTHS,
    VERSION,
    PlantedWorld,
    named_world,
    planted_world,
)
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS
from counterfoil.lab.world import load_garments, render

WORLDS = [planted_world(kind, 1) for kind in KINDS]
PLANTED = [world for world in WORLDS if world.planted is not None]
# Rows that are checked of a large split; each row is checked alone.
SOME = 500


def _named(world: PlantedWorld) -> str:
    return world.name


def _within(count: int, total: int, share: float) -> bool:
    """Check that a count is inside the central 99.99 % of a binomial of this share."""
    low, high = binom.interval(0.9999, total, share)
    return low <= count <= high


@pytest.mark.parametrize("world", [planted_world("rare", 0)], ids=_named)
def test_garments_of_the_splits_are_disjoint_and_are_those_of_the_rows(world: PlantedWorld) -> None:
    garments = [set(load_garments(GARMENTS[split]).ids) for split in SPLITS]
    for first, second in combinations(garments, 2):
        assert first and second and not first & second
    for split in SPLITS:
        for row in range(50):
            scene = world.scene(split, row)
            assert scene.split == GARMENTS[split]
            assert load_garments(scene.split).labels[scene.garment] == scene.label
    photographs = load_garments(GARMENTS["test"])
    shown = world.garments("test")
    assert len(shown) == ROWS["test"]
    assert all(shown[row] == photographs.ids[world.scene("test", row).garment] for row in range(50))


@pytest.mark.parametrize("world", WORLDS, ids=_named)
def test_classes_take_turns_and_a_scene_is_of_its_class(world: PlantedWorld) -> None:
    for split in SPLITS:
        truth = world.true_classes(split)
        assert len(truth) == ROWS[split]
        assert np.ptp(np.bincount(truth)) <= 1
    for row in range(300):
        assert CLASSES[world.scene("test", row).label] in world.subtypes[world.true_class(row)]


@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("world", PLANTED, ids=_named)
def test_the_slice_is_what_the_attributes_say(world: PlantedWorld, split: str) -> None:
    inside = world.slice(split)
    assert inside.shape == (ROWS[split],)
    for row in range(0, ROWS[split], -(-ROWS[split] // SOME)):
        true = world.scene(split, row).attributes()[str(world.attribute)] == world.value
        of_class = world.true_class(row) == world.planted
        assert inside[row] == (of_class and (not true if world.kind == "correlation" else true))
        assert inside[row] == world.in_slice(split, row)


@pytest.mark.whole
@pytest.mark.parametrize("world", PLANTED, ids=_named)
def test_the_slice_is_a_third_of_its_class_wherever_it_is_measured(world: PlantedWorld) -> None:
    """Count rows that test_the_rows_are_those_of_this_version has in its digest."""
    of_class = world.true_classes("validation") == world.planted
    assert _within(int(world.slice("validation").sum()), int(of_class.sum()), 1 / 3)
    proof = [row for row in range(4_000) if world.true_class(row) == world.planted]
    assert _within(sum(world.in_slice("proof", row) for row in proof), len(proof), 1 / 3)


@pytest.mark.whole
def test_a_correlation_is_as_strong_in_train_as_its_world_says() -> None:
    """Count rows like those in the digest of test_the_rows_are_those_of_this_version."""
    seed = 7
    world = planted_world("correlation", seed)
    assert world.strength == STRENGTHS[seed]
    assert world.attribute in ("background", "colour")
    has = Counter[bool]()
    rows = 0
    others = 0
    base = {"background": 0.5 / 7, "colour": 1 / 8}[world.attribute]
    for row in range(ROWS["train"]):
        context = world.scene("train", row).attributes()[world.attribute] == world.value
        planted = world.true_class(row) == world.planted
        has[planted] += context
        rows = rows + planted
        others = others + (not planted)
    assert _within(has[True], rows, STRENGTHS[seed])
    assert _within(has[False], others, 0.15 * base)
    assert planted_world("correlation", seed + 96).strength == world.strength


@pytest.mark.whole
def test_a_rare_subtype_is_scarce_in_train_alone() -> None:
    """Count rows like those in the digest of test_the_rows_are_those_of_this_version."""
    world = planted_world("rare", 100)
    assert sorted(name for subtypes in world.subtypes for name in subtypes) == sorted(CLASSES)
    assert world.planted is not None
    assert world.value in world.subtypes[world.planted]
    of_class = int((world.true_classes("train") == world.planted).sum())
    assert _within(int(world.slice("train").sum()), of_class, SCARCE)
    # The other classes have both of their subtypes equally often.
    counts = Counter(world.scene("train", row).label for row in range(ROWS["train"]))
    for label, subtypes in enumerate(world.subtypes):
        if label != world.planted:
            first = counts[CLASSES.index(subtypes[0])]
            assert _within(first, sum(counts[CLASSES.index(name)] for name in subtypes), 0.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_are_flipped_inside_the_slice_and_nowhere_else(seed: int) -> None:
    world = planted_world("noisy", seed)
    for split in ("train", "validation", "test"):
        message = world.labels(split)
        truth = world.true_classes(split)
        inside = world.slice(split)
        flipped = message != truth
        assert not flipped[~inside].any()
        assert set(message[flipped]) <= {world.flipped}
        if split == "train" or seed % 2:
            assert _within(
                int(flipped.sum()), int(inside.sum()), FLIPPED["all" if seed % 2 else "train"]
            )
            assert [world.label(split, row) for row in range(200)] == message[:200].tolist()
        else:
            assert not flipped.any()
    assert world.flipped not in (None, world.planted)
    assert world.noisy_splits == (SPLITS if seed % 2 else ("train",))


def test_nothing_is_planted_in_a_null_world() -> None:
    world = planted_world("null", 0)
    assert (world.planted, world.attribute, world.value, world.strength) == (None, None, None, None)
    assert not world.slice("validation").any()
    assert (world.labels("train") == world.true_classes("train")).all()


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_corrupted_row_is_its_scene_with_noise(split: str) -> None:
    world = planted_world("corruption", 0)
    inside = world.slice(split)
    assert _within(int(inside.sum()), len(inside), CORRUPTED[split])
    classes = np.bincount(world.true_classes(split)[inside], minlength=10)
    assert all(_within(int(count), int(inside.sum()), 0.1) for count in classes)
    for row in range(30):
        difference = world.pixels(split, row).astype(float) - render(world.scene(split, row))
        if inside[row]:
            # Clipping at black and white takes some of the noise.
            assert 0.4 * NOISE * 255 < difference.std() < 1.05 * NOISE * 255
        else:
            assert not difference.any()


@pytest.mark.whole
@pytest.mark.parametrize(
    "world", [planted_world("null", 0), planted_world("correlation", 0)], ids=_named
)
def test_nothing_else_is_biased(world: PlantedWorld) -> None:
    """Contexts are as common in each class as the base makes them; no context is the mark of a
    class. test_the_rows_are_those_of_this_version has such rows in its digest."""
    scenes = [world.scene("validation", row) for row in range(ROWS["validation"])]
    for label in range(10):
        of_class = [scene for scene in scenes if scene.label == label and label != world.planted]
        if not of_class:
            continue
        for background in BACKGROUNDS[3:]:
            assert _within(
                sum(scene.background == background for scene in of_class), len(of_class), 0.5 / 7
            )
        for colour in COLOURS:
            assert _within(sum(scene.colour == colour for scene in of_class), len(of_class), 1 / 8)
        for pattern in ("striped", "dotted", "checked"):
            assert _within(
                sum(scene.pattern == pattern for scene in of_class), len(of_class), 0.08 / 3
            )
    assert {scene.style for scene in scenes} == {"photo"}


@pytest.mark.parametrize("world", WORLDS, ids=_named)
def test_a_row_is_the_same_whoever_reads_it_and_in_whatever_order(world: PlantedWorld) -> None:
    again = PlantedWorld(*(getattr(world, name) for name in PlantedWorld.__dataclass_fields__))
    rows = [7, 49_999, 3, 12]
    forward = [world.pixels("proof", row).tobytes() for row in rows]
    assert forward == [again.pixels("proof", row).tobytes() for row in reversed(rows)][::-1]
    others = [world.pixels(split, 7).tobytes() for split in SPLITS]
    assert len(set(others)) == len(SPLITS)


DIGEST = "cbf6acd64a61be4c799d7a10f04cf4e2fb9515de3716978e56df184e198eba0d"


def test_the_rows_are_those_of_this_version() -> None:
    """Measurements belong to these scenes, pixels and labels: a change of them needs another
    VERSION."""
    assert VERSION == "2"
    digest = hashlib.sha256()
    for world in WORLDS:
        digest.update(world.name.encode())
        for split in SPLITS:
            for row in range(800 if split == "train" else 100):
                digest.update(repr(world.scene(split, row)).encode())
                digest.update(bytes([world.label(split, row), world.in_slice(split, row)]))
            for row in (0, 5, ROWS[split] - 1):
                digest.update(world.pixels(split, row).tobytes())
    assert digest.hexdigest() == DIGEST


@pytest.mark.parametrize(
    "name",
    ["", "null", "null-", "null-01", "null--1", "null-1 ", "Null-0", "nul-0", "../null-0", "null-٣",
     f"null-{MOST_SEED + 1}"],
)  # fmt: skip
def test_other_names_name_no_world(name: str) -> None:
    assert named_world(name) is None


def test_a_name_names_its_world() -> None:
    for world in WORLDS:
        assert named_world(world.name) == world
    with pytest.raises(IndexError):
        planted_world("null", 0).scene("test", ROWS["test"])
    with pytest.raises(KeyError):
        planted_world("null", 0).scene("audit", 0)
