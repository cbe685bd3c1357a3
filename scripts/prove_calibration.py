"""Prove the intervals of the expected calibration error where truth is known.

    python scripts/prove_calibration.py --write
    python scripts/prove_calibration.py --settings       # the seed that settings were chosen on

Answers are drawn; nothing is built and no model is loaded. About five minutes of one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import product

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import proving
from counterfoil.accuracy_stats import confidence_bins
from counterfoil.arrays import Floats, Ints
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures.calibration import MEASURES
from counterfoil.stats import Estimate
from interval_coverage import Coverage
from prove_intervals import answered_of

IMAGES = (30, 100, 300, 1000, 3000)
SETS = 200
POPULATION = 400_000


def _wave(confidence: Floats) -> Floats:
    return confidence + 0.08 * np.sign(np.sin(30 * confidence))


# What a world is called: the parameters of the beta distribution of confidences, and the accuracy of
# answers with these confidences.
WORLDS: Mapping[str, tuple[tuple[float, float], Callable[[Floats], Floats]]] = {
    "calibrated": ((6, 1.5), lambda confidence: confidence),
    "calibrated and nearly always sure": ((20, 1), lambda confidence: confidence),
    "3 points too sure": ((6, 1.5), lambda confidence: confidence - 0.03),
    "10 points too sure": ((6, 1.5), lambda confidence: confidence - 0.1),
    "nearly always sure, 5 points too much": ((20, 1), lambda confidence: confidence - 0.05),
    "too sure and not sure enough in turn": ((6, 1.5), _wave),
    "too sure above 80 %, and not below": ((6, 1.5), lambda sure: 0.8 + (sure - 0.8) / 2),
}


def _answers(rng: np.random.Generator, world: str, images: int) -> tuple[Floats, Floats]:
    """Return confidences and the chances of being right, (n,) each."""
    shape, accuracy_of = WORLDS[world]
    confidence = rng.beta(*shape, size=images)
    return confidence, accuracy_of(confidence).clip(0, 1)


def true_error(world: str) -> float:
    """Return the calibration error of very many images."""
    confidence, chance = _answers(np.random.default_rng(0), world, POPULATION)
    bins: Ints = confidence_bins(confidence)
    apart = np.bincount(bins, chance - confidence)
    return float(np.abs(apart).sum()) / POPULATION


def drawn_answers(rng: np.random.Generator, world: str, images: int) -> AllAnswers:
    """Return drawn answers of two models, which are alike, to images of one class."""
    confidence, chance = _answers(rng, world, images)
    right = (rng.random(images) < chance).reshape(1, 1, images, 1).repeat(2, axis=3)
    return answered_of(right, seed=int(rng.integers(1 << 30)), confidence=confidence)


def covered(seed: int, world: str, images: int, sets: int) -> Coverage:
    """Return how often intervals hold the truth."""
    truth = true_error(world)
    rng = np.random.default_rng([seed, list(WORLDS).index(world), images])
    coverage = Coverage()
    rows_of = MEASURES["calibration_error"].rows
    assert rows_of is not None
    for _ in range(sets):
        row, *_ = rows_of(drawn_answers(rng, world, images))
        assert row.value is not None
        coverage.add("interval", [Estimate(row.value, row.low, row.high)], [truth])
    return coverage


def coverage(seed: int, sets: int = SETS) -> Iterator[proving.Table]:
    """Yield the table of all worlds and numbers of images."""
    lines = [
        f"How often the 95 % interval of the expected calibration error holds the truth, in % of"
        f" {sets} sets, and its median width in points. Below 93 is bold. The error that is printed"
        " is larger than the truth by chance: of calibrated answers (error 0) to 100 images it is"
        " about 9 points.",
        "",
        f"| answers | true error | {' | '.join(f'{images:,} images' for images in IMAGES)} |",
        f"| -- | --: | {' | '.join('--:' for _ in IMAGES)} |",
    ]
    cells = {}
    for world, images in product(WORLDS, IMAGES):
        cells[world, images] = covered(seed, world, images, sets).cell("interval")
    for world in WORLDS:
        of_world = " | ".join(cells[world, images] for images in IMAGES)
        lines.append(f"| {world} | {100 * true_error(world):.1f} | {of_world} |")
    yield proving.Table("coverage", lines)


def main() -> None:
    opening = [
        f"The table is of seed {proving.PRINTED_SEED}. That noise is added as to a difference, and"
        " how much more the bias may be, was chosen on other seeds."
    ]
    proof = proving.SeededProof(
        "prove_calibration", "Calibration errors", opening, {"coverage": coverage}
    )
    proof.run(__doc__)


if __name__ == "__main__":
    main()
