"""The method `directions`: hypotheses of planted rows, scores of captions, vectors to draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.mining.collected import confirm_sets
from counterfoil.mining.findings_layer import unique_slugs
from counterfoil.mining.hypotheses import CandidateCaptions, DiscoverHalf, Found, LabelledRows
from counterfoil.mining.methods import METHODS
from counterfoil.mining.methods.directions import (
    caption_scores,
    decoded_vectors,
    direction_in_raw_space,
    extreme_captions,
    find_directions,
    slerp,
)
from counterfoil.mining.methods.svm import Direction
from counterfoil.recipe.names import group_name_problem
from counterfoil.recipe.schema_mine import METHOD_SETTINGS, DirectionsSettings, Mine
from counterfoil.stats import score_test

WIDTH = 24
ROWS = 240
# All captions of a class share axis 0. Images and captions may have three contexts.
AXES = np.eye(WIDTH)
CONTEXTS = {"on the beach": 1, "in the snow": 2, "at night": 3}


def made(
    fails_with: str | None,
    fails_without: str | None,
    categories: tuple[str | None, ...] = (None, None),
) -> Found:
    """Search two classes. Images of the first fail with a context, or without one; images of the
    second at random."""
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1], ROWS)
    has = rng.random((2 * ROWS, len(CONTEXTS))) < 0.4
    features = (
        3 * AXES[0]
        + 0.3 * rng.normal(size=(2 * ROWS, WIDTH))
        + 1.5 * has @ AXES[1 : 1 + len(CONTEXTS)]
    )
    features[labels == 1] += 2 * AXES[10]
    names = list(CONTEXTS)
    failed = rng.random(2 * ROWS) < 0.12
    for context, wanted in ((fails_with, True), (fails_without, False)):
        if context is not None:
            failed |= (
                (has[:, names.index(context)] == wanted)
                & (labels == 0)
                & (rng.random(2 * ROWS) < 0.7)
            )
    texts = ["a photo of a thing", *(f"a photo of a thing {name}" for name in names)]
    vectors = np.stack([AXES[0], *(AXES[0] + AXES[axis] for axis in CONTEXTS.values())])
    half = DiscoverHalf(
        features=unit(features),
        labels=labels,
        failed=failed,
        taken_for=np.zeros(2 * ROWS, np.int64),
        units=np.arange(2 * ROWS),
        centre=unit(features).mean(axis=0),
        deviation=unit(features).std(axis=0, ddof=1),
        captions=CandidateCaptions(
            tuple(texts),
            unit(vectors).astype(np.float32),
            (0, 0),
            (np.arange(1, 4), np.arange(1, 4)),
        ),
        class_names=("thing", "thing"),
        categories=categories,
    )
    return find_directions(half, Mine(), DirectionsSettings(permutations=20), 1)


def confirmed_words(cause: str, absent: bool, seed: int) -> list[tuple[str, str]]:
    """Return (role, caption) of what is confirmed if a context, or its absence, adds 30 points of
    failures.

    Each image has one of the three contexts; half of the images have the first.
    """
    rng = np.random.default_rng(seed)
    at = rng.choice(3, size=2 * ROWS, p=(0.5, 0.25, 0.25))
    features = 3 * AXES[0] + 0.3 * rng.normal(size=(2 * ROWS, WIDTH)) + 1.5 * AXES[1 + at]
    has = at == list(CONTEXTS).index(cause)
    failed = rng.random(2 * ROWS) < 0.05 + 0.3 * (has != absent)
    names = list(CONTEXTS)
    texts = ("a photo of a thing", *(f"a photo of a thing {name}" for name in names))
    vectors = unit(
        np.stack([AXES[0], *(AXES[0] + AXES[axis] for axis in CONTEXTS.values())])
    ).astype(np.float32)
    features = unit(features)
    labels = np.zeros(2 * ROWS, np.int64)
    units = np.arange(2 * ROWS)
    half = DiscoverHalf(
        features=features[:ROWS],
        labels=labels[:ROWS],
        failed=failed[:ROWS],
        taken_for=np.zeros(ROWS, np.int64),
        units=units[:ROWS],
        centre=features.mean(axis=0),
        deviation=features.std(axis=0, ddof=1),
        captions=CandidateCaptions(texts, vectors, (0,), (np.arange(1, 4),)),
        class_names=("thing",),
        categories=(None,),
    )
    hypotheses = find_directions(half, Mine(), DirectionsSettings(permutations=0), 1).hypotheses
    rows = LabelledRows(features[ROWS:], labels[ROWS:], failed[ROWS:], units[ROWS:], labels[ROWS:])
    counts = [hypothesis.count(rows) for hypothesis in hypotheses]
    results = confirm_sets(counts, [score_test(*sides, 0.05) for sides in counts], 0.1)
    tested = zip(hypotheses, results, strict=True)
    return [
        (hypothesis.role, hypothesis.caption) for hypothesis, result in tested if result.confirmed
    ]


def test_not_on_the_beach_is_no_finding_where_the_snow_is_the_cause() -> None:
    runs = [confirmed_words("in the snow", False, seed) for seed in range(6)]
    assert sum(any(role == "hard" for role, _ in confirmed) for confirmed in runs) >= 5
    assert sum(any(role == "far_from" for role, _ in confirmed) for confirmed in runs) <= 1


def test_not_on_the_beach_is_found_where_the_beach_is_what_was_learned() -> None:
    runs = [confirmed_words("on the beach", True, seed) for seed in range(6)]
    wanted = ("far_from", "a photo of a thing on the beach")
    assert sum(wanted in confirmed for confirmed in runs) >= 4


def test_what_is_far_from_a_caption_is_tested_outside_of_every_hard_set_of_its_classes() -> None:
    hypotheses = made("in the snow", "on the beach", ("kind", "kind")).hypotheses
    hard = {hypothesis.name: hypothesis for hypothesis in hypotheses if hypothesis.role == "hard"}
    far = [hypothesis for hypothesis in hypotheses if hypothesis.role == "far_from"]
    assert any(len(hypothesis.outside) > 1 for hypothesis in far), (
        "its own hard set, and its category's"
    )
    features = unit(np.random.default_rng(1).normal(size=(400, WIDTH)) + 3 * AXES[0])
    labels = np.repeat([0, 1], 200)
    for hypothesis in far:
        assert {other.name for other in hypothesis.outside} == {
            name for name, other in hard.items() if set(other.labels) & set(hypothesis.labels)
        }
        rows = hypothesis.tested_on(features, labels)
        for other in hypothesis.outside:
            assert not (rows & other.members(features, labels)).any()
        failed = np.zeros(400, bool)
        units = np.arange(400)
        in_set, rest = hypothesis.count(LabelledRows(features, labels, failed, units, labels))
        assert in_set.rows + rest.rows == rows.sum() < np.isin(labels, hypothesis.labels).sum()
    assert not any(hypothesis.outside for hypothesis in hard.values())


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_context_that_fails_is_the_hard_caption_and_its_set() -> None:
    run = made("in the snow", None)
    (hard,) = [
        hypothesis
        for hypothesis in run.hypotheses
        if hypothesis.labels == (0,) and hypothesis.role == "hard"
    ]
    assert hard.caption == "a photo of a thing in the snow"
    assert run.notes[0].hard[0].caption == hard.caption and run.notes[0].hard[0].score < 0


def test_the_absence_of_a_context_is_far_from_the_easy_caption() -> None:
    run = made(None, "on the beach")
    (hypothesis,) = [
        hypothesis
        for hypothesis in run.hypotheses
        if hypothesis.labels == (0,) and hypothesis.role == "far_from"
    ]
    assert (
        hypothesis.caption == "a photo of a thing on the beach"
        and hypothesis.words == "thing not on the beach"
    )
    assert run.notes[0].easy[0].caption == hypothesis.caption
    # The vector is what the caption adds, without the class itself.
    assert abs(float(hypothesis.vector[0])) < 0.5 < float(hypothesis.vector[1])


def test_classes_of_a_category_are_pooled_and_names_are_told_apart() -> None:
    run = made("in the snow", None, ("kind", "kind"))
    (pooled,) = [
        hypothesis
        for hypothesis in run.hypotheses
        if len(hypothesis.labels) == 2 and hypothesis.role == "hard"
    ]
    assert pooled.caption == "a photo of a thing in the snow" and pooled.name == "kind_hard"
    assert len(pooled.cutoffs) == 2
    names = [hypothesis.name for hypothesis in run.hypotheses]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "names",
    [["crane", "crane"], ["鶴", ""], ["A b-c", "a b c"], ["x" * 500, "x" * 501], ["a", "a", "a 0"]],
)
def test_names_that_are_alike_stay_apart(names: list[str]) -> None:
    assert len(set(unique_slugs(names))) == len(names)


@given(st.lists(st.text(max_size=30), max_size=6))
def test_every_name_of_a_class_makes_a_shift_that_a_recipe_takes(names: list[str]) -> None:
    slugs = unique_slugs(names)
    assert [group_name_problem(f"{slug}_hard", "shift") for slug in slugs] == [None] * len(names)
    assert len(set(slugs)) == len(names)


def test_each_method_has_the_settings_that_recipes_are_checked_by() -> None:
    assert {name: method.settings for name, method in METHODS.items()} == dict(METHOD_SETTINGS)


def case(seed: int = 0, captions: int = 7, width: int = 5):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((captions + 1, width)) + 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    weights = rng.standard_normal(width)
    intercept = float(rng.standard_normal())
    plane = Direction(weights, intercept, 1.0, 0.8, (0.7, 0.9), 0.01, 40, 10, "kernel")
    return (
        plane,
        vectors[0],
        vectors[1:],
        rng.standard_normal(width) / 10,
        rng.uniform(0.01, 0.1, width),
    )


def by_the_paper(plane: Direction, r, candidates, deviation) -> list[float]:
    """Return (c - r) / |c - r| along weights / deviation, scaled to the length of the weights."""
    width = range(len(r))
    mapped = [plane.weights[i] / deviation[i] for i in width]
    scale = math.sqrt(sum(w * w for w in plane.weights)) / math.sqrt(sum(w * w for w in mapped))
    scores = []
    for c in candidates:
        length = math.sqrt(sum((c[i] - r[i]) ** 2 for i in width))
        scores.append(
            sum((c[i] - r[i]) / length * mapped[i] * scale for i in width) + plane.intercept
        )
    return scores


def by_the_public_code(plane: Direction, r, candidates, centre, deviation) -> list[float]:
    """Transform the difference c - r as an image and return its decision value."""
    width = range(len(r))
    scores = []
    for c in candidates:
        whitened = [((c[i] - r[i]) - centre[i]) / deviation[i] for i in width]
        length = math.sqrt(sum(w * w for w in whitened))
        scores.append(sum(whitened[i] / length * plane.weights[i] for i in width) + plane.intercept)
    return scores


@pytest.mark.parametrize("seed", range(5))
def test_both_scores_are_those_of_plain_loops(seed: int) -> None:
    plane, r, candidates, centre, deviation = case(seed)
    scores = caption_scores(plane, r, candidates, centre, deviation)
    np.testing.assert_allclose(scores, by_the_paper(plane, r, candidates, deviation), rtol=1e-12)
    scores = caption_scores(plane, r, candidates, centre, deviation, "shifted")
    np.testing.assert_allclose(
        scores, by_the_public_code(plane, r, candidates, centre, deviation), rtol=1e-12
    )


def test_a_dimension_that_never_varies_says_nothing_and_breaks_nothing() -> None:
    plane, r, candidates, centre, deviation = case(5, width=4)
    flat = deviation.copy()
    flat[2] = 0.0
    moved = candidates.copy()
    moved[:, 2] += 5.0
    scores = caption_scores(plane, r, candidates, centre, flat, "shifted")
    np.testing.assert_array_equal(scores, caption_scores(plane, r, moved, centre, flat, "shifted"))
    assert np.isfinite(caption_scores(plane, r, moved, centre, flat, "difference")).all()


def test_a_caption_that_says_nothing_more_scores_the_intercept() -> None:
    plane, r, _, centre, deviation = case(6)
    assert caption_scores(plane, r, r[None], centre, deviation) == pytest.approx([plane.intercept])
    assert np.isfinite(caption_scores(plane, r, r[None], centre, deviation, "shifted")).all()


def test_single_precision_gives_the_same_order() -> None:
    plane, r, candidates, centre, deviation = case(7, captions=50)
    whole = caption_scores(plane, r, candidates, centre, deviation)
    single = caption_scores(
        plane, r.astype(np.float32), candidates.astype(np.float32), centre, deviation
    )
    assert single.dtype == np.float64
    np.testing.assert_array_equal(extreme_captions(whole, 5)[0], extreme_captions(single, 5)[0])


def test_extremes_stand_in_order_and_the_earlier_of_equals_comes_first() -> None:
    hard, easy = extreme_captions(np.asarray([0.5, -1.0, 2.0, -1.0, 2.0]), 3)
    assert hard.tolist() == [1, 3, 0]
    assert easy.tolist() == [2, 4, 0]
    hard, easy = extreme_captions(np.asarray([1.0, 0.0]), 5)
    assert (hard.tolist(), easy.tolist()) == ([1, 0], [0, 1])


RNG = np.random.default_rng(12)

REFERENCE = RNG.normal(size=64)
WEIGHTS = RNG.normal(size=64)
SPREAD = RNG.uniform(0.2, 3, 64)


def angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_a_slerp_goes_its_share_of_the_angle_in_the_plane_of_both(share: float) -> None:
    vector = slerp(3 * REFERENCE, 0.1 * WEIGHTS, share)
    whole = angle(REFERENCE, WEIGHTS)
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert angle(vector, REFERENCE) == pytest.approx(share * whole, abs=1e-7)
    assert angle(vector, WEIGHTS) == pytest.approx((1 - share) * whole, abs=1e-7)


def test_a_slerp_between_equal_and_nearly_equal_vectors_stays_there() -> None:
    near = REFERENCE + 1e-9 * WEIGHTS
    for other in (REFERENCE, 2 * REFERENCE, near):
        np.testing.assert_allclose(
            slerp(REFERENCE, other, 0.3), REFERENCE / np.linalg.norm(REFERENCE), atol=1e-8
        )


def test_a_normal_of_whitened_space_orders_raw_points_as_there() -> None:
    centre = RNG.normal(size=64)
    points = RNG.normal(size=(200, 64))
    whitened = (points - centre) / SPREAD @ WEIGHTS
    raw = points @ direction_in_raw_space(WEIGHTS, SPREAD)
    np.testing.assert_array_equal(np.argsort(whitened), np.argsort(raw))


def test_a_dimension_without_spread_says_nothing() -> None:
    deviation = SPREAD.copy()
    deviation[[3, 9]] = 0
    direction = direction_in_raw_space(WEIGHTS, deviation)
    assert direction[3] == direction[9] == 0
    assert np.isfinite(direction).all() and np.linalg.norm(direction) == pytest.approx(1)


def test_hard_lies_against_the_direction_and_easy_along_it_at_the_encoders_length() -> None:
    hard, easy = decoded_vectors(REFERENCE, WEIGHTS, 0.2, 11.5, SPREAD)
    normal = WEIGHTS / SPREAD
    assert hard @ normal < 11.5 * REFERENCE / np.linalg.norm(REFERENCE) @ normal < easy @ normal
    for vector in (hard, easy):
        assert vector.dtype == np.float32 and vector.shape == (64,)
        assert np.linalg.norm(vector) == pytest.approx(11.5, rel=1e-6)
    hard, easy = decoded_vectors(REFERENCE, WEIGHTS, 0.0, 1.0, SPREAD)
    np.testing.assert_array_equal(hard, easy)
