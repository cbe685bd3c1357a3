"""A measure of one's own: a function of answers and weights, and a line in `MEASURES`."""

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from counterfoil.evaluation import evaluate
from counterfoil.evaluation.tasks.classes.answers import EVERYWHERE, AnsweredGroup, Measure
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from support.estimates import interval_of

NAME = "class_calibration_error"


def class_calibration_error(
    images: AnsweredGroup, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the distance of mean confidence and accuracy, averaged over the classes of the
    images."""
    apart = images.correct - images.confidence
    errors = []
    for label in np.unique(images.labels):
        of_class = weights * (images.labels == label)
        errors.append(np.abs(of_class @ apart) / np.maximum(of_class.sum(axis=1), 1))
    return np.mean(errors, axis=0)


@pytest.fixture
def in_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    title = "Calibration error by class"
    reading = "The mean over classes."
    measure = Measure(
        None, title, "points", reading, EVERYWHERE, None, True, class_calibration_error
    )
    monkeypatch.setitem(MEASURES.bundled, NAME, measure)


def test_it_is_in_results_tables_report_and_gate(
    in_measures: None, weather: Path, tmp_path: Path
) -> None:
    lines = ("(clear) <= 99.5", "(grey) <= 0", "(clear, class=sandal) <= 100")
    gate = [*(f"{NAME}{line}" for line in lines), f"drop(any, {NAME}) <= 100"]
    options = {
        "recipe": "wardrobe-mini",
        "groups": "weather",
        "base": "clear",
        "device": "cpu",
        "reference": False,
    }
    evaluation = evaluate(
        weather,
        "lab:resnet10t",
        out=tmp_path / "out",
        gate=gate,
        **options,
    )
    number = evaluation.number(NAME, group="clear", class_id="")
    low, value, high = interval_of(number)
    assert 0 < low <= value <= high
    # The value is that of a plain loop over the answers.
    answers = pq.read_table(evaluation.files["predictions"]).to_pandas()
    clear = answers[answers["shift"] == "clear"]
    plain = [
        abs((each["right.lab:resnet10t"].astype(float) - each["confidence.lab:resnet10t"]).mean())
        for _, each in clear.groupby("label")
    ]
    assert value == pytest.approx(np.mean(plain), abs=1e-6)
    assert evaluation.gate is not None
    verdicts = {
        judged.line.text: (judged.verdict, judged.reason) for judged in evaluation.gate.judged
    }
    few = "there are too few images for an interval"  # six of the class
    expected = [("pass", ""), ("fail", ""), ("undecided", few), ("pass", "")]
    assert verdicts == dict(zip(gate, expected, strict=True))
    with evaluation.files["robustness"].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert all(float(row[NAME]) >= 0 for row in rows)
    assert "Calibration error by class" in evaluation.files["report"].read_text()
