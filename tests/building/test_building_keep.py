"""A build that keeps the best of each cell: whole, verified, and cut again by other rules without rendering."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import warm
from counterfoil.calibration.recut_dataset import recut
from counterfoil.store import read_rows
from counterfoil.verification import verify
from loopback_hub import LoopbackHub, Reader, client_environment
from tiny_builds import SHIFTS, build_arguments, command, killed, published, tiny

TOP = ("screen.keep=[thresholds, {top: {k: 1, by: shift}}]", "screen.keep_rejected=true")


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("best") / "dataset"
    tiny(out, *TOP)
    return out


def reasons(directory: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for row in read_rows(directory, columns=["shift", "reason"], what="candidates"):
        found.setdefault(row["shift"], Counter())[row["reason"]] += 1
    return found


def test_the_best_of_each_cell_is_kept_and_the_base_whole(best: Path) -> None:
    assert reasons(best) == {
        shift: Counter(accepted=6) if shift == "base" else Counter(accepted=3, below_top=3) for shift in SHIFTS
    }
    rows = list(read_rows(best, columns=["shift", "label", "reason", "shift_score"], what="candidates"))
    for shift in SHIFTS[1:]:
        for label in range(3):
            cell = [row for row in rows if (row["shift"], row["label"]) == (shift, label)]
            kept = [row["shift_score"] for row in cell if row["reason"] == "accepted"]
            assert kept == [max(row["shift_score"] for row in cell)]


def test_it_is_whole_and_the_same_again(best: Path, tmp_path: Path) -> None:
    assert verify(best).problems == ()
    (tmp_path / "again").mkdir()
    tiny(tmp_path / "again", *TOP, workers=1)
    assert published(tmp_path / "again") == published(best)


def test_a_killed_build_goes_on(best: Path, tmp_path: Path) -> None:
    killed(build_arguments(tmp_path / "out", *TOP), tmp_path / "out", 3)
    tiny(tmp_path / "out", *TOP)
    assert published(tmp_path / "out") == published(best)


def test_it_is_published_and_loaded(best: Path, loopback: LoopbackHub, tmp_path: Path) -> None:
    words, environment = command("publish", str(best), "someone/best", "--yes")
    there = client_environment(loopback, tmp_path / "home", inherited=environment)
    warm.run(words, there, check=True)
    with Reader(loopback, tmp_path / "reader") as reader:
        splits = reader.rows("someone/best", columns=["key"])
    read = {row["key"] for rows in splits.values() for row in rows}
    assert read == {row["key"] for row in read_rows(best, columns=["key"])}


def test_other_rules_are_a_cut_and_the_bytes_of_a_fresh_build(best: Path, undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("screen: {keep: [thresholds], keep_rejected: false}\n")
    recut(best, tmp_path / "cut.yaml", tmp_path / "cut")
    assert published(tmp_path / "cut") == published(undisturbed)
    (tmp_path / "back.yaml").write_text("prompts: {shifts: {red: {keep: [{top: {k: 1, by: object}}]}}}\n")
    recut(tmp_path / "cut", tmp_path / "back.yaml", tmp_path / "back")
    assert reasons(tmp_path / "back")["red"] == Counter(accepted=3, below_top=3)
    assert reasons(tmp_path / "back")["pencil_sketch"] == Counter(accepted=6)
    assert verify(tmp_path / "back").problems == ()
