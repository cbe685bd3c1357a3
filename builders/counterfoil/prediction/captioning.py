"""Caption labelled images, and compute likelihoods of given captions. Each image has its own entry in the cache."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.prediction.answer_cache import AnswerCache, Columns
from counterfoil.progress import track
from counterfoil.recipe import sha256_json


def caption_images(
    images: LabelledImages,
    captioner: Captioner,
    folder: Path,
    *,
    keys: Sequence[str] | None = None,
    prefix: str | Mapping[int, str] = "",
    number: int = 4,
    seed: int = 0,
    most_tokens: int = 40,
    examples: Sequence[CaptionExample] = (),
) -> dict[str, tuple[str, ...] | None]:
    """Return `number` captions of each image, by key. The captions are None if the image cannot be decoded.

    keys: the images to caption; None for all. prefix: the text that begins each caption, either one text or one for
    each label. Captions are cached in `folder`, and the captioner is loaded only for missing captions. Raises the same
    errors as `Captioner.captions`, and KeyError for a label without a prefix.
    """
    chosen = frozenset(images.keys if keys is None else keys)
    labels = dict(zip(images.keys, images.labels.tolist(), strict=True))
    decides = ["captions", *_made_by(captioner, examples), number, seed, most_tokens]
    captions: dict[str, tuple[str, ...] | None] = {}
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        begun = (prefix if isinstance(prefix, str) else prefix[labels[key]]).strip()
        cache = _entry(
            folder, images, encoded, [*decides, begun], lambda kept, _: len(_texts(kept["captions"])) in (0, number)
        )
        known = cache.load()
        if known is None:
            image = images.decoded(encoded)
            texts: Sequence[str] = ()
            if image is not None:
                texts = captioner.captions(
                    image, prefix=begun, number=number, seed=seed, most_tokens=most_tokens, examples=examples
                )
            known = {"captions": _stored(texts)}
            cache.save(known)
        captions[key] = tuple(_texts(known["captions"])) or None
    return captions


@dataclass(frozen=True)
class Likelihoods:
    """Log-likelihoods and numbers of tokens of k captions, given each of n images: `sums` and `tokens`, (n, k).

    Both include the end token of a caption. An unreadable image has the sum NaN and 0 tokens.
    """

    keys: tuple[str, ...]
    captions: tuple[str, ...]
    sums: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def per_token(self) -> NDArray[np.float64]:
        """The sums divided by the numbers of tokens (n, k), so that long captions are not at a disadvantage."""
        return self.sums / np.maximum(self.tokens, 1)


def likelihoods_of(
    images: LabelledImages,
    captions: Sequence[str],
    captioner: Captioner,
    folder: Path,
    *,
    keys: Sequence[str] | None = None,
    examples: Sequence[CaptionExample] = (),
) -> Likelihoods:
    """Return the likelihood of every caption given each image, and cache the likelihoods in `folder`.

    keys: the images to use; None for all.
    """
    captions = tuple(captions)
    chosen = frozenset(images.keys if keys is None else keys)
    decides = ["likelihoods", *_made_by(captioner, examples)]
    image_keys: list[str] = []
    rows: list[list[tuple[float, int]]] = []
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        cache = _entry(folder, images, encoded, decides, _are_likelihoods)
        known: dict[str, tuple[float, int]] = {}
        if (kept := cache.load()) is not None:
            values = zip(kept["sums"].tolist(), kept["tokens"].tolist(), strict=True)
            known = dict(zip(_texts(kept["captions"]), values, strict=True))
        missing = [caption for caption in dict.fromkeys(captions) if caption not in known]
        image = images.decoded(encoded) if missing else None
        if image is not None:
            sums, tokens = captioner.log_likelihoods(image, missing, examples=examples)
            known |= zip(missing, zip(sums.tolist(), tokens.tolist(), strict=True), strict=True)
            columns = dict(zip(("sums", "tokens"), map(np.array, zip(*known.values(), strict=True)), strict=True))
            cache.save({"captions": _stored(known), **columns})
        image_keys.append(key)
        rows.append([known.get(caption, (math.nan, 0)) for caption in captions])
    shape = (len(image_keys), len(captions))
    all_sums = np.array([[logarithm for logarithm, _ in row] for row in rows], dtype=np.float64).reshape(shape)
    all_tokens = np.array([[count for _, count in row] for row in rows], dtype=np.int64).reshape(shape)
    return Likelihoods(tuple(image_keys), captions, all_sums, all_tokens)


def _are_likelihoods(columns: Columns, _: range) -> bool:
    sums, tokens = columns["sums"], columns["tokens"]
    kinds = len(_texts(columns["captions"])) and sums.dtype == np.float64 and tokens.dtype == np.int64
    return bool(kinds and (sums <= 0).all() and (tokens > 0).all())


def _entry(
    folder: Path,
    images: LabelledImages,
    encoded: bytes | None,
    decides: Sequence[Any],
    fits: Callable[[Columns, range], bool],
) -> AnswerCache:
    """Return the entry of one image, which is found by its content in any dataset."""
    image = hashlib.sha256(encoded or b"").hexdigest()
    # Photographs may have more file formats. So the same bytes may be readable as a photograph only.
    key = sha256_json([image, images.photographs, *decides])
    return AnswerCache(folder / key[:2], key[2:18], key[18:], 1, fits)


def _stored(texts: Iterable[str]) -> NDArray[np.object_]:
    # A model may give letters that no UTF-8 text has, such as half of a pair.
    return np.array([text.encode("utf-8", "surrogatepass") for text in texts], dtype=object)


def _texts(stored: NDArray[np.object_]) -> list[str]:
    return [text.decode("utf-8", "surrogatepass") for text in stored]


def _made_by(captioner: Captioner, examples: Sequence[CaptionExample]) -> list[Any]:
    return [captioner.key, [[example.text, _pixels(example)] for example in examples]]


def _pixels(example: CaptionExample) -> str | None:
    if example.image is None:
        return None
    with io.BytesIO() as file:
        example.image.convert("RGB").save(file, "BMP")
        return hashlib.sha256(file.getvalue()).hexdigest()
