"""A preview of a recipe: fewer samples and classes, and these are the whole recipe's own."""

from __future__ import annotations

from itertools import pairwise

import pytest

from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.recipe import load_recipe
from counterfoil.recipe.prompts import BASE


def samples(plan: Plan) -> dict[str, Sample]:
    return {sample.key: sample for cell in plan.cells() for sample in plan.samples(cell)}


def sizes(limit: int, *changes: str) -> dict[str, dict[int, int]]:
    """Return shift → label → samples of a preview of wardrobe-mini, whose ten classes have 20
    candidates each."""
    plan = make_plan(load_recipe("wardrobe-mini", [*changes, f"samples.limit={limit}"]))
    counts: dict[str, dict[int, int]] = {}
    for cell in plan.cells():
        counts.setdefault(cell.shift, {})[cell.label] = cell.candidates
    return counts


@pytest.mark.parametrize("limit", [1, 3, 10, 40, 47, 100_000])
def test_a_preview_has_the_first_samples_of_the_whole(limit: int) -> None:
    whole, preview = (
        samples(make_plan(load_recipe("wardrobe-mini", changes)))
        for changes in ([], [f"samples.limit={limit}"])
    )
    assert preview and all(whole[key] == sample for key, sample in preview.items())
    indices: dict[tuple[str, str], list[int]] = {}
    for sample in preview.values():
        indices.setdefault((sample.shift, sample.class_id), []).append(sample.index)
    assert all(cell == list(range(len(cell))) for cell in indices.values())
    if limit > len(whole):
        assert preview.keys() == whole.keys()


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 39, 40])
def test_no_shift_has_more_images_and_all_have_the_base_s_pairs(limit: int) -> None:
    counts = sizes(limit)
    base = counts.pop(BASE)
    assert sum(base.values()) == (limit if limit < 10 else limit // 10 * 10)
    assert all(of_shift == base for of_shift in counts.values())
    places = sorted(base)
    gaps = {after - before for before, after in pairwise(places)}
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_a_shift_of_other_classes_keeps_one_and_the_base_has_it() -> None:
    counts = sizes(2, "prompts.shifts.red.classes=['09', '08']")
    assert set(counts["at_night"]) == {0, 5} and set(counts["red"]) == {8}
    assert set(counts[BASE]) == {0, 5, 8}


def test_a_quota_keeps_its_share_of_candidates() -> None:
    plan = make_plan(
        load_recipe(
            "wardrobe-mini", ["samples={candidates: null, accepted: 9, at_most: 31, limit: 40}"]
        )
    )
    assert {(cell.accepted, cell.candidates) for cell in plan.cells()} == {(4, 14)}


def test_the_limit_is_part_of_what_the_dataset_is() -> None:
    preview, other = (load_recipe("wardrobe-mini", [f"samples.limit={n}"]) for n in (40, 41))
    assert preview.plan_hash != other.plan_hash
    assert "limit: 40" in preview.portable_yaml
