"""A model near chance is marked, and where its outputs fit the classes in another order, that order
is named."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from colour_kinds import ColourModule, as_tensor
from colour_world import build_colours, save_folders, save_trained
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.tasks.classes.mistaken_order import LEAST_GAIN, better_order
from counterfoil.report.reference import answer_warnings, near_chance_sentences
from counterfoil.report.results import ResultRow
from results_examples import model, results
from support.refusals import succeed


def answers_of(
    labels: np.ndarray, right: float, order: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the answers of a model that is right on a share of images and has its outputs in
    `order`."""
    k = len(order)
    meant = np.where(rng.random(len(labels)) < right, labels, rng.integers(0, k, len(labels)))
    return np.argsort(order)[meant]


class TestOrders:
    @pytest.mark.parametrize(
        ("order", "kind"),
        [
            (np.roll(np.arange(10), -1), "shifted by one"),
            (np.roll(np.arange(10), 1), "shifted by one"),
            (np.roll(np.arange(10), 3), "shifted by 3"),
            (np.arange(10)[::-1], "to be in reverse order"),
            (np.array([0, 1, 3, 2, 5, 4, 7, 6, 9, 8]), "to be in timm's order"),
            (np.array([4, 2, 0, 9, 7, 1, 3, 5, 8, 6]), "to be in another order"),
        ],
    )
    def test_the_order_is_found_and_measured_on_other_images(
        self, order: np.ndarray, kind: str
    ) -> None:
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(10), 40)
        named_orders = [("to be in timm's order", np.array([0, 1, 3, 2, 5, 4, 7, 6, 9, 8]))]
        match = better_order(labels, answers_of(labels, 0.8, order, rng), 10, named_orders)
        assert match is not None and match.kind == kind and match.means.tolist() == order.tolist()
        assert match.better.value == pytest.approx(0.82, abs=0.08) and match.given.value < 0.5

    @pytest.mark.parametrize("classes", [2, 3, 10, 100])
    def test_who_guesses_is_never_told_of_a_better_order(self, classes: int) -> None:
        warned = []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            labels = np.repeat(np.arange(classes), rng.integers(2, 20, classes))
            warned.append(
                better_order(labels, rng.integers(0, classes, len(labels)), classes) is not None
            )
        # At one false warning in a thousand runs, a warning appears here with a chance of 6 %.
        assert binomtest(sum(warned), len(warned), 0.001, alternative="greater").pvalue > 0.05

    def test_who_is_right_or_always_answers_one_class_is_in_no_other_order(self) -> None:
        labels = np.repeat(np.arange(5), 30)
        assert better_order(labels, labels, 5) is None
        assert better_order(labels, np.zeros_like(labels), 5) is None
        assert better_order(labels, np.full_like(labels, -1), 5) is None
        assert better_order(labels[:1], labels[:1], 1) is None

    def test_few_images_say_nothing(self) -> None:
        labels = np.arange(4).repeat(1)
        assert better_order(labels, np.roll(np.arange(4), 1)[labels], 4) is None

    def test_a_better_order_is_better_beyond_both_intervals(self) -> None:
        for seed in range(40):
            rng = np.random.default_rng(seed)
            labels = np.repeat(np.arange(6), 12)
            match = better_order(
                labels, answers_of(labels, rng.random(), rng.permutation(6), rng), 6
            )
            if match is not None:
                assert match.better.low is not None and match.given.high is not None
                assert match.better.low >= match.given.high + LEAST_GAIN


