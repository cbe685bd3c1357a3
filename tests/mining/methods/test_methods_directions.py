"""Directions as hypotheses, on made vectors whose failures are known; and names that a recipe takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.mining.confirmation import LabelledRows, confirm, count_hypothesis
from counterfoil.mining.method import CandidateCaptions, DiscoverHalf, Found
from counterfoil.mining.methods import METHODS
from counterfoil.mining.methods.directions import find_directions
from counterfoil.mining.shift_names import slugs
from counterfoil.recipe.names import group_name_problem
from counterfoil.recipe.schema_mine import METHOD_SETTINGS, DirectionsSettings, Mine

WIDTH, ROWS = 24, 240
# What every caption of the class says, and three contexts that images and captions may have.
AXES = np.eye(WIDTH)
CONTEXTS = {"on the beach": 1, "in the snow": 2, "at night": 3}


def made(fails_with: str | None, fails_without: str | None, categories: tuple[str | None, ...] = (None, None)) -> Found:
    """Two classes; the first one's images fail with a context, or without one; the second one's at random."""
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1], ROWS)
    has = rng.random((2 * ROWS, len(CONTEXTS))) < 0.4
    features = 3 * AXES[0] + 0.3 * rng.normal(size=(2 * ROWS, WIDTH)) + 1.5 * has @ AXES[1 : 1 + len(CONTEXTS)]
    features[labels == 1] += 2 * AXES[10]
    names = list(CONTEXTS)
    failed = rng.random(2 * ROWS) < 0.12
    for context, wanted in ((fails_with, True), (fails_without, False)):
        if context is not None:
            failed |= (has[:, names.index(context)] == wanted) & (labels == 0) & (rng.random(2 * ROWS) < 0.7)
    texts = ["a photo of a thing", *(f"a photo of a thing {name}" for name in names)]
    vectors = np.stack([AXES[0], *(AXES[0] + AXES[place] for place in CONTEXTS.values())])
    half = DiscoverHalf(
        features=unit(features),
        labels=labels,
        failed=failed,
        answers=np.zeros((2 * ROWS, 1), np.int32),
        units=np.arange(2 * ROWS),
        centre=unit(features).mean(axis=0),
        spread=unit(features).std(axis=0, ddof=1),
        captions=CandidateCaptions(
            tuple(texts), unit(vectors).astype(np.float32), (0, 0), (np.arange(1, 4), np.arange(1, 4))
        ),
        class_names=("thing", "thing"),
        categories=categories,
    )
    return find_directions(half, Mine(), DirectionsSettings(permutations=20), 1)


def confirmed_words(cause: str, absent: bool, seed: int) -> list[tuple[str, str]]:
    """(role, caption) of what is confirmed where one context of a class makes it fail, 30 points more, or its absence.

    An image has one context of the three: what is in the snow is not on the beach. In half of the images the first.
    """
    rng = np.random.default_rng(seed)
    at = rng.choice(3, size=2 * ROWS, p=(0.5, 0.25, 0.25))
    features = 3 * AXES[0] + 0.3 * rng.normal(size=(2 * ROWS, WIDTH)) + 1.5 * AXES[1 + at]
    has = at == list(CONTEXTS).index(cause)
    failed = rng.random(2 * ROWS) < 0.05 + 0.3 * (has != absent)
    names = list(CONTEXTS)
    texts = ("a photo of a thing", *(f"a photo of a thing {name}" for name in names))
    vectors = unit(np.stack([AXES[0], *(AXES[0] + AXES[place] for place in CONTEXTS.values())])).astype(np.float32)
    features, labels, units = unit(features), np.zeros(2 * ROWS, np.int64), np.arange(2 * ROWS)
    half = DiscoverHalf(
        features=features[:ROWS],
        labels=labels[:ROWS],
        failed=failed[:ROWS],
        answers=np.zeros((ROWS, 1), np.int32),
        units=units[:ROWS],
        centre=features.mean(axis=0),
        spread=features.std(axis=0, ddof=1),
        captions=CandidateCaptions(texts, vectors, (0,), (np.arange(1, 4),)),
        class_names=("thing",),
        categories=(None,),
    )
    found = find_directions(half, Mine(), DirectionsSettings(permutations=0), 1).hypotheses
    rows = LabelledRows(features[ROWS:], labels[ROWS:], failed[ROWS:], units[ROWS:])
    tested = confirm([count_hypothesis(one, rows) for one in found], 0.05, 0.1)
    return [(one.role, one.caption) for one, told in zip(found, tested, strict=True) if told.confirmed]


def test_not_on_the_beach_is_no_finding_where_the_snow_is_the_cause() -> None:
    told = [confirmed_words("in the snow", False, seed) for seed in range(12)]
    assert sum(any(role == "hard" for role, _ in one) for one in told) >= 10
    assert sum(any(role == "far_from" for role, _ in one) for one in told) <= 1


def test_not_on_the_beach_is_found_where_the_beach_is_what_was_learned() -> None:
    told = [confirmed_words("on the beach", True, seed) for seed in range(12)]
    assert sum(("far_from", "a photo of a thing on the beach") in one for one in told) >= 9


def test_what_is_far_from_a_caption_is_tested_outside_of_every_hard_set_of_its_classes() -> None:
    found = made("in the snow", "on the beach", ("kind", "kind")).hypotheses
    hard = {one.name: one for one in found if one.role == "hard"}
    far = [one for one in found if one.role == "far_from"]
    assert any(len(one.outside) > 1 for one in far), "its own hard set, and its category's"
    features = unit(np.random.default_rng(1).normal(size=(400, WIDTH)) + 3 * AXES[0])
    labels = np.repeat([0, 1], 200)
    for one in far:
        assert {other.name for other in one.outside} == {
            name for name, other in hard.items() if set(other.labels) & set(one.labels)
        }
        rows = one.tested_on(features, labels)
        for other in one.outside:
            assert not (rows & other.members(features, labels)).any()
        failed, units = np.zeros(400, bool), np.arange(400)
        in_set, rest = count_hypothesis(one, LabelledRows(features, labels, failed, units))
        assert in_set.rows + rest.rows == rows.sum() < np.isin(labels, one.labels).sum()
    assert not any(one.outside for one in hard.values())


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_context_that_fails_is_the_hard_caption_and_its_set() -> None:
    found = made("in the snow", None)
    (one,) = [one for one in found.hypotheses if one.labels == (0,) and one.role == "hard"]
    assert one.caption == "a photo of a thing in the snow"
    assert found.notes[0].hard[0].caption == one.caption and found.notes[0].hard[0].score < 0


def test_the_absence_of_a_context_is_far_from_the_easy_caption() -> None:
    found = made(None, "on the beach")
    (one,) = [one for one in found.hypotheses if one.labels == (0,) and one.role == "far_from"]
    assert one.caption == "a photo of a thing on the beach" and one.words == "thing not on the beach"
    assert found.notes[0].easy[0].caption == one.caption
    # Along what the caption adds, not along the whole of it: the class itself is no part of the set.
    assert abs(float(one.vector[0])) < 0.5 < float(one.vector[1])


def test_classes_of_a_category_are_pooled_and_names_are_told_apart() -> None:
    found = made("in the snow", None, ("kind", "kind"))
    (pooled,) = [one for one in found.hypotheses if len(one.labels) == 2 and one.role == "hard"]
    assert pooled.caption == "a photo of a thing in the snow" and pooled.name == "kind_hard"
    assert len(pooled.cutoffs) == 2
    names = [one.name for one in found.hypotheses]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "names", [["crane", "crane"], ["鶴", ""], ["A b-c", "a b c"], ["x" * 500, "x" * 501], ["a", "a", "a 0"]]
)
def test_names_that_are_alike_stay_apart(names: list[str]) -> None:
    assert len(set(slugs(names))) == len(names)


@given(st.lists(st.text(max_size=30), max_size=6))
def test_every_name_of_a_class_makes_a_shift_that_a_recipe_takes(names: list[str]) -> None:
    found = slugs(names)
    assert [group_name_problem(f"{one}_hard", "shift") for one in found] == [None] * len(names)
    assert len(set(found)) == len(names)


def test_each_method_has_the_settings_that_recipes_are_checked_by() -> None:
    assert {name: method.settings for name, method in METHODS.items()} == dict(METHOD_SETTINGS)
