"""The proof's part on labels: judges that never err give the true share; one that errs is
corrected."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.lab.vocabulary import CLASSES
from interface_proof.labels import ORACLE_UNITS, compare_labels
from interface_proof.looks import SHIFT_NAMES, Looks

UNITS = 60
N_SHIFTS = len(SHIFT_NAMES)
N_CLASSES = len(CLASSES)


def world(accuracy: float, false_labels: float) -> tuple[Looks, dict[str, np.ndarray]]:
    """Return images with a known share of false labels, an oracle that never errs, and a judge of
    this accuracy."""
    rng = np.random.default_rng(3)
    everything = np.ones((N_SHIFTS, N_CLASSES, UNITS), bool)
    true = rng.random(everything.shape) >= false_labels
    slip = rng.random(everything.shape) >= accuracy
    # For a false label the judge sees another class, but when it slips it can give the label.
    agrees = np.where(true, ~slip, slip & (rng.random(everything.shape) < 1 / (N_CLASSES - 1)))
    labels = np.arange(N_CLASSES)[:, None]
    shown = np.broadcast_to(labels, (N_CLASSES, UNITS))
    other = (shown + rng.integers(1, N_CLASSES, shown.shape)) % N_CLASSES
    answered = np.where(rng.random(shown.shape) < accuracy, shown, other)
    answers = {
        "judges": answered[None],
        "oracle": np.broadcast_to(labels, (N_SHIFTS, N_CLASSES, ORACLE_UNITS)),
    }
    looks = Looks(everything, everything, agrees[..., None], true, everything, everything)
    return looks, answers


def test_a_judge_that_errs_is_corrected_and_the_oracle_tells_the_share() -> None:
    looks, answers = world(accuracy=0.8, false_labels=0.25)
    comparison = compare_labels({"name": looks}, answers, ["lab:judge"])["ways"]["name"]
    plain = np.mean([row["disagreed"] / row["images"] for row in comparison["by_shift"].values()])
    assert plain > 0.35
    for row in comparison["by_shift"].values():
        assert row["oracle"].value == pytest.approx(row["oracle_disagreed"] / row["images"])
    assert (
        abs(np.mean([row["judge"].value for row in comparison["by_shift"].values()]) - 0.25) < 0.03
    )
    assert abs(comparison["judges"]["lab:judge"]["shifts"]) < 0.03
