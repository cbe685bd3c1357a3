"""Labelled images: the first of each class, stretches for workers, and halves that share
nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis import strategies as st

from counterfoil.data.labelled_images import (
    Chunks,
    Halves,
    LabelledImages,
    deal_halves,
    first_of_classes,
    stretch_rows,
)
from counterfoil.engines.executor import name_of_item
from counterfoil.errors import RunFailure
from support.refusals import refuses


def test_the_first_of_a_class_are_the_same_whatever_else_there_is() -> None:
    keys = [f"validation_{n:08d}" for n in range(300)]
    labels = np.arange(300) % 3
    chosen = first_of_classes(keys, labels, 20)
    assert len(chosen) == 60 and np.all(np.diff(chosen) > 0)
    assert np.bincount(labels[chosen]).tolist() == [20, 20, 20]
    of_class = np.flatnonzero(labels == 1)
    alone = first_of_classes([keys[row] for row in of_class], labels[of_class], 20)
    assert {keys[of_class[row]] for row in alone} == {
        keys[row] for row in chosen if labels[row] == 1
    }
    fewer = first_of_classes(keys, labels, 5)
    assert set(fewer) < set(chosen)
    # Not the first rows: a split may be sorted by anything.
    assert chosen.max() > 200


def test_at_most_so_many_images_a_class_whatever_their_order() -> None:
    keys = [f"validation/{number}" for number in range(60)]
    labels = np.array([number % 3 == 0 for number in range(60)], dtype=np.int64)
    chosen = first_of_classes(keys, labels, 15)
    assert np.bincount(labels[chosen]).tolist() == [15, 15]
    turned = first_of_classes(keys[::-1], labels[::-1], 15)
    assert {keys[::-1][row] for row in turned} == {keys[row] for row in chosen}
    assert first_of_classes(keys, labels, 40).tolist() == list(range(60))


def pictures(count: int, given: int | None = None) -> tuple[LabelledImages, list[int]]:
    """Return `count` numbers as images, of which `given` (all) are read out, and the list of rows
    read so far."""
    read: list[int] = []

    def reading(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row in range(count if given is None else given):
            read.append(row)
            yield f"k{row}", None if row % 5 == 3 else str(row).encode()

    zeros = np.zeros(count, dtype=np.int64)
    keys = tuple(f"k{row}" for row in range(count))
    return LabelledImages(
        "numbers", "numbers", keys, np.arange(count), zeros, ("all",), reading
    ), read


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 40))
def test_every_row_comes_once_and_in_order(count: int, size: int, first: int) -> None:
    images, _ = pictures(count)
    chunks = list(Chunks(images, size, first))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(
        range(first, count)
    )
    for chunk in chunks:
        assert chunk.labels.tolist() == list(range(chunk.start, chunk.stop))
        assert [content for content in chunk.encoded if content] == [
            str(row).encode() for row in range(chunk.start, chunk.stop) if row % 5 != 3
        ]


@given(st.integers(1, 20_000), st.integers(1, 100), st.integers(1, 64))
def test_stretches_are_dealt_to_all_workers(rows: int, batch_size: int, workers: int) -> None:
    size = stretch_rows(rows, batch_size, workers)
    batches = -(-rows // batch_size)
    stretches = -(-rows // size)
    assert size % batch_size == 0 and size <= 8 * batch_size
    assert stretches >= min(workers, batches)
    # Even if one takes the last stretch while the others wait, it is a small share of what each
    # worker did.
    assert size == batch_size or size * workers * 4 <= batches * batch_size


def test_a_stretch_is_read_when_it_is_asked_for_and_is_there_until_it_is_released() -> None:
    images, read = pictures(100)
    chunks = Chunks(images, 10)
    assert len(chunks) == 10
    assert not read
    second = chunks[1]
    assert len(read) == 20
    assert chunks[1] is second  # given again to another worker
    chunks.release(second)
    assert chunks[0].start == 0
    with pytest.raises(ValueError, match="rows from 10 on are asked for again"):
        chunks[1]


def test_fewer_images_than_keys_are_no_shorter_stretch() -> None:
    images, _ = pictures(10, given=7)
    with refuses("changed-data", images.name, "10 images", "7 were read", kind=RunFailure):
        list(Chunks(images, 4))


def test_people_are_reported_of_a_stretch_by_its_rows() -> None:
    images, _ = pictures(9)
    assert [name_of_item(chunk) for chunk in Chunks(images, 4, 1)] == ["rows 1 to 4", "rows 5 to 8"]


Row = tuple[int, str, str]  # label, unit, content
ROWS = some.lists(
    some.tuples(
        some.integers(0, 3), some.sampled_from("abcdefghij"), some.sampled_from("0123456789")
    ),
    max_size=40,
)
SEEDS = some.integers(0, 2**53)
SHARED = some.sampled_from([("units",), ("contents",), ("units", "contents")])


def deal(rows: list[Row], seed: int, shared: tuple[str, ...]) -> Halves:
    columns = {"units": [row[1] for row in rows], "contents": [row[2] for row in rows]}
    labels = np.asarray([row[0] for row in rows], dtype=np.int64)
    return deal_halves(labels, seed, **{name: columns[name] for name in shared})


def clusters_of(rows: list[Row], shared: tuple[str, ...]) -> list[set[int]]:
    """Merge sets until no two share anything, as the definition says."""
    fields = [{"units": 1, "contents": 2}[name] for name in shared]
    clusters: list[set[int]] = []
    for row in range(len(rows)):
        joined = {row}
        for other in list(clusters):
            if any(rows[row][field] == rows[member][field] for member in other for field in fields):
                clusters.remove(other)
                joined |= other
        clusters.append(joined)
    return clusters


@given(ROWS, SEEDS, SHARED)
def test_every_row_is_in_one_half_and_what_it_shares_is_with_it(
    rows: list[Row], seed: int, shared: tuple[str, ...]
) -> None:
    halves = deal(rows, seed, shared)
    discover = set(halves.discover.tolist())
    confirm = set(halves.confirm.tolist())
    assert sorted([*halves.discover, *halves.confirm]) == list(range(len(rows)))
    for cluster in clusters_of(rows, shared):
        assert cluster <= discover or cluster <= confirm
    for name, field in (("units", 1), ("contents", 2)):
        if name in shared:
            assert not {rows[row][field] for row in discover} & {
                rows[row][field] for row in confirm
            }


@given(ROWS, SEEDS, SHARED, some.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(
    rows: list[Row], seed: int, shared: tuple[str, ...], chance
) -> None:
    order = list(range(len(rows)))
    chance.shuffle(order)
    shuffled = deal([rows[row] for row in order], seed, shared)
    assert (
        sorted(order[row] for row in shuffled.discover)
        == deal(rows, seed, shared).discover.tolist()
    )


@given(ROWS, SEEDS, SHARED)
def test_classes_are_dealt_evenly_to_within_a_cluster(
    rows: list[Row], seed: int, shared: tuple[str, ...]
) -> None:
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
        discover, confirm = (
            sum(rows[row][0] == label for row in half) for half in (halves.discover, halves.confirm)
        )
        assert abs(discover - confirm) <= max(sizes, default=0)


def test_rows_for_themselves_are_dealt_to_within_one_row() -> None:
    labels = np.arange(1001) % 7
    halves = deal_halves(labels, 3, contents=[f"{row:064d}" for row in range(1001)])
    for label in range(7):
        counts = [int((labels[half] == label).sum()) for half in (halves.discover, halves.confirm)]
        assert abs(counts[0] - counts[1]) <= 1
    # No pattern of the rows' places: neighbours are not simply dealt in turn.
    same = np.isin(np.arange(0, 994, 7), halves.discover) == np.isin(
        np.arange(7, 1001, 7), halves.discover
    )
    assert 0.3 < same.mean() < 0.7


def test_clusters_of_several_classes_are_weighed_together() -> None:
    labels = np.asarray([0, 1] * 50)
    units = [f"photo {row // 2}" for row in range(100)]
    halves = deal_halves(labels, 0, units=units)
    assert Counter(labels[halves.discover].tolist()) == {0: 25, 1: 25}


def test_another_seed_deals_otherwise() -> None:
    labels = np.zeros(200, dtype=np.int64)
    units = [str(row) for row in range(200)]
    dealt = {tuple(deal_halves(labels, seed, units=units).discover.tolist()) for seed in range(20)}
    assert len(dealt) == 20


def test_dealing_stays_what_it_is_documented_to_be() -> None:
    """Existing findings record only the seed of their halves."""
    halves = deal_halves(
        np.asarray([0, 0, 0, 1, 1, 1], np.int64), 0, units=["a", "b", "b", "c", "d", "e"]
    )
    assert halves.discover.tolist() == [0, 3, 5]
