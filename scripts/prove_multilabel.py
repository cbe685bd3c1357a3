"""Prove the intervals of classifiers of several labels, where truth is known: scores are drawn, no
image is.

    python scripts/prove_multilabel.py --write       # the tables, into RESULTS.md
    python scripts/prove_multilabel.py --settings    # the seed that settings were chosen on

A few minutes of one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

import proving
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.detection_stats import Detections, Objects, bootstrap_scores, match_detections
from counterfoil.multilabel_stats import (
    ACCURACY,
    AUROC,
    PRECISION,
    LabelThresholds,
    LabelTruth,
    choose_thresholds,
    label_auroc,
    label_precision,
    score_labels,
)
from counterfoil.resampled_stats import CategoryScores, Drawn, Units
from counterfoil.stats import Estimate
from interval_coverage import Coverage, coverage_rows, intervals_of, less
from results_page import table

SHARES = (0.5, 0.4, 0.3, 0.2, 0.15, 0.1)  # of images that have each label
RARE = len(SHARES) - 1
LABELS = range(len(SHARES))
# How far the scores of images with a label are above the others, in their standard deviation: on
# the base, under a mild shift and under a strong one.
SKILLS = {"good": (3.0, 2.5, 1.5), "middling": (1.5, 1.2, 0.6), "perfect": (12.0, 12.0, 3.0)}
TWIN = 0.8  # of a classifier's skill
SETS = {100: 200, 400: 100, 2000: 30}  # images of a set → sets
POPULATION = 100_000
REPLICATES = 300  # fewer than the package draws, for there are many sets
TITLE = "Several labels: intervals"
OPENING = [
    f"Sets of images with {len(SHARES)} labels, which"
    f" {', '.join(f'{100 * share:g}' for share in SHARES)} % of images"
    f" have, are drawn from {POPULATION:,} images, whose numbers are the truth. Each classifier is"
    " scored on a base and"
    " two shifts; scores of one image under base and shifts, and of its labels, go together. The"
    " truth of an accuracy"
    f" is that of the thresholds that the set chose. A twin has {TWIN:g} of the skill, and shares"
    " half of the noise.",
]


@dataclass(frozen=True)
class Population:
    """present: (n, k). scores: of each group, (n, k)."""

    present: Bools
    scores: tuple[Floats, ...]

    @classmethod
    def drawn(cls, skills: tuple[float, ...], rng: Generator) -> Population:
        shape = (POPULATION, len(SHARES))
        ease = rng.normal(size=(POPULATION, 1))  # of the image
        limits = [NormalDist().inv_cdf(share) for share in SHARES]
        present = 0.4 * ease + rng.normal(size=shape) < np.sqrt(1.16) * np.array(limits)
        noises = _noises(shape, len(skills), rng)
        groups = []
        for skill, noise in zip(skills, noises, strict=True):
            groups.append(skill * present + 0.9 * noise + 0.436 * ease)
        return cls(present, tuple(groups))

    def twin(self, skills: tuple[float, ...], rng: Generator) -> Population:
        """Return a classifier of less skill for the same images; half of its noise is this
        one's."""
        noises = _noises(self.present.shape, len(skills), rng)
        groups = []
        for skill, scores, noise in zip(skills, self.scores, noises, strict=True):
            both = scores - skill * self.present + noise
            groups.append(TWIN * skill * self.present + np.sqrt(0.5) * both)
        return Population(self.present, tuple(groups))

    def measured(self, measure: Callable[..., Floats]) -> list[Floats]:
        """Return a measure of each label (k,) in each group."""
        return measured(measure, self.scores, self.present)

    @property
    def truth(self) -> LabelTruth:
        return all_known(self.present)

    def accuracy(self, group: int, thresholds: LabelThresholds) -> Floats:
        """Return each label's balanced accuracy over all images, of half of the images by either
        threshold."""
        accuracies = []
        for label, values in enumerate(thresholds.values.T):
            having, lacking = self._sorted[group, label]
            missed = np.searchsorted(having, values)
            rejected = np.searchsorted(lacking, values)
            accuracies.append((1 - missed / len(having) + rejected / len(lacking)).mean() / 2)
        return np.array(accuracies)

    @cached_property
    def _sorted(self) -> dict[tuple[int, int], tuple[Floats, Floats]]:
        """Each label's scores in each group, of the images that have it and of those that lack
        it."""
        return {
            (group, label): (np.sort(scores[has]), np.sort(scores[~has]))
            for group, matrix in enumerate(self.scores)
            for label, (scores, has) in enumerate(zip(matrix.T, self.present.T, strict=True))
        }


