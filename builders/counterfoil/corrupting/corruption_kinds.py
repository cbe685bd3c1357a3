"""Compute each corruption in `CORRUPTIONS` with the function of the same name.

The function takes a picture, float64 [height, width, 3] from 0 to 1, then its constants, then its
random arrays. The function `draw_fog` draws the random arrays of `fog`, and other corruptions
follow this pattern. The function returns a picture of the same shape, and the caller clips and
rounds this picture.

Some corruptions need pixels beyond the edge of a picture. The published definitions repeat the edge
pixels or mirror the picture. The docstring of each such function says which.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

Constant = float | tuple[float, ...]


def luma(picture: np.ndarray) -> np.ndarray:
    """Return the grey levels [height, width] of a picture, with the weights that JPEG and Pillow
    use.

    The order of additions in a matrix product depends on the processor, and another order rounds
    some levels differently. So this function adds the channels one by one.
    """
    return picture[..., 0] * 0.299 + picture[..., 1] * 0.587 + picture[..., 2] * 0.114


def draw_gaussian_noise(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape),)


def gaussian_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + deviation * normal


def draw_shot_noise(
    rng: np.random.Generator, picture: np.ndarray, full: float
) -> tuple[np.ndarray, ...]:
    """Draw the number of photons in each pixel. A white pixel has `full` photons on average."""
    return (rng.poisson(picture * full),)


def shot_noise(picture: np.ndarray, full: float, photons: np.ndarray) -> np.ndarray:
    return photons / full


def draw_impulse_noise(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return rng.random(picture.shape), rng.random(picture.shape)


def impulse_noise(
    picture: np.ndarray, share: float, struck: np.ndarray, salt: np.ndarray
) -> np.ndarray:
    return np.where(struck <= share, np.where(salt <= 0.5, 1.0, 0.0), picture)


draw_speckle_noise = draw_gaussian_noise


def speckle_noise(picture: np.ndarray, deviation: float, normal: np.ndarray) -> np.ndarray:
    return picture + picture * deviation * normal


def draw_colour_cast(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return (np.asarray(rng.integers(2) * 2 - 1),)


def brightness(picture: np.ndarray, more: float) -> np.ndarray:
    """Raise the value in HSV, and keep the ratios between the channels."""
    value = picture.max(axis=2, keepdims=True)
    brighter = np.minimum(value + more, 1)
    return np.where(value > 0, picture * (brighter / np.where(value > 0, value, 1)), brighter)


def saturate(picture: np.ndarray, factor_and_more: tuple[float, float]) -> np.ndarray:
    """Change the saturation in HSV. A grey pixel has hue 0, so it turns red."""
    factor, more = factor_and_more
    value = picture.max(axis=2, keepdims=True)
    below = value - picture
    saturation = below.max(axis=2, keepdims=True) / np.where(value > 0, value, 1)
    other = np.clip(saturation * factor + more, 0, 1)
    red = value * np.array([0.0, 1.0, 1.0])
    return value - other * np.where(
        saturation > 0, below / np.where(saturation > 0, saturation, 1), red
    )


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
    """Scale the red channel up and the blue channel down, or the reverse if `sign` is -1.

    The gains of the two channels differ by `stops` stops. A white pixel keeps its luminance.
    """
    gains = 2.0 ** (np.array([0.5, 0.0, -0.5]) * stops * sign)
    luminance = gains[0] * 0.2126 + gains[1] * 0.7152 + gains[2] * 0.0722
    return _encoded(_light(picture) * (gains / luminance))


def greyscale(picture: np.ndarray, share: float) -> np.ndarray:
    return picture + share * (luma(picture)[..., None] - picture)


def draw_occlusion(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return (rng.random(2),)


def occlusion(picture: np.ndarray, share: float, position: np.ndarray) -> np.ndarray:
    """Cover a share of the picture with a grey rectangle.

    The rectangle has the aspect ratio of the picture and lies inside the picture.
    """
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
    """Blur a picture with a Gaussian. Beyond the edge, the edge pixels repeat."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(
        picture, (deviation, deviation, *[0] * (picture.ndim - 2)), mode="nearest"
    )


