"""Corruptions: the published definitions to a grey level, what every picture may count on, and what
a drawn shift is compared with.

`PUBLISHED` is what the code of Hendrycks and Dietterich answers (hendrycks/robustness:
`imagenet_c/corruptions.py` for 224 pixels, `create_c/make_cifar_c.py` for 32; with ImageMagick
6.9.11, OpenCV 5.0 and scikit-image 0.26), or for held-out kinds the code of Mintun and others
(facebookresearch/augmentation-corruption: `imagenet_c_bar/corrupt.py`), to the picture and with the
random numbers that this file makes: for severities 1 to 5 the levels at eight places, in hexadecimal.
"""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.special import ndtri

from counterfoil.corrupting import corruption_kinds
from counterfoil.corrupting.corrupt import (
    apply_gain,
    constants_of,
    contrast_match,
    corrupt,
    corrupted_by,
    random_arrays,
)
from counterfoil.corrupting.corruptions import CORRUPTIONS, HELD_OUT

PUBLISHED = {
    32: {
        "gaussian_noise": "0cdcff672502ead4 12e1ff662400f1d5 18e6ff652300f7d6 1be9ff642200fad7"
        " 1eecff632200fed8",
        "shot_noise": "00d2ff6a270eded2 00d2ff6a270eded2 00d3ff68280cddd1 00d2ff69280de0d2"
        " 00d6ff6b280fe0d1",
        "impulse_noise": "00d2ff6a280fded2 00d2ff6a280fded2 00d2ff6a280fded2 00d2ff6a280fded2"
        " 00d2ff6a280fded2",
        "speckle_noise": "00deff68270deed4 00e7ff67270dfad6 00ebff66260cffd7 00f4ff65260cffd9"
        " 00fcff64260bffdb",
        "defocus_blur": "00c4fd6a280fddd2 01b1fb6a280fddd2 02a2f96a280fddd2 038ef86a280fddd1"
        " 0586f46a280fddd2",
        "glass_blur": "0028ff6a2800ded2 0028fd6a2800dcd1 003ffd692801dcd0 00d0fd62280ed5d1"
        " 00b9fd61280ed5ca",
        "motion_blur": "03d2f66d2917e1c3 05d1f16f311ce3a8 06ceec713a21e492 06ceec713a21e492"
        " 08c9e8733f25e683",
        "zoom_blur": "0091ff672808d7d1 0395f8682808d5d1 0489f5672807d3d1 0788f0682807d2d2"
        " 097fec683106cfbd",
        "gaussian_blur": "00c4fe6a280fddd1 01a2fc6a280fddd1 0198fb6a290fddd0 0292fa6a2b0fddce"
        " 028af96a3311ddc7",
        "snow": "0ad7ff763322e1dd 14ebff8b3e35fce8 14ddff833e4de5e8 1ef9ff906862e9f5"
        " 34ffffb95562edff",
        "fog": "12c8e4782929cac7 24beca872b44b7bc 2eb8be8f2c53abb5 36b2b7942d60a2af"
        " 40a9ae9b2d7294a6",
        "spatter": "00ffff6a280fded2 00d2ff6a280fded2 00d2ff6a280fded2 00d2ff6a280fded2"
        " 0047ff6a280fded2",
        "brightness": "00deff702a0fead2 00ebff762a10f7d2 00f8ff7d2a11fdd2 00ffff802a12fdd2"
        " 00ffff802a12fdd2",
        "contrast": "1fbcdf6f3d2bc6bc 3fa7bf745247aea7 4c9fb2765b52a59f 5896a578635d9b96"
        " 6b89927b706e8d89",
        "elastic_transform": "043cf369d20aee7f 042ef36ad206f62b 0428f46fd203fb53 0335f772d20af2b3"
        " 0260f973ab15e4d2",
        "pixelate": "00d2ff6a280fded2 007dff6a280fe2d2 007dff6a280fded2 00d2ff6f2817ded2"
        " 047df76a2808e2d2",
        "jpeg_compression": "09b3f66a2f0dbcd4 00b2f56f1f0dc9dd 00c4ff6f3000accb 04c4d96b2928b9cd"
        " 17c8ff6e2f11ccd2",
        "saturate": "b2d2ffb2b397def1 e5d2ffc7dbbedefa 00d2ff620000ddcb 00d2ff620000ddcb"
        " 00d2ff620000ddcb",
        "single_frequency_greyscale": "03cbf85a2c1bebe4 04c8f5532e22f2ee 06c5f14b3028f9f7"
        " 0eb6e1263b48ffff 10b3de1e3d4effff",
        "cocentric_sine_waves": "0ac0f3643015e7d3 12b4eb60361aedd4 1da3e05a3e21f6d6"
        " 209ddc584123f9d6 2497d8564426fcd7",
        "plasma_noise": "0fb3fc742a00d8cc 16a5fb792b00d6c9 1b9bfa7d2b00d5c7"
        " 1d96fa7f2b00d4c6 2091f9802c00d3c5",
        "sparkles": "03d4ff6d2a15ded3 03d5ff702a1aded4 08daff782e2cded9"
        " 0bdbff7c3033dfda 0ddeff80313bdfdc",
        "inverse_sparkles": "79d8ff81530fe1db 8fdbff815e0fe3de b1e0ff81710fe5e4"
        " d9e8ff80900fe9ec dfe9ff80970feaee",
        "blue_noise_sample": "00d2ff6a280fded2 00d2ff6a280fded2 00d2ff6a280fded2"
        " 00d2ff6a280fded2 00d2ff6a280fded2",
        "brownish_noise": "00d7f0612315c3c9 00dbe85c2018b3c4 00dedf571e1ca3bf"
        " 00e0da531c1e98bb 00e1d7521b2093ba",
        "checkerboard_cutout": "80d2ff6a280fded2 80d2ff6a800fde80 80d2806a800fde80"
        " 8080806a800fde80 8080806a800fde80",
        "caustic_refraction": "009cf8713b06dcd8 008ff6734202dcda 0083f1785000dbde"
        " 0085ec7d5e00dbe2 00a3e5856800d9e9",
        "perlin_noise": "1dd1e6774335dad5 21d1e378463adad5 24d1e07a4a3fdad5"
        " 30d0d67f544dd8d7 38d0d0835b57d8d7",
    },
    224: {
        "gaussian_noise": "18402c83edeaf8c6 244d3086fbf3f5c1 365f368afffff1b8 4f783e8fffffeaad"
        " 739d4a98ffffe19c",
        "shot_noise": "002a267fd4d8ffd0 0028287ad6d6ffcc 002a2a7fd4d4ffd4 00333399ffffffcc"
        " 005555aaffffffaa",
        "impulse_noise": "0028247ed2d8ffd2 0028247ed2d8ffd2 0028247ed2d8ffd2 0028247ed2d8ffd2"
        " 0028247ed2d8ffd2",
        "speckle_noise": "002f2683fcf5f3c0 00312684ffffefba 00392989ffffe3a9 003d2a8dffffdc9d"
        " 00452c92ffffd08c",
        "defocus_blur": "0127237eccd7fccc 0127237ebcd7fcbc 0227237ea7d7fba7 032a2480a0dafda0"
        " 0436247f95dafc95",
        "glass_blur": "0028257dd1dafcb4 0028257dc9dafdb0 0028297bd1dbfd74 0028287ab9e5fdba"
        " 002b287aacdbfd84",
        "motion_blur": "01281f80add3ffd2 02301d8185d0ffd2 034d188266ccffd2 056d148453c6ffd2"
        " 077a12854dc2ffce",
        "zoom_blur": "0528227dd1cef8d1 072f227dd1caf5d1 0952217dd1c7f3d1 0b64217dd1c3f1d1"
        " 0d79207db9bfefd1",
        "gaussian_blur": "0028237ed1d7fed1 0028237ec0d7fdc0 0129237eafd7fdaf 012e237ea3d7fca3"
        " 0241237e94d7fb94",
        "snow": "29497293fbe7ffea 435f9e9dffeffff6 3e5aff9dfffffff6 9162ffa3ffffffff"
        " 6d7fc4d1ffffffff",
        "fog": "406a79a3958abdb3 487182a78f81b5b0 4d7d8da88776b7b0 4d838fa88671c0b2"
        " 4f8991a88266c2b1",
        "spatter": "1928247ed2d8ffd2 1f28247ed2d8ffd2 3628247ed2d8ffd2 0028247ed2d8ffd2"
        " 0028247ed2d8ff45",
        "brightness": "002f2897ebf1ffeb 00362bb1ffffffff 003d2bcaffffffff 00442be4ffffffff"
        " 00462bfdffffffff",
        "contrast": "4c5b5a7e9fa2b29f 5863637e9699a596 656c6c7e8e90988e 7274757e85878b85"
        " 78787a7e81838581",
        "elastic_transform": "04d20c7bd2c7bed2 09282e7ed29d06d2 01281e7cd2e6f5d2 01281e7cd2e8f6d2"
        " 01281e7bd2eaf8d2",
        "pixelate": "0128257ed2d8fed2 0128237ed2d9fed2 0128237fd2dafdd2 0128267fd2d6fdd2"
        " 0228217dd2d7fdd2",
        "jpeg_compression": "002d2163dfe3fdd5 0a2e255fc7c9fccf 102c2f60c3cdf9d0 031c1a5ad6cffdce"
        " 0f27265cd7a4ffd3",
        "saturate": "b2719d7ed2d8ffd2 e586c07ed2d8ffd2 0000007ed2d8ffd2 0000007ed2d8ffd2"
        " 0000007ed2d8ffd2",
        "blue_noise_sample": "0028007ed2d8ffd2 0028007ed2d8ffd2 0028007ed2d8ffd2"
        " 0028007ed2d8ff00 0028007ed2d8ff00",
        "brownish_noise": "00352879dbdcffde 00422c74e5e1ffea 0050316fefe6fff7"
        " 005d356af8eaffff 006a3a65ffefffff",
        "caustic_refraction": "0031217dd1d8d8d2 0035217cd1d8cad3 003c1f7cd0d8afd3"
        " 00431d7bcfd993d4 004e1b7acfd96ad5",
        "checkerboard_cutout": "8028247ed2d8ffd2 8028247ed2d8ffd2 8028807ed2d8ff80"
        " 8028807ed2d88080 8028807ed2d88080",
        "cocentric_sine_waves": "0a1c298dcec6ffcf 12152d97ccbaffce 1d0a32a7c9a8ffcb"
        " 200634acc8a2ffcb 240336b1c79cffca",
        "inverse_sparkles": "795a5c81d8dfffd9 a278747fdee1ffde d2a4997ee7e5ffe7"
        " f7ddd07ef4edfff3 f9e3d77ef5eefff5",
        "perlin_noise": "1d553e91c0dce8ce 215b4194bedde6cd 24614597bcdde3cd"
        " 30734f9eb5dfdacb 387f56a4b1e0d4ca",
        "plasma_noise": "0f123750a7d9c4ac 1608413b93d9a89a 1b02472c85da958e"
        " 1d004a257fda8c88 20004d1e78da8282",
        "single_frequency_greyscale": "032a1c6ae5c4f1c1 042b1961efbbeab8 062c1557f9b1e4b0"
        " 0e310327ff81c285 1032001dff77bc7d",
        "sparkles": "002a247ed2d8ffd2 0130267fd2d8ffd2 023b2981d2d8ffd4"
        " 075c3186d4d9ffd7 0a73378ad4d9ffda",
    },
}