def _noises(shape: tuple[int, ...], groups: int, rng: Generator) -> Iterator[Floats]:
    """Yield noise of the base, and noise much like it under each shift."""
    noise_of_base = rng.normal(size=shape)
    yield noise_of_base
    for _ in range(1, groups):
        yield 0.8 * noise_of_base + 0.6 * rng.normal(size=shape)


def all_known(present: Bools) -> LabelTruth:
    return LabelTruth(present, np.ones_like(present))


def measured(
    measure: Callable[..., Floats],
    scores: Sequence[Floats],
    present: Bools,
) -> list[Floats]:
    """Return a measure of each label (k,) by the scores of each group."""
    once = np.ones((len(present), 1), np.int32)
    return [measure(group, all_known(present), once)[:, 0] for group in scores]


def numbers_of(
    mean: Callable[..., Any],
    less: Callable[[Any, Any], Any],
) -> dict[str, list[Any]]:
    """Return what is asked of a set, by name; the intervals of several numbers hold at once.

    mean: of a measure, in a group, over labels, of the classifier or of its twin. less: a number
    less another.
    """

    def drops(measure: str, labels: Sequence[int] = LABELS, model: int = 0) -> list[Any]:
        base = mean(measure, 0, labels, model)
        return [less(base, mean(measure, group, labels, model)) for group in (1, 2)]

    numbers = {}
    for measure, name in ((PRECISION, "mAP"), (ACCURACY, "accuracy")):
        numbers[name] = [mean(measure, 0, LABELS, 0)]
        numbers[f"{name}, strong shift"] = [mean(measure, 2, LABELS, 0)]
        numbers[f"drops of {name}, both shifts"] = drops(measure)
        rare = "AP" if measure == PRECISION else name
        numbers[f"{rare} of the rarest label"] = [mean(measure, 0, [RARE], 0)]
        cells = [drops(measure, [label]) for label in LABELS]
        numbers[f"drops of {rare}, all labels and shifts"] = [
            drop for of_shift in zip(*cells, strict=True) for drop in of_shift
        ]
    both = zip(drops(PRECISION), drops(PRECISION, model=1), strict=True)
    numbers["drops of mAP less a twin's, both shifts"] = [less(*pair) for pair in both]
    return numbers


def intervals(*models: tuple[CategoryScores, ...]) -> dict[str, list[Estimate]]:
    """Return the intervals of a set by what they are of."""

    def mean(measure: str, group: int, labels: Sequence[int], model: int) -> Drawn:
        return models[model][group].mean(measure, labels)

    return {name: intervals_of(numbers) for name, numbers in numbers_of(mean, less).items()}


def truths(*models: Mapping[str, list[Floats]]) -> dict[str, list[float]]:
    """Return the true numbers in the form of `intervals`. models: measures by group."""

    def of_labels(measure: str, group: int, labels: Sequence[int], model: int) -> Floats:
        return models[model][measure][group][list(labels)]

    numbers = numbers_of(of_labels, np.subtract)
    return {name: [float(values.mean()) for values in each] for name, each in numbers.items()}


