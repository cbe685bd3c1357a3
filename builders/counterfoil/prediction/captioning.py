"""Caption labelled images, and compute likelihoods of given captions. Each image has its own entry
in the cache."""

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

from counterfoil.arrays import Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import sha256_json
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.prediction.answer_cache import AnswerCache, Columns
from counterfoil.progress import track
from counterfoil.store.layout import writable_cache


def caption_images(
    images: LabelledImages,
    captioner: Captioner,
    folder: Path | None = None,
    *,
    keys: Sequence[str] | None = None,
    prefix: str | Mapping[int, str] = "",
    number: int = 4,
    seed: int = 0,
    most_tokens: int = 40,
    examples: Sequence[CaptionExample] = (),
) -> dict[str, tuple[str, ...] | None]:
    """Return `number` captions of each image, by key. The captions are None if the image cannot be
    decoded.

    keys: the images to caption; None for all. prefix: the text that begins each caption, either one
    text or one for each label. Captions are kept in `folder` or the user's cache. Raises the same
    errors as `Captioner.captions`, and KeyError for a label without a prefix.
    """
    chosen = frozenset(images.keys if keys is None else keys)
    labels = dict(zip(images.keys, images.labels.tolist(), strict=True))
    decides = ["captions", _made_by(captioner, examples), number, seed, most_tokens]
    captions: dict[str, tuple[str, ...] | None] = {}

    def are_captions(columns: Columns, _: range) -> bool:
        return len(_texts(columns["captions"])) in (0, number)

    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        begun = prefix if isinstance(prefix, str) else prefix[labels[key]]
        begun = begun.strip()
        cache = _entry(
            folder,
            images,
            encoded,
            [*decides, begun],
            are_captions,
        )
        known = cache.load()
        if known is None:
            image = images.decoded(encoded)
            texts: Sequence[str] = ()
            if image is not None:
                texts = captioner.captions(
                    image,
                    prefix=begun,
                    number=number,
                    seed=seed,
                    most_tokens=most_tokens,
                    examples=examples,
                )
            known = {"captions": _stored(texts)}
            cache.save(known)
        captions[key] = tuple(_texts(known["captions"])) or None
    return captions


@dataclass(frozen=True)
class Likelihoods:
    """Log-likelihoods and numbers of tokens of k captions, given each of n images: `sums` and
    `tokens`, (n, k).

    Both include the end token of a caption. An unreadable image has the sum NaN and 0 tokens.
    """

    keys: tuple[str, ...]
    captions: tuple[str, ...]
    sums: Floats
    tokens: Ints

    @property
    def per_token(self) -> Floats:
        """The sums divided by the numbers of tokens (n, k), so that long captions are not at a
        disadvantage."""
        return self.sums / np.maximum(self.tokens, 1)


def likelihoods_of(
    images: LabelledImages,
    captions: Sequence[str],
    captioner: Captioner,
    folder: Path | None = None,
    *,
    keys: Sequence[str] | None = None,
    examples: Sequence[CaptionExample] = (),
) -> Likelihoods:
    """Return the likelihood of every caption given each image, kept in `folder` or the user's
    cache.

    keys: the images to use; None for all.
    """
    captions = tuple(captions)
    chosen = frozenset(images.keys if keys is None else keys)
    decides = ["likelihoods", _made_by(captioner, examples)]
    image_keys: list[str] = []
    rows = []
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        cache = _entry(
            folder,
            images,
            encoded,
            decides,
            _are_likelihoods,
        )
        known: dict[str, Sequence[float]] = {}
        kept = cache.load()
        if kept is not None:
            texts = _texts(kept["captions"])
            known = dict(zip(texts, kept["likelihoods"].tolist(), strict=True))
        missing = [caption for caption in dict.fromkeys(captions) if caption not in known]
        image = images.decoded(encoded) if missing else None
        if image is not None:
            sums, tokens = captioner.log_likelihoods(image, missing, examples=examples)
            pairs = np.stack([sums, tokens], axis=1)
            known |= zip(missing, pairs.tolist(), strict=True)
            likelihoods = np.array([*known.values()])
            cache.save({"captions": _stored(known), "likelihoods": likelihoods})
        image_keys.append(key)
        pairs_of_image = [known.get(caption, (math.nan, 0)) for caption in captions]
        rows.append(pairs_of_image)
    shape = (len(image_keys), len(captions), 2)
    values = np.array(rows, dtype=np.float64).reshape(shape)
    return Likelihoods(
        keys=tuple(image_keys),
        captions=captions,
        sums=values[..., 0],
        tokens=values[..., 1].astype(np.int64),
    )


def _are_likelihoods(columns: Columns, _: range) -> bool:
    """Return whether columns have captions with their sums and numbers of tokens, (captions, 2)."""
    texts = _texts(columns["captions"])
    values = columns["likelihoods"]
    if values.dtype != np.float64 or values.shape != (len(texts), 2):
        return False
    sums, tokens = values.T
    return bool((sums <= 0).all() and (tokens > 0).all())


def _entry(
    folder: Path | None,
    images: LabelledImages,
    encoded: bytes | None,
    decides: Sequence[Any],
    fits: Callable[[Columns, range], bool],
) -> AnswerCache:
    """Return the entry of one image, which is found by its content in any dataset."""
    image = hashlib.sha256(encoded or b"").hexdigest()
    # Photographs may have more file formats. So the same bytes may be readable as a photograph
    # only.
    decides = [image, images.photographs, *decides]
    key = sha256_json(decides)
    folder = folder or writable_cache() / "captions"
    return AnswerCache(
        folder / key[:2],
        key[2:18],
        key[18:],
        1,
        fits,
    )


def _stored(texts: Iterable[str]) -> NDArray[np.object_]:
    # A model may give letters that no UTF-8 text has, such as half of a pair.
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return np.array(encoded, dtype=object)


def _texts(stored: NDArray[np.object_]) -> list[str]:
    return [text.decode("utf-8", "surrogatepass") for text in stored]


def _made_by(captioner: Captioner, examples: Sequence[CaptionExample]) -> list[Any]:
    shown = []
    for example in examples:
        pixels = None
        if example.image is not None:
            file = io.BytesIO()
            example.image.convert("RGB").save(file, "BMP")
            pixels = hashlib.sha256(file.getvalue()).hexdigest()
        shown.append([example.text, pixels])
    return [captioner.key, shown]
