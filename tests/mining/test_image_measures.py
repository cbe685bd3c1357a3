"""Measures of images and files, against pictures of known light, colour and focus and Pillow's own
encoder."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from counterfoil.mining.slice_columns import IMAGE_MEASURES, jpeg_quality, measure_image

NAMES = [measure.name for measure in IMAGE_MEASURES]
PLAIN = Image.new("RGB", (60, 30), (200, 100, 0))
GRAIN = Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8))


def encoded(image: Image.Image, form: str = "PNG", **options: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def measured(image: Image.Image) -> dict[str, float]:
    return dict(zip(NAMES, measure_image(image, encoded(image)), strict=True))


def test_a_plain_picture_has_the_numbers_of_its_colour() -> None:
    numbers = measured(PLAIN)
    assert numbers["brightness"] == pytest.approx(0.299 * 200 + 0.587 * 100, abs=1)
    assert numbers["contrast"] == numbers["variance of the Laplacian"] == 0
    assert (numbers["saturation"], numbers["red minus blue"]) == (255, 200)
    assert (numbers["size"], numbers["width divided by height"], numbers["JPEG quality"]) == (
        1800,
        2,
        100,
    )


def test_light_colour_and_focus_order_pictures() -> None:
    darker = GRAIN.point(lambda value: value // 2)
    blurred = GRAIN.filter(ImageFilter.GaussianBlur(2))
    grey = GRAIN.convert("L").convert("RGB")
    plain = measured(GRAIN)
    assert measured(darker)["brightness"] < 0.6 * plain["brightness"]
    assert measured(blurred)["variance of the Laplacian"] < 0.1 * plain["variance of the Laplacian"]
    assert measured(blurred)["contrast"] < plain["contrast"]
    assert measured(grey)["saturation"] == 0
    assert measured(Image.new("RGB", (1, 1)))["variance of the Laplacian"] == 0


def test_a_large_picture_is_measured_as_it_is_reduced_and_keeps_its_size() -> None:
    large = GRAIN.resize((600, 300))
    before = large.tobytes()
    assert measured(large)["size"] == 600 * 300
    assert large.tobytes() == before
    assert measured(large)["brightness"] == pytest.approx(measured(GRAIN)["brightness"], abs=3)


@pytest.mark.parametrize("quality", [5, 15, 20, 49, 50, 75, 90, 95, 100])
def test_the_quality_is_the_one_that_pillow_saved_with(quality: int) -> None:
    assert jpeg_quality(encoded(GRAIN, "JPEG", quality=quality)) == pytest.approx(quality, abs=1)


def test_numbers_are_shown_once_with_their_unit() -> None:
    brightness = IMAGE_MEASURES[NAMES.index("brightness")]
    size = IMAGE_MEASURES[NAMES.index("size")]
    assert (
        brightness.words(61.6) == "62 of 255" and brightness.words(80.2, 41.4) == "41 to 80 of 255"
    )
    assert (
        size.words(150_000) == "150,000 pixels"
        and IMAGE_MEASURES[NAMES.index("width divided by height")].words(0.75) == "0.75"
    )
