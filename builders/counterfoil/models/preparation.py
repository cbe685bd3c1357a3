"""How a classifier prepares an image: resize, crop, levels. It is read from a transform, and can
be changed.

What is read is tried against the transform itself, and given up if the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterfoil.errors import CounterfoilError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

Sides = tuple[int, int]
Channels = tuple[float, float, float]
# Width and height of images that both shrink and grow, upright and lying.
_TRIED = ((97, 131), (402, 301), (640, 641))
# In levels of 255. The image processors of transformers round fewer than one of 100 pixels of noise
# otherwise than Pillow does, by one level or two.
_MOST_APART = 2.01
_MOST_APART_ON_AVERAGE = 0.01
# Above this side, ConvNeXt's image processor resizes to the square and does not crop.
_LARGE_EDGE = 384


@dataclass(frozen=True)
class Preparation:
    """The stages between a decoded image and a tensor."""

    resized: int | Sides | None = None
    """The shorter side after the resize, or (height, width); None for no resize."""
    crop: Sides | None = None
    """(height, width) of the crop at the centre; None for no crop."""
    interpolation: str = "bilinear"
    """The filter of the resize."""
    antialias: bool = True
    """Whether the filter widens when it shrinks an image."""
    mean: Channels = (0.0, 0.0, 0.0)
    """Subtracted from the levels of red, green and blue, from 0 to 1."""
    std: Channels = (1.0, 1.0, 1.0)
    """Divides the levels."""
    library: Literal["pillow", "torchvision"] = "pillow"
    """The library of the resize; torchvision rounds to whole levels."""

    def fitted(self, image: Image) -> Image:
        """Return the image as it is resized and cropped."""
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms import functional as steps

        picture: Any = image
        if self.library == "torchvision":
            picture = steps.pil_to_tensor(image)
        if self.resized is not None:
            sides = [self.resized] if isinstance(self.resized, int) else list(self.resized)
            way = InterpolationMode(self.interpolation)
            picture = steps.resize(picture, sides, way, antialias=self.antialias)
        if self.crop is not None:
            picture = steps.center_crop(picture, list(self.crop))
        if self.library == "torchvision":
            picture = steps.to_pil_image(picture)
        return picture

    def tensor(self, image: Image) -> torch.Tensor:
        """Return the levels of a resized and cropped image, normalised: float32 (3, height,
        width)."""
        from torchvision.transforms import functional as steps

        levels = steps.to_tensor(image)
        return steps.normalize(levels, list(self.mean), list(self.std))


def read_preparation(stages: Any, transform: Callable[[Any], torch.Tensor]) -> Preparation | None:
    """Return the preparation that gives the tensors of `transform`; None if `stages` describe none.

    stages: a Compose of torchvision, a preset of torchvision's weights, or an image processor of
    transformers.
    """
    described = None
    try:
        if hasattr(stages, "resize_size") and hasattr(stages, "crop_size"):
            described = _of_preset(stages)
        elif hasattr(stages, "transforms"):
            described = _of_stages(list(stages.transforms))
        elif hasattr(stages, "to_dict"):
            described = _of_processor(stages.to_dict())
    except (AttributeError, TypeError, ValueError, IndexError):  # stages of another library
        return None
    if described is None:
        return None
    tried = list(_tried_images())
    try:
        wanted = [transform(image) for image in tried]
    except CounterfoilError:
        return None
    for library in ("pillow", "torchvision"):
        preparation = replace(described, library=library)
        if _gives(preparation, tried, wanted):
            return preparation
    return None


def _tried_images() -> Iterator[Image]:
    from PIL import Image

    rng = np.random.default_rng(0)
    for width, height in _TRIED:
        yield Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


def _gives(preparation: Preparation, images: list[Image], wanted: list[torch.Tensor]) -> bool:
    import torch

    for image, expected in zip(images, wanted, strict=True):
        try:
            given = preparation.tensor(preparation.fitted(image))
        except (ValueError, NotImplementedError, RuntimeError):  # the library has no such filter
            return False
        if given.shape != expected.shape:
            return False
        scale = 255 * torch.tensor(preparation.std)[:, None, None]
        apart = (given - expected.float()).abs() * scale
        if apart.max() > _MOST_APART or apart.mean() > _MOST_APART_ON_AVERAGE:
            return False
    return True


def _of_stages(stages: list[Any]) -> Preparation | None:
    stated: dict[str, Any] = {}
    given: dict[str, Any]
    for stage in stages:
        match type(stage).__name__:
            case "Resize":
                given = {"resized": _side_or_sides(stage.size)}
                given["interpolation"] = _filter_name(stage.interpolation)
            case "CenterCrop":
                given = {"crop": _two_sides(stage.size)}
            case "Normalize":
                given = {"mean": _channels(stage.mean), "std": _channels(stage.std)}
            case _:
                continue
        if stated.keys() & given.keys():
            return None
        stated |= given
    return Preparation(**stated)


def _of_preset(preset: Any) -> Preparation:
    return Preparation(
        resized=_side_or_sides(preset.resize_size),
        crop=_two_sides(preset.crop_size),
        interpolation=_filter_name(preset.interpolation),
        mean=_channels(preset.mean),
        std=_channels(preset.std),
    )


def _of_processor(settings: Mapping[str, Any]) -> Preparation | None:
    from PIL import Image

    size = settings.get("size") or {}
    edge = size.get("shortest_edge")
    stated: dict[str, Any] = {}
    if settings.get("do_resize"):
        crop_share = settings.get("crop_pct")
        if edge and crop_share and edge < _LARGE_EDGE:
            stated |= {"resized": int(edge / crop_share), "crop": (edge, edge)}
        elif edge and crop_share:
            stated["resized"] = (edge, edge)
        elif edge:
            stated["resized"] = edge
        elif size.get("height") and size.get("width"):
            stated["resized"] = (size["height"], size["width"])
        else:
            return None
        resample = settings.get("resample")
        if resample not in set(Image.Resampling):
            return None
        stated["interpolation"] = Image.Resampling(int(resample)).name.lower()
    cut = settings.get("crop_size") or {}
    if settings.get("do_center_crop") and cut.get("height") and cut.get("width"):
        stated["crop"] = (cut["height"], cut["width"])
    if settings.get("do_normalize"):
        stated["mean"] = _channels(settings.get("image_mean"))
        stated["std"] = _channels(settings.get("image_std"))
    return Preparation(**stated)


def _filter_name(interpolation: Any) -> str:
    return str(getattr(interpolation, "value", interpolation))


def _side_or_sides(size: Any) -> int | Sides:
    if isinstance(size, int):
        return size
    sides = [int(side) for side in size]
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _two_sides(size: Any) -> Sides:
    sides = _side_or_sides(size)
    return (sides, sides) if isinstance(sides, int) else sides


def _channels(values: Any) -> Any:
    return tuple(float(value) for value in np.asarray(values).reshape(-1))
