"""Halves share no unit and no image, hold every row once, and depend on what rows are and not on their order."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from counterfoil.sources.halves import Halves, deal_halves

Row = tuple[int, str, str]  # label, unit, content
ROWS = some.lists(
    some.tuples(some.integers(0, 3), some.sampled_from("abcdefghij"), some.sampled_from("0123456789")), max_size=40
)
SEEDS = some.integers(0, 2**53)
SHARED = some.sampled_from([("units",), ("contents",), ("units", "contents")])


def deal(rows: list[Row], seed: int, shared: tuple[str, ...]) -> Halves:
    columns = {"units": [row[1] for row in rows], "contents": [row[2] for row in rows]}
    labels = np.asarray([row[0] for row in rows], dtype=np.int64)
    return deal_halves(labels, seed, **{name: columns[name] for name in shared})


def clusters_of(rows: list[Row], shared: tuple[str, ...]) -> list[set[int]]:
    """As the definition says: merge sets until no two share anything."""
    fields = [{"units": 1, "contents": 2}[name] for name in shared]
    clusters: list[set[int]] = []
    for row in range(len(rows)):
        joined = {row}
        for other in list(clusters):
            if any(rows[row][field] == rows[one][field] for one in other for field in fields):
                clusters.remove(other)
                joined |= other
        clusters.append(joined)
    return clusters


@given(ROWS, SEEDS, SHARED)
def test_every_row_is_in_one_half_and_what_it_shares_is_with_it(
    rows: list[Row], seed: int, shared: tuple[str, ...]
) -> None:
    halves = deal(rows, seed, shared)
    discover, confirm = set(halves.discover.tolist()), set(halves.confirm.tolist())
    assert sorted([*halves.discover, *halves.confirm]) == list(range(len(rows)))
    for cluster in clusters_of(rows, shared):
        assert cluster <= discover or cluster <= confirm
    for name, field in (("units", 1), ("contents", 2)):
        if name in shared:
            assert not {rows[row][field] for row in discover} & {rows[row][field] for row in confirm}


@given(ROWS, SEEDS, SHARED, some.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(rows: list[Row], seed: int, shared: tuple[str, ...], chance) -> None:
    order = list(range(len(rows)))
    chance.shuffle(order)
    there = deal([rows[place] for place in order], seed, shared)
    assert sorted(order[place] for place in there.discover) == deal(rows, seed, shared).discover.tolist()


@given(ROWS, SEEDS, SHARED)
def test_classes_are_dealt_evenly_to_within_a_cluster(rows: list[Row], seed: int, shared: tuple[str, ...]) -> None:
    # One class a cluster, as garments, patients and photographs mostly have.
    clusters = clusters_of(rows, shared)
    rows = list(rows)
    for cluster in clusters:
        label = rows[min(cluster)][0]
        for row in cluster:
            rows[row] = (label, *rows[row][1:])
    halves = deal(rows, seed, shared)
    for label in range(4):
        sizes = [len(cluster) for cluster in clusters if rows[min(cluster)][0] == label]
        discover, confirm = (sum(rows[row][0] == label for row in half) for half in (halves.discover, halves.confirm))
        assert abs(discover - confirm) <= max(sizes, default=0)


def test_rows_for_themselves_are_dealt_to_within_one_row() -> None:
    labels = np.arange(1001) % 7
    halves = deal_halves(labels, 3, contents=[f"{row:064d}" for row in range(1001)])
    for label in range(7):
        counts = [int((labels[half] == label).sum()) for half in (halves.discover, halves.confirm)]
        assert abs(counts[0] - counts[1]) <= 1
    # No pattern of the rows' places: neighbours are not simply dealt in turn.
    same = np.isin(np.arange(0, 994, 7), halves.discover) == np.isin(np.arange(7, 1001, 7), halves.discover)
    assert 0.3 < same.mean() < 0.7


def test_clusters_of_several_classes_are_weighed_together() -> None:
    labels = np.asarray([0, 1] * 50)
    units = [f"photo {row // 2}" for row in range(100)]
    halves = deal_halves(labels, 0, units=units)
    assert Counter(labels[halves.discover].tolist()) == {0: 25, 1: 25}


def test_another_seed_deals_otherwise() -> None:
    labels, units = np.zeros(200, dtype=np.int64), [str(row) for row in range(200)]
    dealt = {tuple(deal_halves(labels, seed, units=units).discover.tolist()) for seed in range(20)}
    assert len(dealt) == 20


def test_dealing_stays_what_it_is_documented_to_be() -> None:
    """Findings that exist name their halves by the seed alone."""
    halves = deal_halves(np.asarray([0, 0, 0, 1, 1, 1]), 0, units=["a", "b", "b", "c", "d", "e"])
    assert halves.discover.tolist() == [0, 3, 5]


@pytest.mark.parametrize("shared", [{}, {"units": ["a"]}, {"units": ["a", "b"], "contents": ["a"]}])
def test_rows_that_tell_nothing_are_refused(shared: dict[str, list[str]]) -> None:
    with pytest.raises(ValueError, match="each of 2 rows"):
        deal_halves(np.asarray([0, 1]), 0, **shared)


def test_the_audit_split_has_no_garment_in_both_halves() -> None:
    from counterfoil.lab.wardrobe import load_wardrobe, wardrobe_garments

    labels, _ = load_wardrobe("audit")
    garments = np.asarray(wardrobe_garments("audit"))
    halves = deal_halves(labels, 0, units=garments.tolist())
    assert not set(garments[halves.discover]) & set(garments[halves.confirm])
    for label in range(10):
        counts = [int((labels[half] == label).sum()) for half in (halves.discover, halves.confirm)]
        assert counts[0] + counts[1] == 1200 and abs(counts[0] - counts[1]) <= 2
