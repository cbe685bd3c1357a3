"""The layer of what classifiers get wrong: over mining's own, with noise, quota and rules of its own; it builds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from counterfoil.building import build
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.mining.bugs.adversarial import adversarial_layer
from counterfoil.mining.findings_layer import mined_shift, seed_for, shifts_layer
from counterfoil.plan import judged_quotas, make_plan, spoken_quotas
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm
from counterfoil.verification import verify
from tiny_builds import TINY

TARGET, OTHER = "lab:resnet10t", "lab:lcnet_035"
QUOTA: dict[str, Any] = {"accepted": 2, "at_most": 8, "method": "bugs", "seed": 4}


def told(role: str, rate: float | None = 0.25, failure: str = "top1") -> dict[str, Any]:
    set_rate = {} if rate is None else {"set": {"rate": rate, "rows": 40}}
    return {
        "failure": failure,
        "finding": "f",
        "words": "red things",
        "role": role,
        "target": {"name": TARGET},
        **set_rate,
    }


def write_mined(folder: Path, *, hard: bool = True, failure: str = "top1") -> Path:
    """Mining's layer in `folder`: a failure of two classes, one of a class with numbers of its own, and an easy one."""
    recipe = load_recipe("wardrobe-mini", TINY)
    by_id = {cls.id: cls for cls in recipe.classes}
    shirts, bag = [by_id["00"], by_id["05"]], [by_id["08"]]
    shifts: dict[str, dict[str, Any]] = {
        "red_hard": mined_shift("a photo of a red {class}", None, "hard", shirts, told("hard", failure=failure)),
        "snow_hard": mined_shift("a photo of a {class} in the snow", None, "hard", bag, told("hard", None))
        | {"samples": {"candidates": 3}, "keep": ["thresholds"]},
    }
    easy = {"red_easy": mined_shift("a photo of a {class} at night", None, "easy", shirts, told("easy", None))}
    changes = {"samples": {"seed": 12}, "name": "wardrobe-mini-mined"}
    folder.mkdir(parents=True, exist_ok=True)
    text = shifts_layer(shifts | easy if hard else easy, changes, recipe, "wardrobe-mini", TINY, folder)
    (folder / "recipe.yaml").write_text(text)
    return folder / "recipe.yaml"


def write_layer(folder: Path, targets: tuple[str, ...] = (TARGET,), **changes: Any) -> Recipe:
    mined = write_mined(folder, failure=changes.get("failure", "top1"))
    (folder / "adversarial.yaml").write_text(adversarial_layer(mined, targets, folder, **QUOTA | changes))
    return load_recipe(folder / "adversarial.yaml")


def test_it_is_a_layer_over_minings_own(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path, (TARGET, OTHER), at_least=2)
    assert "extends: ./recipe.yaml\n" in (tmp_path / "adversarial.yaml").read_text()
    below = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.name == "wardrobe-mini-mined-adversarial"
    base, *shifts = recipe.all_shifts()
    assert [shift.name for shift in shifts] == ["red_hard", "snow_hard"], "what is easy stays out"
    for shift in shifts:
        assert (shift.accepted, shift.candidates, shift.kind) == (2, 8, "mined"), "whatever a shift said itself"
        judging = [rule for rule in shift.keep if rule.judges()]
        assert [(rule.judges(), rule.model_dump()["at_least"]) for rule in judging] == [((TARGET, OTHER), 2)]
        inherited = below.prompts.shifts[shift.name]
        assert recipe.prompts.shifts[shift.name].mined_from == inherited.mined_from
        assert shift.prompt == inherited.prompt
    assert all(not rule.judges() for rule in base.keep) and base.accepted == 2


