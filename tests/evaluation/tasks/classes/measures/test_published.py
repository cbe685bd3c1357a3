"""What timm publishes comes out as published, and stands beside evaluations of ImageNet classes
alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from colour_world import NAMES, build_colours, save_colour_model
from counterfoil.accuracy_stats import effective_robustness
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.evaluation.tasks.classes.measures import published
from counterfoil.evaluation.tasks.classes.measures.published import (
    published_line,
    published_models,
    read_published,
    timm_name,
)
from counterfoil.recipe.layering import bundled_folder
from counterfoil.report.published import ACCURACY, SETS, models_table
from counterfoil.report.results import results_from
from support.measured import measured
from support.reports import evaluation_html
from support.tables import csv_rows

HEADING = "Beside published models"
INDICES = "".join(
    f"{{id: '{label:02d}', name: {name}, source_label: {label}, imagenet: [{label}]}}, "
    for label, name in enumerate(NAMES)
)
IMAGENET_CLASSES = f"source.classes=[{INDICES}]"


@pytest.mark.parametrize(
    ("shifted", "linear", "probit"),
    [
        ("v2", (1.144, 0.981), (0.963, 0.992)),
        ("sketch", (1.516, 0.654), (1.413, 0.816)),
        ("r", (2.418, 0.494), (1.205, 0.726)),
        ("a", (3.678, 0.429), (2.546, 0.871)),
    ],
)
def test_the_known_slopes_come_out(
    shifted: str, linear: tuple[float, float], probit: tuple[float, float]
) -> None:
    line = published_line(shifted)
    assert (round(line.slope, 3), round(line.r_squared, 3)) == linear
    assert (round(line.probit_slope, 3), round(line.probit_r_squared, 3)) == probit


def test_the_published_table_says_where_it_is_from() -> None:
    table = read_published()
    columns = ["imagenet", "v2", "sketch", "r", "r_clean", "a", "a_clean", "real"]
    assert table.column_names == ["model", "img_size", *columns] and set(columns) == set(SETS)
    assert {table.schema.field(name).type for name in SETS} == {pa.float32()}
    # One of the 1,556 models in the table of ImageNet-A is another model.
    assert table.num_rows == 1557 and [table[name].null_count for name in SETS] == [1] * len(SETS)
    assert (
        len(set(zip(table["model"].to_pylist(), table["img_size"].to_pylist(), strict=True)))
        == 1557
    )
    metadata = table.schema.metadata
    assert metadata[b"license"] == b"Apache-2.0" and re.fullmatch(
        rb"[0-9a-f]{40}", metadata[b"commit"]
    )
    beside = (bundled_folder() / "published" / "timm.txt").read_text(encoding="utf-8")
    assert (
        metadata[b"commit"].decode() in beside
        and "Apache-2.0" in beside
        and metadata[b"source"].decode() in beside
    )


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("resnet50.a1_in1k", "resnet50.a1_in1k"),
        ("resnet50", "resnet50.a1_in1k"),  # the weights that timm loads for it
        ("hf-hub:timm/resnet50.a1_in1k", "resnet50.a1_in1k"),
        ("hf-hub:timm/resnet50.a1_in1k@main", None),  # a revision may have other weights
        ("hf-hub:somebody/resnet50.a1_in1k", None),
        ("local-dir:resnet50.a1_in1k", None),
        ("./resnet50.a1_in1k", None),
        ("lab:resnet10t", None),
        ("predictions:answers.csv", None),
    ],
)
def test_only_a_model_of_timm_by_its_name_is_known(name: str, known: str | None) -> None:
    assert timm_name(name) == known


def test_a_model_is_published_at_its_own_size_or_the_nearest() -> None:
    wanted = {
        "own": ("resnet50.a1_in1k", 288),
        "near": ("resnet50.a1_in1k", 300),
        "no": ("mine.a1", 224),
        "x": (None, 1),
    }
    matches = published_models(wanted)
    assert {name: shown for name, (shown, _) in matches.items()} == dict.fromkeys(
        ("own", "near"), "resnet50.a1_in1k, 288 px"
    )
    unknown = published_models({"any": ("resnet50.a1_in1k", None)})
    assert (
        unknown["any"][0]
        == "resnet50.a1_in1k, 288 px (the largest published; the model's own size is not known)"
    )
    accuracies = matches["own"][1]
    assert list(accuracies) == list(SETS)
    # results-imagenet.csv and results-imagenet-r.csv at that commit.
    assert (accuracies["imagenet"], accuracies["r"]) == (
        pytest.approx(0.81240),
        pytest.approx(0.38993),
    )


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    folder = tmp_path_factory.mktemp("imagenet")
    models = {
        f"model {index}": f"local-dir:{save_colour_model(folder / str(index), blind=blind, outputs=1000)}"
        for index, blind in enumerate([(), (0,), (1,), (2,), (0, 1), (1, 2)])
    }
    dataset = build_colours(folder / "dataset", IMAGENET_CLASSES)
    return evaluate(
        dataset,
        models,
        device="cpu",
        out=folder / "out",
        reference=False,
    )


def test_an_evaluation_of_imagenet_classes_stands_beside_the_published_lines(
    imagenet: Evaluation,
) -> None:
    page = imagenet.files["report"].read_text()
    section = page[page.index(f">{HEADING}</h2>") : page.index(">Shifts</h2>")]
    assert "images of 3 classes are not ImageNet&#39;s validation set" in section
    figure = section[section.index("<svg") : section.index("</svg>")]
    for model in imagenet.sound_models:
        for shift in imagenet.shifts:
            score = imagenet.score(model.name, shift.name)
            assert score.drop_base is not None and score.accuracy is not None
            words = (
                f"{model.name}: base {100 * score.drop_base:.1f} %, {shift.name}"
                f" {100 * score.accuracy:.1f} %"
            )
            assert f"<title>{words}</title>" in figure
    for label in ("V2", "Sketch", ">R<", ">A<"):
        assert label in figure
    for number in ("0.963", "1.413", "1.205", "2.546", "1,556"):
        assert f">{number}<" in section
    stored = results_from(imagenet.files["document"].read_bytes(), "results.json")
    assert (
        stored.published is not None
        and not stored.published.models
        and not stored.rows.where(ACCURACY)
    )
    assert [(line.shifted, line.clean, line.models) for line in stored.published.lines] == [
        ("v2", "imagenet", 1556), ("sketch", "imagenet", 1556), ("r", "r_clean", 1556), ("a", "a_clean", 1555)
    ]  # fmt: skip


def test_six_models_have_their_effective_robustness(imagenet: Evaluation) -> None:
    assert len(imagenet.sound_models) == len(imagenet.models) == 6
    for shift in imagenet.shifts:
        scores = [imagenet.score(model.name, shift.name) for model in imagenet.models]
        base, shifted = np.array(
            [[score.drop_base, score.accuracy] for score in scores], dtype=np.float64
        ).T
        expected = effective_robustness(base, shifted, (shift.base_images, shift.images))
        estimates = [score.get("effective_robustness") for score in scores]
        assert [estimate.value for estimate in estimates if estimate] == pytest.approx(expected)
        assert all(
            estimate
            and estimate.low is not None
            and estimate.high is not None
            and estimate.low < estimate.high
            for estimate in estimates
        )
    assert ">Effective robustness</h2>" in imagenet.files["report"].read_text()
    assert all(line["effective_robustness"] for line in csv_rows(imagenet.files["robustness"]))


def test_nothing_is_published_of_other_classes(evaluation: Evaluation) -> None:
    assert evaluation.results.published is None
    assert HEADING not in evaluation.files["report"].read_text()
    assert "published" not in json.loads(evaluation.files["document"].read_text())


def test_models_that_timm_knows_have_a_row_of_their_published_accuracies(
    imagenet: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert models_table(imagenet.results) is None and imagenet.directory is not None
    # The second folder stands for timm's weights, which are not on this machine.
    folders = [f"local-dir:{imagenet.directory.parent / folder}" for folder in ("0", "1")]
    names = {folders[1]: "resnet50.a1_in1k"}
    monkeypatch.setattr(published, "timm_name", names.get)
    given = dict(zip(("mine", "theirs"), folders, strict=True))
    result = measured(imagenet.directory, given)
    assert result.results.published is not None
    # it takes 32 pixels here
    assert result.results.published.models == {"theirs": "resnet50.a1_in1k, 224 px"}
    rows = {row.at: row for row in result.results.rows.where(ACCURACY)}
    assert list(rows) == list(SETS) and {row.model for row in rows.values()} == {"theirs"}
    table = models_table(result.results)
    assert table is not None and [len(table.rows), len(table.columns)] == [1, 3 + len(SETS)]
    texts = [cell.text for cell in table.rows[0].cells]
    # results-imagenet.csv and results-imagenet-a.csv at that commit.
    assert texts[:4] == ["theirs", "resnet50.a1_in1k, 224 px", "66.7", "80.4"] and "10.0" in texts
    assert "resnet50.a1_in1k, 224 px" in evaluation_html(result.results)
    # In a card a model has its public name.
    named = replace(result.results.models[1], name="local-dir:/a/theirs")
    facts = replace(result.results.published, models={named.name: "resnet50.a1_in1k, 224 px"})
    public = with_public_names(replace(result.results, models=(named,), published=facts)).published
    assert public is not None and list(public.models) == ["local-dir:./theirs"]
