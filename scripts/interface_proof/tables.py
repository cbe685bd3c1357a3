"""The proof's numbers as Markdown tables."""

from __future__ import annotations

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
        "Mean error of the estimated drop, points (absolute, against the truth; 23 shifts, 8 classifiers)\n",
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
