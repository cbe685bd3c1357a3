"""The section of what fails is bounded, in order, and made of whole results alone."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.card.robustness import MOST_COLUMNS, MOST_MODELS, MOST_SHIFTS, robustness_of


def estimate(value: float, interval: bool = True) -> dict[str, float | None]:
    return {"value": value, "low": value - 0.1 if interval else None, "high": value + 0.1 if interval else None}


def results(models: int, shifts: int) -> dict[str, Any]:
    names = [f"model-{number}" for number in range(models)]
    return {
        "min_images_per_class": 5,
        "seed": 0,
        "paired": True,
        "unreadable": 0,
        "models": [
            {"name": name, "sha256": "ab" * 32, "accuracy": estimate(number / 100), "average_drop": None}
            for number, name in enumerate(names)
        ],
        "shifts": [
            {
                "name": f"shift_{number}",
                "impact": estimate(number / 100) if number else None,
                "slope": None,
                "classes": 7,
                "classes_left_out": ["a"],
                "models": {name: {"drop": estimate(0.2, interval=False)} for name in names},
            }
            for number in range(shifts)
        ],
    }


def test_the_best_models_and_the_largest_drops_come_first_and_the_rest_is_counted() -> None:
    found = robustness_of(results(30, 60))
    assert found
    assert [row.name for row in found.models] == [f"model-{number}" for number in range(29, 29 - MOST_MODELS, -1)]
    assert found.columns == tuple(f"model-{number}" for number in range(29, 29 - MOST_COLUMNS, -1))
    assert [row.name for row in found.shifts] == [f"shift_{number}" for number in range(59, 59 - MOST_SHIFTS, -1)]
    assert (found.all_models, found.all_shifts, found.slopes) == (30, 60, False)
    assert found.shifts[0].impact == "59.0 (49.0 to 69.0)"
    assert found.shifts[0].drops == ("20.0",) * MOST_COLUMNS


def test_a_shift_that_was_not_measured_comes_last() -> None:
    found = robustness_of(results(1, 3))
    assert found
    assert [(row.name, row.impact) for row in found.shifts] == [
        ("shift_2", "2.0 (-8.0 to 12.0)"),
        ("shift_1", "1.0 (-9.0 to 11.0)"),
        ("shift_0", "–"),
    ]


@pytest.mark.parametrize("missing", ["models", "shifts", "seed"])
def test_results_of_another_form_are_not_shown(missing: str) -> None:
    document = results(2, 2)
    del document[missing]
    assert robustness_of(document) is None
    assert robustness_of(None) is None
