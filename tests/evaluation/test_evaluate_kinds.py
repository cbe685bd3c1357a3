"""Any classifier goes through `evaluate`: modules, functions, transformers, open_clip, files of
predictions."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from colour_kinds import ColourModule, as_tensor, colour_function, save_colour_transformer
from colour_world import NAMES, build_colours, png_of
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.results import Evaluation
from counterfoil.models.classifiers import load_classifier
from counterfoil.recipe import load_recipe
from counterfoil.report.reference import model_sentences
from counterfoil.stats import Estimate
from results_examples import top1
from support.images import encoded
from support.measured import measured
from support.refusals import refuses
from support.reports import evaluation_html
from support.tables import csv_rows

# Scores of a classifier that is right about colours: `swap` paints a third of its images as the
# next class.
TRUTH = {"dusk": 1.0, "swap": 1 - 4 / 12}


def scores_of(
    evaluation: Evaluation, model: str, without: Sequence[str] = ()
) -> list[dict[str, Estimate | None]]:
    scores = [score for score in evaluation.scores if score.model == model]
    left_out = ("calibration_error", *without)  # differs with other or rounded confidences
    return [
        {name: score.get(name) for name in score.numbers if name not in left_out}
        for score in scores
    ]


def accuracies(evaluation: Evaluation, model: str) -> dict[str, float | None]:
    return {score.shift: score.accuracy for score in evaluation.scores if score.model == model}


def text_of(evaluation: Evaluation, table: str) -> str:
    assert evaluation.task is not None
    return evaluation.task.all_tables(evaluation.results)[table][1]


def tables(evaluation: Evaluation) -> list[str]:
    """Return tables of the only model without its name."""
    [model] = evaluation.models
    return [
        text_of(evaluation, name).replace(model.name, "MODEL") for name in ("shifts", "classes")
    ]


class TestCallables:
    def test_a_torch_module_a_function_and_named_models_stand_in_one_table(
        self, dataset: Path, models: dict[str, str]
    ) -> None:
        given: dict[str, Any] = {
            "mine": ColourModule(),
            "graph": colour_function,
            "timm": models["sharp"],
        }
        result = measured(dataset, given, transform={"mine": as_tensor})
        assert [model.name for model in result.models] == ["mine", "graph", "timm"]
        for name in given:
            assert accuracies(result, name) == pytest.approx(TRUTH)
        assert scores_of(result, "mine") == scores_of(result, "graph")
        assert [model.param_count is None for model in result.models] == [False, True, False]
        rows = text_of(result, "results").splitlines()
        assert len(rows) == 4 and "mine,,100.000" in rows[2]

    def test_a_module_is_in_eval_mode_and_afterwards_as_it_was(self, dataset: Path) -> None:
        model = ColourModule().train()
        model.dropout.eval()
        measured(dataset, {"mine": model}, transform=as_tensor)
        assert set(model.in_training) == {False}
        assert (model.training, model.dropout.training) == (True, False)
        model.directions.requires_grad_(True)
        model(torch.rand(2, 3, 4, 4)).sum().backward()  # training works after the run

    @pytest.mark.parametrize("fails", [RuntimeError("no such kernel"), KeyError("x")])
    def test_a_module_that_fails_is_reported_by_name_and_stays_in_training(
        self, dataset: Path, fails: Exception
    ) -> None:
        class Failing(ColourModule):
            def forward(self, batch: torch.Tensor) -> torch.Tensor:
                if len(batch) > 1:
                    raise fails
                return super().forward(batch)

        model = Failing().train()
        with pytest.raises(
            RunFailure, match="model 'mine': failed with a batch of shape"
        ) as refused:
            models = {"mine": model, "other": colour_function}
            measured(dataset, models, transform=as_tensor)
        assert "other 1 are kept" in (refused.value.hint or "") and model.training

    def test_answers_of_callables_are_never_remembered(self, tmp_path: Path) -> None:
        dataset = build_colours(tmp_path / "dataset")
        wrong = measured(dataset, {"mine": ColourModule((1, 2, 0))}, transform=as_tensor)
        right = measured(dataset, {"mine": ColourModule()}, transform=as_tensor)
        assert (top1(wrong).value, top1(right).value) == (0.0, 1.0)
        assert not list((dataset / ".counterfoil").rglob("predictions/*"))

    def test_outputs_are_matched_by_an_attribute_label_names(self, dataset: Path) -> None:
        model: Any = ColourModule((2, 0, 1))
        by_place = measured(dataset, {"mine": model}, transform=as_tensor)
        model.label_names = ["Blue", "RED", "green"]
        by_name = measured(dataset, {"mine": model}, transform=as_tensor)
        assert (top1(by_place).value, top1(by_name).value) == (0.0, 1.0)
        assert (by_place.models[0].outputs, by_name.models[0].outputs) == ("source labels", "names")

    def test_transforms_are_one_for_all_or_one_a_model(self, dataset: Path) -> None:
        def last(image: Image.Image) -> np.ndarray:
            return np.asarray(image.resize((5, 9)), dtype=np.float32)

        def channels_last(batch: np.ndarray) -> list[list[float]]:
            assert batch.shape[1:] == (9, 5, 3)
            return colour_function(batch.transpose(0, 3, 1, 2) / 255).tolist()

        given: dict[str, Any] = {"keras": channels_last, "mine": ColourModule()}
        result = measured(dataset, given, transform={"keras": last, "mine": as_tensor})
        alone = measured(dataset, {"keras": channels_last}, transform=last)
        assert scores_of(result, "keras") == scores_of(alone, "keras") == scores_of(result, "mine")

    def test_what_is_no_classifier_is_reported_together(self, dataset: Path) -> None:
        given: dict[Any, Any] = {
            "number": 3,
            "scalar": lambda batch: 0.5,
            "text": lambda batch: ["a"],
            "raises": lambda batch: batch.nothing,
            "four": lambda batch: np.zeros((len(batch), 4)),
            "name": "resnet81",
            "bell\a": colour_function,
        }
        with pytest.raises(CounterfoilError) as refused:
            measured(dataset, given, transform={"nmber": lambda image: image})
        text = "\n".join(refused.value.problems)
        for says in (
            "there is no callable 'nmber'; did you mean 'number'", "'number': is int, which cannot"
                " be called",
            "'scalar': gives scores of shape []", "'text': gives list", "'raises': failed", "did you mean 'resnet",
            "expected a printable text as its name",
        ):  # fmt: skip
            assert says in text
        with pytest.raises(UserError, match="'four': has 4 outputs, and the classes need"):
            measured(dataset, {"four": given["four"]})
        with refuses("unfit-option", "transform"):
            measured(dataset, ["lab:resnet10t"], transform=np.asarray)

    def test_a_transform_that_fails_or_gives_unequal_shapes_is_reported(
        self, dataset: Path
    ) -> None:
        sizes = iter(range(10, 10_000))
        for transform, says in (
            (lambda image: image.nothing, "its transform failed"),
            (lambda image: np.zeros((3, next(sizes), 4), np.float32), "a batch needs one shape"),
            (lambda image: "pixels", "its transform|expected"),
        ):
            with pytest.raises(CounterfoilError, match=says):
                measured(dataset, {"mine": ColourModule()}, transform=transform)


class TestTransformers:
    def test_a_folder_is_scored_by_the_names_of_its_outputs(
        self, dataset: Path, models: dict[str, str], tmp_path: Path
    ) -> None:
        folder = save_colour_transformer(tmp_path / "vit", names=("blue", "other", "red", "green"))
        name = f"transformers:{folder}"
        result = measured(dataset, [name, models["sharp"]])
        assert accuracies(result, name) == pytest.approx(TRUTH)
        ours, timms = result.models
        assert (ours.outputs, ours.num_classes, ours.img_size, ours.short_name) == (
            "names",
            4,
            32,
            "vit",
        )
        assert timms.outputs == "source labels"
        assert "has the class’s name" in evaluation_html(result.results)

    def test_answers_are_remembered_by_content(self, tmp_path: Path) -> None:
        dataset = build_colours(tmp_path / "dataset")
        folder = save_colour_transformer(tmp_path / "vit")
        measured(dataset, [f"transformers:{folder}"])
        entries = {
            path: path.read_bytes() for path in (dataset / ".counterfoil" / "predictions").iterdir()
        }
        folder.rename(tmp_path / "moved")
        again = measured(dataset, [f"transformers:{tmp_path / 'moved'}"])
        assert top1(again).value == 1.0 and len(entries) == 1
        save_colour_transformer(folder, blind=(0,))
        other = measured(dataset, [f"transformers:{folder}"])
        assert top1(other).value == pytest.approx(2 / 3)

    def test_its_folder_is_not_reported_to_everybody(self, tmp_path: Path) -> None:
        dataset = build_colours(tmp_path / "dataset")
        folder = save_colour_transformer(tmp_path / "secret" / "vit")
        name = f"transformers:{folder}"
        evaluate(dataset, [name], device="cpu", into_card=True, reference=False)
        stored = json.loads((dataset / "evaluation" / "results.json").read_text())
        assert [model["name"] for model in stored["models"]] == ["transformers:./vit"]
        unpublished = {".counterfoil", "index.html"}
        published = [
            path
            for path in dataset.rglob("*")
            if path.is_file() and unpublished.isdisjoint(path.parts)
        ]
        assert not any(b"secret" in path.read_bytes() for path in published)


def test_a_zero_shot_model_answers_with_the_datasets_own_classes(tmp_path: Path) -> None:
    """Images are lab scenes of three garments, which the lab's CLIP knows."""
    from counterfoil.lab.vocabulary import CLASSES
    from counterfoil.lab.world import render
    from lab_training.corpora import unbiased_scene

    wanted = [CLASSES.index(name) for name in ("trouser", "bag", "ankle boot")]

    def picture(sample: Any) -> bytes:
        scene = unbiased_scene(len(CLASSES) * (100 + sample.index) + wanted[sample.label])
        return encoded(render(scene))

    classes = ", ".join(
        f"{{id: '{label:02d}', name: {CLASSES[label]}, source_label: {label}}}" for label in wanted
    )
    changes = [f"source.classes=[{classes}]", "samples.candidates=6"]
    dataset = build_colours(tmp_path / "dataset", *changes, image=picture)
    result = measured(dataset, ["open_clip:lab:clip"])
    [model] = result.models
    assert (model.num_classes, model.outputs, model.top_k) == (3, "names", 2)
    assert top1(result).value > 0.6
    again = measured(dataset, ["open_clip:lab:clip"])
    assert again.scores == result.scores


