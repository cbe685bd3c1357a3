"""Units of classifiers' images (frames of one video): resampled wherever an interval is, from a
folder to a report."""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.data.labelled_images import deal_halves
from counterfoil.data.open_source import open_source
from counterfoil.dataset.verification import verify
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures import source as measure_source
from counterfoil.mining.audited import opened_parts
from counterfoil.recipe import load_recipe
from counterfoil.resampled_stats import Units
from counterfoil.stats import Estimate
from support.estimates import interval_of

VIDEOS = 10
FRAMES = 12
NAMES = ("cat", "dog")
RECIPE = """
recipe: 1
name: videos
source:
  dataset: {folder}
  train_split: train
  validation_split: train
  unit_column: {unit}
  classes: [cat, dog]
generator: {{kind: corrupt, split: train}}
prompts: {{shifts: {{fog: {{corruption: fog, severity: {{levels: [1, 3]}}}}}}}}
samples: {{candidates: {candidates}}}
output: {{image: {{format: png}}}}
"""
GATE = [
    "accuracy(base) >= 90",
    "drop(fog_3) <= 20",
    "drop(fog_3, top1) <= 20",
    "relative_drop(fog_3) <= 20%",
    "drop(fog_3, calibration_error) <= 20",
    "worse_than(MODEL, fog_3) <= 20",
]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write twelve frames of each of ten videos; half of each video's frames show a cat, half a
    dog."""
    folder = tmp_path_factory.mktemp("videos") / "frames"
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file_name", "video", "label"])
        for number in range(VIDEOS * FRAMES):
            Image.fromarray(rng.integers(60, 120, (16, 16, 3)).astype(np.uint8)).save(
                folder / f"{number:03d}.png"
            )
            rows.writerow(
                [f"{number:03d}.png", f"video {number % VIDEOS}", NAMES[number // VIDEOS % 2]]
            )
    return folder


@functools.cache
def evaluated(
    videos: Path, unit: str, lost: int = 5, candidates: int = VIDEOS * FRAMES // 2
) -> Evaluation:
    """Build with these units, and evaluate answers that are right but for the frames under fog of
    some videos."""
    folder = videos.parent / f"{unit}-{candidates}"
    if not folder.exists():
        folder.mkdir()
        recipe = RECIPE.format(folder=videos, unit=unit, candidates=candidates)
        (folder / "recipe.yaml").write_text(recipe)
        build(folder / "recipe.yaml", folder / "built", device="cpu", workers=1)
    models = []
    table = pq.ParquetDataset(folder / "built" / "data").read(
        columns=["key", "shift", "source_row", "label"]
    )
    for name, videos_lost in (("model", lost), ("other", lost // 2)):
        file = folder / f"{name}-{lost}.csv"
        models.append(f"predictions:{file}")
        with file.open("w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["key", *NAMES])
            for row in table.to_pylist():
                wrong = row["shift"] != "base" and row["source_row"] % VIDEOS < videos_lost
                share = 0.95 if (row["label"] == 0) != wrong else 0.05
                rows.writerow([row["key"], share, 1 - share])
    gate = [line.replace("MODEL", f'"{models[1]}"') for line in GATE]
    return evaluate(
        folder / "built",
        models,
        out=folder / f"report-{lost}",
        gate=gate,
        compare=(models[0], models[1]),
    )


def half(estimate: Estimate | None) -> float:
    low, _, high = interval_of(estimate)
    return (high - low) / 2


def test_frames_of_ten_videos_are_ten_and_not_a_hundred(videos: Path) -> None:
    by_video = evaluated(videos, "video")
    by_frame = evaluated(videos, "null")
    for evaluation, low, high in ((by_video, 0.30, 0.38), (by_frame, 0.08, 0.11)):
        rows = evaluation.results.rows
        model = evaluation.results.models[0].name
        key = {"model": model, "group": "fog_3"}
        assert rows.value("drop", **key) == pytest.approx(0.5)
        for measure in ("drop", "relative_drop", "pairs_drop", "top1", "calibration_error"):
            assert low <= half(rows.estimate(measure, **key)) < high, measure
        assert low < half(rows.estimate("severity_drop", model=model, group="fog", at="0.2")) < high
        assert evaluation.gate is not None
        lengths = {judged.line.text: half(judged.estimate) for judged in evaluation.gate.judged}
        for line in GATE[1:5]:  # the intervals of all lines hold at once
            assert low < lengths[line] < 2 * high, line


def test_the_report_says_over_how_many_units_of_what(videos: Path) -> None:
    evaluation = evaluated(videos, "video")
    assert f"{VIDEOS * FRAMES} images share 10 units of `video`" in "\n".join(evaluation.notes)
    assert "share 10 units of <code>video</code>" in evaluation.files["report"].read_text()
    assert json.loads(evaluation.files["document"].read_text())["units"] == {
        "column": "video",
        "count": 10,
    }
    row = evaluation.results.rows.one(
        "drop", model=evaluation.results.models[0].name, group="fog_3"
    )
    assert row is not None and row.units == 10
    assert evaluated(videos, "null").results.units is None


def test_fewer_than_ten_units_give_no_interval(videos: Path) -> None:
    evaluation = evaluated(videos, "video", candidates=4)
    results = evaluation.results
    assert results.units is not None and results.units.count < 10
    drawn = (
        "drop",
        "relative_drop",
        "pairs_drop",
        "impact",
        "top1",
        "accuracy",
        "calibration_error",
        "gain",
    )
    for row in results.rows:
        assert row.measure not in drawn or row.low is None, row
    assert "Numbers have no interval: it needs 10 units." in "\n".join(evaluation.notes)
    assert evaluation.gate is not None and {
        judged.verdict for judged in evaluation.gate.judged
    } == {"undecided"}


def test_rows_store_the_number_of_their_video_and_a_dataset_is_whole(videos: Path) -> None:
    evaluated(videos, "video")
    built = videos.parent / f"video-{VIDEOS * FRAMES // 2}" / "built"
    table = pq.ParquetDataset(built / "data").read(columns=["source_row", "unit"]).to_pylist()
    assert all(row["unit"] == row["source_row"] % VIDEOS for row in table), (
        "a number, not the video's name"
    )
    assert verify(built).whole


def test_mining_and_distances_know_the_videos_of_a_built_dataset(videos: Path) -> None:
    evaluated(videos, "video")
    built = videos.parent / f"video-{VIDEOS * FRAMES // 2}" / "built"
    dataset = open_dataset(built)
    stored = {row["key"]: row["unit"] for row in dataset.stored("unit")}
    of_keys = np.array([stored[key] for key in dataset.keys])
    recipe = load_recipe(built)
    (images,) = opened_parts(
        recipe,
        [str(built)],
        open_source(recipe.source),
    )
    assert images.units is not None
    halves = deal_halves(images.labels, 0, images.units)
    assert not {*of_keys[halves.discover]} & {*of_keys[halves.confirm]}, (
        "no video is in both halves"
    )
    for units in (np.array(images.units), measure_source._subject_units(dataset)):
        together = {*zip(units.tolist(), of_keys.tolist(), strict=True)}
        assert len(together) == len({*units.tolist()}) == VIDEOS


def test_classes_of_one_unit_vary_as_one_class_of_these_units() -> None:
    """Twelve classes of one video each: the average's error is that of twelve videos, in one class
    or in twelve."""
    rng = np.random.default_rng(1)
    units = np.arange(12).repeat(5)
    right = rng.random(12).repeat(5)[:, None]
    draws = Units.of(units)
    apart = draws.average([(units[units == unit], right[units == unit]) for unit in range(12)])
    assert apart == pytest.approx(draws.mean(units, right))
    assert apart.std() == pytest.approx(right[::5].std(ddof=1) / 12**0.5, rel=0.05)
