"""The few images that the page shows, as small data URIs: spread over all scores, and dense around the lines."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.calibration.scores import ObjectGroup, ShiftScores
from counterfoil.card.pictures import encoded_images, reduced
from counterfoil.plan import sample_key

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt

SIDE = 96
_QUALITY = 75
# A picture of a photograph takes about 4 kB in the page, so that they make it at most some 8 MB.
MOST_PICTURES = 2000
MOST_A_SHIFT, MOST_A_CLASS, MOST_A_CONTRAST = 60, 40, 30
# Of those of a slider so many lie next to where its line stands first, half of them on either side, and so many at
# each end of the scores, where few are left on one side.
_NEXT_TO_THE_LINE, _AT_THE_ENDS = 16, 4

# Thresholds to start from, as percentiles of the shift's scores.
CANDIDATE_PERCENTILES = (5.0, 10.0, 25.0, 50.0)


@dataclass(frozen=True, slots=True)
class Picture:
    """One candidate on the page: which of the shifts' scores it is among, and at which rank there."""

    unit: int
    rank: int
    key: str
    class_name: str
    shift: str
    score: float | None
    object_score: float
    contrast: float | None
    uri: str


def pictures_of(
    directory: Path,
    recipe: Recipe,
    receipts: Sequence[Receipt],
    scores: Sequence[ShiftScores],
    shown: Sequence[int],
    groups: Sequence[ObjectGroup],
) -> list[Picture]:
    """Pictures for the sliders of the `shown` shifts, of their contrast where it was measured, and of all groups'
    classes, by shift and ascending score.

    RunFailure for an image that does not open.
    """
    objects = [one for group in groups for one in group.objects]
    measured = [unit for unit in shown if scores[unit].contrast is not None]
    wanted = MOST_A_SHIFT * len(shown) + MOST_A_CLASS * len(objects) + MOST_A_CONTRAST * len(measured)
    share = min(1.0, MOST_PICTURES / max(1, wanted))
    chosen: set[tuple[int, int]] = set()
    for unit in shown:
        own = scores[unit]
        ranks = spread(own.scores, own.has_image, own.threshold, int(share * MOST_A_SHIFT))
        chosen |= {(unit, rank) for rank in ranks}
    for unit in measured:
        own = scores[unit]
        contrast = np.asarray(own.contrast)
        order = np.argsort(contrast, kind="stable")
        places = spread(contrast[order], own.has_image[order], own.least_contrast, int(share * MOST_A_CONTRAST))
        chosen |= {(unit, int(order[place])) for place in places}
    for one in objects:
        places = spread(one.scores, one.has_image, one.threshold, int(share * MOST_A_CLASS))
        chosen |= {(int(one.units[place]), int(one.ranks[place])) for place in places}
    keys: dict[int, set[str]] = {}
    for unit, rank in chosen:
        keys.setdefault(int(scores[unit].shards[rank]), set()).add(_key(recipe, scores[unit], rank))
    uris: dict[str, str] = {}
    for at, own in sorted(keys.items()):
        uris |= _read(directory, receipts[at], own)
    return [
        _picture(recipe, scores[unit], unit, rank, uris)
        for unit, rank in sorted(chosen)
        if _key(recipe, scores[unit], rank) in uris
    ]


def spread(scores: np.ndarray, has_image: np.ndarray, line: float | None, most: int) -> list[int]:
    """Places among ascending scores [n] of at most so many images that are there.

    The lowest and the highest are among them, the others are next to the line or evenly spread: wherever a line stands,
    some lie near on either side.
    """
    there = np.flatnonzero(has_image)
    if there.size <= most:
        return there.tolist()
    ends = min(_AT_THE_ENDS, most // 6)
    chosen = dict.fromkeys([*range(ends), *range(there.size - ends, there.size)])
    if line is not None:
        at = int(np.searchsorted(scores[there], np.float32(line), side="left"))
        half = min(_NEXT_TO_THE_LINE, most // 3) // 2
        chosen |= dict.fromkeys(range(max(0, at - half), min(there.size, at + half)))
    left = most - len(chosen)
    chosen |= dict.fromkeys(np.linspace(0, there.size - 1, left).round().astype(int).tolist())
    return sorted(int(there[place]) for place in chosen)


def _key(recipe: Recipe, own: ShiftScores, rank: int) -> str:
    return sample_key(own.shift.name, recipe.classes[int(own.labels[rank])].id, int(own.indices[rank]))


def _picture(recipe: Recipe, own: ShiftScores, unit: int, rank: int, uris: Mapping[str, str]) -> Picture:
    key = _key(recipe, own, rank)
    return Picture(
        unit=unit,
        rank=rank,
        key=key,
        class_name=recipe.classes[int(own.labels[rank])].name,
        shift=own.shift.name,
        score=float(own.scores[rank]) if own.is_screened else None,
        object_score=float(own.object_scores[rank]),
        contrast=None if own.contrast is None else float(own.contrast[rank]),
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
