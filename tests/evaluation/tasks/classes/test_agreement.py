"""How alike two models answer: shares and differences against plain loops, and the gate's line."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import raise_together
from counterfoil.evaluation.dataset import labelled_subject
from counterfoil.evaluation.gate import Judged, judge_gate, read_gate, verdict_reason
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.evaluation.tasks.classes.agreement import (
    differing_answers,
    differing_share,
    largest_difference,
)
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking
from counterfoil.evaluation.tasks.classes.lines import ClassLines, line_measures
from counterfoil.prediction.changes import OWN
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import Predictions
from counterfoil.recipe import RecipeClass
from counterfoil.stats import NORMAL, wilson_interval
from support.estimates import interval_of

CLASSES = tuple(RecipeClass(name, name, label, label, ()) for label, name in enumerate("abc"))
OUTPUTS = 12
RANKED = 4


def confidences(images: int, seed: int) -> np.ndarray:
    """Return random probabilities of twelve outputs, (images, 12)."""
    return np.random.default_rng(seed).dirichlet(np.full(OUTPUTS, 0.3), images).astype(np.float32)


def answers_of(
    *models: np.ndarray, units: tuple[str, ...] | None = None, maps: tuple[ClassMap, ...] = ()
) -> AllAnswers:
    """Return the answers of models with these confidences to images of two groups."""
    images = len(models[0])
    groups = np.arange(images) % 2
    groups.sort()
    labels = np.arange(images) % 3
    keys = tuple(map(str, range(images)))
    labelled = LabelledImages(
        "made", "0" * 64, keys, labels, groups, ("base", "fog"), lambda wanted: iter(()), units
    )
    subject = labelled_subject("made", labelled, CLASSES, "base")
    scored: list[Any] = []
    for number, shares in enumerate(models):
        order = np.argsort(-shares, axis=1)[:, :RANKED].astype(np.int32)
        right = order[:, 0] == labels
        predictions = replace(
            Predictions.empty(images, RANKED),
            readable=np.ones(images, bool),
            answers=order,
            shares=np.take_along_axis(shares, order, axis=1),
            correct=right,
            correct_top_k=right,
        )
        name = ("new", "old")[number]
        class_map = maps[number] if maps else ClassMap("names", OUTPUTS, ((0,), (1,), (2,)))
        classifier = SimpleNamespace(name=name, sha256=None, score_scale="probability")
        scored.append(
            SimpleNamespace(classifier=classifier, class_map=class_map, predictions=predictions)
        )
    asking = Asking(ChosenModels(CLASSES), "cpu", 1)
    return AllAnswers.of(
        subject,
        scored,
        1,
        0,
        asking,
        (),
    )


def test_shares_and_differences_are_those_of_plain_loops() -> None:
    first = confidences(60, 0)
    second = 0.9 * first + 0.1 * confidences(60, 1)
    answered = answers_of(first, second)
    differs = differing_answers(answered, 0, 1)
    rows = answered.rows(1)
    different = 0
    largest = 0.0
    for row in rows:
        best = [
            sorted(range(OUTPUTS), key=lambda output: -side[row, output])
            for side in (first, second)
        ]
        different += best[0][0] != best[1][0]
        known = [set(order[:RANKED]) for order in best]
        for output in known[0] & known[1]:
            largest = max(largest, abs(float(first[row, output]) - float(second[row, output])))
    share = differing_share(answered, rows, differs)
    assert 0 < different < len(rows)
    assert share.centre == pytest.approx(different / len(rows))
    measured = largest_difference(answered, 0, 1, rows)
    assert measured is not None and measured >= largest - 1e-7
    truth = np.abs(first[rows].astype(np.float64) - second[rows]).max()
    assert measured <= truth + 1e-7, "what is told is never more than the difference"


def test_the_same_model_answers_alike_and_the_interval_has_a_width() -> None:
    shares = confidences(60, 2)
    answered = answers_of(shares, shares.copy())
    rows = answered.rows(0)
    differs = differing_answers(answered, 0, 1)
    assert not differs.any()
    assert largest_difference(answered, 0, 1, rows) == 0.0
    estimate = differing_share(answered, rows, differs).interval(NORMAL)
    assert estimate.value == estimate.low == 0.0
    assert estimate.high == pytest.approx(wilson_interval(0, len(rows))[1])


def test_outputs_in_another_order_are_compared_by_class() -> None:
    shares = confidences(60, 3)[:, :3]
    shares /= shares.sum(axis=1, keepdims=True)
    padded = np.zeros((60, OUTPUTS), np.float32)
    padded[:, :3] = shares
    turned = padded[:, [2, 1, 0, *range(3, OUTPUTS)]]
    maps = (
        ClassMap("names", OUTPUTS, ((0,), (1,), (2,))),
        ClassMap("names", OUTPUTS, ((2,), (1,), (0,))),
    )
    answered = answers_of(padded, turned, maps=maps)
    assert not differing_answers(answered, 0, 1).any()
    assert largest_difference(answered, 0, 1, answered.rows(0)) is None, "outputs are others"
    wrongly = answers_of(padded, turned)
    assert differing_answers(wrongly, 0, 1).any()


def test_frames_of_one_video_are_one_unit() -> None:
    """Answers that differ on whole videos tell less than answers that differ on as many frames."""
    first = confidences(400, 4)
    second = first.copy()
    videos = np.arange(400) // 20
    changed = np.isin(videos, (1, 12, 15))
    second[changed] = np.roll(first[changed], 1, axis=1)
    names = tuple(f"video {video}" for video in videos)
    widths = []
    for units in (None, names):
        answered = answers_of(first, second, units=units)
        differs = differing_answers(answered, 0, 1)
        estimate = differing_share(answered, answered.rows(1), differs).interval(NORMAL)
        low, _, high = interval_of(estimate)
        assert low < 0.2 < high
        widths.append(high - low)
    assert widths[1] > 1.5 * widths[0]


def judged(answered: AllAnswers, line: str) -> Judged:
    lines, errors = read_gate([line], lambda parsed: (), line_measures())
    raise_together(errors)
    (result,) = judge_gate(ClassLines(answered), lines, ["new"]).judged
    return result


@pytest.mark.parametrize("images", [30, 100])
def test_as_many_images_as_a_line_names_decide_it(images: int) -> None:
    shares = confidences(6000, 5)
    few = answers_of(shares[: 2 * images], shares[: 2 * images])
    needed = judged(few, "differs(old, fog) <= 0.5 %").needed
    assert needed is not None
    for factor, verdict in ((1.01, "pass"), (0.95, "undecided")):
        many = shares[: 2 * int(needed * factor)]
        assert judged(answers_of(many, many), "differs(old, fog) <= 0.5 %").verdict == verdict


def test_units_are_counted_if_images_share_some() -> None:
    shares = confidences(240, 5)
    units = tuple(str(number % 12) for number in range(240))
    answered = answers_of(shares, confidences(240, 6), units=units)
    for line in ("accuracy(base) >= 30", "differs(old, fog) <= 90 %"):
        answer = judged(answered, line)
        assert (answer.counted, answer.images) == ("units", 12)


def test_a_change_that_is_the_models_own_way_costs_it_nothing() -> None:
    shares = confidences(60, 5)
    comparing = ClassLines(answers_of(shares), own_ways={("new", "bicubic")})
    lines, _ = read_gate(
        ["drop(bicubic) <= 1", "drop(squash) <= 1"], lambda parsed: (), line_measures()
    )
    bicubic, squash = judge_gate(comparing, lines, ["new"]).judged
    assert (bicubic.verdict, squash.verdict) == ("pass", "undecided")
    assert bicubic.reason == OWN


def test_a_gate_asks_whether_an_export_is_the_same_model() -> None:
    shares = confidences(4000, 5)
    same = answers_of(shares, shares + np.float32(1e-6))
    assert judged(same, "differs(old, fog) <= 0.5 %").verdict == "pass"
    few = answers_of(shares[:60], shares[:60])
    undecided = judged(few, "differs(old, fog) <= 0.5 %")
    assert undecided.verdict == "undecided" and (undecided.needed or 0) > 60
    reason = verdict_reason(undecided)
    assert " images would decide it" in reason and "per class" not in reason and "has 30" in reason
    other = answers_of(shares, confidences(4000, 6))
    assert judged(other, "differs(old, fog) <= 0.5 %").verdict == "fail"
    of_class = judged(other, "differs(old, fog, class=a) <= 50 %")
    labels = other.subject.labels[other.rows(1)]
    differs = differing_answers(other, 0, 1)[other.rows(1)]
    assert of_class.estimate is not None
    assert of_class.estimate.value == pytest.approx(differs[labels == 0].mean())
