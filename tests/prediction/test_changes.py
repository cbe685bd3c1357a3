"""Changes of how images are prepared are what other programs do, and concern the files that they
say."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.corrupting.corrupt import corrupt
from counterfoil.data.labelled_images import Chunks, LabelledImages, rows_of
from counterfoil.errors import UserError
from counterfoil.models.classifiers.of_python import classifier_of
from counterfoil.models.preparation import Preparation
from counterfoil.prediction.asking import Model, prepared_batches
from counterfoil.prediction.changes import OWN, Change, ChangedPreparation, changes_file
from support.images import encoded, noise

OWN_WAY = Preparation(40, (32, 32), "bicubic", mean=(0.5,) * 3, std=(0.5,) * 3)
MODEL: Any = SimpleNamespace(name="mine", largest_side=32)
PICTURE = noise(1, 90, 70).resize((180, 140))


def _prepared(change: Change, picture: Image.Image = PICTURE, file: bytes = b"") -> torch.Tensor:
    """Return what a model gets of a picture under a change."""
    prepared = change.of(MODEL, OWN_WAY)
    assert isinstance(prepared, ChangedPreparation)

    def usual(image: Image.Image) -> torch.Tensor:
        return OWN_WAY.tensor(OWN_WAY.fitted(image))

    return prepared.transform("mine", usual)(picture, file, 7)


def _levels(picture: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
    return (pixels / 255 - 0.5) / 0.5


def _cropped(picture: Image.Image, side: int) -> Image.Image:
    left = round((picture.width - side) / 2)
    top = round((picture.height - side) / 2)
    return picture.crop((left, top, left + side, top + side))


# Pillow resizes by these filters.
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}


@pytest.mark.parametrize("name", FILTERS)
def test_an_interpolation_is_that_of_pillow(name: str) -> None:
    resized = PICTURE.resize((51, 40), FILTERS[name])
    torch.testing.assert_close(_prepared(Change(name)), _levels(_cropped(resized, 32)))


def test_a_squash_keeps_the_whole_picture() -> None:
    resized = PICTURE.resize((32, 32), Image.Resampling.BICUBIC)
    torch.testing.assert_close(_prepared(Change("squash")), _levels(resized))


def test_a_crop_share_moves_the_resize() -> None:
    resized = PICTURE.resize((41, 32), Image.Resampling.BICUBIC)
    torch.testing.assert_close(_prepared(Change("crop_100")), _levels(_cropped(resized, 32)))


def test_a_crop_keeps_the_size_of_an_input_that_is_resized_to_both_sides() -> None:
    squashed = replace(OWN_WAY, resized=(28, 32), crop=None)
    prepared = Change("crop_87").of(MODEL, squashed)
    assert isinstance(prepared, ChangedPreparation) and prepared.preparation is not None
    fitted = prepared.preparation.fitted(PICTURE)
    resized = PICTURE.resize((36, 32), Image.Resampling.BICUBIC)
    expected = np.array(resized.crop((2, 2, 34, 30)))
    np.testing.assert_array_equal(np.array(fitted), expected)


def test_without_antialias_pixels_between_are_skipped() -> None:
    # Of 140 rows, 40 remain: each is between two rows, as OpenCV computes it.
    at = (np.arange(40) + 0.5) * 140 / 40 - 0.5
    low = np.floor(at).astype(int)
    share = (at - low)[:, None]
    column = np.array(PICTURE)[:, 0, :1].astype(float)
    rows = column[low] * (1 - share) + column[np.minimum(low + 1, 139)] * share
    way = replace(OWN_WAY, antialias=False, interpolation="bilinear", library="torchvision")
    assert Change("bilinear_without_antialias").of(MODEL, OWN_WAY) == ChangedPreparation(
        Change("bilinear_without_antialias"), way
    )
    tall = Image.fromarray(np.repeat(np.array(PICTURE)[:, :1], 40, axis=1))
    fitted = replace(way, resized=(40, 40), crop=None).fitted(tall)
    assert np.abs(np.array(fitted)[:, 0, :1] - rows).max() <= 1


def test_channels_and_normalisation() -> None:
    usual = OWN_WAY.tensor(OWN_WAY.fitted(PICTURE))
    torch.testing.assert_close(_prepared(Change("bgr")), usual.flip(0))
    torch.testing.assert_close(_prepared(Change("not_normalised")), usual * 0.5 + 0.5)


def test_a_corruption_is_of_the_cropped_picture() -> None:
    fitted = OWN_WAY.fitted(PICTURE)
    expected = _levels(corrupt(fitted, "gaussian_noise", 4, seed=7))
    torch.testing.assert_close(_prepared(Change("noise_4", "gaussian_noise", 4)), expected)


def test_a_picture_that_is_too_small_to_corrupt_is_an_error() -> None:
    tiny = ChangedPreparation(Change("fog", "fog", 3), Preparation())
    with pytest.raises(UserError, match="5 x 9 pixels for a model, and corruptions need 8"):
        tiny.transform("mine", lambda image: image)(noise(0, 5, 9), b"", 0)


REFUSED = {
    "the model's own filter": (Change("bicubic"), OWN_WAY, OWN),
    "the model's own normalisation": (Change("half_mean"), OWN_WAY, OWN),
    "its own crop": (Change("crop_100"), replace(OWN_WAY, resized=32), OWN),
    "its own sides": (Change("crop_100"), replace(OWN_WAY, resized=(32, 32), crop=None), OWN),
    "nothing known": (Change("bilinear"), None, "how images are prepared for it is not known"),
    "no resize": (
        Change("squash"),
        Preparation(),
        "it takes images as they are, without a resize",
    ),
    "no crop": (
        Change("crop_87"),
        Preparation(32),
        "it does not crop, so the size of its input depends on the image",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_model_cannot_take_is_said(name: str) -> None:
    change, preparation, why = REFUSED[name]
    assert change.of(MODEL, preparation) == why


def test_a_callable_with_a_transform_takes_jpegs_of_reduced_size() -> None:
    """Its input has the size that its transform gives."""

    def first_levels(batch: Any) -> Any:
        return np.asarray(batch)[:, :, 0, 0]

    def prepare(image: Image.Image) -> torch.Tensor:
        return _levels(image.resize((24, 32)))

    _, prepared = classifier_of("mine", first_levels, prepare, PICTURE)
    _, plain = classifier_of("mine", first_levels, None, PICTURE)
    change = Change("jpeg_scaled")
    assert change.of(prepared, None) == ChangedPreparation(change, None, 32)
    assert change.of(plain, None) == "the size of its input is not known"


def test_exif_turns_the_picture() -> None:
    exif = Image.Exif()
    exif[274] = 6
    turned = encoded(PICTURE, "PNG", exif=exif.tobytes())
    upright = PICTURE.transpose(Image.Transpose.ROTATE_270)
    expected = OWN_WAY.tensor(OWN_WAY.fitted(upright))
    torch.testing.assert_close(_prepared(Change("exif_applied"), file=turned), expected)
    assert changes_file("exif_applied", turned)
    assert not changes_file("exif_applied", encoded(PICTURE))


@pytest.mark.parametrize("size", [(90, 70), (91, 71)])
def test_plain_chroma_changes_colours_beside_edges_alone(size: tuple[int, int]) -> None:
    flat = encoded(Image.new("RGB", size, (200, 40, 90)), "JPEG", quality=95)
    sharp = encoded(noise(2, 9, 7).resize(size, Image.Resampling.NEAREST), "JPEG", quality=95)
    apart = []
    for file in (flat, sharp):
        usual = Image.open(_stream(file)).convert("RGB")
        plain = ChangedPreparation(Change("jpeg_plain_chroma"), None)._read(usual, file)
        light = [np.array(image.convert("YCbCr"), int)[:, :, 0] for image in (usual, plain)]
        apart.append(np.abs(np.array(usual, int) - np.array(plain, int)).max())
        assert plain.size == size and np.abs(light[0] - light[1]).mean() < 3
    assert apart[0] <= 1 and apart[1] > 20


def test_a_scaled_jpeg_is_smaller() -> None:
    file = encoded(PICTURE.resize((360, 280)), "JPEG")
    with Image.open(_stream(file)) as opened:
        scaled = ChangedPreparation(Change("jpeg_scaled"), None, 32)._read(
            opened.convert("RGB"), file
        )
    assert scaled.size == (45, 35)


FILES = {
    "png": (encoded(PICTURE), False, False),
    "4:2:0": (encoded(PICTURE, "JPEG", subsampling="4:2:0"), True, True),
    "4:4:4": (encoded(PICTURE, "JPEG", subsampling="4:4:4"), True, False),
    "no image": (b"no image", False, False),
}


@pytest.mark.parametrize("name", FILES)
def test_which_files_a_decoder_concerns(name: str) -> None:
    file, scaled, chroma = FILES[name]
    assert changes_file("jpeg_scaled", file) == scaled
    assert changes_file("jpeg_plain_chroma", file) == chroma


class _Seen(Model):
    """A model whose input is the seed of an image, and the length of its file."""

    name = "seen"
    key = "seen"
    input_key = "seen"
    of_files = True

    def transform(self) -> Any:
        return lambda image, file, seed: torch.tensor([seed, len(file)])


def test_an_image_comes_with_its_file_and_seed_also_to_a_worker() -> None:
    files = [encoded(noise(number, 12 + number)) for number in range(7)]
    seeds = np.arange(100, 107)
    keys = tuple(map(str, range(7)))
    none = np.zeros(7, np.int64)
    images = LabelledImages(
        "mine", "0", keys, none, none, ("all",), lambda _: zip(keys, files, strict=True),
        seeds=seeds,
    )  # fmt: skip
    wanted = [[int(seed), len(file)] for seed, file in zip(seeds, files, strict=True)]
    of_workers = []
    for chunk in Chunks(images, 3):
        assert chunk.seeds is not None
        batches = prepared_batches(chunk.encoded, [_Seen()], 2, "cpu", seeds=chunk.seeds.tolist())
        for _, inputs in batches:
            of_workers += inputs["seen"].tolist()
    assert of_workers == wanted
    some = rows_of(images, np.array([1, 4]))
    assert some.seeds is not None and some.seeds.tolist() == [101, 104]


def _stream(file: bytes) -> io.BytesIO:
    return io.BytesIO(file)
