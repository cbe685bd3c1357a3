"""What is known of one image, in a small file named by all that it depends on.

What is there is believed where it has the form that is written, else it is made again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.recipe import sha256_json
from counterfoil.sources import LabelledImages
from counterfoil.store.atomic import write_atomically

# A file of a thousand captions' likelihoods has 0.1 MB.
_MOST_BYTES = 1 << 26


def entry_path(folder: Path, images: LabelledImages, encoded: bytes, depends: Sequence[Any]) -> Path:
    """Where what is known of an encoded image lies; `depends` is plain JSON."""
    image = hashlib.sha256(encoded).hexdigest()
    # Of a photograph more formats are read: the same bytes may be an image here and none there.
    key = sha256_json([image, images.photographs, *depends])
    return folder / key[:2] / f"{key[2:34]}.json"


def read_entry(path: Path) -> Any:
    """What the file holds; None where there is none or it is damaged."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def write_entry(path: Path, content: Any) -> None:
    """Write it whole or not at all. UserError or RunFailure when the disk refuses."""
    write_atomically(path, json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def captioner_key(captioner: Captioner, examples: Sequence[CaptionExample]) -> list[Any]:
    """The captioner and what it is shown first, as plain JSON."""
    return [captioner.key, [[one.text, _pixels(one)] for one in examples]]


def _pixels(example: CaptionExample) -> str | None:
    if example.image is None:
        return None
    with io.BytesIO() as file:
        example.image.convert("RGB").save(file, "BMP")
        return hashlib.sha256(file.getvalue()).hexdigest()
