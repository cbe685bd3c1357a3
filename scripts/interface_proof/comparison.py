"""From looks to numbers: drops against the truth, agreement, rank correlation; intervals resample
units."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

import results_page
from counterfoil.lab.vocabulary import CLASSES, MARKS
from interface_proof.looks import SHIFT_NAMES, Looks
from proof_files import Arrays, Facts

REPLICATES = 1000
_SEED = 11
_BOUNDED = ("value", "low", "high")
MIN_IMAGES = 5  # the paper's five-image rule
MARKED = np.array([name in MARKS for name in CLASSES])
GROUPS = {"marked": MARKED, "unmarked": ~MARKED}


@dataclass(frozen=True)
class Accuracies:
    """Accuracy [1 + replicates, shift, class, model]; row 0 is the measurement, the others are
    resampled."""

    values: NDArray
    counted: NDArray  # [shift, class]: at least five images there and in the base


def resampled(looks: Looks, seed: int) -> NDArray:
    """Return weights [class, 1 + replicates, unit] of each unit; a class's units are drawn alike
    for every shift."""
    rng = np.random.default_rng(seed)
    classes, units = looks.present.shape[1:]
    draws = rng.integers(0, units, (classes, REPLICATES, units))
    weights = np.zeros((classes, 1 + REPLICATES, units), np.float32)
    weights[:, 0] = 1
    for c in range(classes):
        for r in range(REPLICATES):
            weights[c, r + 1] = np.bincount(draws[c, r], minlength=units)
    return weights


def share(flags: NDArray, present: NDArray, weights: NDArray) -> NDArray:
    """Return the weighted share of `flags` [shift, class, unit, …] among the present: [1 +
    replicates, shift, class, …]."""
    shifts, classes, units = present.shape
    rest = flags.shape[3:]
    mask = present.reshape(*present.shape, *[1] * len(rest))
    by_class = (
        np.moveaxis(flags & mask, (1, 2), (0, 1)).reshape(classes, units, -1).astype(np.float32)
    )
    hits = (weights @ by_class).reshape(classes, -1, shifts, *rest)
    counts = weights @ np.moveaxis(present, (1, 2), (0, 1)).astype(np.float32)
    counts = counts.reshape(*counts.shape, *[1] * len(rest))
    return np.moveaxis(
        np.where(counts > 0, hits / np.maximum(counts, 1), np.nan), (0, 1, 2), (2, 0, 1)
    )


def accuracies(looks: Looks, weights: NDArray) -> Accuracies:
    counts = looks.present.sum(-1)
    return Accuracies(
        share(looks.correct, looks.present, weights),
        (counts >= MIN_IMAGES) & (counts[0] >= MIN_IMAGES),
    )


def drops_of(measured: Accuracies, counted: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return base accuracy, shifted accuracy and drop [1 + replicates, shift - 1, model], means
    over the counted classes [shift, class]."""
    mask = counted[None, 1:, :, None]
    chosen = np.where(mask, measured.values[:, 1:], np.nan)
    base = np.where(mask, measured.values[:, :1], np.nan)
    lost = np.isnan(chosen) | np.isnan(base)  # a class whose draw is empty sits out on both sides
    with warnings.catch_warnings():
        # a shift without any class left is NaN, and shown so
        warnings.simplefilter("ignore", RuntimeWarning)
        before = np.nanmean(np.where(lost, np.nan, base), 2)
        after = np.nanmean(np.where(lost, np.nan, chosen), 2)
    return before, after, before - after


def interval(values: NDArray) -> dict[str, float | None]:
    """Return row 0 with the percentile interval of the other rows."""
    rest = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or rest.size == 0:
        return dict.fromkeys(_BOUNDED)
    numbers = (values[0], *np.percentile(rest, [2.5, 97.5]))
    return {name: round(float(number), 4) for name, number in zip(_BOUNDED, numbers, strict=True)}


def without_interval(value: float) -> dict[str, float | None]:
    """Return a value that has no interval."""
    return dict.fromkeys(_BOUNDED) | {"value": value}


def drop_errors(way: Accuracies, truth: Accuracies) -> Arrays:
    """Return group → |estimated − true drop| [1 + replicates, shift - 1], mean over models, over
    the same classes."""
    counted = way.counted & truth.counted
    errors = {}
    for name, group in GROUPS.items():
        estimated = drops_of(way, counted & group)[2]
        right = drops_of(truth, counted & group)[2]
        errors[name] = np.abs(estimated - right).mean(-1)
    return errors


