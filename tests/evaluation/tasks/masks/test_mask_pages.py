"""What the pages of segmenters say of classes: those near chance, and the one of most pixels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.building.build_dataset import build
from counterfoil.evaluation import evaluate
from support.masks import RECIPE, ColourSegmenter, mask_folder


def test_notes_count_the_classes_of_mean_drops_and_most_pixels_are_pale(tmp_path: Path) -> None:
    masks = mask_folder(tmp_path / "patches", 12)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path / "patches"))
    build(recipe, tmp_path / "built", device="cpu", workers=1)

    def without_signs(images: list[Any]) -> list[Any]:
        answers = ColourSegmenter()(images)
        return [np.minimum(answer, 1) for answer in answers]

    result = evaluate(
        tmp_path / "built",
        {"mine": without_signs},
        class_order={"mine": "position"},
        out=tmp_path / "report",
    )
    drop = result.results.rows.one("drop", model="mine", group="fog", at="mIoU")
    assert drop is not None and drop.note == "over 2 of 3 classes"
    report = Path(result.files["report"]).read_text(encoding="utf-8")
    assert "mine: near chance on the base for sign. Mean drops are over 2 of 3 classes." in report
    failures = Path(result.files["failures"]).read_text(encoding="utf-8")
    shown = re.findall(r'style="background: (#\w+)"></span>([\w ]+)</li>', failures)
    assert [name for _, name in shown] == ["ground", "box", "sign", "no class"]
    pixels = np.bincount(np.concatenate([mask.ravel() for mask in masks]))
    most = int(pixels[:3].argmax())
    pale = [name for colour, name in shown if len(set(re.findall("..", colour[1:]))) == 1]
    assert pale == [shown[most][1], "no class"]