def test_its_noise_is_its_own(tmp_path: Path) -> None:
    changes: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((TARGET,), {}),
        ((OTHER,), {}),
        ((TARGET, OTHER), {}),
        ((TARGET,), {"seed": 5}),
        ((TARGET,), {"method": "directions"}),
    ]
    seeds = [write_layer(tmp_path, *each[:1], **each[1]).samples.seed for each in changes]
    others = [seed_for(12, purpose, "bugs", TARGET, 4) for purpose in ("layer", "confirm")]
    assert len({12, *seeds, *others}) == len(changes) + 3
    assert write_layer(tmp_path, (TARGET,)).samples.seed == seeds[0]


@pytest.mark.parametrize("failure", ["top1", "top3", "answered:05"])
def test_it_keeps_and_is_priced_by_the_failure_rule_of_the_run(failure: str, tmp_path: Path) -> None:
    recipe = write_layer(tmp_path, failure=failure)
    rules = [rule for shift in recipe.all_shifts() for rule in shift.keep if rule.judges()]
    assert {rule.model_dump()["failure"] for rule in rules} == {failure}
    assert ("failure" in (tmp_path / "adversarial.yaml").read_text()) == (failure != "top1")
    assert judged_quotas(recipe)[0].rate == 0.25, "found by the same rule"


def test_without_a_failure_nothing_is_collected(tmp_path: Path) -> None:
    mined = write_mined(tmp_path, hard=False)
    with pytest.raises(UserError, match="no shift that was found to fail"):
        adversarial_layer(mined, (TARGET,), tmp_path, **QUOTA)


def test_a_target_in_a_folder_is_found_from_wherever_the_layer_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    recipe = write_layer(tmp_path / "deep" / "out", ("local-dir:./model",))
    assert recipe.judges == (f"local-dir:{os.path.realpath(tmp_path / 'model')}",)


def test_check_prices_it(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path)
    red, snow = judged_quotas(recipe)
    assert (red.cells, red.rate, red.candidates_each, red.candidates_a_cell) == (2, 0.25, 4, 8)
    assert (snow.cells, snow.rate, snow.candidates_each) == (1, None, None)
    plan = make_plan(recipe)
    assert sum(one.cells * one.at_most for one in (red, snow)) == plan.n_samples - 8 * 3, "the base is drawn besides"
    assert spoken_quotas((red, snow)) == (
        "at most 8 candidates a cell, 24 in all, until 2 are kept that lab:resnet10t gets wrong; at the failure rates"
        " that mined_from tells (25 %) a kept image takes about 4 candidates that pass the screen, a cell about 8;"
        " 1 of 2 shifts tell no rate."
    )


def test_it_builds_and_rows_hold_what_the_judge_answered(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path)
    build(tmp_path / "adversarial.yaml", tmp_path / "d", device="cpu", workers=1)
    form = TableForm.of(recipe)
    columns = ["shift", "class_id", "reason", *form.added]
    rows = [
        row
        for receipt in read_receipts(tmp_path / "d")
        for row in read_shard(tmp_path / "d", receipt, columns, "candidates", form)
        if row["shift"] != "base"
    ]
    cells = {(row["shift"], row["class_id"]) for row in rows}
    assert cells == {("red_hard", "00"), ("red_hard", "05"), ("snow_hard", "08")}
    kept = dict.fromkeys(cells, 0)
    for row in rows:
        assert row["resnet10t_answer"] is not None and row["resnet10t_right"] in (True, False)
        assert (row["reason"] in ("accepted", "surplus")) == (row["resnet10t_right"] is False)
        kept[row["shift"], row["class_id"]] += row["reason"] == "accepted"
    assert sum(kept.values()) and max(kept.values()) <= 2
    assert verify(tmp_path / "d").problems == ()
    card = (tmp_path / "d" / "README.md").read_text()
    assert "## Chosen because a model failed" in card and f"**: `{TARGET}`." in card
    [transfer] = evaluate(tmp_path / "d", [TARGET, "lab:resnet14t"], device="cpu", out=tmp_path / "out").transfer
    assert transfer.images == sum(kept.values())
