"""Failures by answers alone, without words; and the cut-off of a caption's set."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from counterfoil.mining.answered import FEWEST_TAKEN, AnsweredRows, answers_shown, failing_rows_csv
from counterfoil.mining.audited import class_of_output, unreadable_note
from counterfoil.mining.hypotheses import (
    SHARES,
    LabelledRows,
    Role,
    choose_cutoffs,
    cutoffs_at,
    members_within,
)
from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import load_recipe
from counterfoil.stats import wilson_interval
from counterfoil.store.decoding import UNREAD

RECIPE = load_recipe("wardrobe-mini")
# 10 of 40 images of class 0 are taken for class 1 (confidence .95), 2 of 60 images of class 1 for
# class 0 (.4).
LABELS = np.repeat([0, 1], [40, 60])
TAKEN = np.where(np.isin(np.arange(100), [*range(10), 98, 99]), 1 - LABELS, LABELS)
ROWS = AnsweredRows(
    keys=[f"validation_{row:08d}" for row in range(100)],
    labels=LABELS,
    failed=TAKEN != LABELS,
    units=np.arange(100),
    taken_for=TAKEN,
    confidence=np.where(np.arange(100) < 10, 0.95, np.where(np.arange(100) >= 98, 0.4, 0.9)),
    # The tenth image taken for class 1 has the least confidence in its label.
    label_confidence=np.where(
        np.arange(100) < 10, 0.04 - 0.003 * np.arange(100), np.where(TAKEN == LABELS, 0.9, 0.35)
    )[None],
)


def test_classes_and_pairs_are_counted_with_their_intervals() -> None:
    answers = answers_shown(ROWS, RECIPE)
    worst, best = answers.classes
    assert (answers.rows, answers.failures) == (100, 12)
    assert (worst.id, best.id) == ("00", "01")
    assert (worst.rows, worst.failures, worst.rate) == (
        40,
        10,
        0.25,
    ) and worst.interval == wilson_interval(10, 40)
    assert worst.others_rate == 2 / 60
    assert best.others_rate == 10 / 40
    assert worst.more
    assert not best.more
    (pair,) = answers.taken_for  # two are fewer than FEWEST_TAKEN
    assert FEWEST_TAKEN > 2 and (pair.id, pair.other_id, pair.count, pair.rows) == (
        "00",
        "01",
        10,
        40,
    )
    assert pair.interval == wilson_interval(10, 40)


def test_rows_of_one_unit_widen_the_interval() -> None:
    alone = answers_shown(ROWS, RECIPE).classes[0].interval
    together = answers_shown(replace(ROWS, units=np.arange(100) // 5), RECIPE).classes[0].interval
    assert together[0] < alone[0] < alone[1] < together[1]


def test_labels_to_look_at_are_those_with_the_least_confidence() -> None:
    assert ROWS.by_label_doubt().tolist() == [*range(9, -1, -1), 98, 99]
    answers = answers_shown(ROWS, RECIPE)
    # One label in a hundred is listed.
    assert answers.labels_in_all == 1
    assert answers.labels[0].key == ROWS.keys[9]
    assert (answers.labels[0].label, answers.labels[0].answered) == ("t-shirt", "trouser")
    # Answers without confidence (all 1) show no doubtful label.
    assert not answers_shown(replace(ROWS, confidence=np.ones(100)), RECIPE).labels
    assert not answers_shown(
        replace(ROWS, failed=np.zeros(100, dtype=bool), taken_for=LABELS), RECIPE
    ).labels


def test_copies_have_no_label_of_their_own_to_check() -> None:
    """List base images alone, and one in a hundred of them; say so, also where none is listed."""
    # the tenth is the base image with the least confidence in its label
    copies = np.arange(100) < 9
    some = replace(ROWS, copies=copies)
    assert some.by_label_doubt().tolist() == [9, 98, 99]
    assert some.to_look_at().tolist() == [9]
    taken = {"failed": np.tile(ROWS.failed, 3), "taken_for": np.tile(TAKEN, 3)}
    sure = {
        "confidence": np.tile(ROWS.confidence, 3),
        "label_confidence": np.tile(ROWS.label_confidence, 3),
    }
    many = AnsweredRows(
        keys=[*ROWS.keys] * 3, labels=np.tile(LABELS, 3), units=np.arange(300), **taken, **sure
    )
    assert len(many.to_look_at()) == 3
    assert len(replace(many, copies=np.arange(300) >= 100).to_look_at()) == 1
    assert some.notes == (
        "labels to check are those of base images: a changed copy has the label of its base image",
    )
    (none,) = replace(ROWS, copies=ROWS.failed).notes
    assert none.startswith("no label to check is listed among base images")
    assert ROWS.notes == ()


def test_equal_labels_come_in_the_order_of_the_confidence_in_the_answer() -> None:
    equal = replace(
        ROWS, label_confidence=np.zeros((1, 100)), confidence=np.linspace(0.5, 0.9, 100)
    )
    assert equal.by_label_doubt().tolist() == [99, 98, *range(9, -1, -1)]


def test_classifiers_count_alike_however_confident_they_are() -> None:
    several = np.random.default_rng(5).random((2, 100))
    sharp = np.stack([several[0], several[1] ** 20])  # its order is the same
    before, after = (
        replace(ROWS, label_confidence=rows).by_label_doubt().tolist() for rows in (several, sharp)
    )
    assert before == after
    # If two classifiers disagree on every row, the confidence of the audited one decides.
    both = np.concatenate([ROWS.label_confidence, 1 - ROWS.label_confidence])
    assert replace(ROWS, label_confidence=both).by_label_doubt()[:10].tolist() == list(range(10))


@pytest.fixture(scope="module")
def planted() -> tuple[AnsweredRows, np.ndarray]:
    """Return answers of three classifiers to 2,000 images of ten classes, and which 1 % of the
    labels are wrong.

    Each classifier confidently takes 10 % of the images, its own draw, for another class. The true
    class is second.
    """
    rng = np.random.default_rng(3)
    n = 2000
    truth = rng.integers(10, size=n)
    flipped = np.arange(n) < n // 100
    labels = np.where(flipped, (truth + rng.integers(1, 10, n)) % 10, truth)
    logits = rng.normal(0, 2, (3, n, 10))
    logits[:, np.arange(n), truth] += 8
    for scores in logits:
        mistaken = np.flatnonzero(rng.random(n) < 0.1)
        scores[mistaken, (truth[mistaken] + rng.integers(1, 10, len(mistaken))) % 10] += 12
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    keys = [str(row) for row in range(n)]
    answers = p[0].argmax(axis=1)
    columns = (keys, labels, answers != labels, np.arange(n), answers, p[0].max(axis=1))
    return AnsweredRows(*columns, p[:, np.arange(n), labels]), flipped


def test_wrong_labels_come_before_mistakes(planted: tuple[AnsweredRows, np.ndarray]) -> None:
    rows, flipped = planted
    alone = replace(rows, label_confidence=rows.label_confidence[:1])
    wrong = np.flatnonzero(rows.failed)
    by_answer = wrong[np.argsort(-rows.confidence[wrong])][:20]
    listed, together = (flipped[answered.to_look_at()].mean() for answered in (alone, rows))
    assert len(alone.to_look_at()) == len(rows.to_look_at()) == 20
    assert together > listed > flipped[by_answer].mean()


def test_an_answer_of_no_class_here_is_taken_for_none() -> None:
    classes = class_of_output(ClassMap("names", 10, ((4, 5), (6,), (9,))))
    # An unreadable image has the answer -1. Output 7 matches no class.
    assert classes[np.array([4, 4, -1, 5, 9, 7], dtype=np.int32)].tolist() == [0, 0, -1, 0, 2, -1]
    strange = replace(ROWS, taken_for=np.where(ROWS.failed, -1, LABELS))
    answers = answers_shown(strange, RECIPE)
    assert answers.failures == 12
    assert not answers.taken_for
    assert not answers.labels


def test_every_failing_row_is_listed_with_its_findings() -> None:
    lines = list(
        csv.DictReader(io.StringIO(failing_rows_csv(ROWS, RECIPE, {"a_hard": np.arange(100) < 3})))
    )
    assert [line["key"] for line in lines] == [
        ROWS.keys[row] for row in np.flatnonzero(ROWS.failed).tolist()
    ]
    assert [line["findings"] for line in lines] == ["a_hard"] * 3 + [""] * 9
    assert [line["label_rank"] for line in lines] == [str(10 - row) for row in range(10)] + [
        "11",
        "12",
    ]
    assert [line["look_at_label"] for line in lines] == ["false"] * 9 + ["true"] + ["false"] * 2
    assert lines[0]["path"] == "" and (
        lines[0]["label"],
        lines[0]["answered"],
        lines[0]["confidence"],
    ) == (
        "t-shirt",
        "trouser",
        "0.95",
    )


def test_what_does_not_decode_is_told_by_its_path() -> None:
    assert unreadable_note((), {}) == ()
    assert unreadable_note(("a",), {"a": "mug/x\n.jpg"}) == (
        f"1 image cannot be read ({UNREAD}) and is left out: mug/x\\n.jpg",
    )
    (note,) = unreadable_note([*"abcdefg"], {"b": "mug/b.jpg"})
    assert (
        note
        == f"7 images cannot be read ({UNREAD}) and are left out: a, mug/b.jpg, c, d, e and 2 more"
    )


RNG = np.random.default_rng(7)
ROW_LABELS = np.repeat([0, 1, 2], 200)
UNITS = np.arange(600)


@pytest.mark.parametrize("role", ["hard", "far_from"])
@pytest.mark.parametrize("share", SHARES)
def test_every_class_gives_the_same_share(role: Role, share: float) -> None:
    # means differ by class: one cut-off for all would take one class
    cosines = RNG.normal(size=600) + ROW_LABELS
    members = members_within(
        cosines, ROW_LABELS, (0, 2), cutoffs_at(cosines, ROW_LABELS, (0, 2), role, share), role
    )
    assert not members[ROW_LABELS == 1].any()
    for label in (0, 2):
        in_set = members[label == ROW_LABELS]
        assert in_set.mean() == pytest.approx(share, abs=0.01)
        inside = cosines[label == ROW_LABELS][in_set]
        outside = cosines[label == ROW_LABELS][~in_set]
        assert inside.min() >= outside.max() if role == "hard" else inside.max() <= outside.min()


@pytest.mark.parametrize("role", ["hard", "far_from"])
def test_the_share_that_fails_is_found(role: Role) -> None:
    cosines = RNG.normal(size=600)
    order = np.argsort(-cosines if role == "hard" else cosines)
    failed = RNG.random(600) < 0.05
    failed[order[:180]] |= RNG.random(180) < 0.7  # three tenths of all
    labels = np.zeros(600, int)
    rows = LabelledRows(np.zeros((600, 0)), labels, failed, UNITS, labels)
    cutoffs, members, (in_set, rest) = choose_cutoffs(rows, cosines, (0,), role, 0.05)
    assert len(cutoffs) == 1
    assert members.mean() == pytest.approx(0.3, abs=0.051)
    assert in_set.rate - rest.rate > 0.5
    assert (in_set.rows, in_set.failures) == (members.sum(), failed[members].sum())


def test_rows_of_other_classes_are_in_no_set() -> None:
    assert not members_within(np.ones(3), np.array([5, 6, 7]), (1,), (0.0,), "hard").any()
    assert members_within(np.ones(3), np.array([5, 1, 7]), (1,), (0.0,), "hard").tolist() == [
        False,
        True,
        False,
    ]
