"""The proof's numbers as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _shown(entry: dict[str, Any], percent: bool = True) -> str:
    if entry["value"] is None:
        return "–"
    factor, digits = (100, 1) if percent else (1, 2)
    value, low, high = (factor * entry[k] for k in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def markdown(report: dict[str, Any]) -> str:
    """All tables; accuracies, drops and agreement in percentage points with 95 % intervals."""
    ways = list(report["mean_error"])
    parts = [
        "Error of the estimated drop, in points: absolute, averaged over 23 shifts and 8 classifiers, with 95 %\n"
        "bootstrap intervals over images (resampling adds its own noise to an absolute error: an interval may lie\n"
        "above its value)\n",
        _table(
            ["", "marked classes", "of names'", "other classes", "of names'"],
            [
                [
                    way,
                    _shown(row["marked"]),
                    _shown(row["marked_of_names"], False) if "marked_of_names" in row else "",
                    _shown(row["unmarked"]),
                    _shown(row["unmarked_of_names"], False) if "unmarked_of_names" in row else "",
                ]
                for way, row in report["mean_error"].items()
            ],
        ),
        "Marked classes under the base: accuracy over 8 classifiers, and how often the unnamed pattern appears, %\n",
        _table(
            ["", "accuracy", "pattern appears"],
            [
                [way, _shown(row["mean"]["base_accuracy"]), _shown(row["mean"]["mark"])]
                for way, row in report["marked_classes"].items()
            ],
        ),
        "Rank correlation over shifts with the truth (Spearman)\n",
        _table(
            ["", "impact", "slope"],
            [
                [way, _shown(row["impact"], False), _shown(row["slope"], False)]
                for way, row in report["rank_correlation"].items()
            ],
        ),
        _agreement(report["agreement"]),
        "Error of the estimated drop by shift, points\n",
        _table(
            ["shift", *(f"{way}, {group}" for group in ("marked", "others") for way in ways)],
            [
                [
                    shift,
                    *(
                        "–" if row[way][group]["value"] is None else f"{100 * row[way][group]['value']:.1f}"
                        for group in ("marked", "unmarked")
                        for way in ways
                    ),
                ]
                for shift, row in report["by_shift"].items()
            ],
        ),
    ]
    return "\n".join(parts)


def aims(reports: Mapping[str, dict[str, Any]]) -> list[str]:
    """The aims, and for each report (a name → what `compare` gave) the figure, and whether it reaches the aim."""
    lines = ["| aim | " + " | ".join(reports) + " |", "| --- |" + " --- |" * len(reports)]
    found = {name: _aims(report) for name, report in reports.items()}
    for aim in next(iter(found.values())):
        lines.append(f"| {aim} | " + " | ".join(own[aim] for own in found.values()) + " |")
    return lines


def _aims(report: dict[str, Any]) -> dict[str, str]:
    error, agreement = report["mean_error"]["tokens screened"], report["agreement"]
    impact = report["rank_correlation"]["tokens screened"]["impact"]
    base, true = (report["marked_classes"][name]["mean"]["base_accuracy"] for name in ("tokens screened", "truth"))
    few = len(agreement["shifts_with_yield_under_0.9"])
    gains = [row[what]["gain"] for row in agreement["by_shift"].values() for what in ("object", "shift")]
    fall = sum(gain["high"] < 0 for gain in gains)

    def told(text: str, met: bool) -> str:
        return f"{text}: {'met' if met else 'missed'}"

    return {
        "error of the drop by token, of that by name: marked classes, at most 0.60": told(
            _shown(error["marked_of_names"], False), error["marked_of_names"]["value"] <= 0.6
        ),
        "other classes, at most 1.00": told(
            _shown(error["unmarked_of_names"], False), error["unmarked_of_names"]["value"] <= 1
        ),
        "rank correlation of impact, at least 0.80": told(_shown(impact, False), impact["value"] >= 0.8),
        "base accuracy of marked classes by token, at most 5 points from the truth": told(
            f"{_shown(base)} against {_shown(true)}", abs(base["value"] - true["value"]) <= 0.05
        ),
        **{
            f"screening raises {what} agreement where the yield is under 0.9": told(
                f"{_shown(agreement[f'{what}_gain'])} points over {few} shifts",
                (agreement[f"{what}_gain"]["low"] or 0) > 0,
            )
            for what in ("object", "shift")
        },
        "shifts and agreements that screening lowers by more than its interval, none": told(str(fall), fall == 0),
    }


def way_tables(ways: dict[str, Any]) -> list[str]:
    """What `compare_ways` found, a row a way: of the base, and of the shifts on average."""
    names = list(next(iter(ways.values())))
    lines = [
        "### What each way gives",
        "",
        "In %, with 95 % intervals. The oracle says what it sees of object, shift and mark.",
        "",
    ]
    for where, title in (("base", "The base:"), ("shifts", "The shifts, on average:")):
        rows = [[name, *(_shown(found[name][where]) for found in ways.values())] for name in names]
        lines += [title, "", *_table(["", *ways], rows).splitlines(), ""]
    return lines[:-1]


def _agreement(table: dict[str, Any]) -> str:
    low = table["shifts_with_yield_under_0.9"]
    head = ["shift", "yield", "object, unscreened", "screened", "gain", "shift, unscreened", "screened", "gain"]
    rows = []
    for shift, row in table["by_shift"].items():
        cells = [shift, f"{100 * row['yield']:.1f}"]
        for what in ("object", "shift"):
            one = row[what]
            cells += [f"{100 * one['unscreened']:.1f}", f"{100 * one['screened']:.1f}", _shown(one["gain"])]
        rows.append(cells)
    return (
        "The oracle's agreement, tokens, %\n\n"
        + _table(head, rows)
        + f"\nOver the {len(low)} shifts with a yield under 0.9 screening gains {_shown(table['object_gain'])} points"
        + f" of object and {_shown(table['shift_gain'])} of shift agreement.\n"
    )
