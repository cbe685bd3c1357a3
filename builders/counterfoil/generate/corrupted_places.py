"""Corruptions that move pixels: blurs, and pictures that are turned or bent.

Pictures, constants and random arrays come as in `corrupted_pixels.py`. What lies outside of a picture is said by each
function, as the published definitions differ in it: the nearest edge pixel, or the picture mirrored at its edge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterfoil.generate.corrupted_pixels import Constant


def blurred(picture: np.ndarray, deviation: float) -> np.ndarray:
    """By a Gaussian; edge pixels go on."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(picture, (deviation, deviation, *[0] * (picture.ndim - 2)), mode="nearest")


def defocused(picture: np.ndarray, disk: tuple[float, float]) -> np.ndarray:
    """The mean over a disk of this radius, softened by a Gaussian of this deviation; mirrored at the edge."""
    import scipy.fft

    fft: Any = scipy.fft  # whose older releases say that they give tuples

    kernel = disk_kernel(*disk)
    reach = len(kernel) // 2
    around = np.pad(picture, ((reach, reach), (reach, reach), (0, 0)), "reflect")
    # By Fourier transforms, whose time does not grow with the disk.
    sides = [fft.next_fast_len(side, real=True) for side in around.shape[:2]]
    product = fft.rfft2(around, sides, axes=(0, 1)) * fft.rfft2(kernel, sides)[..., None]
    height, width = picture.shape[:2]
    return fft.irfft2(product, sides, axes=(0, 1))[2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]


def disk_kernel(radius: float, deviation: float) -> np.ndarray:
    from scipy.ndimage import correlate1d

    reach = max(8, int(radius))
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    softening = np.exp(-(taps**2) / (2 * deviation**2))
    for axis in (0, 1):
        disk = correlate1d(disk, softening / softening.sum(), axis, mode="mirror")
    return disk


def draw_swaps(
    rng: np.random.Generator, picture: np.ndarray, constants: tuple[float, int, int]
) -> tuple[np.ndarray, ...]:
    """Offsets (right, down), an integer pair for each pixel far enough from the edge, last row and column first."""
    _, reach, rounds = constants
    rows, columns = (max(0, side - 2 * reach) for side in picture.shape[:2])
    return (rng.integers(-reach, reach, (rounds, rows, columns, 2)),)


def through_glass(picture: np.ndarray, constants: tuple[float, int, int], swaps: np.ndarray) -> np.ndarray:
    """Blurred; then one pixel after another takes the colour that its neighbour has by then; blurred again.

    The published loop means to swap two pixels. It assigns views of one array, so that the second one keeps its colour,
    and ImageNet-C was made by it: here as there. Whose colour a pixel ends with is followed for all pixels at once.
    """
    deviation, reach, _ = constants
    # Cut to levels as published, not rounded.
    levels = (blurred(picture, deviation) * 255).astype(np.uint8).reshape(-1, 3)
    height, width = picture.shape[:2]
    place = np.arange(height * width).reshape(height, width)
    visited = np.zeros((height, width), bool)
    inner = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    visited[inner] = True
    for offsets in swaps:
        neighbour = place.copy()
        neighbour[inner] += (offsets[..., 1] * width + offsets[..., 0])[::-1, ::-1]
        neighbour = neighbour.ravel()
        # A neighbour that lies behind has taken another colour before, so that one looks where that came from.
        behind = np.where((neighbour > place.ravel()) & visited.ravel()[neighbour], neighbour, place.ravel())
        while True:
            further = behind[behind]
            if np.array_equal(further, behind):
                break
            behind = further
        levels = levels[neighbour[behind]]
    return blurred(levels.reshape(height, width, 3) / 255.0, deviation)


