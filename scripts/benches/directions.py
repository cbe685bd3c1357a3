"""How much faster the directions of many classes are fitted than by plain scikit-learn, with the
same outcome.

- own:   `mining.methods.svm.fit_directions`, start of its worker processes included, without
  permutations;
- plain: class after class `cross_val_score` of `SVC(kernel="linear", class_weight="balanced")` for
         every C, and a refit on all rows by the best, the smallest of equals.

Both get the same points, seeds and folds: Gaussian ones of width 512, correlated as embeddings are,
whitened, with a planted direction and 15 to 30 % errors. Seconds are of one run on one machine;
those of the processor count what all processes used, and depend less on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from benches import Page
from benches.processes import processor_seconds
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.mining.methods.svm import GRID, Direction, DirectionFit, fit_directions, whiten
from results_page import table

TITLE = "Fitting of directions"
PARTS = ("fitting",)
WORLDS = ((1000, 50), (20, 2000))  # classes, rows of each
WIDTH = 512
SEED = 0

Result = TypeVar("Result")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of workers."""
    parser.add_argument("--workers", type=int, default=2)


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Fit each world by both ways."""
    load = os.getloadavg()[0]
    titles = ["classes", "plain", "own", "ratio", "plain, processor", "own, processor", "ratio"]
    titles += ["classes of another C", "furthest decision"]
    opening = [
        f"`python scripts/bench.py directions --workers {options.workers}`. Classes × rows of width"
        f" {WIDTH}, fitted"
        " without permutations: *plain* is scikit-learn class after class, *own*"
        " `fit_directions` with the start of its workers.",
        f"The machine's load was {load:.1f} on {os.cpu_count()} cores before. *Processor* counts"
        " the seconds of all"
        " processes, of which more run at once on two free cores; on a shared machine those by the"
        " clock say less.",
    ]
    rows = []
    for classes, count in WORLDS:
        rows.append(measured(classes, count, options.workers))
        yield Page(opening, {"fitting": table(titles, rows)})


def measured(classes: int, rows: int, workers: int) -> list[str]:
    """Return the cells of one line of the table."""
    points, right, labels = world(classes, rows)
    fit = DirectionFit(SEED, permutations=0, fewest_errors=2)
    directions, *fast_times = timed(
        lambda: fit_directions(points, right, labels, classes, None, fit, workers)
    )
    of_class = [labels == label for label in range(classes)]
    expected, *usual = timed(lambda: [plain(points[mine], right[mine]) for mine in of_class])
    other_c = 0
    furthest = 0.0
    for mine, direction, (C, model) in zip(of_class, directions, expected, strict=True):
        assert isinstance(direction, Direction), direction
        other_c += direction.C != C
        away = np.abs(
            direction.decision(points[mine]) - model.decision_function(points[mine])
        ).max()
        furthest = max(furthest, float(away))
    seconds = [
        cell
        for slow, fast in zip(usual, fast_times, strict=True)
        for cell in (f"{slow:.1f} s", f"{fast:.1f} s", f"{slow / fast:.1f}")
    ]
    return [f"{classes:,} × {rows:,}", *seconds, f"{other_c}", f"{furthest:.0e}"]


def world(classes: int, rows: int) -> tuple[Floats, Bools, Ints]:
    """Return unit points (classes · rows, width), whether each is right, and its class; rows of
    classes take turns."""
    rng = np.random.default_rng([SEED, classes, rows])
    labels = np.tile(np.arange(classes), rows)
    right = rng.random(len(labels)) >= rng.uniform(0.15, 0.3, classes)[labels]
    narrowing = np.arange(1, WIDTH + 1) ** -0.3
    axes = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    planted = rng.normal(size=(classes, WIDTH)) / WIDTH**0.5
    features = (rng.normal(size=(len(labels), WIDTH)) * narrowing) @ axes
    features += np.where(right, 1, -1)[:, None] * planted[labels] / 2
    return whiten(features, features.mean(axis=0), features.std(axis=0, ddof=1)), right, labels


def plain(points: Floats, right: Bools) -> tuple[float, Any]:
    """Return C and the refitted model of one class."""
    folds = StratifiedKFold(2, shuffle=True, random_state=SEED)
    models = [SVC(kernel="linear", class_weight="balanced", C=C) for C in GRID]
    scores = [
        cross_val_score(model, points, right, cv=folds, scoring="balanced_accuracy").mean()
        for model in models
    ]
    best = int(np.argmax(np.round(scores, 9)))  # equal up to rounding is equal
    return GRID[best], models[best].fit(points, right)


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """Return what the work gives, and its seconds by the clock and of the processor, in all ended
    processes."""
    started = time.perf_counter()
    used = processor_seconds()
    result = work()
    return result, time.perf_counter() - started, processor_seconds() - used
