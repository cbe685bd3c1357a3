"""The card's section "How near the source": KID and FID of stored results, as bounded tables with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What a person reads; all of it is in evaluation/distances.csv.
MOST_ROWS = 40
MOST_MODELS = 4
# The mark of a FID that is too high for want of images.
BIASED = "†"
_HASH = 12


@dataclass(frozen=True, slots=True)
class DistanceRow:
    """Images against the source's, as text; `images` and `source_images` are how many of either.

    whole: whether they are all of the dataset's.
    """

    name: str
    whole: bool
    kid: str
    fid: str
    images: int
    source_images: int


@dataclass(frozen=True, slots=True)
class DistanceTable:
    """The rows of one model of features, the whole dataset first and the source against itself last.

    left_out: how many more there are. biased: whether a FID is too high for want of images. scaled: whether features
    are unit vectors lengthened to the root of their width.
    """

    features: str
    pin: str
    width: int
    scaled: bool
    source: str
    rows: tuple[DistanceRow, ...]
    left_out: int
    subsets: int
    biased: bool


def distances_of(results: Mapping[str, Any] | None) -> tuple[DistanceTable, ...]:
    """The tables of these results (see `store.results`); none where there are none, or none of this form."""
    if results is None:
        return ()
    try:
        return tuple(_table(distances) for distances in results.get("distances", [])[:MOST_MODELS])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return ()  # sealed, but by another hand


def _table(distances: Mapping[str, Any]) -> DistanceTable:
    rows, near = distances["rows"], distances["near"]
    shown = [*rows[:MOST_ROWS], *([] if near is None else [near])]
    return DistanceTable(
        features=str(distances["features"]),
        pin=_short(str(distances["pin"])),
        width=int(distances["width"]),
        scaled=bool(distances["scaled"]),
        source=str(distances["source"]),
        rows=tuple(_row(row) for row in shown),
        left_out=max(0, len(rows) - MOST_ROWS),
        subsets=int(distances["subsets"]),
        biased=any(bool(row["fid_biased"]) for row in shown),
    )


def _row(row: Mapping[str, Any]) -> DistanceRow:
    return DistanceRow(
        name=str(row["name"]),
        whole=row["what"] == "dataset",
        kid=_kid(row["kid"]),
        fid="–" if row["fid"] is None else f"{row['fid']:.3g}{BIASED if row['fid_biased'] else ''}",
        images=int(row["images"]),
        source_images=int(row["source_images"]),
    )


def _short(pin: str) -> str:
    """A pin with the first letters of its hash: all of it is in the results."""
    kind, _, value = pin.partition(" ")
    return f"{kind} {value[:_HASH]}"


def _kid(estimate: Mapping[str, Any] | None) -> str:
    """With two digits of the interval's width."""
    if estimate is None:
        return "–"
    value, low, high = (float(estimate[name]) for name in ("value", "low", "high"))
    width = high - low
    decimals = min(12, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 4
    shown, *bounds = (f"{round(number, decimals) + 0.0:.{decimals}f}" for number in (value, low, high))  # no -0.00
    return f"{shown} ({' to '.join(bounds)})"
