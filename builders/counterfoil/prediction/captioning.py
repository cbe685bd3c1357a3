"""Caption labelled images, and compute likelihoods of given captions. Each image has its own small cache file."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.documents import parse_json
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.progress import track
from counterfoil.recipe import sha256_json
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import write_atomically


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
    wanted = images.keys if keys is None else tuple(keys)
    chosen = frozenset(wanted)
    labels = dict(zip(images.keys, images.labels.tolist(), strict=True))
    captioner_key = _captioner_key(captioner, examples)
    captions: dict[str, tuple[str, ...] | None] = {}
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        if encoded is None:
            captions[key] = None
            continue
        begun = (prefix if isinstance(prefix, str) else prefix[labels[key]]).strip()
        path = _entry_path(folder, images, encoded, ["captions", captioner_key, begun, number, seed, most_tokens])
        known, texts = _known_captions(path, number)
        if not known:
            image = images.decoded(encoded)
            if image is not None:
                texts = tuple(
                    captioner.captions(
                        image, prefix=begun, number=number, seed=seed, most_tokens=most_tokens, examples=examples
                    )
                )
            _write_entry(path, {"captions": texts})
        captions[key] = texts
    return captions


def _known_captions(path: Path, number: int) -> tuple[bool, tuple[str, ...] | None]:
    """Return whether the cache has an entry, and its captions, which are None if the image cannot be decoded."""
    match _read_entry(path):
        case {"captions": None}:
            return True, None
        case {"captions": [*texts]} if len(texts) == number and all(isinstance(text, str) for text in texts):
            return True, tuple(texts)
    return False, None


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
    captioner_key = _captioner_key(captioner, examples)
    image_keys: list[str] = []
    rows: list[list[tuple[float, int]]] = []
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        path = None if encoded is None else _entry_path(folder, images, encoded, ["likelihoods", captioner_key])
        known = {} if path is None else _known_likelihoods(path)
        missing = [caption for caption in dict.fromkeys(captions) if caption not in known]
        image = images.decoded(encoded) if missing else None
        if path is not None and image is not None:
            sums, tokens = captioner.log_likelihoods(image, missing, examples=examples)
            known |= {caption: (float(s), int(t)) for caption, s, t in zip(missing, sums, tokens, strict=True)}
            _write_entry(path, {"likelihoods": known})
        unreadable = bool(missing) and image is None
        image_keys.append(key)
        rows.append([(math.nan, 0) if unreadable else known[caption] for caption in captions])
    shape = (len(image_keys), len(captions))
    all_sums = np.array([[logarithm for logarithm, _ in row] for row in rows], dtype=np.float64).reshape(shape)
    all_tokens = np.array([[count for _, count in row] for row in rows], dtype=np.int64).reshape(shape)
    return Likelihoods(tuple(image_keys), captions, all_sums, all_tokens)


def _known_likelihoods(path: Path) -> dict[str, tuple[float, int]]:
    known: dict[str, tuple[float, int]] = {}
    match _read_entry(path):
        case {"likelihoods": dict(entries)}:
            for caption, entry in entries.items():
                match entry:
                    case [float(logarithm), int(tokens)] if logarithm <= 0 and tokens > 0:
                        known[caption] = (logarithm, tokens)
    return known


# The largest cache file that is read. A file with the likelihoods of a thousand captions has 0.1 MB.
_MOST_BYTES = 1 << 26


def _entry_path(folder: Path, images: LabelledImages, encoded: bytes, depends: Sequence[Any]) -> Path:
    image = hashlib.sha256(encoded).hexdigest()
    # Photographs may have more file formats. So the same bytes may be readable as a photograph only.
    key = sha256_json([image, images.photographs, *depends])
    return folder / key[:2] / f"{key[2:34]}.json"


def _read_entry(path: Path) -> Any:
    """Parse a cache file. Return None if the file is missing or damaged."""
    try:
        return parse_json(read_regular(path, _MOST_BYTES))
    except (OSError, ValueError):
        return None


def _write_entry(path: Path, content: Any) -> None:
    """Write a cache file atomically. UserError or RunFailure if the file cannot be written."""
    write_atomically(path, json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _captioner_key(captioner: Captioner, examples: Sequence[CaptionExample]) -> list[Any]:
    return [captioner.key, [[example.text, _pixels(example)] for example in examples]]


def _pixels(example: CaptionExample) -> str | None:
    if example.image is None:
        return None
    with io.BytesIO() as file:
        example.image.convert("RGB").save(file, "BMP")
        return hashlib.sha256(file.getvalue()).hexdigest()
