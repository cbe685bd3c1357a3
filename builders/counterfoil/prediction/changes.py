"""Changes of how a model's images are prepared: another filter, crop or decoder, or a corruption at
the model's own size.

They are computed while models answer, so no image is stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.corrupting.corrupt import SMALLEST_SIDE, corrupt
from counterfoil.models.config_files import refuse_unlike_sides
from counterfoil.models.messages import refusal
from counterfoil.models.preparation import Preparation
from counterfoil.recipe.preprocessing import (
    ALIASED,
    BGR,
    CHROMA,
    CROPS,
    EXIF,
    INTERPOLATIONS,
    NORMALISATIONS,
    SCALED,
    SQUASH,
)
from counterfoil.store.decoding import (
    UnreadableImage,
    exif_orientation,
    open_image,
    rgb_image,
    upright_photograph,
)

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

    from counterfoil.models.classifiers import Classifier

# An image that is decoded, as its file, and the seed of its random numbers.
FileTransform = Callable[["Image", bytes, int], Any]
OWN = "images are prepared in this way anyway"
_OPAQUE = "how images are prepared for it is not known"
_NO_RESIZE = "it takes images as they are, without a resize"
# A JPEG holds half as many chroma pixels a side (4:2:0) if its first component has factors 2 x 2.
_HALVED = 2


@dataclass(frozen=True)
class Change:
    """One change, for every model and image."""

    name: str
    """A name of `PREPROCESSING`, or of a corrupted shift."""
    corruption: str = ""
    """The corruption, if it is one."""
    severity: int = 0
    """Its severity."""

    def of(
        self,
        classifier: Classifier,
        preparation: Preparation | None,
    ) -> ChangedPreparation | str:
        """Return how a model prepares images under this change, or why it cannot."""
        name = self.name
        if not self.corruption and name in (EXIF, CHROMA, BGR):
            return ChangedPreparation(self, None)
        if not self.corruption and name == SCALED:
            side = classifier.largest_side
            if side is None:
                return "the size of its input is not known"
            return ChangedPreparation(self, None, side)
        if preparation is None:
            return _OPAQUE
        if self.corruption:
            return ChangedPreparation(self, preparation)
        changed = _changed(preparation, name)
        if isinstance(changed, str):
            return changed
        return OWN if changed == preparation else ChangedPreparation(self, changed)


def _changed(usual: Preparation, name: str) -> Preparation | str:
    """Return a preparation with another filter, crop or normalisation, or a text that says why
    it has no such one."""
    if name in NORMALISATIONS:
        mean, std = NORMALISATIONS[name]
        return replace(usual, mean=mean, std=std)
    if usual.resized is None:
        return _NO_RESIZE
    if name in INTERPOLATIONS:
        # torchvision has no Lanczos filter.
        library = "pillow" if name == "lanczos" else usual.library
        return replace(usual, interpolation=name, antialias=True, library=library)
    if name in ALIASED:
        way = name.partition("_")[0]
        return replace(usual, interpolation=way, antialias=False, library="torchvision")
    if usual.crop is None and isinstance(usual.resized, int):
        return "it does not crop, so the size of its input depends on the image"
    crop = usual.crop or usual.resized
    assert isinstance(crop, tuple)
    if name == SQUASH:
        return replace(usual, resized=crop)
    height, width = (math.floor(side / CROPS[name]) for side in crop)
    if isinstance(usual.resized, int):
        return replace(usual, resized=max(height, width), crop=crop)
    if (height, width) == usual.resized:
        return usual
    return replace(usual, resized=(height, width), crop=crop)


def answers_name(model: str, change: Change) -> str:
    """Return the name of a model's answers under a change."""
    return f"{model} under {change.name}"


@dataclass(frozen=True)
class ChangedPreparation:
    """A change for one model."""

    change: Change
    preparation: Preparation | None
    """The stages under the change; None for the model's own transform."""
    side: int = 0
    """The side that an image must have at least when it is decoded, if that matters."""

    @property
    def key(self) -> str:
        """A text of everything that decides a tensor, beside the image and its seed."""
        described = asdict(self)
        if self.change.corruption:
            described["versions"] = [version("numpy"), version("scipy")]
        return json.dumps(described, sort_keys=True)

    def transform(self, model: str, usual: Callable[[Any], Any]) -> FileTransform:
        """Return a function from an image, its file and its seed to the model's input. usual:
        the model's transform."""
        change = self.change
        if self.preparation is None:
            return lambda image, encoded, _: usual(self._read(image, encoded))
        preparation = self.preparation

        def prepared(image: Image, _: bytes, seed: int) -> torch.Tensor:
            if isinstance(preparation.resized, int):
                sides = (preparation.resized, preparation.resized)
                refuse_unlike_sides(model, image.size, sides)
            fitted = preparation.fitted(image)
            if change.corruption:
                if min(fitted.size) < SMALLEST_SIDE:
                    width, height = fitted.size
                    raise refusal(
                        "unfit-input.corrupted",
                        change.name,
                        width,
                        height,
                        least=SMALLEST_SIDE,
                    )
                fitted = corrupt(fitted, change.corruption, change.severity, seed=seed)
            return preparation.tensor(fitted)

        return prepared

    def _read(self, image: Image, encoded: bytes) -> Image:
        """Return the image as another program would read it from its file."""
        from PIL import Image

        name = self.change.name
        if name == BGR:
            return Image.fromarray(np.asarray(image)[:, :, ::-1].copy())
        try:
            if name == EXIF:
                return rgb_image(upright_photograph(encoded), photograph=True)
            if name == SCALED:
                with open_image(encoded, photograph=True) as picture:
                    # At the least of 1/8, 1/4 and 1/2 of its size that is no smaller.
                    picture.draft("RGB", (self.side, self.side))
                    return picture.convert("RGB")
            return with_plain_chroma(encoded)
        except (UnreadableImage, OSError) as error:
            raise refusal("unfit-input.decoded", name, error) from error


def with_plain_chroma(encoded: bytes) -> Image:
    """Return a 4:2:0 JPEG whose chroma is enlarged by repeating pixels, not by interpolation."""
    from PIL import Image

    with open_image(encoded, photograph=True) as picture:
        size = picture.size
        picture.draft("YCbCr", size)
        light = picture.convert("YCbCr").getchannel(0)
    halves = (size[0] // _HALVED, size[1] // _HALVED)
    # At half the size libjpeg leaves the chroma pixels as they are stored.
    with open_image(encoded, photograph=True) as picture:
        picture.draft("YCbCr", halves)
        stored = picture.convert("YCbCr")
    planes = [light]
    for channel in (1, 2):
        pixels = np.asarray(stored.getchannel(channel))
        repeated = pixels.repeat(_HALVED, axis=0).repeat(_HALVED, axis=1)
        planes.append(Image.fromarray(np.ascontiguousarray(repeated[: size[1], : size[0]])))
    return Image.merge("YCbCr", planes).convert("RGB")


def changes_file(name: str, encoded: bytes | None) -> bool:
    """Return whether a change of how files are read concerns this file."""
    if encoded is None:
        return False
    try:
        with open_image(encoded, photograph=True) as picture:
            if name == EXIF:
                return exif_orientation(picture) != 1
            if picture.format != "JPEG":
                return False
            components: Any = getattr(picture, "layer", ())
            halved = [entry[1:3] for entry in components]
            return name != CHROMA or halved == [(2, 2), (1, 1), (1, 1)]
    except (UnreadableImage, OSError):
        return False
