"""The walk of a person with a classifier of several labels: a folder with columns of labels,
predictions, a report."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import mlcroissant
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, balanced_accuracy_score, recall_score

from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.evaluation.gate import gate_sentence
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import short_names
from counterfoil.evaluation.tasks.labels.subject import MultilabelSubject, open_conditions
from counterfoil.multilabel_stats import LabelTruth
from counterfoil.store.decoding import rgb_image
from support.estimates import interval_of
from support.gate_comments import check_worst_images
from support.labelled_patches import LABELS, colour_classifier, patches_folder, patches_recipe
from support.measured import measured
from support.refusals import refuses

COUNT = 40


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    patches_folder(folder / "data", COUNT)
    build(
        patches_recipe(folder / "recipe.yaml", folder / "data", COUNT),
        folder / "built",
        device="cpu",
        workers=1,
    )
    return folder / "built"


@pytest.fixture(scope="module")
def scores(built: Path) -> dict[str, NDArray[np.float64]]:
    """Return the probabilities of each image by its key, in the order of the labels."""
    answers = {}
    for key, encoded in open_dataset(built).images():
        pixels = np.asarray(rgb_image(encoded or b""), np.float32).transpose(2, 0, 1) / 255
        answers[key] = 1 / (1 + np.exp(-colour_classifier(pixels[None])[0]))
    return answers


@pytest.fixture(scope="module")
def answers_file(built: Path, scores: dict[str, NDArray[np.float64]]) -> Path:
    """Write a file of predictions with a column a label, in another order than the recipe."""
    file = built.parent / "answers.csv"
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["key", *reversed(LABELS)])
        rows.writerows([key, *values[::-1].tolist()] for key, values in scores.items())
    return file


@pytest.fixture(scope="module")
def evaluation(built: Path, answers_file: Path) -> Evaluation:
    gate = [
        "mAP(base) >= 50",
        "drop(fog, mAP) <= 50",
        "drop(fog, label=red) <= 99",
        "advisory: drop(any) <= -100",
    ]
    result = evaluate(
        built, [f"predictions:{answers_file}"], out=built.parent / "report", gate=gate
    )
    assert result.results.lead == "mAP"
    return result


def test_a_comment_shows_the_images_with_most_mistakes(evaluation: Evaluation) -> None:
    names = f"({'|'.join(LABELS)}|none|, )*"
    for answer in check_worst_images(evaluation, evaluation.models[0].name):
        assert re.fullmatch(f"`missed {names}, wrongly given {names}`", answer)


def truth_of(built: Path) -> dict[str, NDArray[np.bool_]]:
    """Return the labels of each image by its key, from the source folder."""
    with (built.parent / "data" / "metadata.csv").open() as file:
        source = [np.array([row[name] == "1" for name in LABELS]) for row in csv.DictReader(file)]
    table = pq.ParquetDataset(built / "data").read(columns=["key", "source_row"]).to_pylist()
    return {row["key"]: source[row["source_row"]] for row in table}


def test_every_image_has_the_labels_of_its_row_once_in_each_group(built: Path) -> None:
    dataset, labels = open_conditions(open_dataset(built))
    present = labels.present
    assert labels.known.all()
    assert Counter(dataset.shifts.tolist()) == dict.fromkeys(range(3), COUNT)
    truth = truth_of(built)
    assert (
        present.any(axis=0).all()
        and (present.sum(axis=1) > 1).any()
        and (present.sum(axis=1) == 0).any()
    )
    assert (present == np.stack([truth[key] for key in dataset.keys])).all()
    report = verify(built, rerender=3, overrides=[f"source.dataset={built.parent / 'data'}"])
    assert (
        not report.problems
        and [image.outcome for image in report.rerendered] == ["identical bytes"] * 3
    )
    readme = (built / "README.md").read_text()
    assert "labels for 3 conditions" in readme and "multi-label-image-classification" in readme


def test_every_group_has_the_numbers_of_scikit_learn(
    built: Path, scores: dict[str, NDArray[np.float64]], evaluation: Evaluation
) -> None:
    truth = truth_of(built)
    rows = evaluation.results.rows
    table = pq.read_table(evaluation.files["predictions"]).to_pylist()
    (model,) = (model.name for model in evaluation.results.models)
    for group in ("base", "fog", "jpeg"):
        images = [image for image in table if image["shift"] == group]
        has = np.stack([truth[image["key"]] for image in images])
        values = np.stack([scores[image["key"]] for image in images])
        precisions = [average_precision_score(has[:, k], values[:, k]) for k in range(3)]
        assert rows.value("mAP", model=model, group=group) == pytest.approx(
            np.mean(precisions), abs=1e-9
        )
        accuracies = []
        for label, name in enumerate(LABELS):
            key = {"model": model, "group": group, "class_id": name}
            assert rows.value("AP", **key) == pytest.approx(precisions[label], abs=1e-9)
            missed = np.array([name in image[f"missed.{model}"] for image in images])
            wrong = np.array([name in image[f"wrongly_given.{model}"] for image in images])
            given = (has[:, label] & ~missed) | wrong
            accuracies.append(balanced_accuracy_score(has[:, label], given))
            assert rows.value("accuracy", **key) == pytest.approx(accuracies[-1], abs=1e-9)
            assert rows.value("missed", **key) == pytest.approx(
                1 - recall_score(has[:, label], given), abs=1e-9
            )
            specificity = recall_score(~has[:, label], ~given)
            assert rows.value("wrongly_given", **key) == pytest.approx(1 - specificity, abs=1e-9)
            assert not (missed & wrong).any()
        assert rows.value("accuracy", model=model, group=group) == pytest.approx(
            np.mean(accuracies), abs=1e-9
        )


def test_drops_are_differences_and_their_intervals_hold_them(evaluation: Evaluation) -> None:
    rows, (model,) = evaluation.results.rows, (model.name for model in evaluation.results.models)
    for measure, at in (("mAP", "mAP"), ("accuracy", "accuracy")):
        for group in ("fog", "jpeg"):
            drop = rows.estimate("drop", model=model, group=group, at=at)
            base, shifted = (
                rows.value(measure, model=model, group=name) or 0.0 for name in ("base", group)
            )
            low, value, high = interval_of(drop)
            assert value == pytest.approx(base - shifted) and low < value < high
    assert evaluation.score(model, "fog").drop == rows.estimate(
        "drop", model=model, group="fog", at="mAP"
    )


def test_a_function_answers_as_its_file_of_predictions_does(
    built: Path, evaluation: Evaluation
) -> None:
    by_function = measured(built, {"mine": colour_classifier})
    filed = {
        (row.measure, row.group, row.class_id, row.at): row.value for row in evaluation.results.rows
    }  # fmt: skip
    assert len(filed) == len(by_function.results.rows)
    for row in by_function.results.rows:
        assert row.value == pytest.approx(
            filed[row.measure, row.group, row.class_id, row.at], abs=1e-6
        )


def test_files_hold_the_document_every_number_and_every_failure(evaluation: Evaluation) -> None:
    document = json.loads(evaluation.files["document"].read_text())
    assert [model["name"] for model in document["models"]] == [evaluation.results.models[0].name]
    (model,) = document["models"]
    with evaluation.files["shifts"].open() as file:
        lines = {line["shift"]: line for line in csv.DictReader(file)}
    key = {"model": model["name"], "group": "fog"}
    number = evaluation.results.rows.value("mAP", **key)
    assert float(lines["fog"]["mAP"]) == pytest.approx(100 * (number or 0), abs=0.006)
    with evaluation.files["labels"].open() as file:
        labels = list(csv.DictReader(file))
    assert [(line["shift"], line["label"]) for line in labels[:4]] == [
        ("base", "red"), ("base", "green"), ("base", "blue"), ("fog", "red")
    ]  # fmt: skip
    assert all(line["threshold_1"] and line["threshold_2"] for line in labels)
    table = pq.read_table(evaluation.files["predictions"]).to_pylist()
    failures = [
        (image["key"], label, outcome)
        for image in table
        for outcome, column in (("missed", "missed"), ("wrongly given", "wrongly_given"))
        for label in image[f"{column}.{model['name']}"]
    ]
    page = evaluation.files["failures"].read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    shown = [
        (
            data["keys"][image],
            data["classes"][data["class"][image]]["id"],
            data["names"][data["models"][0]["answers"][image]],
        )
        for image in data["failures"]
    ]
    assert sorted(shown) == sorted(failures) and failures
    for image, partner in zip(data["failures"], data["partners"], strict=True):
        if partner >= 0:
            assert data["keys"][partner].startswith("base_")
            assert data["class"][partner] == data["class"][image]
    sheets = {sheet["file"] for sheet in data["sheets"]}
    assert all((evaluation.files["failures"].parent / sheet).is_file() for sheet in sheets)


def test_the_report_leads_with_the_loss_and_says_where_thresholds_are_from(
    evaluation: Evaluation,
) -> None:
    page = evaluation.files["report"].read_text()
    assert re.search(r"Your classifier (may lose|loses) most under fog: [\d.]+ points of mAP", page)
    assert "the threshold of the highest accuracy on one half is used on the other" in page
    assert "http://" not in page and "https://" not in page and page.count("<table>") == 3


def test_the_index_page_leads_to_the_report_and_says_what_is_lost(evaluation: Evaluation) -> None:
    page = (evaluation.files["report"].parent / "index.html").read_text()
    assert re.findall(r'href="([^"]*)"', page) == ["report.html", "failures.html"]
    model = evaluation.results.models[0].name
    base = evaluation.number("mAP", model=model, group="base")
    drop = evaluation.score(model, "fog").drop
    assert base is not None and drop is not None
    assert f"has an mAP of {100 * base.value:.1f} % on the base." in page
    assert f" most under fog: {100 * drop.value:.1f} points of mAP (" in page


def test_two_classifiers_are_compared_over_the_labels_that_both_know(
    built: Path, answers_file: Path
) -> None:
    def without_blue(batch: NDArray[np.float32]) -> NDArray[np.float64]:
        scores = colour_classifier(batch)
        scores[:, 2] = np.random.default_rng(0).normal(size=len(scores))
        return scores

    models = {"whole": f"predictions:{answers_file}", "part": without_blue}
    result = evaluate(built, models, out=built.parent / "two")
    rows = result.results.rows
    assert {row.class_id for row in rows.where("drop", model="part", at="AP")} == {"red", "green"}
    gaps = rows.where("drop_difference")
    assert [(row.model, row.against, row.group) for row in gaps] == [
        ("whole", "part", name) for name in ("fog", "jpeg")
    ]
    for gap in gaps:
        drops = [
            [
                rows.value("drop", model=model, group=gap.group, class_id=label, at="AP") or 0.0
                for label in LABELS[:2]
            ]
            for model in ("whole", "part")
        ]
        assert gap.value == pytest.approx(np.mean(drops[0]) - np.mean(drops[1]))
        low, value, high = interval_of(gap)
        assert low < value < high
    for shift in ("fog", "jpeg"):
        # The drop is over fewer labels than mAP: it says over how many, and from which mAP.
        drop = rows.one("drop", model="part", group=shift, at="mAP")
        base, shifted = (
            np.mean(
                [
                    rows.value("AP", model="part", group=group, class_id=label) or 0.0
                    for label in LABELS[:2]
                ]
            )
            for group in ("base", shift)
        )
        assert drop is not None and drop.note == "over 2 of 3 labels"
        assert rows.value("drop_base", model="part", group=shift, at="mAP") == pytest.approx(base)
        assert drop.value == pytest.approx(base - shifted)
        whole = rows.one("drop", model="whole", group=shift, at="mAP")
        assert whole is not None and not whole.note
    page = result.files["report"].read_text()
    shown = (
        f"of {100 * (rows.value('drop_base', model='part', group='fog', at='mAP') or 0.0):.1f}"
        " %, over 2 of 3 labels"
    )
    assert shown in page
    assert ">Classifiers compared</h2>" in page
    assert (
        "part: near chance on the base for blue. Mean drops leave out this label: they are over 2"
        " of 3 labels" in page
    )


def test_models_whose_files_have_one_name_are_told_apart(built: Path, answers_file: Path) -> None:
    twin = built.parent / "twin" / answers_file.name
    twin.parent.mkdir()
    shutil.copyfile(answers_file, twin)
    models = [f"predictions:{file}" for file in (answers_file, twin)]
    result = measured(built, models, gate=["mAP(base) >= 1"])
    assert [model.short_name for model in result.models] == models
    assert result.gate is not None and f"pass for {models[0]} and {models[1]}" in gate_sentence(
        result.gate
    )
    assert (
        short_names([*models, "predictions:data/other.csv"])["predictions:data/other.csv"]
        == "other.csv"
    )


def test_bars_of_all_models_have_one_scale(built: Path, answers_file: Path) -> None:
    result = evaluate(
        built,
        {"mine": f"predictions:{answers_file}", "own": colour_classifier},
        out=built.parent / "bars",
    )
    page = result.files["report"].read_text()
    bars = [
        float(width)
        for width in re.findall(r'class="bar[^"]*" style="left:[\d.]+%;width:([\d.]+)%', page)
    ]
    drops = [
        result.score(model.name, group.name).drop
        for model in result.models
        for group in sorted(
            result.shifts, key=lambda group: -_drop_of(result, model.name, group.name)
        )
    ]
    values = np.array([abs(drop.value) for drop in drops if drop is not None])
    assert np.array(bars) / bars[0] == pytest.approx(values / values[0], abs=0.01)


def _drop_of(evaluation: Evaluation, model: str, group: str) -> float:
    drop = evaluation.score(model, group).drop
    return 0.0 if drop is None else drop.value


def test_results_are_stored_in_the_dataset_and_shown_on_its_card(
    built: Path, answers_file: Path, tmp_path: Path
) -> None:
    dataset = tmp_path / "built"
    shutil.copytree(built, dataset)
    result = evaluate(
        dataset,
        f"predictions:{answers_file}",
        out=tmp_path / "report",
        into_card=True,
        repo="me/labels",
    )
    stored = {path.name for path in (dataset / "evaluation").iterdir()}
    assert stored == {
        "results.json",
        "measures.csv",
        "multilabel.csv",
        "labels.csv",
        "eval_results",
    }
    (entries,) = (dataset / "evaluation" / "eval_results").iterdir()
    rows = yaml.safe_load(entries.read_text())
    assert [row["dataset"]["task_id"] for row in rows] == [
        group.name for group in result.results.groups
    ]
    for row in rows:
        number = result.number("mAP", model=result.models[0].name, group=row["dataset"]["task_id"])
        assert number is not None and row["value"] == round(100 * number.value, 3)
        assert row["notes"].startswith("mAP (macro average precision) in percent; 95 % interval ")
    card = (dataset / "README.md").read_text()
    drop = result.score(result.models[0].name, "fog").drop
    assert "mAP is the mean of the average precision of 3 labels." in card
    assert drop is not None and f"\n| `fog` | {100 * drop.value:.1f} points (" in card
    assert str(tmp_path) not in card, "no path of this machine"
    assert not verify(dataset, rerender=0).problems


def test_a_gate_is_judged_by_the_numbers_of_the_report(evaluation: Evaluation) -> None:
    assert evaluation.gate is not None
    verdicts = {(judged.line.text, judged.group): judged for judged in evaluation.gate.judged}
    assert verdicts["mAP(base) >= 50", "base"].verdict == "pass"
    assert verdicts["drop(fog, mAP) <= 50", "fog"].verdict == "pass"
    assert verdicts["drop(fog, label=red) <= 99", "fog"].verdict == "pass"
    assert {
        verdicts["advisory: drop(any) <= -100", group].verdict for group in ("fog", "jpeg")
    } == {"fail"}
    assert evaluation.gate.verdict == "pass"
    rows, (model,) = evaluation.results.rows, (model.name for model in evaluation.results.models)
    for text, key in (
        ("drop(fog, mAP) <= 50", {}),
        ("drop(fog, label=red) <= 99", {"class_id": "red"}),
    ):
        at = "AP" if key else "mAP"
        estimate = verdicts[text, "fog"].estimate
        assert estimate is not None
        assert estimate.value == pytest.approx(
            rows.value("drop", model=model, group="fog", at=at, **key)
        )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("AP50(base) >= 50", "there is no measure 'AP50'"),
        ("drop(smog) <= 5", "no shift or group 'smog'"),
        ("drop(fog, label=rad) <= 5", "no class 'rad'; did you mean 'red'?"),
        ("drop(fog, recall) <= 5", "there is no measure 'recall'"),
        (
            "worse_than(main/results.json, any) <= 5",
            "earlier evaluations are for classifiers of one class",
        ),
    ],
)
def test_a_gate_of_other_names_is_refused(
    line: str, problem: str, built: Path, answers_file: Path
) -> None:
    with pytest.raises(UserError) as caught:
        measured(built, [f"predictions:{answers_file}"], gate=[line])
    assert problem in "\n".join(caught.value.problems)
    assert "results.json" not in (caught.value.hint or ""), (
        "lines of a gate for several labels name no such file"
    )


def test_the_list_of_images_has_a_column_for_each_label(built: Path, tmp_path: Path) -> None:
    assert write_keys(built, tmp_path / "keys.csv") == len(open_dataset(built).keys)
    with (tmp_path / "keys.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == list(open_dataset(built).keys)
    assert list(rows[0]) == ["key", "path", *LABELS] and {row[LABELS[0]] for row in rows} == {""}


def test_who_guesses_has_no_drop_and_a_gate_of_it_stays_undecided(built: Path) -> None:
    rng = np.random.default_rng(0)
    guess = evaluate(
        built,
        {"guess": lambda batch: rng.normal(size=(len(batch), 3))},
        out=built.parent / "guess",
        gate=["drop(fog) <= 99", "drop(fog, label=red) <= 99"],
        allow_undecided=True,
    )
    assert guess.results.models[0].near_chance
    assert not guess.results.rows.where("drop")
    assert guess.gate is not None
    assert all(
        judged.verdict == "undecided" and "near chance" in judged.reason
        for judged in guess.gate.judged
    )
    assert "near chance on the base for every label" in guess.files["report"].read_text()


def test_labels_of_few_images_are_named_and_not_measured(built: Path, answers_file: Path) -> None:
    having = np.stack(list(truth_of(built).values())).sum(axis=0) // 3
    minimum = int(having.min()) + 1
    few = evaluate(
        built,
        [f"predictions:{answers_file}"],
        out=built.parent / "few",
        min_images_per_class=minimum,
    )
    names = [name for name, count in zip(LABELS, having, strict=True) if count < minimum]
    assert [label.name for label in few.results.groups[0].left_out] == names
    assert [label.name for label in few.results.classes] == [
        name for name in LABELS if name not in names
    ]
    assert ", ".join(names) in few.files["report"].read_text()
    with refuses("nothing-to-measure", None, "no label has 39 images with it"):
        measured(built, [f"predictions:{answers_file}"], min_images_per_class=39)


def test_images_that_no_model_can_read_leave_every_group(built: Path) -> None:
    dataset, truth = open_conditions(open_dataset(built))
    readable = np.ones(len(dataset.keys), dtype=bool)
    unread = int(np.flatnonzero(dataset.shifts == 1)[3])
    readable[unread] = False
    subject = MultilabelSubject.of(dataset, truth, readable, 2)
    assert subject.rows.shape == (3, COUNT - 1)
    assert dataset.indices[unread] not in dataset.indices[subject.rows]
    flipped = np.arange(len(dataset.keys))[:, None] == subject.rows[1, 0]
    for changed in (
        LabelTruth(truth.present ^ flipped, truth.known),
        LabelTruth(truth.present, truth.known ^ flipped),
    ):
        with refuses("altered-dataset", None, "the conditions of its base image", kind=RunFailure):
            MultilabelSubject.of(dataset, changed, readable, 2)


def test_failures_are_listed_and_exported_with_the_labels_that_are_wrong(
    built: Path, evaluation: Evaluation
) -> None:
    frame = evaluation.failures()
    mistakes = frame["missed"].map(len) + frame["wrongly_given"].map(len)
    assert len(frame) and (mistakes > 0).all() and mistakes.is_monotonic_decreasing
    folder = evaluation.export_failures(built.parent / "exported")
    with (folder / "failures.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert {(line["key"], line["missed"], line["wrongly_given"]) for line in lines} == {
        (row.key, "; ".join(row.missed), "; ".join(row.wrongly_given)) for row in frame.itertuples()
    }
    samples = json.loads((folder / "samples.json").read_text())["samples"]
    truth = {row.key: {*row.conditions} for row in frame.itertuples()}
    for sample in samples:
        shown = {label["label"] for label in sample["ground_truth"]["classifications"]}
        assert (folder / sample["filepath"]).is_file() and shown == truth[sample["key"]]


def test_what_only_one_label_an_image_allows_is_refused(built: Path, answers_file: Path) -> None:
    with pytest.raises(
        UserError,
        match="several labels an image, and classifiers of these take no outputs, compare",
    ):
        measured(built, [f"predictions:{answers_file}"], outputs="all", compare=("a", "b"))
    path = built.parent / "one.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [["key", "label"], *([key, "red"] for key in open_dataset(built).keys)]
        )
    with pytest.raises(UserError, match="gives one label per image"):
        measured(built, [f"predictions:{path}"])


def test_datasets_and_croissant_read_the_stored_conditions(built: Path) -> None:
    truth = truth_of(built)
    stored = {key: np.flatnonzero(labels).tolist() for key, labels in truth.items()}
    table: Any = datasets.load_dataset(str(built), "fog", split="test")
    assert table.features["conditions"].feature.names == list(LABELS)
    assert all(row["conditions"] == stored[row["key"]] for row in table.remove_columns("image"))
    croissant = mlcroissant.Dataset(jsonld=str(built / "croissant.json"))
    assert not croissant.metadata.ctx.issues.errors
    records = list(croissant.records("base"))
    assert len(records) == COUNT
    for record in records:
        assert np.asarray(record["base/conditions"]).tolist() == stored[record["base/key"].decode()]
