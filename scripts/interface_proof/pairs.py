"""Pairs by noise against pairs by attention: what a pair keeps, how wide its drop's interval is, how far it is off.

Settings were chosen on the seeds 0 to 3; what is printed is of another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.building import build
from counterfoil.recipe import Recipe, load_recipe
from interface_proof.answers import Answers
from interface_proof.builds import PROOF_GUIDANCE, build_folder
from interface_proof.comparison import (
    GROUPS,
    accuracies,
    drop_errors,
    drops_of,
    interval,
    mean_over_shifts,
    resampled,
    share,
)
from interface_proof.looks import SHIFT_NAMES

SEED = 101
WAYS = ("noise", "attention")
MORE_HELD = "attention, more held"
_SAMPLES = {
    "noise": "pairs: noise",
    "attention": "pairs: attention",  # as it is by default
    MORE_HELD: "pairs: attention, held: {share: 0.6, until: 0.75}",
}
_KINDS = ("background", "weather", "light")


def pair_shifts() -> tuple[str, ...]:
    """The shifts that leave the object as it is: background, weather and light."""
    shifts = load_recipe("wardrobe-star").prompts.shifts
    return tuple(name for name, shift in shifts.items() if shift.kind in _KINDS)


def pair_recipe(way: str, candidates: int, guidance: float = PROOF_GUIDANCE) -> Recipe:
    """`wardrobe-star` with one way of pairing, over these shifts."""
    others = [name for name in load_recipe("wardrobe-star").prompts.shifts if name not in pair_shifts()]
    changes = [
        f"samples={{candidates: {candidates}, seed: {SEED}, noise: paired, {_SAMPLES[way]}}}",
        f"generator.guidance={guidance}", "generator.batch_size=20", "screen.keep_rejected=true",
        "output.rows_per_shard=200", *(f"prompts.shifts.{name}=null" for name in others),
    ]  # fmt: skip
    return load_recipe("wardrobe-star", changes)


def pairs_folder(work: Path, way: str, candidates: int, guidance: float = PROOF_GUIDANCE) -> Path:
    """Where the build of one way of pairing lies."""
    return build_folder(work, f"pairs-{way.replace(', ', '-').replace(' ', '-')}", candidates, guidance)


def build_pairs(work: Path, way: str, candidates: int, workers: int | None, guidance: float = PROOF_GUIDANCE) -> Path:
    """The benchmark with one way of pairing: built, or as it stands."""
    directory = pairs_folder(work, way, candidates, guidance)
    build(pair_recipe(way, candidates, guidance), directory, workers=workers)
    return directory


def compare_pairs(ways: dict[str, Answers], truth: Answers, seed: int = 17) -> dict[str, Any]:
    """Of every way, and of true pairs: what the oracle says is kept; drops, their intervals and their errors."""
    table: dict[str, Any] = {}
    of_truth = resampled(truth.looks, seed + 1)
    right = accuracies(truth.looks, of_truth)
    everything = np.ones(len(GROUPS["marked"]), bool)
    found: dict[str, Any] = {}
    for name, answers in {**ways, "truth": truth}.items():
        looks = answers.looks
        weights = of_truth if name == "truth" else resampled(looks, seed)
        one = right if name == "truth" else accuracies(looks, weights)
        pairs = answers.pairs
        row = {
            "class right": share(looks.object, pairs, weights),
            "class kept": share(answers.kept_in_pairs(answers.seen), pairs, weights),
            "colour kept": share(answers.kept_in_pairs(answers.colour), pairs, weights),
            "shift there": share(looks.shift, pairs, weights),
        }
        kept = {what: np.nanmean(values, 2)[:, 1:] for what, values in row.items()}
        drops = drops_of(one, one.counted, everything)[2]
        found[name] = {"kept": kept, "drops": drops, "width": _widths(drops)}
        table[name] = {what: interval(mean_over_shifts(values)) for what, values in kept.items()}
        table[name]["right and wrong alike"] = {"value": _within_pairs(answers), "low": None, "high": None}
        if name != "truth":
            errors = drop_errors(one, right)
            found[name]["errors"] = errors
            table[name] |= {f"error, {group}": interval(mean_over_shifts(values)) for group, values in errors.items()}
    noise = found["noise"]
    width, less = {}, {}
    for name in ways:
        if name != "noise":
            width[name] = float(np.nanmean(found[name]["width"]) / np.nanmean(noise["width"]))
            less[name] = {
                group: interval(mean_over_shifts(found[name]["errors"][group] - noise["errors"][group]))
                for group in GROUPS
            }
    by_shift = {
        SHIFT_NAMES[s + 1]: {
            name: {what: float(values[0, s]) for what, values in one["kept"].items()}
            | {"drop": float(np.nanmean(one["drops"][0, s]))}
            for name, one in found.items()
        }
        for s in range(len(SHIFT_NAMES) - 1)
        if np.isfinite(found["noise"]["drops"][0, s]).any()
    }
    drawn = next(iter(ways.values())).pairs.shape[2]
    return {"drawn": drawn, "ways": table, "width": width, "error_change": less, "by_shift": by_shift}


def _widths(drops: np.ndarray) -> np.ndarray:
    """Width of the 95 % interval of each drop [shift, model]; NaN where there is none."""
    low, high = np.percentile(drops[1:], [2.5, 97.5], axis=0)
    return high - low


def _within_pairs(answers: Answers) -> float:
    """Correlation of right and wrong on a shifted image with that on its base, inside cells, averaged over models."""
    right = answers.looks.correct.astype(float)
    found = []
    for s in range(1, len(right)):
        for c in range(right.shape[1]):
            there = answers.pairs[s, c]
            for m in range(right.shape[3]):
                base, shifted = right[0, c, there, m], right[s, c, there, m]
                if len(base) > 2 and base.std() and shifted.std():
                    found.append(np.corrcoef(base, shifted)[0, 1])
    return float(np.mean(found)) if found else float("nan")


def pair_tables(report: dict[str, Any], guidance: float = PROOF_GUIDANCE) -> list[str]:
    """What `compare_pairs` found, as Markdown."""
    ways = report["ways"]
    lines = [
        f"### Pairs by noise and by attention, guidance {guidance:g}",
        "",
        f"Seed {SEED}, {report['drawn']} pairs a class and shift, class tokens, unscreened; background, weather and"
        " light shifts, averaged.",
        "Shares and errors in points, with 95 % intervals over pairs. The last column holds true renders of one scene,"
        " and says what the oracle itself reads.",
        "",
        "| | " + " | ".join(ways) + " |",
        "| --- |" + " ---: |" * len(ways),
    ]
    for what in dict.fromkeys(name for row in ways.values() for name in row):
        lines.append(f"| {what} | " + " | ".join(_cell(row.get(what), what) for row in ways.values()) + " |")
    lines.append("")
    for way, less in report["error_change"].items():
        lines.append(
            f"Intervals of the drops of single classifiers are {report['width'][way]:.2f} as wide with {way}. Its error"
            " less that of noise, in points: "
            + ", ".join(f"{group} classes {_cell(value, group)}" for group, value in less.items())
            + "."
        )
    lines += [
        "",
        "| shift | " + " | ".join(f"{what}, {way}" for what in _SHOWN for way in ways) + " |",
        "| --- |" + " ---: |" * (len(_SHOWN) * len(ways)),
    ]
    for shift, row in report["by_shift"].items():
        lines.append(f"| {shift} | " + " | ".join(f"{100 * row[w][what]:.0f}" for what in _SHOWN for w in ways) + " |")
    return lines


_SHOWN = ("class kept", "colour kept", "shift there", "drop")


def _cell(entry: dict[str, Any] | None, what: str) -> str:
    if entry is None or entry["value"] is None:
        return "–"
    if entry["low"] is None:
        return f"{entry['value']:.2f}"
    return f"{100 * entry['value']:.1f} [{100 * entry['low']:.1f}, {100 * entry['high']:.1f}]"