def scored_by(dataset: Path, model: str) -> tuple[list[str], np.ndarray]:
    classifier = load_classifier(model)
    transform = classifier.transform()
    keys = []
    rows = []
    for key, image in open_dataset(dataset).images():
        assert image is not None
        keys.append(key)
        rows.append(
            classifier.logits(transform(Image.open(io.BytesIO(image)).convert("RGB"))[None], "cpu")[
                0
            ].numpy()
        )
    return keys, np.stack(rows)


def write(path: Path, columns: dict[str, Any]) -> str:
    table = pa.table(columns)
    if path.suffix == ".csv":
        pc.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return f"predictions:{path}"


Columns = Callable[[list[str], np.ndarray], dict[str, Any]]


def _probabilities(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64))
    return shares / shares.sum(axis=1, keepdims=True)


FORMS: dict[str, Columns] = {
    "scores": lambda keys, logits: {"key": keys, **{name: logits[:, i] for i, name in enumerate(NAMES)}},
    "other order": lambda keys, logits: {
        "blue": logits[::-1, 2], "RED": logits[::-1, 0], "key": keys[::-1], "green, lime": logits[::-1, 1],
    },
    "rows": lambda keys, logits: {"row": range(len(keys)), **{name: logits[:, i] for i, name in enumerate(NAMES)}},
    "probabilities": lambda keys, logits: {
        "key": keys, **{name: _probabilities(logits)[:, i] for i, name in enumerate(NAMES)},
    },
    "labels": lambda keys, logits: {"key": keys, "label": [NAMES[i] for i in logits.argmax(1)]},
    "class ids": lambda keys, logits: {"key": keys, "class_id": [f"{i:02d}" for i in logits.argmax(1)]},
}  # fmt: skip


