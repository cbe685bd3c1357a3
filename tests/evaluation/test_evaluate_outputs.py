"""A model with more outputs than the dataset has classes answers both ways; every page names the
leading way."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from colour_world import CANDIDATES, build_colours, save_colour_model
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.entries import entry_files
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.report import class_entry
from counterfoil.plan.layout import sample_key
from counterfoil.prediction.asking import Pass
from counterfoil.report.results import results_from
from support.measured import measured
from support.refusals import refuses, succeed

OVER_ALL = "accuracy_all_outputs"
OVER_CLASSES = "accuracy_class_outputs"
LEADS = {
    "all": "Models answer over all their outputs",
    "classes": "Models answer over the outputs of this dataset",
}


def scores_file(folder: Path) -> str:
    """Write shares of three colours and of purple, which is best on the first three dusk images of
    each class."""
    lines = ["key,red,green,blue,purple"]
    for group, label, index in product(("base", "dusk", "swap"), range(3), range(CANDIDATES)):
        purple = 0.5 if group == "dusk" and index < 3 else 0.0
        shares = [(1 - purple) * (0.6 if output == label else 0.2) for output in range(3)]
        lines.append(
            ",".join([sample_key(group, f"{label:02d}", index), *map(str, shares), str(purple)])
        )
    folder.mkdir()
    (folder / "answers.csv").write_text("\n".join(lines))
    return f"predictions:{folder / 'answers.csv'}"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a dataset, and the names of a file of scores and of a model that always answers its
    fourth output."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("wide")
    dataset = build_colours(folder / "dataset")
    saved = save_colour_model(folder / "outsider", outputs=4, labels=True) / "model.safetensors"
    weights: dict[str, Any] = load_file(saved)
    weights["fc.bias"] = weights["fc.bias"] + torch.tensor([0.0, 0.0, 0.0, 100.0])
    save_file(weights, saved, metadata={"format": "pt"})
    return dataset, [scores_file(folder / "scores"), f"local-dir:{folder / 'outsider'}"]


def run(wide: tuple[Path, list[str]], outputs: Any, out: Path) -> Evaluation:
    return evaluate(
        wide[0], wide[1], device="cpu", out=out, reference=False, outputs=outputs, into_card=True
    )


def test_both_accuracies_are_computed_and_each_leads_where_it_is_asked_for(
    wide: tuple[Path, list[str]], tmp_path: Path
) -> None:
    dataset, (scores, outsider) = wide
    by_way = {way: run(wide, way, tmp_path / way) for way in ("all", "classes")}
    quarter = 1 - 3 / CANDIDATES
    for way, result in by_way.items():
        number = result.results.rows.value
        assert number(OVER_ALL, model=scores, group="dusk") == pytest.approx(quarter)
        assert number(OVER_CLASSES, model=scores, group="dusk") == 1.0
        leading = OVER_ALL if way == "all" else OVER_CLASSES
        for model in (scores, outsider):
            for group in ("base", "dusk", "swap"):
                accuracy = number("accuracy", model=model, group=group)
                assert accuracy == pytest.approx(number(leading, model=model, group=group))
        document = results_from((tmp_path / way / "results.json").read_bytes(), "results.json")
        assert document.outputs == way
        other = LEADS["classes" if way == "all" else "all"]
        assert (
            LEADS[way] in result.files["report"].read_text()
            and other not in result.files["report"].read_text()
        )
    # Only purple answers are wrong at dusk.
    drops = [by_way[way].score(scores, "dusk").drop for way in ("all", "classes")]
    assert [drop.value for drop in drops if drop] == [pytest.approx(1 - quarter), 0.0]
    near = {way: [model.near_chance for model in result.models] for way, result in by_way.items()}
    assert near == {"all": [False, True], "classes": [False, False]}
    assert (
        by_way["classes"].models[1].chance == pytest.approx(1 / 3)
        and by_way["all"].models[1].chance == 0.25
    )
    # The card shows the last evaluation.
    assert LEADS["classes"] in " ".join((dataset / "README.md").read_text().split())
    notes = [
        row["notes"]
        for row in yaml.safe_load(
            next(iter(entry_files(by_way["classes"].results, class_entry, "a/b").values()))
        )
    ]
    assert all("answers over the dataset's classes alone" in note for note in notes)


def test_a_model_without_other_outputs_is_not_said_to_answer_over_the_classes_alone(
    wide: tuple[Path, list[str]],
    models: dict[str, str],
) -> None:
    sentence = b"answers over the dataset's classes alone"
    names = [models["sharp"], wide[1][1]]
    alone = measured(wide[0], names[:1], outputs="classes").results
    both = measured(wide[0], names, outputs="classes").results
    assert (alone.outputs, both.outputs) == ("all", "classes")
    texts = [
        text
        for results in (alone, both)
        for text in entry_files(results, class_entry, "a/b").values()
    ]
    assert [sentence in text for text in texts] == [False, False, True]


def test_the_default_is_all_and_the_recipe_or_the_option_says_otherwise(
    wide: tuple[Path, list[str]], tmp_path: Path
) -> None:
    dataset, models = wide
    assert measured(dataset, models).results.outputs == "all"
    by_recipe = build_colours(tmp_path / "own", "evaluate.outputs=classes")
    result = measured(by_recipe, models[1:])
    assert result.results.outputs == "classes" and result.results.base_number(models[1]) is not None
    words = ["evaluate", str(dataset), "--no-reference", "--out", str(tmp_path)]
    done = succeed(*words, "--outputs", "classes", "--models", *models)
    assert LEADS["classes"] in done.stdout


def test_answers_of_both_ways_are_remembered(
    wide: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, models = wide
    first = measured(dataset, models, outputs="classes")
    monkeypatch.setattr(Pass, "ask", None)  # no model runs again
    again = measured(dataset, models, outputs="classes")
    assert again.results.rows == first.results.rows


def test_answers_over_all_outputs_are_not_compared_with_those_over_some(
    wide: tuple[Path, list[str]], tmp_path: Path
) -> None:
    dataset, (scores, _) = wide
    earlier = evaluate(
        dataset,
        [scores],
        device="cpu",
        out=tmp_path,
        reference=False,
    )
    gate = [f"worse_than({earlier.files['document']}, dusk) <= 5"]
    same = measured(dataset, [scores], gate=gate).gate
    assert same is not None and [line.estimate.value for line in same.judged if line.estimate] == [
        0.0
    ]
    with refuses(
        "unfit-results",
        "gate",
        "its answers are over the outputs `all`",
    ):
        measured(dataset, [scores], gate=gate, outputs="classes")


def test_a_model_without_other_outputs_has_one_accuracy_and_no_word_of_two(
    evaluation: Evaluation,
) -> None:
    rows = evaluation.results.rows
    assert not rows.where(OVER_ALL) and not rows.where(OVER_CLASSES)
    assert "Models answer over" not in evaluation.files["report"].read_text()


def test_what_cannot_answer_over_the_classes_alone_is_refused(
    dataset: Path, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.csv"
    answers.write_text("key,label\nbase_00_00000,red\n")
    with refuses("unusable-model", None, "its answers among the classes alone are unknown"):
        measured(dataset, [f"predictions:{answers}"], outputs="classes")
    with refuses("invalid-option", "outputs", "expected all or classes"):
        measured(dataset, [f"predictions:{answers}"], outputs="some")  # type: ignore[arg-type]


def test_a_scale_that_is_none_is_refused(dataset: Path) -> None:
    scales: Any = {"lab:resnet10t": 3}
    with refuses("invalid-option", "scores_are", "found '3'"):
        measured(dataset, ["lab:resnet10t"], scores_are=scales)
