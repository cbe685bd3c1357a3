"""The proof of graded shifts on pictures that are known: what it says of trajectories, axes, errors
and survivors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.lab.vocabulary import CLASSES
from counterfoil.report.severity import COMPLETE
from proof_files import CLASSIFIERS
from severity_proof.scoring import (
    FAR,
    against_truth,
    gains,
    kept,
    lasted,
    monotone,
    strengths_of,
    survivors,
)
from severity_proof.seen import LEVELS, SHIFTS, STRENGTHS, Seen

UNITS = 40


def seen(sure: dict[float, float], accuracy: dict[float, float]) -> Seen:
    """Return pictures that all show the shift as surely and that so many classifiers get right, by
    strength above 0.

    The first are right: who is right at a strength is right at every lower one.
    """
    strengths = np.array(sorted(sure))
    shape = (len(SHIFTS), 1 + len(strengths), len(CLASSES), UNITS)
    curve = np.array([0.0, *(sure[strength] for strength in strengths)], np.float32)[
        None, :, None, None
    ]
    right = np.array([1.0, *(accuracy[strength] for strength in strengths)])[None, :, None, None]
    labels = np.broadcast_to(np.arange(len(CLASSES))[None, None, :, None], shape).astype(np.int8)
    answers = np.where(np.arange(UNITS) < right * UNITS, labels, -1)
    present = np.ones(shape, bool)
    score = np.broadcast_to(curve, shape)
    order = np.broadcast_to(np.arange(UNITS), shape).astype(np.float32)
    return Seen(
        strengths,
        present,
        score,
        labels,
        labels,
        -order,
        score,
        np.stack([answers] * len(CLASSIFIERS), axis=-1),
    )


TRUTH = seen(
    {strength: strength for strength in STRENGTHS},
    {strength: 1 - strength / 2 for strength in STRENGTHS},
)
# Its levels are as sure of the shift as the truth is at their squares, and as hard.
DRAWN = seen({level: level**2 for level in LEVELS}, {level: 1 - level**2 / 2 for level in LEVELS})


def test_a_level_is_told_as_the_true_strength_of_equal_gain() -> None:
    np.testing.assert_allclose(gains(DRAWN, "raw")[0], [0, *LEVELS])
    for axis in ("CLIP", "oracle"):
        np.testing.assert_allclose(
            strengths_of(DRAWN, TRUTH, axis)[2], [0, *np.square(LEVELS)], atol=1e-6
        )


def test_a_trajectory_rises_where_the_oracle_never_grows_less_sure() -> None:
    assert monotone(DRAWN).tolist() == [1.0] * len(SHIFTS)
    sure = DRAWN.sure.copy()
    sure[0, 3, :, :10] = 0.0
    assert monotone(replace(DRAWN, sure=sure))[0] == 0.75
    sure[0, 3] = sure[0, 2] - 0.01
    assert (
        monotone(replace(DRAWN, sure=sure))[0] == 1.0
        and monotone(replace(DRAWN, sure=sure), 0.0)[0] == 0.0
    )


def test_what_is_kept_is_read_alike_on_the_base() -> None:
    other = DRAWN.seen.copy()
    other[:, 2, :, :4] += 1
    drawn = replace(DRAWN, seen=other)
    assert kept(drawn, drawn.seen, 2).tolist() == [0.9] * len(SHIFTS)
    assert kept(drawn, drawn.seen, 1).tolist() == [1.0] * len(SHIFTS)
    assert np.isnan(kept(drawn, drawn.colour, 1)).tolist() == [name == "red" for name in SHIFTS]


def test_errors_are_zero_on_the_axis_that_is_right() -> None:
    shape = [len(SHIFTS), len(CLASSIFIERS), len(LEVELS)]
    drop = np.square(LEVELS)[None, None, :, None] / 2
    drops = np.broadcast_to(drop + np.array([0, -0.01, 0.01]), (*shape, 3)).tolist()
    # Curves are straight between levels; they lose ten points between .25 and .5, where drops are
    # .031 and .125.
    ten = 0.25 + 0.25 * (0.1 - 0.03125) / (0.125 - 0.03125)
    tens = np.broadcast_to([ten, ten - 0.1, FAR], (*shape[:2], 3)).tolist()
    estimates = {
        "drops": drops,
        "ten": {"": tens, COMPLETE: tens},
        "classes": [list(range(10))] * len(SHIFTS),
    }
    errors = against_truth(estimates, DRAWN, TRUTH)
    assert (
        errors["oracle"]["curve"] == pytest.approx(0, abs=1e-3) and errors["oracle"]["covered"] == 1
    )
    assert (
        errors["oracle"]["ten"] == pytest.approx(0, abs=0.01)
        and errors["oracle"]["ten covered"] == 1
    )
    assert errors["raw"]["curve"] > 0.05 and errors["raw"]["signed"] < -0.05
    assert lasted([0.0, 0.0, 0.0, 0.0]) == 1.0 and lasted([1.0, 1.0, 1.0, 1.0]) == 0.125


def test_survivors_are_easier_where_the_screen_rejects_what_is_hard() -> None:
    hard = DRAWN.object_score.copy()
    # Of what is wrong at .75 CLIP does not see the object at 1: without these units .75 is right as
    # well.
    hard[:, -1][~DRAWN.right[:, 3, ..., 0]] = -2 * UNITS
    rates = survivors(replace(DRAWN, object_score=hard), 0.05)
    assert rates["complete"] < rates["screened"] < rates["all"]
    assert rates["complete share"] < rates["screened share"] < rates["all share"] == 1