def coverage(seed: int) -> Iterator[proving.Table]:
    """Yield the table as it grows: how often intervals of sets hold the truth, all those of a line
    at once."""
    lines = [
        "How often 95 % intervals hold the truth, in % of sets (where a line has several, all at"
        " once), and their"
        " median width in points. A number below 93 is bold. *Above*: how far the value lies above"
        " the truth on"
        " average, in points."
        f" {', '.join(f'{sets} sets of {images:,} images' for images, sets in SETS.items())};"
        " 200 sets show 95 % to within 3 points, 30 to within 8.",
        "",
    ]
    rows = []
    titles = [
        "classifier",
        "interval",
        *(f"{images:,} images" for images in SETS),
        "above, fewest images",
    ]
    for skill, skills in SKILLS.items():
        population = Population.drawn(skills, default_rng([seed, len(skill)]))
        precision = population.measured(label_precision)
        twin = population.twin(skills, default_rng([seed, len(skill), 1]))
        true_twin = {PRECISION: twin.measured(label_precision)}
        covered = {images: Coverage() for images in SETS}
        for images, sets in SETS.items():
            rng = default_rng([seed, images, len(skill)])
            for number in range(sets):
                chosen = rng.choice(POPULATION, images, replace=False)
                known = population.truth.of(chosen)
                scores = [group[chosen] for group in population.scores]
                thresholds = choose_thresholds(scores[0], known, number)
                accuracy = [population.accuracy(group, thresholds) for group in range(len(skills))]
                true = truths({PRECISION: precision, ACCURACY: accuracy}, true_twin)
                drawn = score_labels(scores, known, thresholds, number, REPLICATES)
                twin_scores = [group[chosen] for group in twin.scores]
                twin_drawn = score_labels(twin_scores, known, thresholds, number, REPLICATES)
                for name, estimates in intervals(drawn, twin_drawn).items():
                    covered[images].add(name, estimates, true[name])
        rows += [[skill, *row] for row in coverage_rows(covered, dict.fromkeys(SETS, 1))]
        yield proving.Table("coverage", [*lines, *table(titles, rows, words=2)])


SINGLE_LABELS = {"AUROC of the most frequent label": 0, "AUROC of the rarest label": RARE}
UNKNOWN = 0.3  # of the labels of each image, in the table of AUROC
AUROC_SETS = {100: 200, 400: 100}  # images of a set → sets


def delong_interval(scores: Floats, has: Bools, area: float) -> Estimate:
    """Return an AUROC with the normal interval of DeLong's standard error (1988), cut to 0 … 1."""
    having = scores[has]
    lacking = scores[~has]
    won = (having[:, None] > lacking) + 0.5 * (having[:, None] == lacking)
    error = np.sqrt(
        won.mean(axis=1).var(ddof=1) / len(having) + won.mean(axis=0).var(ddof=1) / len(lacking)
    )
    half = 1.96 * float(error)
    return Estimate(area, max(0.0, area - half), min(1.0, area + half))


