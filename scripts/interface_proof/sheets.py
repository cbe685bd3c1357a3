"""Pictures of the proof's pairs, for the README: drawn by noise and by attention, and edits beside the truth."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import render
from counterfoil.store import read_rows
from interface_proof.edits import rows_of

SHOWN = ("base", "in_the_grass", "in_the_snow", "in_the_rain", "at_dusk", "at_night")
_LABELS = (0, 3, 5, 8)  # of each band: the first image of these classes
_SIDE, _GAP, _HEAD = 64, 2, 14

Row = Sequence[np.ndarray]


def pair_sheet(noise: Path, attention: Path) -> Image.Image:
    """The same noise drawn in pairs of either kind, side by side."""
    return _beside(
        _sheet("pairs: noise", [_images(noise, label) for label in _LABELS]),
        _sheet("pairs: attention", [_images(attention, label) for label in _LABELS]),
    )


def edit_sheet(edits: Path) -> Image.Image:
    """Edits of rows, and the same scenes rendered under each shift."""
    rows = rows_of(edits)
    scenes = [wardrobe_scene("validation", rows[label, 0]) for label in _LABELS]
    true = [[render(scene if shift == "base" else scene.shifted(shift)) for shift in SHOWN] for scene in scenes]
    return _beside(
        _sheet("edits of real images", [_images(edits, label) for label in _LABELS]),
        _sheet("the truth", true),
    )


def _images(directory: Path, label: int) -> Row:
    """The first image of a class under each of the shifts, rejected or not."""
    found = {}
    for what in ("data", "rejected"):
        for row in read_rows(directory, columns=["image", "label", "shift", "index"], what=what):
            if row["label"] == label and row["index"] == 0:
                found[row["shift"]] = np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))
    return [found[shift] for shift in SHOWN]


def _sheet(title: str, rows: Sequence[Row]) -> Image.Image:
    step = _SIDE + _GAP
    sheet = Image.new("RGB", (step * len(SHOWN), 2 * _HEAD + step * len(rows)), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    draw.text((0, 0), title, "black", font)
    for column, shift in enumerate(SHOWN):
        draw.text((column * step, _HEAD), shift.replace("_", " ").removeprefix("in the "), "#444444", font)
        for place, row in enumerate(rows):
            sheet.paste(Image.fromarray(row[column]), (column * step, 2 * _HEAD + place * step))
    return sheet


def _beside(left: Image.Image, right: Image.Image) -> Image.Image:
    both = Image.new("RGB", (left.width + 12 + right.width, max(left.height, right.height)), "white")
    both.paste(left, (0, 0))
    both.paste(right, (left.width + 12, 0))
    return both.resize((both.width * 3 // 2, both.height * 3 // 2), Image.Resampling.LANCZOS)


def write_sheets(folder: Path, noise: Path, attention: Path, edits: Path) -> None:
    """`pairs.webp` and `edits.webp`, of the classes t-shirt, dress, sandal and bag."""
    assert [CLASSES[label] for label in _LABELS] == ["t-shirt", "dress", "sandal", "bag"]
    pair_sheet(noise, attention).save(folder / "pairs.webp", quality=80, method=6)
    edit_sheet(edits).save(folder / "edits.webp", quality=80, method=6)
