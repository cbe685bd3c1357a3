"""Compute features of labelled images by CLIP or a classifier, and cache them in an array on disk.

The features of an unreadable image are NaN.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image

from counterfoil.data import LabelledImages
from counterfoil.data.labelled_images import Chunk, Chunks, stretch_rows
from counterfoil.engines import Doing, Engine, Finished, Lost
from counterfoil.errors import RunFailure, UserError
from counterfoil.prediction.predictions import readable_name
from counterfoil.progress import report, track
from counterfoil.recipe import sha256_json
from counterfoil.store.atomic import disk_errors, make_folder, write_atomically
from counterfoil.store.decoding import decoded_batches, readable_image

if TYPE_CHECKING:
    from counterfoil.models.classifiers import Classifier
    from counterfoil.models.clip import ClipModel
    from counterfoil.models.names import Pin


_VERSIONS = ("torch", "pillow", "torchvision")
Precision = Literal["float16", "float32"]
# The number of rows between two progress notes. After a kill, at most so many rows are computed again.
_PART_ROWS = 1024
_HEAD_BYTES = 4096  # at least the size of the header that numpy writes before the rows
_BYTES = 32  # of a sha256
_REPORTED_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model that computes features of images.

    features: a function of images and the batch size that returns float32 [n, width]; other images in a batch change no
    bit. key: a sha256 over everything that the features depend on, except the images and the batch size. on: a function
    that pickles and makes the embedder on a device in another process; None if only this process can have the embedder.
    kept: whether a later run may reuse the features.
    """

    name: str
    key: str
    features: Callable[[Sequence[Image.Image], int], np.ndarray]
    on: Callable[[str], Embedder] | None = None
    kept: bool = True


def clip_embedder(clip: ClipModel, pin: Pin, weights: str | None = None) -> Embedder:
    """Return the embedder of a pinned CLIP model, loaded with `weights`. Its features have unit length."""
    key = _key("clip", pin.document(), clip.device, "open_clip_torch")
    return Embedder(pin.name, key, clip.embed_images, partial(_clip_on, clip.name, weights, pin))


def _clip_on(name: str, weights: str | None, pin: Pin, device: str) -> Embedder:
    from counterfoil.models.clip import load_clip

    return clip_embedder(load_clip(name, weights, device, revision=pin.revision), pin, weights)


