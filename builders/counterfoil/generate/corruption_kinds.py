"""A function for each name in `CORRUPTIONS`, from a picture to a picture, both float64 [height, width, 3] from 0 to 1.

The caller clips and rounds the result. Random arrays follow the constants: `draw_fog` draws those of `fog`. Outside of
a picture the published definitions repeat its edge pixels or mirror it, and each function says which.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

Constant = float | tuple[float, ...]


def luma(picture: np.ndarray) -> np.ndarray:
    """Return grey levels [height, width] by the weights of JPEG and Pillow.

    A matrix product would add in another order on other processors, and round some levels differently.
    """
    return picture[..., 0] * 0.299 + picture[..., 1] * 0.587 + picture[..., 2] * 0.114


def draw_gaussian_noise(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape),)


def gaussian_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + deviation * normal


def draw_shot_noise(rng: np.random.Generator, picture: np.ndarray, full: float) -> tuple[np.ndarray, ...]:
    """Draw the number of photons in each pixel, `full` on average in a white one."""
    return (rng.poisson(picture * full),)


def shot_noise(picture: np.ndarray, full: float, photons: np.ndarray) -> np.ndarray:
    return photons / full


def draw_impulse_noise(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return rng.random(picture.shape), rng.random(picture.shape)


def impulse_noise(picture: np.ndarray, share: float, struck: np.ndarray, salt: np.ndarray) -> np.ndarray:
    return np.where(struck <= share, np.where(salt <= 0.5, 1.0, 0.0), picture)


draw_speckle_noise = draw_gaussian_noise


def speckle_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + picture * deviation * normal


def draw_colour_cast(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (np.asarray(rng.integers(2) * 2 - 1),)


def brightness(picture: np.ndarray, more: float) -> np.ndarray:
    """Raise the value in HSV, with equal ratios of the channels."""
    value = picture.max(axis=2, keepdims=True)
    brighter = np.minimum(value + more, 1)
    return np.where(value > 0, picture * (brighter / np.where(value > 0, value, 1)), brighter)


def saturate(picture: np.ndarray, factor_and_more: tuple[float, float]) -> np.ndarray:
    """Change the saturation in HSV. A grey has hue 0, which is red."""
    factor, more = factor_and_more
    value = picture.max(axis=2, keepdims=True)
    below = value - picture
    saturation = below.max(axis=2, keepdims=True) / np.where(value > 0, value, 1)
    other = np.clip(saturation * factor + more, 0, 1)
    red = value * np.array([0.0, 1.0, 1.0])
    return value - other * np.where(saturation > 0, below / np.where(saturation > 0, saturation, 1), red)


def contrast(picture: np.ndarray, left: float) -> np.ndarray:
    means = picture.mean(axis=(0, 1), keepdims=True)
    return (picture - means) * left + means


def jpeg_compression(picture: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    _image(picture).save(file, "JPEG", quality=quality)
    return _picture(Image.open(file))


def darker(picture: np.ndarray, stops: float) -> np.ndarray:
    return _encoded(_light(picture) * 2.0**-stops)


def colour_cast(picture: np.ndarray, stops: float, sign: np.ndarray) -> np.ndarray:
    """Scale red up and blue down by so many stops, or the reverse; white keeps its luminance."""
    gains = 2.0 ** (np.array([0.5, 0.0, -0.5]) * stops * sign)
    luminance = gains[0] * 0.2126 + gains[1] * 0.7152 + gains[2] * 0.0722
    return _encoded(_light(picture) * (gains / luminance))


def greyscale(picture: np.ndarray, share: float) -> np.ndarray:
    return picture + share * (luma(picture)[..., None] - picture)


def draw_occlusion(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (rng.random(2),)


def occlusion(picture: np.ndarray, share: float, position: np.ndarray) -> np.ndarray:
    """Cover a share of the picture with a grey rectangle of its form, wholly inside."""
    sides = np.array(picture.shape[:2])
    covered = np.maximum(np.rint(sides * share**0.5).astype(int), 1)
    top, left = np.floor(position * (sides - covered + 1)).astype(int)
    other = picture.copy()
    other[top : top + covered[0], left : left + covered[1]] = 0.5
    return other


def _light(picture: np.ndarray) -> np.ndarray:
    return np.where(picture <= 0.04045, picture / 12.92, ((picture + 0.055) / 1.055) ** 2.4)


def _encoded(light: np.ndarray) -> np.ndarray:
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def resized_and_back(picture: np.ndarray, share: float, resampling: Image.Resampling) -> np.ndarray:
    image = _image(picture)
    width, height = image.size
    small = image.resize((max(1, int(width * share)), max(1, int(height * share))), resampling)
    return _picture(small.resize((width, height), resampling))


def pixelate(picture: np.ndarray, share: float) -> np.ndarray:
    return resized_and_back(picture, share, Image.Resampling.BOX)


def low_resolution(picture: np.ndarray, share: float) -> np.ndarray:
    return resized_and_back(picture, share, Image.Resampling.BICUBIC)


def _image(picture: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(picture * 255).astype(np.uint8))


def _picture(image: Image.Image) -> np.ndarray:
    return np.asarray(image, np.uint8) / 255.0


def gaussian_blur(picture: np.ndarray, deviation: float) -> np.ndarray:
    """Blur by a Gaussian; edge pixels are repeated."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(picture, (deviation, deviation, *[0] * (picture.ndim - 2)), mode="nearest")


