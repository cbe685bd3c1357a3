"""Quota cells: the first n that pass, by index, in full batches, whoever renders them."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.store.reading import read_rows
from tiny_builds import images, published, tiny

QUOTA = ("samples={accepted: 2, at_most: 6, seed: 0}", "generator.batch_size=2", "output.rows_per_shard=12")
SHIFTS = ("prompts.shifts.red=null", "prompts.shifts.in_the_snow=null")


def _cells(directory: Path) -> dict[tuple[str, str], list[tuple[int, float, str]]]:
    cells: dict[tuple[str, str], list[tuple[int, float, str]]] = {}
    for row in read_rows(directory, what="candidates"):
        cell = cells.setdefault((row["shift"], row["class_id"]), [])
        cell.append((row["index"], row["object_score"], row["reason"]))
    return cells


@pytest.fixture(scope="module")
def threshold(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[tuple[str, str], list[float]]]:
    """The median score of all six candidates of every cell, and those scores."""
    out = tmp_path_factory.mktemp("all") / "dataset"
    tiny(out, *SHIFTS, "samples.candidates=6", *QUOTA[1:])
    scores = {cell: [score for _, score, _ in rows] for cell, rows in _cells(out).items()}
    every = sorted(score for rows in scores.values() for score in rows)
    return every[len(every) // 2], scores


@pytest.fixture(scope="module")
def quota(threshold, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quota") / "dataset"
    tiny(out, *SHIFTS, "samples=null", *QUOTA, f"screen.object_threshold={threshold[0]!r}")
    return out


def test_cells_stop_after_the_batch_that_fills_them(quota: Path, threshold) -> None:
    cut, scores = threshold
    cells = _cells(quota)
    assert cells.keys() == scores.keys()
    stops = set()
    for cell, rows in cells.items():
        # The same samples as without a quota, counted off in batches of two until two pass.
        passing, stop = 0, 6
        for start in (0, 2, 4):
            passing += sum(score >= cut for score in scores[cell][start : start + 2])
            if passing >= 2:
                stop = start + 2
                break
        assert [(index, score) for index, score, _ in rows] == list(enumerate(scores[cell][:stop]))
        kept, expected = 0, []
        for score in scores[cell][:stop]:
            if score < cut:
                expected.append("low_object")
                continue
            kept += 1
            expected.append("accepted" if kept <= 2 else "surplus")
        assert [reason for _, _, reason in rows] == expected
        stops.add(stop)
    assert len(images(quota)) == sum(reason == "accepted" for rows in cells.values() for _, _, reason in rows)
    assert len(stops) > 1, "the threshold must stop some cells early and others late"


def test_two_workers_stop_at_the_same_candidates(quota: Path, threshold, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    tiny(out, *SHIFTS, "samples=null", *QUOTA, f"screen.object_threshold={threshold[0]!r}", workers=2)
    assert published(out) == published(quota)


def test_a_quota_that_cannot_be_met_gives_up_at_its_cap(tmp_path: Path) -> None:
    one = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    result = tiny(tmp_path / "dataset", one, *SHIFTS, "samples=null", *QUOTA, "screen.object_threshold=1")
    assert result.counts == {shift: {"low_object": 6} for shift in ("base", "pencil_sketch")}
    assert result.accepted == 0
    assert not images(tmp_path / "dataset")


def test_what_passes_beyond_a_quota_inside_its_batch_is_surplus(tmp_path: Path) -> None:
    one = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    result = tiny(
        tmp_path / "dataset", one, *SHIFTS, "samples=null", "samples={accepted: 1, at_most: 6}", *QUOTA[1:],
    )  # fmt: skip
    assert result.counts == {shift: {"accepted": 1, "surplus": 1} for shift in ("base", "pencil_sketch")}
