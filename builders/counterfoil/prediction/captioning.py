"""What captioners write about labelled images, and how likely they find given captions; remembered by content.

What is known of one image is a small file named by all that it depends on, so that a run that is killed goes on where
it stood. What is there is believed where it has the form that is written, else it is made again.
"""

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
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.progress import track
from counterfoil.recipe import sha256_json
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
    """`number` captions of each image, or of those named in `keys`, by key and in the images' order.

    None for an image that cannot be decoded. `prefix` is what captions begin with, one for all or one for each label.
    What is known lies in `folder`, an entry an image, captioner and settings; nothing is loaded for it. Raises as
    `Captioner.captions`, and KeyError for a label without a prefix.
    """
    wanted = images.keys if keys is None else tuple(keys)
    chosen = frozenset(wanted)
    labels = dict(zip(images.keys, images.labels.tolist(), strict=True))
    known_of = _captioner_key(captioner, examples)
    found: dict[str, tuple[str, ...] | None] = {}
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        begun = (prefix if isinstance(prefix, str) else prefix[labels[key]]).strip()
        if encoded is None:
            found[key] = None
        else:
            path = _entry_path(folder, images, encoded, ["captions", known_of, begun, number, seed, most_tokens])
            kept, texts = _known_captions(path, number)
            if not kept:
                image = images.decoded(encoded)
                if image is not None:
                    texts = tuple(
                        captioner.captions(
                            image, prefix=begun, number=number, seed=seed, most_tokens=most_tokens, examples=examples
                        )
                    )
                _write_entry(path, {"captions": texts})
            found[key] = texts
    return found


def _known_captions(path: Path, number: int) -> tuple[bool, tuple[str, ...] | None]:
    """Whether an entry tells the captions, and them; None for an image that could not be decoded."""
    content: Any = _read_entry(path)
    if not isinstance(content, dict) or "captions" not in content:
        return False, None
    texts = content["captions"]
    if texts is None:
        return True, None
    if not isinstance(texts, list) or len(texts) != number or not all(isinstance(text, str) for text in texts):
        return False, None
    return True, tuple(texts)


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
    known_of = _captioner_key(captioner, examples)
    places: list[str] = []
    rows: list[list[tuple[float, int]]] = []
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        places.append(key)
        rows.append(_row(images, encoded, asked, captioner, folder, known_of, examples))
    shape = (len(places), len(asked))
    sums = np.array([[logarithm for logarithm, _ in row] for row in rows], dtype=np.float64).reshape(shape)
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
    path = None if encoded is None else _entry_path(folder, images, encoded, ["likelihoods", known_of])
    known = {} if path is None else _known_likelihoods(path)
    missing = [caption for caption in dict.fromkeys(asked) if caption not in known]
    image = images.decoded(encoded) if missing else None
    if missing and image is None:
        return [(math.nan, 0)] * len(asked)
    if path is not None and image is not None:
        sums, tokens = captioner.log_likelihoods(image, missing, examples=examples)
        known |= {caption: (float(s), int(t)) for caption, s, t in zip(missing, sums, tokens, strict=True)}
        _write_entry(path, {"likelihoods": known})
    return [known[caption] for caption in asked]


def _known_likelihoods(path: Path) -> dict[str, tuple[float, int]]:
    content: Any = _read_entry(path)
    found = content.get("likelihoods") if isinstance(content, dict) else None
    if not isinstance(found, dict):
        return {}
    return {caption: (one[0], one[1]) for caption, one in found.items() if _is_likelihood(one)}


def _is_likelihood(one: Any) -> bool:
    if not isinstance(one, list) or len(one) != 2:
        return False
    return isinstance(one[0], float) and one[0] <= 0 and type(one[1]) is int and one[1] > 0


# A file of a thousand captions' likelihoods has 0.1 MB.
_MOST_BYTES = 1 << 26


def _entry_path(folder: Path, images: LabelledImages, encoded: bytes, depends: Sequence[Any]) -> Path:
    """Where what is known of an encoded image lies; `depends` is plain JSON."""
    image = hashlib.sha256(encoded).hexdigest()
    # Of a photograph more formats are read: the same bytes may be an image here and none there.
    key = sha256_json([image, images.photographs, *depends])
    return folder / key[:2] / f"{key[2:34]}.json"


def _read_entry(path: Path) -> Any:
    """What the file holds; None where there is none or it is damaged."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _write_entry(path: Path, content: Any) -> None:
    """Write it whole or not at all. UserError or RunFailure when the disk refuses."""
    write_atomically(path, json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _captioner_key(captioner: Captioner, examples: Sequence[CaptionExample]) -> list[Any]:
    """The captioner and what it is shown first, as plain JSON."""
    return [captioner.key, [[one.text, _pixels(one)] for one in examples]]


def _pixels(example: CaptionExample) -> str | None:
    if example.image is None:
        return None
    with io.BytesIO() as file:
        example.image.convert("RGB").save(file, "BMP")
        return hashlib.sha256(file.getvalue()).hexdigest()
