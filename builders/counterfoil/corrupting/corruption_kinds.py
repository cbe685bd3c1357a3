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

from counterfoil.arrays import Array

Constant = float | tuple[float, ...]
Random = np.random.Generator
Arrays = tuple[Array, ...]


def luma(picture: Array) -> Array:
    """Return the grey levels [height, width] of a picture, with the weights that JPEG and Pillow
    use.

    The order of additions in a matrix product depends on the processor, and another order rounds
    some levels differently. So this function adds the channels one by one.
    """
    return picture[..., 0] * 0.299 + picture[..., 1] * 0.587 + picture[..., 2] * 0.114


def draw_gaussian_noise(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return (rng.standard_normal(picture.shape),)


def gaussian_noise(picture: Array, deviation: float, normal: Array) -> Array:
    return picture + deviation * normal


def draw_shot_noise(rng: Random, picture: Array, full: float) -> Arrays:
    """Draw the number of photons in each pixel. A white pixel has `full` photons on average."""
    return (rng.poisson(picture * full),)


def shot_noise(picture: Array, full: float, photons: Array) -> Array:
    return photons / full


def draw_impulse_noise(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return rng.random(picture.shape), rng.random(picture.shape)


def impulse_noise(
    picture: Array,
    share: float,
    struck: Array,
    salt: Array,
) -> Array:
    level = np.where(salt <= 0.5, 1.0, 0.0)
    return np.where(struck <= share, level, picture)


draw_speckle_noise = draw_gaussian_noise


def speckle_noise(picture: Array, deviation: float, normal: Array) -> Array:
    return picture + picture * deviation * normal


def draw_colour_cast(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return (np.asarray(rng.integers(2) * 2 - 1),)


def brightness(picture: Array, more: float) -> Array:
    """Raise the value in HSV, and keep the ratios between the channels."""
    value = picture.max(axis=2, keepdims=True)
    brighter = np.minimum(value + more, 1)
    is_lit = value > 0
    factor = brighter / np.where(is_lit, value, 1)
    return np.where(is_lit, picture * factor, brighter)


def saturate(picture: Array, factor_and_more: tuple[float, float]) -> Array:
    """Change the saturation in HSV. A grey pixel has hue 0, so it turns red."""
    factor, more = factor_and_more
    value = picture.max(axis=2, keepdims=True)
    below = value - picture
    saturation = below.max(axis=2, keepdims=True) / np.where(value > 0, value, 1)
    changed = np.clip(saturation * factor + more, 0, 1)
    # How far each channel is below the value in the pure colour.
    is_coloured = saturation > 0
    pure = below / np.where(is_coloured, saturation, 1)
    red = value * np.array([0.0, 1.0, 1.0])
    return value - changed * np.where(is_coloured, pure, red)


def contrast(picture: Array, left: float) -> Array:
    means = picture.mean(axis=(0, 1), keepdims=True)
    return (picture - means) * left + means


def jpeg_compression(picture: Array, quality: int) -> Array:
    file = io.BytesIO()
    _image(picture).save(file, "JPEG", quality=quality)
    return _picture(Image.open(file))


def darker(picture: Array, stops: float) -> Array:
    return _encoded(_light(picture) * 2.0**-stops)


def colour_cast(picture: Array, stops: float, sign: Array) -> Array:
    """Scale the red channel up and the blue channel down, or the reverse if `sign` is -1.

    The gains of the two channels differ by `stops` stops. A white pixel keeps its luminance.
    """
    gains = 2.0 ** (np.array([0.5, 0.0, -0.5]) * stops * sign)
    red, green, blue = gains
    luminance = red * 0.2126 + green * 0.7152 + blue * 0.0722
    return _encoded(_light(picture) * (gains / luminance))


def greyscale(picture: Array, share: float) -> Array:
    return picture + share * (luma(picture)[..., None] - picture)


def draw_occlusion(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return (rng.random(2),)


def occlusion(picture: Array, share: float, position: Array) -> Array:
    """Cover a share of the picture with a grey rectangle.

    The rectangle has the aspect ratio of the picture and lies inside the picture.
    """
    sides = np.array(picture.shape[:2])
    covered = np.maximum(np.rint(sides * share**0.5).astype(int), 1)
    start = np.floor(position * (sides - covered + 1)).astype(int)
    rows, columns = map(slice, start, start + covered)
    occluded = picture.copy()
    occluded[rows, columns] = 0.5
    return occluded


def _light(picture: Array) -> Array:
    dark = picture / 12.92
    bright = ((picture + 0.055) / 1.055) ** 2.4
    return np.where(picture <= 0.04045, dark, bright)


def _encoded(light: Array) -> Array:
    light = np.clip(light, 0, 1)
    dark = light * 12.92
    bright = 1.055 * light ** (1 / 2.4) - 0.055
    return np.where(light <= 0.0031308, dark, bright)


def resized_and_back(picture: Array, share: float, resampling: Image.Resampling) -> Array:
    image = _image(picture)
    sides = [max(1, int(side * share)) for side in image.size]
    small = image.resize(sides, resampling)
    return _picture(small.resize(image.size, resampling))


def pixelate(picture: Array, share: float) -> Array:
    return resized_and_back(picture, share, Image.Resampling.BOX)


def low_resolution(picture: Array, share: float) -> Array:
    return resized_and_back(picture, share, Image.Resampling.BICUBIC)


def _image(picture: Array) -> Image.Image:
    return Image.fromarray(np.rint(picture * 255).astype(np.uint8))


def _picture(image: Image.Image) -> Array:
    return np.asarray(image, np.uint8) / 255.0


def gaussian_blur(picture: Array, deviation: float) -> Array:
    """Blur a picture with a Gaussian. Beyond the edge, the edge pixels repeat."""
    from scipy.ndimage import gaussian_filter

    channels = [0] * (picture.ndim - 2)
    return gaussian_filter(picture, (deviation, deviation, *channels), mode="nearest")


def defocus_blur(picture: Array, disk: tuple[float, float]) -> Array:
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
    factors = fft.rfft2(kernel, sides)[..., None]
    product = fft.rfft2(around, sides, axes=(0, 1)) * factors
    blurred = fft.irfft2(product, sides, axes=(0, 1))
    height, width = picture.shape[:2]
    begin = 2 * reach
    return blurred[begin : begin + height, begin : begin + width]


def disk_kernel(radius: float, deviation: float) -> Array:
    from scipy.ndimage import correlate1d

    reach = max(8, int(radius))
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    softening = np.exp(-(taps**2) / (2 * deviation**2))
    softening /= softening.sum()
    for axis in (0, 1):
        disk = correlate1d(disk, softening, axis, mode="mirror")
    return disk


def draw_glass_blur(rng: Random, picture: Array, constants: tuple[float, int, int]) -> Arrays:
    """Draw an offset (right, down) to a neighbour for each pixel that is far enough from the edge.

    The offsets of the last row come first, and within a row the offset of the last column comes
    first.
    """
    _, reach, rounds = constants
    rows, columns = (max(0, side - 2 * reach) for side in picture.shape[:2])
    return (rng.integers(-reach, reach, (rounds, rows, columns, 2)),)


def glass_blur(
    picture: Array,
    constants: tuple[float, int, int],
    swaps: Array,
) -> Array:
    """Blur the picture, move colours between neighbours, and blur again.

    One pixel after another takes the colour that its drawn neighbour has at that moment.
    """
    deviation, reach, _ = constants
    # The published code also cuts colours off to whole levels here.
    levels = (gaussian_blur(picture, deviation) * 255).astype(np.uint8).reshape(-1, 3)
    height, width = picture.shape[:2]
    pixels = np.arange(height * width)
    visited = np.zeros((height, width), bool)
    inner = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    visited[inner] = True
    for offsets in swaps:
        right = offsets[..., 0]
        down = offsets[..., 1]
        steps = np.zeros((height, width), int)
        steps[inner] = (down * width + right)[::-1, ::-1]
        neighbour = pixels + steps.ravel()
        # Pixels are visited from the last to the first. A neighbour with a larger index has already
        # taken another colour, so follow the chain of neighbours to the pixel from which that
        # colour came.
        has_moved = (neighbour > pixels) & visited.ravel()[neighbour]
        behind = np.where(has_moved, neighbour, pixels)
        while True:
            further = behind[behind]
            if np.array_equal(further, behind):
                break
            behind = further
        levels = levels[neighbour[behind]]
    return gaussian_blur(levels.reshape(height, width, 3) / 255.0, deviation)


def draw_motion_blur(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return (np.asarray(rng.uniform(-45, 45)),)  # degrees from the horizontal


def motion_blur(picture: Array, path: tuple[int, float], angle: Array) -> Array:
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
    weight_of: dict[tuple[int, int], float] = {}
    for step, weight in zip(steps, weights, strict=True):
        down = math.ceil(step * math.sin(turn) - 0.5)
        across = math.ceil(step * math.cos(turn) - 0.5)
        weight_of[down, across] = weight_of.get((down, across), 0.0) + float(weight)
    # The line is at most so long in each of the four directions.
    reach = len(steps)
    channels = [(0, 0)] * (picture.ndim - 2)
    around = np.pad(picture, ((reach, reach), (reach, reach), *channels), "edge")
    height, width = picture.shape[:2]
    mean = np.zeros_like(picture)
    for (down, across), weight in weight_of.items():
        top = reach + down
        left = reach + across
        mean += weight * around[top : top + height, left : left + width]
    return mean


def zoom_blur(picture: Array, stop_and_step: tuple[float, float]) -> Array:
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


def zoomed(picture: Array, factor: float) -> Array:
    """Enlarge the middle of a picture, [height, width, …], with linear interpolation."""
    for axis in (0, 1):
        side = picture.shape[axis]
        # The middle has `cut` pixels. Enlarged, it has `whole`, of which `side` are kept.
        cut = math.ceil(side / factor)
        whole = round(cut * factor)
        step = (cut - 1) / max(1, whole - 1)
        positions = (np.arange(side) + (whole - side) // 2) * step
        before = np.minimum(positions.astype(int), cut - 1)
        after = np.minimum(before + 1, cut - 1)
        further_axes = [1] * (picture.ndim - axis - 1)
        part = (positions - before).astype(picture.dtype).reshape(-1, *further_axes)
        first = (side - cut) // 2
        low = picture.take(first + before, axis)
        high = picture.take(first + after, axis)
        picture = low + part * (high - low)
    return picture


def draw_elastic_transform(rng: Random, picture: Array, constant: Constant) -> Arrays:
    """Draw numbers from -1 to 1: the moves (x, y) of three corners, then one field of shifts across
    and one down."""
    sides = picture.shape[:2]
    corners = rng.uniform(-1, 1, (3, 2))
    across = rng.uniform(-1, 1, sides)
    down = rng.uniform(-1, 1, sides)
    return corners, across, down


def elastic_transform(
    picture: Array,
    constants: tuple[float, float, float, int],
    corners: Array,
    across: Array,
    down: Array,
) -> Array:
    """Apply a random affine map, then shift every pixel by smooth random fields.

    The affine map moves three corners of a square in the middle of the picture. The picture is
    mirrored at the edge.

    The four constants are the strength of the fields, their smoothness, the largest move of a
    corner, and the side in pixels of the pictures for which the first three constants hold. A
    picture with another shorter side gets scaled constants, so it is bent into the same form.
    """
    height, width = picture.shape[:2]
    strength, smoothness, far, side = constants
    scale = min(height, width) / side
    strength = strength * scale**2
    smoothness = smoothness * scale
    far = far * scale
    middle = np.array([width // 2, height // 2], np.float64)
    square = min(height, width) // 3
    before = middle + square * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + far * corners
    # This affine map takes the moved corners back to the corners, so it gives the origin of each
    # pixel.
    back = np.linalg.pinv(np.column_stack([after, np.ones(3)])) @ before
    rows, columns = np.indices((height, width), np.float64)
    from_rows = columns * back[0, 1] + rows * back[1, 1] + back[2, 1]
    from_columns = columns * back[0, 0] + rows * back[1, 0] + back[2, 0]
    picture = warped(picture, from_rows, from_columns, "mirror")
    if not strength:
        return picture
    from_rows = rows + strength * smooth(down, smoothness)
    from_columns = columns + strength * smooth(across, smoothness)
    return warped(picture, from_rows, from_columns, "reflect")


def smooth(field: Array, deviation: float) -> Array:
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
    factors = []
    for side in field.shape:
        wrapped = np.bincount(taps % (2 * side), weights, 2 * side)
        factors.append(fft.rfft(wrapped).real[:side])
    of_rows, of_columns = factors
    return fft.idctn(fft.dctn(field) * of_rows[:, None] * of_columns)


draw_rotation = draw_colour_cast


def rotation(picture: Array, degrees: float, sign: Array) -> Array:
    """Rotate the picture about its middle. The picture is mirrored at the edge."""
    height, width = picture.shape[:2]
    angle = math.radians(degrees * float(sign))
    cosine = math.cos(angle)
    sine = math.sin(angle)
    middle_row = (height - 1) / 2
    middle_column = (width - 1) / 2
    rows, columns = np.indices((height, width), np.float64)
    rows = rows - middle_row
    columns = columns - middle_column
    from_rows = rows * cosine - columns * sine + middle_row
    from_columns = rows * sine + columns * cosine + middle_column
    return warped(picture, from_rows, from_columns, "mirror")


def warped(picture: Array, rows: Array, columns: Array, outside: str) -> Array:
    """Take each pixel of the result from the place in the picture that `rows` and `columns` give.

    The interpolation is linear. For places beyond the edge, `outside` names a mode of scipy.
    """
    from scipy.ndimage import map_coordinates

    origins = np.stack([rows, columns])
    channels = []
    for channel in range(3):
        levels = picture[..., channel]
        channels.append(map_coordinates(levels, origins, order=1, mode=outside))
    return np.stack(channels, axis=2)


def draw_fog(rng: Random, picture: Array, constant: Constant) -> Arrays:
    """Draw a number from -1 to 1 for each point of the fractal, in the order of use.

    The first point needs no number, because its height is 0.
    """
    return (rng.uniform(-1, 1, _fractal_side(picture) ** 2 - 1),)


def fog(picture: Array, constants: tuple[float, float], numbers: Array) -> Array:
    thickness, decay = constants
    brightest = picture.max()
    cloud = _cloud(picture, decay, numbers)[..., None]
    foggy = picture + thickness * cloud
    return foggy * brightest / (brightest + thickness)


def _cloud(picture: Array, decay: float, numbers: Array) -> Array:
    """Return a fractal in the size of the picture. A smaller fractal repeats without a seam."""
    side = _fractal_side(picture)
    height, width = picture.shape[:2]
    rows = np.arange(height) % side
    columns = np.arange(width) % side
    return plasma(side, decay, numbers)[np.ix_(rows, columns)]


def _fractal_side(picture: Array) -> int:
    """Return the side of the square fractal, in pixels.

    As in the published code, the side is the least power of two that covers the picture. Here the
    side is at most 1,024, which bounds memory.
    """
    longest = max(picture.shape[:2])
    return min(1024, 2 ** math.ceil(math.log2(longest)))


def plasma(side: int, decay: float, numbers: Array) -> Array:
    """Return a fractal of heights from 0 to 1, [side, side], by the diamond-square algorithm on a
    torus.

    Each round sets new points halfway between known points. The height of a new point is the mean
    of its four neighbours plus a random change. From round to round the distance halves, and the
    swing, whose square scales the change, is divided by `decay`.
    """
    heights = np.zeros((side, side))
    step = side
    swing = 100.0
    used = 0

    def stepped(four: Array) -> Array:
        nonlocal used
        random = numbers[used : used + four.size].reshape(four.shape)
        used += four.size
        # The published code scales the random change by the square of the swing.
        return four / 4 + swing**2 * random

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = stepped(pairs + np.roll(pairs, -1, 1))
        middles = heights[half::step, half::step]
        across = middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1)
        heights[::step, half::step] = stepped(across)
        down = middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0)
        heights[half::step, ::step] = stepped(down)
        step = half
        swing = swing / decay
    heights -= heights.min()
    return heights / heights.max()


def draw_snow(rng: Random, picture: Array, constant: Constant) -> Arrays:
    """Draw a normal number for each pixel, and the angle in degrees at which the snow falls."""
    normal = rng.standard_normal(picture.shape[:2])
    return normal, np.asarray(rng.uniform(-135, -45))


def snow(
    picture: Array,
    constants: tuple[float, float, float, float, int, float, float],
    normal: Array,
    angle: Array,
) -> Array:
    """Whiten the picture, then add a layer of snowflakes and the same layer rotated by 180 degrees.

    The flakes are normal noise that is enlarged, cut at a threshold, and blurred along the fall.
    """
    mean, deviation, zoom, threshold, radius, sigma, left = constants
    flakes = zoomed(mean + deviation * normal, zoom)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    # The published code blurs a file of the flakes with ImageMagick, so it cuts the flakes to whole
    # levels before and after the blur.
    blurred = motion_blur(np.floor(flakes * 255), (radius, sigma), angle)
    flakes = np.floor(blurred) / 255
    both_ways = flakes + np.rot90(flakes, 2)
    white = np.maximum(picture, luma(picture)[..., None] * 1.5 + 0.5)
    return left * picture + (1 - left) * white + both_ways[..., None]


def draw_spatter(rng: Random, picture: Array, constant: Constant) -> Arrays:
    return (rng.standard_normal(picture.shape[:2]),)


def spatter(
    picture: Array,
    constants: tuple[float, float, float, float, float, int],
    normal: Array,
) -> Array:
    """Put drops of liquid on the picture, where smooth noise is above a threshold.

    The liquid is mud if the last constant is not 0. Otherwise it is water that shines at its edges.
    """
    mean, deviation, smoothness, threshold, strength, mud = constants
    liquid = gaussian_blur(mean + deviation * normal, smoothness)
    if mud:
        drops = (liquid > threshold).astype(np.float64)
        covered = gaussian_blur(drops, strength)
        covered = np.where(covered < 0.8, 0, covered)[..., None]
        return picture * (1 - covered) + covered * np.array([63, 42, 20]) / 255
    drops = np.where(liquid < threshold, 0, liquid)
    levels = np.clip(drops * 255, 0, 255).astype(np.uint8)
    shine = levels * _relief(levels)
    shine *= strength / max(shine.max(), 1e-9)
    return picture + shine[..., None] * np.array([175, 238, 238]) / 255


def _relief(levels: Array) -> Array:
    """Return the light on the liquid, levels from 0 to 255, as if a lamp stood at one corner.

    The distance of a pixel to the nearest edge of the liquid acts as a height.
    """
    from scipy.ndimage import correlate, uniform_filter

    side = _STEPS[0]
    distance = np.minimum(_distance(~_edges(levels)), 20 * side)
    # The mean of exact integers is cut to whole steps. Sums of floats could round to other levels.
    total = correlate(distance, np.ones((3, 3), int), mode="mirror")
    far = _equalised((total // (9 * side)).astype(np.uint8))
    lamp = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    lit = correlate(far.astype(np.float64), lamp, mode="mirror")
    return np.rint(uniform_filter(np.clip(lit, 0, 255), 3, mode="mirror"))


def _distance(inside: Array) -> Array:
    """Return the distance of each pixel inside to the nearest pixel outside, in ten-thousandths of
    a pixel.

    The distance is the length of the shortest path along sides, diagonals, and knight's moves.
    """
    from scipy.ndimage import distance_transform_edt

    if inside.all():
        return np.full(inside.shape, np.iinfo(np.int64).max)
    # Start with the path to the pixel that is nearest in a straight line. Another pixel rarely has
    # a shorter path, and the loop below finds such paths.
    nearest = distance_transform_edt(inside, return_distances=False, return_indices=True)
    down, across = np.abs(np.asarray(nearest) - np.indices(inside.shape))
    more = np.maximum(down, across)
    less = np.minimum(down, across)
    knights = np.minimum(less, more - less)
    diagonals = np.maximum(2 * less - more, 0)
    sides = more - 2 * knights - diagonals
    side, diagonal, knight = _STEPS
    way = sides * side + diagonals * diagonal + knights * knight
    height, width = inside.shape
    while True:
        around = np.pad(way, 2, constant_values=np.iinfo(way.dtype).max // 2)
        shorter = way
        for row, column in np.argwhere(_MOVES):
            start = around[row : row + height, column : column + width]
            shorter = np.minimum(shorter, start + _MOVES[row, column])
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


def _equalised(levels: Array) -> Array:
    """Equalise the histogram: return the picture with levels that occur about equally often."""
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if not others:
        return levels
    above = np.cumsum(counts) - counts[lowest]
    equalised = np.clip(above * (255 / others), 0, 255)
    return np.rint(equalised).astype(np.uint8)[levels]


def _edges(levels: Array) -> Array:
    """Return the edges that Canny's detector finds with the thresholds 50 and 150, as a bool
    mask."""
    from scipy.ndimage import label, sobel

    numbers = levels.astype(np.int32)
    across = sobel(numbers, 1, mode="nearest")
    down = sobel(numbers, 0, mode="nearest")
    flat = np.abs(across)
    upright = np.abs(down)
    steep = flat + upright
    around = np.pad(steep, 1)
    height, width = levels.shape

    def beside(rows: int, columns: int) -> Array:
        top = 1 + rows
        left = 1 + columns
        return around[top : top + height, left : left + width]

    tangent = math.tan(math.pi / 8)
    sideways = upright < flat * tangent
    upwards = upright > flat * (tangent + 2)
    one_way = (across < 0) == (down < 0)
    over_columns = (steep > beside(0, -1)) & (steep >= beside(0, 1))
    over_rows = (steep > beside(-1, 0)) & (steep >= beside(1, 0))
    over_diagonal = (steep > beside(-1, -1)) & (steep > beside(1, 1))
    over_other = (steep > beside(-1, 1)) & (steep > beside(1, -1))
    crest = np.select(
        [sideways, upwards, one_way],
        [over_columns, over_rows, over_diagonal],
        over_other,
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


def draw_frost(rng: Random, picture: Array, constant: Constant) -> Arrays:
    """Draw six numbers for each feather and three for each of its barbs, from 0 to 1, then the
    numbers of the haze.

    The haze is a fractal, whose numbers are drawn as for `fog`.
    """
    assert isinstance(constant, tuple)
    pane = _pane(picture, int(constant[2]))
    # A long strip would need millions of feathers, so the number is bounded and its ice is thinner.
    aspect = min(16.0, max(pane.shape) / min(pane.shape))
    count = math.ceil(_FEATHERS * aspect)
    feathers = rng.random((count, 6))
    barbs = rng.random((count, _BARBS, 3))
    return feathers, barbs, *draw_fog(rng, pane, constant)


def frost(
    picture: Array,
    constants: tuple[float, float, int],
    feathers: Array,
    barbs: Array,
    numbers: Array,
) -> Array:
    """Darken the picture and add ice: feathers on a frozen haze.

    The ice has the mean and the spread of the photographs of ice in the published code.
    """
    left, share, step = constants
    pane = _pane(picture, step)
    haze = _cloud(pane, 2.0, numbers)
    drawn = _feathers(pane, feathers, barbs)
    ice = 0.4 + 0.36 * haze + 0.75 * drawn * (0.3 + 0.7 * haze)
    sampled = ice[step // 2 :: step, step // 2 :: step]
    height, width = picture.shape[:2]
    taken = sampled[:height, :width]
    coloured = taken[..., None] * np.array([0.9, 1.0, 1.07])
    return left * picture + share * np.clip(coloured, 0, 1)


def _pane(picture: Array, step: int) -> Array:
    """Return an array in the size of the ice, from which `frost` takes every `step`-th pixel.

    The array is a broadcast zero, so it takes no memory.
    """
    least = 1 if step == 1 else _SAMPLED_SIDE
    sides = [max(least, step * length) for length in picture.shape[:2]]
    return np.broadcast_to(np.float64(0), sides)


def _feathers(pane: Array, feathers: Array, barbs: Array) -> Array:
    """Draw feathers of ice, levels from 0 to 1, in the size of the pane.

    Each feather is a bent rib with barbs on both sides. The barbs shorten towards the tip of the
    rib.
    """
    height, width = pane.shape
    side = min(height, width)
    # The canvas is finer than the picture, but a strip must not make it too large.
    wanted = max(2, math.ceil(_DRAWN_SIDE / side))
    most = max(1, math.isqrt(_MOST_DRAWN // (height * width)))
    finer = min(wanted, most)
    row, column, turn, size, slimness, light = feathers.T[..., None]
    jitter, spread, strength = np.moveaxis(barbs, 2, 0)
    # The rib, from the root of one barb to that of the next.
    length = side * finer * (0.08 + 0.4 * size**2)
    number = np.arange(_BARBS)
    along = (number + jitter) / _BARBS
    angle = 2 * math.pi * turn + (slimness - 0.5) * along
    steps = np.diff(along, axis=1, prepend=0) * length
    x = column * width * finer + np.cumsum(steps * np.cos(angle), axis=1)
    y = row * height * finer + np.cumsum(steps * np.sin(angle), axis=1)
    # The barbs, in turn on either side of the rib.
    aside = angle + np.where(number % 2, 1, -1) * (0.7 + 0.4 * spread)
    reach = length * (0.12 + 0.25 * slimness) * (1 - along) ** 0.8 * (0.3 + 0.7 * strength)
    end_x = x + reach * np.cos(aside)
    end_y = y + reach * np.sin(aside)
    ends = np.stack([x, y, end_x, end_y], axis=2)
    canvas = Image.new("L", (width * finer, height * finer))
    pen = ImageDraw.Draw(canvas)
    thin = max(1, round(side * finer / 400))
    levels = np.rint(255 * (0.35 + 0.65 * light[:, 0])).astype(int)
    for lines, bright in zip(ends, levels.tolist(), strict=True):
        for line in lines.tolist():
            pen.line(line, fill=round(bright * 0.8), width=thin)
        rib = lines[:, :2]
        pen.line(rib.ravel().tolist(), fill=bright, width=thin)
    return np.asarray(canvas.reduce(finer), np.uint8) / 255.0
