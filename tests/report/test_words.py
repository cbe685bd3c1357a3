"""Numbers, counts and distances as people read them, in one place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.report.distances import Distances, ImageSet, about_bias, distances_table
from counterfoil.report.results import ResultRow, ResultRows, estimate_row
from counterfoil.report.words import (
    e_value,
    format_points,
    format_probability,
    format_ratio,
    format_share,
    safe_text,
    with_interval,
)
from counterfoil.stats import Estimate


@pytest.mark.parametrize(
    ("shown", "says"),
    [
        (format_share(None), "–"),
        (format_share(0.0), "0 %"),
        (format_share(0.004), "0.4 %"),
        (format_share(0.0000001), "<0.1 %"),
        (format_share(0.0949), "9 %"),
        (format_share(0.9999999), ">99.9 %"),
        (format_share(1.0), "100 %"),
        (with_interval(None), "–"),
        (with_interval(Estimate(math.nan)), "–"),
        (with_interval(Estimate(0.1, 0.05, 0.2)), "10.0 points (5.0 to 20.0)"),
        (format_points(-0.004, decimals=0), "0"),
        (format_points(-0.126, decimals=0), "−13"),
        (format_points(0.52, decimals=0), "52"),
        (format_probability(0.0), "< .001"),
        (format_probability(0.002), "= .002"),
        (format_probability(0.0344), "= .034"),
        (format_probability(0.1), "= .10"),
        (format_probability(0.61), "= .61"),
        (format_probability(1.0), "= 1"),
        (safe_text("a\x07b"), "a\N{REPLACEMENT CHARACTER}b"),
        (safe_text("x" * 999), f"{'x' * 239}…"),
    ],
)
def test_numbers_are_rounded_without_saying_none_or_all(shown: str, says: str) -> None:
    assert shown == says


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_an_e_value_is_reported_in_few_letters_and_in_order(log_e: float) -> None:
    shown = e_value(log_e)
    assert len(shown) <= 12 and shown[0] in "=<>"
    assert re.fullmatch(r"[=<>]\s[\d.,]+( × )?[⁰¹²³⁴⁵⁶⁷⁸⁹\d]*", shown)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1e-9, "< .01"), (0.04, "= .04"), (1.0, "= 1.0"), (9.94, "= 9.9"), (27.2, "= 27"), (349, "= 350"),
        (4136.0, "= 4,100"), (994_000.0, "= 990,000"), (1.5e7, "= 1.5 × 10⁷"), (1e30, "= 1.0 × 10³⁰"),
        (1e200, "> 10⁹⁹"),
    ],
)  # fmt: skip
def test_e_values_keep_the_digits_that_count(value: float, says: str) -> None:
    assert e_value(math.log(value)) == says
    assert e_value(None) == "–"
    assert [format_ratio(factor) for factor in (1.5, 9.96, 496.8, 3721.0)] == [
        "1.5",
        "10",
        "500",
        "3,700",
    ]
    assert format_ratio(math.inf) == "over a million"


SETS = 40  # of a table


def distances(groups: int, *, biased: bool = False) -> Distances:
    names = [f"shift_{number}" for number in range(groups)]
    sets = [ImageSet("dataset", "d", 3, 70, 900, 35, 450)]
    sets += [ImageSet("group", name, 3, 70, 900, 35, 450, biased) for name in names]
    sets.append(ImageSet("source", "train against validation", 3, 900, 900, 450, 450))
    return Distances(
        "lab:clip", "sha256 " + "ab" * 32, 512, scaled=True, source="lab:wardrobe", sets=tuple(sets)
    )


def rows(shown: Distances, unmeasured: str = "") -> Iterator[ResultRow]:
    for images in shown.sets:
        kid = -0.0001 if images.what == "source" else 0.12345
        if images.name == unmeasured:
            yield estimate_row("kid", None, note="too few", **shown.key(images))
            continue
        yield estimate_row("kid", Estimate(kid, kid - 0.01, kid + 0.01), **shown.key(images))
        yield estimate_row("fid", 12.3456, **shown.key(images))


def test_numbers_have_the_digits_that_their_interval_bears_and_the_source_is_last() -> None:
    message = distances(2)
    table = distances_table(message, ResultRows(rows(message)))
    shown = [[cell.text for cell in row.cells[:3]] for row in table.rows]
    assert shown == [
        ["d, all of it", "0.123", "12.3"],
        ["shift_0", "0.123", "12.3"],
        ["shift_1", "0.123", "12.3"],
        ["train against validation", "0.000", "12.3"],
    ]
    assert [row.cells[1].below for row in table.rows[-2:]] == ["0.113 to 0.133", "−0.010 to 0.010"]
    assert [row.style for row in table.rows] == ["", "", "", "quiet"] and about_bias(message) == ""


def test_a_table_is_bounded_and_what_was_not_measured_is_a_dash() -> None:
    shown = distances(100, biased=True)
    table = distances_table(shown, ResultRows(rows(shown, "shift_0")))
    assert (
        len(table.rows) == SETS + 1 and table.rows[-1].cells[0].text == "train against validation"
    )
    assert table.more == f"and {101 - SETS} more sets of images, in distances.csv"
    assert [cell.text for cell in table.rows[1].cells[1:3]] == ["–", "–"] and table.rows[1].cells[
        1
    ].below == "too few"
    assert table.rows[2].cells[2].text == "12.3†" and about_bias(shown).startswith("† Too high")
