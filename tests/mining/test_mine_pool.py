"""Mining with a pool and with weights: the hardest rows become a recipe, and training rows weigh more."""

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
from counterfoil.mining.audited import answers_of, audit_target, class_map_of
from counterfoil.mining.method import Found
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.mining.pools import FilteredPool, filter_pool, open_pool
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.verification import verify

AUDITED, POOL, TRAIN = scenes(0, 140), scenes(200, 60), scenes(300, 40)
BROKEN = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool has an image that is none and, last, one that is audited as well. Sandals fail on the beach."""
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
    told = json.loads(pq.read_schema(result.files["weights"]).metadata[b"counterfoil"])
    document = json.loads(result.files["findings"].read_text())
    assert told["mined"]["discover_sha256"] == document["halves"]["discover"]["sha256"]
    assert told["mined"]["on"][0]["content"] == document["on"][0]["content"] and len(told["train_content"]) == 64
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
        ({"pool_labels": "label", "pool_rows": 3}, "--pool-rows and --pool-labels: no pool is named"),
        ({"pool": "test", "pool_rows": 0}, "found 0, expected at least 1"),
        ({"pool": "./nowhere"}, "there is no folder ./nowhere"),
    ],
)
def test_a_pool_that_is_none_is_refused_before_anything_is_looked_at(
    world: Path, more: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        mined(world, tmp_path / "out", **more)
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.fixture(scope="module")
def audited(world: Path) -> tuple[Recipe, Mine, Any]:
    """What a loadable target's audit gives, and settings of it."""
    recipe = load_recipe("wardrobe-mini", [*recipe_sets(world), "mine.target=lab:resnet10t"])
    assert recipe.mine is not None
    return recipe, recipe.mine, audit_target(recipe, recipe.mine, "cpu")


def filtered(audited: tuple[Recipe, Mine, Any], pool: Path, labels: str, decide: Any) -> FilteredPool:
    recipe, settings, (audits, _, embedder) = audited
    opened = open_pool(str(pool), labels, recipe, settings)
    found = Found((), (), {}, {0: decide, 1: decide})
    return filter_pool(opened, 5, recipe, settings, audits, found, embedder, "cpu")


def test_a_pool_in_another_folder_has_a_class_by_name_and_none_of_the_audited_images(
    audited: tuple[Recipe, Mine, Any], tmp_path: Path
) -> None:
    shown = [*AUDITED[:20], *POOL[:6]]
    kinds = ["sandal" if one.label == SANDAL else "unknown" for one in shown]
    save_split(tmp_path / "pool", "test", shown, kind=kinds)
    with pytest.raises(UserError, match="is not stated"):
        open_pool(str(tmp_path / "pool"), None, *audited[:2])
    found = filtered(audited, tmp_path / "pool", "kind", lambda features: np.zeros(len(features)))
    own = [row for row in range(20, 26) if kinds[row] == "sandal"]
    assert (found.shared, {label: rows.tolist() for label, rows in found.hardest.rows.items()}) == (20, {1: own})


def test_predicted_labels_are_the_targets_answers(audited: tuple[Recipe, Mine, Any], tmp_path: Path) -> None:
    save_split(tmp_path / "pool", "test", POOL[:30], kind=["unknown"] * 30)
    found = filtered(audited, tmp_path / "pool", "predicted", lambda rows: -np.arange(len(rows), dtype=float))
    recipe, settings, _ = audited
    images = open_pool(str(tmp_path / "pool"), "predicted", recipe, settings).images
    answers = answers_of([images], {"lab:resnet10t": class_map_of(recipe, "lab:resnet10t")}, recipe, "cpu")[
        "lab:resnet10t"
    ]
    names = answers.class_map.label_names
    assert names is not None
    given = [names[output] for output in answers.predictions.prediction.tolist()]
    for label, name in enumerate(("t-shirt", "sandal")):
        own = [row for row, one in enumerate(given) if one == name]
        assert len(own) > 5
        assert found.hardest.rows[label].tolist() == own[::-1][:5]
    assert found.origin.labels == "predicted"
