"""The section of what fails is bounded and in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import results_examples
from counterfoil.card.markdown import table
from counterfoil.card.sections import MOST_COLUMNS, MOST_MODELS, MOST_SHIFTS, robustness_of
from counterfoil.report.results import LeftOut, ResultRow, ResultRows
from counterfoil.report.words import Table
from results_examples import results


def numbers(models: int, shifts: int) -> Iterator[ResultRow]:
    for number in range(models):
        name, value = f"model-{number}", number / 100
        yield ResultRow("accuracy", model=name, group="base", value=value, low=value - 0.1, high=value + 0.1)
        for shift in range(shifts):
            key = {"model": name, "group": f"shift_{shift}"}
            yield ResultRow("base_accuracy", value=0.8, **key)
            yield ResultRow("drop", value=0.2, **key)
            yield ResultRow("relative_drop", value=0.25, **key)
    for shift in range(1, shifts):
        value = shift / 100
        yield ResultRow("impact", group=f"shift_{shift}", value=value, low=value - 0.1, high=value + 0.1)


def names(shown: Table) -> list[str]:
    return [row.cells[0].text for row in shown.rows]


def test_the_best_models_and_the_largest_drops_come_first_and_the_rest_is_counted() -> None:
    found = robustness_of(results(30, 60, numbers(30, 60)))
    assert names(found.models) == [f"model-{number}" for number in range(29, 29 - MOST_MODELS, -1)]
    heads = [column.label for column in found.shifts.columns if column.named]
    assert heads == [f"model-{number}" for number in range(29, 29 - MOST_COLUMNS, -1)]
    assert names(found.shifts) == [f"shift_{number}" for number in range(59, 59 - MOST_SHIFTS, -1)]
    assert (found.models.more, found.shifts.more) == (
        "and 10 more models, in results.csv",
        "and 20 more shifts, in robustness.csv; and 24 more models, in robustness.csv",
    )  # fmt: skip
    assert "slope" not in [column.label for column in found.shifts.columns]
    cells = ["`shift_59`", "59.0 points (49.0 to 69.0)", "25.0 %", "7 of 8"]
    cells += ["20.0 points of 80.0 %"] * MOST_COLUMNS
    assert table(found.shifts).splitlines()[2] == f"| {' | '.join(cells)} |"
    assert "| 29.0 % (19.0 to 39.0) |" in table(found.models), "averaged over classes, as everywhere"


def test_a_shift_that_was_not_measured_comes_last() -> None:
    found = robustness_of(results(1, 3, numbers(1, 3)))
    assert [(row.cells[0].text, row.cells[1].text) for row in found.shifts.rows] == [
        ("shift_2", "2.0 points"), ("shift_1", "1.0 points"), ("shift_0", "–")
    ]  # fmt: skip


def test_a_large_gap_warns_and_a_small_one_does_not() -> None:
    def gaps(**of_model: tuple[float, float]) -> Iterator[ResultRow]:
        for name, (validation, base) in of_model.items():
            key, gap = {"model": name.replace("_", "-")}, validation - base
            yield ResultRow("validation", value=validation, **key)
            yield ResultRow("validation_base", value=base, **key)
            yield ResultRow("validation_gap", value=gap, low=gap - 0.02, high=gap + 0.02, **key)

    small = robustness_of(results(2, 1, gaps(model_0=(0.8, 0.79), model_1=(0.8, 0.8))))
    assert small.warnings == ()
    large = robustness_of(results(2, 1, gaps(model_0=(0.738, 0.19), model_1=(0.8, 0.8))))
    [warning] = large.warnings
    assert "1 of 2 models" in warning and "model-0: 73.8 % → 19.0 %" in warning
    assert "| `model-0` | 73.8 % | 54.8 points (52.8 to 56.8) |" in table(large.models)


def test_what_is_near_chance_is_marked_and_counted_and_in_no_average() -> None:
    made = results(3, 1)
    models = (*made.models[:2], results_examples.model("model-2", near_chance=True))
    low = LeftOut("a", "coat", 9, 9, "near chance", 0.0)
    groups = (replace(made.groups[0], left_out=(low,)), *made.groups[1:])
    rows = [
        replace(row, value=0.99) if (row.measure, row.model) == ("relative_drop", "model-2") else row
        for row in numbers(3, 1)
    ]
    found = robustness_of(replace(made, models=models, groups=groups, rows=ResultRows(rows)))
    assert "| `model-2` (near chance) |" in table(found.models)
    assert found.shifts.rows[0].cells[1].text == "25.0 %"  # no impact was measured, so that it has no column
    assert found.floor == (
        "1 of 8 classes (coat) is near chance on the base and is left out of every average.",
        "1 of 3 models (model-2) is near chance on the base and is left out of averages over models.",
    )
