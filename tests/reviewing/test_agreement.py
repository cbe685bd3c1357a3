"""Selection frequencies, their intervals and Fleiss' kappa against sums made by hand and by exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.reviewing.review_answers import agreement, mean_frequency
from counterfoil.stats import fleiss_kappa

Z = 1.959963984540054


def wilson(share: float, n: float) -> tuple[float, float]:
    """The interval as Wilson (1927) writes it."""
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def exact_kappa(counts: list[tuple[int, int]]) -> Fraction | None:
    """Fleiss 1971, equations 1 to 7, in fractions."""
    raters = sum(counts[0])
    shares = [Fraction(sum(row[place] for row in counts), raters * len(counts)) for place in (0, 1)]
    by_chance = sum(share * share for share in shares)
    agreed = Fraction(
        sum(Fraction(sum(n * (n - 1) for n in row), raters * (raters - 1)) for row in counts), len(counts)
    )
    return None if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def test_kappa_of_a_table_counted_by_hand() -> None:
    # Three raters agree on two images and are two to one about two: (1 + 1/3 + 1 + 1/3) / 4 = 2/3, by chance 1/2.
    assert fleiss_kappa([(3, 0), (2, 1), (0, 3), (1, 2)]) == pytest.approx(1 / 3)
    # Two who never agree do so less than by chance.
    assert fleiss_kappa([(1, 1), (1, 1), (1, 1)]) == pytest.approx(-1)
    assert fleiss_kappa([(2, 0), (0, 2)]) == pytest.approx(1)


@given(
    st.integers(2, 6).flatmap(lambda n: st.lists(st.integers(0, n).map(lambda k: (k, n - k)), min_size=1, max_size=20))
)
def test_kappa_is_fleiss(counts: list[tuple[int, int]]) -> None:
    exact = exact_kappa(counts)
    found = fleiss_kappa(counts)
    assert (found is None) == (exact is None)
    if exact is not None:
        assert found == pytest.approx(float(exact), abs=1e-9)


def test_kappa_is_undefined_without_two_raters_or_two_answers() -> None:
    assert agreement({"a": {0: True}, "b": {0: False}}) == (None, 0)
    assert agreement({"a": {0: True, 1: True}, "b": {0: True, 1: True}}) == (None, 0)
    assert agreement({}) == (None, 0)


def test_kappa_is_over_the_images_that_all_have_seen() -> None:
    shared = {"a": {0: True, 1: True}, "b": {0: False, 1: False}, "c": {0: True, 1: False}, "d": {0: False, 1: False}}
    kappa, images = agreement(shared)
    assert (kappa, images) == (pytest.approx(float(exact_kappa([(2, 0), (0, 2), (1, 1), (0, 2)]) or 0)), 4)
    assert agreement({**shared, "e": {0: True}, "f": {1: True}}) == (kappa, images)


def test_where_no_image_was_seen_by_all_images_are_grouped_by_how_many_saw_them() -> None:
    pairs = {"a": {0: True, 1: True}, "b": {0: False, 1: False}}
    others = {"c": {1: True, 2: False}, "d": {1: False, 2: True}}
    kappa, images = agreement({**pairs, **others})
    assert (kappa, images) == (pytest.approx(float(exact_kappa([(2, 0), (0, 2), (1, 1), (1, 1)]) or 0)), 4)
    triples = {"e": {0: True, 1: True, 2: True, 3: False}, "f": {0: False, 1: False, 2: False, 4: False}}
    # Of five raters, two images were seen by two and two by four: a mean weighted by images.
    two, four = (float(exact_kappa(counts) or 0) for counts in ([(2, 0), (0, 2)], [(3, 1), (0, 4)]))
    assert agreement({**pairs, **triples}) == (pytest.approx((2 * two + 2 * four) / 4), 4)


@given(st.integers(1, 60), st.integers(0, 60))
def test_of_one_rater_the_interval_is_wilsons_over_images(n: int, selected: int) -> None:
    found = mean_frequency([(int(place < selected), 1) for place in range(n)])
    assert found is not None
    assert found.value == pytest.approx(min(selected, n) / n)
    assert (found.low, found.high) == pytest.approx(wilson(found.value, n), abs=1e-9)


def test_images_that_differ_little_tell_more_and_never_more_than_the_answers_do() -> None:
    def width(selected: tuple[int, int]) -> float:
        found = mean_frequency([(one, 5) for one in selected] * 10)
        assert found is not None and found.value == 0.5
        return found.high - found.low

    def of(n: float) -> float:
        low, high = wilson(0.5, n)
        return high - low

    # 20 images of five answers each: as 100 answers at most, and as 20 where all five always agree.
    assert of(100) < width((3, 2)) < width((4, 1)) < width((5, 0)) < 1.15 * of(20)
    assert width((3, 2)) < 1.15 * of(100)


def test_where_everything_was_selected_the_interval_still_has_a_width() -> None:
    found = mean_frequency([(5, 5)] * 12)
    assert found is not None
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 12)), "exact, of images"
    assert mean_frequency([]) is None
