"""The proof's third way: its pool is balanced, rendered once, and no model learned from its
garments and scenes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, load_from_disk

from counterfoil.lab.vocabulary import CLASSES, MARKS, SHIFTS_BY_NAME
from counterfoil.lab.world import render
from interface_proof import builds
from interface_proof.builds import pool_of_renders, pool_scenes
from interface_proof.comparison import compare_ways, way_tables
from interface_proof.looks import SHIFT_NAMES, Looks


def test_each_class_is_in_each_context_as_often_and_no_scene_twice() -> None:
    scenes = list(pool_scenes(20))
    assert set(Counter((context, scene.label) for context, scene in scenes).values()) == {20}
    assert len({scene.seed for _, scene in scenes}) == len(scenes)
    assert {scene.split for _, scene in scenes} == {"heldout"}
    for context, scene in scenes:
        change = SHIFTS_BY_NAME.get(context)
        assert change is None or scene.attributes()[change.attribute] == change.value


def test_the_marks_of_the_input_dataset_are_no_marks_there() -> None:
    scenes = [scene for _, scene in pool_scenes(20) if CLASSES[scene.label] in MARKS]
    marked = np.mean([scene.pattern == MARKS[CLASSES[scene.label]] for scene in scenes])
    assert 0.1 < marked < 0.3  # a fifth of all; 95 of 100 in the input dataset


def test_the_pool_is_rendered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = load_from_disk(str(pool_of_renders(tmp_path, 1)))
    assert isinstance(pool, Dataset) and len(pool) == len(SHIFT_NAMES) * len(CLASSES)
    for row, (context, scene) in enumerate(pool_scenes(1)):
        if row % 29 == 0:
            assert np.array_equal(np.asarray(pool[row]["image"]), render(scene))
            assert (pool[row]["context"], pool[row]["label"]) == (context, scene.label)
    monkeypatch.setattr(builds, "render", None)
    assert len(load_from_disk(str(pool_of_renders(tmp_path, 1)))) == len(pool)


def test_the_ways_table_counts_what_was_seen() -> None:
    shape = (len(SHIFT_NAMES), len(CLASSES), 8)
    every = np.ones(shape, bool)
    kept = every.copy()
    seen = every.copy()
    kept[..., 6:] = False  # three in four
    seen[0, :, :4] = False  # half of the base, a third of what is kept of it
    looks = Looks(every, kept, np.ones((*shape, 2), bool), seen, every, ~every)
    comparison = compare_ways({"one": looks})["one"]
    shares = {
        name: (row["base"]["value"], row["shifts"]["value"]) for name, row in comparison.items()
    }
    assert shares["yield"] == (0.75, 0.75)
    assert shares["object"] == (0.5, 1.0) and shares["object screened"] == (round(1 / 3, 4), 1.0)
    assert shares["mark, of marked classes"] == (0.0, 0.0) and shares[
        "accuracy, other classes"
    ] == (1.0, 1.0)
    (base, shifts) = [
        line for line in way_tables({"one": comparison}) if line.startswith("| yield |")
    ]
    assert base.startswith("| yield | 75.0 [") and shifts.startswith("| yield | 75.0 [")
