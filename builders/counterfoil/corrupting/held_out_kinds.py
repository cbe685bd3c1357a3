"""Compute each corruption of ImageNet-C-bar (Mintun 2021) with the function of the same name.

These ten kinds were chosen to be unlike those of ImageNet-C, so they test what a method that was
chosen on ImageNet-C does on other changes. Functions are as in `corruption_kinds.py`. The constant
is the published severity, a number from 0 to 10. Lengths are in shares of the shorter side, which
the published code calls the image size: its pictures are square.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from counterfoil.arrays import Array
from counterfoil.corrupting.corruption_kinds import Arrays, Random, warped

_TURN = 2 * math.pi
_SPARKLES = 5
# The most rays of a sparkle, and the cells of a lattice of Perlin noise.
_MOST_RAYS = 200
_CELLS = 256
_OCTAVES = (1, 2, 4, 8, 16)


def _coordinates(picture: Array) -> tuple[Array, Array]:
    """Return the row and the column of each pixel, float64 [height, width]."""
    rows, columns = np.indices(picture.shape[:2], np.float64)
    return rows, columns


def _side(picture: Array) -> int:
    return min(picture.shape[:2])


def _between(first: Array, second: Array, share: Array) -> Array:
    return first + share * (second - first)


def draw_single_frequency_greyscale(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw two frequencies in radians a pixel, of which either may be the larger, and a phase."""
    larger = rng.uniform(-math.pi, math.pi)
    other = rng.uniform(-abs(larger), abs(larger))
    frequencies = rng.permutation([larger, other])
    return frequencies, np.asarray(rng.uniform(0, _TURN))


def single_frequency_greyscale(
    picture: Array, severity: float, frequencies: Array, phase: Array
) -> Array:
    rows, columns = _coordinates(picture)
    across, down = frequencies
    wave = np.sin(columns * across + rows * down + phase)
    return picture + severity * 19.6 / 255 * wave[..., None]