def defocus_blur(picture: np.ndarray, disk: tuple[float, float]) -> np.ndarray:
    """Return the mean over a disk of this radius, softened by a Gaussian of this deviation; mirrored at the edge."""
    import scipy.fft

    fft: Any = scipy.fft  # older releases annotate tuples

    kernel = disk_kernel(*disk)
    reach = len(kernel) // 2
    around = np.pad(picture, ((reach, reach), (reach, reach), (0, 0)), "reflect")
    # The time of Fourier transforms does not grow with the disk.
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


def draw_glass_blur(
    rng: np.random.Generator, picture: np.ndarray, constants: tuple[float, int, int]
) -> tuple[np.ndarray, ...]:
    """Draw offsets (right, down) for each pixel far enough from the edge, last row and column first."""
    _, reach, rounds = constants
    rows, columns = (max(0, side - 2 * reach) for side in picture.shape[:2])
    return (rng.integers(-reach, reach, (rounds, rows, columns, 2)),)


def glass_blur(picture: np.ndarray, constants: tuple[float, int, int], swaps: np.ndarray) -> np.ndarray:
    """Blur; let one pixel after another take the current colour of its neighbour; blur again."""
    deviation, reach, _ = constants
    # The published code cuts to levels too.
    levels = (gaussian_blur(picture, deviation) * 255).astype(np.uint8).reshape(-1, 3)
    height, width = picture.shape[:2]
    indices = np.arange(height * width).reshape(height, width)
    visited = np.zeros((height, width), bool)
    inner = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    visited[inner] = True
    for offsets in swaps:
        neighbour = indices.copy()
        neighbour[inner] += (offsets[..., 1] * width + offsets[..., 0])[::-1, ::-1]
        neighbour = neighbour.ravel()
        # A later neighbour has already taken another colour, so follow it to the origin of that colour.
        behind = np.where((neighbour > indices.ravel()) & visited.ravel()[neighbour], neighbour, indices.ravel())
        while True:
            further = behind[behind]
            if np.array_equal(further, behind):
                break
            behind = further
        levels = levels[neighbour[behind]]
    return gaussian_blur(levels.reshape(height, width, 3) / 255.0, deviation)


