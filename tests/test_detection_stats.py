"""Scores beside pycocotools, resamples beside images that are repeated, intervals where the truth
is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from counterfoil import detection_stats
from counterfoil.detection_stats import (
    COCO_MEASURES,
    Detections,
    DetectorScores,
    Matches,
    Objects,
    average_precision,
    best_f1_score,
    bootstrap_scores,
    image_f1,
    match_detections,
)
from counterfoil.resampled_stats import Drawn, resampled_ratio, simultaneous_intervals, weighted_sum
from counterfoil.stats import Estimate
from detection_proof.reference import pycocotools_scores
from detection_proof.sets import hostile_set
from detection_proof.world import Images, Skill, World, made_matches
from support.estimates import interval_of


@pytest.mark.parametrize("sets", [60, pytest.param(500, marks=pytest.mark.whole)])
def test_scores_are_those_of_pycocotools(sets: int) -> None:
    rng = np.random.default_rng(7)
    crowds = ties = empty = 0
    for _ in range(sets):
        objects, detections, images, categories = hostile_set(rng, objects=6)
        scores = average_precision(match_detections(objects, detections, images, categories))
        reference = pycocotools_scores(objects, detections, images, categories)
        np.testing.assert_allclose(scores.precision, reference.precision, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores.recall, reference.recall, rtol=0, atol=1e-12)
        measures = [scores.measure(name) for name in COCO_MEASURES]
        np.testing.assert_allclose(measures, reference.measures, rtol=0, atol=1e-12)
        crowds += objects.crowd.any()
        ties += len(np.unique(detections.score)) < len(detections.score)
        empty += len(np.unique(objects.image)) < images
    assert min(crowds, ties, empty) > sets / 3


def repeated(
    boxes: NDArray, image: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[NDArray, NDArray[np.int64]]:
    """Return rows of images that are repeated, and the number of each copy of their image."""
    first = np.cumsum(times) - times
    rows = np.concatenate(
        [np.flatnonzero(image == index) for index, n in enumerate(times) for _ in range(n)] or [[]]
    )
    rows = rows.astype(np.int64)
    copies = [
        np.full((image == index).sum(), first[index] + copy)
        for index, n in enumerate(times)
        for copy in range(n)
    ]
    return rows, np.concatenate(copies or [[]]).astype(np.int64)


def test_weights_are_repeated_images() -> None:
    rng = np.random.default_rng(8)
    for _ in range(25):
        objects, detections, images, categories = hostile_set(rng)
        # Scores of one image and category differ; those of different images can be equal.
        score = detections.score + 1e-6 * np.arange(len(detections.score))
        score -= 1e-6 * np.searchsorted(detections.image, detections.image)
        detections = Detections.of(detections.image, detections.box, detections.category, score)
        weights = rng.integers(0, 4, (3, images))
        weights[0, rng.integers(images)] = 0
        drawn = average_precision(
            match_detections(objects, detections, images, categories), weights
        )
        for number, times in enumerate(weights):
            rows, image = repeated(objects.box, objects.image, times)
            more = Objects.of(
                image,
                *(
                    part[rows]
                    for part in (objects.box, objects.category, objects.area, objects.crowd)
                ),
            )
            rows, image = repeated(detections.box, detections.image, times)
            repeats = Detections.of(
                image,
                *(part[rows] for part in (detections.box, detections.category, detections.score)),
            )
            plain = average_precision(match_detections(more, repeats, int(times.sum()), categories))
            np.testing.assert_allclose(
                drawn.precision[..., number], plain.precision, rtol=0, atol=1e-12
            )
            np.testing.assert_allclose(drawn.recall[..., number], plain.recall, rtol=0, atol=1e-12)
            for name in COCO_MEASURES:
                np.testing.assert_allclose(
                    drawn.measure(name)[number], plain.measure(name), rtol=0, atol=1e-12
                )


@pytest.mark.parametrize(
    ("box", "image", "message"),
    [
        ([[0, 0, -1, 5]], [0], "width and height from 0"),
        ([[0, 0, np.nan, 5]], [0], "finite"),
        ([[0, 0, 5, 5]], [-1], "from 0"),
        ([[0, 0, 5, 5]], [0, 1], "2 images of boxes, 1 boxes"),
        ([[0, 0, 5, 5]], [3], "beyond 2"),
    ],
)
def test_what_is_no_box_is_refused(box: list, image: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        match_detections(Objects.of(image, box, [0]), Detections.of([], [], [], []), 2, 1)


def f1_of_images(matches: Matches, score: float) -> list[float]:
    """Return the F1 of each image by its definition."""
    values = []
    for image in range(matches.images):
        detected = (matches.image == image) & (matches.score >= score) & ~matches.ignored[0, 0]
        right = int((detected & matches.matched[0, 0]).sum())
        objects = int(((matches.object_image == image) & matches.counted[0]).sum())
        values.append(
            1.0
            if int(detected.sum()) + objects == 0
            else 2 * right / (int(detected.sum()) + objects)
        )
    return values


def test_f1_of_images_is_best_at_its_score() -> None:
    rng = np.random.default_rng(9)
    for _ in range(60):
        objects, detections, images, categories = hostile_set(rng)
        matches = match_detections(objects, detections, images, categories)
        score = best_f1_score(matches)
        np.testing.assert_allclose(
            image_f1(matches, score), f1_of_images(matches, score), rtol=0, atol=1e-12
        )
        means = [
            np.mean(f1_of_images(matches, cut))
            for cut in np.unique(matches.score[~matches.ignored[0, 0]])
        ]
        if means:
            assert image_f1(matches, score).mean() == pytest.approx(max(means), abs=1e-9)
        else:
            assert score == np.inf


def test_a_detection_meets_the_object_that_is_nearest_and_counts() -> None:
    # By hand: a crowd that holds two detections whole, an object that both overlap, and a third far
    # from all.
    objects = Objects.of([0, 0], [[0, 0, 10, 10], [0, 0, 100, 100]], [0, 0], crowd=[False, True])
    boxes = [[0, 0, 10, 8], [0, 0, 10, 10], [200, 200, 10, 10]]
    matches = match_detections(
        objects, Detections.of([0, 0, 0], boxes, [0, 0, 0], [0.9, 0.8, 0.7]), 1, 1
    )
    at_half = matches.matched[0, 0]
    at_most = matches.matched[0, -1]
    # The first takes the object at .5. At .95 it overlaps too little, falls to the crowd, and
    # leaves it to the second.
    assert at_half.tolist() == at_most.tolist() == [True, True, False]
    assert matches.ignored[0, 0].tolist() == [False, True, False]
    assert matches.ignored[0, -1].tolist() == [True, False, False]
    assert matches.found.tolist() == [0, 1, -1]


# ---- Intervals

WORLD = World("three categories", 3, 0.5)
SKILLS = (
    Skill(1.0),
    Skill(-0.5),
    Skill(perfect=True),
    Skill(perfect=True, missed=0.3),
    Skill(-20.0),
)


@pytest.fixture(scope="module")
def sides() -> list[Matches]:
    return made_matches(WORLD, SKILLS, 80, np.random.default_rng(3))


@pytest.fixture(scope="module")
def drawn(sides: list[Matches]) -> list[DetectorScores]:
    score = best_f1_score(sides[0])
    return [bootstrap_scores(matches, score, seed=5, replicates=400) for matches in sides]


def drop(drawn: list[DetectorScores], shift: int, measure: str = "AP", base: int = 0) -> Drawn:
    return weighted_sum([(1, drawn[base].measures[measure]), (-1, drawn[shift].measures[measure])])


def bounds(estimate: Estimate) -> tuple[float, float]:
    low, _, high = interval_of(estimate)
    return low, high


def test_blocks_of_replicates_change_nothing(
    sides: list[Matches], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bootstrap_scores(sides[0], 0.5, seed=5, replicates=50)
    monkeypatch.setattr(detection_stats, "_WEIGHTS_AT_ONCE", 80 * 7)
    monkeypatch.setattr(detection_stats, "_DRAWN_AT_ONCE", 100)
    parts = bootstrap_scores(sides[0], 0.5, seed=5, replicates=50)
    for name, number in whole.measures.items():
        np.testing.assert_array_equal(parts.measures[name].drawn, number.drawn)


def test_the_interval_of_f1_is_that_of_a_mean(sides: list[Matches]) -> None:
    f1 = image_f1(sides[0], 0.3)
    scores = bootstrap_scores(sides[0], 0.3, seed=1, replicates=2000)
    low, high = bounds(scores.measures["F1"].interval())
    half = stats.t.isf(0.025, len(f1) - 1) * f1.std(ddof=1) / np.sqrt(len(f1))
    assert scores.measures["F1"].value == pytest.approx(f1.mean())
    assert high - low == pytest.approx(2 * half, rel=0.08)


def test_base_and_shift_are_drawn_together(
    sides: list[Matches], drawn: list[DetectorScores]
) -> None:
    apart = bootstrap_scores(sides[1], best_f1_score(sides[0]), seed=6, replicates=400).measures[
        "F1"
    ]
    together = drawn[1].measures["F1"]
    base = drawn[0].measures["F1"]
    paired = weighted_sum([(1, base), (-1, together)]).drawn.std()
    assert paired < 0.9 * weighted_sum([(1, base), (-1, apart)]).drawn.std()
    assert drop(drawn, 1, "F1").value == pytest.approx(base.value - together.value)


def test_no_interval_has_no_width(drawn: list[DetectorScores]) -> None:
    perfect = drawn[2]
    nothing = drawn[4]
    for name in ("AP", "AP50", "recall", "F1"):
        low, high = bounds(perfect.measures[name].interval())
        assert perfect.measures[name].value == pytest.approx(1) and 0.9 < low < 0.999 and high == 1
        low, high = bounds(nothing.measures[name].interval())
        assert low == 0 and 0.001 < high < 0.1
    low, high = bounds(drop(drawn, 2, base=2).interval())
    assert -0.1 < low < 0 < high < 0.1
    # With the same answers on both sides, resamples show no difference although other images could.
    low, high = bounds(drop(drawn, 0).interval())
    assert -0.1 < low < 0 < high < 0.1
    assert nothing.near_chance and not perfect.near_chance and not drawn[0].near_chance


def test_few_images_have_no_interval() -> None:
    few = made_matches(WORLD, SKILLS[:1], 6, np.random.default_rng(0))[0]
    scores = bootstrap_scores(few, 0.5, seed=0, replicates=50)
    assert scores.measures["AP"].interval() == Estimate(scores.measures["AP"].value)
    nothing = match_detections(Objects.of([], [], []), Detections.of([], [], [], []), 30, 2)
    scores = bootstrap_scores(nothing, 0.5, seed=0, replicates=50)
    assert np.isnan(scores.measures["AP"].value) and scores.measures["AP"].interval().low is None
    assert all(np.isnan(category.value) for category in scores.categories)
    assert scores.near_chance


def test_sums_and_ratios_are_those_of_values(drawn: list[DetectorScores]) -> None:
    base, *shifts = (scores.measures["AP"] for scores in drawn[:4])
    mean = weighted_sum([(1 / 3, shift) for shift in shifts])
    assert mean.value == pytest.approx(np.mean([shift.value for shift in shifts]))
    share = resampled_ratio(mean, base)
    assert share.value == pytest.approx(mean.value / base.value)
    low, high = bounds(resampled_ratio(shifts[0], base).interval())
    assert low < shifts[0].value / base.value < high
    assert np.isnan(resampled_ratio(base, weighted_sum([(0.0, base)])).value)


def test_what_a_bias_leaves_in_doubt_moves_the_other_end_of_a_subtracted_part() -> None:
    draws = np.random.default_rng(0).normal(0.3, 0.02, 200)
    plain = Drawn(0.3, draws, 0.0, (0.0, 0.0), 50)
    distance = replace(plain, doubt=(0.1, 0.0))
    assert weighted_sum([(0.5, plain), (0.5, plain)]).doubt is None
    assert weighted_sum([(1.0, plain), (-1.0, distance)]).doubt == (0.0, 0.1)
    assert weighted_sum([(1.0, distance), (-1.0, distance)]).doubt == (0.1, 0.1)
    low, high = bounds(distance.interval())
    certain_low, certain_high = bounds(replace(plain, doubt=(0.0, 0.0)).interval())
    assert (low, high) == (pytest.approx(certain_low - 0.1), certain_high)


def test_a_share_of_the_base_is_one_less_the_relative_drop(drawn: list[DetectorScores]) -> None:
    base, *shifts = (scores.measures["AP"] for scores in drawn)
    for part in (base, *shifts):
        lost = weighted_sum([(1.0, base), (-1.0, part)])
        relative = replace(resampled_ratio(lost, base), signed=True).interval()
        least, most = bounds(relative)
        low, high = bounds(resampled_ratio(part, base).interval())
        assert (low, high) == (pytest.approx(max(0.0, 1 - most)), pytest.approx(1 - least))
    # A detector that loses nothing may gain on other images.
    assert bounds(resampled_ratio(base, base).interval())[1] > 1


def test_intervals_that_hold_at_once_are_longer(drawn: list[DetectorScores]) -> None:
    drops = [drop(drawn, shift) for shift in (1, 3, 4)]
    for estimate, simultaneous in zip(drops, simultaneous_intervals(drops), strict=True):
        alone = bounds(estimate.interval())
        together = bounds(simultaneous)
        assert together[0] <= alone[0] and alone[1] <= together[1] and together != alone
    alone = drops[0].interval()
    assert simultaneous_intervals(drops[:1])[0].value == alone.value


def test_the_bias_is_that_of_few_images() -> None:
    rng = np.random.default_rng(11)
    many = made_matches(World("eight categories", 8, 0.5), SKILLS[:1], 2500, rng)[0]
    truth = float(average_precision(many).measure("AP"))
    images = Images(many)
    plain = []
    corrected = []
    for number in range(30):
        some = images.chosen(rng.choice(2500, 60, replace=False))
        score = bootstrap_scores(some, 0.5, number, replicates=2).measures["AP"]
        plain.append(score.value - truth)
        corrected.append(score.value - score.bias - truth)
    error = np.std(plain) / np.sqrt(len(plain))
    assert np.mean(plain) > 3 * error
    assert abs(np.mean(corrected)) < np.mean(plain) / 2


def test_a_difference_counts_one_more_image_than_its_resamples_show() -> None:
    """Two more images are added to the share of images that change it; one of them changes it by
    1."""
    images = 50
    drawn = np.random.default_rng(0).normal(0.1, 0.01, 4000)
    difference = Drawn(0.1, drawn, 0.0, (0.0, 0.0), images, signed=True).interval()
    low, _, high = interval_of(difference)
    variance = np.var(drawn, ddof=1) * (stats.t.ppf(0.975, images - 1) / stats.norm.ppf(0.975)) ** 2
    half = stats.norm.ppf(0.975) * np.sqrt(variance + 1 / (images + 2) / images)
    assert (high - 0.1, 0.1 - low) == pytest.approx((half, half))


def test_intervals_hold_the_truth() -> None:
    """Check a small part of what `scripts/prove_detection.py` prints."""
    rng = np.random.default_rng(12)
    many = made_matches(WORLD, SKILLS[:2], 2500, rng)
    truth = average_precision(many[0]).measure("AP") - average_precision(many[1]).measure("AP")
    choosers = [Images(matches) for matches in many]
    covered = 0
    for number in range(60):
        chosen = rng.choice(2500, 60, replace=False)
        base, shift = (
            bootstrap_scores(chooser.chosen(chosen), 0.5, number, replicates=100).measures["AP"]
            for chooser in choosers
        )
        low, high = bounds(weighted_sum([(1, base), (-1, shift)]).interval())
        covered += low <= truth <= high
    assert covered >= 53  # at 95 %, fewer are seen in 2 of 100 runs