def draw_cocentric_sine_waves(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw from 0 to 1: the middle (column, row), the waves a turn, their height, and the rings'
    width."""
    return (rng.random(5),)


def cocentric_sine_waves(picture: Array, severity: float, numbers: Array) -> Array:
    """Add rings that ramp from dark to bright and whose edges are waves."""
    rows, columns = _coordinates(picture)
    side = _side(picture)
    across = columns - numbers[0] * side
    down = rows - numbers[1] * side
    angle = np.arctan2(across, down) * numbers[2] * 10
    height = numbers[3] * side / 10
    width = numbers[4] * side / 10
    distance = np.sqrt(across**2 + down**2) + np.sin(angle) * height
    ramp = distance % width / width - 0.5
    return picture + severity * 12.8 / 255 * ramp[..., None]


def draw_plasma_noise(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw the time, the sharpness and the size of the pattern, and how often it is folded."""
    numbers = rng.random(3)
    return numbers, np.asarray(rng.integers(4, 7))


def plasma_noise(picture: Array, severity: float, numbers: Array, folds: Array) -> Array:
    """Mix in a pattern of colours whose coordinates were folded by sines again and again."""
    time = numbers[0] * 6 * math.pi
    sharpness = 0.5 + 0.5 * numbers[1]
    size = (0.075 + 0.125 * numbers[2]) * _side(picture)
    rows, columns = _coordinates(picture)
    x = columns / size
    y = rows / size
    frequency = 1.0
    slowness = 1.0
    damping = 1.0
    for _ in range(int(folds)):
        first = np.cos(y * frequency + time / slowness) / damping
        second = np.sin(x * frequency + time / slowness) / damping
        x = x + first - 0.3 * second
        y = y + second + 0.3 * first
        frequency *= 1.93
        slowness *= 1.15
        damping *= 2.25 - sharpness
    red = np.sin(x - time)
    green = np.sin((x + y + np.sin(time)) * 0.5)
    blue = np.sin(y + time)
    share = severity * 6.4 / 255
    return (1 - share) * picture + share * np.stack([red, green, blue], axis=2)


def _draw_rays(rng: Random, sparkles: int) -> Arrays:
    counts = rng.integers(50, _MOST_RAYS, sparkles)
    return counts, rng.standard_normal((sparkles, _MOST_RAYS))


def _glow(picture: Array, middle: Array, lengths: Array, power: float) -> Array:
    """Return the light of a sparkle with rays of these lengths, 0 to 1, [height, width, 1].

    middle: row and column.
    """
    rows, columns = _coordinates(picture)
    down = rows - middle[0]
    across = columns - middle[1]
    count = len(lengths)
    turn = (np.arctan2(across, down) + math.pi) / _TURN * count
    ray = turn.astype(int)
    part = turn - ray
    length = _between(lengths[ray % count], lengths[(ray + 1) % count], part)
    reach = (length**2 / (down**2 + across**2 + 1e-4)) ** power
    glow = (1 - (part - 0.5) ** 2) * reach
    return np.clip(glow, 0, 1)[..., None]


def draw_sparkles(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw the middle of each sparkle, how many rays it has, and how much each of them deviates."""
    middles = rng.random((_SPARKLES, 2)) * _side(picture)
    return middles, *_draw_rays(rng, _SPARKLES)


def sparkles(
    picture: Array,
    severity: float,
    middles: Array,
    counts: Array,
    deviations: Array,
) -> Array:
    radius = severity * 0.01 * _side(picture)
    for middle, count, deviation in zip(middles, counts, deviations, strict=True):
        lengths = np.maximum(1, radius + 0.25 * radius * deviation[:count])
        picture = picture + _glow(picture, middle, lengths, 1.0) * (1 - picture)
    return picture


def draw_inverse_sparkles(rng: Random, picture: Array, constant: float) -> Arrays:
    middle = rng.uniform(0.25, 0.75, 2) * _side(picture)
    return middle, *_draw_rays(rng, 1)


def inverse_sparkles(
    picture: Array,
    severity: float,
    middle: Array,
    counts: Array,
    deviations: Array,
) -> Array:
    """Whiten the picture outside of a sparkle."""
    radius = 0.25 * _side(picture)
    lengths = radius + 0.25 * radius * deviations[0, : counts[0]]
    glow = _glow(picture, middle, lengths, severity * 0.13)
    return 1 + glow * (picture - 1)


def draw_perlin_noise(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw the gradient of each number of the lattice, and the order of the numbers."""
    steps = rng.integers(-_CELLS, _CELLS, (_CELLS, 2)).astype(np.float64)
    lengths = np.sqrt((steps**2).sum(axis=1, keepdims=True))
    return steps / np.maximum(lengths, 1), rng.permutation(_CELLS)


def perlin_noise(picture: Array, severity: float, gradients: Array, order: Array) -> Array:
    """Mix in the sizes of five octaves of Perlin noise (1985)."""
    rows, columns = _coordinates(picture)
    size = 32 * _side(picture) / 224
    turbulence = np.zeros(rows.shape)
    for octave in _OCTAVES:
        noise = _lattice_noise(octave * rows / size, octave * columns / size, gradients, order)
        turbulence += np.abs(noise) / octave
    grey = np.clip(0.5 * turbulence + 0.5, 0, 1)
    share = severity * 0.05
    return (1 - share) * picture + share * grey[..., None]


def _lattice_noise(x: Array, y: Array, gradients: Array, order: Array) -> Array:
    cell_x = np.floor(x).astype(int)
    cell_y = np.floor(y).astype(int)
    part_x = x - cell_x
    part_y = y - cell_y

    def slope(right: int, below: int) -> Array:
        number = order[(cell_x + right) % _CELLS] + cell_y + below
        gradient = gradients[order[number % _CELLS]]
        return (part_x - right) * gradient[..., 0] + (part_y - below) * gradient[..., 1]

    ease_x = part_x**2 * (3 - 2 * part_x)
    ease_y = part_y**2 * (3 - 2 * part_y)
    above = _between(slope(0, 0), slope(1, 0), ease_x)
    under = _between(slope(0, 1), slope(1, 1), ease_x)
    return 1.5 * _between(above, under, ease_y)


def _spectral_noise(picture: Array, phases: Array, middles: Array, power: int) -> Array:
    """Return noise of deviation 1, [height, width].

    The strength of a frequency grows with it (power 1), or falls with 1 plus its square (power -2).
    phases: of the left half of the spectrum; the right half repeats them, turned by 180 degrees.
    middles: of the middle column, if the width is odd.
    """
    import scipy.fft

    fft: Any = scipy.fft  # older releases of scipy annotate tuples

    height, width = picture.shape[:2]
    side = _side(picture)
    rows, columns = _coordinates(picture)
    down = (rows - height / 2) * (side / height)
    across = (columns - width / 2) * (side / width)
    frequency = np.sqrt(down**2 + across**2)
    strength = frequency if power > 0 else 1 / (frequency**2 + 1)
    halves = [phases, phases[::-1, ::-1]]
    if width % 2:
        middle = [middles, middles[::-1]]
        if height % 2:
            middle.insert(1, np.zeros(1))
        halves.insert(1, np.concatenate(middle)[:, None])
    angles = np.concatenate(halves, axis=1)
    spectrum = strength * (np.cos(angles) + 1j * np.sin(angles))
    spectrum = np.roll(spectrum, (height // 2, width // 2), (0, 1))
    noise = fft.ifft2(spectrum).real
    return noise / noise.std()


def _draw_spectrum(rng: Random, picture: Array, noises: int) -> Arrays:
    height, width = picture.shape[:2]
    phases = rng.uniform(0, _TURN, (noises, height, width // 2))
    return phases, rng.uniform(0, _TURN, (noises, height // 2))


def draw_blue_noise_sample(rng: Random, picture: Array, constant: float) -> Arrays:
    return _draw_spectrum(rng, picture, 1)


def blue_noise_sample(picture: Array, severity: float, phases: Array, middles: Array) -> Array:
    """Blacken the pixels where blue noise is below a threshold."""
    noise = _spectral_noise(picture, phases[0], middles[0], 1)
    return picture * (noise > severity * 0.3 - 2.5)[..., None]


def draw_brownish_noise(rng: Random, picture: Array, constant: float) -> Arrays:
    return _draw_spectrum(rng, picture, 3)


def brownish_noise(picture: Array, severity: float, phases: Array, middles: Array) -> Array:
    channels = []
    for of_channel, middle in zip(phases, middles, strict=True):
        channels.append(_spectral_noise(picture, of_channel, middle, -2))
    return picture + severity * 6.4 / 255 * np.stack(channels, axis=2)


def draw_checkerboard_cutout(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw the angle of the board, the side of its squares, and a number from 0 to 1 for each of
    them."""
    angle = rng.uniform(0, _TURN)
    side = _side(picture)
    square = max(rng.uniform(0.1, 0.25) * side, 1)
    count = int(4 * side // square)
    return np.asarray(angle), np.asarray(square), rng.random((count, count))


def checkerboard_cutout(
    picture: Array,
    severity: float,
    angle: Array,
    square: Array,
    numbers: Array,
) -> Array:
    """Cover a share of the black squares of a board with grey."""
    rows, columns = _coordinates(picture)
    cosine = np.cos(angle)
    sine = np.sin(angle)
    x = (cosine * rows + sine * columns) / square
    y = (cosine * columns - sine * rows) / square
    is_white = np.floor(x % 2) != np.floor(y % 2)
    count = len(numbers)
    # The published code cuts off the fraction of negative numbers too.
    number = numbers[np.trunc(x).astype(int) % count, np.trunc(y).astype(int) % count]
    is_kept = is_white | (number >= severity * 0.1)
    return np.where(is_kept[..., None], picture, 128 / 255)


def draw_caustic_refraction(rng: Random, picture: Array, constant: float) -> Arrays:
    """Draw the time and the size of the ripples."""
    return (np.array([rng.uniform(0.5, 2.0), rng.uniform(0.75, 1.25)]),)


def caustic_refraction(picture: Array, severity: float, numbers: Array) -> Array:
    """Look at the picture through rippled water: bend the light, and brighten one side of each
    ripple. The outside of the picture is black."""
    from scipy.ndimage import gaussian_filter

    time, size = numbers
    side = _side(picture)
    caustics = _caustics(picture, time, size * side)
    around = np.pad(gaussian_filter(caustics, 1, mode="reflect"), 1)
    down = around[2:, 1:-1] - around[:-2, 1:-1]
    across = around[1:-1, 2:] - around[1:-1, :-2]
    # The surface bends light by its slope, as Snell's law says with a ratio of 4.
    slope = np.sqrt(down**2 + across**2)
    upright = 1 / np.sqrt(slope**2 + 1)
    tilt = slope * upright
    sine = tilt / 4
    cosine = np.sqrt(1 - sine**2)
    bend = cosine - sine * upright / np.where(tilt > 0, tilt, 1)
    bend = np.where(upright >= 1 - 1e-3, 0, bend * upright)
    lens = severity * 0.05 * side
    rows, columns = _coordinates(picture)
    from_rows = rows + np.round(down * bend * lens, 3)
    from_columns = columns + np.round(across * bend * lens, 3)
    bent = warped(picture, from_rows, from_columns, "grid-constant")
    return bent + severity * 0.2 * (down - across)[..., None]


def _caustics(picture: Array, time: float, size: float) -> Array:
    """Return the light that rippled water focuses, 0 to 1, [height, width]."""
    rows, columns = _coordinates(picture)
    turn = 6.28318530718  # as published
    x = rows / size % 1 * turn - 250
    y = columns / size % 1 * turn - 250
    bent_x = x
    bent_y = y
    light = np.ones(rows.shape)
    for fold in range(1, 6):
        moment = time * (1 - 3.5 / fold)
        next_x = x + np.cos(moment - bent_x) + np.sin(moment + bent_y)
        next_y = y + np.sin(moment - bent_y) + np.cos(moment + bent_x)
        bent_x = next_x
        bent_y = next_y
        sine = np.sin(bent_x + moment)
        cosine = np.cos(bent_y + moment)
        # 1 / √((x / sine)² + (y / cosine)²), without a division by 0
        product = np.abs(sine * cosine)
        length = np.sqrt((x * cosine) ** 2 + (y * sine) ** 2)
        light += np.divide(product, 0.005 * length, out=np.zeros(rows.shape), where=length > 0)
    return np.clip(np.abs(1.17 - (light / 5) ** 1.4) ** 8, 0, 1)
