"""timm's tables of corruptions have timm's columns, and the means that plain loops give."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from counterfoil.building.build_dataset import build
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from tiny_builds import CLASSES

_COLUMNS = "model,top1,top1_err,top5,top5_err,param_count,img_size,crop_pct,interpolation"
_RECIPE = """
extends: wardrobe-corrupt
name: timm-tables
samples: {candidates: 3}
evaluate:
  models: ["lab:mobilenetv3_small_050", "lab:resnet10t"]
  corrupted:
    grain: {corruption: shot_noise, severity: {by: corruption, levels: [2, 5]}}
"""


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    folder = tmp_path_factory.mktemp("timm")
    recipe = folder / "recipe.yaml"
    recipe.write_text(_RECIPE)
    build(recipe, folder / "dataset", overrides=[CLASSES], device="cpu", workers=1)
    return evaluate(folder / "dataset", out=folder / "out", device="cpu")


def test_each_corruption_has_a_table_of_timms_columns(evaluated: Evaluation) -> None:
    folder = Path(evaluated.files["timm"])
    files = {file.stem: file.read_text() for file in folder.glob("*.csv")}
    assert {"base", "fog", "shot_noise"} <= files.keys() and len(files) == 14
    for text in files.values():
        header, *lines = text.splitlines()
        assert header == _COLUMNS and len(lines) == 2
        for line in lines:
            assert re.fullmatch(
                r"\w+(,\d+\.\d{3}){4},\d+\.\d\d,64,1\.000,(bilinear|bicubic)", line
            ), line


def test_numbers_over_kinds_say_how_many_are_computed(evaluated: Evaluation) -> None:
    for row in evaluated.results.rows.where("mPC"):
        assert (row.note or "").endswith("; 1 of 13 kinds at each model's own size")


def test_top1_is_a_mean_over_severities(evaluated: Evaluation) -> None:
    answers = pd.read_parquet(evaluated.files["predictions"])
    table = pd.read_csv(Path(evaluated.files["timm"]) / "shot_noise.csv").set_index("model")
    assert list(table.top1) == sorted(table.top1, reverse=True)
    for model in ("mobilenetv3_small_050", "resnet10t"):
        right = answers[f"right.lab:{model}"]
        means = [right[answers["shift"] == level].mean() for level in ("grain_2", "grain")]
        assert table.top1[model] == pytest.approx(100 * sum(means) / 2, abs=5e-4)
        assert table.top1[model] + table.top1_err[model] == pytest.approx(100)