def numbers(start: int, *shape: int) -> np.ndarray:
    """Return numbers from 0 to 1 without a library's generator: the hash of indices from `start` on
    (SplitMix64)."""
    mixed = (
        np.arange(start, start + math.prod(shape), dtype=np.uint64) + np.uint64(1)
    ) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) / 2.0**53).reshape(shape)


def formula_picture(side: int) -> np.ndarray:
    rows, columns = np.indices((side, side))
    tiles = (8 * rows // side + 8 * columns // side) % 2
    return np.stack(
        [255 * rows // (side - 1), 40 + 170 * tiles, abs(2 * columns - side) * 255 // side], axis=2
    ).astype(np.uint8)


def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return a picture whose details, as in photographs, are weaker the finer they are."""
    side = 2 ** math.ceil(math.log2(max(height, width)))
    channels = np.random.default_rng(seed).uniform(-1, 1, (3, side**2 - 1))
    picture = np.stack(
        [corruption_kinds.plasma(side, 1.7, channel) for channel in channels], axis=2
    )
    return np.rint(picture[:height, :width] * 255).astype(np.uint8)


def arrays_of(name: str, constants: Any, picture: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the first numbers, in the order and of the kind in which the published code draws
    them."""
    height, width, _ = picture.shape
    sides = picture.shape[:2]
    everywhere = picture.size
    if name in ("gaussian_noise", "speckle_noise"):
        return (ndtri(numbers(0, *picture.shape)),)
    if name == "shot_noise":
        return (np.floor(picture * constants + numbers(0, *picture.shape)),)
    if name == "impulse_noise":
        return numbers(0, *picture.shape), numbers(everywhere, *picture.shape)
    if name == "glass_blur":
        _, reach, rounds = constants
        shape = rounds, height - 2 * reach, width - 2 * reach, 2
        return (np.floor(2 * reach * numbers(0, *shape)).astype(int) - reach,)
    if name == "motion_blur":
        return (90 * numbers(0, 1)[0] - 45,)
    if name == "snow":
        return ndtri(numbers(0, *sides)), 90 * numbers(height * width, 1)[0] - 135
    if name == "fog":
        return (2 * numbers(0, 4 ** math.ceil(math.log2(max(sides))) - 1) - 1,)
    if name == "spatter":
        return (ndtri(numbers(0, *sides)),)
    if name == "elastic_transform":
        parts = numbers(0, 3, 2), numbers(6, *sides), numbers(6 + height * width, *sides)
        return tuple(2 * part - 1 for part in parts)
    if CORRUPTIONS[name].deviation == HELD_OUT:
        return held_out_arrays(name, height)
    return ()


def held_out_arrays(name: str, side: int) -> tuple[np.ndarray, ...]:
    """Return numbers in the ranges from which the code of Mintun and others draws."""
    turn = 2 * math.pi
    few = numbers(0, 5)
    if name == "single_frequency_greyscale":
        larger = math.pi * (2 * few[0] - 1)
        return np.array([larger, abs(larger) * (2 * few[1] - 1)]), turn * few[2]
    if name == "cocentric_sine_waves":
        return (few,)
    if name == "plasma_noise":
        return few[:3], np.asarray(5)
    if name == "caustic_refraction":
        return (np.array([0.5 + 1.5 * few[0], 0.75 + 0.5 * few[1]]),)
    if name == "checkerboard_cutout":
        square = (0.1 + 0.15 * few[1]) * side
        count = int(4 * side // square)
        return turn * few[0], square, numbers(2, count, count)
    if name == "perlin_noise":
        steps = np.floor(512 * numbers(0, 256, 2)) - 256
        gradients = steps / np.linalg.norm(steps, axis=1, keepdims=True)
        return gradients, np.argsort(numbers(512, 256))
    if name in ("blue_noise_sample", "brownish_noise"):
        count = 1 if name == "blue_noise_sample" else 3
        phases = turn * numbers(0, count, side, side // 2)
        return phases, turn * numbers(phases.size, count, side // 2)
    count = 5 if name == "sparkles" else 1
    middles = numbers(0, count, 2)
    if name == "inverse_sparkles":
        middles = 0.25 + 0.5 * middles[0]
    rays = 50 + np.floor(150 * numbers(2 * count, count)).astype(int)
    return middles * side, rays, ndtri(numbers(3 * count, count, 200))


@pytest.mark.parametrize(
    ("side", "name"), [(side, name) for side, names in PUBLISHED.items() for name in names]
)
def test_given_the_same_numbers_all_is_as_published_to_a_grey_level(side: int, name: str) -> None:
    picture = formula_picture(side) / 255.0
    places = np.arange(8) * 2654435761 % picture.size
    for severity, published in enumerate(PUBLISHED[side][name].split(), 1):
        arrays = arrays_of(name, constants_of(name, severity, side, side), picture)
        levels = corrupted_by(picture, name, severity, *arrays).ravel()[places]
        # The published code cuts levels off, these are rounded: never less, and one more at most.
        more = levels.astype(int) - np.frombuffer(bytes.fromhex(published), np.uint8)
        assert set(more.tolist()) <= {0, 1}, (severity, more)


def test_only_frost_and_what_was_never_published_have_no_published_levels() -> None:
    unpublished = {name for name in CORRUPTIONS if name not in PUBLISHED[32]}
    assert unpublished == set(PUBLISHED[224]) ^ set(CORRUPTIONS)
    assert unpublished == {"frost"} | {
        name for name, corruption in CORRUPTIONS.items() if corruption.kind == "camera"
    }
    assert all(CORRUPTIONS[name].deviation for name in unpublished)


def test_glass_takes_colours_one_pixel_after_another_in_pictures_of_any_form() -> None:
    picture = photograph(90, 117) / 255.0
    reach = 3
    rounds = 2
    swaps = (
        np.floor(2 * reach * numbers(0, rounds, 90 - 2 * reach, 117 - 2 * reach, 2)).astype(int)
        - reach
    )
    levels = (corruption_kinds.gaussian_blur(picture, 1.1) * 255).astype(np.uint8)
    for offsets in swaps:
        for row, line in zip(range(90 - reach, reach, -1), offsets, strict=True):
            for column, (right, down) in zip(range(117 - reach, reach, -1), line, strict=True):
                levels[row, column] = levels[row + down, column + right]
    expected = corruption_kinds.gaussian_blur(levels / 255.0, 1.1)
    assert np.array_equal(
        corruption_kinds.glass_blur(picture, (1.1, reach, rounds), swaps), expected
    )


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_seed_decides_every_byte(name: str) -> None:
    for sides, severities in (((33, 32), range(1, 6)), ((90, 101), (3,))):
        picture = photograph(*sides)
        before = picture.copy()
        for severity in severities:
            seeds = (0, 0, 1, 2, 3, 2**53 - 1)
            corrupted = [corrupt(picture, name, severity, seed=seed) for seed in seeds]
            assert np.array_equal(corrupted[0], corrupted[1])
            others = {image.tobytes() for image in corrupted}
            assert (len(others) > 1) is bool(
                random_arrays(name, np.random.default_rng(0), picture / 255.0, (1, 1, 1))
            )
        assert np.array_equal(picture, before)


# As published: saturation falls, then grows; corners move less as waves grow; spatter is water,
# then mud; frost takes from the picture what it adds in ice; glass blurs less and shuffles more in
# turn.
NOT_EVER_FARTHER = {"saturate", "elastic_transform", "spatter", "frost", "glass_blur"}


@pytest.mark.parametrize("side", [32, 96])
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NOT_EVER_FARTHER])
def test_a_higher_severity_is_farther_from_the_picture(name: str, side: int) -> None:
    pictures = [photograph(side, side, seed) for seed in range(6)]
    far = [
        np.mean(
            [
                np.abs(corrupt(picture, name, severity, seed=seed) - picture.astype(float)).mean()
                for seed, picture in enumerate(pictures)
            ]
        )
        for severity in range(1, 6)
    ]
    # Motion of six and of eight pixels with one deviation are all but the same.
    assert all(later > earlier * 0.999 for earlier, later in itertools.pairwise(far)), far
    assert far[4] > 1.4 * far[0] > 0


@given(
    height=st.integers(8, 80),
    width=st.integers(8, 80),
    content=st.sampled_from(["black", "white", "grey", "noise", "stripe"]),
    name=st.sampled_from(list(CORRUPTIONS)),
    severity=st.integers(1, 5),
    seed=st.integers(0, 2**53 - 1),
)
def test_any_picture_has_a_corrupted_one_of_its_shape(
    height: int, width: int, content: str, name: str, severity: int, seed: int
) -> None:
    picture = np.zeros((height, width, 3), np.uint8)
    if content == "noise":
        picture = np.random.default_rng(seed).integers(0, 256, picture.shape, np.uint8)
    elif content == "stripe":
        picture[:, ::3] = 255
    else:
        picture += np.uint8({"black": 0, "white": 255, "grey": 127}[content])
    with np.errstate(all="raise", under="ignore"):
        corrupted = corrupt(picture, name, severity, seed=seed)
    assert corrupted.shape == picture.shape and corrupted.dtype == np.uint8
    assert np.array_equal(corrupted, corrupt(picture, name, severity, seed=seed))


@pytest.mark.parametrize("severity", range(1, 6))
def test_noise_has_the_mean_and_the_spread_of_its_constant(severity: int) -> None:
    grey = np.full((84, 200, 3), 102, np.uint8)  # 0.4

    def deviation_of(name: str) -> tuple[float, float]:
        noisy = corrupt(grey, name, severity, seed=3) / 255.0
        assert noisy.mean() == pytest.approx(0.4, abs=0.006)
        return float(noisy.std()), float(constants_of(name, severity, 84, 200))

    deviation, constant = deviation_of("gaussian_noise")
    assert deviation == pytest.approx(constant, rel=0.03)
    deviation, constant = deviation_of("speckle_noise")
    assert deviation == pytest.approx(0.4 * constant, rel=0.03)
    deviation, constant = deviation_of("shot_noise")
    assert deviation == pytest.approx((0.4 / constant) ** 0.5, rel=0.03)
    struck = corrupt(grey, "impulse_noise", severity, seed=3)
    share = constants_of("impulse_noise", severity, 84, 200)
    assert np.mean(struck == 0) == pytest.approx(share / 2, rel=0.15)
    assert np.mean(struck == 255) == pytest.approx(share / 2, rel=0.15)
    assert np.mean(struck == 102) == pytest.approx(1 - share, abs=0.005)


def test_what_is_drawn_lies_where_it_was_published_to_lie() -> None:
    rng = np.random.default_rng(5)
    picture = np.zeros((90, 100, 3))
    (swaps,) = random_arrays("glass_blur", rng, picture, (1.5, 4, 2))
    assert swaps.shape == (2, 82, 92, 2) and set(np.unique(swaps)) == set(range(-4, 4))
    angles = [float(random_arrays("motion_blur", rng, picture, None)[0]) for _ in range(200)]
    assert -45 < min(angles) < -40 and 40 < max(angles) < 45
    falling = [random_arrays("snow", rng, picture, None) for _ in range(200)]
    assert (
        -135 < min(float(angle) for _, angle in falling) < -130
        and -50 < max(float(angle) for _, angle in falling) < -45
    )
    assert np.mean([normal.std() for normal, _ in falling]) == pytest.approx(1, abs=0.01)
    for part in random_arrays("elastic_transform", rng, picture, None)[1:]:
        assert part.mean() == pytest.approx(0, abs=0.03) and part.std() == pytest.approx(
            3**-0.5, abs=0.01
        )
    (steps,) = random_arrays("fog", rng, picture, None)
    assert steps.size == 128**2 - 1 and -1 < steps.min() < -0.99 and 0.99 < steps.max() < 1


@pytest.mark.parametrize(
    ("side", "step", "mean", "deviation", "steps"),
    [(224, 1, 0.637, 0.117, 0.047), (32, 5, 0.649, 0.109, 0.075)],
)
def test_drawn_ice_is_as_light_and_as_rough_as_the_photographs_of_the_published_one(
    side: int, step: int, mean: float, deviation: float, steps: float
) -> None:
    """Compare mean, deviation and steps between rows with those of 100 cuts; take each fifth pixel
    of small images."""
    black = np.zeros((side, side, 3))
    constants = (0, 1, step)
    draw = corruption_kinds.draw_frost
    ice = [
        corruption_kinds.frost(
            black, constants, *draw(np.random.default_rng(seed), black, constants)
        )
        for seed in range(6 * step)
    ]
    assert np.mean(ice) == pytest.approx(mean, abs=0.06)
    assert np.mean([image.std() for image in ice]) == pytest.approx(deviation, abs=0.03)
    rows = np.mean([np.abs(np.diff(image.mean(axis=2), axis=0)).mean() for image in ice])
    assert rows == pytest.approx(steps, abs=0.012)
    red, green, blue = np.mean(ice, axis=(0, 1, 2))
    assert red < green < blue


def test_a_large_picture_costs_a_bounded_fractal() -> None:
    wide = np.zeros((8, 3000, 3))
    for name in ("fog", "frost"):
        constants = CORRUPTIONS[name].small[0]
        assert (
            sum(
                array.size
                for array in random_arrays(name, np.random.default_rng(0), wide, constants)
            )
            < 2**21
        )
    assert corrupt((wide + 90).astype(np.uint8), "fog", 5, seed=0).shape == wide.shape


def test_the_camera_halves_light_tints_turns_and_covers() -> None:
    white, grey = (np.full((50, 60, 3), level, np.uint8) for level in (255, 127))
    # Half of the light is sRGB's level 188, a quarter 137.
    assert corrupt(white, "darker", 2, seed=0)[0, 0].tolist() == [188, 188, 188]
    tints = {
        tuple(np.sign(corrupt(grey, "colour_cast", 3, seed=seed)[0, 0].astype(int) - 127).tolist())
        for seed in range(9)
    }
    assert {(red, blue) for red, _, blue in tints} == {(1, -1), (-1, 1)}
    picture = photograph(90, 120)
    assert (
        np.abs(
            corrupt(picture, "greyscale", 5, seed=0)
            - np.asarray(Image.fromarray(picture).convert("L"), float)[..., None]
        ).max()
        <= 1
    )
    middle = slice(30, 60), slice(45, 75)
    turned = {
        sign: np.asarray(
            Image.fromarray(picture).rotate(sign * 20, Image.Resampling.BILINEAR), float
        )[middle]
        for sign in (1, -1)
    }
    nearest = [
        min(
            (np.abs(corrupt(picture, "rotation", 3, seed=seed)[middle] - turned[sign]).max(), sign)
            for sign in (1, -1)
        )
        for seed in range(9)
    ]
    assert max(far for far, _ in nearest) <= 1 and {sign for _, sign in nearest} == {1, -1}
    covered = [corrupt(white, "occlusion", 4, seed=seed) < 255 for seed in range(20)]
    assert all(mask.mean() == pytest.approx(0.3, abs=0.02) for mask in covered)
    assert len({mask.tobytes() for mask in covered}) > 15
    assert [corrupt(white, name, 5, seed=0).min() for name in ("low_resolution", "rotation")] == [
        255,
        255,
    ]


def test_the_shorter_side_chooses_the_table() -> None:
    sides = ((32, 32), (64, 64), (84, 900), (900, 84), (85, 85), (224, 224))
    assert [constants_of("gaussian_blur", 1, *both) for both in sides] == [0.4, 0.4, 0.4, 0.4, 1, 1]
    assert (
        constants_of("jpeg_compression", 5, 84, 90) == 40
        and constants_of("jpeg_compression", 5, 85, 90) == 7
    )


def test_other_names_severities_and_pictures_are_refused() -> None:
    picture = photograph(20, 20)
    with pytest.raises(KeyError):
        corrupt(picture, "rain", 1, seed=0)
    for severity in (0, 6):
        with pytest.raises(ValueError, match="severity is 1 to 5"):
            corrupt(picture, "fog", severity, seed=0)
    for other in (picture[:7], picture[..., 0], picture / 255.0):
        with pytest.raises(ValueError, match="a picture is uint8"):
            corrupt(other, "fog", 1, seed=0)


def test_plain_gain_and_offset_are_found_in_what_they_made() -> None:
    base = photograph(60, 70) // 2 + 40
    shifted = apply_gain(base, 0.4, 30)
    gain, offset = contrast_match(base, shifted)
    assert gain == pytest.approx(0.4, abs=0.01) and offset == pytest.approx(30, abs=1)
    assert np.abs(apply_gain(base, gain, offset).astype(int) - shifted).max() <= 1


def test_a_match_takes_brightness_and_contrast_of_a_picture_whose_content_is_another() -> None:
    base = photograph(60, 70, 1)
    other = photograph(40, 40, 2) // 4 + 90
    matched = apply_gain(base, *contrast_match(base, other)) @ np.array([0.299, 0.587, 0.114])
    luma = other @ np.array([0.299, 0.587, 0.114])
    assert matched.mean() == pytest.approx(luma.mean(), abs=1) and matched.std() == pytest.approx(
        luma.std(), rel=0.05
    )


def test_flat_pictures_are_matched_by_their_mean() -> None:
    flat = np.full((20, 20, 3), 77, np.uint8)
    textured = photograph(20, 20)
    assert contrast_match(flat, textured)[0] == 1.0
    assert (
        apply_gain(flat, *contrast_match(flat, flat + np.uint8(50))).tolist()
        == (flat + 50).tolist()
    )
    assert contrast_match(textured, flat) == pytest.approx((0.0, 77.0), abs=1e-6)
    assert set(apply_gain(textured, *contrast_match(textured, flat)).ravel().tolist()) == {77}


def test_compressing_a_small_jpeg_file_again_changes_it_less() -> None:
    picture = photograph(32, 32)
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=75)
    compressed = np.asarray(Image.open(buffer))
    lossless, again = (
        np.abs(corrupt(image, "jpeg_compression", 2, seed=0) - image.astype(float)).mean()
        for image in (picture, compressed)
    )
    assert again < lossless
