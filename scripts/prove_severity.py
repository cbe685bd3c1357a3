"""Prove graded shifts against the truth, which the lab knows: the same models on scenes rendered by degrees.

    python scripts/prove_severity.py --write          # the tables, into severity_proof/RESULTS.md
    python scripts/prove_severity.py --settings       # where settings were chosen

Builds `wardrobe-star` with six shifts at four levels, by each way: between encoded prompts with pairs by noise and by
attention, and at levels by what CLIP sees; the shift's prompt in the last steps; edits of rows. All that is drawn is
looked at, and the datasets are evaluated as anybody's are. Truth is the audit split, whose garments no model here has
seen, rendered at twelve strengths of each shift. The world, the captions and all models are hashed first; another hash
is another folder. What was looked at there is not made again; a killed proof goes on. Prints the tables.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import results_page
from counterfoil.building import build
from interface_proof.builds import proof_folder
from proof_files import measured
from severity_proof.scoring import AXES, STILL, against_truth, by_chance, kept, monotone, ranked, survivors, told_by
from severity_proof.seen import LEVELS, SHIFTS, STRENGTHS, WAYS, Looking, Seen, drawn_pictures, recipe_of, true_pictures

RESULTS = Path(__file__).parent / "severity_proof" / "RESULTS.md"
TRUE_UNITS = 30  # scenes of each class
UNITS = {"prompt": 12}  # a class; of other ways OTHERS
OTHERS = 5
SEED, SETTINGS_SEEDS = 100, (0, 1)
GUIDANCE = 3.0  # that of wardrobe-star; with 2 curves were no nearer to the truth on the settings seeds
SETTINGS_UNITS = 3
REJECTED = (0.05, 0.25, 0.5)
PARTS = ("kept", "truth", "ranks", "complete")


class Proof:
    """What is drawn and looked at, in one folder."""

    def __init__(self, work: Path, workers: int | None) -> None:
        self.folder, self.workers = proof_folder(work), workers
        self._looking: Looking | None = None

    @property
    def looking(self) -> Looking:
        self._looking = self._looking or Looking()
        return self._looking

    def truth(self) -> Seen:
        path = self.folder / f"truth-{TRUE_UNITS}.npz"
        if not path.exists():
            print("looking at the truth", flush=True)
            self.looking.look(STRENGTHS, TRUE_UNITS, true_pictures(TRUE_UNITS)).save(path)
        return Seen.read(path)

    def way(self, way: str, units: int, seed: int, guidance: float) -> tuple[Seen, dict[str, Any]]:
        """What is seen on a way's pictures, and what an evaluation of the dataset says."""
        name = f"{way.replace(', ', '-')}-{units}-seed-{seed}-guidance-{guidance:g}"
        path = self.folder / f"{name}.npz"
        if not path.exists():
            print(f"drawing {name}", flush=True)
            build(recipe_of(way, units, seed, guidance), self.folder / name, workers=self.workers)
            self.looking.look(LEVELS, units, drawn_pictures(self.folder / name)).save(path)
        told = measured(
            path.with_suffix(".json"), lambda: told_by(self.folder / name, self.folder / f"{name}-evaluation")
        )
        return Seen.read(path), told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".train/severity-proof"))
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--settings", action="store_true", help="the seeds and guidances that settings are chosen on")
    parser.add_argument("--write", action="store_true", help="put the tables into scripts/severity_proof/RESULTS.md")
    arguments = parser.parse_args()
    proof = Proof(arguments.work, arguments.workers)
    print(f"in {proof.folder}", flush=True)
    truth = proof.truth()
    if arguments.settings:
        ways = {
            f"guidance {guidance:g}, seed {seed}": proof.way("prompt", SETTINGS_UNITS, seed, guidance)
            for seed in SETTINGS_SEEDS
            for guidance in (2.0, 3.0)
        }
    else:
        ways = {way: proof.way(way, UNITS.get(way, OTHERS), SEED, GUIDANCE) for way in arguments.ways}
    tables = {
        "kept": kept_table({**{way: seen for way, (seen, _) in ways.items()}, "true scenes": _at_levels(truth)}),
        "truth": truth_table({way: against_truth(told, seen, truth) for way, (seen, told) in ways.items()}, truth),
        "ranks": rank_table({way: ranked(told, truth) for way, (_, told) in ways.items()}),
        "complete": complete_table({way: seen for way, (seen, _) in ways.items()}),
    }
    print("\n\n".join("\n".join(lines) for lines in tables.values()))
    if arguments.write:
        scenes = ", ".join(f"{UNITS.get(way, OTHERS)} scenes a class by {way}" for way in ways)
        of = f"seed {SEED}, guidance {GUIDANCE:g}, {scenes}, and {TRUE_UNITS} true ones"
        results_page.write(RESULTS, "prove_severity", "Graded shifts", (), tables, PARTS, dict.fromkeys(tables, of))


def _at_levels(truth: Seen) -> Seen:
    """True scenes at the levels that are drawn."""
    sides = [0, *(1 + STRENGTHS.index(level) for level in LEVELS)]
    arrays = {name: array[:, sides] for name, array in vars(truth).items() if name != "strengths"}
    return Seen(np.array(LEVELS), **arrays)


