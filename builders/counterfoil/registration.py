"""Measure how far a picture moved and zoomed against another one of the same scene, whatever its
look.

Orientation correlation (Fitch et al. 2002, "Orientation correlation", BMVC) compares the directions
of edges, not their brightness. The angles are doubled, because an edge that is dark on bright by day
may be bright on dark at night. Each candidate scale is tried, and the correlation of each
translation is normalised by the part of the pictures that overlaps (Padfield 2012, "Masked object
registration in the Fourier domain").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from counterfoil.arrays import Floats, Floats32, Ints

    Picture: TypeAlias = NDArray[np.uint8]
    Edges: TypeAlias = NDArray[np.complex64]

# The pictures are compared at this width and height.
_SIDE = 96
# Sides of the scaled picture: ratios from .72 to 1.39, so that .8 and 1.25 are not at an end.
_SIDES = tuple(range(69, 134, 3))
_REACH = round(0.3 * _SIDE)
_BLUR = 1.0  # standard deviation in pixels of `_SIDE`
_FAINT = 0.5  # edges weaker than this part of the mean count less
_LEAST_OVERLAP = 0.4
# Translations at less than this distance, in pixels of `_SIDE`, are the same peak.
_PEAK = 7
# Pictures of different scenes seldom reach it. Chosen by `scripts/prove_registration.py --settings`,
# on other pictures than its table is of.
LEAST_CONFIDENCE = 0.08


@dataclass(frozen=True, slots=True)
class Registration:
    """Where a picture shows what another one shows: `zoom` times as large about the middle, then
    moved right and down, in shares of width and height.

    confidence: the correlation less the highest one of another translation, from 0 to 1.
    """

    right: float
    down: float
    zoom: float
    confidence: float

    @property
    def known(self) -> bool:
        return self.confidence >= LEAST_CONFIDENCE


def register(picture: Picture, original: Picture) -> Registration:
    """Register a picture against its original, both uint8 [height, width, 3].

    Translations are found to 30 % of a side, zooms from .72 to 1.39. A turn is not measured.
    """
    from scipy import fft

    length = fft.next_fast_len(_SIDE + _SIDES[-1] - 1)
    edges = _edges(picture, _SIDE)
    spectrum = fft.fft2(edges, (length, length))
    energy = _sums(np.abs(edges) ** 2)

    def fits(sides: Sequence[int]) -> Floats32:
        maps = []
        for side in sides:
            of_original = _edges(original, side)
            maps.append(_fit(spectrum, energy, of_original, length))
        return np.stack(maps)

    coarse = fits(_SIDES)
    at, row, column = _highest(coarse)
    peak = coarse[at, row, column]
    elsewhere = coarse.copy()
    rows = slice(max(0, row - _PEAK), row + _PEAK + 1)
    columns = slice(max(0, column - _PEAK), column + _PEAK + 1)
    elsewhere[:, rows, columns] = 0
    ahead = float(peak - elsewhere.max())
    side = _SIDES[at]
    sides = range(side - 3, side + 4)
    fine = fits(sides)
    at, row, column = _highest(fine)
    side = sides[at]
    # A map's middle is a whole number of pixels, and so up to half a pixel off the scaled middle.
    margin = _SIDE - side
    off = margin // 2 - margin / 2
    right = off + column - _REACH
    right += _between(fine[at, row], column)
    down = off + row - _REACH
    down += _between(fine[at, :, column], row)
    zoom = side + _between(fine[:, row, column], at)
    return Registration(
        right=right / _SIDE,
        down=down / _SIDE,
        zoom=zoom / _SIDE,
        confidence=max(0.0, ahead),
    )


def _edges(picture: Picture, side: int) -> Edges:
    """Return the edges of a picture at a size, complex [side, side], with doubled angles and a
    length below 1: the stronger, the longer."""
    from PIL import Image
    from scipy.ndimage import gaussian_filter

    image = Image.fromarray(picture)
    resized = image.resize((side, side), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized, np.float32)
    smooth = gaussian_filter(pixels, (_BLUR, _BLUR, 0), mode="nearest")
    slopes = np.gradient(smooth, axis=(0, 1))
    # Of the three channels, the one with the strongest edge: a blue shirt on an equally dark wall.
    squares = slopes[0] ** 2 + slopes[1] ** 2
    strongest = np.argmax(squares, axis=2)[..., None]
    down, right = (np.take_along_axis(slope, strongest, axis=2)[..., 0] for slope in slopes)
    strength = np.hypot(down, right)
    doubled = (right + 1j * down) ** 2
    doubled /= np.maximum(strength, 1e-6)
    faint = _FAINT * strength.mean()
    doubled /= strength + faint + 1e-3
    return doubled.astype(np.complex64)


def _sums(values: Floats32) -> Floats:
    """Return the sums over every rectangle that begins at the first pixel, with a row and a column
    of zeros before."""
    padded = np.pad(values.astype(np.float64), (1, 0))
    rows = padded.cumsum(axis=0)
    return rows.cumsum(axis=1)


def _fit(
    spectrum: Edges,
    energy: Floats,
    edges: Edges,
    length: int,
) -> Floats32:
    """Return the normalised correlation of each translation up to `_REACH`, [down, right], 0 where
    too little overlaps."""
    from scipy import fft

    side = len(edges)
    of_edges = fft.fft2(edges, (length, length))
    product = fft.ifft2(spectrum * of_edges.conj()).real
    moves = np.arange(-_REACH, _REACH + 1)
    moves += (_SIDE - side) // 2
    places = moves % length
    matched = product[places][:, places]
    first = np.maximum(moves, 0)
    last = np.minimum(moves + side, _SIDE)
    of_picture = _rectangles(energy, first, last)
    sums = _sums(np.abs(edges) ** 2)
    of_original = _rectangles(sums, first - moves, last - moves)
    extent = last - first
    overlap = extent[:, None] * extent
    enough = overlap >= _LEAST_OVERLAP * min(side, _SIDE) ** 2
    energies = np.maximum(of_picture * of_original, 1e-9)
    correlation = matched / np.sqrt(energies)
    correlation[~enough] = 0
    return correlation.astype(np.float32)


def _rectangles(sums: Floats, first: Ints, last: Ints) -> Floats:
    """Return the sum over each square of rows and columns, from `first` to before `last`."""
    to_last = sums[last]
    to_first = sums[first]
    total = to_last[:, last]
    total -= to_last[:, first]
    total -= to_first[:, last]
    total += to_first[:, first]
    return total


def _highest(maps: Floats32) -> tuple[int, int, int]:
    """Return the map, row and column of the maximum."""
    at, row, column = np.unravel_index(maps.argmax(), maps.shape)
    return int(at), int(row), int(column)


def _between(values: Floats32, at: int) -> float:
    """Return the top of the parabola through a maximum and its neighbours, from the maximum."""
    if not 0 < at < len(values) - 1:
        return 0.0
    three = values[at - 1 : at + 2]
    before, peak, after = three.astype(np.float64)
    curve = before - 2 * peak + after
    if curve >= 0:
        return 0.0
    top = (before - after) / curve / 2
    return float(np.clip(top, -0.5, 0.5))
