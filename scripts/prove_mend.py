"""Prove the method `contexts` and mended heads in planted worlds and on the wardrobe's classifiers,
beside controls.

    python scripts/prove_mend.py --write          # the tables, into mend_proof/RESULTS.md
    python scripts/prove_mend.py --settings --parts mending            # where settings were chosen
    python scripts/prove_mend.py --targets rare-100 --parts choosing   # one world, one part

Classifiers of planted worlds come from `scripts/train_planted.py`; a world without one is told and
left out. Pictures are kept by prompt under --kept, rows and features by content, and what a run
found as JSON by its code and settings: a killed proof goes on. Intervals are over worlds, or
classifiers, by Student's t, from five on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from proof_files import Facts

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import proving
from counterfoil.models.names import LAB_WEIGHTS
from mend_proof.parts import PARTS
from mend_proof.plan import (
    CHOSEN_IN,
    RUNS,
    SETTINGS_RUNS,
    SETTINGS_WORLDS,
    WARDROBE,
    Settings,
    code_of_part,
)
from mend_proof.runs import WIDE, Run, audit_of
from mend_proof.targets import Target
from proof_files import digest_of, measured
from results_page import by_kind

_SCREENS = {
    "all": "all, without a screen",
    "recipe": "those that pass the screen of `wardrobe-contexts`",
    "class": "those that CLIP finds most like their own class, which no recipe asks",
}


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "the worlds and runs that settings are chosen on")
    parser.add_argument(
        "--work", type=Path, default=Path(".train/planted"), help="where planted classifiers are"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path(".train/mend-proof"),
        help="pictures, features and results",
    )
    parser.add_argument(
        "--targets", nargs="+", default=[], metavar="TARGET", help="KIND-SEED or lab:MODEL"
    )
    parser.add_argument("--runs", nargs="+", type=int, default=[], metavar="SEED")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="other settings (mend_proof/plan.py)",
    )
    options = parser.parse_args()
    kept = options.kept.resolve()
    settings = _settings(options.set)
    present = []
    folders = (options.work, LAB_WEIGHTS / "planted")
    for name in options.targets or (
        SETTINGS_WORLDS if options.settings else (*WARDROBE, *CHOSEN_IN)
    ):
        if name in WARDROBE or any((folder / name / "config.json").exists() for folder in folders):
            present.append(name)
        else:
            print(f"{name}: no classifier; python scripts/train_planted.py {name}", file=sys.stderr)
    measured_tables = tables(present, options, kept, settings)
    proving.tell(
        "prove_mend",
        "Contexts and mended heads",
        _opening(settings),
        measured_tables,
        list(PARTS),
        options.write,
    )


def tables(
    present: list[str], options: argparse.Namespace, kept: Path, settings: Settings
) -> Iterator[proving.Table]:
    """Measure each part in all runs of its targets."""
    audits = cache(lambda name: audit_of(name, options.work, kept))
    runs = options.runs or (SETTINGS_RUNS if options.settings else RUNS)

    def measured_in(part: str, names: list[str], seed: int) -> Facts:
        """Return the result of a part in a run of one target, or of several together."""
        chosen = PARTS[part]
        folder = chosen.measured_as or part
        code = code_of_part(chosen.measure.__module__.rpartition(".")[2])
        key = digest_of(
            [
                code,
                [Target(name, options.work, kept).sha256 for name in names],
                seed,
                repr(settings),
            ]
        )
        shown = names[0].replace(":", "-") if len(names) == 1 else "together"

        def measure() -> Facts:
            several = [Run(audits(name), seed, settings) for name in names]
            return chosen.measure(several if chosen.together else several[0])

        path = kept / "results" / folder / f"{shown}-{seed}-{key}.json"
        with proving.timed(f"{folder} {shown} {seed}", least=1):
            return measured(path, measure)

    for name in options.parts:
        part = PARTS[name]
        names = [target for target in present if part.takes(target)]
        if not names:
            continue
        results: Any
        if part.together:
            results = [measured_in(name, names, seed) for seed in runs[: part.runs]]
        else:
            results = {
                target: [
                    measured_in(name, [target], seed) for seed in runs[: part.most_runs(target)]
                ]
                for target in names
            }
        used = (
            []
            if part.draws_nothing or part.only
            else [f"Pictures: {_SCREENS[settings.screen]}.", ""]
        )
        yield proving.Table(
            name,
            [f"### {part.title}", "", *used, *part.table(results)],
            f"{by_kind(names)}, runs {' '.join(map(str, runs))}, of classifiers the first"
            f" {part.runs}",
        )


def _settings(changes: list[str]) -> Settings:
    known: Facts = {}
    for change in changes:
        name, _, value = change.partition("=")
        default = getattr(Settings(), name)
        if isinstance(default, tuple):
            known[name] = tuple(float(number) for number in value.split(","))
        else:
            known[name] = type(default)(value)
    return replace(Settings(), **known)


def _opening(settings: Settings) -> list[str]:
    return [
        "Planted worlds and the wardrobe's classifiers. Runs deal halves, draw training rows and"
        " pictures. Settings"
        " were chosen on worlds and runs of seeds 0 to 3.",
        f"k = {settings.k}; {settings.a_failure} pictures a failure, at most {settings.most} of a"
        " context, of"
        f" {settings.pool} of each prompt ({settings.pool_plain} of a class's name) that all runs"
        " and worlds draw"
        " theirs from. Worlds are drawn by class names, the wardrobe by its tokens."
        f" All {settings.per_class} training images a class of a world, {WIDE} of the"
        f" wardrobe's classifiers; λ of {', '.join(f'{lam:g}' for lam in settings.lambdas)}, chosen"
        " on the discover"
        " half. In brackets: 95 % over worlds, or classifiers, where there are five or more.",
    ]


if __name__ == "__main__":
    main()
