"""Mining with a pool and with weights: the hardest rows of other images become a recipe, and training rows weigh more."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from mined_scenes import SANDAL, T_SHIRT, answer, on_the_beach, recipe_sets, save_split, scenes
from typer.testing import CliRunner

from counterfoil.building import build
from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.recipe import load_recipe
from counterfoil.verification import verify

AUDITED, POOL, TRAIN = scenes(0, 300), scenes(1000, 80), scenes(2000, 60)
BROKEN = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset; the pool has an image that is none and, last, one that is audited as well. Sandals fail on the beach."""
    folder = tmp_path_factory.mktemp("world") / "data"
    save_split(folder, "validation", AUDITED)
    save_split(folder, "test", [*POOL, AUDITED[0]], [BROKEN])
    save_split(folder, "train", TRAIN, [2])
    answer(folder.parent / "answers.csv", AUDITED, lambda one: one.label == SANDAL and on_the_beach(one))
    return folder


def mined(world: Path, out: Path, **more: Any) -> MineResult:
    target = f"predictions:{world.parent / 'answers.csv'}"
    return mine("wardrobe-mini", out, overrides=recipe_sets(world), target=target, device="cpu", workers=1, **more)


@pytest.fixture(scope="module")
def result(world: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    return mined(world, tmp_path_factory.mktemp("mined"), pool="test", pool_rows=8, weights=True)


def test_the_rows_of_the_pool_are_those_that_the_failure_is_of(result: MineResult) -> None:
    pool = result.pool
    assert pool is not None
    # T-shirts have no error, so no direction, and none of their rows is chosen.
    assert (pool.count, pool.without, pool.shared, pool.hardest.unreadable) == (8, ("t-shirt",), 1, 1)
    assert pool.hardest.unlabelled == sum(one.label == T_SHIRT for one in POOL) - (POOL[BROKEN].label == T_SHIRT)
    rows = list(csv.DictReader((result.directory / "pool.csv").open()))
    chosen = [POOL[int(row["row"])] for row in rows]
    assert len(chosen) == 8
    assert {one.label for one in chosen} == {SANDAL}
    beach = np.mean([one.background == "beach" for one in POOL if one.label == SANDAL])
    assert beach < 0.6
    assert np.mean([one.background == "beach" for one in chosen]) >= 0.85


def test_the_pools_recipe_builds_to_these_rows(result: MineResult, tmp_path: Path) -> None:
    recipe = load_recipe(result.files["pool"])
    told = recipe.prompts.shifts["hard"].mined_from
    assert told is not None
    assert (told["method"], told["shared"], told["labels"], told["split"]) == ("directions", 1, "label", "test")
    build(result.files["pool"], tmp_path / "built", device="cpu", workers=1)
    assert verify(tmp_path / "built").problems == ()


def test_training_rows_weigh_twice_where_they_are_hard(result: MineResult) -> None:
    table = pq.read_table(result.files["weights"]).to_pylist()
    assert [row["key"] for row in table] == [f"train_{row:08d}" for row in range(len(TRAIN))]
    assert [row["row"] for row in table] == list(range(len(TRAIN)))
    heavy = [one for one, row in zip(TRAIN, table, strict=True) if row["weight"] == 2]
    assert {row["weight"] for row in table} == {1.0, 2.0}
    assert {one.label for one in heavy} == {SANDAL}
    assert np.mean([one.background == "beach" for one in heavy]) >= 0.8
    assert table[2]["weight"] == 1  # it cannot be decoded


def test_a_pool_changes_nothing_of_the_findings(world: Path, result: MineResult, tmp_path: Path) -> None:
    alone = mined(world, tmp_path / "alone")
    assert alone.pool is None
    assert set(alone.files) == set(result.files) - {"pool", "weights"}
    for name in set(alone.files) - {"recipe"}:  # which tells its own place
        assert alone.files[name].read_bytes() == result.files[name].read_bytes(), name


def test_the_command_tells_what_was_chosen_and_what_was_left_out(world: Path, tmp_path: Path) -> None:
    sets = [part for one in recipe_sets(world) for part in ("--set", one)]
    target = ["--target", f"predictions:{world.parent / 'answers.csv'}", "--device", "cpu", "--workers", "1"]
    command = ["mine", "wardrobe-mini", "--out", str(tmp_path / "out"), *sets, *target, "--pool", "test"]
    told = CliRunner().invoke(app, [*command, "--pool-rows", "3"])
    assert told.exit_code == 0, told.output
    assert "Of the pool 3 rows of 1 classes were chosen" in told.output
    assert "1 left out: among the audited images; 1 left out: no image; without a direction: t-shirt" in told.output
    asked = CliRunner().invoke(app, [*command, "--pool-rows", "3", "--json"])
    document = json.loads(asked.stdout)
    assert (document["pool"]["rows"], document["pool"]["without_direction"]) == (3, ["t-shirt"])
    assert document["files"]["pool"].endswith("pool.yaml")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"pool": "validation"}, "the pool validation is what the target is audited on"),
        ({"pool": "test", "pool_labels": "predicted"}, "it cannot answer images that it has not seen"),
        ({"pool": "test", "pool_labels": "labels"}, "no column 'labels'; did you mean 'label'"),
        ({"pool": "./nowhere"}, "there is no folder ./nowhere"),
    ],
)
def test_a_pool_that_is_none_is_refused_before_anything_is_looked_at(
    world: Path, more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        mined(world, tmp_path / "out", **more)
    assert not list((tmp_path / "out").glob("*.json"))


def test_a_pool_in_another_folder_is_labelled_by_name_or_by_the_target(world: Path, tmp_path: Path) -> None:
    """Here every image is audited as well under another name, so that none is left to choose."""
    save_split(tmp_path / "pool", "photos", AUDITED[:20], kind=["sandal"] * 20)
    with pytest.raises(UserError, match="is not stated"):
        mined(world, tmp_path / "out", pool=str(tmp_path / "pool"))
    found = mined(world, tmp_path / "out", pool=str(tmp_path / "pool"), pool_labels="kind")
    assert found.pool is not None
    assert (found.pool.count, found.pool.shared) == (0, 20)
    assert "pool" not in found.files


def test_predicted_labels_are_the_targets_answers(world: Path, tmp_path: Path) -> None:
    """Of a model that is loadable: what it calls a sandal is a sandal, right or wrong."""
    names = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
    classes = ", ".join(
        f"{{id: '{label:02d}', name: {name}, source_label: {label}}}" for label, name in enumerate(names)
    )
    save_split(tmp_path / "pool", "photos", POOL, kind=["unknown"] * len(POOL))
    found = mine(
        "wardrobe-mini",
        tmp_path / "out",
        overrides=[*recipe_sets(world), f"source.classes=[{classes}]", "mine.settings.fewest_errors=2"],
        target="lab:resnet10t",
        device="cpu",
        workers=1,
        pool=str(tmp_path / "pool"),
        pool_labels="predicted",
    )
    assert found.pool is not None
    assert found.pool.origin.labels == "predicted"
    assert found.pool.count + found.pool.hardest.unlabelled == len(POOL) or found.pool.count > 0
