"""Corruptions by weather: fog, snow, frost on the glass, and what splashes on it.

Pictures, constants and random arrays come as in `corrupted_pixels.py`.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from counterfoil.generate.corrupted_pixels import LUMA, Constant
from counterfoil.generate.corrupted_places import blurred, moved, zoomed


def draw_fractal(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Numbers from -1 to 1, one for each place of the fractal but its first, in the order in which they are used."""
    return (rng.uniform(-1, 1, _fractal_side(picture) ** 2 - 1),)


def fogged(picture: np.ndarray, constants: tuple[float, float], numbers: np.ndarray) -> np.ndarray:
    thickness, decay = constants
    brightest = picture.max()
    return (picture + thickness * _cloud(picture, decay, numbers)[..., None]) * brightest / (brightest + thickness)


def _cloud(picture: np.ndarray, decay: float, numbers: np.ndarray) -> np.ndarray:
    """A fractal's upper left part, as large as the picture; a larger picture gets it again, for it has no seam."""
    side = _fractal_side(picture)
    rows, columns = (np.arange(length) % side for length in picture.shape[:2])
    return plasma(side, decay, numbers)[np.ix_(rows, columns)]


def _fractal_side(picture: np.ndarray) -> int:
    """The least power of two that covers the picture, as published; 1,024 at most, so that its memory is bounded."""
    return min(1024, 2 ** math.ceil(math.log2(max(picture.shape[:2]))))


def plasma(side: int, decay: float, numbers: np.ndarray) -> np.ndarray:
    """Heights from 0 to 1, [side, side], by diamonds and squares on a torus: each round, steps half as long and
    `decay` times as small are added to the means of four neighbours, first in the middles, then on the edges."""
    heights = np.zeros((side, side))
    step, swing, used = side, 100.0, 0

    def stepped(four: np.ndarray) -> np.ndarray:
        nonlocal used
        used += four.size
        # The published steps grow by the square of the swing.
        return four / 4 + swing**2 * numbers[used - four.size : used].reshape(four.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = stepped(pairs + np.roll(pairs, -1, 1))
        middles = heights[half::step, half::step]
        heights[::step, half::step] = stepped(middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1))
        heights[half::step, ::step] = stepped(middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0))
        step, swing = half, swing / decay
    heights -= heights.min()
    return heights / heights.max()


