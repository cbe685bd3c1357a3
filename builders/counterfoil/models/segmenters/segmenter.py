"""The interface of named segmenters: a function from images to scores or numbers of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, kw_only=True)
class Segmenter:
    """A trained model that gives each pixel a class; each kind is a subclass in a file of its own.

    Equal `sha256` and `input_key` mean equal answers.
    """

    name: str
    architecture: str
    label_names: tuple[str, ...]
    param_count: int | None
    sha256: str
    input_key: str

    def __call__(self, images: Sequence[Image.Image]) -> list[Any]:
        """Return for each RGB image scores [classes, height, width] or numbers [height, width], as
        large as the model gives them. RunFailure if nothing can be computed."""
        raise NotImplementedError
