"""The proof of directions: its worlds, and the intervals over worlds that all proofs share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from counterfoil.lab.planted import named_world
from counterfoil.stats import clustered_interval
from directions_proof import power
from directions_proof.absences import Planted
from directions_proof.intervals import ANY, FEWEST, SHARE, mean_of, rank_correlation, share_of
from directions_proof.plan import ABSENCES, ABSENCES_SETTINGS, FULL, INTERVENED, SETTINGS, STRENGTHS
from directions_proof.power import difference_of_words, holds, plant


def test_every_world_is_one_and_no_printed_one_chose_a_setting() -> None:
    names = {*FULL, *STRENGTHS, *INTERVENED, *SETTINGS, *ABSENCES, *ABSENCES_SETTINGS}
    worlds = {name: named_world(name) for name in names}
    assert all(worlds.values())
    printed = {*FULL, *STRENGTHS, *INTERVENED, *ABSENCES}
    assert all(
        world.seed >= 100 for name, world in worlds.items() if world is not None and name in printed
    )
    assert all(
        world.seed < 4
        for name, world in worlds.items()
        if world is not None and name not in printed
    )
    of_strengths = [worlds[name] for name in STRENGTHS]
    strengths = [world.strength for world in of_strengths if world is not None]
    assert {strengths.count(strength) for strength in strengths} == {3}


@pytest.mark.parametrize("worlds", [5, 20])
def test_an_interval_of_few_worlds_covers(worlds: int) -> None:
    """Bootstraps over six worlds cover 88 %, over five 86 %."""
    rng = np.random.default_rng(0)
    estimates = [mean_of(rng.normal(0.5, 0.1, worlds).tolist()) for _ in range(1000)]
    assert np.mean(
        [estimate.low <= 0.5 <= estimate.high for estimate in estimates]
    ) == pytest.approx(0.95, abs=0.025)


def test_fewer_than_five_worlds_have_no_brackets() -> None:
    few = [0.2, 0.4, 0.6, 0.5]
    assert len(few) == FEWEST - 1
    assert (mean_of(few).text(), mean_of(few).text(percent=True), mean_of(few).points()) == (
        "0.43",
        "43 %",
        "+42.5",
    )
    assert share_of([(1, 2)] * 4).text() == "0.50"
    assert rank_correlation([(1, 2), (2, 1), (3, 3), (4, 4)]).text() == "0.80"
    assert mean_of([0.7] * 5).text() == "0.70", "worlds that do not differ tell no spread"


def test_an_interval_ends_where_what_is_possible_ends() -> None:
    wide = [0.0, 0.0, 0.9, 1.0, 1.0]
    assert (mean_of(wide, SHARE).low, mean_of(wide, SHARE).high) == (
        pytest.approx(0.0, abs=0.05),
        1.0,
    )
    assert mean_of(wide, ANY).high > 1
    assert mean_of(wide).text() == "0.58 (-0.08 to 1.00)"
    always = mean_of([1.0] * 16, SHARE)
    assert (always.low, always.high) == clustered_interval(np.ones(16), np.ones(16)), (
        "16 of 16 are no certainty"
    )


def test_counts_are_summed_over_worlds_and_worlds_without_any_say_nothing() -> None:
    assert share_of([(1, 2), (0, 6), (0, 0)]).value == pytest.approx(1 / 8)
    nothing = share_of([(0, 0), (0, 0)])
    assert not np.isfinite(nothing.value) and nothing.text() == "–"
    assert share_of([]).text() == "–"


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    left = rng.random(24)
    right = left + 0.2 * rng.random(24)
    correlation = rank_correlation(list(zip(left.tolist(), right.tolist(), strict=True)))
    assert correlation.value == pytest.approx(spearmanr(left, right)[0])
    assert correlation.low < correlation.value <= correlation.high


def _attributes(rng: np.random.Generator, rows: int = 4000) -> dict[str, np.ndarray]:
    """Draw two in five against a wall, three rows in a hundred striped, ten colours."""
    return {
        "background": rng.choice(["wall", "beach", "road", "wood"], rows, p=[0.4, 0.3, 0.15, 0.15]),
        "pattern": rng.choice(["plain", "striped"], rows, p=[0.97, 0.03]),
        "colour": rng.choice(list("abcdefghij"), rows),
    }


def test_a_cell_is_of_a_band_and_fails_by_its_gap() -> None:
    rng = np.random.default_rng(0)
    attributes = _attributes(rng)
    failed = rng.random(4000) < 0.08
    bands = set()
    for _ in range(60):
        cell = plant(failed, attributes, rng)
        if cell is None:
            continue
        members = holds(attributes, cell["cell"])
        (band,) = [band for band in power.SHARES if band[0] <= members.mean() < band[1]]
        bands.add(band)
        rate = failed[members].mean()
        rate += (1 - rate) * cell["chance"]
        assert rate - failed[~members].mean() == pytest.approx(cell["gap"])
        assert cell["share"] == members.mean() and cell["cell"].get("pattern") != "plain"
    assert bands == set(power.SHARES)
    # Where the rest fails always, no cell can fail more.
    assert all(
        cell is None or cell["gap"] == 0
        for cell in (plant(np.ones(4000, bool), attributes, rng) for _ in range(40))
    )


def test_words_are_worth_what_they_change() -> None:
    attributes = _attributes(np.random.default_rng(1))
    share = (attributes["background"] == "beach").mean()
    beach = {"background": "beach"}
    red = {"colour": "a"}
    assert difference_of_words(attributes, beach, 0.4, beach, "hard") == pytest.approx(0.4)
    both = difference_of_words(attributes, beach, 0.4, beach | red, "hard")
    assert 0.4 * (1 - share) - 0.02 < both < 0.4
    assert difference_of_words(attributes, beach, 0.4, red, "hard") == 0
    # "Not on the road": scenes put on the road are on the beach no more.
    elsewhere = difference_of_words(attributes, beach, 0.4, {"background": "road"}, "far_from")
    assert elsewhere == pytest.approx(
        0.4 * share / (1 - (attributes["background"] == "road").mean())
    )
    assert difference_of_words(attributes, beach, 0.4, beach, "far_from") == pytest.approx(-0.4)
    assert difference_of_words(attributes, beach, 0.4, {}, "hard") == 0


def test_what_not_x_changes_by_itself_is_told_of_the_same_scenes() -> None:
    scenes = [
        {"background": background, "colour": "red"}
        for background in ("snow", "wall", "wall", "beach")
    ]
    snow = Planted("background", "snow", "with", 0.3)
    assert snow.difference(scenes, {"background": "snow"}, "hard") == {"value": pytest.approx(0.3)}
    # Of the three scenes off the beach one is in the snow, and fails no more where it is put on the
    # beach.
    assert snow.difference(scenes, {"background": "beach"}, "far_from") == {
        "value": pytest.approx(0.1)
    }
    assert snow.difference(scenes, {"colour": "blue"}, "far_from") == {"value": 0}
    assert snow.difference(scenes, {"colour": "red"}, "hard") is None, "no scene differs"
    off_the_wall = Planted("background", "wall", "without", 0.3)
    assert off_the_wall.difference(scenes, {"background": "wall"}, "far_from") == {
        "value": pytest.approx(0.3)
    }
    assert off_the_wall.difference(scenes, {"background": "wall"}, "hard") == {
        "value": pytest.approx(-0.3)
    }
