"""The proof of directions: its intervals are over worlds, and its tables take their own place in RESULTS.md alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from counterfoil.lab.planted import named_world
from directions_proof import report
from directions_proof.intervals import mean_of, rank_correlation, share_of
from directions_proof.parts import PARTS
from directions_proof.plan import FULL, INTERVENED, SETTINGS, STRENGTHS


def test_every_world_is_one_and_no_printed_one_chose_a_setting() -> None:
    names = {*FULL, *STRENGTHS, *INTERVENED, *SETTINGS}
    worlds = {name: named_world(name) for name in names}
    assert all(worlds.values())
    printed = {*FULL, *STRENGTHS, *INTERVENED}
    assert all(world.seed >= 100 for name, world in worlds.items() if world is not None and name in printed)
    assert all(world.seed < 4 for name, world in worlds.items() if world is not None and name in SETTINGS)
    of_strengths = [worlds[name] for name in STRENGTHS]
    strengths = [world.strength for world in of_strengths if world is not None]
    assert {strengths.count(strength) for strength in strengths} == {3}


def test_an_interval_of_a_mean_is_as_wide_as_worlds_differ() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(60):
        found = mean_of(rng.normal(0.5, 0.1, 20).tolist())
        inside += found.low <= 0.5 <= found.high
        assert found.low < found.value < found.high
        assert found.high - found.low == pytest.approx(2 * 1.96 * 0.1 / np.sqrt(20), rel=0.5)
    assert inside >= 50
    alike = mean_of([0.7] * 5)
    assert (alike.low, alike.high, alike.worlds) == (pytest.approx(0.7), pytest.approx(0.7), 5)


def test_counts_are_summed_over_worlds_and_worlds_without_any_say_nothing() -> None:
    assert share_of([(1, 2), (0, 6), (0, 0)]).value == pytest.approx(1 / 8)
    nothing = share_of([(0, 0), (0, 0)])
    assert not np.isfinite(nothing.value) and nothing.text() == "–"
    assert share_of([]).text() == "–"


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    left = rng.random(24)
    right = left + 0.2 * rng.random(24)
    found = rank_correlation(list(zip(left.tolist(), right.tolist(), strict=True)))
    assert found.value == pytest.approx(spearmanr(left, right)[0])
    assert found.low < found.value <= found.high


def test_the_same_worlds_give_the_same_interval() -> None:
    values = np.random.default_rng(2).random(9).tolist()
    assert mean_of(values) == mean_of(values)


def test_a_section_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\n## Others\n\ntheirs\n")
    title = PARTS["ranking"].title
    report.write(path, {"ranking": ["| first |"]}, {"ranking": {"correlation-100": {}}}, 1000)
    first = path.read_text()
    assert first.startswith("# Results\n\n## Others\n\ntheirs\n") and f"### {title}" in first and "| first |" in first
    path.write_text(first + "\n## After\n")
    report.write(path, {"ranking": ["| second |"]}, {"ranking": {"correlation-100": {}}}, 1000)
    second = path.read_text()
    assert "| first |" not in second and "| second |" in second
    assert "theirs" in second and second.endswith("\n## After\n")
    assert second.count(report.BEGIN) == second.count(report.END) == 1


def test_parts_that_are_not_measured_again_stand_as_they_did(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n")
    for tables in ({"ranking": ["| old |"], "closest": ["| kept |"]}, {"ranking": ["| new |"]}):
        report.write(path, tables, {part: {"correlation-100": {}} for part in tables}, 1000)
    text = path.read_text()
    assert "| old |" not in text
    assert text.index("| new |") < text.index("| kept |")
    assert text.count(PARTS["closest"].title) == text.count(PARTS["ranking"].title) == 1
