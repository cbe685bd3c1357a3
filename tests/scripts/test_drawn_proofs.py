"""The proofs of intervals on drawn answers still run on the package as it is, and fill their
tables."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import prove_calibration
import prove_corruption_errors
import prove_gate
import prove_masks
import prove_multilabel
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.evaluation.tasks.classes.resampling import resampled_rows


def cells(lines: list[str]) -> list[list[str]]:
    """Return the cells of the rows of a table in Markdown, without its title row."""
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows[1:] if not set("".join(row)) <= set("-: ")]


def test_errors_of_corruption_benchmarks_have_an_interval_in_nearly_every_set() -> None:
    rows = cells(prove_corruption_errors.coverage(seed=1, sets=3))
    assert len(rows) == 12
    for row in rows:
        numbers = [float(number) for number in re.findall(r"\d+\.\d", " ".join(row[3:6]))]
        held, widths = numbers[::2], numbers[1::2]
        assert len(held) == len(widths) == 3
        assert all(0 <= share <= 100 for share in held)
        assert all(0 < width < 100 for width in widths)
        assert row[-1] == "100 %" or int(row[0]) < 50


@pytest.mark.parametrize("world", ["calibrated", "10 points too sure"])
def test_intervals_of_calibration_errors_hold_the_truth(world: str) -> None:
    held, _ = re.findall(
        r"\d+\.\d",
        prove_calibration.covered(
            1,
            world,
            100,
            30,
        ).cell("interval"),
    )
    assert float(held) > 80


def test_a_measure_without_rows_of_its_own_allows_for_chance_too() -> None:
    answered = prove_calibration.drawn_answers(np.random.default_rng(0), "calibrated", 100)
    measure = MEASURES["calibration_error"]
    assert measure.resampled is not None
    by_chance = next(resampled_rows(answered, "error", measure.resampled, measure.by_chance))
    alone = next(resampled_rows(answered, "error", measure.resampled, None))
    assert by_chance.value == alone.value
    assert by_chance.low == 0 < (alone.low or 0)


def test_a_gate_contradicts_itself_no_more_often_than_one_threshold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prove_gate, "RUNS", 6)
    monkeypatch.setattr(prove_gate, "IMAGES", (500,))
    rows = cells(prove_gate.runs_of_one_model())
    assert len(rows) == len(prove_gate.POINTS)
    for row in rows:
        shares = [float(cell.removesuffix(" %")) for cell in row[2:]]
        passed, undecided, failed = shares[2:5]
        assert passed + undecided + failed == pytest.approx(100, abs=0.2)
        assert shares[-1] <= shares[1]


@pytest.mark.parametrize(
    ("proof", "part", "sizes"),
    [
        (prove_masks, "coverage", "IMAGES"),
        (prove_multilabel, "auroc", "AUROC_SETS"),
        (prove_multilabel, "units", "VIDEOS"),
    ],
)
def test_a_part_of_a_proof_fills_its_table(
    proof: Any, part: str, sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = sorted(getattr(proof, sizes))[1]
    monkeypatch.setattr(proof, sizes, {images: 2})
    monkeypatch.setattr(proof, "POPULATION", 2_000)
    *_, drawn = proof.PARTS[part](1)
    rows = cells(drawn.lines)
    assert len(rows) > 3
    assert "nan" not in "\n".join(drawn.lines)