def defocus_blur(picture: np.ndarray, disk: tuple[float, float]) -> np.ndarray:
    """Replace each pixel by the weighted mean of the pixels in a disk around it.

    The pair `disk` holds the radius of the disk and the standard deviation of the Gaussian that
    softens its rim. The picture is mirrored at the edge.
    """
    import scipy.fft

    fft: Any = scipy.fft  # older releases of scipy annotate tuples

    kernel = disk_kernel(*disk)
    reach = len(kernel) // 2
    around = np.pad(picture, ((reach, reach), (reach, reach), (0, 0)), "reflect")
    # A convolution by Fourier transforms takes the same time for a large disk as for a small one.
    sides = [fft.next_fast_len(side, real=True) for side in around.shape[:2]]
    product = fft.rfft2(around, sides, axes=(0, 1)) * fft.rfft2(kernel, sides)[..., None]
    height, width = picture.shape[:2]
    return fft.irfft2(product, sides, axes=(0, 1))[
        2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width
    ]


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
    """Draw an offset (right, down) to a neighbour for each pixel that is far enough from the edge.

    The offsets of the last row come first, and within a row the offset of the last column comes
    first.
    """
    _, reach, rounds = constants
    rows, columns = (max(0, side - 2 * reach) for side in picture.shape[:2])
    return (rng.integers(-reach, reach, (rounds, rows, columns, 2)),)


def glass_blur(
    picture: np.ndarray, constants: tuple[float, int, int], swaps: np.ndarray
) -> np.ndarray:
    """Blur the picture, move colours between neighbours, and blur again.

    One pixel after another takes the colour that its drawn neighbour has at that moment.
    """
    deviation, reach, _ = constants
    # The published code also cuts colours off to whole levels here.
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
        # Pixels are visited from the last to the first. A neighbour with a larger index has already
        # taken another colour, so follow the chain of neighbours to the pixel from which that
        # colour came.
        behind = np.where(
            (neighbour > indices.ravel()) & visited.ravel()[neighbour], neighbour, indices.ravel()
        )
        while True:
            further = behind[behind]
            if np.array_equal(further, behind):
                break
            behind = further
        levels = levels[neighbour[behind]]
    return gaussian_blur(levels.reshape(height, width, 3) / 255.0, deviation)


