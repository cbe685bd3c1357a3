"""Any images with labels are scored: folders, splits, the lab's; in groups, against a base, or beside a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from colour_world import COLOURS, NAMES, build_colours
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.lab.wardrobe import load_wardrobe
from counterfoil.models.classifiers import load_classifier
from tiny_builds import run_command

EACH = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An imagefolder: class/number.png, all painted as their class but the first two greens, which are blue."""
    root = tmp_path_factory.mktemp("photos")
    for label, name in enumerate(NAMES):
        (root / name).mkdir()
        for number in range(EACH):
            shown = 2 if name == "green" and number < 2 else label
            Image.new("RGB", (40, 32), COLOURS[shown]).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved table with a column of weather: by fog every red is painted green."""
    import datasets

    rows = [(label, weather) for weather in ("clear", "fog") for label in range(3) for _ in range(EACH)]
    painted = [COLOURS[1] if weather == "fog" and label == 0 else COLOURS[label] for label, weather in rows]
    table = datasets.Dataset.from_dict(
        {
            "image": [Image.new("RGB", (32, 32), colour) for colour in painted],
            "label": [label for label, _ in rows],
            "weather": [weather for _, weather in rows],
        },
        features=datasets.Features(
            {
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=list(NAMES)),
                "weather": datasets.Value("string"),
            }
        ),
    )
    place = tmp_path_factory.mktemp("weather") / "table"
    table.save_to_disk(str(place))
    return place


def test_a_folder_of_images_gives_plain_accuracies(folder: Path, named: str, tmp_path: Path) -> None:
    found = evaluate(folder, [named], out=tmp_path, device="cpu")
    assert found.base is None and found.directory is None
    (score,) = found.scores
    # The mean of the classes: 1, 4 of 6, 1; and each image once.
    assert score.accuracy == pytest.approx((1 + 4 / 6 + 1) / 3)
    assert score.top1 is not None and score.top1.value == pytest.approx(16 / 18)
    assert (score.drop, score.base_accuracy, score.pairs_drop) == (None, None, None)
    assert "No group is a base" in (tmp_path / "report.html").read_text()
    assert repr(found).endswith("sharp, 88.9 % right on all; no base, no drops>")
    json.dumps(found.to_json())


def test_the_classes_may_be_a_recipes(folder: Path, models: dict[str, str], dataset: Path, tmp_path: Path) -> None:
    # Labels of an image folder are in the order of their names: blue, green, red; the recipe's are red, green, blue.
    found = evaluate(folder, [models["sharp"]], recipe=dataset, out=tmp_path, device="cpu")
    assert found.scores[0].accuracy == pytest.approx((1 + 4 / 6 + 1) / 3)


def test_a_group_may_be_the_base(grouped: Path, models: dict[str, str], tmp_path: Path) -> None:
    plain = evaluate(grouped, [models["sharp"]], groups="weather", out=tmp_path / "plain", device="cpu")
    assert {score.shift: score.accuracy for score in plain.scores} == {"clear": 1.0, "fog": pytest.approx(2 / 3)}
    found = evaluate(grouped, [models["sharp"]], groups="weather", base="clear", out=tmp_path / "drop", device="cpu")
    (score,) = found.scores
    assert (score.shift, score.base_accuracy) == ("fog", 1.0)
    assert score.drop is not None and score.drop.value == pytest.approx(1 / 3)
    assert not found.paired and score.pairs_drop is None
    assert "classes.csv" in {path.name for path in (tmp_path / "drop").iterdir()}


def test_natural_images_stand_beside_generated_ones(
    dataset: Path, folder: Path, models: dict[str, str], tmp_path: Path
) -> None:
    chosen = list(models.values())
    alone = evaluate(dataset, chosen, out=tmp_path / "alone", device="cpu")
    found = evaluate(dataset, chosen, beside={"photos": folder}, out=tmp_path / "both", device="cpu")
    assert [shift.name for shift in found.shifts] == ["dusk", "swap", "photos"]
    assert [score for score in found.scores if score.shift != "photos"] == list(alone.scores)
    score = found.score(models["sharp"], "photos")
    assert score.drop is not None and score.drop.value == pytest.approx(1 - (2 + 4 / 6) / 3)
    assert score.pairs == 0 and score.pairs_drop is None
    lines = (tmp_path / "both" / "shifts.csv").read_text().splitlines()
    assert lines[-1].startswith("photos,")
    entries = set((dataset / ".counterfoil" / "predictions").glob("*.parquet"))
    evaluate(dataset, chosen, beside={"photos": folder}, out=tmp_path / "again", device="cpu")
    assert set((dataset / ".counterfoil" / "predictions").glob("*.parquet")) == entries


def test_a_split_of_the_source_is_scored_like_any(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    two = "[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label: 8}]"
    recipe.write_text(f"extends: wardrobe-mini\nsource: {{classes: {two}}}\n")
    found = evaluate("source:validation", ["lab:resnet10t"], recipe=recipe, out=tmp_path / "out", device="cpu")
    model = load_classifier("lab:resnet10t")
    transform, (labels, pixels) = model.transform(), load_wardrobe("validation")
    import torch

    rows = [row for row, label in enumerate(labels) if label in (5, 8)]
    images = torch.stack([transform(Image.fromarray(pixels(row))) for row in rows])
    right = np.concatenate([model.logits(part, "cpu").argmax(1).numpy() for part in images.split(100)]) == labels[rows]
    assert found.scores[0].top1 is not None
    assert found.scores[0].top1.value == pytest.approx(right.mean(), abs=2e-3)
    same = evaluate("lab:wardrobe:validation", ["lab:resnet10t"], recipe=recipe, out=tmp_path / "out", device="cpu")
    assert same.scores == found.scores


def test_answers_are_a_documented_file(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    sharp = models["sharp"]
    found = evaluate(dataset, [sharp, models["no_red"]], out=tmp_path, device="cpu")
    table = pq.read_table(found.files["predictions"])
    assert table.column_names[:4] == ["key", "label", "class_id", "shift"]
    rows = table.to_pylist()
    assert len(rows) == 3 * 3 * 12
    base = [row for row in rows if row["shift"] == "base"]
    assert sum(row[f"right.{sharp}"] for row in base) / len(base) == found.models[0].top1.value
    assert all((row[f"answer.{sharp}"] == row["label"]) == row[f"right.{sharp}"] for row in rows)
    assert all(0 < row[f"confidence.{sharp}"] <= 1 for row in rows)


def test_scores_are_a_data_frame(evaluation) -> None:
    frame = evaluation.to_pandas()
    assert len(frame) == len(evaluation.scores)
    first = evaluation.scores[0]
    assert frame.loc[0, ["model", "shift", "accuracy"]].tolist() == [first.model, first.shift, first.accuracy]
    assert frame.loc[0, "drop_low"] == first.drop.low
    assert len(repr(evaluation)) < 150 and "6 models" in repr(evaluation)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base": "frost", "groups": "weather"}, "has no group 'frost'"),
        ({"groups": "wether"}, "has no column 'wether'"),
        ({"beside": {"v2": "source:validation"}}, "which source"),
        ({"into_card": True}, "is no built dataset|not a Counterfoil dataset"),
    ],
)
def test_what_does_not_fit_is_told(
    grouped: Path, models: dict[str, str], options: dict, told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        evaluate(grouped, [models["sharp"]], out=tmp_path, device="cpu", **options)


def test_a_built_dataset_has_groups_of_its_own(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its recipe, base and groups are its own"):
        evaluate(dataset, [models["sharp"]], base="dusk", out=tmp_path, device="cpu")
    with pytest.raises(UserError, match="two groups 'dusk'"):
        evaluate(dataset, [models["sharp"]], beside={"dusk": "lab:wardrobe:validation"}, out=tmp_path, device="cpu")


def test_the_command_takes_them(folder: Path, named: str, tmp_path: Path) -> None:
    built = build_colours(tmp_path / "built")
    done = run_command(["evaluate", str(folder), "--models", named, "--out", str(tmp_path / "one"), "--device", "cpu"])
    assert done.returncode == 0, done.stderr
    assert "accuracy, percent" in done.stdout
    words = ["evaluate", str(built), "--beside", f"photos={folder}", "--models", named, "--device", "cpu", "--json"]
    both = run_command(words)
    assert both.returncode == 0, both.stderr
    assert [shift["name"] for shift in json.loads(both.stdout)["shifts"]] == ["dusk", "swap", "photos"]
    wrong = run_command(["evaluate", str(built), "--beside", "photos", "--models", named])
    assert wrong.returncode == 2 and "expected NAME=IMAGES" in wrong.stderr
