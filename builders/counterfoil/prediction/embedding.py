"""Compute features of labelled images by CLIP or a classifier, and the hashes of images. Both are
cached."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image

from counterfoil.arrays import AnyFloats, Bools
from counterfoil.data import messages as data_messages
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import sha256_json
from counterfoil.models.messages import refusal
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key
from counterfoil.prediction.asking import Batch, Model, Pass, Placement
from counterfoil.progress import track
from counterfoil.store.layout import writable_cache

if TYPE_CHECKING:
    from counterfoil.models.classifiers import Classifier
    from counterfoil.models.clip import ClipModel
    from counterfoil.models.names import Pin


Precision = Literal["float16", "float32"]
_BYTES = 32  # of a sha256


@dataclass
class Embedder(Model):
    """A model that computes features of images. The features of an unreadable image are NaN."""

    name: str
    key: str
    """A sha256 over everything that the features depend on, except the images and the batch
    size."""
    features: Callable[[Sequence[Image.Image], int], np.ndarray]
    """A function of images and the batch size that returns float32 [n, width]. Other images in a
    batch change no bit."""
    on: Callable[[str], Embedder] | None = None
    """A function that pickles and makes the embedder on a device in another process; None if only
    this process can have the embedder."""
    kept: bool = True
    """Whether a later run may reuse the features."""
    batch_size: int = 64
    precision: Precision = "float16"

    def answers(self, batch: Batch) -> Columns:
        # If no image of the batch is readable, a blank image gives the width of the features.
        images = batch.inputs or [Image.new("RGB", (8, 8))]
        features = self.features(images, self.batch_size)
        shape = (len(batch.at), features.shape[1])
        rows = np.full(shape, np.nan, self.precision)
        rows[batch.readable] = features[: batch.readable.sum()]
        return {"features": rows}


def clip_embedder(clip: ClipModel, pin: Pin, weights: str | None = None) -> Embedder:
    """Return the embedder of a pinned CLIP model, loaded with `weights`. Its features have unit
    length."""
    key = answers_key(clip.device, clip=pin.document())
    on = partial(_clip_on, clip.name, weights, pin)
    return Embedder(pin.name, key, clip.embed_images, on)


def _clip_on(name: str, weights: str | None, pin: Pin, device: str) -> Embedder:
    from counterfoil.models.clip import load_clip

    clip = load_clip(name, weights, device, revision=pin.revision)
    return clip_embedder(clip, pin, weights)


def classifier_embedder(classifier: Classifier, device: str) -> Embedder:
    """Return an embedder by a classifier's last layer. UserError if the classifier has no features
    or no hash."""
    where = f"model {classifier.name!r}"
    if classifier.sha256 is None:
        raise refusal("unfit-model.no-hash", where)
    transform = classifier.transform()

    def features(images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        import torch

        batch = [transform(image) for image in images]
        padded = batch + batch[-1:] * (batch_size - len(batch))
        rows = classifier.features(torch.stack(padded), device)
        if rows is None:
            raise refusal("unfit-model.no-features", where)
        return rows[: len(batch)].numpy()

    key = answers_key(device, features_of=classifier.sha256, input=classifier.input_key)
    return Embedder(classifier.name, key, features, kept=classifier.kept)


def embed(
    images: LabelledImages,
    embedder: Embedder,
    folder: Path | None = None,
    *,
    batch_size: int = 64,
    precision: Precision = "float16",
    placement: Placement | None = None,
    device: str = "cpu",
) -> AnyFloats:
    """Return the features [n, width] of n images, kept in `folder` or the user's cache. Undecodable
    images have NaN.

    The entry depends on the images' content, the embedder's key, the batch size and the precision.
    With `placement`, the workers of an engine compute. RunFailure if the file cannot be written, or
    if there are fewer images than keys.
    """
    embedder = replace(embedder, batch_size=batch_size, precision=precision)
    cache = None
    if embedder.kept:
        decides = [images.content, embedder.key, batch_size, precision]
        key = sha256_json(decides)
        folder = folder or writable_cache() / "embeddings"
        fits = partial(_fits, precision, None)
        cache = AnswerCache(
            folder,
            embedder.name,
            key,
            len(images),
            fits,
        )
    elsewhere = None if embedder.on is None or cache is None else placement
    load = partial(_load, embedder.on, batch_size, precision)
    stage = f"{embedder.name}: {images.name}"
    one_pass = Pass(
        images,
        stage,
        batch_size,
        device,
        elsewhere,
        load,
        (__name__, "open_clip"),
    )
    return one_pass.answers_of(embedder, cache)["features"]


def _load(on: Any, batch_size: int, precision: Precision, device: str) -> list[Model]:
    return [replace(on(device), batch_size=batch_size, precision=precision)]


def _fits(number_type: DTypeLike, width: int | None, columns: Columns, rows: range) -> bool:
    [values] = columns.values()
    if values.ndim != 2 or len(values) != len(rows) or values.dtype != number_type:
        return False
    return width in (None, values.shape[1])


def contents_of(images: LabelledImages, folder: Path | None = None) -> NDArray[np.uint8]:
    """Return the sha256 of n encoded images, as (n, 32) bytes. A row without an image has zeros."""

    def digests() -> Iterator[bytes]:
        stage = f"{images.name}: hashing images"
        for _, image in track(images.images(), stage, len(images), 1000):
            yield bytes(_BYTES) if image is None else hashlib.sha256(image).digest()

    return digests_of(images, "contents", digests(), folder)


def digests_of(
    images: LabelledImages,
    name: str,
    digests: Iterator[bytes],
    folder: Path | None = None,
) -> NDArray[np.uint8]:
    """Return a sha256 of each of n images, (n, 32) bytes, as an earlier run kept them in `folder`
    or the user's cache.

    digests: otherwise gives them. RunFailure if there are fewer images than keys.
    """
    key = sha256_json([images.content, name])
    folder = folder or writable_cache() / name
    cache = AnswerCache(
        folder,
        name,
        key,
        len(images),
        partial(_fits, np.uint8, _BYTES),
    )
    known = cache.load()
    if known is None:
        made = list(digests)
        if len(made) != len(images):
            raise data_messages.failure(
                "changed-data.meanwhile",
                images.name,
                len(made),
                len(images),
            )
        content = np.frombuffer(b"".join(made), dtype=np.uint8)
        known = {"sha256": content.reshape(-1, _BYTES)}
        cache.save(known)
    return known["sha256"]


def first_of_content(contents: NDArray[np.uint8]) -> Bools:
    """Return for each row whether no earlier row has the same content: (n, 32) -> (n,)."""
    first = np.zeros(len(contents), dtype=bool)
    whole = np.ascontiguousarray(contents).view(f"V{contents.shape[1]}")
    _, indices = np.unique(whole.ravel(), return_index=True)
    first[indices] = True
    return first
