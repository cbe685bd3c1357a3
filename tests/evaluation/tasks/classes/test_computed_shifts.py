"""Computed shifts beside stored ones: what their drops, refusals, names and counts say."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from counterfoil.arrays import Bools
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import raise_together
from counterfoil.evaluation.dataset import Subject, labelled_subject
from counterfoil.evaluation.gate import GateResult, judge_gate, read_gate
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking
from counterfoil.evaluation.tasks.classes.computed import (
    shifts_are_paired,
    with_computed,
    without_refused,
)
from counterfoil.evaluation.tasks.classes.lines import ClassLines, line_measures
from counterfoil.evaluation.tasks.classes.measures.comparison import (
    ComparedModels,
    compare_models,
)
from counterfoil.evaluation.tasks.classes.measures.severity import measure_severity
from counterfoil.evaluation.tasks.classes.tables import image_answers
from counterfoil.prediction.changes import OWN
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import Predictions
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.schema_output import Evaluate
from counterfoil.report.results import ResultRows
from support.refusals import refuses

CLASSES = (RecipeClass("coat", "coat", 0, 0, ()),)
OUTPUTS = 12
ORIENTATION = 0x0112


def jpeg(turned: bool) -> bytes:
    exif = Image.Exif()
    if turned:
        exif[ORIENTATION] = 6
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()


def photographs(
    turned: Sequence[bool],
    changes: Sequence[str],
    groups: Sequence[int] = (),
    recipe: Any = None,
) -> Subject:
    """Return images of one class, some of them with an EXIF tag, under changes. groups: of each
    image, 0 for the base and 1 for a stored shift, fog."""
    keys = tuple(map(str, range(len(turned))))
    files = dict(zip(keys, map(jpeg, turned), strict=True))

    def images(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for key, file in files.items():
            if wanted is None or key in wanted:
                yield key, file

    labelled = LabelledImages(
        "made",
        "0" * 64,
        keys,
        np.zeros(len(turned), np.int64),
        np.array(groups or [0] * len(turned)),
        ("base", "fog") if groups else ("base",),
        images,
    )
    subject = labelled_subject("made", labelled, CLASSES, "base" if groups else None)
    return with_computed(subject, recipe, changes)[0]


def answers_of(
    subject: Subject,
    models: dict[str, Bools],
    refused: dict[int, Bools] | None = None,
) -> AllAnswers:
    """Return the answers of models that are right about these images, (n,) each."""
    scored: list[Any] = []
    for name, right in models.items():
        answers = np.where(right, 0, OUTPUTS - 1).astype(np.int32)[:, None]
        predictions = replace(
            Predictions.empty(len(right)),
            readable=np.ones(len(right), bool),
            answers=answers,
            shares=np.full((len(right), 1), 0.9, np.float32),
            correct=right,
            correct_top_k=right,
        )
        names = tuple(map(str, range(OUTPUTS)))
        class_map = ClassMap("names", OUTPUTS, ((0,),), label_names=names)
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
        refused,
    )


def judge(
    answered: AllAnswers,
    *lines: str,
    models: Sequence[str] = ("mine",),
    own_ways: Collection[tuple[str, str]] = (),
) -> GateResult:
    read, errors = read_gate(lines, lambda line: (), line_measures())
    raise_together(errors)
    return judge_gate(ClassLines(answered, own_ways=own_ways), read, models, allow_undecided=True)


def test_a_drop_is_over_the_images_that_the_change_concerns() -> None:
    """Of 40 images 10 are turned by their tag: upright, 8 of these are right, and 0 as stored."""
    turned = np.arange(40) < 10
    subject = photographs(turned.tolist(), ["exif_applied"])
    right = np.append(~turned, np.arange(10) < 8)
    answered = answers_of(subject, {"mine": right})
    drops = answered.drops(1)
    assert drops is not None
    assert drops.drop == pytest.approx(-0.8)
    assert answered.facts(1).base_images == 10
    drop, accuracy = judge(answered, "drop(exif_applied) <= 1", "accuracy(base) >= 0").judged
    assert drop.estimate is not None and accuracy.estimate is not None
    assert drop.estimate.value == pytest.approx(-0.8) and drop.base == 0
    assert accuracy.estimate.value == pytest.approx(0.75)
    _, of_group = ClassLines(answered).changes("mine", "mine")
    assert of_group.drop is not None and of_group.drop.now == pytest.approx(-0.8)


def test_a_model_that_refuses_a_change_has_no_answers_to_it() -> None:
    """One model is wrong about two images as stored, and cannot be asked under bgr."""
    subject = photographs([False] * 8, ["bgr"])
    wrong = np.tile(np.arange(8) < 2, 2)
    refused = {1: np.array([True, False])}
    answered = answers_of(subject, {"mine": ~wrong, "other": wrong}, refused)
    columns = image_answers(answered)
    for name in ("answer", "answered", "confidence", "right"):
        assert columns[f"{name}.mine"][8:].null_count == 8
        assert columns[f"{name}.mine"][:8].null_count == 0
        assert columns[f"{name}.other"].null_count == 0
    groups = [change.group for change in ClassLines(answered).changes("other", "mine")]
    assert groups == [subject.groups[0].name]
    for line in (
        "drop(bgr) <= 100",
        "worse_than(other, bgr) <= 100",
        "differs(other, bgr) <= 100 %",
    ):
        (judged,) = judge(answered, line).judged
        assert judged.verdict == "undecided" and judged.estimate is None
        assert judged.reason == "mine cannot be asked under bgr"


FOG = {"corruption": "fog"}
LEVELS = {**FOG, "severity": {"by": "corruption", "levels": [1, 3]}}
CLASHES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "fog_3": ({"fog": LEVELS, "fog_3": FOG}, []),
    "bgr": ({"bgr": FOG}, ["squash", "bgr"]),
    "squash": ({"squash": LEVELS}, ["all"]),
}


@pytest.mark.parametrize("name", CLASHES)
def test_two_computed_shifts_of_one_name_are_refused(name: str) -> None:
    corrupted, preprocessing = CLASHES[name]
    with pytest.raises(ValidationError, match=f"two computed shifts '{name}'"):
        Evaluate.model_validate({"preprocessing": preprocessing, "corrupted": corrupted})


def test_a_computed_shift_takes_no_name_of_other_images() -> None:
    """Levels of a stored shift have one name, and images beside begin their keys with theirs."""
    subject = photographs([False] * 4, [], [0, 0, 1, 1])
    base, fog = subject.groups
    levels = replace(subject, groups=(base, replace(fog, name="bgr_3", of="bgr")))
    beside = replace(subject, parts=(replace(subject.parts[0], prefix="bgr/"),))
    for taken in (levels, beside):
        with refuses("group-clash", None, "bgr"):
            with_computed(taken, None, ["bgr"])


def test_a_comparison_leaves_out_shifts_that_a_model_refuses() -> None:
    """Average the gain of the base alone, in which 4 of 8 images are won."""
    subject = photographs([False] * 8, ["bgr"])
    right = np.ones(16, bool)
    worse = np.arange(16) % 2 == 0
    refused = {1: np.array([False, True])}
    answered = answers_of(subject, {"mine": right, "other": worse}, refused)
    request = ComparedModels("mine", "other")
    comparison, rows = compare_models(replace(answered, requests=(request,)))
    assert comparison is not None
    assert [group.name for group in comparison.groups] == [subject.groups[0].name]
    gains = ResultRows(rows)
    assert gains.value("gain", **comparison.key()) == pytest.approx(0.5)
    gain = gains.one("gain", **comparison.key(subject.groups[0].name))
    assert gain is not None and gain.p is not None and gain.q == gain.p


def test_a_model_that_refuses_a_shift_has_no_curve_of_it() -> None:
    """Measure no curve even if the highest severity is 3, so that no group has the shift's name."""
    recipe: Any = SimpleNamespace(evaluate=Evaluate.model_validate({"corrupted": {"fog": LEVELS}}))
    subject = photographs([False] * 8, [], recipe=recipe)
    assert [group.name for group in subject.groups[1:]] == ["fog_1", "fog_3"]
    right = np.ones(24, bool)
    refused = {index: np.array([False, True]) for index in (1, 2)}
    answered = answers_of(subject, {"mine": right, "other": right}, refused)
    (curve,), rows = measure_severity(answered)
    assert [level.group for level in curve.levels] == ["fog_1", "fog_3"]
    assert {row.model for row in rows} == {"mine"}


