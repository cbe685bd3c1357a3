"""Frames of a video are no independent images: the units of images are resampled, and equal frames
count as one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.detection_stats import (
    Detections,
    DetectorScores,
    Matches,
    Objects,
    average_precision,
    bootstrap_scores,
    image_f1,
    match_detections,
)
from counterfoil.resampled_stats import Drawn, Units, weighted_sum
from counterfoil.stats import Estimate, seeded_generator
from support.estimates import interval_of

BOX = [4.0, 4.0, 20.0, 20.0]


def frames(is_found: NDArray[np.bool_], each: int) -> Matches:
    """Return the matches of videos of `each` equal frames with one object. is_found: whether the
    object is found."""
    images = np.repeat(is_found, each)
    hits = np.flatnonzero(images)
    objects = Objects.of(np.arange(len(images)), [BOX] * len(images), np.zeros(len(images), int))
    detections = Detections.of(
        hits, [BOX] * len(hits), np.zeros(len(hits), int), np.full(len(hits), 0.9)
    )
    return match_detections(objects, detections, len(images), 1)


def sides(lost: int, videos: int, each: int, *, by_video: bool = True) -> list[DetectorScores]:
    """Return the scores of a base where all is is_found, and of a shift that loses some videos."""
    units = Units.of(np.repeat(np.arange(videos), each)) if by_video else None
    founds = np.ones(videos, bool), np.arange(videos) >= lost
    return [
        bootstrap_scores(frames(is_found, each), 0.5, seed=0, replicates=300, units=units)
        for is_found in founds
    ]


def drop(of: list[DetectorScores], measure: str = "recall") -> Estimate:
    return weighted_sum([(1, of[0].measures[measure]), (-1, of[1].measures[measure])]).interval()


def half(estimate: Estimate) -> float:
    low, _, high = interval_of(estimate)
    return (high - low) / 2


def test_frames_of_ten_videos_say_as_much_as_ten_images() -> None:
    """Ten videos of equal frames, five lost: by the normal rule 50 ± 31 points, whatever the number
    of frames."""
    few = drop(sides(5, 10, 2))
    many = drop(sides(5, 10, 12))
    alone = drop(sides(5, 10, 12, by_video=False))
    assert few == many
    low, value, high = interval_of(few)
    assert value == pytest.approx(0.5)
    assert low < 0.2 and high > 0.8 and half(few) < 0.4, (
        "longer than the normal rule's, for ten are few"
    )
    assert half(alone) < 0.12, "frames that are drawn one by one pretend to be 120 videos"


def test_an_interval_needs_ten_units() -> None:
    nine = sides(4, 9, 3)
    ten = sides(4, 10, 3)
    assert drop(nine).low is None and nine[1].categories[0].interval().low is None
    assert all(drop(ten, measure).low is not None for measure in ("AP", "recall", "F1"))


def test_resamples_are_those_of_a_plain_loop_over_units() -> None:
    rng = np.random.default_rng(3)
    images = 24
    categories = 2
    image = np.repeat(np.arange(images), 3)
    boxes = np.hstack([rng.integers(0, 40, (72, 2)), rng.integers(10, 30, (72, 2))]).astype(float)
    category = rng.integers(0, categories, 72)
    moved = boxes + rng.integers(-4, 5, boxes.shape)
    matches = match_detections(
        Objects.of(image, boxes, category),
        Detections.of(image, moved, category, rng.random(72)),
        images,
        categories,
    )
    of_image = rng.integers(0, 11, images)
    units = Units.of(of_image)
    scores = bootstrap_scores(matches, 0.4, seed=8, replicates=30, units=units)
    chosen = seeded_generator(8, "images of a detector").integers(
        0, units.count, size=(30, units.count)
    )
    f1 = image_f1(matches, 0.4)
    for draw, drawn_units in enumerate(chosen):
        rows = np.concatenate([np.flatnonzero(units.of_image == unit) for unit in drawn_units])
        mean = f1.mean()
        longer = mean + (f1[rows].mean() - mean) * np.sqrt(units.count / (units.count - 1))
        assert scores.measures["F1"].drawn[draw] == pytest.approx(longer, abs=1e-6)
        weights = np.bincount(rows, minlength=images)[None]
        for category_scores, precision, whole in zip(
            scores.categories,
            average_precision(matches, weights).by_category("AP")[:, 0],
            average_precision(matches).by_category("AP"),
            strict=True,
        ):
            having = category_scores.images
            longer = whole + (precision - whole) * np.sqrt(having / (having - 1))
            assert category_scores.drawn[draw] == pytest.approx(longer, abs=1e-6)
    for number, scored in enumerate(scores.categories):
        assert scored.images == len(set(units.of_image[image[category == number]].tolist()))


def test_images_of_their_own_units_are_drawn_as_without_units() -> None:
    matches = frames(np.random.default_rng(0).random(40) < 0.7, 1)
    plain = bootstrap_scores(matches, 0.5, seed=4, replicates=50)
    alone = bootstrap_scores(
        matches, 0.5, seed=4, replicates=50, units=Units.of(np.arange(40) * 3 + 7)
    )
    for name in ("AP", "recall", "F1"):
        assert (plain.measures[name].drawn == alone.measures[name].drawn).all()
        assert plain.measures[name].interval() == alone.measures[name].interval()
        assert not alone.measures[name].by_units


def test_a_difference_by_units_is_as_long_as_students_or_with_one_more_unit() -> None:
    draws = np.random.default_rng(0).normal(0.3, 0.1, 4000)
    values = {}
    for by_units in (True, False):
        number = Drawn(0.3, draws, 0.0, (0.2, 0.0), 12, signed=True, by_units=by_units)
        values[by_units] = half(number.interval())
    # t with 11 degrees of freedom
    student = 0.1 * 2.201
    one_more = 1.96 * np.hypot(0.1, 1 / np.sqrt(12 * 14))
    assert values[True] == pytest.approx(max(student, one_more), rel=0.03)
    assert values[False] > values[True]
    still = Drawn(0.0, np.zeros(50), 0.0, (0.0, 0.0), 12, signed=True, by_units=True).interval()
    assert half(still) == pytest.approx(1.96**2 / (12 + 1.96**2), rel=1e-3)  # Wilson's for 0 of 12


@pytest.mark.parametrize(("lost", "videos"), [(0.1, 12), (0.4, 12)])
def test_intervals_by_unit_hold_the_truth(lost: float, videos: int) -> None:
    """Check a small part of what `scripts/prove_multilabel.py` prints: videos of unequal length,
    each lost or kept."""
    rng = np.random.default_rng(17)
    held = 0
    for number in range(40):
        each = rng.integers(1, 4, videos)
        kept = rng.random(videos) >= lost
        units = Units.of(np.repeat(np.arange(videos), each))
        matches = [
            frames(np.repeat(is_found, each), 1) for is_found in (np.ones(videos, bool), kept)
        ]
        scores = [bootstrap_scores(of, 0.5, number, replicates=60, units=units) for of in matches]
        estimate = drop(scores)
        low, _, high = interval_of(estimate)
        held += low <= lost <= high
    assert held >= 35  # at 95 %, fewer are seen in 1 of 100 runs


def test_equal_resamples_have_an_interval_as_long_as_is_asked() -> None:
    """Lengthen Wilson's interval of 0 too, if several intervals are to hold together."""
    number = Drawn(0.0, np.zeros(50), 0.0, (0.0, 0.0), 40, signed=True)
    for reach in (1.96, 3.0):
        interval = number.interval(reach)
        end = reach**2 / (40 + reach**2)
        assert (interval.low, interval.high) == pytest.approx((-end, end))