@pytest.fixture(scope="module")
def directly(dataset: Path, models: dict[str, str]) -> dict[str, Evaluation]:
    """Return the evaluation of each model alone."""
    return {name: measured(dataset, [models[name]]) for name in ("sharp", "no_red")}


class TestPredictions:
    # Each form once, each kind of file with each model.
    @pytest.mark.parametrize(
        ("form", "suffix", "model"),
        list(zip(FORMS, cycle(["csv", "parquet", "parquet", "csv"]), cycle(["sharp", "no_red"]))),
    )
    def test_a_models_own_answers_give_its_own_tables(
        self,
        dataset: Path,
        models: dict[str, str],
        directly: dict[str, Evaluation],
        tmp_path: Path,
        form: str,
        suffix: str,
        model: str,
    ) -> None:
        keys, logits = scored_by(dataset, models[model])
        file = write(tmp_path / f"answers.{suffix}", FORMS[form](keys, logits))
        direct = directly[model]
        result = measured(dataset, [file])
        if form in ("labels", "class ids"):  # a label ranks no second answer
            assert result.models[0].top_k == 1
            assert result.number("top_k", model=file, group="base", at="1") == top1(result)
        else:
            assert tables(result) == tables(direct)
        assert top1(result) == top1(direct)
        without = ("top_k",) if form in ("labels", "class ids") else ()
        assert scores_of(result, file, without) == scores_of(direct, models[model], without)

    def test_images_that_it_has_not_seen_are_counted_and_named(
        self, dataset: Path, models: dict[str, str], tmp_path: Path
    ) -> None:
        keys, logits = scored_by(dataset, models["sharp"])
        columns = FORMS["labels"](keys, logits)
        left = [i for i in range(len(keys)) if i % 10 != 3]
        part = write(
            tmp_path / "part.csv",
            {name: [values[i] for i in left] for name, values in columns.items()},
        )
        missing = keys[3::10]
        with pytest.raises(
            UserError, match=f"no answer to {len(missing)} of {len(keys)} images: "
        ) as refused:
            measured(dataset, [part])
        assert f"{', '.join(missing[:5])} and {len(missing) - 5} more" in refused.value.problems[0]
        assert "cannot score images that it has not seen" in (refused.value.hint or "")
        empty = write(tmp_path / "empty.csv", {"key": keys, "label": ["", *columns["label"][1:]]})
        with pytest.raises(UserError, match=f"no answer to 1 of {len(keys)} images: {keys[0]}"):
            measured(dataset, [empty])
        more = {"key": [*keys, "elsewhere"], "label": [*columns["label"], "red"]}
        assert top1(measured(dataset, [write(tmp_path / "more.csv", more)])).value == 1.0

    def test_scores_of_minus_infinity_are_no_answer(
        self, dataset: Path, models: dict[str, str], tmp_path: Path
    ) -> None:
        keys, logits = scored_by(dataset, models["sharp"])
        logits[3] = -np.inf
        logits[5, 1:] = -np.inf  # one score is an answer
        file = write(tmp_path / "endless.parquet", FORMS["scores"](keys, logits))
        with pytest.raises(UserError, match=f"no answer to 1 of {len(keys)} images: {keys[3]}"):
            measured(dataset, [file])

    def test_equal_best_scores_are_counted_and_reported(
        self, dataset: Path, models: dict[str, str], tmp_path: Path
    ) -> None:
        keys, logits = scored_by(dataset, models["sharp"])
        assert measured(dataset, [models["sharp"]]).models[0].tied == 0
        logits[:4] = 1.5  # of all three
        logits[4] = (-9, 2, 2)
        logits[5] = (2, -9, -9)  # of the worst two
        file = write(tmp_path / "rounded.csv", FORMS["scores"](keys, logits))
        result = measured(dataset, [file])
        assert result.models[0].tied == 5
        (sentence,) = (
            text for text in model_sentences(result.results) if "same best score" in text
        )
        assert sentence.startswith("rounded.csv gives two classes the same best score on 5 images")
        assert sentence in html.unescape(evaluation_html(result.results))
        assert csv_rows(text_of(result, "results"))[0]["tied"] == "5"

    def test_an_image_that_nobody_can_decode_needs_no_answer(
        self, models: dict[str, str], tmp_path: Path
    ) -> None:
        def cut(sample: Any) -> bytes:
            return png_of(sample)[
                : 60 if (sample.shift, sample.label, sample.index) == ("dusk", 1, 2) else None
            ]

        dataset = build_colours(tmp_path / "dataset", image=cut)
        opened = open_dataset(dataset)
        left = [i for i, key in enumerate(opened.keys) if key != "dusk_01_000002"]
        columns = {
            "key": [opened.keys[i] for i in left],
            "label": [NAMES[opened.labels[i]] for i in left],
        }
        result = measured(dataset, [write(tmp_path / "answers.csv", columns), models["sharp"]])
        assert result.unreadable == ("dusk_01_000002",)
        assert top1(result).value == 1.0

    def test_two_answers_to_one_image_are_refused(self, dataset: Path, tmp_path: Path) -> None:
        keys = list(open_dataset(dataset).keys)
        twice = write(
            tmp_path / "twice.csv", {"key": [*keys, keys[7]], "label": ["red"] * (len(keys) + 1)}
        )
        with pytest.raises(UserError, match=f"more than one answer to {keys[7]}"):
            measured(dataset, [twice])

    def test_labels_that_are_no_classes_are_wrong_answers_unless_they_may_be_a_class(
        self, dataset: Path, tmp_path: Path
    ) -> None:
        opened = open_dataset(dataset)
        truth = [NAMES[label] for label in opened.labels]
        keys = list(opened.keys)
        blue = truth.index("blue")
        purple = [
            "purple" if name == "blue" and row != blue else name for row, name in enumerate(truth)
        ]
        result = measured(dataset, [write(tmp_path / "purple.csv", {"key": keys, "label": purple})])
        base = range(36)  # 12 images of each colour
        right = [purple[row] == truth[row] for row in base]
        assert blue in base and top1(result).value == pytest.approx(sum(right) / len(right))
        for labels, says in (
            (["purple" if name == "blue" else name for name in truth], "1 class is never answered"),
            (["cat"] * len(keys), "3 classes are never answered"),
        ):
            with pytest.raises(UserError, match=says) as refused:
                measured(dataset, [write(tmp_path / "odd.csv", {"key": keys, "label": labels})])
            assert " | " in refused.value.problems[0] and labels[-1] in refused.value.problems[0]

    def test_nothing_is_remembered_of_a_file(self, tmp_path: Path) -> None:
        dataset = build_colours(tmp_path / "dataset")
        keys = list(open_dataset(dataset).keys)
        labels = open_dataset(dataset).labels
        file = tmp_path / "answers.csv"
        for shift, right in ((0, 1.0), (1, 0.0)):
            answers = [NAMES[(label + shift) % 3] for label in labels]
            result = measured(dataset, [write(file, {"key": keys, "label": answers})])
            assert top1(result).value == right


