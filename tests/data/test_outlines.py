"""Outlines of COCO annotations: drawn as pycocotools draws them, ordered by size, and refused if they
are unfit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as pycocotools

from counterfoil.building.build_dataset import build
from counterfoil.data.open_source import open_source
from counterfoil.data.outlines import Inside, drawn, inside_of
from counterfoil.data.pool import pool_of, truth_of
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from support.boxes import NAMES
from support.masks import RECIPE, masks_read
from support.outlines import outlined_folder, runs_of
from support.refusals import refuses


def pixels_of(segmentation: Any, size: tuple[int, int]) -> np.ndarray:
    return drawn(
        [inside_of(segmentation, size)],
        [1],
        [False],
        size,
        0,
    )


def polygons(rng: np.random.Generator, size: tuple[int, int], form: int) -> list[list[float]]:
    """Return one or two polygons, partly outside the image: of whole pixels, halves, tenths or any
    numbers."""
    corners = rng.uniform(-0.2, 1.2, (int(rng.integers(3, 12)), 2)) * size
    if form < 3:
        corners = np.round(corners * (1, 2, 10)[form]) / (1, 2, 10)[form]
    if rng.integers(4) == 0:
        corners = np.concatenate([corners[:1], corners])
    first = corners.ravel().tolist()
    return [first, (corners[::-1] + 3).ravel().tolist()] if rng.integers(3) == 0 else [first]


@pytest.mark.parametrize("form", range(4))
def test_polygons_and_run_lengths_are_those_of_pycocotools(form: int) -> None:
    rng = np.random.default_rng(form)
    for _ in range(60):
        size = (int(rng.integers(1, 90)), int(rng.integers(1, 90)))
        shape = size[::-1]
        outline = polygons(rng, size, form)
        runs = runs_of(outline, *shape)
        expected = pycocotools.decode(runs)
        assert (pixels_of(outline, size) == expected).all()
        compressed = {"size": [*shape], "counts": runs["counts"].decode()}
        assert (pixels_of(compressed, size) == expected).all()
        changes = np.flatnonzero(np.diff(expected.T.ravel(), prepend=0))
        counts = np.diff([0, *changes, expected.size]).tolist()
        assert (pixels_of({"size": [*shape], "counts": counts}, size) == expected).all()


def square(x: int, y: int, side: int) -> list[list[int]]:
    return [[x, y, x + side, y, x + side, y + side, x, y + side]]


def test_the_smallest_lies_above_and_crowds_below() -> None:
    size = (20, 20)
    outlines = [square(4, 4, 4), square(0, 0, 12), square(2, 2, 10), square(4, 4, 4)]
    insides = [inside_of(outline, size) for outline in outlines]
    read = drawn(
        insides,
        [0, 1, 2, 3],
        [False, False, True, False],
        size,
        9,
    )
    assert read[5, 5] == 3  # the later of two equal squares
    assert read[1, 1] == read[10, 10] == 1  # above the crowd
    assert read[19, 19] == 9
    alone = drawn(
        insides[2:3],
        [2],
        [True],
        size,
        9,
    )
    assert set(np.unique(alone).tolist()) == {9, 255}


UNFIT: dict[str, tuple[Any, str]] = {
    "nothing": (None, "expected polygons"),
    "no polygon": ([], "expected polygons"),
    "text": ([["a", 1, 2, 3, 4, 5]], "found the polygon"),
    "odd": ([[1, 2, 3, 4, 5, 6, 7]], "found the polygon"),
    "not finite": ([[float("inf"), 1, 2, 3, 4, 5]], "found the polygon"),
    "far away": ([[0, 0, 1e14, 0, 5, 5]], "expected corners in pixels"),
    "many long lines": ([[0, 0, 90_000, 0, 0, 9] * 40], "expected corners in pixels"),
    "another size": ({"size": [6, 8], "counts": [48]}, "the image has [8, 6]"),
    "no counts": ({"size": [8, 6]}, "without counts"),
    "below 0": ({"size": [8, 6], "counts": [50, -2]}, "no number of pixels"),
    "fractions": ({"size": [8, 6], "counts": [24.0, 24]}, "no number of pixels"),
    "truth values": ({"size": [8, 6], "counts": [47, True]}, "no number of pixels"),
    "too few": ({"size": [8, 6], "counts": [40]}, "run lengths of 40 pixels"),
    "too many": ({"size": [8, 6], "counts": [40, 40]}, "run lengths of 80 pixels"),
    "vast": ({"size": [8, 6], "counts": [1 << 62, 1 << 62]}, "no number of pixels"),
    "vast text": ({"size": [8, 6], "counts": "oooooooo0"}, "damaged"),
    "other characters": ({"size": [8, 6], "counts": "é0"}, "damaged"),
    "cut off": ({"size": [8, 6], "counts": "`"}, "cut off"),
    "negative text": ({"size": [8, 6], "counts": "O"}, "no number of pixels"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_outlines_are_refused(name: str) -> None:
    segmentation, problem = UNFIT[name]
    with refuses("invalid-outline", "", problem):
        inside_of(segmentation, (6, 8))


def test_lines_and_points_have_no_inside() -> None:
    assert inside_of([[1, 1, 5, 5], [2, 2]], (8, 8)) == Inside(())


def test_work_is_bounded() -> None:
    size = (9_000, 9_000)
    inside = inside_of([[0, 0, 9_000, 0, 9_000, 9_000, 0, 9_000]], size)
    with refuses("invalid-outline", "", "100 outlines"):
        drawn(
            [inside] * 100,
            [0] * 100,
            [False] * 100,
            size,
            0,
        )


def recipe_of(folder: Path, *changes: str) -> Recipe:
    classes = "source.masks={classes: [background, disk, box]}"
    return load_recipe_text(RECIPE.format(folder=folder), [classes, *changes])


def masks_of_folder(folder: Path, *changes: str) -> list[np.ndarray]:
    return masks_read(recipe_of(folder, *changes), (160, 120))


def test_a_coco_folder_becomes_masks_by_name(tmp_path: Path) -> None:
    document = outlined_folder(tmp_path / "coco")
    names = {entry["id"]: entry["name"] for entry in document["categories"]}
    assert set(names.values()) == set(NAMES)
    number_of = {"background": 0, "disk": 1, "box": 2}
    for image, read in zip(document["images"], masks_of_folder(tmp_path / "coco"), strict=True):
        expected = np.zeros((120, 160), np.uint8)
        entries = [each for each in document["annotations"] if each["image_id"] == image["id"]]
        for entry in sorted(entries, key=lambda each: (not each["iscrowd"], -each["area"])):
            runs = entry["segmentation"]
            if isinstance(runs, list):
                runs = runs_of(runs, 120, 160)
            number = 255 if entry["iscrowd"] else number_of[names[entry["category_id"]]]
            expected[pycocotools.decode(runs) > 0] = number
        assert (read == expected).all()
    disks = masks_of_folder(tmp_path / "coco", "source.masks={classes: [disk]}")
    assert {value for mask in disks for value in np.unique(mask).tolist()} == {0, 255}


def test_outlines_without_a_pixel_are_counted(tmp_path: Path) -> None:
    """As polygons of two corners, in shares of the image, and outside of it."""
    document = outlined_folder(tmp_path / "data")
    square = [10, 10, 40, 10, 40, 40, 10, 40]
    shares = [value / 160 for value in square]
    outside = [value + 500 for value in square]
    empty = [square[::4], shares, outside]
    entries = document["annotations"]
    for entry in entries:
        entry["segmentation"] = [square]
    for entry, polygon in zip(entries[1:], empty, strict=False):
        entry["segmentation"] = [polygon]
    (tmp_path / "data" / "annotations.json").write_text(json.dumps(document))
    recipe = recipe_of(tmp_path / "data")
    rows = open_source(pool_of(recipe)).rows("train", labelled=False)
    notes = truth_of(recipe, rows).checked(
        recipe.source,
        rows,
        range(rows.count),
    )
    expected = f"3 of {len(entries)} outlines cover no pixel of the image, and are in no mask"
    assert expected in notes
    for entry in entries:
        entry["segmentation"] = [square]
    (tmp_path / "data" / "annotations.json").write_text(json.dumps(document))
    rows = open_source(pool_of(recipe)).rows("train", labelled=False)
    notes = truth_of(recipe, rows).checked(
        recipe.source,
        rows,
        range(rows.count),
    )
    assert not [note for note in notes if "outline" in note]


def test_many_crowds_are_counted(tmp_path: Path) -> None:
    """As in exports that mark every object with run lengths as a crowd."""
    document = outlined_folder(tmp_path / "data")
    recipe = recipe_of(tmp_path / "data")
    entries = document["annotations"]
    for crowds in (1, 4):
        for entry in entries[:crowds]:
            entry["iscrowd"] = 1
        (tmp_path / "data" / "annotations.json").write_text(json.dumps(document))
        rows = open_source(pool_of(recipe)).rows("train", labelled=False)
        notes = truth_of(recipe, rows).checked(
            recipe.source,
            rows,
            range(rows.count),
        )
        counted = [note for note in notes if f"{crowds} of {len(entries)} outlines are" in note]
        assert len(counted) == (crowds > 1)


def resized(document: Any) -> None:
    document["images"][0] |= {"width": 320, "height": 240}


FOLDERS: dict[str, tuple[Any, str, str, str, str]] = {
    "another size": (
        resized,
        "",
        "invalid-outline",
        "source.masks",
        "320×240 pixels, and the image has 160×120",
    ),
    "a class that is missing": (
        lambda _: None,
        "source.masks={classes: [background, dsk]}",
        "unknown-label",
        "source.masks.classes",
        "'dsk'; did you mean 'disk'?",
    ),
    "numbers": (
        lambda _: None,
        "source.masks={classes: [disk, box], numbers: [3, 7]}",
        "invalid-outline",
        "source.masks.numbers",
        "found numbers",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_unfit_folders_are_refused_before_any_image_is_made(tmp_path: Path, name: str) -> None:
    change, key, code, path, words = FOLDERS[name]
    document = outlined_folder(tmp_path / "coco")
    change(document)
    (tmp_path / "coco" / "annotations.json").write_text(json.dumps(document))
    with refuses(code, path, words):
        build(recipe_of(tmp_path / "coco", *filter(None, [key])), tmp_path / "built", device="cpu")
    assert not list((tmp_path / "built").glob("data/**/*.parquet"))
