"""Find the images of one set that are copies of images of another one: exact, and near.

An exact copy has the same file or the same pixels. A near copy was encoded again, resized, cropped
a little, mirrored, or changed in brightness or colour. Near copies are searched by a perceptual hash
of 64 bits (pHash: which of the 8 × 8 lowest frequencies of a cosine transform are above their
median; Zauner 2010). Each candidate is then confirmed: one picture is moved and zoomed onto the
other (Lucas and Kanade 1981), and the fine detail of both must correlate. Low frequencies do not
count there, because different photographs on plain backgrounds share them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.progress import report_progress

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from counterfoil.arrays import AnyFloats, Bools, Floats32, Ints

    # Arrays of `FINGERPRINT` and of `PAIR`.
    Fingerprints: TypeAlias = NDArray[Any]
    Pairs: TypeAlias = NDArray[Any]

DIGEST = 16  # bytes of a sha256 that are compared
SIDE = 32  # pixels of the small pictures that are compared
# An image as it is compared: the start of the sha256 of its file and of its pixels, and a small grey
# picture. The pixels of an image that cannot be read are zeros, and of one that was reduced while it
# was decoded, they are its file.
FINGERPRINT = np.dtype(
    [
        ("file", f"V{DIGEST}"),
        ("pixels", f"V{DIGEST}"),
        ("grey", "u1", (SIDE, SIDE)),
    ]
)
# A pair of copies: the image of the first set and that of the second, whether files or pixels are
# the same, whether one is the mirror image of the other, the bits in which their hashes differ, and
# the correlation of fine detail (1 if exact).
PAIR = np.dtype(
    [
        ("tested", np.int64),
        ("train", np.int64),
        ("exact", np.bool_),
        ("mirrored", np.bool_),
        ("distance", np.int64),
        ("alike", np.float32),
    ]
)
# The largest distance of two hashes, in bits, of a candidate. All of these were chosen on other
# images than the tables of `scripts/prove_copies.py` are of; its `--settings` compares some others.
RADIUS: int = 18
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
_LOW = 8  # frequencies a direction
_BITS = _LOW * _LOW
_TESTED_AT_ONCE = 256
_OTHERS_AT_ONCE = 8192
_PAIRS_AT_ONCE = 256
_CANDIDATES_AT_ONCE = 65_536
_STEPS = 7
# Limits of the alignment: zoom, and translations right and down in pixels of `SIDE`.
_LONGEST_STEP = np.array([0.05, 1.5, 1.5], np.float32)
_FURTHEST = np.array([0.15, 3.5, 3.5], np.float32)
_DAMPING = np.diag([1, 1e-2, 1e-2])
_LEAST_DEVIATION = 1e-3
_MIDDLE = (SIDE - 1) / 2
_DOWN, _ACROSS = np.mgrid[:SIDE, :SIDE].astype(np.float32) - _MIDDLE
_BLUR = 0.7  # standard deviations in pixels of `SIDE`
_COARSE = 2.0


@dataclass(frozen=True, slots=True)
class Copies:
    """Pairs of copies. Of images that are the same, each set has only its first one in them. In a set
    that is compared with itself, such images are pairs with the first one."""

    pairs: Pairs
    """An array of `PAIR`: exact copies first, then from the most alike on."""
    tested_firsts: Ints
    """For each image of the first set, the row of the first one that is the same."""
    train_firsts: Ints
    """The same for the second set."""
    radius: int
    """The distance of hashes up to which pairs were compared."""


def low_frequencies(
    grey: NDArray[np.uint8],
    *,
    mirrored: bool = False,
) -> Floats32:
    """Return the low frequencies of small pictures, uint8 [n, 32, 32], or of their mirror images,
    [n, 64]."""
    from scipy.fft import dctn

    waves = dctn(
        grey.astype(np.float32),
        axes=(1, 2),
        norm="ortho",
    )
    low = waves[:, :_LOW, :_LOW]
    if mirrored:
        # A mirror image has the odd frequencies across with the other sign.
        low[:, :, 1::2] *= -1
    return low.reshape(len(low), _BITS)


def perceptual_hashes(frequencies: Floats32) -> Floats32:
    """Return the pHash of low frequencies, each bit as 1 or -1, [n, 64]."""
    middle = np.median(frequencies, axis=1, keepdims=True)
    hashes = np.full_like(frequencies, -1)
    hashes[frequencies > middle] = 1
    return hashes


def find_copies(tested: Fingerprints, train: Fingerprints | None = None) -> Copies:
    """Return the pairs of copies of two arrays of `FINGERPRINT`, or of one with itself, each pair
    once. The order of the two does not matter."""
    within = train is None
    others = tested if train is None else train
    row_of = {}
    tested_firsts = _firsts(tested, {})
    train_firsts = _firsts(others, row_of)
    exact = _exact_pairs(tested, tested_firsts, None if within else row_of)
    roughly, radius = candidates(tested, others, within=within)
    known = np.isin(
        _numbers(roughly, others),
        _numbers(exact, others),
    )
    roughly = roughly[~known]
    confirm(roughly, tested["grey"], others["grey"])
    near = roughly[_stands_out(roughly, within=within)]
    order = np.argsort(-near["alike"], kind="stable")
    pairs = np.concatenate([exact, near[order]])
    return Copies(pairs, tested_firsts, train_firsts, radius)


def _numbers(pairs: Pairs, others: Fingerprints) -> Ints:
    """Return a number for each pair."""
    return pairs["tested"] * len(others) + pairs["train"]


def _digests(images: Fingerprints) -> list[bytes]:
    """Return what is the same for images that are: their pixels, or the file of one that cannot be
    read; nothing of one that is missing."""
    digests = []
    for pixels, file in images[["pixels", "file"]].tolist():
        digest = pixels if any(pixels) else file
        digests.append(digest if any(digest) else b"")
    return digests


def _firsts(images: Fingerprints, row_of: dict[bytes, int]) -> Ints:
    """Return for each image the row of the first one that is the same, and write that row of each
    digest."""
    firsts = np.arange(len(images))
    for row, digest in enumerate(_digests(images)):
        if digest:
            firsts[row] = row_of.setdefault(digest, row)
    return firsts


def _exact_pairs(
    tested: Fingerprints,
    firsts: Ints,
    row_of: dict[bytes, int] | None,
) -> Pairs:
    """Return pairs of images that are the same, ascending. row_of: the row of each digest in the
    other set; None: each image is a pair with an earlier one of its own set."""
    same = []
    if row_of is None:
        for row, first in enumerate(firsts.tolist()):
            if first != row:
                same.append((first, row))
    else:
        for row, digest in enumerate(_digests(tested)):
            if firsts[row] == row and digest in row_of:
                same.append((row, row_of[digest]))
    same.sort()
    pairs = np.zeros(len(same), PAIR)
    pairs["tested"] = [row for row, _ in same]
    pairs["train"] = [row for _, row in same]
    pairs["exact"] = True
    pairs["alike"] = 1
    return pairs


def candidates(
    tested: Fingerprints,
    others: Fingerprints,
    *,
    within: bool,
) -> tuple[Pairs, int]:
    """Return the pairs that are roughly alike, or are so if one is mirrored, and the
    largest distance of hashes: `RADIUS`, or the largest with at most `MOST_CANDIDATES` pairs; -1 if
    there is none. Of images with the same pixels, only the first of each set is compared."""
    tested_rows = _comparable(tested)
    other_rows = _comparable(others)
    frequencies = low_frequencies(tested["grey"][tested_rows])
    hashes = perceptual_hashes(frequencies)
    of_others = []
    for mirrored in (False, True):
        waves = low_frequencies(others["grey"][other_rows], mirrored=mirrored)
        of_others.append((mirrored, waves, perceptual_hashes(waves)))
    kept = np.zeros(0, PAIR)
    radius = RADIUS
    for block in _blocks(len(hashes), _TESTED_AT_ONCE):
        report_progress("comparing images", block.start, len(hashes))
        for mirrored, waves, other_hashes in of_others:
            for other_block in _blocks(len(other_hashes), _OTHERS_AT_ONCE):
                pairs = _near_hashes(
                    hashes[block],
                    other_hashes[other_block],
                    radius,
                )
                pairs["tested"] += block.start
                pairs["train"] += other_block.start
                pairs["mirrored"] = mirrored
                if within:
                    pairs = pairs[pairs["tested"] < pairs["train"]]
                # In pieces: if images look alike, almost all pairs have near hashes.
                for piece in _blocks(len(pairs), _CANDIDATES_AT_ONCE):
                    some = pairs[piece]
                    some = some[some["distance"] <= radius]
                    alike = _roughly_alike(
                        frequencies[some["tested"]],
                        waves[some["train"]],
                    )
                    kept = np.concatenate([kept, some[alike]])
                    counts = np.bincount(kept["distance"], minlength=RADIUS + 1)
                    fitting = np.flatnonzero(counts.cumsum() <= MOST_CANDIDATES)
                    radius = min(radius, int(fitting.max(initial=-1)))
                    kept = kept[kept["distance"] <= radius]
    report_progress("comparing images", len(hashes), len(hashes))
    kept["tested"] = tested_rows[kept["tested"]]
    kept["train"] = other_rows[kept["train"]]
    # A symmetric picture is near in both ways; the nearer one is compared.
    kept = np.sort(kept, order=["tested", "train", "distance", "mirrored"])
    numbers = _numbers(kept, others)
    _, first = np.unique(numbers, return_index=True)
    return kept[first], radius


def _near_hashes(hashes: Floats32, others: Floats32, radius: int) -> Pairs:
    """Return the pairs of hashes that differ in at most `radius` bits."""
    # Each bit that differs takes 2 from the product.
    distances = (_BITS - hashes @ others.T) / 2
    rows, columns = np.nonzero(distances <= radius)
    pairs = np.zeros(len(rows), PAIR)
    pairs["tested"] = rows
    pairs["train"] = columns
    pairs["distance"] = distances[rows, columns]
    return pairs


def _roughly_alike(first: Floats32, second: Floats32) -> Bools:
    """Return which pairs of low frequencies correlate, but for the brightness."""
    first = first[:, 1:]
    second = second[:, 1:]
    products = np.einsum("ij,ij->i", first, second)
    sizes = np.linalg.norm(first, axis=1)
    sizes *= np.linalg.norm(second, axis=1)
    return products >= _LEAST_ROUGHLY_ALIKE * sizes


def detailed(images: Fingerprints) -> Bools:
    """Return which images have enough fine detail to be distinguished from others. Near copies are
    looked for among these alone."""
    enough = np.zeros(len(images), bool)
    for block in _blocks(len(images), _PAIRS_AT_ONCE):
        pictures = images["grey"][block].astype(np.float32)
        detail = _fine(pictures).std(axis=(1, 2))
        enough[block] = detail >= LEAST_DETAIL
    return enough


def _comparable(images: Fingerprints) -> Ints:
    """Return the rows with enough detail, the first of each picture."""
    enough = detailed(images)
    known = set()
    for row, pixels in enumerate(images["pixels"].tolist()):
        enough[row] &= pixels not in known
        known.add(pixels)
    return np.flatnonzero(enough)


def _blocks(count: int, at_once: int) -> Iterator[slice]:
    for start in range(0, count, at_once):
        yield slice(start, start + at_once)


def _fine(pictures: Floats32) -> Floats32:
    return pictures - _blurred(pictures, _COARSE)


def _blurred(pictures: Floats32, deviation: float) -> Floats32:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(pictures, (0, deviation, deviation), mode="nearest")


def confirm(
    pairs: Pairs,
    tested: NDArray[np.uint8],
    others: NDArray[np.uint8],
) -> None:
    """Write into each pair the correlation of fine detail after alignment."""
    for block in _blocks(len(pairs), _PAIRS_AT_ONCE):
        report_progress("confirming copies", block.start, len(pairs))
        some = pairs[block]
        first = tested[some["tested"]].astype(np.float32)
        second = others[some["train"]].astype(np.float32)
        mirrored = some["mirrored"]
        second[mirrored] = second[mirrored, :, ::-1]
        # The brighter picture stays, so that the order of both does not matter.
        swapped = _total(second) > _total(first)
        fixed = np.where(swapped, second, first)
        moved = np.where(swapped, first, second)
        some["alike"] = _aligned_correlation(fixed, moved)
    report_progress("confirming copies", len(pairs), len(pairs))


def _aligned_correlation(fixed: Floats32, moved: Floats32) -> Floats32:
    """Return the correlation of the fine detail of pictures, [n, 32, 32], after each `moved` one is
    zoomed and moved onto its `fixed` one."""
    fixed = _blurred(fixed, _BLUR)
    moved = _blurred(moved, _BLUR)
    placing = _aligned(fixed, moved)
    down, right, seen = _sampled_at(placing)
    warped = _sampled(moved, down, right)
    first, _ = _normalised(_fine(fixed), seen)
    second, _ = _normalised(_fine(warped), seen)
    return _correlation(first, second, seen)


def _aligned(fixed: Floats32, moved: Floats32) -> Floats32:
    """Return the zoom and the translation with the highest correlation, [n, 3], by Gauss-Newton
    steps."""
    count = len(fixed)
    placing = np.zeros((count, 3), np.float32)
    best = placing.copy()
    highest = np.full(count, -np.inf, np.float32)
    slope_down, slope_right = np.gradient(moved, axis=(1, 2))
    for _ in range(_STEPS):
        down, right, seen = _sampled_at(placing)
        warped = _sampled(moved, down, right)
        target, _ = _normalised(fixed, seen)
        overlaid, scale = _normalised(warped, seen)
        correlation = _correlation(target, overlaid, seen)
        better = correlation > highest
        highest[better] = correlation[better]
        best[better] = placing[better]
        by_right = _sampled(slope_right, down, right) / scale
        by_down = _sampled(slope_down, down, right) / scale
        by_zoom = by_right * _ACROSS + by_down * _DOWN
        ways = []
        for way in (by_zoom, by_right, by_down):
            centred = (way - _mean(way, seen)) * seen
            # A change of contrast is no movement.
            centred -= overlaid * _mean(centred * overlaid, seen)
            ways.append(centred.reshape(count, -1))
        # How far to go each way to make up for what is left, by least squares.
        stacked = np.stack(ways, axis=1)
        left = (target - overlaid).reshape(count, -1, 1)
        squares = stacked @ stacked.transpose(0, 2, 1)
        solved = np.linalg.solve(squares + _DAMPING, stacked @ left)
        change = solved[:, :, 0].astype(np.float32)
        placing += np.clip(change, -_LONGEST_STEP, _LONGEST_STEP)
        placing = np.clip(placing, -_FURTHEST, _FURTHEST)
    return best


def _sampled_at(placing: Floats32) -> tuple[Floats32, Floats32, Floats32]:
    """Return where each pixel is sampled, down and right, and 1 where that is inside, [n, 32, 32]
    each."""
    zoom, move_right, move_down = placing.T[:, :, None, None]
    right = _ACROSS * (1 + zoom) + move_right
    down = _DOWN * (1 + zoom) + move_down
    furthest = np.maximum(abs(right), abs(down))
    seen = furthest <= _MIDDLE
    return down + _MIDDLE, right + _MIDDLE, seen.astype(np.float32)


def _sampled(pictures: Floats32, down: Floats32, right: Floats32) -> AnyFloats:
    """Return pictures at places between their pixels, by linear interpolation."""
    top = np.floor(down).clip(0, SIDE - 2)
    left = np.floor(right).clip(0, SIDE - 2)
    below = (down - top).clip(0, 1)
    beside = (right - left).clip(0, 1)
    picture = np.arange(len(pictures))[:, None, None]
    corner = (picture * SIDE + top.astype(int)) * SIDE
    corner += left.astype(int)
    pixels = pictures.reshape(-1)

    def across(first: Ints) -> AnyFloats:
        start = pixels[first]
        return start + beside * (pixels[first + 1] - start)

    upper = across(corner)
    lower = across(corner + SIDE)
    return upper + below * (lower - upper)


def _total(pictures: AnyFloats) -> AnyFloats:
    """Return the sum of each picture, [n, 1, 1]."""
    return pictures.sum(axis=(1, 2), keepdims=True)


def _mean(pictures: AnyFloats, seen: AnyFloats) -> AnyFloats:
    """Return the mean of each picture where it is `seen`, [n, 1, 1]."""
    return _total(pictures * seen) / _total(seen)


def _correlation(first: AnyFloats, second: AnyFloats, seen: AnyFloats) -> AnyFloats:
    """Return the correlation of normalised pictures, [n]."""
    return _mean(first * second, seen)[:, 0, 0]


def _normalised(pictures: AnyFloats, seen: Floats32) -> tuple[AnyFloats, AnyFloats]:
    """Return pictures with mean 0 and standard deviation 1 where they are `seen`, and 0 elsewhere,
    and their standard deviations."""
    centred = (pictures - _mean(pictures, seen)) * seen
    variance = _mean(centred**2, seen)
    deviation = np.sqrt(variance) + _LEAST_DEVIATION
    return centred / deviation, deviation


def _stands_out(pairs: Pairs, *, within: bool) -> Bools:
    """Return which candidates are copies: their detail correlates, more than that of other
    candidates of the same images. In sets of things that look alike, a high correlation alone says
    little."""
    alike = pairs["alike"]
    rests = (1 - alike).tolist()
    second = pairs["train"]
    if not within:
        # The images of two sets are different ones.
        second = -1 - second
    images = np.stack([pairs["tested"], second], axis=1).tolist()
    rests_of = defaultdict(list)
    for both, rest in zip(images, rests, strict=True):
        for image in both:
            rests_of[image].append(rest)
    near = alike >= SURELY_ALIKE
    doubtful = (alike >= LEAST_ALIKE) & ~near
    for pair in np.flatnonzero(doubtful).tolist():
        first, other = images[pair]
        rivals = sorted(rests_of[first] + rests_of[other])
        # The pair itself is in both.
        rivals = rivals[2:]
        near[pair] = True
        if len(rivals) > _RIVAL:
            near[pair] = rests[pair] <= PART_OF_RIVALS * rivals[_RIVAL]
    return near
