"""Features of labelled images, by CLIP or a classifier, kept in an array on disk and found again by their content.

A run that is killed goes on where it stood. Rows of images that cannot be decoded are NaN. With an engine each worker
loads the embedder and takes stretches of whole batches.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
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
# Rows between two notes of how far the array is: at most these are computed again after a kill.
_PART_ROWS = 1024
_HEAD_BYTES = 4096  # more than numpy says of a file before its rows
_BYTES = 32  # of a sha256
_REPORTED_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Embedder:
    """`features(images, batch_size)` gives float32 [n, width]; what a batch holds changes no bit.

    `key` is a sha256 over all that the features depend on beside the images and the batch size. `on` makes the same one
    on a device of another process, where it pickles; None where only this process has it. kept: whether a later run may
    use its features again.
    """

    name: str
    key: str
    features: Callable[[Sequence[Image.Image], int], np.ndarray]
    on: Callable[[str], Embedder] | None = None
    kept: bool = True


def clip_embedder(clip: ClipModel, pin: Pin, weights: str | None = None) -> Embedder:
    """Unit vectors of a CLIP model that `pin` pins, so that a dot product is a cosine.

    `weights`: as it was loaded with.
    """
    key = _key("clip", pin.document(), clip.device, "open_clip_torch")
    return Embedder(pin.name, key, clip.embed_images, partial(_clip_on, clip.name, weights, pin))


def _clip_on(name: str, weights: str | None, pin: Pin, device: str) -> Embedder:
    from counterfoil.models.clip import load_clip

    return clip_embedder(load_clip(name, weights, device, revision=pin.revision), pin, weights)


def classifier_embedder(classifier: Classifier, device: str) -> Embedder:
    """What a classifier's last layer sees. UserError where its kind does not give it, or its content is not known."""
    if classifier.sha256 is None:
        raise UserError(f"model {classifier.name!r}: its content has no hash, so its features cannot be kept")
    transform = classifier.transform()

    def features(images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        import torch

        parts = []
        for start in range(0, len(images), batch_size):
            part = [transform(image) for image in images[start : start + batch_size]]
            count = len(part)
            found = classifier.features(torch.stack(part + [part[-1]] * (batch_size - count)), device)
            if found is None:
                raise UserError(f"model {classifier.name!r}: this kind of model gives no features")
            parts.append(found[:count].numpy())
        return np.concatenate(parts)

    pin = {"sha256": classifier.sha256, "input": classifier.input_key}
    return Embedder(classifier.name, _key("classifier", pin, device, "timm"), features, kept=classifier.kept)


def _key(made_by: str, pin: Any, device: str, library: str) -> str:
    import torch

    return sha256_json(
        {
            "kind": made_by,
            "pin": pin,
            # Floats differ in the last bits between kinds of device and versions of what computes them.
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
    path = folder / f"{_plain_name(embedder.name)}-{key[:24]}.npy"
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


def _opened(path: Path, rows: int, number_type: DTypeLike, width: int | None = None) -> NDArray[Any] | None:
    """The array of a file, mapped read-only; None where there is none of that form."""
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    sound = array.ndim == 2 and len(array) == rows and width in (None, array.shape[1])
    return array if sound and array.dtype == np.dtype(number_type) else None


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
        begun = file.read(_HEAD_BYTES)  # what numpy wrote
        file.seek(0)
        file.write(begun)
        for start in range(len(begun), size, 1 << 20):
            file.write(bytes(min(1 << 20, size - start)))


def _note(array: np.memmap, note: Path, done: int) -> None:
    array.flush()
    write_atomically(note, str(done).encode())


def _plain_name(name: str) -> str:
    """A name as a part of a file's name: for people, the key is what counts."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[-60:].strip("._-")


def embedded_batches(
    images: Iterable[bytes | None],
    embedder: Embedder,
    batch_size: int,
    device: str,
    decoded: Callable[[bytes | None], Image.Image | None],
) -> Iterator[NDArray[np.float32]]:
    """Features [batch, width] of whole batches, computed on `device`; the last may be shorter."""
    for batch in decoded_batches(images, decoded, batch_size, device):
        readable = [place for place, image in enumerate(batch) if image is not None]
        # Without any the width is not known from here: it is that of another image.
        shown = [image for image in batch if image is not None] or [Image.new("RGB", (8, 8))]
        features = embedder.features(shown, batch_size)
        rows = np.full((len(batch), features.shape[1]), np.nan, np.float32)
        rows[readable] = features[: len(readable)]
        yield rows


@dataclass(frozen=True, slots=True)
class _Embedding:
    """What a worker does with a stretch (an `engines.Work`): its features, float32 (n, width)."""

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
        """Load the embedder. RunFailure where it is another here than where the run was begun."""
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
    """Features of the rows from `done` on, a whole batch after another, in order; and what is lost on the way."""
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
    """(n, 32) bytes of the sha256 of n encoded images; zeros where a row has none. Found again in `folder`.

    Yields how many images are read. RunFailure when the disk refuses, or where fewer images come than there are keys.
    """
    path = folder / f"contents-{sha256_json([images.content, 'contents'])[:24]}.npy"
    known = _opened(path, len(images), np.uint8, _BYTES)
    if known is not None:
        return known
    found = np.zeros((len(images), _BYTES), dtype=np.uint8)
    done = 0
    for _, image in track(images.images(), f"{images.name}: hashing images", len(images), _REPORTED_EVERY):
        if image is not None:
            found[done] = np.frombuffer(hashlib.sha256(image).digest(), dtype=np.uint8)
        done += 1
    if done != len(images):
        raise RunFailure(f"{images.name}: {len(images)} images were expected and {done} were read")
    stream = io.BytesIO()
    np.save(stream, found)
    write_atomically(path, stream.getvalue())
    return found


def first_of_content(contents: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(n,) whether no earlier row of (n, 32) has the same content."""
    first = np.zeros(len(contents), dtype=bool)
    whole = np.ascontiguousarray(contents).view(f"V{contents.shape[1]}").reshape(len(contents))
    first[np.unique(whole, return_index=True)[1]] = True
    return first
