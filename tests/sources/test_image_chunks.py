"""Stretches of images: every row once, in order, held until they are released."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.engines.executor import named
from counterfoil.errors import RunFailure
from counterfoil.sources import LabelledImages
from counterfoil.sources.image_chunks import Chunks


def pictures(count: int, told: int | None = None) -> tuple[LabelledImages, list[int]]:
    """So many images that are numbers, of which `told` are given (all), and the rows that were read so far."""
    read: list[int] = []

    def reading(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row in range(count if told is None else told):
            read.append(row)
            yield f"k{row}", None if row % 5 == 3 else str(row).encode()

    zeros = np.zeros(count, dtype=np.int64)
    keys = tuple(f"k{row}" for row in range(count))
    return LabelledImages("numbers", "numbers", keys, np.arange(count), zeros, ("all",), reading), read


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 40))
def test_every_row_comes_once_and_in_order(count: int, size: int, first: int) -> None:
    images, _ = pictures(count)
    chunks = list(Chunks(images, size, first))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(first, count))
    for chunk in chunks:
        assert chunk.labels.tolist() == list(range(chunk.start, chunk.stop))
        assert [one for one in chunk.encoded if one] == [
            str(row).encode() for row in range(chunk.start, chunk.stop) if row % 5 != 3
        ]


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
    images, _ = pictures(10, told=7)
    with pytest.raises(RunFailure, match="10 images were expected and 7 were read"):
        list(Chunks(images, 4))


def test_people_are_told_of_a_stretch_by_its_rows() -> None:
    images, _ = pictures(9)
    assert [named(chunk) for chunk in Chunks(images, 4, 1)] == ["rows 1 to 4", "rows 5 to 8"]
