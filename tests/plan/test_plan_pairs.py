"""Samples that are drawn beside their base know its prompt, and cost two images."""

from __future__ import annotations

import pytest

from counterfoil.plan import Plan, Sample, estimate, make_plan, rendered_budget
from counterfoil.recipe import load_recipe

BESIDE = "samples.pairs=attention"
TOKENS = {f"{label:02d}": f"<token-{label}>" for label in range(10)}


def plan_of(*changes: str) -> Plan:
    return make_plan(load_recipe("wardrobe-mini", changes), TOKENS)


def samples_of(plan: Plan) -> list[Sample]:
    return [sample for shard in plan.shards for sample in shard.samples(plan)]


def test_a_sample_of_a_shift_knows_the_prompt_of_its_base_with_its_class_token() -> None:
    samples = samples_of(plan_of(BESIDE))
    bases = {sample.pair: sample for sample in samples if sample.shift == "base"}
    shifted = [sample for sample in samples if sample.shift != "base"]
    assert all(sample.base_prompt is None for sample in bases.values())
    assert all(sample.base_prompt == bases[sample.pair].prompt != sample.prompt for sample in shifted)
    assert all(sample.seed == bases[sample.pair].seed for sample in shifted)
    assert "<token-3>" in {sample.class_id: sample.base_prompt or "" for sample in shifted}["03"]


def test_without_it_nobody_knows_of_a_base() -> None:
    assert {sample.base_prompt for sample in samples_of(plan_of())} == {None}


@pytest.mark.parametrize(("shift", "class_id"), [("base", "00"), ("nowhere", "00"), ("red", "none")])
def test_what_is_no_shifted_sample_of_the_plan_has_no_base(shift: str, class_id: str) -> None:
    assert plan_of(BESIDE).base_prompt(shift, class_id) is None


def test_an_image_beside_its_base_costs_two_and_is_told() -> None:
    plain, beside = estimate(plan_of(), 4.0), estimate(plan_of(BESIDE), 4.0)
    assert plain.seconds is not None and beside.seconds is not None
    assert (plain.seconds, beside.seconds) == (1200 / 4, (200 + 2 * 1000) / 4)
    assert (beside.images, beside.files) == (plain.images, plain.files)
    assert "1,000 images are drawn beside their base, so that each costs two" in beside.assumptions[2]
    assert "beside" not in plain.assumptions[2]


MINED = {"confirm": "{confirm: rendered}", "bugs": "{method: bugs, settings: {captioner: lab:captioner}}"}


@pytest.mark.parametrize("mine", MINED)
def test_images_that_mining_asks_for_cost_two_but_for_their_base(mine: str) -> None:
    plain = rendered_budget(load_recipe("wardrobe-mini", [f"mine={MINED[mine]}"]), 1.0)
    beside = rendered_budget(load_recipe("wardrobe-mini", [f"mine={MINED[mine]}", BESIDE]), 1.0)
    assert plain is not None and beside is not None
    assert (beside.images, beside.hypothesis_images) == (plain.images, plain.hypothesis_images)
    assert beside.hypothesis_seconds == 1.5 * (plain.hypothesis_seconds or 0)
    assert (plain.finding_images, plain.finding_seconds) == ((1024, 1024.0) if mine == "bugs" else (0, None))
    assert (beside.finding_seconds or 0) == 1.5 * (plain.finding_seconds or 0)
    assert (plain.seconds or 0) < (beside.seconds or 0) <= 2 * (plain.seconds or 0)