def draw_motion_blur(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return (np.asarray(rng.uniform(-45, 45)),)  # degrees from the horizontal


def motion_blur(picture: np.ndarray, path: tuple[int, float], angle: np.ndarray) -> np.ndarray:
    """Replace each pixel by the weighted mean along a line that starts at the pixel.

    The picture is [height, width, …]. Beyond the edge, the edge pixels repeat. The pair `path`
    holds a radius and a standard deviation. As in ImageMagick, the line is 2 radius + 1 pixels
    long, and the weights along the line are one half of a Gaussian with this deviation.
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
    around = np.pad(
        picture, ((above, below), (left, right), *[(0, 0)] * (picture.ndim - 2)), "edge"
    )
    height, width = picture.shape[:2]
    mean = np.zeros_like(picture)
    for (down, across), weight in ways.items():
        mean += (
            weight
            * around[above + down : above + down + height, left + across : left + across + width]
        )
    return mean


def zoom_blur(picture: np.ndarray, stop_and_step: tuple[float, float]) -> np.ndarray:
    """Average the picture with enlarged copies of its middle.

    The factors of enlargement start at 1, grow by the step, and end before the stop.
    """
    factors = np.arange(1, *stop_and_step)
    # the published code uses float32 too, and float32 is twice as fast
    picture = picture.astype(np.float32)
    total = picture.copy()
    for factor in factors:
        total += zoomed(picture, factor)
    return total / (len(factors) + 1)


def zoomed(picture: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge the middle of a picture, [height, width, …], with linear interpolation."""
    for axis in (0, 1):
        side = picture.shape[axis]
        cut = math.ceil(side / factor)
        whole = round(cut * factor)
        positions = (np.arange(side) + (whole - side) // 2) * ((cut - 1) / max(1, whole - 1))
        before = np.minimum(positions.astype(int), cut - 1)
        part = (
            (positions - before).astype(picture.dtype).reshape(-1, *[1] * (picture.ndim - axis - 1))
        )
        first = (side - cut) // 2
        low = picture.take(first + before, axis)
        picture = low + part * (picture.take(first + np.minimum(before + 1, cut - 1), axis) - low)
    return picture


def draw_elastic_transform(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    """Draw numbers from -1 to 1: the moves (x, y) of three corners, then one field of shifts across
    and one down."""
    sides = picture.shape[:2]
    return rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, sides), rng.uniform(-1, 1, sides)


def elastic_transform(
    picture: np.ndarray,
    constants: tuple[float, float, float, int],
    corners: np.ndarray,
    across: np.ndarray,
    down: np.ndarray,
) -> np.ndarray:
    """Apply a random affine map, then shift every pixel by smooth random fields.

    The affine map moves three corners of a square in the middle of the picture. The picture is
    mirrored at the edge.

    The four constants are the strength of the fields, their smoothness, the largest move of a
    corner, and the side in pixels of the pictures for which the first three constants hold. A
    picture with another shorter side gets scaled constants, so it is bent into the same form.
    """
    height, width = picture.shape[:2]
    scale = min(height, width) / constants[3]
    strength = constants[0] * scale**2
    smoothness = constants[1] * scale
    far = constants[2] * scale
    middle = np.array([width // 2, height // 2], np.float64)
    square = min(height, width) // 3
    before = middle + square * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + far * corners
    # This affine map takes the moved corners back to the corners, so it gives the origin of each
    # pixel.
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
    """Blur a field with a Gaussian that ends at three deviations. The field is mirrored at its
    edge.

    A mirrored field is a sum of cosines, and a blur multiplies each cosine by a factor. So this
    function uses cosine transforms, which make wide blurs fast.
    """
    import scipy.fft

    fft: Any = scipy.fft  # older releases of scipy annotate tuples

    reach = int(3 * deviation + 0.5)
    taps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (taps / max(deviation, 1e-9)) ** 2)
    weights /= weights.sum()
    # The factor of cosine k is the sum of the weights times cos(pi k tap / side). These cosines
    # repeat at twice the side, so a Fourier transform of this length gives all factors.
    factors = [
        fft.rfft(np.bincount(taps % (2 * side), weights, 2 * side)).real[:side]
        for side in field.shape
    ]
    return fft.idctn(fft.dctn(field) * factors[0][:, None] * factors[1])


draw_rotation = draw_colour_cast


def rotation(picture: np.ndarray, degrees: float, sign: np.ndarray) -> np.ndarray:
    """Rotate the picture about its middle. The picture is mirrored at the edge."""
    height, width = picture.shape[:2]
    cosine, sine = (
        function(math.radians(degrees * float(sign))) for function in (math.cos, math.sin)
    )
    rows, columns = np.indices((height, width), np.float64)
    rows = rows - (height - 1) / 2
    columns = columns - (width - 1) / 2
    return warped(
        picture,
        rows * cosine - columns * sine + (height - 1) / 2,
        rows * sine + columns * cosine + (width - 1) / 2,
        "mirror",
    )


def warped(picture: np.ndarray, rows: np.ndarray, columns: np.ndarray, outside: str) -> np.ndarray:
    """Take each pixel of the result from the place in the picture that `rows` and `columns` give.

    The interpolation is linear. For places beyond the edge, `outside` names a mode of scipy.
    """
    from scipy.ndimage import map_coordinates

    origins = np.stack([rows, columns])
    channels = [
        map_coordinates(picture[..., channel], origins, order=1, mode=outside)
        for channel in range(3)
    ]
    return np.stack(channels, axis=2)


def draw_fog(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    """Draw a number from -1 to 1 for each point of the fractal, in the order of use.

    The first point needs no number, because its height is 0.
    """
    return (rng.uniform(-1, 1, _fractal_side(picture) ** 2 - 1),)


def fog(picture: np.ndarray, constants: tuple[float, float], numbers: np.ndarray) -> np.ndarray:
    thickness, decay = constants
    brightest = picture.max()
    return (
        (picture + thickness * _cloud(picture, decay, numbers)[..., None])
        * brightest
        / (brightest + thickness)
    )


def _cloud(picture: np.ndarray, decay: float, numbers: np.ndarray) -> np.ndarray:
    """Return a fractal in the size of the picture. A smaller fractal repeats without a seam."""
    side = _fractal_side(picture)
    rows, columns = (np.arange(length) % side for length in picture.shape[:2])
    return plasma(side, decay, numbers)[np.ix_(rows, columns)]


def _fractal_side(picture: np.ndarray) -> int:
    """Return the side of the square fractal, in pixels.

    As in the published code, the side is the least power of two that covers the picture. Here the
    side is at most 1,024, which bounds memory.
    """
    return min(1024, 2 ** math.ceil(math.log2(max(picture.shape[:2]))))


def plasma(side: int, decay: float, numbers: np.ndarray) -> np.ndarray:
    """Return a fractal of heights from 0 to 1, [side, side], by the diamond-square algorithm on a
    torus.

    Each round sets new points halfway between known points. The height of a new point is the mean
    of its four neighbours plus a random change. From round to round the distance halves, and the
    swing, whose square scales the change, is divided by `decay`.
    """
    heights = np.zeros((side, side))
    step, swing, used = side, 100.0, 0

    def stepped(four: np.ndarray) -> np.ndarray:
        nonlocal used
        used += four.size
        # The published code scales the random change by the square of the swing.
        return four / 4 + swing**2 * numbers[used - four.size : used].reshape(four.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = stepped(pairs + np.roll(pairs, -1, 1))
        middles = heights[half::step, half::step]
        heights[::step, half::step] = stepped(
            middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1)
        )
        heights[half::step, ::step] = stepped(
            middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0)
        )
        step = half
        swing = swing / decay
    heights -= heights.min()
    return heights / heights.max()


def draw_snow(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    """Draw a normal number for each pixel, and the angle in degrees at which the snow falls."""
    return rng.standard_normal(picture.shape[:2]), np.asarray(rng.uniform(-135, -45))


def snow(
    picture: np.ndarray,
    constants: tuple[float, float, float, float, int, float, float],
    normal: np.ndarray,
    angle: np.ndarray,
) -> np.ndarray:
    """Whiten the picture, then add a layer of snowflakes and the same layer rotated by 180 degrees.

    The flakes are normal noise that is enlarged, cut at a threshold, and blurred along the fall.
    """
    mean, deviation, zoom, threshold, radius, sigma, left = constants
    flakes = zoomed(mean + deviation * normal, zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    # The published code blurs a file of the flakes with ImageMagick, so it cuts the flakes to whole
    # levels before and after the blur.
    flakes = np.floor(motion_blur(np.floor(flakes * 255), (radius, sigma), angle)) / 255
    white = np.maximum(picture, luma(picture)[..., None] * 1.5 + 0.5)
    return left * picture + (1 - left) * white + (flakes + np.rot90(flakes, 2))[..., None]


def draw_spatter(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    return (rng.standard_normal(picture.shape[:2]),)


def spatter(
    picture: np.ndarray,
    constants: tuple[float, float, float, float, float, int],
    normal: np.ndarray,
) -> np.ndarray:
    """Put drops of liquid on the picture, where smooth noise is above a threshold.

    The liquid is mud if the last constant is not 0. Otherwise it is water that shines at its edges.
    """
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
    """Return the light on the liquid, levels from 0 to 255, as if a lamp stood at one corner.

    The distance of a pixel to the nearest edge of the liquid acts as a height.
    """
    from scipy.ndimage import correlate, uniform_filter

    far = np.minimum(_distance(~_edges(levels)), 20 * _STEPS[0])
    # The mean of exact integers is cut to whole steps. Sums of floats could round to other levels.
    far = _equalised(
        (correlate(far, np.ones((3, 3), int), mode="mirror") // (9 * _STEPS[0])).astype(np.uint8)
    )
    lit = correlate(
        far.astype(np.float64), np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror"
    )
    return np.rint(uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror"))


def _distance(inside: np.ndarray) -> np.ndarray:
    """Return the distance of each pixel inside to the nearest pixel outside, in ten-thousandths of
    a pixel.

    The distance is the length of the shortest path along sides, diagonals, and knight's moves.
    """
    from scipy.ndimage import distance_transform_edt

    if inside.all():
        return np.full(inside.shape, np.iinfo(np.int64).max)
    # Start with the path to the pixel that is nearest in a straight line. Another pixel rarely has
    # a shorter path, and the loop below finds such paths.
    nearest = np.asarray(
        distance_transform_edt(inside, return_distances=False, return_indices=True)
    )
    down, across = np.abs(nearest - np.indices(inside.shape))
    more = np.maximum(down, across)
    less = np.minimum(down, across)
    knight = np.minimum(less, more - less)
    aslant = np.maximum(2 * less - more, 0)
    way = (more - 2 * knight - aslant) * _STEPS[0] + aslant * _STEPS[1] + knight * _STEPS[2]
    height, width = inside.shape
    while True:
        around = np.pad(way, 2, constant_values=np.iinfo(way.dtype).max // 2)
        shorter = way
        for row, column in np.argwhere(_MOVES):
            step = _MOVES[row, column]
            shorter = np.minimum(
                shorter, around[row : row + height, column : column + width] + step
            )
        if np.array_equal(shorter, way):
            return way
        way = shorter


# `_STEPS` holds OpenCV's lengths of a step along a side, a diagonal, and a knight's move. They are
# integers, in ten-thousandths of a pixel, so sums are exact. `_MOVES` holds the length of the move
# from each of five by five pixels to the middle one. A pixel from which no single move leads to the
# middle has 0.
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
    """Equalise the histogram: return the picture with levels that occur about equally often."""
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if not others:
        return levels
    above = np.cumsum(counts) - counts[lowest]
    return np.rint(np.clip(above * (255 / others), 0, 255)).astype(np.uint8)[levels]


def _edges(levels: np.ndarray) -> np.ndarray:
    """Return the edges that Canny's detector finds with the thresholds 50 and 150, as a bool
    mask."""
    from scipy.ndimage import label, sobel

    across, down = (sobel(levels.astype(np.int32), axis, mode="nearest") for axis in (1, 0))
    steep = np.abs(across) + np.abs(down)
    around = np.pad(steep, 1)

    def beside(rows: int, columns: int) -> np.ndarray:
        height, width = levels.shape
        return around[1 + rows : 1 + rows + height, 1 + columns : 1 + columns + width]

    flat = np.abs(across)
    upright = np.abs(down)
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
    weak = crest & (steep > 50)
    strong = crest & (steep > 150)
    parts, _ = label(weak, np.ones((3, 3)))
    return weak & np.isin(parts, np.unique(parts[strong]))


# `_FEATHERS` is the number of feathers of ice in a square picture, `_BARBS` the number of barbs of
# each feather, and `_DRAWN_SIDE` the least side of the canvas in pixels. `_MOST_DRAWN` bounds the
# pixels of the canvas of a long strip.
_FEATHERS = 150
_BARBS = 40
_DRAWN_SIDE = 256
_MOST_DRAWN = 1 << 28
# Where `frost` skips pixels of the ice, each side of the ice has at least the side of a picture of
# ImageNet.
_SAMPLED_SIDE = 224


def draw_frost(
    rng: np.random.Generator, picture: np.ndarray, constant: Constant
) -> tuple[np.ndarray, ...]:
    """Draw six numbers for each feather and three for each of its barbs, from 0 to 1, then the
    numbers of the haze.

    The haze is a fractal, whose numbers are drawn as for `fog`.
    """
    assert isinstance(constant, tuple)
    pane = _pane(picture, int(constant[2]))
    height, width = pane.shape[:2]
    # A long strip would need millions of feathers, so the number is bounded and its ice is thinner.
    feathers = math.ceil(_FEATHERS * min(16.0, max(height, width) / min(height, width)))
    return (
        rng.random((feathers, 6)),
        rng.random((feathers, _BARBS, 3)),
        *draw_fog(rng, pane, constant),
    )


def frost(
    picture: np.ndarray,
    constants: tuple[float, float, int],
    feathers: np.ndarray,
    barbs: np.ndarray,
    numbers: np.ndarray,
) -> np.ndarray:
    """Darken the picture and add ice: feathers on a frozen haze.

    The ice has the mean and the spread of the photographs of ice in the published code.
    """
    left, share, step = constants
    pane = _pane(picture, step)
    height, width = pane.shape[:2]
    haze = _cloud(pane, 2.0, numbers)
    ice = 0.4 + 0.36 * haze + 0.75 * _feathers(height, width, feathers, barbs) * (0.3 + 0.7 * haze)
    taken = ice[step // 2 :: step, step // 2 :: step][: picture.shape[0], : picture.shape[1]]
    return left * picture + share * np.clip(taken[..., None] * np.array([0.9, 1.0, 1.07]), 0, 1)


def _pane(picture: np.ndarray, step: int) -> np.ndarray:
    """Return an array in the size of the ice, from which `frost` takes every `step`-th pixel.

    The array is a broadcast zero, so it takes no memory.
    """
    least = 1 if step == 1 else _SAMPLED_SIDE
    height, width = (max(least, step * length) for length in picture.shape[:2])
    return np.broadcast_to(np.float64(0), (height, width))


def _feathers(height: int, width: int, feathers: np.ndarray, barbs: np.ndarray) -> np.ndarray:
    """Draw feathers of ice, levels from 0 to 1, [height, width].

    Each feather is a bent rib with barbs on both sides. The barbs shorten towards the tip of the
    rib.
    """
    side = min(height, width)
    # The canvas is finer than the picture, but a strip must not make it too large.
    finer = min(
        max(2, math.ceil(_DRAWN_SIDE / side)), max(1, math.isqrt(_MOST_DRAWN // (height * width)))
    )
    row, column, turn, size, slimness, light = (part[:, None] for part in feathers.T)
    length = side * finer * (0.08 + 0.4 * size**2)
    along = (np.arange(_BARBS) + barbs[..., 0]) / _BARBS
    angle = 2 * math.pi * turn + (slimness - 0.5) * along
    steps = np.diff(along, axis=1, prepend=0) * length
    x = column * width * finer + np.cumsum(steps * np.cos(angle), axis=1)
    y = row * height * finer + np.cumsum(steps * np.sin(angle), axis=1)
    aside = np.where(np.arange(_BARBS) % 2, 1, -1) * (0.7 + 0.4 * barbs[..., 1])
    reach = length * (0.12 + 0.25 * slimness) * (1 - along) ** 0.8 * (0.3 + 0.7 * barbs[..., 2])
    ends = np.stack(
        [x, y, x + reach * np.cos(angle + aside), y + reach * np.sin(angle + aside)], axis=2
    )
    canvas = Image.new("L", (width * finer, height * finer))
    pen = ImageDraw.Draw(canvas)
    thin = max(1, round(side * finer / 400))
    for lines, bright in zip(
        ends, np.rint(255 * (0.35 + 0.65 * light[:, 0])).astype(int).tolist(), strict=True
    ):
        for line in lines.tolist():
            pen.line(line, fill=round(bright * 0.8), width=thin)
        pen.line(lines[:, :2].ravel().tolist(), fill=bright, width=thin)
    return np.asarray(canvas.reduce(finer), np.uint8) / 255.0
