"""How near a dataset is to its source (KID, FID), in the features of a model: facts, the table,
words.

Rows are of all of the dataset (no group), of a group, and of the source against itself (at
`source`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.documents import Count, Strict, csv_text
from counterfoil.feature_stats import IMAGES_A_FEATURE, LARGEST_SUBSET
from counterfoil.report.sections import CardSection, MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    format_number,
    format_range,
    text_cell,
)
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from counterfoil.report.results import ResultRow, ResultRows, Results

KID = "kid"
FID = "fid"
_FROM = "from the source's images of the same classes, in the features of a model"
MEASURE_FACTS = (
    MeasureFacts(KID, "KID", "plain", f"Kernel distance {_FROM}; unbiased, so it may be negative."),
    MeasureFacts(FID, "FID", "plain", f"Fréchet distance {_FROM}; too high with few images."),
)
# A note beside every table of distances.
WORTH = (
    "KID and FID measure how different two sets of images are in the features of one model. They do"
    " not say what is different, nor whether classifiers fail: a shift is meant to be far. Do not"
    " compare them across features or sources, nor with those that papers print, which are of"
    " Inception's features; they also depend on the class proportions. KID is unbiased with few"
    " images; read a negative KID as 0."
)
_MOST_ROWS = 40
_MOST_ON_CARD = 4
_FILE = "distances.csv"
_BIASED = "†"  # beside a FID that is too high because of few images
_HASH = 12

SetOfImages = Literal["dataset", "group", "source"]


@dataclass(frozen=True, slots=True)
class ImageSet(Strict):
    """Images that were compared with the source's images of the same classes: the dataset, a group,
    or the source.
    """

    what: SetOfImages
    name: str
    classes: Count
    images: Count
    source_images: Count
    kid_subset: int | None = None
    kid_source_subset: int | None = None
    """The most images of either side in one of KID's subsets; None if there are too few."""
    fid_biased: bool = False
    """Whether a side has too few images for so many features."""


@dataclass(frozen=True, slots=True)
class Distances(Strict):
    """Distances in the features of one model; the last set is the source against itself."""

    features: str
    pin: str = ""
    """Identifies the model."""
    width: Count = 0
    """How many features an image has."""
    scaled: bool = False
    """Whether they are unit vectors, lengthened to the square root of the width, so that KID's
    kernel is (1 + cosine)³."""
    source: str = ""
    """As DATASET:SPLIT; source_content: the sha256 of its images."""
    source_content: str = ""
    source_rows: Count = 0
    """Its rows of these classes, some of which are the images."""
    subsets: Count = 0
    seed: Count = 0
    unreadable: Count = 0
    """Images left out, on both sides."""
    sets: tuple[ImageSet, ...] = ()
    skipped: str | None = None
    """Why nothing was measured."""

    def key(self, image_set: ImageSet) -> dict[str, str]:
        group = image_set.name if image_set.what == "group" else ""
        at = "source" if image_set.what == "source" else ""
        return {"model": self.features, "group": group, "against": self.source, "at": at}


def distances_table(distances: Distances, rows: ResultRows) -> Table:
    """Return KID with its interval, FID, and images of either side; the last row is the source
    against itself."""
    table_rows = []
    for image_set in distances.sets:
        key = distances.key(image_set)
        name = image_set.name
        if image_set.what == "dataset":
            name += ", all of it"
        fid = rows.value(FID, **key)
        fid_cell = TableCell(NOTHING)
        if fid is not None:
            decimals = 2
            if fid > 0:
                decimals = max(0, 2 - math.floor(math.log10(fid)))
            shown = format_number(fid, min(12, decimals))
            if image_set.fid_biased:
                shown += _BIASED
            fid_cell = TableCell(shown, sort=fid)
        counts = f"{image_set.images:,} and {image_set.source_images:,}"
        cells = (
            text_cell(name),
            _kid_cell(rows.one(KID, **key)),
            fid_cell,
            TableCell(counts, sort=image_set.images),
        )
        table_rows.append(TableRow(cells, "quiet" if image_set.what == "source" else ""))
    caption = f"Distances to {distances.source}, features of {distances.features}"
    columns = (
        TableColumn("images", "shift"),
        "KID",
        "FID",
        "images of both",
    )
    table = Table.of(caption, columns, table_rows)
    return table.first(_MOST_ROWS, "sets of images", _FILE)