def draw_motion_blur(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (np.asarray(rng.uniform(-45, 45)),)  # degrees from the horizontal


def motion_blur(picture: np.ndarray, path: tuple[int, float], angle: np.ndarray) -> np.ndarray:
    """Return the mean along a line from each pixel, [height, width, …]; edge pixels are repeated.

    As in ImageMagick, the line is 2 radius + 1 pixels long, and its weights are half of a Gaussian of this deviation.
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


def zoom_blur(picture: np.ndarray, stop_and_step: tuple[float, float]) -> np.ndarray:
    """Average the picture with zooms into its middle, from 1 until before `stop`."""
    factors = np.arange(1, *stop_and_step)
    picture = picture.astype(np.float32)  # as published, and twice as fast
    total = picture.copy()
    for factor in factors:
        total += zoomed(picture, factor)
    return total / (len(factors) + 1)


def zoomed(picture: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge the middle of a picture, [height, width, …], interpolated linearly."""
    for axis in (0, 1):
        side = picture.shape[axis]
        cut = math.ceil(side / factor)
        whole = round(cut * factor)
        positions = (np.arange(side) + (whole - side) // 2) * ((cut - 1) / max(1, whole - 1))
        before = np.minimum(positions.astype(int), cut - 1)
        part = (positions - before).astype(picture.dtype).reshape(-1, *[1] * (picture.ndim - axis - 1))
        first = (side - cut) // 2
        low = picture.take(first + before, axis)
        picture = low + part * (picture.take(first + np.minimum(before + 1, cut - 1), axis) - low)
    return picture


def draw_elastic_transform(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Draw from -1 to 1: moves (x, y) of three corners, and fields of steps across and down."""
    sides = picture.shape[:2]
    return rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, sides), rng.uniform(-1, 1, sides)


def elastic_transform(
    picture: np.ndarray,
    constants: tuple[float, float, float, int],
    corners: np.ndarray,
    across: np.ndarray,
    down: np.ndarray,
) -> np.ndarray:
    """Move three corners of a square in the middle, then pixels by smooth fields; mirrored at the edge.

    The constants are the fields' strength and smoothness and the moves of corners, in pixels of a picture of the last
    constant's side. Other pictures are bent in the same form.
    """
    height, width = picture.shape[:2]
    scale = min(height, width) / constants[3]
    strength, smoothness, far = constants[0] * scale**2, constants[1] * scale, constants[2] * scale
    middle = np.array([width // 2, height // 2], np.float64)
    square = min(height, width) // 3
    before = middle + square * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + far * corners
    # The origin of each pixel: the affine map of the moved corners to the corners.
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
        picture, rows + strength * smooth(down, smoothness), columns + strength * smooth(across, smoothness), "reflect"
    )


def smooth(field: np.ndarray, deviation: float) -> np.ndarray:
    """Return a field, mirrored at its edge, blurred by a Gaussian that ends at three deviations.

    A mirrored field is a sum of cosines, and a blur only weakens each. So cosine transforms make wide blurs fast.
    """
    import scipy.fft

    fft: Any = scipy.fft  # older releases annotate tuples

    reach = int(3 * deviation + 0.5)
    taps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (taps / max(deviation, 1e-9)) ** 2)
    weights /= weights.sum()
    # For each k the sum of weights times cos(pi k tap / side); these cosines repeat at twice the side.
    factors = [fft.rfft(np.bincount(taps % (2 * side), weights, 2 * side)).real[:side] for side in field.shape]
    return fft.idctn(fft.dctn(field) * factors[0][:, None] * factors[1])


draw_rotation = draw_colour_cast


def rotation(picture: np.ndarray, degrees: float, sign: np.ndarray) -> np.ndarray:
    """Rotate the picture about its middle; mirrored at the edge."""
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
    """Take each pixel from this row and column, interpolated linearly; `outside` is scipy's mode."""
    from scipy.ndimage import map_coordinates

    origins = np.stack([rows, columns])
    channels = [map_coordinates(picture[..., channel], origins, order=1, mode=outside) for channel in range(3)]
    return np.stack(channels, axis=2)


def draw_fog(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Draw from -1 to 1: a number for each point of the fractal except the first, in order of use."""
    return (rng.uniform(-1, 1, _fractal_side(picture) ** 2 - 1),)


def fog(picture: np.ndarray, constants: tuple[float, float], numbers: np.ndarray) -> np.ndarray:
    thickness, decay = constants
    brightest = picture.max()
    return (picture + thickness * _cloud(picture, decay, numbers)[..., None]) * brightest / (brightest + thickness)


def _cloud(picture: np.ndarray, decay: float, numbers: np.ndarray) -> np.ndarray:
    """Return a fractal of the picture's size, repeated without a seam."""
    side = _fractal_side(picture)
    rows, columns = (np.arange(length) % side for length in picture.shape[:2])
    return plasma(side, decay, numbers)[np.ix_(rows, columns)]


def _fractal_side(picture: np.ndarray) -> int:
    """Return the least power of two that covers the picture, as published, but at most 1,024 to bound memory."""
    return min(1024, 2 ** math.ceil(math.log2(max(picture.shape[:2]))))


def plasma(side: int, decay: float, numbers: np.ndarray) -> np.ndarray:
    """Return heights from 0 to 1, [side, side], by diamonds and squares on a torus.

    Each round adds steps, half as long and `decay` times smaller, to the means of four neighbours.
    """
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


def draw_snow(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Draw a normal number for each pixel, and the angle of the fall in degrees."""
    return rng.standard_normal(picture.shape[:2]), np.asarray(rng.uniform(-135, -45))


def snow(
    picture: np.ndarray,
    constants: tuple[float, float, float, float, int, float, float],
    normal: np.ndarray,
    angle: np.ndarray,
) -> np.ndarray:
    """Add noise, zoomed, cut at a threshold and blurred, twice to a whitened picture."""
    mean, deviation, zoom, threshold, radius, sigma, left = constants
    flakes = zoomed(mean + deviation * normal, zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    # The published code moved files, so there are levels before and after.
    flakes = np.floor(motion_blur(np.floor(flakes * 255), (radius, sigma), angle)) / 255
    white = np.maximum(picture, luma(picture)[..., None] * 1.5 + 0.5)
    return left * picture + (1 - left) * white + (flakes + np.rot90(flakes, 2))[..., None]


def draw_spatter(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape[:2]),)


def spatter(
    picture: np.ndarray, constants: tuple[float, float, float, float, float, int], normal: np.ndarray
) -> np.ndarray:
    """Put liquid where smooth noise is above a threshold: water that shines at its edges, or mud."""
    mean, deviation, smoothness, threshold, strength, mud = constants
    liquid = gaussian_blur(mean + deviation * normal, smoothness)
    if mud:
        covered = gaussian_blur((liquid > threshold).astype(np.float64), strength)
        covered = np.where(covered < 0.8, 0, covered)[..., None]
        return picture * (1 - covered) + covered * np.array([63, 42, 20]) / 255
    levels = np.clip(np.where(liquid < threshold, 0, liquid) * 255, 0, 255).astype(np.uint8)
    shine = levels * _relief(levels)
    shine *= strength / max(shine.max(), 1e-9)
    return picture + shine[..., None] * np.array([175, 238, 238]) / 255


def _relief(levels: np.ndarray) -> np.ndarray:
    """Return the light on the liquid from one corner, by the distance to its edges."""
    from scipy.ndimage import correlate, uniform_filter

    far = np.minimum(_distance(~_edges(levels)), 20 * _STEPS[0])
    # A mean of exact integers, cut to whole steps: rounding errors would give other levels.
    far = _equalised((correlate(far, np.ones((3, 3), int), mode="mirror") // (9 * _STEPS[0])).astype(np.uint8))
    lit = correlate(far.astype(np.float64), np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    return np.rint(uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror"))


def _distance(inside: np.ndarray) -> np.ndarray:
    """Return the distance of each inner pixel to the nearest outer one, along sides, diagonals and knight's moves."""
    from scipy.ndimage import distance_transform_edt

    if inside.all():
        return np.full(inside.shape, np.iinfo(np.int64).max)
    # By the straight line to the nearest pixel, which is hardly ever farther in steps than another.
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


# OpenCV's steps in ten-thousandths, so that sums are exact, and the cost of moves to the middle of five by five pixels;
# 0 where two moves lead too.
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
    """Return levels that are all about as frequent."""
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if not others:
        return levels
    above = np.cumsum(counts) - counts[lowest]
    return np.rint(np.clip(above * (255 / others), 0, 255)).astype(np.uint8)[levels]


def _edges(levels: np.ndarray) -> np.ndarray:
    """Return Canny's edges at 50 and 150."""
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


# Feathers of ice in a square of the shorter side, barbs of each, and the least side in pixels of the canvas.
_FEATHERS, _BARBS, _DRAWN_SIDE = 150, 40, 256
_MOST_DRAWN = 1 << 28
# The least side of ice from which pixels are taken, that of a picture of ImageNet.
_SAMPLED_SIDE = 224


def draw_frost(rng: np.random.Generator, picture: np.ndarray, constant: Constant) -> tuple[np.ndarray, ...]:
    """Draw from 0 to 1: six numbers for each feather, three for each of its barbs; then those of the haze's fractal."""
    assert isinstance(constant, tuple)
    pane = _pane(picture, int(constant[2]))
    height, width = pane.shape[:2]
    # A strip gets thinner ice, because it would need millions of feathers.
    feathers = math.ceil(_FEATHERS * min(16.0, max(height, width) / min(height, width)))
    return rng.random((feathers, 6)), rng.random((feathers, _BARBS, 3)), *draw_fog(rng, pane, constant)


def frost(
    picture: np.ndarray,
    constants: tuple[float, float, int],
    feathers: np.ndarray,
    barbs: np.ndarray,
    numbers: np.ndarray,
) -> np.ndarray:
    """Add feathers of ice on frozen haze, with the mean and spread of the published photographs."""
    left, share, step = constants
    pane = _pane(picture, step)
    height, width = pane.shape[:2]
    haze = _cloud(pane, 2.0, numbers)
    ice = 0.4 + 0.36 * haze + 0.75 * _feathers(height, width, feathers, barbs) * (0.3 + 0.7 * haze)
    taken = ice[step // 2 :: step, step // 2 :: step][: picture.shape[0], : picture.shape[1]]
    return left * picture + share * np.clip(taken[..., None] * np.array([0.9, 1.0, 1.07]), 0, 1)


def _pane(picture: np.ndarray, step: int) -> np.ndarray:
    """Return an array, without memory, in the size of the ice from which every `step`-th pixel is taken."""
    least = 1 if step == 1 else _SAMPLED_SIDE
    height, width = (max(least, step * length) for length in picture.shape[:2])
    return np.broadcast_to(np.float64(0), (height, width))


def _feathers(height: int, width: int, feathers: np.ndarray, barbs: np.ndarray) -> np.ndarray:
    """Draw feathers from 0 to 1: a bent rib, with barbs on both sides that shorten towards its tip."""
    side = min(height, width)
    # The canvas of a strip is bounded.
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
