"""The few images of a shift that the page shows, as small data URIs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.calibration.scores import ShiftScores
from counterfoil.calibration.steps import ranks_at
from counterfoil.card.pictures import encoded_images, reduced
from counterfoil.plan import sample_key

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt

SIDE = 96
_QUALITY = 75
# A picture takes about 3 kB in the page: 1,500 of them make it about 6 MB.
MOST_PICTURES = 1500
MOST_A_SHIFT = 48
FEWEST_A_SHIFT = 10

# Thresholds to start from, as percentiles of the shift's scores, and where images around each are taken.
CANDIDATE_PERCENTILES = (5.0, 10.0, 25.0, 50.0)
_AROUND = (-1.0, 1.0, -2.5, 2.5, -5.0, 5.0)
STRIP = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 100.0)


@dataclass(frozen=True, slots=True)
class Picture:
    """One candidate on the page; `percentile` is its place among all candidates of the shift."""

    key: str
    class_name: str
    score: float
    percentile: float
    object_passes: bool
    uri: str


def shift_pictures(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], shifts: Sequence[ShiftScores]
) -> dict[str, list[Picture]]:
    """Pictures of each shift by ascending score. RunFailure for an image that does not open."""
    most = max(FEWEST_A_SHIFT, min(MOST_A_SHIFT, MOST_PICTURES // max(1, len(shifts))))
    chosen = {shift.shift.name: _ranks(shift, most) for shift in shifts}
    wanted: dict[int, set[str]] = {}
    for shift in shifts:
        for rank in chosen[shift.shift.name]:
            wanted.setdefault(int(shift.shards[rank]), set()).add(_key(recipe, shift, rank))
    uris: dict[str, str] = {}
    for at, keys in sorted(wanted.items()):
        uris |= _read(directory, receipts[at], keys)
    return {
        shift.shift.name: [
            _picture(recipe, shift, rank, uris)
            for rank in chosen[shift.shift.name]
            if _key(recipe, shift, rank) in uris
        ]
        for shift in shifts
    }


def _ranks(shift: ShiftScores, most: int) -> list[int]:
    """Ranks among all candidates of images that are there: around each threshold, then over the whole range."""
    there = np.flatnonzero(shift.has_image)
    n = int(shift.scores.size)
    if not there.size:
        return []
    centres = list(CANDIDATE_PERCENTILES)
    if shift.threshold is not None:
        centres.insert(0, 100.0 * float(np.searchsorted(shift.scores, np.float32(shift.threshold))) / max(1, n - 1))
    around = [centre + offset for offset in _AROUND for centre in centres]
    evenly = [100.0 * step / max(1, most - 1) for step in range(most)]
    # Percentiles are over all candidates; where an image was not kept, the next one that was stands in.
    wanted = ranks_at(n, [*STRIP, *around, *evenly])
    nearest = dict.fromkeys(int(there[np.abs(there - rank).argmin()]) for rank in wanted)
    return sorted(list(nearest)[:most])


def _key(recipe: Recipe, shift: ShiftScores, rank: int) -> str:
    cls = recipe.classes[int(shift.labels[rank])]
    return sample_key(shift.shift.name, cls.id, int(shift.indices[rank]))


def _picture(recipe: Recipe, shift: ShiftScores, rank: int, uris: Mapping[str, str]) -> Picture:
    key = _key(recipe, shift, rank)
    return Picture(
        key=key,
        class_name=recipe.classes[int(shift.labels[rank])].name,
        score=float(shift.scores[rank]),
        percentile=100.0 * rank / max(1, shift.scores.size - 1),
        object_passes=bool(shift.object_passes[rank]),
        uri=uris[key],
    )


def _read(directory: Path, receipt: Receipt, keys: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for what in ("data", "rejected"):
        file = receipt.file(what)
        if file is not None:
            left = keys - found.keys()
            for key, encoded in encoded_images(directory / file.path, left) if left else ():
                found[key] = _uri(encoded, f"{file.path}: {key}")
    return found


def _uri(encoded: bytes, where: str) -> str:
    with io.BytesIO() as file:
        reduced(encoded, where, SIDE).save(file, "WEBP", quality=_QUALITY, method=6)
        return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
