"""The preparation that is read from a transform gives the transform's own tensors, or none is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from timm.data.transforms_factory import create_transform
from torchvision import transforms
from torchvision.transforms import InterpolationMode
from torchvision.transforms._presets import ImageClassification
from transformers import ConvNextImageProcessor, ViTImageProcessor

from counterfoil.models.preparation import Preparation, read_preparation
from support.images import noise

_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def _timm(**form: Any) -> Any:
    settings: dict[str, Any] = {
        "input_size": (3, 64, 64),
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "mean": _HALF[0],
        "std": _HALF[1],
    }
    return create_transform(**(settings | form), is_training=False)


def _clip() -> Any:
    form = PreprocessCfg(size=48, mean=_HALF[0], std=_HALF[1], interpolation="bicubic")
    return image_transform_v2(form, is_train=False)


TORCHVISION = transforms.Compose(
    [
        transforms.Resize(80, InterpolationMode.BILINEAR),
        transforms.CenterCrop(64),
        transforms.ToTensor(),
        transforms.Normalize(*_IMAGENET),
    ]
)
READ = {
    "timm": (_timm, Preparation(73, (64, 64), "bicubic", True, *_HALF)),
    "timm, squash": (
        lambda: _timm(crop_mode="squash", crop_pct=1.0),
        Preparation((64, 64), (64, 64), "bicubic", True, *_HALF),
    ),
    "torchvision": (lambda: TORCHVISION, Preparation(80, (64, 64), "bilinear", True, *_IMAGENET)),
    "a preset": (
        lambda: ImageClassification(crop_size=56, resize_size=64),
        Preparation(64, (56, 56), "bilinear", True, *_IMAGENET),
    ),
    "open_clip": (_clip, Preparation(48, (48, 48), "bicubic", True, *_HALF)),
    "levels alone": (transforms.ToTensor, None),
    "levels in a list": (lambda: transforms.Compose([transforms.ToTensor()]), Preparation()),
}


@pytest.mark.parametrize("name", READ)
def test_a_transform_is_read(name: str) -> None:
    make, expected = READ[name]
    transform = make()
    assert read_preparation(transform, transform) == expected


PROCESSORS = {
    "squash": ViTImageProcessor(size={"height": 40, "width": 40}),
    "share": ConvNextImageProcessor(size={"shortest_edge": 40}, crop_pct=0.875),
    "large": ConvNextImageProcessor(size={"shortest_edge": 384}, crop_pct=0.875),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_an_image_processor_is_read(name: str) -> None:
    processor: Any = PROCESSORS[name]

    def transform(image: Any) -> torch.Tensor:
        return processor(images=image, return_tensors="pt")["pixel_values"][0]

    preparation = read_preparation(processor, transform)
    assert preparation is not None
    picture = noise(3, 150, 119)
    given = preparation.tensor(preparation.fitted(picture))
    std = torch.tensor(processor.image_std)[:, None, None]
    levels = (given - transform(picture)).abs() * std * 255
    assert levels.max() < 2.01 and levels.mean() < 0.01


class _Flipped:
    """A stage whose effect no name tells."""

    def __call__(self, image: Any) -> Any:
        return image.transpose(0)


UNREAD: dict[str, Callable[[], Any]] = {
    "a function": lambda: lambda image: transforms.functional.to_tensor(image),
    "a border": lambda: _timm(crop_mode="border"),
    "an unknown stage": lambda: transforms.Compose([_Flipped(), *TORCHVISION.transforms]),
    "two resizes": lambda: transforms.Compose([transforms.Resize(90), *TORCHVISION.transforms]),
    "another library": lambda: type("Compose", (), {"transforms": [type("Resize", (), {})()]})(),
}


@pytest.mark.parametrize("name", UNREAD)
def test_a_transform_with_other_stages_is_not_read(name: str) -> None:
    stages = UNREAD[name]()
    transform = stages if callable(stages) else transforms.ToTensor()
    assert read_preparation(stages, transform) is None