def test_the_example_of_its_page_runs_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md").read_text()
    section = re.search(r"^## Run it\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert section
    [code] = re.findall(r"^```python\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    dataset = build_colours(tmp_path / "wardrobe-mini")
    save_colour_transformer(tmp_path / "my-vit", names=("blue", "red", "green"))
    opened = open_dataset(dataset)
    write(
        tmp_path / "answers.csv",
        {"key": list(opened.keys), "label": [NAMES[label] for label in opened.labels]},
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "model": ColourModule(),
        "transform": lambda image: torch.from_numpy(
            np.asarray(image, np.float32).transpose(2, 0, 1)
        ),
    }
    exec(code, names)
    result: Evaluation = names["scores"]
    assert [model.name for model in result.models] == ["mine", "vit", "other"]
    assert accuracies(result, "mine") == accuracies(result, "vit") == pytest.approx(TRUTH)
    assert accuracies(result, "other") == {"dusk": 1.0, "swap": 1.0}


def test_the_bundled_recipes_own_models_are_of_known_kinds() -> None:
    from counterfoil.models.classifiers import describe_classifier

    recipe = load_recipe("wardrobe-mini")
    for name in recipe.evaluate.models:
        assert describe_classifier(name, recipe.classes).num_classes == len(recipe.classes)
