"""Contents of images: by their bytes alone, read once, and copies told from originals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from counterfoil.embedding import contents_of, first_of_content
from counterfoil.errors import RunFailure
from counterfoil.sources import LabelledImages

ENCODED = [b"one", b"two", None, b"one", b"", b"two", b"three"]


def some_images(content: str, encoded: list[bytes | None], most: int | None = None) -> tuple[LabelledImages, list[int]]:
    """Images, and a list that grows by each that is read."""
    read: list[int] = []

    def reading(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row, image in enumerate(encoded[:most]):
            read.append(row)
            yield str(row), image

    zeros = np.zeros(len(encoded), dtype=np.int64)
    keys = tuple(map(str, range(len(encoded))))
    return LabelledImages("some", content, keys, zeros, zeros, ("all",), reading), read


def test_they_are_hashes_of_the_bytes_and_read_once(tmp_path: Path) -> None:
    images, read = some_images("a", ENCODED)
    found = contents_of(images, tmp_path)
    for row, image in zip(found, ENCODED, strict=True):
        assert row.tobytes() == (bytes(32) if image is None else hashlib.sha256(image).digest())
    assert first_of_content(found).tolist() == [True, True, True, False, True, False, True]
    assert np.array_equal(contents_of(images, tmp_path), found) and len(read) == len(ENCODED)
    other, _ = some_images("b", list(reversed(ENCODED)))
    assert np.array_equal(contents_of(other, tmp_path), found[::-1])


def test_fewer_images_than_keys_end_it_and_leave_nothing(tmp_path: Path) -> None:
    images, _ = some_images("a", ENCODED, most=3)
    with pytest.raises(RunFailure, match="7 images were expected and 3 were read"):
        contents_of(images, tmp_path)
    assert not list(tmp_path.iterdir())
