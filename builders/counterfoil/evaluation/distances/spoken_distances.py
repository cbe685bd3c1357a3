"""Distances as a page, a card and a terminal say them: with as many digits as their interval bears."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.evaluation.distances.frechet import IMAGES_A_FEATURE
from counterfoil.evaluation.distances.kernel import LARGEST_SUBSET
from counterfoil.report.nested import Distance, Distances

# The mark of a FID that is too high for want of images.
BIASED = "†"
_HASH = 12
# What either number is worth; beside every table of them.
WORTH = (
    "Both tell how unlike two sets of images are in the eyes of one model, and nothing of what is unlike, nor whether"
    " classifiers fail: a shift is meant to be far. Numbers of other features or another source are not comparable, and"
    " what share each class has of the images counts too. KID has no bias with few images; below nothing it is as good"
    " as nothing."
)


@dataclass(frozen=True)
class SpokenDistance:
    """A row as text. near: whether it is the source against itself."""

    name: str
    what: str
    kid: str
    interval: str
    fid: str
    images: str
    note: str
    near: bool


def spoken_distance(row: Distance) -> SpokenDistance:
    """One distance as text: the intervals as "low to high", a dash for what was not measured."""
    kid, interval = spoken_kid(
        *((row.kid.value, row.kid.low, row.kid.high) if row.kid is not None else (None, None, None))
    )
    return SpokenDistance(
        name=row.name,
        what=row.what,
        kid=kid,
        interval=interval,
        fid=spoken_fid(row.fid, row.fid_biased),
        images=f"{row.images:,} and {row.source_images:,}",
        note=row.note or "",
        near=row.what == "source",
    )


def spoken_kid(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """A KID and its interval, with two digits of the interval's width."""
    if value is None:
        return "–", ""
    if low is None or high is None:
        return _minus(f"{value:.3g}"), ""
    width = high - low
    decimals = max(0, 1 - math.floor(math.log10(width))) if width > 0 else 4
    shown, *bounds = (_minus(f"{number:.{decimals}f}") for number in (value, low, high))
    return shown, " to ".join(bounds)


def spoken_fid(value: float | None, biased: bool) -> str:
    """A FID with three digits, and a mark where it is too high for want of images."""
    if value is None:
        return "–"
    decimals = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 2
    return f"{value:.{decimals}f}{BIASED if biased else ''}"


def how_measured(distances: Distances) -> str:
    """How the numbers of one model's features were computed, in words."""
    kind, _, value = distances.pin.partition(" ")
    scaled = f", unit vectors lengthened to √{distances.width}" if distances.scaled else ""
    rows = max((row.source_images for row in distances.rows), default=0)
    part = f" ({rows:,} of its {distances.source_rows:,} rows)" if rows < distances.source_rows else ""
    return (
        f"Features of {distances.features} ({kind} {value[:_HASH]}): {distances.width:,} an image{scaled}. Against"
        f" {distances.source}{part}, each row with the images of its own classes. KID is the unbiased MMD² with the"
        f" kernel (x·y/{distances.width} + 1)³: the mean over {distances.subsets} pairs of subsets of half the images"
        f" of either side, {LARGEST_SUBSET:,} at most, drawn without replacement (seed {distances.seed}). Its 95 %"
        " interval is from the variance measured in them: the part of single images, which is nothing between equal"
        " sets, and the part of pairs of images, each scaled to all images."
    )


def about_bias(distances: Distances) -> str:
    """What the mark beside a FID means; nothing where none has it."""
    if not any(row.fid_biased for row in distances.all_rows):
        return ""
    return (
        f"{BIASED} Too high: a side has fewer than {IMAGES_A_FEATURE} images for each of the {distances.width:,}"
        " features, and FID is far from nothing even between halves of one set. Compare none of different numbers of"
        " images."
    )


def spoken_rows(distances: Distances) -> Sequence[SpokenDistance]:
    """The rows in order, the source against itself as the last."""
    return [spoken_distance(row) for row in distances.all_rows]


def _minus(text: str) -> str:
    text = text.lstrip("-") if text.strip("-0.") == "" else text
    return text.replace("-", "−")
