"""Masks of scenes of several garments: split and number alone decide them, and each pixel has the
class that its colour comes from."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest

from counterfoil.lab import boxes
from counterfoil.lab.boxes import (
    MASK_CLASSES,
    ROWS,
    SIDE,
    VERSION,
    BoxScene,
    boxes_scene,
    class_mask,
    objects_in,
    render_boxes,
    split_mask,
)
from counterfoil.lab.scenery import VARIANTS

SCENES = [boxes_scene(split, number) for split in ROWS for number in range(20)]


def lit(scene: BoxScene, number: int) -> np.ndarray:
    """Render a scene in which one class is white and all else black: [96, 96] in 0 … 255."""
    background = "white" if number == 0 else "black"
    pieces = []
    for piece in scene.pieces:
        colour = "white" if piece.label == number - 1 else "black"
        pieces.append(dataclasses.replace(piece, colour=colour))
    scene = dataclasses.replace(scene, background=background, pieces=tuple(pieces))
    return render_boxes(scene)[..., 0].astype(int)


def test_a_pixel_has_the_class_that_most_of_its_light_comes_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Independent of masks. Without shadows, whatever darkens a pixel darkens all its classes
    alike."""

    def plain(colour: str, _: str, brightness: np.ndarray, __: np.ndarray) -> np.ndarray:
        return np.full((*brightness.shape, 3), colour == "white", np.float32)

    monkeypatch.setattr(boxes, "dress", plain)
    monkeypatch.setattr(boxes, "portable_blur", lambda coverage, *_: np.zeros_like(coverage))
    monkeypatch.setattr(
        boxes.scenery,
        "backgrounds",
        lambda name: np.full((VARIANTS, 64, 64, 3), name == "white", np.float32),
    )
    shared = 0
    undecided = 0
    for scene in SCENES[::3]:
        light = np.zeros((len(MASK_CLASSES), SIDE, SIDE), int)
        for number in {0, *(piece.label + 1 for piece in scene.pieces)}:
            light[number] = lit(scene, number)
        mask = class_mask(scene)
        most = light.max(axis=0)
        of_mask = np.take_along_axis(light, mask[None].astype(int), 0)[0]
        # A picture's numbers are whole, so those of two classes of equal light may differ by one.
        assert (of_mask >= most - 1).all(), scene
        undecided += int(((light >= most - 1).sum(axis=0) > 1).sum())
        shared += int(((light > 0).sum(axis=0) > 1).sum())
    assert shared > 2000 and undecided < shared / 10


def test_the_later_garment_hides_the_earlier_one() -> None:
    scene = next(scene for scene in SCENES if scene.pieces[0].label != scene.pieces[1].label)
    first, second = scene.pieces[:2]
    onto = dataclasses.replace(second, left=first.left, top=first.top, side=first.side)
    alone = dataclasses.replace(scene, pieces=(onto,))
    both = class_mask(dataclasses.replace(scene, pieces=(first, onto)))
    on_top = class_mask(alone) > 0
    assert on_top.any() and (both[on_top] == second.label + 1).all()
    assert set(np.unique(both[~on_top])) == {0, first.label + 1}
    assert not class_mask(dataclasses.replace(scene, pieces=())).any()


def test_boxes_and_masks_are_of_the_same_pixels() -> None:
    for scene in SCENES:
        mask = class_mask(scene)
        assert mask.shape == (SIDE, SIDE) and mask.dtype == np.uint8
        objects = objects_in(scene)
        area = np.bincount(objects["category"], objects["area"], minlength=10)
        pixels = np.bincount(mask.ravel(), minlength=11)[1:]
        # Three things can share a pixel, of which the most has less than half.
        np.testing.assert_allclose(pixels, area, atol=2)
        for (left, top, width, height), category in zip(
            np.asarray(objects["bbox"], int).tolist(), objects["category"], strict=True
        ):
            inside = mask[top : top + height, left : left + width] == category + 1
            assert inside[0].any() and inside[-1].any()
            assert inside[:, 0].any() and inside[:, -1].any()


def test_a_mask_changes_with_the_version_only() -> None:
    digest = hashlib.sha256(b"".join(class_mask(scene).tobytes() for scene in SCENES))
    assert (VERSION, digest.hexdigest()) == (
        "1",
        "8058c05c00366ef5320d3e3fc03cb6623572748364b5ce704aeaa0494e2f3e7a",
    )


def test_a_row_is_its_scene_and_there_are_no_others() -> None:
    np.testing.assert_array_equal(split_mask("audit", 7), class_mask(boxes_scene("audit", 7)))
    for row in (-1, ROWS["audit"]):
        with pytest.raises(IndexError):
            split_mask("audit", row)
