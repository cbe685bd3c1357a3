"""The share of false labels: what it is when nothing is left to chance, and how often its interval holds the truth."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.label_checks import (
    JudgedClass,
    is_told_apart,
    label_error_of_class,
    label_error_of_shift,
    share_of,
)

REPEATS = 600
# Of 600 simulations with 95 % coverage, fewer than 558 hold the truth once in a hundred times.
LEAST = 558 / REPEATS


def test_without_chance_it_is_the_share_of_false_labels() -> None:
    """900 true labels of which 45 are doubted wrongly, 100 false ones of which 98 are seen."""
    one = JudgedClass(images=1000, disagreed=45 + 98, own=1000, wrong=50, others=1000, told_apart=980)
    for found in (label_error_of_class(one), label_error_of_shift([one])):
        assert found is not None
        assert found.value == pytest.approx(0.1)
        assert 0.06 < found.low < 0.1 < found.high < 0.14


def test_a_judge_without_errors_leaves_the_disagreement() -> None:
    one = JudgedClass(images=200, disagreed=30, own=10_000, wrong=0, others=10_000, told_apart=10_000)
    found, plain = label_error_of_shift([one]), share_of(30, 200)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high), abs=2e-3)


def test_fewer_doubts_than_errors_are_no_false_label() -> None:
    one = JudgedClass(images=100, disagreed=2, own=100, wrong=20, others=900, told_apart=890)
    for found in (label_error_of_class(one), label_error_of_shift([one])):
        assert found is not None and found.value == found.low == 0.0 and found.high < 0.1


@pytest.mark.parametrize(
    "counts",
    [
        {"own": 0, "wrong": 0, "others": 900, "told_apart": 900},  # no validation image of the class
        {"own": 100, "wrong": 10, "others": 0, "told_apart": 0},  # no other class
        {"own": 100, "wrong": 90, "others": 900, "told_apart": 810},  # it doubts true labels as often as false ones
        {"own": 4, "wrong": 1, "others": 4, "told_apart": 3},  # so few that it may
        {"own": 100, "wrong": 60, "others": 900, "told_apart": 300},  # more often
    ],
)
def test_a_class_that_is_not_told_apart_has_no_estimate(counts: dict[str, int]) -> None:
    one = JudgedClass(images=50, disagreed=10, **counts)
    assert not is_told_apart(one)
    assert label_error_of_class(one) is None
    assert label_error_of_shift([one]) is None


def test_a_shift_speaks_where_most_of_its_images_do() -> None:
    known = JudgedClass(images=80, disagreed=8, own=100, wrong=2, others=100, told_apart=99)
    unknown = JudgedClass(images=20, disagreed=20, own=0, wrong=0, others=0, told_apart=0)
    assert label_error_of_shift([known, unknown]) == label_error_of_shift([known])
    assert label_error_of_shift([known, JudgedClass(21, 21, 0, 0, 0, 0)]) is None
    assert label_error_of_shift([]) is None


def test_classes_count_by_their_images_and_are_averaged_before_they_are_cut() -> None:
    """What chance takes from one class must not be thrown away while what it adds to another is kept."""
    above = JudgedClass(images=30, disagreed=9, own=1000, wrong=200, others=1000, told_apart=1000)
    below = JudgedClass(images=10, disagreed=0, own=1000, wrong=200, others=1000, told_apart=1000)
    found = label_error_of_shift([above, below])
    assert found is not None
    assert found.value == pytest.approx((30 * (0.1 / 0.8) + 10 * (-0.2 / 0.8)) / 40)


def test_the_interval_of_a_class_is_lang_and_reiczigels() -> None:
    """Lang and Reiczigel 2014, equations 5 to 7, in their own words: sensitivity, specificity, prevalence."""
    n, ill, well, z = 60, 90, 40, 1.959963984540054
    positive, found_ill, found_well = 25, 80, 35
    apparent = (positive + z**2 / 2) / (n + z**2)
    sensitivity, specificity = (found_ill + 1) / (ill + 2), (found_well + 1) / (well + 2)
    prevalence = (apparent + specificity - 1) / (sensitivity + specificity - 1)
    of_ill, of_well = sensitivity * (1 - sensitivity) / (ill + 2), specificity * (1 - specificity) / (well + 2)
    moved = 2 * z**2 * (prevalence * of_ill - (1 - prevalence) * of_well)
    variance = apparent * (1 - apparent) / (n + z**2) + prevalence**2 * of_ill + (1 - prevalence) ** 2 * of_well
    half = z * variance**0.5 / (sensitivity + specificity - 1)
    found = label_error_of_class(JudgedClass(n, positive, well, well - found_well, ill, found_ill))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((prevalence + moved - half, prevalence + moved + half))


@pytest.mark.parametrize(
    ("images", "own", "false", "errs", "sees"),
    [(20, 100, 0.1, 0.05, 0.98), (60, 100, 0.3, 0.1, 0.95), (200, 50, 0.02, 0.02, 0.99), (40, 150, 0.0, 0.1, 0.95),
     (40, 100, 0.9, 0.1, 0.95), (15, 60, 0.2, 0.2, 0.9)],
)  # fmt: skip
def test_the_interval_of_a_class_holds_the_truth(images: int, own: int, false: float, errs: float, sees: float) -> None:
    random = np.random.default_rng(7)
    held = 0
    for _ in range(REPEATS):
        disagreed = random.binomial(images, false * sees + (1 - false) * errs)
        wrong, seen = random.binomial(own, errs), random.binomial(9 * own, sees)
        found = label_error_of_class(JudgedClass(images, disagreed, own, wrong, 9 * own, seen))
        assert found is not None and 0 <= found.low <= found.value <= found.high <= 1
        held += found.low <= false <= found.high
    assert held / REPEATS >= LEAST


@pytest.mark.parametrize(
    ("classes", "images", "own", "false", "errs"),
    [(10, 10, 100, 0.1, 0.05), (10, 20, 100, 0.0, 0.1), (10, 5, 50, 0.02, 0.03), (10, 20, 100, 0.5, 0.2),
     (3, 10, 100, 0.3, 0.1), (50, 4, 20, 0.1, 0.1), (1, 30, 100, 0.2, 0.1)],
)  # fmt: skip
def test_the_interval_of_a_shift_holds_the_truth(
    classes: int, images: int, own: int, false: float, errs: float
) -> None:
    """Classes differ in images, errors and false labels; the truth is the average by images."""
    random = np.random.default_rng(8)
    held, width = 0, 0.0
    sees, others = 0.97, max(1, classes - 1) * own
    for _ in range(REPEATS):
        shares = random.beta(5 * false, 5 * (1 - false), classes) if false else np.zeros(classes)
        erring, counts = random.uniform(0, 2 * errs, classes), random.integers(1, 2 * images, classes)
        disagreed = random.binomial(counts, shares * sees + (1 - shares) * erring)
        wrong, seen = random.binomial(own, erring), random.binomial(others, sees, classes)
        found = label_error_of_shift(
            [
                JudgedClass(int(n), int(d), own, int(w), others, int(s))
                for n, d, w, s in zip(counts, disagreed, wrong, seen, strict=True)
            ]
        )
        assert found is not None and 0 <= found.low <= found.value <= found.high <= 1
        held += found.low <= float(counts @ shares) / counts.sum() <= found.high
        width += (found.high - found.low) / REPEATS
    assert held / REPEATS >= LEAST
    # An interval that holds everything says nothing: a binomial share of so many images has about this one.
    alone = share_of(round(classes * images * (false + errs)), classes * images)
    assert width < 1.6 * (alone.high - alone.low)


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        JudgedClass(images=1, disagreed=2, own=1, wrong=0, others=1, told_apart=1)
    with pytest.raises(ValueError, match="no share"):
        share_of(0, 0)


def test_a_judge_that_never_disagrees_makes_nothing_certain() -> None:
    """Fewer disagreements than its errors on validation images allow: they do not carry over."""
    one = JudgedClass(images=186, disagreed=0, own=1000, wrong=80, others=1000, told_apart=990)
    for found in (label_error_of_class(one), label_error_of_shift([one, one])):
        assert found is not None and (found.value, found.low) == (0.0, 0.0)
        assert found.high >= share_of(0, 2 * 186).high > 0
