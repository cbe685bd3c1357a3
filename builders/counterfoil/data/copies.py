"""Find the images of one set that are copies of images of another one: exact, and near.

An exact copy has the same file or the same pixels. A near copy was encoded again, resized, cropped
a little, mirrored, or changed in brightness or colour. Near copies are searched by a perceptual hash
of 64 bits (pHash: which of the 8 × 8 lowest frequencies of a cosine transform are above their
median; Zauner 2010). Each candidate is then confirmed: one picture is moved and zoomed onto the
other (Lucas and Kanade 1981), and the fine detail of both must correlate. Low frequencies do not
count there, because different photographs on plain backgrounds share them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.progress import report_progress
from counterfoil.store.decoding import UnreadableImage, load_image, open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from counterfoil.arrays import Bools, Floats32, Ints

_DIGEST = 16  # bytes of a sha256
SIDE = 32  # pixels of the small pictures that are compared
# An image as it is compared: the start of the sha256 of its file and of its pixels, and a small grey
# picture. The pixels of an image that cannot be read are zeros.
FINGERPRINT = np.dtype(
    [("file", f"V{_DIGEST}"), ("pixels", f"V{_DIGEST}"), ("grey", "u1", (SIDE, SIDE))]
)
# A JPEG with longer sides is decoded at a half, a quarter or an eighth of its size, which takes a
# fraction of the time.
_LONGEST_DECODED = 1024
# The largest distance of two hashes, in bits, of a candidate. All of these were chosen by
# `scripts/prove_copies.py --settings`, on other images than its tables are of.
RADIUS = 18
# The lowest correlation of the frequencies of two hashes, of a candidate.
_LEAST_ROUGHLY_ALIKE = 0.75
# The lowest correlation of fine detail of a near copy.
LEAST_ALIKE = 0.9
# Above it, a pair is a near copy however many images look alike.
SURELY_ALIKE = 0.985
# Otherwise the rest of the correlation is at most this part of that of the third most similar other
# pair of one of both images: two images may have two more copies.
PART_OF_RIVALS = 0.3
_RIVAL = 2
# A picture whose fine detail has a lower standard deviation, in grey levels of 255, has no near
# copies: every plain picture resembles every other.
LEAST_DETAIL = 2.0
# If more pairs are candidates, the radius shrinks: the images look alike, and near copies must then
# have nearer hashes. It bounds the time to about half a minute.
MOST_CANDIDATES = 10_000
_MOST_PARTNERS = 20  # exact copies of an image that are listed
_LOW = 8  # frequencies a direction
_BITS = _LOW * _LOW
_TESTED_AT_ONCE = 256
_TRAIN_AT_ONCE = 8192
_PAIRS_AT_ONCE = 256
_STEPS = 6
# Limits of the alignment: zoom, and translations in pixels of `SIDE`.
_LONGEST_STEP = (0.05, 1.5, 1.5)
_FURTHEST = (0.15, 3.5, 3.5)
_BLUR = 0.7  # standard deviations in pixels of `SIDE`
_COARSE = 2.0


@dataclass(frozen=True, slots=True)
class Copies:
    """Pairs of copies, arrays of one length: exact ones first, then from the most alike on."""

    tested: Ints
    """The image of the first set."""
    train: Ints
    """The image of the second set."""
    exact: Bools
    """Whether files or pixels are the same."""
    mirrored: Bools
    """Whether one is the mirror image of the other."""
    alike: Floats32
    """The correlation of fine detail; 1 if exact."""
    radius: int
    """The distance of hashes up to which pairs were compared."""


def file_digest(encoded: bytes) -> bytes:
    return hashlib.sha256(encoded).digest()[:_DIGEST]


def fingerprint(encoded: bytes) -> NDArray[Any]:
    """Return the fingerprint of an encoded image, an array of one `FINGERPRINT`. One that cannot be
    read has its file alone."""
    from PIL import Image

    made = np.zeros(1, FINGERPRINT)
    made["file"] = np.void(file_digest(encoded))
    try:
        with open_image(encoded, photograph=True) as picture:
            size = picture.size
            if max(size) > _LONGEST_DECODED:
                picture.draft("RGB", (_LONGEST_DECODED // 2, _LONGEST_DECODED // 2))
            decoded = load_image(picture).convert("RGB")
    except (UnreadableImage, OSError, ValueError, MemoryError):
        return made
    pixels = hashlib.sha256(f"{size} {decoded.size} ".encode())
    pixels.update(decoded.tobytes())
    small = decoded.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    made["pixels"] = np.void(pixels.digest()[:_DIGEST])
    made["grey"] = np.asarray(small)
    return made


def low_frequencies(grey: NDArray[np.uint8], *, mirrored: bool = False) -> Floats32:
    """Return the low frequencies of small pictures, or of their mirror images, [n, 64]."""
    from scipy.fft import dctn

    low = dctn(grey.astype(np.float32), axes=(1, 2), norm="ortho")[:, :_LOW, :_LOW]
    if mirrored:
        # A mirror image has the odd frequencies across with the other sign.
        low[:, :, 1::2] *= -1
    return low.reshape(len(low), _BITS)


def perceptual_hashes(frequencies: Floats32) -> Floats32:
    """Return the pHash of low frequencies, each bit as 1 or -1, [n, 64]."""
    above = frequencies > np.median(frequencies, axis=1, keepdims=True)
    return np.where(above, np.float32(1), np.float32(-1))


def find_copies(tested: NDArray[Any], train: NDArray[Any] | None = None) -> Copies:
    """Return the pairs of copies of two arrays of `FINGERPRINT`, or of one with itself, each pair
    once. The order of the two does not matter."""
    within = train is None
    train = tested if train is None else train
    exact = _exact_pairs(tested, train, within=within)
    rows, columns, mirrored, radius = candidates(tested["grey"], train["grey"], within=within)
    known = np.isin(rows * len(train) + columns, exact[:, 0] * len(train) + exact[:, 1])
    rows, columns, mirrored = rows[~known], columns[~known], mirrored[~known]
    alike = correlations(tested["grey"], train["grey"], rows, columns, mirrored)
    near = _stands_out(rows, columns, alike, within=within)
    order = np.lexsort((columns[near], rows[near], -alike[near]))
    count = len(exact)
    return Copies(
        tested=np.concatenate([exact[:, 0], rows[near][order]]),
        train=np.concatenate([exact[:, 1], columns[near][order]]),
        exact=np.arange(count + len(order)) < count,
        mirrored=np.concatenate([np.zeros(count, bool), mirrored[near][order]]),
        alike=np.concatenate([np.ones(count, np.float32), alike[near][order]]),
        radius=radius,
    )


def _exact_pairs(tested: NDArray[Any], train: NDArray[Any], *, within: bool) -> Ints:
    """Return pairs with the same file or pixels, [pairs, 2], ascending."""
    pairs: set[tuple[int, int]] = set()
    for name in ("file", "pixels"):
        nothing = bytes(_DIGEST)
        rows_of: dict[bytes, list[int]] = {}
        for row, digest in enumerate(train[name].tolist()):
            if digest != nothing:
                rows_of.setdefault(digest, []).append(row)
        for row, digest in enumerate(tested[name].tolist()):
            partners = rows_of.get(digest, [])
            if within:
                partners = [partner for partner in partners if partner > row]
            pairs.update((row, partner) for partner in partners[:_MOST_PARTNERS])
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def candidates(
    tested: NDArray[np.uint8], train: NDArray[np.uint8], *, within: bool
) -> tuple[Ints, Ints, Bools, int]:
    """Return the pairs that are roughly alike, which of them are so if one is mirrored, and the
    largest distance of hashes: `RADIUS`, or the largest with at most `MOST_CANDIDATES` pairs."""
    tested_rows = np.flatnonzero(_detailed(tested))
    train_rows = np.flatnonzero(_detailed(train))
    of_tested = low_frequencies(tested[tested_rows])
    of_train = [low_frequencies(train[train_rows], mirrored=turned) for turned in (False, True)]
    hashes = perceptual_hashes(of_tested)
    train_hashes = [perceptual_hashes(frequencies) for frequencies in of_train]
    found = np.zeros((0, 4), np.int64)
    radius = RADIUS
    for start in range(0, len(hashes), _TESTED_AT_ONCE):
        report_progress("comparing images", start, len(hashes))
        some = hashes[start : start + _TESTED_AT_ONCE]
        parts = [found]
        for first in range(0, len(train_rows), _TRAIN_AT_ONCE):
            for turned in (0, 1):
                others = train_hashes[turned][first : first + _TRAIN_AT_ONCE]
                # Each bit that differs takes 2 from the product.
                distances = (_BITS - some @ others.T) / 2
                rows, columns = np.nonzero(distances <= radius)
                distance = distances[rows, columns].astype(np.int64)
                rows += start
                columns += first
                near = np.stack([rows, columns, np.full(len(rows), turned), distance], axis=1)
                alike = _roughly_alike(of_tested[rows], of_train[turned][columns])
                parts.append(near[alike])
        found = np.concatenate(parts)
        if within:
            found = found[found[:, 0] < found[:, 1]]
        counts = np.bincount(found[:, 3], minlength=RADIUS + 1).cumsum()
        while radius and counts[radius] > MOST_CANDIDATES:
            radius -= 1
        found = found[found[:, 3] <= radius]
    report_progress("comparing images", len(hashes), len(hashes))
    # A symmetric picture is near in both ways; the nearer one is compared.
    found = found[np.lexsort((found[:, 2], found[:, 3], found[:, 1], found[:, 0]))]
    again = np.zeros(len(found), bool)
    again[1:] = (found[1:, :2] == found[:-1, :2]).all(axis=1)
    found = found[~again]
    return tested_rows[found[:, 0]], train_rows[found[:, 1]], found[:, 2] == 1, radius


def _roughly_alike(first: Floats32, second: Floats32) -> Bools:
    """Return which pairs of low frequencies correlate, but for the brightness."""
    first = first[:, 1:]
    second = second[:, 1:]
    product = (first * second).sum(axis=1)
    sizes = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return product >= _LEAST_ROUGHLY_ALIKE * sizes


def _detailed(grey: NDArray[np.uint8]) -> Bools:
    """Return which small pictures have enough fine detail to be told from others."""
    enough = np.zeros(len(grey), bool)
    for part in _parts(len(grey)):
        pictures = grey[part].astype(np.float32)
        enough[part] = _fine(pictures).std(axis=(1, 2)) >= LEAST_DETAIL
    return enough


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, _PAIRS_AT_ONCE):
        yield slice(start, start + _PAIRS_AT_ONCE)


def _fine(pictures: Floats32) -> Floats32:
    return pictures - _blurred(pictures, _COARSE)


def _blurred(pictures: Floats32, deviation: float) -> Floats32:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(pictures, (0, deviation, deviation), mode="nearest")


def correlations(
    tested: NDArray[np.uint8],
    train: NDArray[np.uint8],
    rows: Ints,
    columns: Ints,
    mirrored: Bools,
) -> Floats32:
    """Return the correlation of fine detail of each pair after alignment."""
    alike = np.zeros(len(rows), np.float32)
    for part in _parts(len(rows)):
        report_progress("confirming copies", part.start, len(rows))
        first = tested[rows[part]].astype(np.float32)
        second = train[columns[part]].astype(np.float32)
        second = np.where(mirrored[part, None, None], second[:, :, ::-1], second)
        # The brighter picture stays, so that the order of both does not matter.
        swapped = (second.sum(axis=(1, 2)) > first.sum(axis=(1, 2)))[:, None, None]
        fixed = np.where(swapped, second, first)
        moved = np.where(swapped, first, second)
        alike[part] = aligned_correlation(fixed, moved)
    report_progress("confirming copies", len(rows), len(rows))
    return alike


def aligned_correlation(fixed: Floats32, moved: Floats32) -> Floats32:
    """Return the correlation of the fine detail of pictures, [n, 32, 32], after each `moved` one is
    zoomed by up to 15 % and moved by up to 11 % of a side onto its `fixed` one."""
    fixed = _blurred(fixed, _BLUR)
    moved = _blurred(moved, _BLUR)
    place = _aligned(fixed, moved)
    down, right, seen = _sampled_at(place)
    warped = _sampled(moved, down, right)
    first, _ = _normalised(_fine(fixed), seen)
    second, _ = _normalised(_fine(warped), seen)
    return (first * second).sum(axis=(1, 2)) / seen.sum(axis=(1, 2))


def _aligned(fixed: Floats32, moved: Floats32) -> Floats32:
    """Return the zoom and the translation with the highest correlation, [n, 3], by Gauss-Newton
    steps."""
    count = len(fixed)
    place = np.zeros((count, 3), np.float32)
    best = place.copy()
    highest = np.full(count, -np.inf, np.float32)
    slopes = np.gradient(moved, axis=(1, 2))
    damping = np.diag([1, 1e-2, 1e-2])
    for step in range(_STEPS + 1):
        down, right, seen = _sampled_at(place)
        target, _ = _normalised(fixed, seen)
        found, scale = _normalised(_sampled(moved, down, right), seen)
        pixels = seen.sum(axis=(1, 2))
        correlation = (target * found).sum(axis=(1, 2)) / pixels
        better = correlation > highest
        highest[better] = correlation[better]
        best[better] = place[better]
        if step == _STEPS:
            break
        slope_down, slope_right = [_sampled(slope, down, right) / scale for slope in slopes]
        zooming = slope_right * _ACROSS + slope_down * _DOWN
        ways = np.stack([zooming, slope_right, slope_down], axis=1) * seen[:, None]
        # A change of brightness or contrast is no movement.
        pixels = pixels[:, None, None, None]
        ways -= ways.sum(axis=(2, 3), keepdims=True) / pixels * seen[:, None]
        ways -= (ways * found[:, None]).sum(axis=(2, 3), keepdims=True) / pixels * found[:, None]
        flat = ways.reshape(count, 3, -1)
        left = (target - found).reshape(count, -1, 1)
        change = np.linalg.solve(flat @ flat.transpose(0, 2, 1) + damping, flat @ left)[:, :, 0]
        place = place + np.clip(change, np.negative(_LONGEST_STEP), _LONGEST_STEP)
        place = np.clip(place, np.negative(_FURTHEST), _FURTHEST).astype(np.float32)
    return best


_DOWN, _ACROSS = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2


def _sampled_at(place: Floats32) -> tuple[Floats32, Floats32, Floats32]:
    """Return where each pixel is sampled, down and right, and 1 where that is inside, [n, 32, 32]
    each."""
    zoom, move_right, move_down = place.T[:, :, None, None]
    middle = np.float32((SIDE - 1) / 2)
    right = middle + _ACROSS * (1 + zoom) + move_right
    down = middle + _DOWN * (1 + zoom) + move_down
    last = SIDE - 1
    seen = (right >= 0) & (right <= last) & (down >= 0) & (down <= last)
    return down, right, seen.astype(np.float32)


def _sampled(pictures: Floats32, down: Floats32, right: Floats32) -> Floats32:
    """Return pictures at places between their pixels, by linear interpolation."""
    top = np.clip(np.floor(down), 0, SIDE - 2).astype(np.int32)
    left = np.clip(np.floor(right), 0, SIDE - 2).astype(np.int32)
    below = np.clip(down - top, 0, 1)
    beside = np.clip(right - left, 0, 1)
    flat = pictures.reshape(-1)
    start = np.arange(len(pictures), dtype=np.int32)[:, None, None] * (SIDE * SIDE)
    at = start + top * SIDE + left
    upper = flat[at] * (1 - beside) + flat[at + 1] * beside
    lower = flat[at + SIDE] * (1 - beside) + flat[at + SIDE + 1] * beside
    return upper * (1 - below) + lower * below


def _normalised(pictures: Floats32, seen: Floats32) -> tuple[Floats32, Floats32]:
    """Return pictures with mean 0 and standard deviation 1 where they are `seen`, and 0 elsewhere,
    and their standard deviations."""
    pixels = seen.sum(axis=(1, 2), keepdims=True)
    mean = (pictures * seen).sum(axis=(1, 2), keepdims=True) / pixels
    centred = (pictures - mean) * seen
    deviation = np.sqrt((centred**2).sum(axis=(1, 2), keepdims=True) / pixels) + 1e-3
    return centred / deviation, deviation


def _stands_out(rows: Ints, columns: Ints, alike: Floats32, *, within: bool) -> Bools:
    """Return which candidates are copies: their detail correlates, more than that of other
    candidates of the same images. In sets of things that look alike, a high correlation alone says
    little."""
    rest = 1 - alike
    # Within one set, an image stands on either side.
    others = columns if within else columns + 1 + rows.max(initial=0)
    rests_of: dict[int, list[float]] = {}
    for image, value in zip([*rows.tolist(), *others.tolist()], [*rest, *rest], strict=True):
        rests_of.setdefault(image, []).append(float(value))
    near = alike >= SURELY_ALIKE
    for pair in np.flatnonzero((alike >= LEAST_ALIKE) & ~near).tolist():
        rivals = [*rests_of[int(rows[pair])], *rests_of[int(others[pair])]]
        rivals = sorted(rivals)[2:]  # the pair itself is in both
        weakest = rivals[_RIVAL] if len(rivals) > _RIVAL else 1.0
        near[pair] = rest[pair] <= PART_OF_RIVALS * weakest
    return near