def draw_flakes(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Normal numbers, one a pixel, and the degrees at which they fall."""
    return rng.standard_normal(picture.shape[:2]), np.asarray(rng.uniform(-135, -45))


def snowed(
    picture: np.ndarray,
    constants: tuple[float, float, float, float, int, float, float],
    normal: np.ndarray,
    angle: np.ndarray,
) -> np.ndarray:
    """Noise that is zoomed, cut at a threshold and moved, twice, over a picture that is whiter."""
    mean, deviation, zoom, threshold, radius, sigma, left = constants
    flakes = zoomed(mean + deviation * normal, zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    # Levels before and after the movement, as it was done on files.
    flakes = np.floor(moved(np.floor(flakes * 255), (radius, sigma), angle)) / 255
    white = np.maximum(picture, (picture @ LUMA)[..., None] * 1.5 + 0.5)
    return left * picture + (1 - left) * white + (flakes + np.rot90(flakes, 2))[..., None]


def draw_one_normal(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape[:2]),)


def splashed(
    picture: np.ndarray, constants: tuple[float, float, float, float, float, int], normal: np.ndarray
) -> np.ndarray:
    """Smooth noise above a threshold is liquid: water that shines at its edges, or mud."""
    mean, deviation, smoothness, threshold, strength, mud = constants
    liquid = blurred(mean + deviation * normal, smoothness)
    if mud:
        covered = blurred((liquid > threshold).astype(np.float64), strength)
        covered = np.where(covered < 0.8, 0, covered)[..., None]
        return picture * (1 - covered) + covered * np.array([63, 42, 20]) / 255
    levels = np.clip(np.where(liquid < threshold, 0, liquid) * 255, 0, 255).astype(np.uint8)
    shine = levels * _relief(levels)
    shine *= strength / max(shine.max(), 1e-9)
    return picture + shine[..., None] * np.array([175, 238, 238]) / 255


def _relief(levels: np.ndarray) -> np.ndarray:
    """How much each place shines, from how far it is from the edges of the liquid, as if lit from one corner."""
    from scipy.ndimage import correlate, uniform_filter

    far = np.minimum(_distance(~_edges(levels)), 20 * _STEPS[0])
    # Cut to whole steps: a mean of exact sums, as one that falls short of a whole step is another level.
    far = _equalised((correlate(far, np.ones((3, 3), int), mode="mirror") // (9 * _STEPS[0])).astype(np.uint8))
    lit = correlate(far.astype(np.float64), np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    return np.rint(uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror"))


def _distance(inside: np.ndarray) -> np.ndarray:
    """Of each pixel that is inside from the nearest that is not, in `_STEPS` to a side, aslant and as a knight goes."""
    from scipy.ndimage import distance_transform_edt

    if inside.all():
        return np.full(inside.shape, np.iinfo(np.int64).max)
    # The way to the nearest pixel by the straight line; hardly ever another one is nearer in steps.
    nearest = np.asarray(distance_transform_edt(inside, return_distances=False, return_indices=True))
    down, across = np.abs(nearest - np.indices(inside.shape))
    more, less = np.maximum(down, across), np.minimum(down, across)
    knight, aslant = np.minimum(less, more - less), np.maximum(2 * less - more, 0)
    way = (more - 2 * knight - aslant) * _STEPS[0] + aslant * _STEPS[1] + knight * _STEPS[2]
    height, width = inside.shape
    while True:
        around = np.pad(way, 2, constant_values=np.iinfo(way.dtype).max // 2)
        shorter = way
        for row, column in np.argwhere(_MOVES):
            step = _MOVES[row, column]
            shorter = np.minimum(shorter, around[row : row + height, column : column + width] + step)
        if np.array_equal(shorter, way):
            return way
        way = shorter


# OpenCV's, in ten-thousandths, so that sums are exact. Below, what a move to the middle of five by five pixels costs;
# nothing stands where two moves lead too.
_STEPS = (10000, 14000, 21969)
_MOVES = np.array(
    [
        [0, 21969, 0, 21969, 0],
        [21969, 14000, 10000, 14000, 21969],
        [0, 10000, 0, 10000, 0],
        [21969, 14000, 10000, 14000, 21969],
        [0, 21969, 0, 21969, 0],
    ]
)


def _equalised(levels: np.ndarray) -> np.ndarray:
    """Levels by their ranks, so that all are about as frequent."""
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if not others:
        return levels
    above = np.cumsum(counts) - counts[lowest]
    return np.rint(np.clip(above * (255 / others), 0, 255)).astype(np.uint8)[levels]


def _edges(levels: np.ndarray) -> np.ndarray:
    """Canny's edges at 50 and 150: the steepest pixels across their slope, and such as touch them."""
    from scipy.ndimage import label, sobel

    across, down = (sobel(levels.astype(np.int32), axis, mode="nearest") for axis in (1, 0))
    steep = np.abs(across) + np.abs(down)
    around = np.pad(steep, 1)

    def beside(rows: int, columns: int) -> np.ndarray:
        height, width = levels.shape
        return around[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    flat, upright = np.abs(across), np.abs(down)
    sideways = upright < flat * math.tan(math.pi / 8)
    upwards = upright > flat * (math.tan(math.pi / 8) + 2)
    one_way = (across < 0) == (down < 0)
    crest = np.select(
        [sideways, upwards, one_way],
        [
            (steep > beside(0, -1)) & (steep >= beside(0, 1)),
            (steep > beside(-1, 0)) & (steep >= beside(1, 0)),
            (steep > beside(-1, -1)) & (steep > beside(1, 1)),
        ],
        (steep > beside(-1, 1)) & (steep > beside(1, -1)),
    )
    weak, strong = crest & (steep > 50), crest & (steep > 150)
    parts, _ = label(weak, np.ones((3, 3)))
    return weak & np.isin(parts, np.unique(parts[strong]))


# Feathers of ice in a square of the shorter side, barbs on each of them, and of how many pixels that side is at least
# where they are drawn.
_FEATHERS, _BARBS, _DRAWN_SIDE = 150, 40, 256
_MOST_DRAWN = 1 << 28


def draw_ice(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Numbers from 0 to 1: six of each feather, three of each of its barbs; then those of the fractal below them."""
    height, width = picture.shape[:2]
    # A strip gets thinner ice than it should, so that its feathers are no millions.
    feathers = math.ceil(_FEATHERS * min(16.0, max(height, width) / min(height, width)))
    return rng.random((feathers, 6)), rng.random((feathers, _BARBS, 3)), *draw_fractal(rng, picture, constant)


def frosted(
    picture: np.ndarray, shares: tuple[float, float], feathers: np.ndarray, barbs: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Feathers of ice on frozen haze, in the mean and the spread of the photographs that were published."""
    left, share = shares
    height, width = picture.shape[:2]
    haze = _cloud(picture, 2.0, numbers)
    ice = 0.4 + 0.36 * haze + 0.75 * _feathers(height, width, feathers, barbs) * (0.3 + 0.7 * haze)
    return left * picture + share * np.clip(ice[..., None] * np.array([0.9, 1.0, 1.07]), 0, 1)


def _feathers(height: int, width: int, feathers: np.ndarray, barbs: np.ndarray) -> np.ndarray:
    """Feathers from 0 to 1: a rib that bends, and barbs on both sides of it that are shorter towards its tip."""
    side = min(height, width)
    # Of a strip less fine, so that its canvas is bounded.
    finer = min(max(2, math.ceil(_DRAWN_SIDE / side)), max(1, math.isqrt(_MOST_DRAWN // (height * width))))
    row, column, turn, size, slimness, light = (part[:, None] for part in feathers.T)
    length = side * finer * (0.08 + 0.4 * size**2)
    along = (np.arange(_BARBS) + barbs[..., 0]) / _BARBS
    angle = 2 * math.pi * turn + (slimness - 0.5) * along
    steps = np.diff(along, axis=1, prepend=0) * length
    x = column * width * finer + np.cumsum(steps * np.cos(angle), axis=1)
    y = row * height * finer + np.cumsum(steps * np.sin(angle), axis=1)
    aside = np.where(np.arange(_BARBS) % 2, 1, -1) * (0.7 + 0.4 * barbs[..., 1])
    reach = length * (0.12 + 0.25 * slimness) * (1 - along) ** 0.8 * (0.3 + 0.7 * barbs[..., 2])
    ends = np.stack([x, y, x + reach * np.cos(angle + aside), y + reach * np.sin(angle + aside)], axis=2)
    canvas = Image.new("L", (width * finer, height * finer))
    pen = ImageDraw.Draw(canvas)
    thin = max(1, round(side * finer / 400))
    for lines, bright in zip(ends, np.rint(255 * (0.35 + 0.65 * light[:, 0])).astype(int).tolist(), strict=True):
        for line in lines.tolist():
            pen.line(line, fill=round(bright * 0.8), width=thin)
        pen.line(lines[:, :2].ravel().tolist(), fill=bright, width=thin)
    return np.asarray(canvas.reduce(finer), np.uint8) / 255.0