def test_a_folder_that_a_model_guesses_on_is_near_chance(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    images = save_folders(tmp_path / "images", names)

    def always_first(batch: np.ndarray) -> np.ndarray:
        return np.eye(4)[np.zeros(len(batch), dtype=int)]

    models: Any = {"guesses": always_first, "knows": save_trained(tmp_path / "model", names, names)}
    result = evaluate(images, models, device="cpu", out=tmp_path / "out")
    assert [model.near_chance for model in result.models] == [True, False]
    (sentence,) = near_chance_sentences(result.results)
    assert sentence.startswith("guesses is near chance on these images") and "25.0 %" in sentence
    assert sentence in html.unescape((tmp_path / "out" / "report.html").read_text())
    assert result.score("guesses", "all").top1.value == 0.25  # type: ignore[union-attr]


def test_losses_that_are_given_as_scores_are_no_guesses(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    images = save_folders(tmp_path / "images", names, 20)
    rng = np.random.default_rng(0)
    lines: list[str] = [",".join(["path", *names])]
    for path in sorted(images.rglob("*.png")):
        losses = 1 + rng.random(4)
        losses[names.index(path.parent.name)] = 0.1
        lines.append(",".join([path.relative_to(images).as_posix(), *map(str, losses)]))
    answers = tmp_path / "losses.csv"
    answers.write_text("\n".join(lines))
    result = evaluate(images, f"predictions:{answers}", device="cpu", out=tmp_path / "out")
    (warning,) = answer_warnings(result.results)
    assert "right less often than by guessing: on 0.0 %" in warning
    assert "its lowest score may be its answer" in warning
    assert not near_chance_sentences(result.results)


@pytest.mark.parametrize("classes", [2, 4, 20])
def test_who_guesses_is_hardly_ever_below_chance(classes: int) -> None:
    rng = np.random.default_rng(classes)
    warned = 0
    facts = replace(model("model-0"), chance=1 / classes)
    for images in rng.integers(20, 400, 500).tolist():
        share = rng.binomial(images, 1 / classes) / images
        row = ResultRow("accuracy", model="model-0", group="base", value=share, n=images)
        one_model = replace(results(1, 0, [row]), models=(facts,))
        warned += len(answer_warnings(one_model))
    assert warned <= 1
    zero = ResultRow("accuracy", model="model-0", group="base", value=0.0, n=1000)
    assert answer_warnings(replace(results(1, 0, [zero]), models=(facts,)))


def test_an_order_that_fits_far_better_is_named_everywhere(tmp_path: Path) -> None:
    names = ("airplane", "bird", "cat", "dog")
    images = save_folders(tmp_path / "images", names, 12)
    model = save_trained(tmp_path / "model", names, ("dog", "airplane", "bird", "cat"))
    out = tmp_path / "out"
    ran = succeed("evaluate", str(images), "--models", model, "--device", "cpu", "--out", str(out))
    (warning,) = [line for line in ran.output.splitlines() if line.startswith("Warning: ")]
    assert warning == (
        "Warning: The outputs of model look shifted by one: 100.0 % of images are right if output 0"
        " is dog, output 1 is"
        " airplane, output 2 is bird and so on, and 0.0 % as they are matched. Check --class-order."
    )
    report = html.unescape((out / "report.html").read_text())
    assert warning.removeprefix("Warning: ") in report and "near chance" in report
    right = evaluate(
        images, model, device="cpu", out=out, class_order=["dog", "airplane", "bird", "cat"]
    )
    assert not answer_warnings(right.results) and not right.models[0].near_chance


def test_timms_order_of_folders_is_named(tmp_path: Path) -> None:
    names = ("1", "2", "10", "11")
    images = save_folders(tmp_path / "images", names, 12)
    model = save_trained(tmp_path / "model", names, names)  # as timm sorts them
    result = evaluate(
        images,
        model,
        device="cpu",
        out=tmp_path / "out",
        class_order="position",
    )
    (warning,) = answer_warnings(result.results)
    assert (
        "look to be in timm's order of the class names: 100.0 % of images are right if output 1 is"
        " 2" in warning
    )


def test_a_built_dataset_is_judged_by_its_base(tmp_path: Path) -> None:
    dataset = build_colours(tmp_path / "dataset", "samples.candidates=24")
    model: Any = ColourModule((1, 2, 0))
    result = evaluate(
        dataset, {"mine": model}, device="cpu", out=tmp_path / "out", transform=as_tensor
    )
    (warning,) = answer_warnings(result.results)
    assert "look shifted by one: 100.0 % of images are right if output 0 is green" in warning
    assert result.models[0].near_chance
