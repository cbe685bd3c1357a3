"""The renderer of the wardrobe world: pure, seeded, and counterfactual one attribute at a time."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from counterfoil.lab.garments import SIDE, SPLITS, load_garments
from counterfoil.lab.scenes import pretraining_scene, unbiased_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, BACKGROUNDS, COLOURS, PATTERNS, SHIFTS, SHIFTS_BY_NAME
from counterfoil.lab.world import Scene, render

PLAIN = [
    dataclasses.replace(
        unbiased_scene(number, seed=5),
        pattern="plain", background="wall", weather="clear", light="day", companion="none", style="photo",
    )
    for number in range(20)
]  # fmt: skip


def render_all(scenes: Iterable[Scene]) -> np.ndarray:
    """Scenes as uint8 [n, 64, 64, 3]."""
    return np.stack([render(scene) for scene in scenes])


def _changed(pictures: np.ndarray) -> np.ndarray:
    """[64, 64]: where pictures [n, 64, 64, 3] are not all the same."""
    return (pictures != pictures[:1]).any(axis=(0, 3))


def test_a_picture_depends_on_its_scene_alone() -> None:
    scenes = [unbiased_scene(number) for number in range(30)]
    first = render_all(scenes)
    np.random.seed(7)  # noqa: NPY002 (the global state that rendering must not read)
    again = np.stack([render(scene) for scene in reversed(scenes)])[::-1]
    assert first.shape == (30, 64, 64, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, again)


def test_another_process_renders_the_same_picture() -> None:
    code = (
        "import hashlib; from counterfoil.lab.scenes import unbiased_scene; from counterfoil.lab.world import render;"
        "print(hashlib.sha256(b''.join(render(unbiased_scene(n)).tobytes() for n in range(40, 48))).hexdigest())"
    )
    here = hashlib.sha256(b"".join(render(unbiased_scene(n)).tobytes() for n in range(40, 48)))
    paths = f"import sys; sys.path[:0] = {sys.path!r};"
    there = subprocess.run([sys.executable, "-c", paths + code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here.hexdigest()


def test_every_shift_changes_exactly_its_attribute_and_the_picture() -> None:
    assert len(SHIFTS) == len(SHIFTS_BY_NAME) == 23
    for number, shift in enumerate(SHIFTS):
        scene = PLAIN[number % len(PLAIN)]
        if scene.attributes()[shift.attribute] == shift.value:
            scene = dataclasses.replace(scene, colour="white")
        shifted = scene.shifted(shift.name)
        before, after = scene.attributes(), shifted.attributes()
        assert {name for name in before if before[name] != after[name]} == {shift.attribute}
        assert after[shift.attribute] == shift.value
        assert (shifted.garment, shifted.seed, shifted.split) == (scene.garment, scene.seed, scene.split)
        assert _changed(np.stack([render(scene), render(shifted)])).mean() > 0.01, shift.name
    assert PLAIN[0].shifted("base") == PLAIN[0]
    with pytest.raises(KeyError):
        PLAIN[0].shifted("in_the_graas")


@pytest.mark.parametrize("background", ["wall", "snow"])
def test_colour_and_pattern_change_the_garment_and_nothing_around_it(background: str) -> None:
    for scene in PLAIN:
        scene = dataclasses.replace(scene, background=background)
        garment = _changed(render_all(dataclasses.replace(scene, colour=colour) for colour in COLOURS))
        patterned = render_all(dataclasses.replace(scene, pattern=pattern) for pattern in PATTERNS)
        assert 0.03 < garment.mean() < 0.75
        # At the garment's faintest rim a colour may round to what was there where a pattern's ink does not.
        around = patterned[:, ~garment].astype(int)
        assert np.abs(around - around[:1]).max() <= 1
        assert _changed(patterned).sum() / garment.sum() > 0.5


def test_the_background_changes_behind_a_garment_that_stays_in_place() -> None:
    for scene in PLAIN:
        garment = _changed(render_all(dataclasses.replace(scene, colour=colour) for colour in COLOURS))
        behind = _changed(render_all(dataclasses.replace(scene, background=name) for name in BACKGROUNDS))
        assert not (~behind & ~garment).any(), "a pixel off the garment that no background changes"
        covered = garment & ~behind
        assert covered.sum() / garment.sum() > 0.5, "most of the garment hides what is behind it"


def test_every_value_of_every_attribute_can_be_seen() -> None:
    scene = PLAIN[3]
    for attribute, values in ATTRIBUTES.items():
        if attribute == "class":
            continue
        changes: list[dict[str, Any]] = [{attribute: value} for value in values]
        pictures = render_all(dataclasses.replace(scene, **change) for change in changes)
        flat = pictures.reshape(len(values), -1)
        assert len(np.unique(flat, axis=0)) == len(values), attribute


def test_a_given_photograph_takes_the_place_of_the_embedded_one() -> None:
    scene = pretraining_scene(3)
    photograph = load_garments(scene.split).images[scene.garment]
    np.testing.assert_array_equal(render(scene, photograph), render(scene))
    assert not np.array_equal(render(scene, photograph[::-1]), render(scene))


def test_garments_are_photographs_in_disjoint_splits() -> None:
    seen: dict[str, str] = {}
    for split in SPLITS:
        garments = load_garments(split)
        assert garments.images.shape == (len(garments.ids), SIDE, SIDE)
        assert garments.images.dtype == np.uint8
        assert set(garments.labels) == set(range(10))
        assert (garments.images.reshape(len(garments.ids), -1).max(axis=1) > 50).all(), "an empty photograph"
        for name in garments.ids:
            assert name not in seen, f"{name} is in {split} and {seen.get(name)}"
            seen[name] = split
    with pytest.raises(KeyError):
        load_garments("test")


def test_splits_share_no_photograph_under_another_id() -> None:
    """Ids are positions in Fashion-MNIST, which repeats no picture between its own two files either."""
    pictures = {split: {image.tobytes() for image in load_garments(split).images} for split in SPLITS}
    assert not pictures["heldout"] & (pictures["pretrain"] | pictures["train"])
    assert not pictures["validation"] & pictures["train"]


def test_scenes_are_values() -> None:
    scene = Scene("heldout", 0, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scene.colour = "blue"  # pyrefly: ignore[read-only]
