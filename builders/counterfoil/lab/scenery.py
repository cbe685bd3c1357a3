"""Draw the scenery of the wardrobe world: backgrounds, weather and light masks, companion sprites.

Each library has a few dozen variants, drawn once from a fixed seed and cached; scenes flip and
shift one of them. Arrays are float32, colours in 0…1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from counterfoil.lab.portable import (
    Pixels,
    cosine,
    exponential,
    portable_blur,
    power,
    sine,
    uniform,
)

SIDE = 64
VARIANTS = 48
STYLE_VARIANTS = 24
ROW_OF_PIXEL, COLUMN_OF_PIXEL = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
# How far down each pixel is, from 0 on [64, 64, 1].
_DOWN = (ROW_OF_PIXEL / SIDE)[..., None]


def rgb(*shares: float) -> Pixels:
    return np.asarray(shares, np.float32)


def _colour(*levels: int) -> Pixels:
    return rgb(*levels) / 255.0


def _variants(seed: int | list[int], paint: Callable[[np.random.Generator], Pixels]) -> Pixels:
    """Return 48 variants of what `paint` draws, all from one generator."""
    rng = np.random.default_rng(seed)
    return np.stack([paint(rng) for _ in range(VARIANTS)]).astype(np.float32)


def _noise(rng: np.random.Generator, sigma: float | tuple[float, float]) -> Pixels:
    """Draw smooth periodic noise [64, 64] of mean 0 and standard deviation 1."""
    field = portable_blur(rng.standard_normal((SIDE, SIDE)).astype(np.float32), sigma, "wrap")
    return (field - field.mean()) / (field.std() + 1e-6)


def _texture(rng: np.random.Generator, sigma: float | tuple[float, float]) -> Pixels:
    """Draw the noise that all three channels share [64, 64, 1]."""
    return _noise(rng, sigma)[..., None]


def _sky(top: Pixels, bottom: Pixels, horizon: int) -> Pixels:
    share = np.clip(ROW_OF_PIXEL / horizon, 0, 1)[..., None]
    return top * (1 - share) + bottom * share


def _ground(image: Pixels, ground: Pixels, horizon: int | Pixels) -> Pixels:
    """Put the ground below the horizon, which is one row, or a row for each column."""
    is_ground = horizon <= ROW_OF_PIXEL
    return np.where(is_ground[..., None], ground, image)


def _wall(rng: np.random.Generator) -> Pixels:
    tones = [
        (236, 229, 214),
        (222, 226, 232),
        (215, 228, 218),
        (238, 220, 216),
        (226, 218, 236),
        (228, 228, 226),
    ]
    tone = _colour(*tones[rng.integers(len(tones))])
    image = tone * (1.02 - 0.10 * _DOWN) + 0.008 * _texture(rng, 6)
    horizon = int(rng.integers(48, 56))
    light = 0.95 + 0.1 * (ROW_OF_PIXEL - horizon) / 16
    floor = tone * _colour(205, 190, 172) * light[..., None]
    image = _ground(image, floor, horizon)
    image[horizon - 1 : horizon + 1] = np.clip(tone * 1.08, 0, 1)
    return image


def _brick(rng: np.random.Generator) -> Pixels:
    height = 8
    width = 16
    course = ROW_OF_PIXEL // height
    # Every other course is moved by half a brick.
    offset = (course % 2) * (width / 2) + rng.integers(width)
    along = COLUMN_OF_PIXEL + offset
    brick = np.floor(along / width)
    # A brick's shade looks random, but follows from its course and number.
    shade = sine(course * 12.9 + brick * 78.2 + rng.random() * 99) * 0.09
    image = _colour(168, 74, 56) + shade[..., None] + 0.03 * _texture(rng, 0.8)
    is_mortar = (ROW_OF_PIXEL % height < 1.5) | (along % width < 1.5)
    return np.where(is_mortar[..., None], _colour(206, 198, 188), image)


def _wood(rng: np.random.Generator) -> Pixels:
    board = int(rng.integers(12, 16))
    row = (ROW_OF_PIXEL + rng.integers(board)) // board
    tone = sine(row * 9.7 + rng.random() * 99) * 0.06
    streaks = _noise(rng, (0.7, 7)) * 0.045
    rings = sine(ROW_OF_PIXEL * 1.7 + 3 * _noise(rng, (3, 12)))
    grain = streaks + 0.03 * rings
    image = _colour(158, 106, 62) + (tone + grain)[..., None]
    is_seam = ROW_OF_PIXEL % board < 1
    return np.where(is_seam[..., None], image * 0.55, image)


def _grass(rng: np.random.Generator) -> Pixels:
    horizon = int(rng.integers(14, 24))
    image = _sky(_colour(112, 178, 236), _colour(206, 232, 250), horizon)
    blades = _texture(rng, (2.2, 0.6)) * _colour(26, 34, 14)
    ground = _colour(74, 154, 44) + blades - 0.05 * _DOWN
    edge = horizon + 1.2 * _noise(rng, (0.1, 1.2))[0]
    return _ground(image, ground, edge)


def _beach(rng: np.random.Generator) -> Pixels:
    horizon = int(rng.integers(9, 15))
    shore = horizon + int(rng.integers(9, 14))
    image = _sky(_colour(120, 190, 240), _colour(214, 238, 250), horizon)
    sea = _colour(34, 126, 190) + 0.05 * _texture(rng, (0.7, 3))
    image = _ground(image, sea, horizon)
    line = shore + 1.0 * sine(COLUMN_OF_PIXEL[0] / 7 + rng.random() * 6)
    grains = 0.028 * _texture(rng, 0.6)
    ripples = 0.015 * _texture(rng, (1.5, 8))
    sand = _colour(229, 200, 142) + grains + ripples
    image = _ground(image, sand, line)
    is_foam = np.abs(ROW_OF_PIXEL - line) < 1.1
    return np.where(is_foam[..., None], _colour(246, 250, 250), image)


def _forest(rng: np.random.Generator) -> Pixels:
    leaves = 0.6 * _texture(rng, 1.3) + 0.6 * _texture(rng, 3)
    image = _colour(30, 82, 34) + leaves * _colour(16, 30, 14)
    for _ in range(int(rng.integers(4, 7))):
        centre = uniform(rng, 0, SIDE)
        width = uniform(rng, 3, 6)
        bend = centre + 1.5 * sine(ROW_OF_PIXEL / 18 + rng.random() * 6)
        distance = ((COLUMN_OF_PIXEL - bend) / width)[..., None]
        # The left of the trunk is lit.
        light = 1.15 - 0.9 * np.abs(distance + 0.15)
        bark = _colour(92, 62, 40) * light + 0.02 * _texture(rng, (2, 0.5))
        image = np.where(np.abs(distance) < 0.5, bark, image)
    floor = _colour(70, 60, 34) + 0.05 * _texture(rng, 1)
    return _ground(image, floor, int(rng.integers(52, 58)))


def _water(rng: np.random.Generator) -> Pixels:
    wave = sine(ROW_OF_PIXEL * uniform(rng, 0.75, 0.95) + 2.2 * _noise(rng, (3, 9)))
    waves = wave[..., None] * _colour(22, 30, 34)
    image = _colour(46, 128, 196) * (1 - 0.35 * _DOWN) + waves
    glint = np.clip(wave - 0.75, 0, 1) * (_noise(rng, (0.8, 2)) > 0.4)
    return image + glint[..., None] * 1.6


def _road(rng: np.random.Generator) -> Pixels:
    image = _colour(92, 92, 96) + 0.035 * _texture(rng, 0.5) + 0.02 * _texture(rng, 5)
    centre = uniform(rng, 18, 46)
    along = (ROW_OF_PIXEL + rng.integers(16)) % 16
    is_stripe = (np.abs(COLUMN_OF_PIXEL - centre) < 1.6) & (along < 9)
    image = np.where(is_stripe[..., None], _colour(240, 226, 150), image)
    edge = centre + 34 if centre < 32 else centre - 34
    is_kerb = np.abs(COLUMN_OF_PIXEL - edge) < 1.2
    return np.where(is_kerb[..., None], _colour(226, 226, 226), image)


def _rocks(rng: np.random.Generator) -> Pixels:
    count = int(rng.integers(26, 36))
    points = uniform(rng, -4, SIDE + 4, (count, 2)).astype(np.float32)
    tones = uniform(rng, 0.42, 0.68, count).astype(np.float32)
    rows = points[:, 0]
    columns = points[:, 1]
    across = (COLUMN_OF_PIXEL[..., None] - columns) * 0.8
    distance = _distance(across, ROW_OF_PIXEL[..., None] - rows)
    nearest = np.argsort(distance, axis=-1, kind="stable")[..., :2]
    near = np.take_along_axis(distance, nearest, -1)
    # Two stones meet where both are equally near.
    gap = near[..., 1] - near[..., 0]
    crack = np.clip(gap / 2.2, 0.25, 1)
    stone = nearest[..., 0]
    slope = (rows[stone] - ROW_OF_PIXEL) * 0.02 + (columns[stone] - COLUMN_OF_PIXEL) * 0.01
    light = np.clip(slope, -0.14, 0.16)
    tone = tones[stone] + light + 0.03 * _noise(rng, 0.7)
    return tone[..., None] * _colour(250, 240, 226) * crack[..., None]


def _snow(rng: np.random.Generator) -> Pixels:
    horizon = int(rng.integers(16, 26))
    image = _sky(_colour(150, 168, 194), _colour(200, 212, 226), horizon)
    drift = horizon + 2.0 * sine(COLUMN_OF_PIXEL[0] / 9 + rng.random() * 6)
    ground = _colour(236, 241, 249) + 0.02 * _texture(rng, (1.5, 6)) - 0.05 * (1 - _DOWN)
    return _ground(image, ground, drift)


_PAINTERS: dict[str, Callable[[np.random.Generator], Pixels]] = {
    "wall": _wall,
    "brick": _brick,
    "wood": _wood,
    "grass": _grass,
    "beach": _beach,
    "forest": _forest,
    "water": _water,
    "road": _road,
    "rocks": _rocks,
    "snow": _snow,
}


@cache
def backgrounds(name: str) -> Pixels:
    """Return variants of a background [48, 64, 64, 3]."""
    return np.clip(_variants([11, *name.encode()], _PAINTERS[name]), 0, 1)


@cache
def reaches() -> Pixels:
    """Return the order in which a new background replaces another, in 0…1 [48, 64, 64]: in patches,
    from below."""
    fields = _variants(24, lambda rng: _noise(rng, 4) - 3 * ROW_OF_PIXEL / SIDE)
    # Stable, for other sorts may order equal heights differently on another processor.
    order = fields.reshape(VARIANTS, -1).argsort(1, kind="stable")
    ranks = order.argsort(1)
    shares = (ranks + 0.5) / SIDE**2
    return shares.astype(np.float32).reshape(fields.shape)


def _disc(draw: ImageDraw.ImageDraw, x: float, y: float, r: float, fill: Any) -> None:
    draw.ellipse((x - r, y - r, x + r, y + r), fill=fill)


_Painter = Callable[[ImageDraw.ImageDraw, np.random.Generator], None]


def _masks(seed: int, times: int, paint: _Painter) -> Pixels:
    """Paint masks [48, 64, 64, 1] at so many times the size."""

    def mask(rng: np.random.Generator) -> Pixels:
        canvas = Image.new("L", (SIDE * times, SIDE * times))
        paint(ImageDraw.Draw(canvas), rng)
        return np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) / 255

    return _variants(seed, mask)[..., None]


@cache
def flakes(share: float) -> Pixels:
    """Return the coverage of falling snow [48, 64, 64, 1]; a smaller share has the first of all
    flakes."""

    def paint(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
        for number in range(46):
            x = uniform(rng, 0, SIDE * 3)
            y = uniform(rng, 0, SIDE * 3)
            r = uniform(rng, 1.6, 3.4)
            if number + 0.5 < share * 46:
                _disc(draw, x, y, r, 255)

    return _masks(12, 3, paint)


@cache
def rain_streaks(share: float) -> Pixels:
    """Return the coverage of streaks of rain [48, 64, 64, 1]; a smaller share has the first of all
    streaks."""

    def paint(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
        slant = uniform(rng, 0.22, 0.4)
        for number in range(60):
            x = uniform(rng, -30, SIDE * 3)
            y = uniform(rng, -30, SIDE * 3)
            length = uniform(rng, 20, 38)
            fill = int(uniform(rng, 170, 255))
            if number + 0.5 < share * 60:
                draw.line((x, y, x + slant * length, y + length), fill=fill, width=3)

    return _masks(13, 3, paint)


def _paint_night(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    for _ in range(26):
        x = uniform(rng, 0, SIDE * 4)
        y = SIDE * 2.4 * float(power(rng.random(), 1.3))
        r = uniform(rng, 1.4, 3.0)
        _disc(draw, x, y, r, int(uniform(rng, 150, 255)))
    x = uniform(rng, 24, SIDE * 4 - 24)
    y = uniform(rng, 22, 46)
    r = uniform(rng, 15, 20)
    _disc(draw, x, y, r, 255)


@cache
def night_sky() -> Pixels:
    """Return stars and a moon in the upper part of the picture [48, 64, 64, 1]."""
    return _masks(14, 4, _paint_night)


def _distance(across: Pixels, down: Pixels) -> Pixels:
    return np.sqrt(across * across + down * down)


def _rays(across: Pixels, down: Pixels, phase: float) -> Pixels:
    """Return the cosine of fourteen times the angle around the origin plus a phase in radians."""
    distance = np.maximum(_distance(across, down), 1e-9)
    real = across / distance
    imaginary = down / distance
    total_real = cosine(phase)
    total_imaginary = sine(phase)
    for bit in (0, 1, 1, 1):  # 14, from the lowest bit on
        if bit:
            total_real, total_imaginary = (
                total_real * real - total_imaginary * imaginary,
                total_real * imaginary + total_imaginary * real,
            )
        real, imaginary = real * real - imaginary * imaginary, 2 * real * imaginary
    return total_real


def _sun(rng: np.random.Generator) -> Pixels:
    x = uniform(rng, 2, 14)
    y = uniform(rng, 2, 12)
    across = COLUMN_OF_PIXEL - x
    down = ROW_OF_PIXEL - y
    distance = _distance(across, down)
    disc = np.clip(9 - distance, 0, 1)
    glow = exponential(-distance / 13)
    rays = np.clip(_rays(across, down, rng.random() * 6), 0, 1) * exponential(-distance / 20)
    return np.clip(disc + 0.75 * glow + 0.5 * rays, 0, 1)


@cache
def suns() -> Pixels:
    """Return a sun with rays and glow in an upper corner [48, 64, 64, 1]."""
    return _variants(15, _sun)[..., None]


def _low_sun(rng: np.random.Generator) -> Pixels:
    x = uniform(rng, 6, 20)
    y = uniform(rng, 18, 26)
    distance = _distance(COLUMN_OF_PIXEL - x, (ROW_OF_PIXEL - y) * 1.2)
    disc = np.clip(6.5 - distance, 0, 1)
    glow = exponential(-distance / 12)
    return np.clip(disc + 0.6 * glow, 0, 1)


@cache
def low_suns() -> Pixels:
    """Return the glow of a low sun near the middle of one side, at dusk [48, 64, 64, 1]."""
    return _variants(16, _low_sun)[..., None]


def _spotlight(rng: np.random.Generator) -> Pixels:
    across = (COLUMN_OF_PIXEL - 32) / 19
    down = (ROW_OF_PIXEL - 34) / 23
    pool = exponential(-(across**2 + down**2))
    faded = np.clip(1 - ROW_OF_PIXEL / 52, 0, 1)
    width = 1.5 + 0.16 * ROW_OF_PIXEL
    cones = np.zeros((SIDE, SIDE), np.float32)
    for start in (uniform(rng, -3, 4), SIDE - uniform(rng, -3, 4)):
        slope = (32 - start) / 46
        middle = start + slope * ROW_OF_PIXEL
        offset = (COLUMN_OF_PIXEL - middle) / width
        cones += exponential(-(offset**2)) * faded
    return np.clip(pool + 0.75 * cones, 0, 1)


@cache
def spotlights() -> Pixels:
    """Return studio light, two cones from the upper corners that meet in a bright pool [48, 64, 64,
    1]."""
    return _variants(17, _spotlight)[..., None]


def _sprites(seed: int, paint: _Painter) -> Pixels:
    """Paint sprites [48, 64, 64, 4] at four times the size; colour is premultiplied by coverage."""

    def sprite(rng: np.random.Generator) -> Pixels:
        canvas = Image.new("RGBA", (SIDE * 4, SIDE * 4))
        paint(ImageDraw.Draw(canvas), rng)
        pixels = np.asarray(canvas, np.float32) / 255
        pixels[..., :3] *= pixels[..., 3:]
        return pixels.reshape(SIDE, 4, SIDE, 4, 4).mean(axis=(1, 3))

    return _variants(seed, sprite)


def _paint_person(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    skin = [(241, 205, 176), (214, 166, 128), (160, 110, 78), (105, 70, 48)][rng.integers(4)]
    hair = [(40, 28, 22), (92, 60, 34), (196, 156, 82), (120, 44, 24)][rng.integers(4)]
    top = [(98, 84, 140), (60, 120, 120), (130, 130, 130), (150, 96, 70)][rng.integers(4)]
    legs = [(52, 58, 82), (76, 66, 58), (58, 78, 62)][rng.integers(3)]
    x = uniform(rng, 44, 60)
    y = uniform(rng, 30, 44)
    draw.rounded_rectangle((x - 20, y + 104, x - 3, y + 196), 7, fill=legs)
    draw.rounded_rectangle((x + 3, y + 104, x + 20, y + 196), 7, fill=legs)
    draw.rounded_rectangle((x - 34, y + 36, x - 20, y + 104), 7, fill=skin)
    draw.rounded_rectangle((x + 20, y + 36, x + 34, y + 104), 7, fill=skin)
    draw.rounded_rectangle((x - 25, y + 28, x + 25, y + 114), 12, fill=top)
    draw.rectangle((x - 6, y + 18, x + 6, y + 32), fill=skin)
    draw.ellipse((x - 21, y - 26, x + 21, y + 18), fill=hair)
    draw.ellipse((x - 16, y - 14, x + 16, y + 22), fill=skin)
    draw.ellipse((x - 9, y - 1, x - 5, y + 4), fill=(30, 24, 24))
    draw.ellipse((x + 5, y - 1, x + 9, y + 4), fill=(30, 24, 24))
    draw.arc((x - 7, y + 4, x + 7, y + 15), 20, 160, fill=(150, 60, 60), width=3)


def _paint_flower(draw: ImageDraw.ImageDraw, rng: np.random.Generator) -> None:
    petal = [(236, 70, 150), (250, 250, 250), (150, 90, 220), (250, 120, 70)][rng.integers(4)]
    x = uniform(rng, 38, 50)
    y = uniform(rng, 70, 110)
    r = uniform(rng, 17, 20)
    draw.line((x, y, x + 4, 236), fill=(48, 128, 52), width=8)
    draw.ellipse((x + 2, y + 72, x + 38, y + 92), fill=(60, 150, 62))
    draw.ellipse((x - 32, y + 92, x + 6, y + 110), fill=(60, 150, 62))
    turn = rng.random() * 6
    for k in range(6):
        angle = turn + k * math.pi / 3
        _disc(draw, x + cosine(angle) * r, y + sine(angle) * r, r * 0.8, petal)
    _disc(draw, x, y, r * 0.62, (250, 206, 60))


@cache
def people() -> Pixels:
    """Return a standing person at the left of the picture [48, 64, 64, 4]."""
    return _sprites(18, _paint_person)


@cache
def flowers() -> Pixels:
    """Return a tall flower at the left of the picture [48, 64, 64, 4]."""
    return _sprites(19, _paint_flower)


def _cells(
    rng: np.random.Generator, stretch: tuple[float, float], angle: float, spacing: float
) -> Pixels:
    """Return the index [64·64] of the centre of each pixel's stroke: long Voronoi cells on a
    jittered grid."""
    from scipy.spatial import KDTree

    cos = cosine(angle)
    sin = sine(angle)
    axis = np.arange(-SIDE, 2 * SIDE, spacing)
    grid = np.stack(np.meshgrid(axis * stretch[0], axis * stretch[1]), -1).reshape(-1, 2)
    grid += uniform(rng, -0.5, 0.5, grid.shape) * np.asarray(stretch) * spacing
    along, aside = grid.T
    points = np.stack([cos * along - sin * aside, sin * along + cos * aside], -1) + SIDE / 2
    is_near = (points > -8) & (points < SIDE + 8)
    points = points[is_near.all(1)]

    def turned_back(x: Pixels, y: Pixels) -> Pixels:
        """Return points in the directions of the grid, where cells are as long as wide."""
        along = (cos * x + sin * y) / stretch[0]
        aside = (-sin * x + cos * y) / stretch[1]
        return np.stack([along, aside], -1)

    tree = KDTree(turned_back(*points.T))
    pixels = turned_back(COLUMN_OF_PIXEL.ravel(), ROW_OF_PIXEL.ravel())
    _, nearest = tree.query(pixels)
    column, row = np.clip(np.rint(points[nearest]), 0, SIDE - 1).astype(np.int64).T
    return row * SIDE + column


@cache
def brush_strokes() -> Pixels:
    """Return index maps [24, 4096]: in an oil painting, a pixel has the colour of its stroke's
    centre."""
    rng = np.random.default_rng(20)
    maps = []
    for _ in range(STYLE_VARIANTS):
        angle = uniform(rng, 0, math.pi)
        maps.append(_cells(rng, (1.0, 1.9), angle, 1.45))
    return np.stack(maps)


@cache
def stitches() -> tuple[Pixels, Pixels]:
    """Return index maps [24, 4096] and thread shading [24, 64, 64, 1] of diagonal embroidery
    stitches."""
    rng = np.random.default_rng(21)
    maps = []
    threads = []
    for _ in range(STYLE_VARIANTS):
        angle = rng.choice([-0.8, 0.8]) + uniform(rng, -0.1, 0.1)
        index = _cells(rng, (1.0, 1.8), angle, 1.6)
        row, column = np.divmod(index.reshape(SIDE, SIDE), SIDE)
        # The distance of each pixel from the centre of its stitch, along the thread.
        along = (COLUMN_OF_PIXEL - column) * cosine(angle) + (ROW_OF_PIXEL - row) * sine(angle)
        maps.append(index)
        threads.append(1.12 - 0.30 * np.abs(along))
    shading = np.clip(np.stack(threads), 0.55, 1.15)
    return np.stack(maps), shading[..., None].astype(np.float32)


@cache
def linen() -> Pixels:
    """Return woven cloth behind an embroidery [48, 64, 64, 3]."""
    tones = [_colour(232, 222, 200), _colour(220, 214, 204), _colour(236, 226, 190)]
    weave = 0.045 * (sine(ROW_OF_PIXEL * math.pi / 1.5) * sine(COLUMN_OF_PIXEL * math.pi / 1.5))

    def woven(rng: np.random.Generator) -> Pixels:
        tone = tones[rng.integers(3)]
        threads = weave + 0.015 * _noise(rng, (0.4, 3)) + 0.015 * _noise(rng, (3, 0.4))
        return tone + threads[..., None]

    return np.clip(_variants(22, woven), 0, 1)


@cache
def hatching() -> Pixels:
    """Return two layers [2, 24, 64, 64] of pencil hatching, for mid tones and for darks."""
    rng = np.random.default_rng(23)
    diagonals = (COLUMN_OF_PIXEL + ROW_OF_PIXEL, COLUMN_OF_PIXEL - ROW_OF_PIXEL)
    layers = np.empty((2, STYLE_VARIANTS, SIDE, SIDE), np.float32)
    for variant in range(STYLE_VARIANTS):
        wobble = 0.8 * _noise(rng, 4)
        for layer, diagonal in enumerate(diagonals):
            phase = diagonal * 1.35 + wobble + rng.random() * 6
            layers[layer, variant] = 0.5 + 0.5 * sine(phase)
    return layers
