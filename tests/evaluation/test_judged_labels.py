"""What an evaluation says of a dataset's labels: by a second judge, unchecked, or nothing of images no build made."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image
from test_evaluate_command import app
from typer.testing import CliRunner

from counterfoil.evaluation import evaluate
from counterfoil.evaluation.measures.labels import with_scored_judge
from counterfoil.label_checks import judged_checks
from counterfoil.report.labels import spoken_labels

JUDGE = "lab:resnet14t"
SHIFTS = ["base", "at_night", "red"]
COUNTS = {("base", "a"): (100, 0), ("at_night", "a"): (100, 40), ("red", "a"): (100, 10)}
SURE = {"a": {"a": 150}, "b": {"b": 150}}


def test_one_line_tells_of_the_base_and_of_the_shift_in_most_doubt() -> None:
    said = spoken_labels(judged_checks(JUDGE, COUNTS, SURE, SHIFTS))
    assert "estimated label error 0.0 % (" in said and "under base" in said and JUDGE in said
    assert "at most 40.0 % (" in said and "under at_night" in said and "red" not in said and "300 validation" in said
    plain = spoken_labels(judged_checks(JUDGE, COUNTS, None, SHIFTS))
    assert "plain disagreement" in plain and "error 40" not in plain and "not known" in plain
    assert "no accepted image" in spoken_labels(judged_checks(JUDGE, {}, SURE, SHIFTS))


def test_an_estimate_comes_with_its_assumption_and_with_how_many_shifts_have_none() -> None:
    said = spoken_labels(judged_checks(JUDGE, COUNTS, SURE, [*SHIFTS, "fog"]))
    assert "1 of 4 has no estimate" in said and "takes for granted" in said and "upper" not in said
    whole = spoken_labels(judged_checks(JUDGE, COUNTS, SURE, SHIFTS))
    assert "no estimate" not in whole and "takes for granted" in whole
    assert "takes for granted" not in spoken_labels(judged_checks(JUDGE, COUNTS, None, SHIFTS))


def test_images_that_the_judge_picked_are_no_shift_in_doubt() -> None:
    said = spoken_labels(judged_checks(JUDGE, COUNTS, SURE, SHIFTS, picked={"at_night"}))
    assert "at_night" not in said and "under red" in said
    alone = spoken_labels(judged_checks(JUDGE, {("red", "a"): (100, 100)}, SURE, ["red"], picked={"red"}))
    assert "%" not in alone and "picked" in alone


def test_a_judge_that_is_scored_too_is_told_by_its_weights_or_its_name() -> None:
    checks = judged_checks(JUDGE, COUNTS, SURE, SHIFTS)
    pinned = {"judges": {JUDGE: {"sha256": "a" * 64}}}
    models = [("lab:other", "b" * 64), ("local-dir:copy", "a" * 64), (JUDGE, "c" * 64), (JUDGE, None)]
    found = with_scored_judge(checks, pinned, models)
    assert found is not None and found.also_scored == ("local-dir:copy", JUDGE)
    assert spoken_labels(found).endswith("its own drop is part of this estimate")
    other = with_scored_judge(checks, pinned, models[:1])
    assert other is not None and "its own drop" not in spoken_labels(other)
    assert with_scored_judge(None, pinned, models) is None


def test_a_dataset_without_a_second_judge_is_unchecked(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    arguments = ["evaluate", str(dataset), "--models", models["sharp"], "--out", str(tmp_path)]
    told = CliRunner().invoke(app, arguments)
    assert "labels: unchecked" in told.stdout
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["label_checks"]
    assert document["judge"] is None
    assert "base" in [one["shift"] for one in document["shifts"]]


def test_of_images_that_no_build_made_nothing_is_said(named: str, tmp_path: Path) -> None:
    for name, colour in (("red", "#ff0000"), ("green", "#00ff00"), ("blue", "#0000ff")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), colour).save(tmp_path / "photos" / name / "0.png")
    found = evaluate(tmp_path / "photos", [named], out=tmp_path / "out", device="cpu")
    assert found.label_checks is None and "label_checks" not in found.to_json()