def classifier_embedder(classifier: Classifier, device: str) -> Embedder:
    """Return an embedder by a classifier's last layer. UserError if the classifier has no features or no hash."""
    if classifier.sha256 is None:
        raise UserError(f"model {classifier.name!r}: its content has no hash, so its features cannot be kept")
    transform = classifier.transform()

    def features(images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        import torch

        parts = []
        for start in range(0, len(images), batch_size):
            part = [transform(image) for image in images[start : start + batch_size]]
            count = len(part)
            rows = classifier.features(torch.stack(part + [part[-1]] * (batch_size - count)), device)
            if rows is None:
                raise UserError(f"model {classifier.name!r}: this kind of model gives no features")
            parts.append(rows[:count].numpy())
        return np.concatenate(parts)

    pin = {"sha256": classifier.sha256, "input": classifier.input_key}
    return Embedder(classifier.name, _key("classifier", pin, device, "timm"), features, kept=classifier.kept)


def _key(made_by: str, pin: Any, device: str, library: str) -> str:
    import torch

    return sha256_json(
        {
            "kind": made_by,
            "pin": pin,
            # Floats differ in the last bits between kinds of device and versions of libraries.
            "device": torch.device(device).type,
            "versions": {name: version(name) for name in (*_VERSIONS, library)},
        }
    )


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
    """Return the features [n, width] of n images, mapped from a file in `folder`. Undecodable images have NaN.

    The name of the file depends on the images' content, the embedder's key, the batch size and the precision.
    RunFailure if the file cannot be written, or if there are fewer images than keys.
    """
    if not embedder.kept:
        rows = []
        for part in _parts(images, embedder, None, device, batch_size, 0):
            assert not isinstance(part, Lost)  # there are no workers
            rows.append(part)
            report(embedder.name, sum(map(len, rows)), len(images))
        return np.concatenate(rows).astype(precision)
    key = sha256_json([images.content, embedder.key, batch_size, precision])
    path = folder / f"{readable_name(embedder.name)}-{key[:24]}.npy"
    known = _opened(path, len(images), precision)
    if known is not None:
        report(embedder.name, len(images), len(images))
        return known
    make_folder(folder)
    part, note = path.with_suffix(".part.npy"), path.with_suffix(".done")
    array, done = _begun(part, note, len(images), precision)
    with disk_errors(path):
        for rows in _parts(images, embedder, engine, device, batch_size, done):
            if isinstance(rows, Lost):
                report(embedder.name, done, len(images), rows.message)
                continue
            if array is None:
                array = np.lib.format.open_memmap(part, "w+", np.dtype(precision), (len(images), rows.shape[1]))
                _reserve(part)
            array[done : done + len(rows)] = rows
            before, done = done, done + len(rows)
            if done // _PART_ROWS > before // _PART_ROWS:
                array.flush()
                write_atomically(note, str(done).encode())
            report(embedder.name, done, len(images))
        if array is None or done != len(images):
            raise RunFailure(f"{images.name}: {len(images)} images were expected and {done} were read")
        array.flush()
        del array
        part.replace(path)
        note.unlink(missing_ok=True)
    features = _opened(path, len(images), precision)
    assert features is not None  # written just now
    return features


def _parts(
    images: LabelledImages, embedder: Embedder, engine: Engine | None, device: str, batch_size: int, done: int
) -> Iterator[NDArray[np.float32] | Lost]:
    if engine is not None and embedder.on is not None:
        return embedded_on_engine(images, embedder, engine, device, batch_size, done)
    stream = islice((encoded for _, encoded in images.images()), done, None)
    return embedded_batches(stream, embedder, batch_size, device, images.decoded)


def _opened(path: Path, rows: int, number_type: DTypeLike, width: int | None = None) -> NDArray[Any] | None:
    """Map the array of a file as read-only memory. Return None if the file is missing or has another shape or type."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError, tokenize.TokenError):
        return None
    sound = array.ndim == 2 and len(array) == rows and width in (None, array.shape[1])
    return array if sound and array.dtype == np.dtype(number_type) else None


def _begun(part: Path, note: Path, rows: int, precision: Precision) -> tuple[np.memmap | None, int]:
    """Open the array of a killed run. Return the array and its number of finished rows, or None and 0.

    A killed run has noted only rows of whole batches.
    """
    with contextlib.suppress(OSError, ValueError):
        done = int(note.read_text(encoding="ascii"))
        if _opened(part, rows, precision) is not None and 0 < done <= rows:
            return np.lib.format.open_memmap(part, mode="r+"), done
    return None, 0


def _reserve(part: Path) -> None:
    """Allocate the disk space of a mapped file. OSError if the disk is full.

    Without allocation, writing to a page would kill the process if the disk is full.
    """
    with part.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
            return
        header = file.read(_HEAD_BYTES)  # the header that numpy wrote
        file.seek(0)
        file.write(header)
        for start in range(len(header), size, 1 << 20):
            file.write(bytes(min(1 << 20, size - start)))


def embedded_batches(
    images: Iterable[bytes | None],
    embedder: Embedder,
    batch_size: int,
    device: str,
    decoded: Callable[[bytes | None], Image.Image | None],
) -> Iterator[NDArray[np.float32]]:
    """Yield the features [batch, width] of each batch, computed on `device`. The last batch may be shorter."""
    for batch in decoded_batches(images, decoded, batch_size, device):
        readable = [row for row, image in enumerate(batch) if image is not None]
        # If no image of the batch is readable, a blank image gives the width of the features.
        shown = [image for image in batch if image is not None] or [Image.new("RGB", (8, 8))]
        features = embedder.features(shown, batch_size)
        rows = np.full((len(batch), features.shape[1]), np.nan, np.float32)
        rows[readable] = features[: len(readable)]
        yield rows


@dataclass(frozen=True, slots=True)
class _Embedding:
    """The `engines.Work` that embeds stretches of images. Its results are features, float32 (n, width)."""

    embedder: Callable[[str], Embedder]
    key: str
    device: str
    batch_size: int
    photographs: bool

    def on(self, device: str) -> _Embedding:
        return replace(self, device=device)

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "open_clip")

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Chunk], Doing[int, NDArray[np.float32]]]]:
        """Load the embedder. RunFailure if its key differs from the key at the start of the run."""
        embedder = self.embedder(self.device)
        if embedder.key != self.key:
            raise RunFailure(
                f"{embedder.name} has other files or library versions on a worker than where the run started",
                "Give every machine the same files and libraries.",
            )

        def features(chunk: Chunk) -> Doing[int, NDArray[np.float32]]:
            rows = []
            for part in embedded_batches(
                chunk.encoded,
                embedder,
                self.batch_size,
                self.device,
                lambda encoded: readable_image(encoded, photograph=self.photographs),
            ):
                rows.append(part)
                yield len(part)
            return np.concatenate(rows)

        yield features


def embedded_on_engine(
    images: LabelledImages, embedder: Embedder, engine: Engine, device: str, batch_size: int, done: int
) -> Iterator[NDArray[np.float32] | Lost]:
    """Yield the features of the rows from row `done` on, in whole batches and in order. Also yield lost workers."""
    assert embedder.on is not None
    work = _Embedding(embedder.on, embedder.key, device, batch_size, images.photographs)
    chunks = Chunks(images, stretch_rows(len(images) - done, batch_size, engine.at_once), done)
    waiting: dict[int, NDArray[np.float32]] = {}
    through = done
    with contextlib.closing(engine.run(work, chunks)) as events:
        for event in events:
            if isinstance(event, Lost):
                yield event
            if not isinstance(event, Finished):
                continue
            waiting[event.item.start] = event.result
            chunks.release(event.item)
            while through in waiting:
                rows = waiting.pop(through)
                for start in range(0, len(rows), batch_size):
                    yield rows[start : start + batch_size]
                through += len(rows)


def contents_of(images: LabelledImages, folder: Path) -> NDArray[np.uint8]:
    """Return the sha256 of n encoded images, as (n, 32) bytes, cached in `folder`. A row without an image has zeros."""
    path = folder / f"contents-{sha256_json([images.content, 'contents'])[:24]}.npy"
    known = _opened(path, len(images), np.uint8, _BYTES)
    if known is not None:
        return known
    contents = np.zeros((len(images), _BYTES), dtype=np.uint8)
    done = 0
    for _, image in track(images.images(), f"{images.name}: hashing images", len(images), _REPORTED_EVERY):
        if image is not None:
            contents[done] = np.frombuffer(hashlib.sha256(image).digest(), dtype=np.uint8)
        done += 1
    if done != len(images):
        raise RunFailure(f"{images.name}: {len(images)} images were expected and {done} were read")
    stream = io.BytesIO()
    np.save(stream, contents)
    write_atomically(path, stream.getvalue())
    return contents


def first_of_content(contents: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return for each row whether no earlier row has the same content: (n, 32) -> (n,)."""
    first = np.zeros(len(contents), dtype=bool)
    whole = np.ascontiguousarray(contents).view(f"V{contents.shape[1]}").reshape(len(contents))
    first[np.unique(whole, return_index=True)[1]] = True
    return first
