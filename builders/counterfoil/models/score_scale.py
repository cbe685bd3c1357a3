"""Say what a classifier's scores are, by one rule over all rows: confidences, or only an order of
the classes.

Numbers that add up to 1 in every row are probabilities, numbers that add up to 100 percent, and
numbers whose exponentials add up to 1 log-probabilities. Sums may be off by what rounding explains:
60 numbers with three decimals by 60 times .0005. Other numbers are logits if some are below 0, some
above 0, and some beyond 1. All others, such as sigmoids and similarities, have an unknown scale:
they order the classes, and tell no confidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from counterfoil.arrays import AnyFloats, Floats, Floats32

if TYPE_CHECKING:
    import torch

# A scale that a person can name. `sigmoids`: each class has a probability of its own.
Scale = Literal["probabilities", "percent", "log-probabilities", "logits", "sigmoids"]
SCALES: tuple[Scale, ...] = get_args(Scale)
# Scores without a known scale, and the answers of a file of labels.
UNKNOWN = "unknown"
# Rows of log-probabilities, and rows that only say the answer: their exponentials do not add up.
SOME = "log-probabilities of some"
AnyScale = Scale | Literal["unknown", "log-probabilities of some"]
# Sums of a softmax in 16 bits are off by so much.
_SLACK = 2e-3
# Numbers with more digits are not rounded: what their sums lack is below the slack.
_MOST_DECIMALS = 6
_FEWEST_DIGITS = 2
_MOST_DIGITS = 6
# Errors of a decimal number that float64 or float32 holds, as shares of the number.
_OF_DOUBLE = 2.0**-50
_OF_SINGLE = 2.0**-23

# The least probability, because 0 has no logarithm. It is near the smallest normal float32.
_LEAST = 1e-37
_REASONS: dict[AnyScale, str] = {
    "probabilities": "the numbers of each row add up to 1",
    "percent": "the numbers of each row add up to 100",
    "log-probabilities": "the exponentials of each row add up to 1",
    "logits": "numbers below 0 and above 1 that do not add up, so confidences are their softmax",
}


class ScaleEvidence:
    """What the rule reads, collected over batches of scores: (b, k) float64, -inf where a class is
    impossible."""

    def __init__(self) -> None:
        self._lowest = np.inf
        self._highest = -np.inf
        self._decimals = 0
        self._digits = _FEWEST_DIGITS
        self._columns = 0
        # Rows: sum, numbers above 0, sum of the powers of ten above these numbers, log of the sum
        # of exponentials.
        self._rows: list[Floats] = []

    def add(self, scores: Floats) -> None:
        if not scores.size:
            return
        finite = scores[np.isfinite(scores)]
        self._lowest = min(self._lowest, float(scores.min()))
        self._highest = max(self._highest, float(scores.max()))
        self._columns = scores.shape[1]
        written = np.isfinite(scores) & (scores != 0)
        powers = np.zeros_like(scores)
        powers[written] = 10.0 ** (np.floor(np.log10(np.abs(scores[written]))) + 1)
        above = written & (scores > 0)
        self._decimals = max(self._decimals, _decimals(finite))
        self._digits = max(self._digits, _digits(scores[written], powers[written]))
        largest = scores.max(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            relative = np.exp(scores - largest[:, None])
            logs = largest + np.log(relative.sum(axis=1))
            sums = scores.sum(axis=1)
        powers_above = np.where(above, powers, 0).sum(axis=1)
        self._rows.append(np.stack([sums, above.sum(axis=1), powers_above, logs]))

    def scale(self, *, network: bool = False) -> AnyScale:
        """Return the scale.

        network: whether a network gave the scores. They are not rounded, and numbers beyond 0 and 1
        are logits.
        """
        if not self._rows:
            return UNKNOWN
        sums, positive, powers, logs = np.concatenate(self._rows, axis=1)
        half = digit = 0.0
        if not network:
            digit = 0.5 * 10.0**-self._digits
            if self._decimals <= _MOST_DECIMALS:
                half = 0.5 * 10.0**-self._decimals
        # Numbers have a fixed number of decimals, or of digits. Only what is above 0 can have been
        # rounded up.
        of_digits = digit * powers
        most = np.maximum(half * positive, of_digits)
        least = np.maximum(half * self._columns, of_digits)

        def add_up_to(total: float) -> bool:
            slack = _SLACK * total
            at_most = sums - most <= total + slack
            at_least = sums + least >= total - slack
            return bool((at_most & at_least).all())

        if self._lowest >= 0 and self._highest > 0:
            if self._highest <= 1 + _SLACK and self._decimals > 0 and add_up_to(1.0):
                return "probabilities"
            if self._highest <= 100 * (1 + _SLACK) and add_up_to(100.0):
                return "percent"
        # An error of a logarithm is a share of the exponential, and the largest exponentials are
        # above exp(-10).
        error = max(half, 10 * digit) + _SLACK
        if self._highest <= 0 and bool((np.abs(logs) <= error).all()):
            return "log-probabilities"
        beyond = self._lowest < 0 or self._highest > 1
        if not network:
            signed = self._lowest < 0 < self._highest
            beyond = signed and max(-self._lowest, self._highest) > 1
        return "logits" if beyond else UNKNOWN

    def unknown_because(self) -> str:
        """Return why the scale is unknown, for people."""
        if not self._rows:
            return "there is no score"
        if self._lowest >= 0 and self._highest > 0:
            if self._highest > 1:
                return "no number is below 0, and rows add up to neither 1 nor 100"
            if self._decimals == 0:
                return "all numbers are 0 or 1"
            return "the numbers lie between 0 and 1, and rows do not add up to 1"
        if self._highest <= 0:
            return "no number is above 0, and the exponentials of rows do not add up to 1"
        return "the numbers lie between -1 and 1, as similarities do"


def network_scale(batches: Iterable[Floats]) -> tuple[AnyScale, str]:
    """Return what the scores of a network are, and a note that says so, empty for logits.

    Batches are read until scores show that they are logits, because the logits of a few images may
    be between 0 and 1, or add up, by chance.
    """
    evidence = ScaleEvidence()
    for scores in batches:
        evidence.add(scores)
        if evidence.scale(network=True) == "logits":
            return "logits", ""
    scale = evidence.scale(network=True)
    return scale, scale_note(scale, evidence)


def _decimals(values: Floats) -> int:
    """Return after how many decimals all numbers end, at most one more than are looked at."""
    error = _relative_error(values)
    for decimals in range(_MOST_DECIMALS + 1):
        scaled = values * 10.0**decimals
        rest = np.abs(scaled - np.rint(scaled))
        if (rest <= error * np.abs(scaled) + 1e-12).all():
            return decimals
    return _MOST_DECIMALS + 1


def _digits(values: Floats, powers: Floats) -> int:
    """Return how many digits the numbers have at most, by their powers of ten."""
    error = _relative_error(values)
    shares = values / powers
    for digits in range(_FEWEST_DIGITS, _MOST_DIGITS + 1):
        scaled = shares * 10.0**digits
        rest = np.abs(scaled - np.rint(scaled))
        if (rest <= error * np.abs(scaled)).all():
            return digits
    return _MOST_DIGITS + 1


def _relative_error(values: Floats) -> float:
    with np.errstate(over="ignore"):
        single = (values == values.astype(np.float32)).all()
    return _OF_SINGLE if single else _OF_DOUBLE


def scale_note(scale: AnyScale, evidence: ScaleEvidence) -> str:
    """Say what scores are, and by what."""
    if scale == UNKNOWN:
        return (
            f"scores have an unknown scale, because {evidence.unknown_because()}: they order the"
            " classes, and there is no confidence and no calibration (--scores-are says what they"
            " are)"
        )
    return f"scores are {scale}: {_REASONS[scale]}"


def as_logits(scores: torch.Tensor, scale: AnyScale) -> torch.Tensor:
    """Return a network's outputs as logits if their scale allows it, else unchanged."""
    if scale not in ("probabilities", "percent"):
        return scores
    if scale == "percent":
        scores = scores / 100
    return scores.clamp_min(_LEAST).log()


def confidences(scores: AnyFloats, scale: AnyScale) -> Floats32:
    """Return how sure each score (n, k) is; NaN if the scale, or that of the row, is unknown.
    Scores of -inf are no possible answer."""
    if scale == UNKNOWN:
        return np.full(scores.shape, np.nan, dtype=np.float32)
    values = scores.astype(np.float64)
    if scale == SOME:
        values = np.exp(values)
        adds_up = np.abs(values.sum(axis=1, keepdims=True) - 1) <= _SLACK
        return np.where(adds_up, values, np.nan).astype(np.float32)
    if scale in ("logits", "log-probabilities"):
        values = np.exp(values - values.max(axis=1, keepdims=True))
        return (values / values.sum(axis=1, keepdims=True)).astype(np.float32)
    possible = values > -np.inf
    values = np.where(possible, values, 0.0)
    if scale == "percent":
        values = values / 100.0
    some = ~possible.all(axis=1)
    if scale != "sigmoids" and some.any():
        # Among fewer outputs a probability is its share of theirs.
        known = values[some]
        whole = known.sum(axis=1, keepdims=True)
        values[some] = np.divide(known, whole, out=np.zeros_like(known), where=whole > 0)
    return values.astype(np.float32)
