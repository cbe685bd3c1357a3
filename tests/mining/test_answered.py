"""What answers alone tell of failures, without words; and where the set of a caption ends."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from counterfoil.mining.answered import FEWEST_TAKEN, AnsweredRows, answered, failing_rows_csv
from counterfoil.mining.audited import class_of_output, unreadable_note
from counterfoil.mining.hypotheses import SHARES, Role, choose_cutoffs, cut, cutoffs_at
from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import load_recipe
from counterfoil.stats import wilson_interval

RECIPE = load_recipe("wardrobe-mini")
# Of 40 images of class 0 ten are taken for class 1, surely; of 60 of class 1 two for class 0, hardly.
LABELS = np.repeat([0, 1], [40, 60])
TAKEN = np.where(np.isin(np.arange(100), [*range(10), 98, 99]), 1 - LABELS, LABELS)
ROWS = AnsweredRows(
    keys=[f"validation_{row:08d}" for row in range(100)],
    labels=LABELS,
    failed=TAKEN != LABELS,
    units=np.arange(100),
    taken_for=TAKEN,
    confidence=np.where(np.arange(100) < 10, 0.95, np.where(np.arange(100) >= 98, 0.4, 0.9)),
)


def test_classes_and_pairs_are_counted_with_their_intervals() -> None:
    answers = answered(ROWS, RECIPE)
    worst, best = answers.classes
    assert (answers.rows, answers.failures) == (100, 12) and (worst.id, best.id) == ("00", "01")
    assert (worst.rows, worst.failures, worst.rate) == (40, 10, 0.25) and worst.interval == wilson_interval(10, 40)
    assert worst.others_rate == 2 / 60 and best.others_rate == 10 / 40
    assert worst.more and not best.more
    (pair,) = answers.taken_for  # two are fewer than FEWEST_TAKEN
    assert FEWEST_TAKEN > 2 and (pair.id, pair.other_id, pair.count, pair.rows) == ("00", "01", 10, 40)
    assert pair.interval == wilson_interval(10, 40)


def test_rows_of_one_unit_widen_the_interval() -> None:
    alone = answered(ROWS, RECIPE).classes[0].interval
    together = answered(replace(ROWS, units=np.arange(100) // 5), RECIPE).classes[0].interval
    assert together[0] < alone[0] < alone[1] < together[1]


def test_labels_to_look_at_are_those_that_are_answered_as_surely_as_right_ones() -> None:
    answers = answered(ROWS, RECIPE)
    assert answers.labels_in_all == len(answers.labels) == 10
    assert {one.key for one in answers.labels} == set(ROWS.keys[:10])
    assert {(one.label, one.answered) for one in answers.labels} == {("t-shirt", "trouser")}
    # Where an answer has no confidence of its own nothing tells a sure one.
    assert not answered(replace(ROWS, confidence=np.ones(100)), RECIPE).labels
    # A class that nothing is ever answered rightly has no usual confidence to reach.
    only = replace(ROWS, failed=np.ones(100, dtype=bool), taken_for=1 - LABELS)
    assert not answered(only, RECIPE).labels


def test_an_answer_of_no_class_here_is_taken_for_none() -> None:
    found = class_of_output(ClassMap("names", 10, ((4, 5), (6,), (9,))))
    # An image that cannot be decoded has the answer -1; output 7 is of no class.
    assert found[np.array([4, 4, -1, 5, 9, 7], dtype=np.int32)].tolist() == [0, 0, -1, 0, 2, -1]
    strange = replace(ROWS, taken_for=np.where(ROWS.failed, -1, LABELS))
    answers = answered(strange, RECIPE)
    assert answers.failures == 12 and not answers.taken_for and not answers.labels


def test_every_failing_row_is_listed_with_its_findings() -> None:
    lines = list(csv.DictReader(io.StringIO(failing_rows_csv(ROWS, RECIPE, {"a_hard": np.arange(100) < 3}))))
    assert [line["key"] for line in lines] == [ROWS.keys[row] for row in np.flatnonzero(ROWS.failed).tolist()]
    assert [line["findings"] for line in lines] == ["a_hard"] * 3 + [""] * 9
    assert [line["look_at_label"] for line in lines] == ["true"] * 10 + ["false"] * 2
    assert lines[0]["path"] == "" and (lines[0]["label"], lines[0]["answered"], lines[0]["confidence"]) == (
        "t-shirt",
        "trouser",
        "0.95",
    )


def test_what_does_not_decode_is_told_by_its_path() -> None:
    assert unreadable_note((), {}) == ()
    assert unreadable_note(("a",), {"a": "mug/x\n.jpg"}) == ("1 image cannot be decoded and is left out: mug/x\\n.jpg",)
    (found,) = unreadable_note([*"abcdefg"], {"b": "mug/b.jpg"})
    assert found == "7 images cannot be decoded and are left out: a, mug/b.jpg, c, d, e and 2 more"


RNG = np.random.default_rng(7)
ROW_LABELS = np.repeat([0, 1, 2], 200)
UNITS = np.arange(600)


@pytest.mark.parametrize("role", ["hard", "far_from"])
@pytest.mark.parametrize("share", SHARES)
def test_every_class_gives_the_same_share(role: Role, share: float) -> None:
    cosines = RNG.normal(size=600) + ROW_LABELS  # classes lie elsewhere: one cut-off for all would take one class
    members = cut(cosines, ROW_LABELS, (0, 2), cutoffs_at(cosines, ROW_LABELS, (0, 2), role, share), role)
    assert not members[ROW_LABELS == 1].any()
    for label in (0, 2):
        own = members[label == ROW_LABELS]
        assert own.mean() == pytest.approx(share, abs=0.01)
        inside, outside = cosines[label == ROW_LABELS][own], cosines[label == ROW_LABELS][~own]
        assert inside.min() >= outside.max() if role == "hard" else inside.max() <= outside.min()


@pytest.mark.parametrize("role", ["hard", "far_from"])
def test_the_share_that_fails_is_found(role: Role) -> None:
    cosines = RNG.normal(size=600)
    order = np.argsort(-cosines if role == "hard" else cosines)
    failed = RNG.random(600) < 0.05
    failed[order[:180]] |= RNG.random(180) < 0.7  # three tenths of all
    cutoffs, members, (in_set, rest) = choose_cutoffs(cosines, np.zeros(600, int), failed, UNITS, (0,), role, 0.05)
    assert len(cutoffs) == 1 and members.mean() == pytest.approx(0.3, abs=0.051)
    assert in_set.rate - rest.rate > 0.5
    assert (in_set.rows, in_set.failures) == (members.sum(), failed[members].sum())


def test_rows_of_other_classes_are_in_no_set() -> None:
    assert not cut(np.ones(3), np.array([5, 6, 7]), (1,), (0.0,), "hard").any()
    assert cut(np.ones(3), np.array([5, 1, 7]), (1,), (0.0,), "hard").tolist() == [False, True, False]
