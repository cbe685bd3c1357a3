"""Captions of labelled images, remembered by the images' content: a run that is killed goes on where it stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.captioning.entries import captioner_key, entry_path, read_entry, write_entry
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.progress import track
from counterfoil.sources import LabelledImages


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
    known_of = captioner_key(captioner, examples)
    found: dict[str, tuple[str, ...] | None] = {}
    for key, encoded in track(images.images(chosen), captioner.name, len(chosen)):
        begun = (prefix if isinstance(prefix, str) else prefix[labels[key]]).strip()
        if encoded is None:
            found[key] = None
        else:
            path = entry_path(folder, images, encoded, ["captions", known_of, begun, number, seed, most_tokens])
            kept, texts = _known(path, number)
            if not kept:
                image = images.decoded(encoded)
                texts = None
                if image is not None:
                    drawn = captioner.captions(
                        image, prefix=begun, number=number, seed=seed, most_tokens=most_tokens, examples=examples
                    )
                    texts = tuple(drawn)
                write_entry(path, {"captions": texts})
            found[key] = texts
    return found


def _known(path: Path, number: int) -> tuple[bool, tuple[str, ...] | None]:
    """Whether an entry tells the captions, and them; None for an image that could not be decoded."""
    content: Any = read_entry(path)
    if not isinstance(content, dict) or "captions" not in content:
        return False, None
    texts = content["captions"]
    if texts is None:
        return True, None
    if not isinstance(texts, list) or len(texts) != number or not all(isinstance(text, str) for text in texts):
        return False, None
    return True, tuple(texts)