def mean_over_shifts(values: NDArray, chosen: NDArray | None = None) -> NDArray:
    """Return the mean over the (chosen) shifts, ignoring shifts without a number: [1 +
    replicates]."""
    part = values if chosen is None else values[:, chosen]
    if part.shape[1] == 0:
        return np.full(len(values), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(part, 1)


def impact_and_slope(measured: Accuracies, counted: NDArray) -> tuple[NDArray, NDArray]:
    """Return absolute impact and ID/OOD slope over models, [1 + replicates, shift - 1] each, all
    classes together."""
    base, shifted, drop = drops_of(measured, counted)
    centred = base - base.mean(-1, keepdims=True)
    slope = (centred * shifted).sum(-1) / np.maximum((centred**2).sum(-1), 1e-12)
    return drop.mean(-1), slope


def rank_correlation(estimated: NDArray, right: NDArray) -> NDArray:
    """Return Spearman's correlation over shifts of each replicate: [1 + replicates]."""
    each: list[Any] = [
        spearmanr(f, r, nan_policy="omit") for f, r in zip(estimated, right, strict=True)
    ]
    return np.array([correlation.statistic for correlation in each])


def agreement(looks: Looks, weights: NDArray) -> Arrays:
    """Return the share of images in which the oracle sees the object and the shift: [1 +
    replicates, shift]."""

    def counted(flags: NDArray) -> NDArray:
        return (weights @ np.moveaxis(flags, (1, 2), (0, 1)).astype(np.float32)).sum(0)

    counts = counted(looks.present)
    shares = {}
    for name in ("object", "shift"):
        hits = counted(getattr(looks, name) & looks.present)
        shares[name] = np.where(counts > 0, hits / np.maximum(counts, 1), np.nan)
    return shares


def yields(looks: Looks) -> NDArray:
    """Return the accepted share of each shift [shift]."""
    return looks.kept.sum((1, 2)) / np.maximum(looks.present.sum((1, 2)), 1)


def compare(ways: dict[str, Looks], truth: Looks) -> dict:
    """Return everything the proof reports, as plain numbers. `ways`: names, tokens, tokens
    screened, control."""
    every = ways | {"truth": truth}
    weights = {name: resampled(looks, _SEED + (name == "truth")) for name, looks in every.items()}
    measured = {name: accuracies(looks, weights[name]) for name, looks in every.items()}
    right = measured["truth"]
    errors = {name: drop_errors(measured[name], right) for name in ways}
    report: dict = {"by_shift": {}, "mean_error": {}, "marked_classes": {}, "rank_correlation": {}}
    by_names = {group: mean_over_shifts(errors["names"][group]) for group in GROUPS}
    for name in ways:
        means = {group: mean_over_shifts(errors[name][group]) for group in GROUPS}
        report["mean_error"][name] = {group: interval(mean) for group, mean in means.items()}
        if name != "names":
            report["mean_error"][name] |= {
                f"{group}_of_names": interval(mean / by_names[group])
                for group, mean in means.items()
            }
        counted = measured[name].counted & right.counted
        impact, slope = impact_and_slope(measured[name], counted)
        true_impact, true_slope = impact_and_slope(right, counted)
        report["rank_correlation"][name] = {
            "impact": interval(rank_correlation(impact, true_impact)),
            "slope": interval(rank_correlation(slope, true_slope)),
        }
    report["agreement"] = _agreement(ways, weights)
    report["marked_classes"] = _marked(every, weights, measured)
    for s, shift in enumerate(SHIFT_NAMES[1:]):
        report["by_shift"][shift] = {
            name: {g: interval(errors[name][g][:, s]) for g in GROUPS} for name in ways
        }
    return report


def compare_ways(ways: dict[str, Looks]) -> dict:
    """Return what needs no truth of each way: yield, and what the oracle sees of object, shift and
    mark.

    Of the base and, averaged, of the shifts; unscreened, and among what was accepted.
    """
    table: dict = {}
    for name, looks in ways.items():
        weights = resampled(looks, _SEED)
        seen = agreement(looks, weights)
        accepted = agreement(looks.screened(), weights)
        kept = share(looks.kept, looks.present, weights)
        marked = share(looks.mark, looks.present, weights)[..., MARKED]
        right = share(looks.correct, looks.present, weights).mean(-1)
        values = {
            "yield": np.nanmean(kept, 2),
            "object": seen["object"],
            "object screened": accepted["object"],
            "shift": seen["shift"],
            "shift screened": accepted["shift"],
            "mark, of marked classes": np.nanmean(marked, 2),
            "accuracy, marked classes": np.nanmean(right[..., MARKED], 2),
            "accuracy, other classes": np.nanmean(right[..., ~MARKED], 2),
        }
        table[name] = {what: _base_and_shifts(value) for what, value in values.items()}
    return table


def _base_and_shifts(values: NDArray) -> dict:
    """Return the base's share and the mean share of the shifts, of [1 + replicates, shift]."""
    return {"base": interval(values[:, 0]), "shifts": interval(mean_over_shifts(values[:, 1:]))}


def _agreement(ways: dict[str, Looks], weights: Arrays) -> dict:
    """Return the oracle's user study (Vendrow 2023, Figure 6): unscreened against screened, of the
    same images."""
    before = agreement(ways["tokens"], weights["tokens"])
    after = agreement(ways["tokens screened"], weights["tokens"])
    accepted = yields(ways["tokens"])
    low = np.flatnonzero(accepted[1:] < 0.9) + 1
    table: dict = {"by_shift": {}, "shifts_with_yield_under_0.9": [SHIFT_NAMES[s] for s in low]}
    for s, shift in enumerate(SHIFT_NAMES):
        row: dict = {"yield": round(float(accepted[s]), 4)}
        for what in ("object", "shift"):
            row[what] = {
                "unscreened": round(float(before[what][0, s]), 4),
                "screened": round(float(after[what][0, s]), 4),
                "gain": interval(after[what][:, s] - before[what][:, s]),
            }
        table["by_shift"][shift] = row
    for what in ("object", "shift"):
        table[f"{what}_gain"] = interval(mean_over_shifts(after[what] - before[what], low))
        table[f"{what}_unscreened"] = interval(mean_over_shifts(before[what][:, 1:]))
        table[f"{what}_screened"] = interval(mean_over_shifts(after[what][:, 1:]))
    return table


def _marked(ways: dict[str, Looks], weights: Arrays, measured: dict[str, Accuracies]) -> dict:
    """Return base accuracy over models, and how often the unnamed pattern appears (Vendrow 2023,
    section 5)."""
    table = {}
    for name, looks in ways.items():
        marks = share(looks.mark, looks.present, weights[name])[:, 0]
        base = measured[name].values[:, 0].mean(-1)
        table[name] = {
            CLASSES[c]: {"base_accuracy": interval(base[:, c]), "mark": interval(marks[:, c])}
            for c in np.flatnonzero(MARKED)
        }
        table[name]["mean"] = {
            "base_accuracy": interval(base[:, MARKED].mean(1)),
            "mark": interval(marks[:, MARKED].mean(1)),
        }
    return table


def shown(entry: Facts | None, percent: bool = True) -> str:
    """Return a value with its interval as text; a value without one as it is."""
    if entry is None or entry["value"] is None:
        return "–"
    if entry["low"] is None:
        return f"{entry['value']:.2f}"
    factor, digits = (100, 1) if percent else (1, 2)
    value, low, high = (factor * entry[name] for name in _BOUNDED)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _table(head: Sequence[str], rows: list[list[str]]) -> str:
    return "\n".join(results_page.table(head, rows)) + "\n"


def markdown(report: Facts) -> str:
    """Return all tables; accuracies, drops and agreement in percentage points with 95 %
    intervals."""
    ways = list(report["mean_error"])
    errors = []
    for way, row in report["mean_error"].items():
        cells = [way]
        for group in GROUPS:
            ratio = row.get(f"{group}_of_names")
            cells += [shown(row[group]), shown(ratio, False) if ratio else ""]
        errors.append(cells)
    by_shift = []
    for shift, row in report["by_shift"].items():
        values = [row[way][group]["value"] for group in GROUPS for way in ways]
        cells = ["–" if value is None else f"{100 * value:.1f}" for value in values]
        by_shift.append([shift, *cells])
    parts = [
        "Error of the estimated drop, in points: absolute, averaged over 23 shifts and 8"
        " classifiers, with 95 %\n"
        "bootstrap intervals over images (resampling adds its own noise to an absolute error: an"
        " interval may lie\n"
        "above its value)\n",
        _table(
            ["", "marked classes", "of names'", "other classes", "of names'"],
            errors,
        ),
        "Marked classes under the base: accuracy over 8 classifiers, and how often the unnamed"
        " pattern appears, %\n",
        _table(
            ["", "accuracy", "pattern appears"],
            [
                [way, shown(row["mean"]["base_accuracy"]), shown(row["mean"]["mark"])]
                for way, row in report["marked_classes"].items()
            ],
        ),
        "Rank correlation over shifts with the truth (Spearman)\n",
        _table(
            ["", "impact", "slope"],
            [
                [way, shown(row["impact"], False), shown(row["slope"], False)]
                for way, row in report["rank_correlation"].items()
            ],
        ),
        _agreement_line(report["agreement"]),
        "Error of the estimated drop by shift, points\n",
        _table(
            ["shift", *(f"{way}, {group}" for group in ("marked", "others") for way in ways)],
            by_shift,
        ),
    ]
    return "\n".join(parts)


def aims(reports: Mapping[str, Facts]) -> list[str]:
    """Return each aim, with the figure of each report (a name → what `compare` gave) and whether it
    reaches the aim."""
    lines = [f"| aim | {' | '.join(reports)} |", "| --- |" + " --- |" * len(reports)]
    figures = [_aims(report) for report in reports.values()]
    for aim in figures[0]:
        lines.append(f"| {aim} | {' | '.join(figure[aim] for figure in figures)} |")
    return lines


def _aims(report: Facts) -> dict[str, str]:
    error = report["mean_error"]["tokens screened"]
    agreement = report["agreement"]
    impact = report["rank_correlation"]["tokens screened"]["impact"]
    base, true = (
        report["marked_classes"][name]["mean"]["base_accuracy"]
        for name in ("tokens screened", "truth")
    )
    few = len(agreement["shifts_with_yield_under_0.9"])
    gains = [
        row[what]["gain"] for row in agreement["by_shift"].values() for what in ("object", "shift")
    ]
    fall = sum(gain["high"] < 0 for gain in gains)

    def verdict(text: str, met: bool) -> str:
        return f"{text}: {'met' if met else 'missed'}"

    return {
        "error of the drop by token, of that by name: marked classes, at most 0.60": verdict(
            shown(error["marked_of_names"], False), error["marked_of_names"]["value"] <= 0.6
        ),
        "other classes, at most 1.00": verdict(
            shown(error["unmarked_of_names"], False), error["unmarked_of_names"]["value"] <= 1
        ),
        "rank correlation of impact, at least 0.80": verdict(
            shown(impact, False), impact["value"] >= 0.8
        ),
        "base accuracy of marked classes by token, at most 5 points from the truth": verdict(
            f"{shown(base)} against {shown(true)}", abs(base["value"] - true["value"]) <= 0.05
        ),
        **{
            f"screening raises {what} agreement where the yield is under 0.9": verdict(
                f"{shown(agreement[f'{what}_gain'])} points over {few} shifts",
                (agreement[f"{what}_gain"]["low"] or 0) > 0,
            )
            for what in ("object", "shift")
        },
        "shifts and agreements that screening lowers by more than its interval, none": verdict(
            str(fall), fall == 0
        ),
    }


def way_tables(ways: Facts) -> list[str]:
    """Return what `compare_ways` measured, a row a way: of the base, and of the shifts on
    average."""
    names = list(next(iter(ways.values())))
    lines = [
        "### What each way gives",
        "",
        "In %, with 95 % intervals. The oracle says what it sees of object, shift and mark.",
        "",
    ]
    for where, title in (("base", "The base:"), ("shifts", "The shifts, on average:")):
        rows = [[name, *(shown(way[name][where]) for way in ways.values())] for name in names]
        lines += [title, "", *_table(["", *ways], rows).splitlines(), ""]
    return lines[:-1]


def _agreement_line(table: Facts) -> str:
    low = table["shifts_with_yield_under_0.9"]
    words = "shift|yield|object, unscreened|screened|gain|shift, unscreened|screened|gain"
    head = words.split("|")
    rows = []
    for shift, row in table["by_shift"].items():
        cells = [shift, f"{100 * row['yield']:.1f}"]
        for what in ("object", "shift"):
            kept = row[what]
            cells += [
                f"{100 * kept['unscreened']:.1f}",
                f"{100 * kept['screened']:.1f}",
                shown(kept["gain"]),
            ]
        rows.append(cells)
    return (
        "The oracle's agreement, tokens, %\n\n"
        + _table(head, rows)
        + f"\nOver the {len(low)} shifts with a yield under 0.9 screening gains"
        f" {shown(table['object_gain'])} points"
        + f" of object and {shown(table['shift_gain'])} of shift agreement.\n"
    )
