"""Near chance: by Wilson's lower end against the line over chance, out of averages, and counted in words."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colour_world import CANDIDATES, build_colours, png_of
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.statistics import find_floor, near_chance, slope
from counterfoil.plan import Sample
from counterfoil.prediction.class_map import ClassMap
from counterfoil.report.reference import near_chance_sentences
from counterfoil.report.results import classes_of
from counterfoil.stats import wilson_interval

COLOURS = 3


def by_hand(correct: int, images: int, outputs: int) -> bool:
    """The definition, with the interval of another library."""
    chance, low = 1 / outputs, wilson_interval(correct, images)[0]
    assert low is not None
    return low < chance + 0.1 * (1 - chance)


@given(images=st.integers(1, 400), outputs=st.integers(2, 1000), data=st.data())
def test_near_chance_is_wilsons_lower_end_under_the_line(images: int, outputs: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, images))
    found = near_chance(np.array([correct / images]), images, np.array([1 / outputs]))
    assert found.tolist() == [by_hand(correct, images, outputs)]


def test_ten_images_are_not_enough_where_a_thousand_are() -> None:
    accuracy, chance = np.array([0.35]), 0.1
    assert near_chance(accuracy, 10, chance).item()
    assert not near_chance(accuracy, 1000, chance).item()


def test_a_class_is_judged_by_the_models_that_are_not_near_chance() -> None:
    # Two models that see the first class, and six that guess: an average over all would call it near chance.
    guess = [0.1] * 6
    accuracy = np.array([[0.9, 0.9, *guess], [0.9, 0.8, *guess], [0.05, 0.1, *guess]])
    found = find_floor(accuracy, np.array([30, 30, 30]), np.full((3, 8), 0.1))
    assert found.models.tolist() == [False, False, *[True] * 6]
    assert found.classes.tolist() == [False, False, True]
    assert found.averaged == pytest.approx([0.9, 0.85, 0.075])
    assert found.cells[0].tolist() == [False, False, *[True] * 6]


def test_where_every_model_is_near_chance_classes_are_judged_by_all_of_them() -> None:
    found = find_floor(np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]), np.array([12, 12, 12]), np.full((3, 2), 1 / 3))
    assert found.models.all()
    assert found.classes.tolist() == [False, True, True]


def test_the_highest_chance_of_the_models_counts_for_a_class() -> None:
    accuracy, images = np.array([[0.62, 0.62], [0.99, 0.99]]), np.array([100, 100])
    assert find_floor(accuracy, images, np.full((2, 2), 0.1)).classes.tolist() == [False, False]
    assert find_floor(accuracy, images, np.array([[0.1, 0.5]] * 2)).classes.tolist() == [True, False]


def test_a_class_with_many_right_outputs_is_measured_by_its_own_chance() -> None:
    # Of 10 outputs 4 are right for the first class: a guess is right in 40 % of its images, in 10 % of the second's.
    found = find_floor(np.array([[0.45], [0.45]]), np.array([200, 200]), np.array([[0.4], [0.1]]))
    assert (found.classes.tolist(), found.cells.tolist()) == ([True, False], [[True], [False]])
    assert not found.models[0] and find_floor(np.full((2, 1), 0.45), np.array([200, 200]), np.full((2, 1), 0.4)).models
    assert ClassMap("imagenet", 10, ((1, 2, 3, 4), (5,))).chances.tolist() == [0.4, 0.1]


def test_a_model_near_chance_is_marked_and_in_no_average(evaluation: Evaluation, models: dict[str, str]) -> None:
    marks = {model.name: model.near_chance for model in evaluation.models}
    assert [name for name in marks if marks[name]] == [models["only_blue"]]
    assert {model.chance for model in evaluation.models} == {1 / COLOURS}
    sound = [model.name for model in evaluation.sound_models]
    for shift in evaluation.shifts:
        drops = [evaluation.score(name, shift.name).drop for name in sound]
        impact, fitted = (evaluation.results.rows.one(name, group=shift.name) for name in ("impact", "slope"))
        assert impact is not None and fitted is not None
        assert impact.value == pytest.approx(np.mean([drop.value for drop in drops if drop]))
        assert fitted.n == impact.n == len(sound)
        scores = [evaluation.score(name, shift.name) for name in sound]
        line = slope([one.base_accuracy or 0 for one in scores], [one.accuracy or 0 for one in scores])
        assert line is not None and line.slope == pytest.approx(fitted.value)
    # It stays in every table.
    with evaluation.files["robustness"].open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == models["only_blue"]]
    assert [row["near_chance"] for row in rows] == ["1", "1"] and all(row["drop"] for row in rows)
    with evaluation.files["results"].open(newline="") as file:
        assert {row["model"]: row["near_chance"] for row in csv.DictReader(file)}[models["only_blue"]] == "1"


@pytest.fixture(scope="module")
def blind(dataset: Path, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """One model, which never says green: that class is near chance on the base, and no other."""
    out = tmp_path_factory.mktemp("blind")
    return evaluate(dataset, [models["no_green"]], device="cpu", out=out, reference=False)


def test_a_class_near_chance_is_left_out_and_told_apart_from_few_images(blind: Evaluation, dataset: Path) -> None:
    [model] = blind.models
    assert not model.near_chance and blind.base
    assert [(one.class_id, one.why, one.base_accuracy) for one in blind.base.left_out] == [("01", "near chance", 0.0)]
    base = blind.results.base_number(model.name)
    assert base is not None and base.value == 1.0
    for shift in blind.shifts:
        score = blind.score(model.name, shift.name)
        assert (shift.classes, score.classes, score.images) == (2, 2, 2 * CANDIDATES)
        assert [one.why for one in shift.left_out] == ["near chance"]
        assert score.base_accuracy == 1.0
    # Averaged over all three classes, the blind class would have halved what swap does.
    swap = blind.score(model.name, "swap").drop
    assert swap is not None and swap.value == pytest.approx(1 / 3)
    green = next(one for one in classes_of(blind.results, "swap") if one.class_id == "01")
    assert (green.class_near_chance, green.near_chance, green.impact) == (True, (True,), None)
    assert green.base_accuracy == (0.0,) and len(green.drops) == 1
    few = evaluate(dataset, [model.name], device="cpu", out=blind.files["report"].parent / "few",
                   min_images_per_class=CANDIDATES + 1, reference=False)  # fmt: skip
    assert few.base and {one.why for one in few.base.left_out} == {"few images"}
    assert not few.models[0].near_chance and few.results.base_number(model.name) is None


def test_classes_near_chance_are_marked_in_their_tables(blind: Evaluation) -> None:
    with blind.files["classes"].open(newline="") as file:
        rows = {(row["shift"], row["class_id"]): row for row in csv.DictReader(file)}
    green, red = rows["swap", "01"], rows["swap", "00"]
    assert (green["measured"], green["near_chance"], green["drop"]) == ("0", "1", "")
    assert (green["base_accuracy"], red["measured"], red["near_chance"]) == ("0.000", "1", "0")
    with blind.files["shifts"].open(newline="") as file:
        assert {row["classes_near_chance"] for row in csv.DictReader(file)} == {"01"}


def test_what_is_left_out_is_counted_in_words(blind: Evaluation, evaluation: Evaluation) -> None:
    assert near_chance_sentences(blind.results) == (
        "1 of 3 classes (green) is near chance on the base and is left out of every average.",
    )
    assert near_chance_sentences(evaluation.results) == (
        "1 of 6 models (only_blue) is near chance on the base and is left out of averages over models.",
    )
    assert blind.base is not None
    [one] = blind.base.left_out
    many = tuple(replace(one, class_id=str(n), name=f"class {n}") for n in range(40))
    groups = (replace(blind.base, classes=60, left_out=many), *blind.shifts)
    [told] = near_chance_sentences(replace(blind.results, groups=groups))
    assert told.startswith("40 of 100 classes (class 0, class 1, ") and "and 28 more) are near chance" in told


def test_whom_an_average_is_over_is_said(blind: Evaluation, evaluation: Evaluation) -> None:
    alone, several = blind.files["report"].read_text(), evaluation.files["report"].read_text()
    # What explains the method may speak of models in general.
    shown = alone.split(">Method<")[0].split("<script>")[0].split("<strong>Absolute impact")[0]
    assert "averaged over models" not in shown and "all models" not in shown
    assert several.count("averaged over models not near chance") > 3 and "all models: impact" not in several
    assert "models not near chance: impact" in several


def test_where_everything_is_near_chance_there_are_words_and_no_number(tmp_path: Path, models: dict[str, str]) -> None:
    # Every image is painted as the next class: a model that reads colours is always wrong.
    def image(sample: Sample) -> bytes:
        return png_of(replace(sample, label=(sample.label + 1) % COLOURS))

    dataset = build_colours(tmp_path / "d", image=image)
    found = evaluate(dataset, [models["sharp"]], device="cpu", out=tmp_path / "out", reference=False)
    assert found.models[0].near_chance and found.results.base_number(found.models[0].name) is None
    assert not found.results.rows.where("impact", class_id="") and not found.results.rows.where("slope")
    assert all(score.drop is None and score.base_accuracy is None for score in found.scores)
    told = near_chance_sentences(found.results)
    assert len(told) == 2 and "no drop can be given" in told[0]
    text = json.dumps(found.to_json(), allow_nan=False)
    assert "NaN" not in text
    for name in ("results", "robustness", "shifts", "classes", "report"):
        assert "nan" not in found.files[name].read_text().lower().split(","), name
    with found.files["robustness"].open(newline="") as file:
        assert {row["drop"] for row in csv.DictReader(file)} == {""}


def test_the_line_is_a_tenth_of_the_way_up_from_chance() -> None:
    assert not near_chance(np.array([0.5]), 200, np.array([1 / 1000])).item()
    assert near_chance(np.array([0.5]), 200, np.array([1 / 2])).item()
    assert math.isclose(1 / 2 + 0.1 * (1 - 1 / 2), 0.55)
