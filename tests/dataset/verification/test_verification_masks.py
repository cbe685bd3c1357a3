"""Masks that no build writes are found, although receipts and manifest agree."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from doctored import Rows, doctor, path_of, problem_of
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.store.reading import read_receipts
from support.masks import RECIPE, mask_folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    mask_folder(folder / "patches", 3)
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder / "patches"))
    build(folder / "recipe.yaml", folder / "built", device="cpu", workers=1)
    assert verify(folder / "built").problems == ()
    return folder / "built"


def saved(picture: Image.Image, format: str = "PNG") -> bytes:
    stream = io.BytesIO()
    picture.save(stream, format)
    return stream.getvalue()


def numbered(mask: Image.Image, number: int) -> bytes:
    numbers = np.array(mask)
    numbers[5, 5] = number
    return saved(Image.fromarray(numbers))


MASKS: dict[str, tuple[Callable[[Image.Image], bytes], str]] = {
    "another size": (lambda mask: saved(mask.resize((8, 6))), "it has 8×6 pixels, and its image"),
    "in colours": (lambda mask: saved(mask.convert("RGB")), "it has the channels RGB"),
    "of 16 bits, a number beyond": (
        lambda mask: saved(Image.fromarray(np.full_like(mask, 300, dtype=np.uint16))),
        "its mask cannot be used",
    ),
    "a JPEG": (lambda mask: saved(mask, "JPEG"), "it is JPEG, expected PNG"),
    "no picture": (lambda mask: b"no", "UnidentifiedImageError"),
    "empty": (lambda mask: b"", "it is empty"),
    "cut off": (lambda mask: saved(mask)[:60], "its mask cannot be used"),
    "a number beyond": (
        lambda mask: numbered(mask, 3),
        "its mask has the number 3, expected 0 to 2, or 255 for none",
    ),
    "another class": (
        lambda mask: numbered(mask, 2),
        'its mask differs from that of "base_images_000001"',
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_no_build_writes_is_found(built: Path, tmp_path: Path, name: str) -> None:
    change, expected = MASKS[name]

    def with_mask(rows: Rows) -> Rows:
        cell = rows[1]["mask"]
        with Image.open(io.BytesIO(cell["bytes"])) as mask:
            cell = cell | {"bytes": change(mask)}
        return [rows[0], rows[1] | {"mask": cell}, *rows[2:]]

    directory = Path(shutil.copytree(built, tmp_path / "built"))
    receipt = next(each for each in read_receipts(directory) if each.group == "fog")
    doctor(directory, receipt, "data", with_mask)
    problems = problem_of(verify(directory), path_of(receipt, "data"))
    assert any(expected in problem.what for problem in problems), problems