def how_measured(distances: Distances) -> str:
    """Return how the numbers of one model's features were computed, in words."""
    kind, _, value = distances.pin.partition(" ")
    scaled = f", unit vectors lengthened to √{distances.width}" if distances.scaled else ""
    most = 0
    for image_set in distances.sets:
        if image_set.what != "source":
            most = max(most, image_set.source_images)
    part = ""
    if most < distances.source_rows:
        part = f" ({most:,} of its {distances.source_rows:,} rows)"
    return (
        f"Features of {distances.features} ({kind} {value[:_HASH]}): {distances.width:,} per"
        f" image{scaled}. Against {distances.source}{part}, each row with the images of its own"
        f" classes. KID is the unbiased MMD² with the kernel (x·y/{distances.width} + 1)³: the mean"
        f" over {distances.subsets} pairs of subsets, each half the images of a side,"
        f" {LARGEST_SUBSET:,} at most, drawn without replacement (seed {distances.seed}). Its 95 %"
        " interval comes from the variance over the subsets: a part from single images, which is 0"
        " between equal sets, and a part from pairs of images, each scaled to all images."
    )


def about_bias(distances: Distances) -> str:
    """Return what the mark beside a FID means; empty if no set has it."""
    if not any(image_set.fid_biased for image_set in distances.sets):
        return ""
    return (
        f"{_BIASED} Too high: a side has fewer than {IMAGES_A_FEATURE} images for each of the"
        f" {distances.width:,} features, and FID is then far from 0 even between halves of one set."
        " Do not compare FIDs of different numbers of images."
    )


def distances_csv(results: Results) -> str | None:
    """Write one line for each feature model and set of images. `note` says why a line has no
    numbers."""
    lines = []
    for distances in results.distances:
        for image_set in distances.sets:
            key = distances.key(image_set)
            kid = results.rows.one(KID, **key)
            known = kid is not None and kid.value is not None
            line = {
                "features": distances.features,
                "features_pin": distances.pin,
                "source": distances.source,
                "what": image_set.what,
                "name": image_set.name,
                "n_classes": image_set.classes,
                "n_images": image_set.images,
                "n_source_images": image_set.source_images,
                "kid": _digits(kid.value if kid else None),
                "kid_low": _digits(kid.low if kid else None),
                "kid_high": _digits(kid.high if kid else None),
                "kid_subsets": distances.subsets if known else "",
                "kid_subset": image_set.kid_subset or "",
                "kid_source_subset": image_set.kid_source_subset or "",
                "fid": _digits(results.rows.value(FID, **key)),
                "fid_biased": int(image_set.fid_biased) if known else "",
                "note": kid.note if kid else "",
            }
            lines.append(line)
    return csv_text(lines) if lines else None


def _kid_cell(row: ResultRow | None) -> TableCell:
    """Return KID with two digits of its interval's width, or why there is none."""
    estimate: Estimate | None = row.estimate if row else None
    if estimate is None:
        return TableCell(NOTHING, row.note if row else "")
    if estimate.low is None or estimate.high is None:
        return TableCell(f"{estimate.value:.3g}", sort=estimate.value)
    width = estimate.high - estimate.low
    decimals = 4
    if width > 0:
        decimals = min(12, max(0, 1 - math.floor(math.log10(width))))
    value = format_number(estimate.value, decimals)
    return TableCell(value, format_range(estimate, decimals), estimate.value)


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if not results.distances:
        return None
    parts = []
    for distance in results.distances:
        table = distances_table(distance, results.rows)
        parts.append((distance, table, f"{how_measured(distance)} {about_bias(distance)}"))
    return ReportSection(
        title="Distance to the source",
        short="Source",
        fold="Distance to the source",
        sentences=[WORTH],
        template="report-distances.html.j2",
        more={"parts": parts},
    )


def _card(results: Results) -> CardSection | None:
    tables = []
    for distance in results.distances[:_MOST_ON_CARD]:
        table = distances_table(distance, results.rows)
        tables.append((how_measured(distance), table, about_bias(distance)))
    if not tables:
        return None
    template = "dataset-card-distances.md.j2"
    return CardSection(place="alone", template=template, sentences=[WORTH], tables=tables)


def _terminal(results: Results, most_models: int) -> list[str | Table]:
    lines: list[str | Table] = []
    for distance in results.distances:
        if distance.sets:
            lines.append(distances_table(distance, results.rows))
            bias = about_bias(distance)
            if bias:
                lines.append(bias)
    return lines


SHOWN = Shown(
    "shifts",
    _section,
    _terminal,
    _card,
    measures=MEASURE_FACTS,
    skipped=lambda results: [
        f"No distances in the features of {distance.features}: {distance.skipped}"
        for distance in results.distances
        if distance.skipped is not None
    ],
    file=_FILE,
    csv=distances_csv,
    public=lambda facts, called: tuple(
        replace(fact, features=called(fact.features)) for fact in facts if fact.skipped is None
    ),
    features=lambda facts: [fact.features for fact in facts],
)
