"""The proof's comparison of pairs and of pairs, on answers whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, MARKS
from interface_proof import comparison, pairs
from interface_proof.builds import own_guidance
from interface_proof.looks import SHIFT_NAMES, Answers
from interface_proof.pairs import (
    MORE_HELD,
    compare_edits,
    compare_pairs,
    edit_recipe,
    edit_tables,
    pair_recipe,
    pair_shifts,
    pair_tables,
)

UNITS = 30
MODELS = 2


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "REPLICATES", 40)
    monkeypatch.setattr(pairs, "REPLICATES", 40)


def answers(seed: int, kept: float = 0.7, units: int = UNITS) -> Answers:
    """Return answers of two shifts; a pair keeps class, colour and each model's answer with the
    chance `kept`."""
    rng = np.random.default_rng(seed)
    shape = (len(SHIFT_NAMES), len(CLASSES), units)
    present = np.zeros(shape, bool)
    present[:3] = True
    label = np.broadcast_to(np.arange(len(CLASSES))[None, :, None], shape)

    def drawn(rest: tuple[int, ...], right: float) -> np.ndarray:
        values = np.where(
            rng.random((*shape, *rest)) < right, label.reshape(*shape, *[1] * len(rest)), 0
        )
        same = rng.random((*shape, *rest)) < kept
        return np.where(same, values[:1], values).astype(np.int8)

    shift = rng.random(shape) < 0.9
    answer = drawn((MODELS,), 0.6)
    seen = drawn((), 0.8)
    colour = drawn((), 0.5)
    pattern = np.zeros(shape, np.int8)
    return Answers(present, present, shift, answer, seen, colour, pattern)


def test_pairs_that_keep_more_are_seen_to() -> None:
    report = compare_pairs(
        {"noise": answers(1, 0.2), "attention": answers(2, 0.9)}, answers(3, 1.0, 60)
    )
    ways = report["ways"]
    for what in ("class kept", "colour kept", "right and wrong alike"):
        assert ways["noise"][what]["value"] < ways["attention"][what]["value"] < 1
    assert ways["truth"]["class kept"]["value"] == ways["truth"]["colour kept"]["value"] == 1
    assert list(report["width"]) == ["attention"] and report["width"]["attention"] < 0.8
    assert len(report["by_shift"]) == 2
    text = "\n".join(pair_tables(report))
    assert "| class kept |" in text and "nan" not in text


def test_what_is_the_truth_has_no_error() -> None:
    truth = answers(5, 0.5)
    report = compare_pairs({"noise": answers(6, 0.5), "attention": truth}, truth)
    for group in ("marked", "unmarked"):
        assert report["ways"]["attention"][f"error, {group}"]["value"] == 0
        assert report["error_change"]["attention"][group]["value"] < 0


def test_flips_of_the_same_images_agree_and_others_by_chance() -> None:
    scenes = answers(7, 0.5)
    other = answers(8, 0.5)
    report = compare_edits({"edits": scenes, "noise": other}, scenes, answers(9, 0.5, 60))
    same = report["ways"]["edits"]
    drawn = report["ways"]["noise"]
    assert same["flips agree"]["value"] == same["F1 of flips"]["value"] == 1
    assert drawn["flips agree"]["value"] == pytest.approx(
        drawn["flips agree by chance"]["value"], abs=0.05
    )
    assert same["kappa of flips"]["value"] == 1
    assert drawn["kappa of flips"]["value"] == pytest.approx(0, abs=0.1)
    assert drawn["kappa of flips"]["low"] < 0.05 < report["more"]["noise"]["kappa"]["low"]
    assert report["more"]["noise"]["agreement"]["low"] > 0
    true = (scenes.said[1:3] != scenes.said[:1]).mean()
    assert report["true_rate"] == pytest.approx(true)
    text = "\n".join(edit_tables(report))
    assert "| flips agree |" in text and "| kappa of flips | 100.0 [100.0, 100.0] |" in text


def test_pairs_that_one_way_lacks_are_compared_in_none() -> None:
    scenes = answers(7, 0.5)
    present = scenes.present.copy()
    present[1] = False
    report = compare_edits(
        {"edits": scenes, "noise": replace(scenes, present=present)}, scenes, answers(9, 0.5, 60)
    )
    assert list(report["by_shift"]) == [SHIFT_NAMES[2]]


def test_recipes_leave_the_object_as_it_is() -> None:
    drawn = pair_recipe("attention", 3)
    edited = edit_recipe(3, 2.0)
    held = pair_recipe(MORE_HELD, 3, own_guidance())
    assert held.samples.held.share > drawn.samples.held.share
    assert held.drawing.guidance == 3 > drawn.drawing.guidance
    assert tuple(drawn.prompts.shifts) == tuple(edited.prompts.shifts) == pair_shifts()
    assert len(pair_shifts()) == 13
    assert drawn.samples.pairs == "attention"
    assert {shift.kind for shift in drawn.prompts.shifts.values()} == {
        "background",
        "weather",
        "light",
    }


def test_the_mark_is_read_of_marked_classes_alone() -> None:
    drawn = answers(4)
    every = replace(
        drawn, pattern=np.full_like(drawn.pattern, ATTRIBUTES["pattern"].index(MARKS["shirt"]))
    )
    marked = np.asarray(every.looks.mark.any(axis=(0, 2)))
    assert [name for name, has_mark in zip(CLASSES, marked, strict=True) if has_mark] == [
        name for name in CLASSES if MARKS.get(name) == MARKS["shirt"]
    ]
    assert not replace(drawn, pattern=np.full_like(drawn.pattern, -1)).looks.mark.any()
