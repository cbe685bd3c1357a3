"""What timm publishes comes out as published, and stands beside evaluations of ImageNet classes alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest

from colour_world import NAMES, build_colours, save_colour_model
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.measures.published import published_line, published_models, read_published, timm_name
from counterfoil.evaluation.report import report_html
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.recipe.layering import bundled_folder
from counterfoil.report.published import ACCURACY, SETS, models_table
from counterfoil.report.results import ResultRows, results_from, row

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
def test_the_known_slopes_come_out(shifted: str, linear: tuple[float, float], probit: tuple[float, float]) -> None:
    line = published_line(shifted)
    assert (round(line.slope, 3), round(line.r_squared, 3)) == linear
    assert (round(line.probit_slope, 3), round(line.probit_r_squared, 3)) == probit


def test_the_published_table_says_where_it_is_from() -> None:
    table = read_published()
    columns = ["imagenet", "v2", "sketch", "r", "r_clean", "a", "a_clean", "real"]
    assert table.column_names == ["model", "img_size", *columns] and set(columns) == set(SETS)
    assert {table.schema.field(name).type for name in SETS} == {pa.float32()}
    # In the table of ImageNet-A one model of 1,556 is another.
    assert table.num_rows == 1557 and [table[name].null_count for name in SETS] == [1] * len(SETS)
    assert len(set(zip(table["model"].to_pylist(), table["img_size"].to_pylist(), strict=True))) == 1557
    metadata = table.schema.metadata
    assert metadata[b"license"] == b"Apache-2.0" and re.fullmatch(rb"[0-9a-f]{40}", metadata[b"commit"])
    beside = (bundled_folder() / "published" / "timm.txt").read_text(encoding="utf-8")
    assert metadata[b"commit"].decode() in beside and "Apache-2.0" in beside and metadata[b"source"].decode() in beside


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("resnet50.a1_in1k", "resnet50.a1_in1k"),
        ("resnet50", "resnet50.a1_in1k"),  # the weights that timm loads for it
        ("hf-hub:timm/resnet50.a1_in1k@main", "resnet50.a1_in1k"),
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
    asked = {
        "own": ("resnet50.a1_in1k", 288),
        "near": ("resnet50.a1_in1k", 300),
        "no": ("mine.a1", 224),
        "x": (None, 1),
    }
    found = published_models(asked)
    assert {name: shown for name, (shown, _) in found.items()} == dict.fromkeys(
        ("own", "near"), "resnet50.a1_in1k, 288 px"
    )
    own = found["own"][1]
    assert list(own) == list(SETS)
    # results-imagenet.csv and results-imagenet-r.csv at that commit.
    assert (own["imagenet"], own["r"]) == (pytest.approx(0.81240), pytest.approx(0.38993))


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    folder = tmp_path_factory.mktemp("imagenet")
    models = {
        f"model {place}": f"local-dir:{save_colour_model(folder / str(place), blind=blind, outputs=1000)}"
        for place, blind in enumerate([(), (0,), (1,), (2,), (0, 1)])
    }
    dataset = build_colours(folder / "dataset", IMAGENET_CLASSES)
    return evaluate(dataset, models, device="cpu", out=folder / "out", reference=False)


def test_an_evaluation_of_imagenet_classes_stands_beside_the_published_lines(imagenet: Evaluation) -> None:
    page = imagenet.files["report"].read_text()
    section = page[page.index(f">{HEADING}</h2>") : page.index(">Shifts</h2>")]
    assert "images of these 3 classes are not ImageNet&#39;s validation set" in section
    figure = section[section.index("<svg") : section.index("</svg>")]
    for model in imagenet.sound_models:
        for shift in imagenet.shifts:
            score = imagenet.score(model.name, shift.name)
            assert score.base_accuracy is not None and score.accuracy is not None
            words = f"{model.name}: base {100 * score.base_accuracy:.1f} %, {shift.name} {100 * score.accuracy:.1f} %"
            assert f"<title>{words}</title>" in figure
    for label in ("V2", "Sketch", ">R<", ">A<"):
        assert label in figure
    for number in ("0.963", "1.413", "1.205", "2.546", "1,556"):
        assert f">{number}<" in section
    stored = results_from(imagenet.files["document"].read_bytes(), "results.json")
    assert stored.published is not None and not stored.published.models and not stored.rows.where(ACCURACY)
    assert [(one.shifted, one.clean, one.models) for one in stored.published.lines] == [
        ("v2", "imagenet", 1556), ("sketch", "imagenet", 1556), ("r", "r_clean", 1556), ("a", "a_clean", 1555)
    ]  # fmt: skip


def test_nothing_is_published_of_other_classes(evaluation: Evaluation) -> None:
    assert evaluation.results.published is None
    assert HEADING not in evaluation.files["report"].read_text()
    assert "published" not in evaluation.files["document"].read_text()


def test_models_that_timm_knows_have_a_row_of_their_published_accuracies(imagenet: Evaluation) -> None:
    results, published = imagenet.results, imagenet.results.published
    assert published is not None and models_table(results) is None
    first, second = results.models[:2]
    rows = [row(ACCURACY, value, model=first.name, at=at) for at, value in (("imagenet", 0.81235), ("a", 0.1))]
    results = replace(
        results,
        published=replace(published, models={first.name: "resnet50.a1_in1k, 288 px"}),
        rows=ResultRows([*results.rows, *rows]),
    )
    table = models_table(results)
    assert table is not None
    assert [column.label for column in table.columns] == ["model", "published as", "base here", "ImageNet", "A"]
    [only] = table.rows
    assert [cell.text for cell in only.cells] == [first.short_name, "resnet50.a1_in1k, 288 px", "100.0", "81.2", "10.0"]
    assert "resnet50.a1_in1k, 288 px" in report_html(results, ())
    # In a card a model has its public name.
    public = with_public_names(replace(results, models=(replace(first, name="local-dir:/a/b"), second))).published
    assert public is not None and list(public.models) == [first.name]
