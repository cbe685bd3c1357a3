"""Distances as files: the rows of distances.csv, and what results.json holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from counterfoil.report.nested import Distance, Distances

_DIGITS = 6


def distance_rows(found: Sequence[Distances]) -> list[dict[str, Any]]:
    """One row a model of features and set of images; `what` is dataset, group or source (against itself)."""
    return [_row(distances, row) for distances in found for row in distances.all_rows]


def distances_document(found: Sequence[Distances]) -> list[dict[str, Any]]:
    """Those that were measured, as JSON values."""
    return [_rounded(asdict(distances)) for distances in found if distances.skipped is None]


def _row(distances: Distances, row: Distance) -> dict[str, Any]:
    kid = row.kid
    return {
        "features": distances.features,
        "features_pin": distances.pin,
        "source": distances.source,
        "what": row.what,
        "name": row.name,
        "n_classes": row.classes,
        "n_images": row.images,
        "n_source_images": row.source_images,
        "kid": _number(kid.value if kid else None),
        "kid_low": _number(kid.low if kid else None),
        "kid_high": _number(kid.high if kid else None),
        "kid_subsets": distances.subsets if kid else "",
        "kid_subset": row.kid_subset or "",
        "kid_source_subset": row.kid_source_subset or "",
        "fid": _number(row.fid),
        "fid_biased": int(row.fid_biased) if kid else "",
        "note": row.note or "",
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.{_DIGITS}g}"


def _rounded(value: Any) -> Any:
    """Six digits of every fraction: finer than any interval, and coarser than what another library's sums differ by."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
