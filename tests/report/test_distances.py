"""The table of distances is bounded, with as many digits as intervals bear."""

from __future__ import annotations

from collections.abc import Iterator

from counterfoil.report.distances import Distances, ImageSet, about_bias, distances_table
from counterfoil.report.results import ResultRow, ResultRows, row
from counterfoil.stats import Estimate

SETS = 40  # of a table


def distances(groups: int, *, biased: bool = False) -> Distances:
    names = [f"shift_{number}" for number in range(groups)]
    sets = [ImageSet("dataset", "d", 3, 70, 900, 35, 450)]
    sets += [ImageSet("group", name, 3, 70, 900, 35, 450, biased) for name in names]
    sets.append(ImageSet("source", "train against validation", 3, 900, 900, 450, 450))
    return Distances("lab:clip", "sha256 " + "ab" * 32, 512, scaled=True, source="lab:wardrobe", sets=tuple(sets))


def rows(told: Distances, unmeasured: str = "") -> Iterator[ResultRow]:
    for one in told.sets:
        kid = -0.0001 if one.what == "source" else 0.12345
        if one.name == unmeasured:
            yield row("kid", None, note="too few", **told.key(one))
            continue
        yield row("kid", Estimate(kid, kid - 0.01, kid + 0.01), **told.key(one))
        yield row("fid", 12.3456, **told.key(one))


def test_numbers_have_the_digits_that_their_interval_bears_and_the_source_is_last() -> None:
    told = distances(2)
    table = distances_table(told, ResultRows(rows(told)))
    shown = [[cell.text for cell in row.cells[:3]] for row in table.rows]
    assert shown == [
        ["d, all of it", "0.123", "12.3"],
        ["shift_0", "0.123", "12.3"],
        ["shift_1", "0.123", "12.3"],
        ["train against validation", "0.000", "12.3"],
    ]
    assert [row.cells[1].below for row in table.rows[-2:]] == ["0.113 to 0.133", "−0.010 to 0.010"]
    assert [row.style for row in table.rows] == ["", "", "", "quiet"] and about_bias(told) == ""


def test_a_table_is_bounded_and_what_was_not_measured_is_a_dash() -> None:
    told = distances(100, biased=True)
    table = distances_table(told, ResultRows(rows(told, "shift_0")))
    assert len(table.rows) == SETS + 1 and table.rows[-1].cells[0].text == "train against validation"
    assert table.more == f"and {101 - SETS} more sets of images, in distances.csv"
    assert [cell.text for cell in table.rows[1].cells[1:3]] == ["–", "–"] and table.rows[1].cells[1].below == "too few"
    assert table.rows[2].cells[2].text == "12.3†" and about_bias(told).startswith("† Too high")