def auroc(seed: int) -> Iterator[proving.Table]:
    """Yield how often intervals of AUROC hold the truth, beside DeLong's, where some labels are
    unknown."""
    lines = [
        f"AUROC where {100 * UNKNOWN:g} % of all labels are unknown: how often 95 % intervals hold"
        " the truth, in % of"
        " sets, and their median width in points; in the next column DeLong's interval on the known"
        " images."
        f" {', '.join(f'{sets} sets of {images} images' for images, sets in AUROC_SETS.items())}. A"
        " number below 93 is"
        " bold.",
        "",
    ]
    titles = ["classifier", "interval"]
    titles += [title for images in AUROC_SETS for title in (f"{images} images", "DeLong's")]
    rows: dict[tuple[str, str], list[str]] = {}
    for skill, skills in SKILLS.items():
        population = Population.drawn(skills, default_rng([seed, len(skill), 2]))
        areas = population.measured(label_auroc)
        for images, sets in AUROC_SETS.items():
            covered = Coverage()
            delongs = Coverage()
            rng = default_rng([seed, images, len(skill), 2])
            for number in range(sets):
                chosen = rng.choice(POPULATION, images, replace=False)
                known = LabelTruth(
                    population.present[chosen], rng.random((images, len(SHARES))) >= UNKNOWN
                )
                if (known.least < 2).any():
                    continue
                scores = [group[chosen] for group in population.scores]
                drawn = score_labels(
                    scores, known, choose_thresholds(scores[0], known, number), number, REPLICATES
                )
                means = [scored.mean(AUROC, LABELS) for scored in drawn]
                drops = [less(means[0], shifted) for shifted in means[1:]]
                expected = [float((areas[0] - areas[group]).mean()) for group in (1, 2)]
                numbers = {
                    "mean AUROC": ([means[0]], [areas[0].mean()]),
                    "mean AUROC, strong shift": ([means[2]], [areas[2].mean()]),
                    "drops of mean AUROC, both shifts": (drops, expected),
                }
                for name, label in SINGLE_LABELS.items():
                    true_area = float(areas[0][label])
                    area = drawn[0].mean(AUROC, [label]).interval()
                    covered.add(name, [area], [true_area])
                    rows_of_label = known.known[:, label]
                    values = scores[0][rows_of_label, label]
                    has = known.present[rows_of_label, label]
                    value = float(drawn[0].values[AUROC][label])
                    delongs.add(name, [delong_interval(values, has, value)], [true_area])
                for name, (of_name, true) in numbers.items():
                    covered.add(name, intervals_of(of_name), true)
            for name in covered:
                delong = delongs.cell(name) if name in delongs else ""
                rows.setdefault((skill, name), []).extend([covered.cell(name), delong])
    shown = [[*key, *cells] for key, cells in rows.items()]
    yield proving.Table("auroc", [*lines, *table(titles, shown, words=2)])


VIDEOS = {10: 200, 20: 200, 40: 100}  # videos of a set → sets
MOST_FRAMES = 8  # of a video, which has 2 to so many
VIDEO_SHARES = (0.5, 0.4, 0.3)  # of videos that have each label
ALIKE = 0.8  # the share of the noise of scores that all frames of a video have in common
# the shares of videos whose object a detector finds on the base, and loses of these
FOUND = 0.9
LOST = 0.4


def draw_videos(
    videos: int, rng: Generator, alike: float = ALIKE
) -> tuple[Ints, Bools, list[NDArray]]:
    """Draw the video of each frame, its labels, and its scores on the base and under a shift.

    alike: the share of the noise of scores that all frames of a video have in common.
    """
    of_frame = np.repeat(np.arange(videos), rng.integers(2, MOST_FRAMES + 1, videos))
    present = (rng.random((videos, len(VIDEO_SHARES))) < VIDEO_SHARES)[of_frame]
    scores = []
    for skill in (2.0, 1.0):
        shared = rng.normal(size=(videos, len(VIDEO_SHARES)))[of_frame]
        noise = np.sqrt(alike) * shared + np.sqrt(1 - alike) * rng.normal(size=present.shape)
        scores.append(skill * present + noise)
    return of_frame, present, scores


