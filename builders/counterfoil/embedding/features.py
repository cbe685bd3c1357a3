"""Features of labelled images, streamed into an array on disk, which is found again by what it was computed from.

A run that is killed goes on where it stood. Rows of images that cannot be decoded are NaN.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding.embedders import Embedder
from counterfoil.embedding.rows import embedded_batches
from counterfoil.embedding.spread import embedded_on_engine
from counterfoil.engines import Engine, Lost
from counterfoil.errors import RunFailure
from counterfoil.progress import report
from counterfoil.recipe import sha256_json
from counterfoil.store.atomic import make_folder, told_to_people, write_atomically

if TYPE_CHECKING:
    from counterfoil.sources import LabelledImages

Precision = Literal["float16", "float32"]
# Rows between two notes of how far the array is: at most these are computed again after a kill.
_HEAD = 4096  # bytes, more than numpy says of a file before its rows
_PART_ROWS = 1024


def embed(
    images: LabelledImages,
    embedder: Embedder,
    folder: Path,
    *,
    batch_size: int = 64,
    precision: Precision = "float16",
    engine: Engine | None = None,
    device: str = "cpu",
) -> NDArray[np.floating]:
    """Features [n, width] of n images, mapped from a file in `folder`; NaN where an image cannot be decoded.

    The file is named after the images' content, the embedder's key, the batch size and the precision: what is there is
    not computed again. RunFailure when the disk refuses, or where fewer images come than there are keys.

    Reports after each batch; the stage is called after the embedder. With an engine its workers embed, each on its
    device, where the embedder can be made anew there. What nobody may use again is no file.
    """
    if not embedder.kept:
        rows = []
        for part in _parts(images, embedder, None, device, batch_size, 0):
            assert not isinstance(part, Lost)  # no worker is asked
            rows.append(part)
            report(embedder.name, sum(map(len, rows)), len(images))
        return np.concatenate(rows).astype(precision)
    key = sha256_json([images.content, embedder.key, batch_size, precision])
    path = folder / f"{_plain(embedder.name)}-{key[:24]}.npy"
    known = _opened(path, len(images), precision)
    if known is not None:
        report(embedder.name, len(images), len(images))
        return known
    make_folder(folder)
    part, note = path.with_suffix(".part.npy"), path.with_suffix(".done")
    array, done = _begun(part, note, len(images), precision)
    with told_to_people(path):
        for rows in _parts(images, embedder, engine, device, batch_size, done):
            if isinstance(rows, Lost):
                report(embedder.name, done, len(images), rows.told)
                continue
            if array is None:
                array = np.lib.format.open_memmap(part, "w+", np.dtype(precision), (len(images), rows.shape[1]))
                _reserve(part)
            array[done : done + len(rows)] = rows
            before, done = done, done + len(rows)
            if done // _PART_ROWS > before // _PART_ROWS:
                _note(array, note, done)
            report(embedder.name, done, len(images))
        if array is None or done != len(images):
            raise RunFailure(f"{images.name}: {len(images)} images were expected and {done} were read")
        array.flush()
        del array
        part.replace(path)
        note.unlink(missing_ok=True)
    found = _opened(path, len(images), precision)
    assert found is not None  # it was written just now
    return found


def _parts(
    images: LabelledImages, embedder: Embedder, engine: Engine | None, device: str, batch_size: int, done: int
) -> Iterator[NDArray[np.float32] | Lost]:
    """Features of whole batches from row `done` on."""
    if engine is not None and embedder.on is not None:
        return embedded_on_engine(images, embedder, engine, device, batch_size, done)
    stream = islice((encoded for _, encoded in images.images()), done, None)
    return embedded_batches(stream, embedder, batch_size, device, images.decoded)


def _opened(path: Path, rows: int, precision: Precision) -> NDArray[np.floating] | None:
    """The array of a file, mapped read-only; None where there is none of that form."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    sound = array.ndim == 2 and len(array) == rows and array.dtype == np.dtype(precision)
    return array if sound else None


def _begun(part: Path, note: Path, rows: int, precision: Precision) -> tuple[np.memmap | None, int]:
    """What a killed run left, and how many of its rows are done; whole batches only were noted."""
    with contextlib.suppress(OSError, ValueError):
        done = int(note.read_text(encoding="ascii"))
        if _opened(part, rows, precision) is not None and 0 < done <= rows:
            return np.load(part, mmap_mode="r+"), done
    return None, 0


def _reserve(part: Path) -> None:
    """OSError where the disk has no room for a mapped file: a page without any ends the process without a word."""
    with part.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
            return
        begun = file.read(_HEAD)  # what numpy wrote
        file.seek(0)
        file.write(begun)
        for start in range(len(begun), size, 1 << 20):
            file.write(bytes(min(1 << 20, size - start)))


def _note(array: np.memmap, note: Path, done: int) -> None:
    array.flush()
    write_atomically(note, str(done).encode())


def _plain(name: str) -> str:
    """A name as a part of a file's name: for people, the key is what counts."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[-60:].strip("._-")
