"""How much faster the directions of many classes are fitted than by plain scikit-learn, with the same outcome.

    python scripts/bench_directions.py [--workers 2] [--write]     # --write: into scripts/RESULTS.md

- own:   `mining.methods.svm.fit_directions`, start of its worker processes included, without permutations;
- plain: class after class `cross_val_score` of `SVC(kernel="linear", class_weight="balanced")` for every C, and a
         refit on all rows by the best, the smallest of equals.

Both get the same points, seeds and folds: Gaussian ones of width 512, correlated as embeddings are, whitened, with a
planted direction and 15 to 30 % errors. Seconds are of one run on one machine; those of the
processor count what all processes used, and depend less on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.methods.svm import GRID, Direction, fit_directions, whiten

RESULTS = Path(__file__).parent / "RESULTS.md"
HEADING = "## Fitting of directions: `scripts/bench_directions.py`"
WORLDS = ((1000, 50), (20, 2000))  # classes, rows of each
WIDTH = 512
SEED = 0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Seconds:
    """By the clock, and of the processor in all processes that have ended."""

    wall: float
    cpu: float


def world(classes: int, rows: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Unit points (classes · rows, width), whether each is right, and its class; rows of classes take turns."""
    rng = np.random.default_rng([SEED, classes, rows])
    labels = np.tile(np.arange(classes), rows)
    right = rng.random(len(labels)) >= rng.uniform(0.15, 0.3, classes)[labels]
    narrowing = np.arange(1, WIDTH + 1) ** -0.3
    axes = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    planted = rng.normal(size=(classes, WIDTH)) / WIDTH**0.5
    features = (rng.normal(size=(len(labels), WIDTH)) * narrowing) @ axes
    features += np.where(right, 1, -1)[:, None] * planted[labels] / 2
    return whiten(features, features.mean(axis=0), features.std(axis=0, ddof=1)), right, labels


def plain(points: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[float, Any]:
    """C and the refitted model of one class."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.svm import SVC

    folds = StratifiedKFold(2, shuffle=True, random_state=SEED)
    models = [SVC(kernel="linear", class_weight="balanced", C=C) for C in GRID]
    scores = [cross_val_score(one, points, right, cv=folds, scoring="balanced_accuracy").mean() for one in models]
    best = int(np.argmax(np.round(scores, 9)))  # equal up to rounding is equal
    return GRID[best], models[best].fit(points, right)


def measured(classes: int, rows: int, workers: int) -> list[str]:
    """The cells of one line of the table."""
    points, right, labels = world(classes, rows)
    settings: Any = {"seed": SEED, "workers": workers, "permutations": 0, "fewest_errors": 2}
    found, own = timed(lambda: fit_directions(points, right, labels, classes, **settings))
    of_class = [labels == label for label in range(classes)]
    expected, usual = timed(lambda: [plain(points[mine], right[mine]) for mine in of_class])
    other_c, furthest = 0, 0.0
    for mine, direction, (C, model) in zip(of_class, found, expected, strict=True):
        assert isinstance(direction, Direction), direction
        other_c += direction.C != C
        away = np.abs(direction.decision(points[mine]) - model.decision_function(points[mine])).max()
        furthest = max(furthest, float(away))
    return [
        f"{classes:,} × {rows:,}",
        f"{usual.wall:.1f} s",
        f"{own.wall:.1f} s",
        f"{usual.wall / own.wall:.1f}",
        f"{usual.cpu:.1f} s",
        f"{own.cpu:.1f} s",
        f"{usual.cpu / own.cpu:.1f}",
        f"{other_c}",
        f"{furthest:.0e}",
    ]


def timed(work: Callable[[], Result]) -> tuple[Result, Seconds]:
    started, used = time.perf_counter(), processor_seconds()
    result = work()
    return result, Seconds(time.perf_counter() - started, processor_seconds() - used)


def processor_seconds() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def section(lines: Sequence[str], workers: int, load: float) -> str:
    """The section of RESULTS.md. `load`: what else the machine did when it began."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("scikit-learn", "numpy", "scipy"))
    return "\n".join(
        [
            HEADING,
            "",
            f"`python scripts/bench_directions.py --workers {workers}`, on {platform.system()} with Python"
            f" {platform.python_version()} and {versions}.",
            "Classes × rows of width 512, fitted without permutations: *plain* is scikit-learn class after class, *own*"
            " `fit_directions` with the start of its workers.",
            f"The machine's load was {load:.1f} on {os.cpu_count()} cores before. *Processor* counts the seconds of all"
            " processes, of which more run at once on two free cores; on a shared machine those by the clock say less.",
            "",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true", help=f"put the table into scripts/{RESULTS.name}")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    import sklearn.model_selection
    import sklearn.svm  # noqa: F401  # loaded before the clock starts

    titles = ["classes", "plain", "own", "ratio", "plain, processor", "own, processor", "ratio"]
    titles += ["classes of another C", "furthest decision"]
    lines = [f"| {' | '.join(titles)} |", f"| -- |{' --: |' * (len(titles) - 1)}"]
    print("\n".join(lines), flush=True)
    for classes, rows in WORLDS:
        lines.append(f"| {' | '.join(measured(classes, rows, arguments.workers))} |")
        print(lines[-1], flush=True)
    if arguments.write:
        from fuzzing.report import write_section

        write_section(RESULTS, section(lines, arguments.workers, load))


if __name__ == "__main__":
    main()