def draw_angle(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Degrees from the horizontal."""
    return (np.asarray(rng.uniform(-45, 45)),)


def moved(picture: np.ndarray, path: tuple[int, float], angle: np.ndarray) -> np.ndarray:
    """The mean along a line that begins in each pixel, [height, width, …]; edge pixels go on.

    As ImageMagick has it: the line is 2 radius + 1 pixels long, its weights are half of a Gaussian of this deviation.
    """
    radius, deviation = path
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * deviation**2))
    weights /= weights.sum()
    turn = math.radians(float(angle))
    ways: dict[tuple[int, int], float] = {}
    for step, weight in zip(steps, weights, strict=True):
        way = math.ceil(step * math.sin(turn) - 0.5), math.ceil(step * math.cos(turn) - 0.5)
        ways[way] = ways.get(way, 0.0) + float(weight)
    above, left = (max(0, *(-way[axis] for way in ways)) for axis in (0, 1))
    below, right = (max(0, *(way[axis] for way in ways)) for axis in (0, 1))
    around = np.pad(picture, ((above, below), (left, right), *[(0, 0)] * (picture.ndim - 2)), "edge")
    height, width = picture.shape[:2]
    mean = np.zeros_like(picture)
    for (down, across), weight in ways.items():
        mean += weight * around[above + down : above + down + height, left + across : left + across + width]
    return mean


def zoomed_in_on(picture: np.ndarray, stop_and_step: tuple[float, float]) -> np.ndarray:
    """The mean of the picture and of what each zoom shows of its middle, from 1 until before `stop`."""
    factors = np.arange(1, *stop_and_step)
    picture = picture.astype(np.float32)  # as published, and twice as quick
    total = picture.copy()
    for factor in factors:
        total += zoomed(picture, factor)
    return total / (len(factors) + 1)


def zoomed(picture: np.ndarray, factor: float) -> np.ndarray:
    """The middle of a picture, [height, width, …], so many times as large, interpolated linearly."""
    for axis in (0, 1):
        side = picture.shape[axis]
        cut = math.ceil(side / factor)
        whole = round(cut * factor)
        places = (np.arange(side) + (whole - side) // 2) * ((cut - 1) / max(1, whole - 1))
        before = np.minimum(places.astype(int), cut - 1)
        part = (places - before).astype(picture.dtype).reshape(-1, *[1] * (picture.ndim - axis - 1))
        first = (side - cut) // 2
        here = picture.take(first + before, axis)
        picture = here + part * (picture.take(first + np.minimum(before + 1, cut - 1), axis) - here)
    return picture


def draw_bend(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """From -1 to 1: how far three corners move, (x, y) each, and two fields of steps across and down."""
    sides = picture.shape[:2]
    return rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, sides), rng.uniform(-1, 1, sides)


def bent(
    picture: np.ndarray,
    constants: tuple[float, float, float],
    corners: np.ndarray,
    across: np.ndarray,
    down: np.ndarray,
    *,
    published: int,
) -> np.ndarray:
    """Three corners of a square in the middle move, then pixels by smooth fields; mirrored at the edge.

    The constants are pixels of a picture of the published side: the fields' strength, their smoothness, and how far
    corners go. Another shorter side is bent in the same form.
    """
    height, width = picture.shape[:2]
    scale = min(height, width) / published
    strength, smoothness, far = constants[0] * scale**2, constants[1] * scale, constants[2] * scale
    middle = np.array([width // 2, height // 2], np.float64)
    square = min(height, width) // 3
    before = middle + square * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + far * corners
    # From where each pixel comes: the affine map of the moved corners to the corners.
    back = np.linalg.pinv(np.column_stack([after, np.ones(3)])) @ before
    rows, columns = np.indices((height, width), np.float64)
    picture = warped(
        picture,
        columns * back[0, 1] + rows * back[1, 1] + back[2, 1],
        columns * back[0, 0] + rows * back[1, 0] + back[2, 0],
        "mirror",
    )
    if not strength:
        return picture
    return warped(
        picture,
        rows + strength * smooth(down, smoothness),
        columns + strength * smooth(across, smoothness),
        "reflect",
    )


def smooth(field: np.ndarray, deviation: float) -> np.ndarray:
    """A field, mirrored at its edge, blurred by a Gaussian that ends at three deviations.

    By cosine transforms: such a field is a sum of cosines, each of which a blur only makes weaker. A blur as wide as
    the picture takes no longer.
    """
    import scipy.fft

    fft: Any = scipy.fft  # whose older releases say that they give tuples

    reach = int(3 * deviation + 0.5)
    taps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (taps / max(deviation, 1e-9)) ** 2)
    weights /= weights.sum()
    # For each k the sum of weights times cos(pi k tap / side); these cosines repeat at twice the side.
    kept = [fft.rfft(np.bincount(taps % (2 * side), weights, 2 * side)).real[:side] for side in field.shape]
    return fft.idctn(fft.dctn(field) * kept[0][:, None] * kept[1])


def turned(picture: np.ndarray, degrees: float, sign: np.ndarray) -> np.ndarray:
    """About its middle; mirrored at the edge."""
    height, width = picture.shape[:2]
    cosine, sine = (function(math.radians(degrees * float(sign))) for function in (math.cos, math.sin))
    rows, columns = np.indices((height, width), np.float64)
    rows, columns = rows - (height - 1) / 2, columns - (width - 1) / 2
    return warped(
        picture,
        rows * cosine - columns * sine + (height - 1) / 2,
        rows * sine + columns * cosine + (width - 1) / 2,
        "mirror",
    )


def warped(picture: np.ndarray, rows: np.ndarray, columns: np.ndarray, outside: str) -> np.ndarray:
    """Each pixel from this row and column, interpolated linearly. `outside` is scipy's word for what lies there."""
    from scipy.ndimage import map_coordinates

    places = np.stack([rows, columns])
    return np.stack(
        [map_coordinates(picture[..., channel], places, order=1, mode=outside) for channel in range(3)], axis=2
    )
