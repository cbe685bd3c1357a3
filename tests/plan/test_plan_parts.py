"""Parts of a plan: together they are the plan, no shard is in two, and what is no part is refused in words."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.plan import PlanPart, make_plan
from counterfoil.recipe import load_recipe


@given(of=st.integers(1, 40), shards=st.integers(0, 200))
def test_every_shard_is_in_one_part_and_parts_are_of_one_size(of: int, shards: int) -> None:
    parts = [[place for place in range(shards) if PlanPart(number, of).holds(place)] for number in range(1, of + 1)]
    assert sorted(place for part in parts for place in part) == list(range(shards))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(b - a == of for part in parts for a, b in pairwise(part))


def test_a_part_is_given_as_text_or_as_two_numbers() -> None:
    assert PlanPart.given("3/16") == PlanPart.given((3, 16)) == PlanPart(3, 16)
    assert PlanPart.given(str(PlanPart(3, 16))) == PlanPart(3, 16)


@pytest.mark.parametrize(
    "wrong",
    ["3/2", "0/4", "a/b", "", "3", "3/", "-1/4", "1/0", "1.0/2", " 1/2", "1/2\n", "٣/٤", "1/9999999999", (0, 1)],
)
def test_what_is_no_part_is_refused_in_words(wrong: str | tuple[int, int]) -> None:
    with pytest.raises(UserError, match="expected K/N with K from 1 to N"):
        PlanPart.given(wrong)


def test_the_shards_of_all_parts_are_those_of_the_plan_without_the_finished() -> None:
    plan = make_plan(load_recipe("wardrobe-mini", ["output.rows_per_shard=7", "samples.candidates=3"]))
    shards = list(plan.shards)
    done = {(shard.group, shard.number) for shard in shards[::4]}
    parts = [list(plan.shards_without(done, PlanPart(number, 3))) for number in (1, 2, 3)]
    assert sorted(shards.index(shard) for part in parts for shard in part) == [
        place for place in range(len(shards)) if place % 4
    ]
    assert all(shards.index(shard) % 3 == number for number, part in enumerate(parts) for shard in part)
