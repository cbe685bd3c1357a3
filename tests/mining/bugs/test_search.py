"""A search for bugs finds what is there in short words, confirms nothing where nothing is, and stops in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from synthetic_world import World, colour, place

from counterfoil.errors import UserError
from counterfoil.mining.bugs.descriptions import Description
from counterfoil.mining.bugs.search import BugSearch, search_bugs
from counterfoil.recipe.schema_mine import BugsSettings, Mine

NAMES = ("sandal", "coat")
SNOW = Description((place("in the snow"),))


def found(world: World, labels: Sequence[int] = (0, 1), fdr: float = 0.1, **settings: object) -> BugSearch:
    chosen = BugsSettings.model_validate({"captioner": "lab:captioner"} | settings)
    return search_bugs(labels, NAMES, world.draw, world.look, world.describe, Mine(method="bugs", fdr=fdr), chosen)


def snow(label: int, where: str, which: str) -> float:
    return 0.7 if label == 0 and where == "in the snow" else 0.05


def described(search: BugSearch, names: Sequence[str]) -> set[tuple[int, Description]]:
    return {(one.hypothesis.label, one.hypothesis.description) for one in search.tested if one.hypothesis.name in names}


def test_a_planted_failure_is_confirmed_in_its_shortest_words() -> None:
    search = found(World(snow))
    standing = search.confirmed - search.shortened_to.keys()
    assert (0, SNOW) in described(search, sorted(standing))
    assert all("in the snow" in {piece.words for piece in one.pieces} for _, one in described(search, sorted(standing)))
    assert {label for label, _ in described(search, sorted(standing))} == {0}


def test_a_failure_beside_words_that_hide_it_is_found_by_its_own() -> None:
    def hidden(label: int, where: str, which: str) -> float:
        return 0.0 if which == "red" else 0.8 if where == "in the snow" else 0.1

    both = Description((colour("red"), place("in the snow")))
    search = found(World(hidden, say=lambda seen: both), (0,))
    standing = described(search, sorted(search.confirmed - search.shortened_to.keys()))
    assert standing == {(0, SNOW)}
    (whole,) = [one for one in search.tested if one.hypothesis.description == both]
    assert whole.state == "futile" and whole.hypothesis.name not in search.shortened_to
    assert not described(found(World(hidden, say=lambda seen: both), (0,), shorten=False), sorted(search.confirmed))


def test_nothing_is_confirmed_in_most_worlds_without_a_failure_of_their_own() -> None:
    # Each image fails one time in five, whatever it shows. The run's share of false findings is at most 0.1.
    worlds = [World(lambda *_: 0.2, seed=seed) for seed in range(16)]
    confirmed = [bool(found(world, (0,), baseline=32, pairs=64).confirmed) for world in worlds]
    assert np.mean(confirmed) <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / 16)


def test_every_round_has_noise_of_its_own_and_words_come_before_their_images() -> None:
    world = World(snow)
    search = found(world)
    numbers = [asked.number for asked in world.rounds]
    assert numbers == list(range(1, len(numbers) + 1)) == [one.asked.number for one in search.rounds]
    described_from = {key.partition("/base")[0] for one in search.tested for key in one.hypothesis.evidence}
    assert described_from == {"rounds/01"}
    tested_on = {pairs.drawn.asked.name for one in search.tested for pairs in one.pairs}
    assert "rounds/01" not in tested_on


def test_the_same_world_gives_the_same_search() -> None:
    one, other = found(World(snow)), found(World(snow))
    assert [each.looks for each in one.tested] == [each.looks for each in other.tested]
    assert one.confirmed == other.confirmed and one.shortened_to == other.shortened_to


def test_pairs_are_of_one_noise_and_both_accepted() -> None:
    search = found(World(snow, accepted=0.7))
    for one in search.tested:
        for pairs in one.pairs:
            drawn = pairs.drawn
            assert np.array_equal(drawn.indices[pairs.own], drawn.indices[pairs.base])
            assert (drawn.shifts[pairs.base] == 0).all() and (drawn.labels[pairs.base] == one.hypothesis.label).all()
            assert len(pairs.own) <= drawn.asked.candidates
    assert any(one.count.pairs for one in search.tested)


def test_no_more_is_drawn_than_the_budget_has() -> None:
    world = World(snow)
    found(world, images=400)
    assert sum(asked.images for asked in world.rounds) <= 400


def test_a_class_that_fails_more_than_half_the_time_is_left_out_with_a_hint_at_tokens() -> None:
    search = found(World(lambda label, *_: 0.9 if label == 1 else 0.1))
    by_label = {one.label: one for one in search.baseline}
    assert "tokens" in (by_label[1].reason or "") and by_label[0].reason is None
    assert all(one.hypothesis.label == 0 for one in search.tested)


def test_a_class_that_the_screen_never_accepts_is_left_out() -> None:
    search = found(World(snow, accepted=0.0))
    assert all("accepts 0 of 64" in (one.reason or "") for one in search.baseline)
    assert not search.tested and len(search.rounds) == 1


def test_a_base_without_a_failure_ends_the_search_with_the_bound_that_it_implies() -> None:
    search = found(World(lambda *_: 0.0))
    assert [one.interval for one in search.baseline] == [(0.0, pytest.approx(1 - 0.025 ** (1 / 64)))] * 2
    assert all("no failure in 64" in (one.reason or "") for one in search.baseline)
    assert not search.tested


def test_a_captioner_that_says_nothing_leaves_a_reason_and_no_hypothesis() -> None:
    search = found(World(snow, say=lambda seen: None))
    assert not search.tested and search.undescribed
    assert all(reason == "says nothing of these images" for _, reason in search.undescribed)


def test_a_captioner_that_always_says_the_same_makes_one_hypothesis_a_class() -> None:
    always = Description((colour("red"),))
    search = found(World(snow, say=lambda seen: always), shorten=False)
    assert [one.hypothesis.description for one in search.tested] == [always] * len(search.tested)
    assert len({one.hypothesis.label for one in search.tested}) == len(search.tested)


def test_a_budget_that_could_confirm_nothing_is_refused_in_numbers() -> None:
    with pytest.raises(UserError, match=r"8 pairs cannot confirm") as refused:
        found(World(snow), fdr=0.001, pairs=8, batch=8)
    assert "pairs" in str(refused.value)


def test_an_estimate_is_of_images_that_entered_no_test() -> None:
    search = found(World(snow), until=10, images=20_000)
    assert search.estimates.keys() <= search.confirmed
    for name, estimate in search.estimates.items():
        drawn = next(one for one in search.rounds if one.asked.purpose == "until" and name in one.asked.cells)
        assert estimate.reached and drawn.asked.name not in {
            pairs.drawn.asked.name for one in search.tested for pairs in one.pairs
        }
        assert estimate.interval[0] <= 0.7 <= estimate.interval[1]
