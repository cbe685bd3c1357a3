"""Scenes of several garments: pictures and boxes are those of their version, and a box holds what
is seen."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter

import numpy as np
import pytest

from counterfoil.lab.boxes import (
    FEWEST,
    MOST,
    ROWS,
    SIDE,
    VERSION,
    BoxScene,
    boxes_scene,
    objects_in,
    render_boxes,
    split_objects,
    split_pixels,
)
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import load_garments

SCENES = [boxes_scene(split, number) for split in ROWS for number in range(30)]


def _recoloured(scene: BoxScene, index: int) -> BoxScene:
    piece = scene.pieces[index]
    other = dataclasses.replace(
        piece, colour="blue" if piece.colour != "blue" else "yellow", pattern="plain"
    )
    return dataclasses.replace(
        scene, pieces=(*scene.pieces[:index], other, *scene.pieces[index + 1 :])
    )


def test_a_pixel_or_a_box_changes_with_the_version_only() -> None:
    digest = hashlib.sha256()
    for scene in SCENES:
        digest.update(render_boxes(scene).tobytes() + json.dumps(objects_in(scene)).encode())
    assert (VERSION, digest.hexdigest()) == (
        "1",
        "306dcbf792dff889c7150920f670d7f389af1c497b56e755632bf2ae157f1ed1",
    )


def test_a_box_holds_the_pixels_that_change_with_the_garment() -> None:
    """Independent of masks: a pixel shows a garment if its colour changes with the colour of the
    garment."""
    compared = 0
    for scene in SCENES[::3]:
        before = render_boxes(scene).astype(int)
        objects = objects_in(scene)
        if len(objects["id"]) < len(scene.pieces):
            continue
        for index, (left, top, width, height) in enumerate(objects["bbox"]):
            changed = np.abs(render_boxes(_recoloured(scene, index)).astype(int) - before).max(-1)
            rows, columns = np.nonzero(changed > 0)
            shown = np.asarray((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
            box = np.asarray((left, top, left + width, top + height))
            # A pixel that shows less than half of the garment belongs to what is around it.
            assert (np.abs(shown - box) <= 2).all(), (scene, index)
            assert objects["area"][index] <= len(rows)
            assert len(rows) - objects["area"][index] <= 1.4 * (width + height)
            compared += 1
    assert compared > 50


def test_the_later_garment_hides_the_earlier_one() -> None:
    scene = next(scene for scene in SCENES if len(scene.pieces) >= 2)
    first, second = scene.pieces[:2]
    onto = dataclasses.replace(first, left=second.left, top=second.top, side=second.side)
    hidden = dataclasses.replace(
        scene, pieces=(onto, dataclasses.replace(onto, colour="black", pattern="plain"))
    )
    alone = dataclasses.replace(hidden, pieces=hidden.pieces[1:])
    assert objects_in(hidden) == objects_in(alone)
    assert objects_in(dataclasses.replace(scene, pieces=())) == {
        name: [] for name in objects_in(scene)
    }


def test_boxes_lie_inside_and_say_what_they_hold() -> None:
    for scene in SCENES:
        objects = objects_in(scene)
        labels = load_garments(scene.split).labels
        assert len({len(values) for values in objects.values()}) == 1
        assert objects["id"] == list(range(len(objects["id"])))
        assert len(scene.pieces) <= MOST
        assert set(objects["category"]) <= {int(labels[piece.garment]) for piece in scene.pieces}
        for (left, top, width, height), area in zip(objects["bbox"], objects["area"], strict=True):
            assert left >= 0 and top >= 0 and left + width <= SIDE and top + height <= SIDE
            assert 0 < area <= width * height
        assert not any(objects["iscrowd"])


def test_scenes_show_every_category_and_every_number_of_garments() -> None:
    objects = split_objects("validation")
    assert len(objects) == ROWS["validation"]
    categories = Counter(category for row in objects for category in row["category"])
    assert sorted(categories) == list(range(len(CLASSES)))
    assert min(categories.values()) > 0.7 * max(categories.values())
    counts = Counter(len(row["id"]) for row in objects)
    assert {FEWEST, FEWEST + 1, MOST} <= set(counts)
    assert counts[MOST] > 0.2 * len(objects)


def test_a_row_is_its_scene_and_there_are_no_others() -> None:
    np.testing.assert_array_equal(split_pixels("audit", 7), render_boxes(boxes_scene("audit", 7)))
    assert split_objects("validation")[9] == objects_in(boxes_scene("validation", 9))
    for row in (-1, ROWS["audit"]):
        with pytest.raises(IndexError):
            split_pixels("audit", row)
