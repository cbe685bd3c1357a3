"""Contexts that say the same: by words and by cosine, the first one stays, and everything dropped says for what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.mining.contexts import Double, same_words, without_doubles


def at(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize("other", ["in snow", "In the Snow.", "in  THE snow", "“in the snow”", "in-snow", "ｉｎ snow"])
def test_case_articles_and_punctuation_make_no_other_context(other: str) -> None:
    assert same_words(other) == same_words("in the snow")


@pytest.mark.parametrize("other", ["on the snow", "in snows", "the", "снег", ""])
def test_other_words_are_others(other: str) -> None:
    assert same_words(other) != same_words("in the snow")


def test_the_nearest_that_stays_is_what_one_is_dropped_for_and_chains_do_not_fall() -> None:
    # 0 and 10 degrees are one at .98, 10 and 20 too; 20 stays, for 10 does not.
    names = ["a1", "b1", "c1", "d1"]
    kept, doubles = without_doubles(names, at(0, 10, 20, 90), 0.98)
    assert kept == (0, 2, 3)
    (double,) = doubles
    assert (double.place, double.kept, double.why) == (1, 0, "similarity")
    assert double.cosine == pytest.approx(np.cos(np.radians(10)))


def test_equal_words_are_one_whatever_their_vectors_and_a_threshold_of_one_drops_nothing_else() -> None:
    kept, doubles = without_doubles(["in snow", "at sea", "in the snow"], at(0, 0.5, 90), 1.0)
    assert kept == (0, 1) and doubles == (Double(2, 0, "words"),)


def test_what_repeats_one_that_was_dropped_is_dropped_for_what_stays() -> None:
    kept, doubles = without_doubles(["at sea", "on the ocean", "on ocean"], at(0, 1, 80), 0.97)
    assert kept == (0,)
    assert [(one.place, one.kept, one.why) for one in doubles] == [(1, 0, "similarity"), (2, 0, "words")]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 359)), max_size=12), st.floats(0.5, 1))
def test_what_stays_is_distinct_and_everything_is_accounted_for(
    drawn: list[tuple[str, int]], similarity: float
) -> None:
    names, vectors = [name for name, _ in drawn], at(*(degree for _, degree in drawn)).reshape(-1, 2)
    kept, doubles = without_doubles(names, vectors, similarity)
    assert sorted((*kept, *(one.place for one in doubles))) == list(range(len(names)))
    assert all(one.kept in kept and one.kept < one.place for one in doubles)
    assert len({same_words(names[place]) for place in kept}) == len(kept)
    cosines = vectors[list(kept)].astype(np.float64) @ vectors[list(kept)].astype(np.float64).T
    assert np.all(cosines[~np.eye(len(kept), dtype=bool)] <= similarity)


@pytest.mark.parametrize("vectors", [at(0), at(0, 1) * 2, at(0, 1) * np.nan, at(0, 1)[0]])
def test_vectors_that_are_none_are_refused(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError):
        without_doubles(["a", "b"], vectors, 0.97)