def kept_table(ways: dict[str, Seen]) -> list[str]:
    """What the oracle says of trajectories, in %."""
    levels = [f"{level:g}" for level in LEVELS]
    lines = [
        "### What a trajectory keeps",
        "",
        f"In %, by the oracle. *Rises*: of trajectories, those along which its probability of the shift never falls by"
        f" more than {STILL:g}. Class and colour: of pairs of the base and a level, those in which it reads the same.",
        "",
        f"| | rises | {' | '.join(f'class kept at {level}' for level in levels)} |"
        f" {' | '.join(f'colour kept at {level}' for level in levels)} |",
        "| :-- |" + " --: |" * (1 + 2 * len(levels)),
    ]
    for way, seen in ways.items():
        whats = [(what, 1 + side) for what in (seen.seen, seen.colour) for side in range(len(levels))]
        cells = [monotone(seen), *(kept(seen, *what) for what in whats)]
        lines.append(f"| {way} | " + " | ".join(_percent(float(np.nanmean(one))) for one in cells) + " |")
    lines += ["", f"| rises | {' | '.join(SHIFTS)} |", "| :-- |" + " --: |" * len(SHIFTS)]
    lines += [f"| {way} | {' | '.join(map(_percent, monotone(seen)))} |" for way, seen in ways.items()]
    lines += [
        "", f"| the oracle is sure of the shift, mean at {', '.join(levels)} | {' | '.join(SHIFTS)} |",
        "| :-- |" + " --: |" * len(SHIFTS),
    ]  # fmt: skip
    for way, seen in ways.items():
        sure = np.nanmean(seen.sure, axis=(2, 3))[:, 1:]
        lines.append(f"| {way} | {' | '.join(', '.join(map(_percent, own)) for own in sure)} |")
    return lines


def truth_table(ways: dict[str, dict[str, Any]], truth: Seen) -> list[str]:
    """Errors of curves and of the level of ten points, by way and axis."""
    lines = [
        "### Against the truth",
        "",
        "Six shifts × eight classifiers × four levels. *Curve*: mean absolute error of the drop at a level, in points,"
        " and the mean error. *Covered*: intervals that hold the true drop. *Ten points*: mean error of the level where"
        " the drop reaches ten points, where both reach it; how often both or neither do; intervals that hold the true"
        " level.",
        "",
        "| | axis | curve | mean | covered | ten points | in complete trajectories | reached alike | covered |"
        f" {' | '.join(f'curve, {shift}' for shift in SHIFTS)} |",
        "| :-- | :-- |" + " --: |" * (7 + len(SHIFTS)),
    ]
    for way, found in ways.items():
        for axis in AXES:
            one = found[axis]
            lines.append(
                f"| {way} | {axis} | {100 * one['curve']:.1f} | {100 * one['signed']:+.1f} |"
                f" {_percent(one['covered'])} % | {one['ten']:.2f} (of {one['both reach']}) |"
                f" {one['ten complete']:.2f} | {_percent(one['reached'])} % | {_percent(one['ten covered'])} % |"
                f" {' | '.join(f'{100 * error:.1f}' for error in one['by shift'])} |"
            )
    few = " and ".join(f"{100 * by_chance(truth, units):.1f} of {units}" for units in (UNITS["prompt"], OTHERS))
    return [*lines, "", f"The curve's error of true scenes, drawn from the truth's {TRUE_UNITS} a class: {few}."]


def rank_table(ways: dict[str, dict[str, Any]]) -> list[str]:
    """Rank correlations over models, by shift."""
    lines = [
        "### Ranks of models",
        "",
        "Spearman's correlation over eight classifiers with the truth, of the mean level of failure, where no failure"
        " counts as 1; and of how many classifiers half of the trajectories fail by level 1, truly and as drawn.",
        "",
        f"| | {' | '.join(SHIFTS)} | all shifts |",
        "| :-- |" + " --: |" * (1 + len(SHIFTS)),
    ]
    for way, found in ways.items():
        lines.append(f"| {way} | {' | '.join(f'{one:.2f}' for one in found['shifts'])} |")
    for way, found in ways.items():
        counts = [f"{true}, {drawn}" for true, drawn in found["medians"]]
        lines.append(f"| half fail: truly, {way} | {' | '.join(counts)} | |")
    return lines


def complete_table(ways: dict[str, Seen]) -> list[str]:
    """What keeping complete trajectories alone does to drops."""
    lines = [
        "### Complete trajectories only",
        "",
        "Mean drop over shifts, levels and classifiers, in points, of all pictures, and how far from it those are that"
        " a screen lets pass, and whole trajectories of them. *Screen*: the share of base pictures that it rejects, by"
        " CLIP's score of the object.",
        "",
        "| | screen | all | screened | pictures left | complete | pictures left |",
        "| :-- | --: |" + " --: |" * 5,
    ]
    for way, seen in ways.items():
        for rejected in REJECTED:
            one = survivors(seen, rejected)
            away = [
                f"{100 * (one[what] - one['all']):+.1f} | {_percent(one[f'{what} share'])} %"
                for what in ("screened", "complete")
            ]
            lines.append(f"| {way} | {rejected:.0%} | {100 * one['all']:.1f} | {' | '.join(away)} |")
    return lines


def _percent(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.0f}"


if __name__ == "__main__":
    main()
