"""Copies between two sets are found by file, pixels and near pixels; other images are no image_copies."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from counterfoil import image_copies
from counterfoil.data.fingerprints import fingerprint
from counterfoil.image_copies import (
    FINGERPRINT,
    SIDE,
    Copies,
    find_copies,
    low_frequencies,
    perceptual_hashes,
)
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from support.images import encoded, noise

COUNT = 12


def scene(number: int) -> Image.Image:
    return Image.fromarray(render(wardrobe_scene("audit", number)))


def fingerprints(files: Sequence[bytes]) -> np.ndarray:
    return np.concatenate([fingerprint(file) for file in files])


def scenes(change: Callable[[Image.Image], Image.Image] = lambda picture: picture) -> np.ndarray:
    return fingerprints([encoded(change(scene(number))) for number in range(COUNT)])


def pairs_of(copies: Copies) -> set[tuple[int, int]]:
    tested = copies.pairs["tested"].tolist()
    return set(zip(tested, copies.pairs["train"].tolist(), strict=True))


ITSELF = {(row, row) for row in range(COUNT)}


def test_a_set_has_all_its_images_and_repeats_none() -> None:
    images = scenes()
    copies = find_copies(images, images)
    assert pairs_of(copies) >= ITSELF
    assert copies.pairs["exact"].all()
    assert not pairs_of(find_copies(images))


def test_pixels_are_the_same_in_another_file() -> None:
    again = fingerprints([encoded(scene(number), "WEBP", lossless=True) for number in range(COUNT)])
    copies = find_copies(again, scenes())
    assert pairs_of(copies) == ITSELF
    assert copies.pairs["exact"].all()


def encoded_again(picture: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(encoded(picture, "JPEG", quality=quality)))


@pytest.mark.parametrize(
    "change",
    [
        lambda picture: encoded_again(picture, 95),
        lambda picture: encoded_again(picture, 50),
        lambda picture: picture.resize((48, 48)),
        lambda picture: picture.crop((1, 0, 63, 62)),
        lambda picture: ImageOps.mirror(picture),
        lambda picture: picture.convert("L"),
        lambda picture: ImageEnhance.Brightness(picture).enhance(0.7),
        lambda picture: encoded_again(ImageOps.mirror(picture), 75),
    ],
)
def test_changed_copies_are_near(change: Callable[[Image.Image], Image.Image]) -> None:
    copies = find_copies(scenes(change), scenes())
    assert pairs_of(copies) == ITSELF
    assert not copies.pairs["exact"].any()


def test_mirrored_copies_say_so() -> None:
    assert find_copies(scenes(ImageOps.mirror), scenes()).pairs["mirrored"].all()


def test_order_of_the_sets_does_not_matter() -> None:
    tested = scenes(lambda picture: encoded_again(picture.crop((0, 2, 62, 64)), 75))
    train = scenes()
    forth = find_copies(tested, train)
    back = find_copies(train[::-1], tested)
    turned = {(COUNT - 1 - row, column) for row, column in pairs_of(back)}
    assert {(column, row) for row, column in turned} == pairs_of(forth)
    np.testing.assert_array_equal(np.sort(back.pairs["alike"]), np.sort(forth.pairs["alike"]))


def test_distinct_images_are_no_copies() -> None:
    images = [noise(seed, 32, 32) for seed in range(200)]
    assert not pairs_of(find_copies(fingerprints([encoded(image) for image in images])))


def test_plain_images_are_copies_only_if_exact() -> None:
    levels = np.linspace(80, 160, 64)
    slope = np.broadcast_to(levels[:, None, None], (64, 64, 3))
    plain = [encoded((90, 90, 90)), encoded((91, 90, 90)), encoded((slope + 0.5).astype(np.uint8))]
    plain.append(encoded((slope + 3).astype(np.uint8)))
    images = fingerprints(plain)
    assert not pairs_of(find_copies(images))
    assert pairs_of(find_copies(images, images)) == {(row, row) for row in range(4)}


def test_unreadable_images_have_only_their_file() -> None:
    broken = encoded(scene(0))[:200]
    images = fingerprints([broken, b"no image", broken])
    assert pairs_of(find_copies(images)) == {(0, 2)}


def deep(seed: int, least: int, most: int) -> Image.Image:
    """Return grey squares of 16 bits."""
    chance = np.random.default_rng(seed)
    levels = chance.integers(
        least,
        most,
        (8, 8),
        np.uint16,
    )
    taller = levels.repeat(8, axis=0)
    return Image.fromarray(taller.repeat(8, axis=1))


def test_pictures_of_16_bits_are_compared_with_all_their_bits() -> None:
    pictures = [deep(seed, 300, 60_000) for seed in range(4)]
    bright = fingerprints([encoded(picture) for picture in pictures])
    assert not pairs_of(find_copies(bright))
    again = fingerprints([encoded(picture, "TIFF") for picture in pictures])
    copies = find_copies(bright, again)
    assert pairs_of(copies) == {(row, row) for row in range(4)}
    assert copies.pairs["exact"].all()
    levels = np.asarray(pictures[2]) // 16
    darker = encoded(Image.fromarray(levels))
    copies = find_copies(fingerprints([darker]), bright)
    assert pairs_of(copies) == {(0, 2)}
    assert not copies.pairs["exact"].any()


@pytest.mark.parametrize("value", [0, math.nan, math.inf, 1e38])
def test_odd_fractions_are_read(value: float) -> None:
    picture = Image.fromarray(np.full((40, 40), value, np.float32))
    assert fingerprint(encoded(picture, "TIFF"))["pixels"] != np.zeros(1, FINGERPRINT)["pixels"]


def test_transparency_tells_pictures_apart() -> None:
    opaque = scene(1).convert("RGBA")
    clear = opaque.copy()
    clear.putalpha(100)
    files = [
        encoded(scene(1)),
        encoded(opaque),
        encoded(clear),
    ]
    copies = find_copies(fingerprints(files))
    exact = copies.pairs[copies.pairs["exact"]]
    assert exact[["tested", "train"]].tolist() == [(0, 1)]


def test_pictures_with_a_palette_are_compared_by_colour() -> None:
    drawn = scene(1).quantize(16)
    other = drawn.copy()
    other.putpalette([255 - value for value in drawn.getpalette() or []])
    files = [
        encoded(drawn),
        encoded(drawn.convert("RGB")),
        encoded(other),
    ]
    images = fingerprints(files)
    assert pairs_of(find_copies(images)) == {(0, 1)}


def test_large_photographs_with_other_files_are_near() -> None:
    picture = scene(1).resize((1200, 1200))
    files = [
        encoded(picture, "JPEG", quality=90),
        encoded(picture, "JPEG", quality=90, comment="a"),
    ]
    copies = find_copies(fingerprints(files))
    assert pairs_of(copies) == {(0, 1)}
    assert not copies.pairs["exact"].any()
    same = fingerprints(files[:1])
    again = find_copies(same, same)
    assert again.pairs["exact"].all()


def test_missing_images_are_no_copies() -> None:
    nothing = np.zeros(5, FINGERPRINT)
    assert not pairs_of(find_copies(nothing))
    assert not pairs_of(find_copies(nothing[:0], scenes()))


def test_vast_images_are_not_decoded() -> None:
    claimed = encoded(Image.new("L", (16, 16)))
    # The width and the height of a PNG's header.
    vast = claimed[:16] + (60_000).to_bytes(4, "big") * 2 + claimed[24:]
    assert not fingerprint(vast)["grey"].any()


def test_many_candidates_take_a_smaller_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    images = scenes(lambda picture: picture.crop((0, 3, 61, 64)))
    all_candidates = find_copies(images, scenes())
    monkeypatch.setattr(image_copies, "MOST_CANDIDATES", 3)
    fewer = find_copies(images, scenes())
    assert fewer.radius < all_candidates.radius == image_copies.RADIUS
    assert pairs_of(fewer) <= pairs_of(all_candidates)


def test_a_picture_that_is_often_repeated_hides_no_near_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_copies, "MOST_CANDIDATES", 10)
    repeated = [encoded(scene(5))] * 30
    tested = fingerprints([*repeated, encoded(encoded_again(scene(6), 60))])
    train = fingerprints([*repeated, encoded(scene(6))])
    copies = find_copies(tested, train)
    assert (30, 30) in pairs_of(copies)
    assert copies.pairs["exact"].sum() == 1
    assert copies.tested_firsts.tolist() == [0] * 30 + [30]


def test_things_that_look_alike_are_no_copies() -> None:
    """Call a pair a copy only if it is closer than other pairs of the same images."""
    base = np.asarray(scene(3), np.float32)
    chance = np.random.default_rng(0)
    alike = []
    for _ in range(12):
        changed = base + chance.normal(0, 26, base.shape)
        alike.append(encoded(changed.clip(0, 255).astype(np.uint8)))
    images = fingerprints(alike)
    pairs, _ = image_copies.candidates(images, images, within=True)
    image_copies.confirm(pairs, images["grey"], images["grey"])
    assert (pairs["alike"] >= image_copies.LEAST_ALIKE).sum() > 30
    assert len(find_copies(images).pairs) < 5


def plain_hash(grey: np.ndarray) -> list[int]:
    """Return the bits of a pHash by its definition."""
    low = []
    for down in range(8):
        for across in range(8):
            total = 0.0
            for y in range(SIDE):
                for x in range(SIDE):
                    wave = math.cos(math.pi * down * (2 * y + 1) / (2 * SIDE))
                    wave *= math.cos(math.pi * across * (2 * x + 1) / (2 * SIDE))
                    total += float(grey[y, x]) * wave
            # Frequencies of 0 have half the energy.
            halves = (down > 0) + (across > 0)
            low.append(total * 2 ** (halves / 2))
    middle = float(np.median(low))
    return [2 * (value > middle) - 1 for value in low]


def test_perceptual_hash_equals_a_plain_loop() -> None:
    grey = scenes()["grey"][:2]
    hashes = perceptual_hashes(low_frequencies(grey))
    assert hashes.tolist() == [plain_hash(picture) for picture in grey]
    turned = perceptual_hashes(low_frequencies(grey, mirrored=True))
    assert turned[0].tolist() == plain_hash(grey[0, :, ::-1])
