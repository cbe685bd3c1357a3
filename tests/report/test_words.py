"""Numbers as people read them: rounded without saying none or all, signed, in few letters."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.report.words import e_value, named, points, probability, share, times


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (share(None), "–"), (share(0.0), "0 %"), (share(0.004), "0.4 %"), (share(0.0000001), "<0.1 %"),
        (share(0.0949), "9 %"), (share(0.9999999), ">99.9 %"), (share(1.0), "100 %"),
        (points(-0.004, decimals=0), "0"), (points(-0.126, decimals=0), "−13"), (points(0.52, decimals=0), "52"),
        (probability(0.0), "< .001"), (probability(0.002), "= .002"), (probability(0.0344), "= .034"),
        (probability(0.1), "= .10"), (probability(0.61), "= .61"), (probability(1.0), "= 1"),
        (named("a\x07b"), "a\N{REPLACEMENT CHARACTER}b"), (named("x" * 999), f"{'x' * 239}…"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_without_saying_none_or_all(shown: str, told: str) -> None:
    assert shown == told


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_an_e_value_is_told_in_few_letters_and_in_order(log_e: float) -> None:
    told = e_value(log_e)
    assert len(told) <= 12 and told[0] in "=<>"
    assert re.fullmatch(r"[=<>]\s[\d.,]+( × )?[⁰¹²³⁴⁵⁶⁷⁸⁹\d]*", told)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1e-9, "< .01"), (0.04, "= .04"), (1.0, "= 1.0"), (9.94, "= 9.9"), (27.2, "= 27"), (349, "= 350"),
        (4136.0, "= 4,100"), (994_000.0, "= 990,000"), (1.5e7, "= 1.5 × 10⁷"), (1e30, "= 1.0 × 10³⁰"),
        (1e200, "> 10⁹⁹"),
    ],
)  # fmt: skip
def test_e_values_keep_the_digits_that_count(value: float, told: str) -> None:
    assert e_value(math.log(value)) == told
    assert e_value(None) == "–"
    assert [times(one) for one in (1.5, 9.96, 496.8, 3721.0)] == ["1.5", "10", "500", "3,700"]
    assert times(math.inf) == "over a million"
