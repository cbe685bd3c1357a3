"""Every picture lies in its own square of its sheet, whole, unstretched, and reduced."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from counterfoil.evaluation.failures import COLUMNS, IMAGES_A_SHEET, SIDE, sheet_rows, sprite_sheets

COLOURS = [(at * 37 % 256, at * 91 % 256, at * 151 % 256) for at in range(IMAGES_A_SHEET + 5)]


def near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(abs(a - b) <= 14 for a, b in zip(one, other, strict=True))


def test_every_picture_is_in_its_square() -> None:
    found = list(sprite_sheets(Image.new("RGB", (40, 40), colour) for colour in COLOURS))
    assert len(found) == 2
    assert sheet_rows(len(COLOURS)) == [COLUMNS, 1]
    sheets = [Image.open(io.BytesIO(sheet)).convert("RGB") for sheet in found]
    assert [sheet.size for sheet in sheets] == [(40 * COLUMNS, 40 * COLUMNS), (40 * COLUMNS, 40)]
    for place, colour in enumerate(COLOURS):
        at = place % IMAGES_A_SHEET
        pixel = sheets[place // IMAGES_A_SHEET].getpixel((at % COLUMNS * 40 + 20, at // COLUMNS * 40 + 20))
        assert isinstance(pixel, tuple) and near(pixel, colour), place


@pytest.mark.parametrize("size", [(1000, 500), (300, 900)])
def test_a_large_picture_is_reduced_in_its_proportions(size: tuple[int, int]) -> None:
    [sheet] = sprite_sheets([Image.new("RGB", size, (250, 10, 10))])
    picture = Image.open(io.BytesIO(sheet)).convert("RGBA").crop((0, 0, SIDE, SIDE))
    box = picture.getchannel("A").point([255 * (alpha > 128) for alpha in range(256)]).getbbox()
    assert box is not None
    width, height = box[2] - box[0], box[3] - box[1]
    assert max(width, height) == SIDE
    assert abs(width / height - size[0] / size[1]) < 0.05 * size[0] / size[1]


def test_a_picture_that_cannot_be_decoded_leaves_its_square_empty() -> None:
    [sheet] = sprite_sheets([Image.new("RGB", (20, 20), (1, 200, 3)), None, Image.new("RGB", (20, 20), (1, 2, 200))])
    alpha = Image.open(io.BytesIO(sheet)).convert("RGBA").getchannel("A")
    assert [alpha.getpixel((20 * place + 10, 10)) for place in range(4)] == [255, 0, 255, 0]
