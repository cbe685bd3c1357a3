"""How likely a captioner finds given captions of labelled images, remembered by image content and caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.captioning.entries import captioner_key, entry_path, read_entry, write_entry
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.progress import track
from counterfoil.sources import LabelledImages


@dataclass(frozen=True)
class Likelihoods:
    """Of n images and k captions: log-likelihoods and numbers of tokens, the captions' ends counted.

    keys: n, in the images' order. sums: (n, k) float64, natural logarithms; NaN for an image that cannot be decoded.
    tokens: (n, k) int64, 0 there.
    """

    keys: tuple[str, ...]
    captions: tuple[str, ...]
    sums: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def per_token(self) -> NDArray[np.float64]:
        """(n, k) sums divided by tokens, so that a longer caption is not the less likely one for its length."""
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
    """The likelihoods of all captions given each image, or each of those named in `keys`.

    What is known lies in `folder`, an entry an image and captioner; an image is shown to the captioner once for all
    captions that are not. Raises as `Captioner.log_likelihoods`.
    """
    asked = tuple(captions)
    chosen = frozenset(images.keys if keys is None else keys)
    known_of = captioner_key(captioner, examples)
    places: list[str] = []
    rows: list[list[tuple[float, int]]] = []
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        places.append(key)
        rows.append(_row(images, encoded, asked, captioner, folder, known_of, examples))
    shape = (len(places), len(asked))
    sums = np.array([[told for told, _ in row] for row in rows], dtype=np.float64).reshape(shape)
    tokens = np.array([[count for _, count in row] for row in rows], dtype=np.int64).reshape(shape)
    return Likelihoods(tuple(places), asked, sums, tokens)


def _row(
    images: LabelledImages,
    encoded: bytes | None,
    asked: Sequence[str],
    captioner: Captioner,
    folder: Path,
    known_of: list[Any],
    examples: Sequence[CaptionExample],
) -> list[tuple[float, int]]:
    """Sum and tokens of each caption for one image."""
    path = None if encoded is None else entry_path(folder, images, encoded, ["likelihoods", known_of])
    known = {} if path is None else _known(path)
    missing = [caption for caption in dict.fromkeys(asked) if caption not in known]
    image = images.decoded(encoded) if missing else None
    if missing and image is None:
        return [(math.nan, 0)] * len(asked)
    if path is not None and image is not None:
        sums, tokens = captioner.log_likelihoods(image, missing, examples=examples)
        known |= {caption: (float(s), int(t)) for caption, s, t in zip(missing, sums, tokens, strict=True)}
        write_entry(path, {"likelihoods": known})
    return [known[caption] for caption in asked]


def _known(path: Path) -> dict[str, tuple[float, int]]:
    content: Any = read_entry(path)
    found = content.get("likelihoods") if isinstance(content, dict) else None
    if not isinstance(found, dict):
        return {}
    return {caption: (one[0], one[1]) for caption, one in found.items() if _is_told(one)}


def _is_told(one: Any) -> bool:
    if not isinstance(one, list) or len(one) != 2:
        return False
    return isinstance(one[0], float) and one[0] <= 0 and type(one[1]) is int and one[1] > 0
