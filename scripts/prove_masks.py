"""Prove the intervals of segmenters, where truth is known: pixels are counted, no image is drawn.

    python scripts/prove_masks.py --write       # the tables, into RESULTS.md
    python scripts/prove_masks.py --settings    # the seed that settings were chosen on

A few minutes of one core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.random import Generator, default_rng
from scipy.special import expit

import proving
from counterfoil.arrays import Floats
from counterfoil.evaluation.gate import Answer, GateLine, Judged
from counterfoil.evaluation.tasks.masks.measures import (
    MEAN_IOU,
    MEAN_RECALL,
    MEANS,
    MeasuredSegmenter,
)
from counterfoil.mask_stats import BOUNDARY, IOU, PIXELS, PixelCounts, score_masks
from counterfoil.resampled_stats import (
    FEWEST_IMAGES,
    Drawn,
    Units,
    joint_reach,
    weighted_sum,
)
from counterfoil.stats import Estimate
from interval_coverage import Coverage, coverage_rows, intervals_of, percent
from results_page import table

SHARES = (1.0, 0.9, 0.5, 0.25, 0.1)  # of images that have each class
SIZES = (
    1.5,
    1.0,
    0.0,
    -1.0,
    -1.5,
)  # the mean logarithm of a class's area, before images are filled
CLASSES = range(len(SHARES))
COMMON = 1
HALF = 2
RARE = len(SHARES) - 1
PIXELS_OF_IMAGE = 40_000
# The logit of the share of a class's pixels that is found: on the base, under a mild shift and under
# a strong one.
SKILLS = {"good": (3.0, 2.6, 1.5), "middling": (1.2, 0.9, 0.2), "almost perfect": (5.5, 5.3, 3.5)}
TWIN = 0.9  # of a segmenter's skill
ALIKE = 0.5  # of the variance of areas and errors, that images of a unit have in common
FRAMES = 6  # of a unit
POPULATION = 60_000
IMAGES = {10: 300, 20: 300, 50: 300, 200: 200}  # images of a set → sets
UNITS = {10: 200, 20: 200, 50: 200}  # units of a set → sets
REPLICATES = 200  # fewer than the package draws, for there are many sets
TITLE = "Segmenters: intervals"
OPENING = [
    f"Sets of images with {len(SHARES)} classes, which"
    f" {', '.join(f'{100 * share:g}' for share in SHARES)} % of images have, with areas that differ"
    " threefold and more, are drawn from"
    f" {POPULATION:,} images, whose numbers are the truth. Each segmenter is scored on a base, a mild"
    " and a strong shift. Errors of an image go together over classes, under base and shifts, and"
    " between a segmenter and its twin, which has"
    f" {TWIN:g} of its skill. In a few images a segmenter fails far more than in others. The truth of"
    " a mean is over the classes that the set measures, that of a drop over those that are not near"
    " chance in the set.",
]


class Remembering(MeasuredSegmenter):
    """A segmenter that keeps its shares, which several numbers ask for."""

    @cached_property
    def _shares(self) -> dict[tuple[int, str, int | None, bool], Drawn]:
        return {}

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        key = group, measure, label, of_drop
        if key not in self._shares:
            self._shares[key] = super().share(*key)
        return self._shares[key]


@dataclass(frozen=True)
class World:
    """Images of which sets are drawn: the counts of each segmenter in each group, and their
    measures over all images. The second segmenter is the twin."""

    counts: tuple[tuple[PixelCounts, ...], ...]
    truth: tuple[tuple[Mapping[str, Floats], ...], ...]
    frames: int

    @classmethod
    def drawn(
        cls,
        skills: Sequence[float],
        frames: int,
        rng: Generator,
    ) -> World:
        unit = np.arange(POPULATION) // frames
        shared = np.sqrt(ALIKE) if frames > 1 else 0.0

        def noise(*shape: int) -> Floats:
            """Return standard normal numbers of images, which those of a unit share in part."""
            of_units = rng.normal(size=(unit[-1] + 1, *shape))[unit]
            of_images = rng.normal(size=(POPULATION, *shape))
            return np.asarray(shared * of_units + np.sqrt(1 - shared**2) * of_images)

        kinds = len(SHARES)
        limits = [NormalDist().inv_cdf(min(share, 1 - 1e-9)) for share in SHARES]
        present = noise(kinds) < np.array(limits)
        present[:, 0] = True
        area = present * np.exp(np.array(SIZES) + noise(kinds))
        having = np.round(PIXELS_OF_IMAGE * area / area.sum(axis=1, keepdims=True)).astype(np.int64)
        # Where missed pixels go: mostly to classes of the image.
        answered = 0.8 * having / having.sum(axis=1, keepdims=True) + 0.2 / kinds
        ease = noise()
        hurt = 0.6 * noise()
        of_image = noise(kinds)
        counts = []
        for skill in (1.0, TWIN):
            of_model = np.sqrt(0.5) * (of_image + noise(kinds))
            groups = []
            for group, mean in enumerate(skills):
                error = 0.6 * of_model
                if group:
                    error = 0.85 * error + 0.3 * noise(kinds) + hurt[:, None]
                logit = skill * mean - 0.2 * np.arange(kinds) + 0.8 * ease[:, None] + error
                hits = rng.binomial(having, expit(logit))
                missed = (having - hits) / (1 - answered)
                elsewhere = answered * (missed.sum(axis=1, keepdims=True) - missed)
                boundary = expit(logit - 1 + 0.3 * noise(kinds))
                boundary[~present] = np.nan
                given = hits + np.round(elsewhere).astype(np.int64)
                groups.append(PixelCounts(having, given, hits, boundary))
            counts.append(tuple(groups))
        once = np.ones((POPULATION, 1), np.int32)
        truth = []
        for groups in counts:
            of_groups = []
            for group in groups:
                measured = group.measured(once)
                of_groups.append({name: values[:, 0] for name, values in measured.items()})
            truth.append(tuple(of_groups))
        return cls(tuple(counts), tuple(truth), frames)

    def measured(
        self,
        units: int,
        by_unit: bool,
        rng: Generator,
        seed: int,
    ) -> tuple[MeasuredSegmenter, MeasuredSegmenter]:
        """Draw a set of units, and measure both segmenters on it, with intervals over units or over
        images."""
        chosen = rng.choice(POPULATION // self.frames, units, replace=False)
        images = (chosen[:, None] * self.frames + np.arange(self.frames)).ravel()
        of_image = np.repeat(np.arange(units), self.frames)
        drawn_units = Units.of(of_image if by_unit else np.arange(len(images)))
        segmenters = []
        for groups in self.counts:
            counts = []
            for each in groups:
                of_set = PixelCounts(
                    each.having[images],
                    each.given[images],
                    each.hits[images],
                    each.boundary[images],
                )
                counts.append(of_set)
            totals = counts[0].having.sum(axis=0)
            subject: Any = SimpleNamespace(
                measured=tuple(np.flatnonzero(totals).tolist()),
                shares=totals / totals.sum(),
                preview=False,
            )
            scores = score_masks(counts, seed, REPLICATES, drawn_units)
            answered: Any = None
            segmenters.append(Remembering("", subject, answered, scores, tuple(counts)))
        return segmenters[0], segmenters[1]


@dataclass(frozen=True)
class Term:
    """A measure of a segmenter in a group, with a weight: numbers are sums of terms."""

    weight: float
    model: int
    group: int
    measure: str
    label: int | None = None
    of_drop: bool = False


Question = tuple[Term, ...]


def level(
    measure: str,
    group: int = 0,
    label: int | None = None,
) -> Question:
    return (Term(1.0, 0, group, measure, label),)


def drop(
    measure: str,
    group: int,
    label: int | None = None,
    model: int = 0,
) -> Question:
    base = Term(1.0, model, 0, measure, label, True)
    return base, Term(-1.0, model, group, measure, label, True)


def more_than_twin(measure: str, group: int) -> Question:
    """Return how much more the segmenter loses than its twin."""
    of_twin = []
    for term in drop(measure, group, model=1):
        of_twin.append(Term(-term.weight, 1, term.group, measure, None, True))
    return *drop(measure, group), *of_twin


def questions(segmenter: MeasuredSegmenter) -> dict[str, list[Question]]:
    """Return what is asked of a set, by name; the intervals of several hold at once."""
    by_name = {}
    for measure in MEANS:
        name = measure.replace("_", " ")
        by_name[name] = [level(measure)]
        by_name[f"{name}, strong shift"] = [level(measure, 2)]
        by_name[f"drops of {name}, both shifts"] = [drop(measure, 1), drop(measure, 2)]
    for label, name in ((COMMON, "of nine tenths"), (HALF, "of half"), (RARE, "of a tenth")):
        if label not in segmenter.sound:
            continue
        by_name[f"IoU of the class {name} of images"] = [level(IOU, 0, label)]
        by_name[f"its drop, strong shift ({name})"] = [drop(IOU, 2, label)]
    counted = [
        label
        for label in segmenter.sound
        if segmenter.scores[0].images[IOU][label] >= FEWEST_IMAGES
    ]
    by_name["drops of IoU, all classes and shifts"] = [
        drop(IOU, group, label) for group in (1, 2) for label in counted
    ]
    by_name["drops of mIoU less a twin's, both shifts"] = [
        more_than_twin(MEAN_IOU, 1),
        more_than_twin(MEAN_IOU, 2),
    ]
    return by_name


def measured_number(question: Question, segmenters: Sequence[MeasuredSegmenter]) -> Drawn:
    parts = []
    for term in question:
        share = segmenters[term.model].share(term.group, term.measure, term.label, term.of_drop)
        parts.append((term.weight, share))
    return parts[0][1] if len(parts) == 1 else weighted_sum(parts)


def true_number(
    question: Question,
    world: World,
    segmenters: Sequence[MeasuredSegmenter],
) -> float:
    """Return the number over all images, for the classes that the set measures."""
    total = 0.0
    for term in question:
        segmenter = segmenters[term.model]
        chosen = segmenter.sound if term.of_drop else segmenter.subject.measured
        if term.label is not None:
            chosen = (term.label,)
        if term.measure == PIXELS:
            chosen = (0,)
        values = world.truth[term.model][term.group][MEANS.get(term.measure, term.measure)]
        total += term.weight * float(values[list(chosen)].mean())
    return total


# The lines of a gate that is judged at its limits: what each measures, and whether it is met below.
GATE: tuple[tuple[Question, str], ...] = (
    (level(MEAN_IOU, 2), MEAN_IOU),
    (drop(PIXELS, 2), "drop"),
    (drop(MEAN_RECALL, 2), "drop"),
    (drop(BOUNDARY, 1), "drop"),
    (drop(IOU, 2, COMMON), "drop"),
)


def gate_verdicts(
    world: World,
    segmenters: Sequence[MeasuredSegmenter],
) -> list[Answer]:
    """Return the verdicts of a gate whose limits are the true numbers."""
    numbers = [measured_number(question, segmenters) for question, _ in GATE]
    reach = joint_reach(numbers)
    verdicts = []
    for (question, measure), number in zip(GATE, numbers, strict=True):
        line = GateLine("", measure, "", true_number(question, world, segmenters))
        judged = Judged(line, "", "", "undecided").measured(number, reach)
        verdicts.append(judged.verdict)
    return verdicts


def estimates_of_set(
    world: World, segmenters: Sequence[MeasuredSegmenter]
) -> Iterator[tuple[str, list[Estimate], list[float]]]:
    """Yield the intervals of a set, with the truth, by name."""
    both = segmenters[0].compared_with(segmenters[1]), segmenters[1].compared_with(segmenters[0])
    for name, of_name in questions(segmenters[0]).items():
        compared = both if "twin" in name else segmenters
        if not of_name or not compared[0].sound:
            continue
        numbers = [measured_number(question, compared) for question in of_name]
        truths = [true_number(question, world, compared) for question in of_name]
        yield name, intervals_of(numbers), truths


def coverage(seed: int) -> Iterator[proving.Table]:
    """Yield the table as it grows: how often intervals of sets hold the truth, all those of a line
    at once, and how often a gate at its limits decides."""
    lines = [
        "How often 95 % intervals hold the truth, in % of sets (where a line has several, all at"
        " once), and their median width in points. A number below 93 is bold; – stands where most"
        " sets have no interval, for want of"
        f" {FEWEST_IMAGES} images of the class. *Above*: how far the value lies above the truth on"
        " average, in points. The gate has"
        f" {len(GATE)} lines, each with its limit at the truth (mIoU, and drops of pixel accuracy,"
        " mean accuracy, boundary F1 and one class's IoU): how often no line fails or passes."
        f" {', '.join(f'{sets} sets of {images} images' for images, sets in IMAGES.items())}; 300"
        " sets show 95 % to within 2.5 points, 200 to within 3.",
        "",
    ]
    titles = [
        "segmenter",
        "interval",
        *(f"{images} images" for images in IMAGES),
        f"above, {min(IMAGES)} images",
    ]
    rows: list[list[str]] = []
    for number, (skill, skills) in enumerate(SKILLS.items()):
        world = World.drawn(skills, 1, default_rng([seed, number]))
        covered = {images: Coverage() for images in IMAGES}
        undecided: list[str] = []
        for images, sets in IMAGES.items():
            rng = default_rng([seed, number, images])
            decided = 0
            for number_of_set in range(sets):
                segmenters = world.measured(images, False, rng, number_of_set)
                for name, estimates, truths in estimates_of_set(world, segmenters):
                    covered[images].add(name, estimates, truths)
                verdicts = gate_verdicts(world, segmenters)
                decided += any(verdict != "undecided" for verdict in verdicts)
            undecided.append(percent(1 - decided / sets))
        fewest = {images: sets / 4 for images, sets in IMAGES.items()}
        rows += [[skill, *row] for row in coverage_rows(covered, fewest)]
        rows.append([skill, "a gate at its limits", *undecided, ""])
        yield proving.Table("coverage", [*lines, *table(titles, rows, words=2)])


SHOWN_OF_UNITS = (
    "mIoU",
    "pixel accuracy",
    "mean accuracy",
    "boundary F1",
    "drops of mIoU, both shifts",
    "drops of pixel accuracy, both shifts",
    "drops of boundary F1, both shifts",
    "drops of mIoU less a twin's, both shifts",
)


def units(seed: int) -> Iterator[proving.Table]:
    """Yield how often intervals hold the truth for images of units, drawn by unit and one by
    one."""
    lines = [
        f"Images in units of {FRAMES}, which have {100 * ALIKE:g} % of the variance of areas and"
        " errors in common: the middling segmenter. How often 95 % intervals hold the truth, in % of"
        " sets, and their median width in points, where units are drawn and, in the next column,"
        " where images are drawn one by one. A number below 93 is bold."
        f" {', '.join(f'{sets} sets of {number} units' for number, sets in UNITS.items())}.",
        "",
    ]
    titles = ["interval", *chain(*((f"{number} units", "by image") for number in UNITS))]
    world = World.drawn(SKILLS["middling"], FRAMES, default_rng([seed, FRAMES]))
    rows: dict[str, list[str]] = {name: [] for name in SHOWN_OF_UNITS}
    for number, sets in UNITS.items():
        for by_unit in (True, False):
            rng = default_rng([seed, FRAMES, number])
            covered = Coverage()
            for number_of_set in range(sets):
                segmenters = world.measured(number, by_unit, rng, number_of_set)
                for name, estimates, truths in estimates_of_set(world, segmenters):
                    covered.add(name, estimates, truths)
            for name, cells in rows.items():
                cells.append(covered.cell(name, sets / 4))
    shown = [[name, *cells] for name, cells in rows.items()]
    yield proving.Table("units", [*lines, *table(titles, shown)])


PARTS = {"coverage": coverage, "units": units}


if __name__ == "__main__":
    proving.SeededProof("prove_masks", TITLE, OPENING, PARTS).run(__doc__)