def test_a_drop_under_the_own_way_of_a_model_passes() -> None:
    """Take the answers to the base, so that nothing is lost."""
    subject = photographs([False] * 8, ["bilinear", "bicubic"])
    right = np.ones(24, bool)
    refused = {1: np.array([True, False]), 2: np.array([False, True])}
    answered = answers_of(subject, {"one": right, "two": right}, refused)
    own_ways = {("one", "bilinear"), ("two", "bicubic")}
    judged = judge(answered, "drop(any) <= 100", models=("one", "two"), own_ways=own_ways).judged
    verdicts = {(line.model, line.group): line.verdict for line in judged}
    assert verdicts == dict.fromkeys(product(("one", "two"), ("bilinear", "bicubic")), "pass")
    (line,) = [line for line in judged if (line.model, line.group) == ("one", "bilinear")]
    assert line.estimate is None and line.reason == OWN
    judged = judge(answered, "accuracy(any) >= 0", own_ways=own_ways, models=("one",)).judged
    assert [line.group for line in judged] == [subject.groups[0].name, "bicubic"]


def test_refused_shifts_leave_the_stored_groups_as_they_were() -> None:
    """Images of a stored shift that share no noise with the base stay unpaired."""
    groups = [0, 0, 1, 1]
    stored = photographs([False] * 4, [], groups)
    changed = photographs([False] * 4, ["bgr"], groups)
    assert [group.paired for group in changed.groups] == [True, False, True]
    left, refused = without_refused(changed, ["mine"], {("mine", "bgr"): "it has no transform"})
    assert left.groups == stored.groups and left.keys == stored.keys and not refused
    assert not shifts_are_paired(changed) and not shifts_are_paired(stored)
    assert shifts_are_paired(photographs([False] * 4, ["bgr"]))


def test_sentences_on_scored_images_name_each_origin_once() -> None:
    subject = photographs([False] * 4, [])
    (part,) = subject.parts
    of_part = replace(part, images=replace(part.images, repeated=1))
    changed, _ = with_computed(replace(subject, parts=(of_part,)), None, ["bgr"])
    assert len(changed.scored_sentences) == 1
