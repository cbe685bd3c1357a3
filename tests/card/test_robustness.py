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
            {
                "name": name,
                "sha256": "ab" * 32,
                "accuracy": estimate(1 - number / 100),
                "base": estimate(number / 100),
                "near_chance": False,
                "average_drop": None,
            }
            for number, name in enumerate(names)
        ],
        "near_chance_classes": [],
        "base": {"classes": 7, "classes_left_out": ["a"]},
        "shifts": [
            {
                "name": f"shift_{number}",
                "impact": estimate(number / 100) if number else None,
                "slope": None,
                "classes": 7,
                "classes_left_out": ["a"],
                "models": {
                    name: {
                        "base_accuracy": 0.8,
                        "drop": estimate(0.2, interval=False),
                        "relative_drop": estimate(0.25, interval=False),
                    }
                    for name in names
                },
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
    assert found.shifts[0].impact == "59.0 points (49.0 to 69.0)"
    assert found.shifts[0].drops == ("20.0 points of 80.0 %",) * MOST_COLUMNS
    assert found.shifts[0].relative == "25.0 %"
    assert found.models[0].accuracy == "29.0 % (19.0 to 39.0)", "averaged over classes, as everywhere"


def test_a_shift_that_was_not_measured_comes_last() -> None:
    found = robustness_of(results(1, 3))
    assert found
    assert [(row.name, row.impact) for row in found.shifts] == [
        ("shift_2", "2.0 points (-8.0 to 12.0)"),
        ("shift_1", "1.0 points (-9.0 to 11.0)"),
        ("shift_0", "–"),
    ]


def with_gap(document: dict[str, Any], **of_model: tuple[float, float]) -> dict[str, Any]:
    """The results with a reference: model → accuracy on validation images and on the base."""
    names = {name.replace("_", "-"): pair for name, pair in of_model.items()}
    document["reference"] = {
        "split": "lab:wardrobe:validation",
        "skipped": False,
        "images": 100,
        "classes": 7,
        "unseen": None,
        "models": {
            name: {
                "validation": estimate(validation),
                "base": estimate(base),
                "gap": {"value": validation - base, "low": validation - base - 0.02, "high": validation - base + 0.02},
            }
            for name, (validation, base) in names.items()
        },
    }
    return document


def test_a_large_gap_warns_and_a_small_one_does_not() -> None:
    small = robustness_of(with_gap(results(2, 1), model_0=(0.8, 0.79), model_1=(0.8, 0.8)))
    assert small and small.reference and small.warnings == ()
    large = robustness_of(with_gap(results(2, 1), model_0=(0.738, 0.19), model_1=(0.8, 0.8)))
    assert large and large.reference and large.reference.images == 100
    [warning] = large.warnings
    assert "1 of 2 models" in warning and "model-0: 73.8 % → 19.0 %" in warning
    rows = {row.name: (row.validation, row.gap) for row in large.models}
    assert rows["model-0"] == ("73.8 %", "54.8 points (52.8 to 56.8)")


def test_what_is_near_chance_is_marked_and_counted_and_in_no_average() -> None:
    document = results(3, 1)
    document["models"][2]["near_chance"] = True
    document["near_chance_classes"] = [{"id": "a", "name": "coat", "base_accuracy": 0.0}]
    document["shifts"][0]["models"]["model-2"]["relative_drop"] = estimate(0.99)
    found = robustness_of(document)
    assert found
    assert (found.models[0].name, found.models[0].near_chance) == ("model-2", True)
    assert found.shifts[0].relative == "25.0 %"
    assert found.floor == (
        "1 of 8 classes (coat) is near chance on the base and is left out of every average.",
        "1 of 3 models (model-2) is near chance on the base and is left out of averages over models.",
    )


@pytest.mark.parametrize("missing", ["models", "shifts", "seed", "near_chance_classes"])
def test_results_of_another_form_are_not_shown(missing: str) -> None:
    document = results(2, 2)
    del document[missing]
    assert robustness_of(document) is None
    assert robustness_of(None) is None
