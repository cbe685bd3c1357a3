"""Rows of several conditions: each is a question of its own, tested on the confirm half's patients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from mined_scenes import PLACES, save_split
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.lab.world import Scene, load_garments
from counterfoil.mining.audited import audit_target
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.recipe import Recipe, load_recipe

CONDITIONS = ("Striped", "Flower")
CAPTIONS = """
captions:
  - a photo of a shirt in the beach
  - a photo of a shirt in the snow
  - a photo of a shirt on the road
  - a photo of a shirt in the forest
  - a photo of a red shirt
reference: a photo of a shirt
"""


def patients(first: int, count: int) -> list[Scene]:
    """Two pictures of each garment, which is striped or not in both, each with a flower or without."""
    rng = np.random.default_rng(first)
    shirts = np.flatnonzero(load_garments("audit").labels == 6).tolist()
    found = []
    for number in range(first, first + count):
        pattern = "striped" if rng.random() < 0.5 else "plain"
        for picture in range(2):
            place = "beach" if rng.random() < 0.4 else PLACES[int(rng.integers(1, len(PLACES)))]
            companion = "flower" if rng.random() < 0.4 else "none"
            seed = 2 * number + picture
            found.append(Scene("audit", shirts[number], 6, "blue", pattern, place, companion=companion, seed=seed))
    return found


AUDITED, POOL, TRAIN = patients(0, 90), patients(130, 30), patients(170, 12)


def present(scene: Scene) -> tuple[bool, bool]:
    return scene.pattern == "striped", scene.companion == "flower"


def scored(scene: Scene) -> tuple[float, float]:
    """Stripes are missed on the beach, and sometimes elsewhere; flowers are missed by chance alone."""
    striped, flower = present(scene)
    unlucky = np.random.default_rng(scene.seed).random(2)
    missed = unlucky[0] < (0.9 if scene.background == "beach" else 0.05)
    stripes = 0.3 if not striped else 0.1 if missed else 0.8
    return stripes + unlucky[1] / 100, 0.9 if flower != (unlucky[1] < 0.1) else 0.2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    (folder.parent / "captions.yaml").write_text(CAPTIONS)
    for split, shown in (("validation", AUDITED), ("test", POOL), ("train", TRAIN)):
        columns = {name: [int(present(one)[k]) for one in shown] for k, name in enumerate(CONDITIONS)}
        save_split(folder, split, shown, patient=[one.garment for one in shown], **columns)
    lines = ["key,Flower,Striped"]  # in another order than the recipe's
    lines += [f"validation_{row:08d},{scored(one)[1]},{scored(one)[0]}" for row, one in enumerate(AUDITED)]
    (folder.parent / "answers.csv").write_text("\n".join(lines) + "\n")
    perfect = [f"validation_{row:08d},{present(one)[1]:d},{present(one)[0]:d}" for row, one in enumerate(AUDITED)]
    (folder.parent / "perfect.csv").write_text("\n".join([lines[0], *perfect]) + "\n")
    return folder


def sets(world: Path) -> list[str]:
    names = ("striped", "no stripes", "flower", "no flower")
    classes = ", ".join(f"{{id: c{label}, name: {name}, source_label: {label}}}" for label, name in enumerate(names))
    return [
        f"source.dataset={world}", f"source.classes=[{classes}]", "tokens=null", "source.unit_column=patient",
        "source.conditions={columns: [Striped, Flower]}", "mine.on=[validation]",
        f"mine.others=['predictions:{world.parent / 'perfect.csv'}']",
        f"mine.target=predictions:{world.parent / 'answers.csv'}",
        f"mine.settings={{captions: {world.parent / 'captions.yaml'}, permutations: 5}}",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def result(world: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    out = tmp_path_factory.mktemp("mined")
    return mine(
        "wardrobe-mini", out, overrides=sets(world), device="cpu", workers=1, pool="test", pool_rows=5, weights=True
    )


def recipe_of(world: Path, *more: str) -> Recipe:
    return load_recipe("wardrobe-mini", [*sets(world), *more])


def test_what_a_condition_fails_in_is_found_for_those_that_have_it(result: MineResult) -> None:
    findings = result.findings
    assert [one.name for one in findings.classes] == ["striped", "no stripes", "flower", "no flower"]
    first = next(one for one in findings.confirmed if one.role == "hard")
    assert first.class_names == ("striped",)
    assert "beach" in first.caption
    assert (first.set.rate or 0) - (first.rest.rate or 0) > 0.4
    # Of those without stripes none is wrong: no score of theirs comes near the threshold.
    assert findings.classes[1].errors == 0
    assert findings.classes[1].reason == "no errors"
    assert {one.class_names for one in findings.confirmed} == {("striped",)}
    assert {one.answered for one in first.evidence if one.failed} == {"no stripes"}
    assert {one.answered for one in first.evidence if not one.failed} == {"striped"}


def test_other_classifiers_have_thresholds_of_their_own(result: MineResult) -> None:
    for one in result.findings.findings:
        (other,) = one.others
        assert (other.set.rate, other.rest.rate) == (0, 0)


def test_each_condition_counts_every_row_once(result: MineResult) -> None:
    rows = [one.rows for one in result.findings.classes]
    truth = np.asarray([present(one) for one in AUDITED])
    assert rows == [truth[:, 0].sum(), (~truth[:, 0]).sum(), truth[:, 1].sum(), (~truth[:, 1]).sum()]
    halves = result.findings.halves
    assert halves is not None
    assert halves.discover.rows + halves.confirm.rows == len(AUDITED)
    assert halves.discover.units + halves.confirm.units == len(AUDITED) // 2  # patients


def test_thresholds_are_of_the_discover_half_alone_and_are_told(world: Path, result: MineResult) -> None:
    """Other answers on the confirm half change no threshold."""
    recipe = recipe_of(world)
    assert recipe.mine is not None
    audits, _, _ = audit_target(recipe, recipe.mine, "cpu")
    confirm = {audits[0].keys[row] for row in audits[0].halves.confirm.tolist()}
    lines = (world.parent / "answers.csv").read_text().splitlines()
    changed = [f"{line.split(',')[0]},0.5,0.5" if line.split(",")[0] in confirm else line for line in lines]
    (world.parent / "other.csv").write_text("\n".join(changed) + "\n")
    again = recipe_of(world, f"mine.target=predictions:{world.parent / 'other.csv'}")
    assert again.mine is not None
    others, _, _ = audit_target(again, again.mine, "cpu")
    told = result.findings.target.about["thresholds"]
    assert told == audits[0].target.about["thresholds"] == others[0].target.about["thresholds"]
    assert list(told) == list(CONDITIONS)
    assert not np.array_equal(audits[1].failed, others[1].failed)
    assert "best F1 on the discover half" in result.files["report"].read_text()


def test_the_layer_and_the_vectors_name_the_classes_of_the_condition(result: MineResult) -> None:
    recipe = load_recipe(result.files["recipe"])
    hard = [shift for shift in recipe.prompts.shifts.values() if shift.group == "hard"]
    assert [shift.classes for shift in hard] == [("c0",)] * len(hard)
    assert hard
    from safetensors.numpy import load

    vectors = load(result.files["vectors"].read_bytes())
    assert "c0_weights" in vectors
    assert "c1_weights" not in vectors


def test_rows_of_a_pool_and_weights_go_by_condition(result: MineResult) -> None:
    pool = result.pool
    assert pool is not None
    chosen = [POOL[row] for row in pool.hardest.rows[0].tolist()]
    assert len(chosen) == 5
    assert all(one.pattern == "striped" for one in chosen)
    assert np.mean([one.background == "beach" for one in chosen]) >= 0.8
    assert 1 not in pool.hardest.rows
    # A row is two classes, one a condition; which of them have a direction is told by the rows that they gave.
    labels = [{0 if present(one)[0] else 1, 2 if present(one)[1] else 3} for one in POOL]
    assert pool.hardest.unlabelled == sum(not own & set(pool.hardest.rows) for own in labels)
    recipe = load_recipe(result.files["pool"])
    assert recipe.source.conditions is not None
    table = pq.read_table(result.files["weights"])
    assert table.column_names == ["key", "row", *CONDITIONS]
    heavy = [one for one, weight in zip(TRAIN, table["Striped"].to_pylist(), strict=True) if weight == 2]
    assert heavy
    assert all(one.pattern == "striped" for one in heavy)


def test_images_rendered_for_one_condition_test_nothing(world: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="draws images of one class each, and rows here have conditions"):
        mine("wardrobe-mini", tmp_path, overrides=sets(world), device="cpu", confirm="rendered")


def test_what_ranks_answers_is_no_rule_for_a_condition(world: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a condition is answered yes or no"):
        mine("wardrobe-mini", tmp_path, overrides=[*sets(world), "mine.failure=top3"], device="cpu")


def test_the_command_prints_findings_of_conditions(world: Path, tmp_path: Path) -> None:
    options = [part for one in sets(world) for part in ("--set", one)]
    command = ["mine", "wardrobe-mini", "--out", str(tmp_path), *options, "--device", "cpu", "--workers", "1", "--json"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["classes"][0]["name"] == "striped"
