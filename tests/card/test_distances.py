"""The section of distances is bounded and made of whole results alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from counterfoil.card.distances import MOST_MODELS, MOST_ROWS, distances_of


def row(what: str, name: str, kid: float | None = 0.12345, biased: bool = False) -> dict[str, Any]:
    interval = None if kid is None else {"value": kid, "low": kid - 0.01, "high": kid + 0.01}
    fid = None if kid is None else 12.3456
    counts = {"images": 70, "source_images": 900}
    return {"what": what, "name": name, "kid": interval, "fid": fid, "fid_biased": biased, **counts}


def results(groups: int, models: int = 1) -> dict[str, Any]:
    one = {
        "features": "lab:clip",
        "pin": "sha256 " + "ab" * 32,
        "width": 512,
        "scaled": True,
        "source": "lab:wardrobe:validation",
        "subsets": 100,
        "rows": [row("dataset", "d"), *(row("group", f"shift_{number}") for number in range(groups))],
        "near": row("source", "train against validation", kid=-0.0001),
    }
    return {"distances": [copy.deepcopy(one) for _ in range(models)]}


def test_numbers_have_the_digits_that_their_interval_bears_and_the_source_is_last() -> None:
    (table,) = distances_of(results(2))
    assert [one.name for one in table.rows] == ["d", "shift_0", "shift_1", "train against validation"]
    assert [one.whole for one in table.rows] == [True, False, False, False]
    assert (table.rows[0].kid, table.rows[0].fid) == ("0.123 (0.113 to 0.133)", "12.3")
    assert table.rows[-1].kid == "0.000 (-0.010 to 0.010)"
    assert (table.left_out, table.biased, table.pin) == (0, False, "sha256 abababababab")


def test_tables_are_bounded_and_what_was_not_measured_is_a_dash() -> None:
    document = results(100, models=9)
    document["distances"][0]["rows"][1] = row("group", "few", kid=None)
    document["distances"][1]["rows"][1] = row("group", "few", biased=True)
    tables = distances_of(document)
    assert len(tables) == MOST_MODELS
    assert len(tables[0].rows) == MOST_ROWS + 1 and tables[0].left_out == 101 - MOST_ROWS
    assert (tables[0].rows[1].kid, tables[0].rows[1].fid) == ("–", "–")
    assert tables[1].biased and tables[1].rows[1].fid == "12.3†"


@pytest.mark.parametrize("missing", ["features", "rows", "near", "width"])
def test_results_of_another_form_are_not_shown(missing: str) -> None:
    document = results(2)
    del document["distances"][0][missing]
    assert distances_of(document) == ()
    assert distances_of({}) == distances_of(None) == ()
    assert distances_of({"distances": {"a": 1}}) == distances_of({"distances": [7]}) == ()


@pytest.mark.parametrize("number", [float("inf"), float("nan"), "many", None, 1e308])
def test_numbers_of_a_stranger_break_nothing(number: Any) -> None:
    document = results(2)
    document["distances"][0]["rows"][1]["kid"]["high"] = number
    assert len(distances_of(document)) <= 1
