"""What is drawn of a test in pairs: which image belongs to which, where the line is, what its numbers look like."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from drawn_examples import drawn_example
from hypothesis import example, given
from hypothesis import strategies as st

from counterfoil.mining.drawn_findings import SequentialLook
from counterfoil.mining.figures import bar_figure, looks_figure, pairs_figure
from counterfoil.mining.report import evidence, times
from counterfoil.mining.shown_pairs import base_key, counts_from


@given(
    st.text(max_size=12), st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.lists(st.text(max_size=6), max_size=3),
    st.integers(0, 10**9),
)  # fmt: skip
@example("rounds/01", "in_05", ["5", "05"], 3)
def test_a_base_image_shares_round_class_and_index_with_its_partner(
    folder: str, shift: str, classes: list[str], index: int
) -> None:
    for class_id in classes:
        key = f"{folder}/{shift}_{class_id}_{index:06d}"
        found = base_key(key, [class_id])
        if folder and "/" not in class_id:
            assert found == f"{folder}/base_{class_id}_{index:06d}"
            assert found is not None and base_key(found, [class_id]) == found


def test_keys_that_are_none_of_a_round_have_no_base() -> None:
    for key in ("", "/", "audit/3", "snow_05_000001", "rounds/01/snow_05_x", "rounds/01/snow_06_000001"):
        assert base_key(key, ["05"]) is None


def brute_force(e_values: list[float], alpha: float) -> int:
    """How many e-BH rejects, by its definition."""
    m, ordered = len(e_values), sorted(e_values, reverse=True)
    return max((k for k in range(1, m + 1) if ordered[k - 1] >= m / (alpha * k)), default=0)


@given(st.lists(st.floats(-5, 12), min_size=1, max_size=12, unique=True))
def test_the_line_of_a_hypothesis_is_where_e_bh_confirms(log_es: list[float]) -> None:
    findings = drawn_example()
    template = findings.findings[0]
    assert template.pairs is not None
    count = brute_force([math.exp(one) for one in log_es], findings.fdr)
    ordered = sorted(log_es, reverse=True)
    tests = [replace(template.pairs, looks=(SequentialLook(9, own),)) for own in ordered]
    hypotheses = tuple(
        replace(template, name=f"h{at}", confirmed=at < count, q=0.0, pairs=test) for at, test in enumerate(tests)
    )
    document = replace(findings, findings=hypotheses, tested=len(hypotheses))
    for one, own in zip(hypotheses, ordered, strict=True):
        line = counts_from(document, one)
        assert line is not None
        assert own >= line - 1e-9 if one.confirmed else own < line + 1e-9


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.integers(0, 10**9), finite), min_size=1, max_size=8), st.none() | st.floats(0, 40))
def test_looks_are_drawn_whatever_they_are(looks: list[tuple[int, float]], line: float | None) -> None:
    figure = str(looks_figure([SequentialLook(*look) for look in sorted(looks)], line))
    assert figure.count("<circle") == len(looks) and ("counts" in figure) == (line is not None)
    heights = [float(one) for one in re.findall(r' (?:cy|y1)="([^"]+)"', figure)]
    places = [float(one) for one in re.findall(r' cx="([^"]+)%"', figure)]
    assert all(0 <= one <= 120 for one in heights) and all(0 <= one <= 100 for one in places)
    assert len(re.findall('class="(?:grid|one)"', figure)) < 20


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_an_e_value_is_told_in_few_letters_and_in_order(log_e: float) -> None:
    told = evidence(log_e)
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
    assert evidence(math.log(value)).replace("\N{NO-BREAK SPACE}", " ") == told
    assert evidence(None) == "–"
    assert [times(one) for one in (1.5, 9.96, 496.8, 3721.0)] == ["1.5", "10", "500", "3,700"]
    assert times(math.inf) == "over a million"


def test_a_strip_is_as_long_as_its_pairs_and_a_bar_as_its_share() -> None:
    strip = str(pairs_figure(((3, "failing"), (0, "both"), (1, "rescued"), (4, "fine"))))
    assert re.findall(r'class="(\w+)" x="([\d.]+)%" y="0" width="([\d.]+)%"', strip) == [
        ("failing", "0.00", "37.50"), ("rescued", "37.50", "12.50"), ("fine", "50.00", "50.00"),
    ]  # fmt: skip
    assert "rect" not in str(pairs_figure(((0, "failing"),)))
    widths = [re.findall(r'y="0" width="([\d.]+)%"', str(bar_figure(one, 0.4, "failing"))) for one in (0.4, 1e-9, 0)]
    assert widths == [["100.00"], ["0.80"], ["0.00"]]
