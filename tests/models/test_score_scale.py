"""What scores are is decided by sums over all rows, as they were rounded, and no confidence is made
up."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.models.score_scale import UNKNOWN, ScaleEvidence, confidences

RNG = np.random.default_rng(0)


def scale_of(*batches: NDArray[np.floating], network: bool = False) -> str:
    evidence = ScaleEvidence()
    for batch in batches:
        evidence.add(np.asarray(batch, dtype=np.float64))
    return evidence.scale(network=network)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def written(values: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    return np.array([[float(form % value) for value in row] for row in values])


@pytest.mark.parametrize(
    ("classes", "temperature"), [(2, 1), (3, 0.3), (10, 4), (60, 1), (200, 0.3), (1000, 4)]
)
def test_rounding_does_not_change_what_scores_are(classes: int, temperature: float) -> None:
    logits = RNG.normal(0, 3, (20, classes)) / temperature
    shares = softmax(logits)
    kinds = {"probabilities": shares, "percent": 100 * shares, "log-probabilities": np.log(shares)}
    for kind, values in kinds.items():
        forms = {f"{decimals} decimals": values.round(decimals) for decimals in (2, 3, 4, 6)}
        forms |= {"digits": written(values, "%.3g"), "float32": values.astype(np.float32)}
        if kind == "probabilities":
            forms |= {"two digits": written(values, "%.2g"), "float16": values.astype(np.float16)}
        if kind == "percent" and classes < 200:
            forms |= {"whole": values.round()}
        for form, rounded in forms.items():
            assert scale_of(rounded) == kind, (kind, form)
            assert scale_of(rounded[:7], rounded[7:]) == kind, (kind, form)


OF_UNKNOWN_SCALE = {
    "sigmoids": [[0.9, 0.4, 0.4, 0.4], [0.4, 0.9, 0.4, 0.4]],
    "sigmoids of which one row adds up": [[0.7, 0.3], [0.9, 0.4]],
    "sigmoids that nearly add up": [[0.712, 0.301], [0.903, 0.104]],
    "sigmoids in percent": [[90.0, 40.0, 40.0, 40.0], [40.0, 90.0, 40.0, 40.0]],
    "logarithms of sigmoids": [[-0.1, -0.9], [-2.3, -0.1]],
    "similarities": [[0.31, -0.02], [0.18, 0.24]],
    "numbers above 0": [[12.1, 8.3, 7.2], [3.0, 9.4, 1.0]],
    "one answer a row": [[1.0, 0.0], [0.0, 1.0]],
    "nothing": [[0.0, 0.0], [0.0, 0.0]],
}


@pytest.mark.parametrize("case", OF_UNKNOWN_SCALE)
def test_scores_that_do_not_tell_confidences_give_none(case: str) -> None:
    scores = np.array(OF_UNKNOWN_SCALE[case])
    assert scale_of(scores) == UNKNOWN
    assert np.isnan(confidences(scores, UNKNOWN)).all()


def test_answers_as_0_and_1_are_called_so() -> None:
    for case, scores in OF_UNKNOWN_SCALE.items():
        evidence = ScaleEvidence()
        evidence.add(np.array(scores))
        only_answers = evidence.unknown_because() == "all numbers are 0 or 1"
        assert only_answers == (case == "one answer a row")


def test_logits_of_files_have_both_signs_and_those_of_networks_lie_beyond_0_and_1() -> None:
    logits = np.array([[2.5, -1.0], [0.25, -3.0]])
    assert scale_of(logits) == scale_of(logits, network=True) == "logits"
    for scores in (
        [[12.1, 8.3], [3.0, 9.4]],
        [[-0.1, -0.9], [-2.3, -0.1]],
        [[0.31, -0.02], [0.18, 0.24]],
    ):
        assert (scale_of(np.array(scores)), scale_of(np.array(scores), network=True)) == (
            UNKNOWN,
            "logits",
        )
    sigmoids = np.array(OF_UNKNOWN_SCALE["sigmoids"])
    assert scale_of(sigmoids, network=True) == UNKNOWN


def test_an_impossible_class_has_no_share() -> None:
    shares = np.array([[0.25, 0.75, -np.inf], [0.5, 0.125, 0.375]])
    logs = np.log(np.maximum(shares, 0), where=shares > 0, out=np.full(shares.shape, -np.inf))
    assert scale_of(logs) == "log-probabilities"
    assert confidences(logs, "log-probabilities") == pytest.approx(np.maximum(shares, 0))


def test_confidences_are_the_numbers_as_they_stand() -> None:
    shares = np.array([[0.784, 0.1, 0.117], [0.2, 0.3, 0.499]])
    for scale, scores in {
        "probabilities": shares,
        "percent": 100 * shares,
        "sigmoids": shares,
    }.items():
        assert confidences(scores, scale) == pytest.approx(shares), scale  # type: ignore[arg-type]
    logits = RNG.normal(size=(5, 4))
    assert confidences(logits, "logits") == pytest.approx(softmax(logits))
    among = np.where([True, False, True], shares, -np.inf)
    left = shares[:, [0, 2]] / shares[:, [0, 2]].sum(axis=1, keepdims=True)
    assert confidences(among, "probabilities")[:, [0, 2]] == pytest.approx(left)
    assert not confidences(among, "probabilities")[:, 1].any()
