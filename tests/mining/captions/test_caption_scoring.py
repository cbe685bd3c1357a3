"""Scores of captions along a direction, against plain loops that do what the paper and its public code say."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.mining.captions import caption_scores, extreme_captions


@dataclass(frozen=True)
class Plane:
    weights: NDArray[np.float64]
    intercept: float


def case(seed: int = 0, captions: int = 7, width: int = 5):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((captions + 1, width)) + 1.0
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    plane = Plane(rng.standard_normal(width), float(rng.standard_normal()))
    return plane, vectors[0], vectors[1:], rng.standard_normal(width) / 10, rng.uniform(0.01, 0.1, width)


def by_the_paper(plane: Plane, r, candidates, spread) -> list[float]:
    """(c - r) / |c - r| along weights / spread, which is brought to the length of the weights."""
    width = range(len(r))
    mapped = [plane.weights[i] / spread[i] for i in width]
    scale = math.sqrt(sum(w * w for w in plane.weights)) / math.sqrt(sum(w * w for w in mapped))
    scores = []
    for c in candidates:
        length = math.sqrt(sum((c[i] - r[i]) ** 2 for i in width))
        scores.append(sum((c[i] - r[i]) / length * mapped[i] * scale for i in width) + plane.intercept)
    return scores


def by_the_public_code(plane: Plane, r, candidates, centre, spread) -> list[float]:
    """The difference goes through whatever an image goes through, then gets its decision value."""
    width = range(len(r))
    scores = []
    for c in candidates:
        whitened = [((c[i] - r[i]) - centre[i]) / spread[i] for i in width]
        length = math.sqrt(sum(w * w for w in whitened))
        scores.append(sum(whitened[i] / length * plane.weights[i] for i in width) + plane.intercept)
    return scores


@pytest.mark.parametrize("seed", range(5))
def test_both_scores_are_those_of_plain_loops(seed: int) -> None:
    plane, r, candidates, centre, spread = case(seed)
    found = caption_scores(plane, r, candidates, centre, spread, "difference")
    np.testing.assert_allclose(found, by_the_paper(plane, r, candidates, spread), rtol=1e-12)
    found = caption_scores(plane, r, candidates, centre, spread, "shifted")
    np.testing.assert_allclose(found, by_the_public_code(plane, r, candidates, centre, spread), rtol=1e-12)


def test_the_two_scores_are_not_the_same_and_the_papers_is_the_default() -> None:
    plane, r, candidates, centre, spread = case()
    default = caption_scores(plane, r, candidates, centre, spread)
    np.testing.assert_array_equal(default, caption_scores(plane, r, candidates, centre, spread, "difference"))
    assert not np.allclose(default, caption_scores(plane, r, candidates, centre, spread, "shifted"))


def test_the_caption_that_goes_the_directions_way_is_the_easiest_and_the_other_way_the_hardest() -> None:
    # In embeddings' own space the direction is weights / spread: along it decision values rise the fastest.
    plane, r, _, centre, spread = case(3)
    along = plane.weights / spread
    along /= np.linalg.norm(along)
    rng = np.random.default_rng(0)
    others = rng.standard_normal((20, len(r)))
    candidates = r + 0.3 * np.stack([*(others / np.linalg.norm(others, axis=1, keepdims=True)), along, -along])
    scores = caption_scores(plane, r, candidates, centre, spread)
    hard, easy = extreme_captions(scores, 1)
    assert (hard[0], easy[0]) == (21, 20) == (np.argmin(scores), np.argmax(scores))
    assert scores[20] - plane.intercept == pytest.approx(np.linalg.norm(plane.weights))


def test_how_far_a_caption_goes_is_no_matter_to_the_papers_score() -> None:
    plane, r, candidates, centre, spread = case(4)
    nearer = r + (candidates - r) / 10
    far, near = (caption_scores(plane, r, c, centre, spread) for c in (candidates, nearer))
    np.testing.assert_allclose(far, near)


def test_a_dimension_that_never_varies_says_nothing_and_breaks_nothing() -> None:
    plane, r, candidates, centre, spread = case(5, width=4)
    flat = spread.copy()
    flat[2] = 0.0
    moved = candidates.copy()
    moved[:, 2] += 5.0
    scores = caption_scores(plane, r, candidates, centre, flat, "shifted")
    np.testing.assert_array_equal(scores, caption_scores(plane, r, moved, centre, flat, "shifted"))
    assert np.isfinite(caption_scores(plane, r, moved, centre, flat, "difference")).all()


def test_a_caption_that_says_nothing_more_scores_the_intercept() -> None:
    plane, r, _, centre, spread = case(6)
    assert caption_scores(plane, r, r[None], centre, spread) == pytest.approx([plane.intercept])
    assert np.isfinite(caption_scores(plane, r, r[None], centre, spread, "shifted")).all()


def test_single_precision_gives_the_same_order() -> None:
    plane, r, candidates, centre, spread = case(7, captions=50)
    whole = caption_scores(plane, r, candidates, centre, spread)
    single = caption_scores(plane, r.astype(np.float32), candidates.astype(np.float32), centre, spread)
    assert single.dtype == np.float64
    np.testing.assert_array_equal(extreme_captions(whole, 5)[0], extreme_captions(single, 5)[0])


def test_what_cannot_be_scored_is_refused() -> None:
    plane, r, candidates, centre, spread = case()
    with pytest.raises(ValueError, match="do not fit"):
        caption_scores(plane, r, candidates[:, :-1], centre, spread)
    with pytest.raises(ValueError, match="do not fit"):
        caption_scores(plane, r, candidates, centre[:-1], spread)
    with pytest.raises(ValueError, match="not finite"):
        caption_scores(plane, np.full_like(r, np.nan), candidates, centre, spread)
    with pytest.raises(ValueError, match="expected 'difference' or 'shifted'"):
        caption_scores(plane, r, candidates, centre, spread, "cosine")  # pyrefly: ignore[bad-argument-type]


def test_extremes_stand_in_order_and_the_earlier_of_equals_comes_first() -> None:
    hard, easy = extreme_captions(np.asarray([0.5, -1.0, 2.0, -1.0, 2.0]), 3)
    assert hard.tolist() == [1, 3, 0]
    assert easy.tolist() == [2, 4, 0]
    hard, easy = extreme_captions(np.asarray([1.0, 0.0]), 5)
    assert (hard.tolist(), easy.tolist()) == ([1, 0], [0, 1])