def units(seed: int) -> Iterator[proving.Table]:
    """Yield how often intervals hold the truth for frames of videos, drawn by video and one by
    one."""
    lines = [
        f"Frames of videos, 2 to {MOST_FRAMES} a video, which all have its labels, and"
        f" {100 * ALIKE:g} % of the noise"
        f" of their scores in common. A detector finds the object of {100 * FOUND:g} % of videos in"
        " all of their"
        f" frames, and loses {100 * LOST:g} % of these under a shift. How often 95 % intervals hold"
        " the truth, in % of"
        " sets, and their median width in points, where videos are drawn and, in the next column,"
        " where frames are"
        " drawn one by one."
        f" {', '.join(f'{sets} sets of {videos} videos' for videos, sets in VIDEOS.items())}. A"
        " number below 93 is bold.",
        "",
    ]
    titles = [
        "interval",
        *(title for videos in VIDEOS for title in (f"{videos} videos", "by frame")),
    ]
    true = true_means(default_rng([seed, 3]))
    rows: dict[str, list[str]] = {}
    for videos, sets in VIDEOS.items():
        covered = Coverage()
        rng = default_rng([seed, videos, 3])
        for number in range(sets):
            of_frame, present, scores = draw_videos(videos, rng)
            detected = rng.random(videos) < FOUND
            kept = detected & (rng.random(videos) >= LOST)
            known = all_known(present)
            for by_video in (True, False):
                drawn_units = Units.of(of_frame if by_video else np.arange(len(of_frame)))
                in_frames = detected[of_frame], kept[of_frame]
                numbers = recalls_of(*in_frames, drawn_units, number, FOUND, FOUND * (1 - LOST))
                if known.least.min() >= 2:
                    numbers |= means_of_labels(scores, known, drawn_units, number, true)
                for name, (number_drawn, value) in numbers.items():
                    covered.add((name, by_video), [number_drawn.interval()], [value])
        for name, by_video in sorted(covered, key=lambda key: (key[0], not key[1])):
            rows.setdefault(name, []).append(covered.cell((name, by_video)))
    shown = [[name, *cells] for name, cells in rows.items()]
    yield proving.Table("units", [*lines, *table(titles, shown)])


def true_means(rng: Generator) -> dict[str, list[float]]:
    """Return the means over labels of very many videos, by measure on the base and under the
    shift."""
    _, present, scores = draw_videos(20_000, rng)
    means = {}
    for name, measure in ((PRECISION, label_precision), (AUROC, label_auroc)):
        means[name] = [float(values.mean()) for values in measured(measure, scores, present)]
    return means


def means_of_labels(
    scores: list[NDArray],
    known: LabelTruth,
    drawn_units: Units,
    seed: int,
    true: Mapping[str, list[float]],
) -> dict[str, tuple[Drawn, float]]:
    """Return the means of three labels and their drops, with the truth."""
    thresholds = choose_thresholds(scores[0], known, seed)
    drawn = score_labels(scores, known, thresholds, seed, REPLICATES, drawn_units)
    numbers = {}
    for measure, name in ((PRECISION, "mAP"), (AUROC, "mean AUROC")):
        base, shift = (scored.mean(measure, range(len(VIDEO_SHARES))) for scored in drawn)
        true_base, true_shift = true[measure]
        numbers[name] = base, true_base
        numbers[f"drop of {name}"] = less(base, shift), true_base - true_shift
    return numbers


def recalls_of(
    on_base: Bools,
    under_shift: Bools,
    drawn_units: Units,
    seed: int,
    base_rate: float,
    shift_rate: float,
) -> dict[str, tuple[Drawn, float]]:
    """Return a detector's recall on the base and its drop, with the truth.

    on_base, under_shift: (n,) whether it finds the object of each frame.
    """
    box = [0.0, 0.0, 20.0, 20.0]
    images = len(on_base)
    objects = Objects.of(np.arange(images), [box] * images, np.zeros(images, int))
    recalls = []
    for of_frames in (on_base, under_shift):
        hits = np.flatnonzero(of_frames)
        detections = Detections.of(
            hits, [box] * len(hits), np.zeros(len(hits), int), np.full(len(hits), 0.9)
        )
        matches = match_detections(objects, detections, images, 1)
        recalls.append(bootstrap_scores(matches, 0.5, seed, 100, drawn_units).measures["recall"])
    return {
        "recall of a detector": (recalls[0], base_rate),
        "drop of its recall": (less(*recalls), base_rate - shift_rate),
    }


PARTS = {"coverage": coverage, "auroc": auroc, "units": units}


if __name__ == "__main__":
    proving.SeededProof("prove_multilabel", TITLE, OPENING, PARTS).run(__doc__)
