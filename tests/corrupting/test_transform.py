"""`counterfoil.corrupt` and `counterfoil.Corrupt`: images in the form that they came in, with the
same bytes, and nothing beside an image that no longer fits it."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import counterfoil
from counterfoil.corrupting.corruptions import CORRUPTIONS


def levels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("name", ["fog", "gaussian_noise", "rotation"])
def test_an_image_comes_back_in_the_form_that_it_was_given_in(name: str) -> None:
    pixels = levels(40, 50, 3)
    corrupted = counterfoil.corrupt(pixels, name, 4, seed=7)
    image = counterfoil.corrupt(Image.fromarray(pixels), name, 4, seed=7)
    assert isinstance(image, Image.Image)
    assert np.array_equal(np.asarray(image), corrupted)
    grey = counterfoil.corrupt(Image.fromarray(pixels[..., 0]), name, 4, seed=7)
    assert (grey.mode, grey.size) == ("L", (50, 40))


def test_an_image_of_a_batch_is_that_of_its_index_alone() -> None:
    batch = levels(3, 20, 30, 3)
    corrupted = counterfoil.corrupt(batch, "gaussian_noise", 2, seed=5)
    alone = [
        counterfoil.corrupt(pixels, "gaussian_noise", 2, seed=5 + index)
        for index, pixels in enumerate(batch)
    ]
    assert np.array_equal(corrupted, np.stack(alone))
    assert counterfoil.corrupt(batch[:0], "fog").shape == (0, 20, 30, 3)


@pytest.mark.parametrize(
    "image",
    [
        levels(7, 40, 3),
        levels(40, 40, 4),
        levels(40, 40),
        levels(40, 40, 3) / 255,
        Image.new("RGBA", (20, 20)),
    ],
    ids=["small", "alpha", "grey", "floats", "RGBA"],
)
def test_another_form_is_refused(image: Any) -> None:
    with pytest.raises(ValueError, match=r"is uint8|has mode RGB"):
        counterfoil.corrupt(image, "fog")


def test_all_corruptions_are_listed_with_what_they_do() -> None:
    listed = counterfoil.corruptions()
    assert list(listed) == list(CORRUPTIONS)
    assert all(corruption.says.endswith(".") for corruption in listed.values())
    assert {name for name, corruption in listed.items() if corruption.moves_pixels} == {
        "zoom_blur",
        "elastic_transform",
        "caustic_refraction",
        "rotation",
    }


def test_nothing_is_loaded_but_what_it_needs() -> None:
    program = (
        "import sys, numpy, counterfoil; counterfoil.corrupt(numpy.zeros((32, 32, 3), 'uint8'),"
        " 'fog');"
        "print(sorted(name for name in sys.modules if name.startswith('counterfoil.')));"
        "print([name for name in ('torch', 'pydantic', 'yaml', 'scipy.stats', 'datasets') if name"
        " in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    mine, others = printed.splitlines()
    light = {"arrays", "corrupting", "errors", "registry"}
    assert {name.split(".")[1] for name in eval(mine)} == light
    assert others == "[]"


def test_a_seed_gives_an_image_the_same_corruption_in_every_order() -> None:
    images = [levels(20, 20, 3, seed=number) for number in range(12)]
    corrupts = counterfoil.Corrupt(["fog", "gaussian_noise", "contrast"], (1, 5), seed=3)
    forwards = [corrupts(image) for image in images]
    backwards = [corrupts(image) for image in reversed(images)][::-1]
    assert all(
        np.array_equal(first, second) for first, second in zip(forwards, backwards, strict=True)
    )
    other = counterfoil.Corrupt(["fog", "gaussian_noise", "contrast"], (1, 5), seed=4)
    assert any(
        not np.array_equal(first, other(image))
        for first, image in zip(forwards, images, strict=True)
    )


def test_each_image_of_a_batch_gets_a_corruption_of_its_own() -> None:
    batch = np.stack([levels(20, 20, 3, seed=number) for number in range(12)])
    corrupts = counterfoil.Corrupt(["darker", "contrast"], (1, 5), seed=3)
    assert np.array_equal(corrupts(batch), np.stack([corrupts(pixels) for pixels in batch]))


def test_without_a_seed_pythons_random_decides() -> None:
    image = levels(20, 20, 3)
    corrupts = counterfoil.Corrupt("gaussian_noise", 3)
    random.seed(1)
    first = corrupts(image)
    second = corrupts(image)
    random.seed(1)
    assert np.array_equal(corrupts(image), first)
    assert not np.array_equal(first, second)


def test_it_is_a_transform_of_torchvision() -> None:
    image = tv_tensors.Image(torch.from_numpy(levels(24, 32, 3)).permute(2, 0, 1))
    make_boxes: Any = tv_tensors.BoundingBoxes
    boxes = make_boxes([[1, 1, 9, 9]], format="XYXY", canvas_size=(24, 32))
    pipeline = v2.Compose(
        [counterfoil.Corrupt("darker", 2, seed=0), v2.ToDtype(torch.float32, scale=True)]
    )
    changed, target = pipeline(image, {"boxes": boxes})
    assert type(changed) is tv_tensors.Image
    assert changed.shape == (3, 24, 32)
    assert torch.equal(target["boxes"], boxes)
    # darker draws nothing
    expected = counterfoil.corrupt(image.permute(1, 2, 0).numpy(), "darker", 2, seed=0)
    assert torch.equal((changed * 255).round().byte().permute(1, 2, 0), torch.from_numpy(expected))


@pytest.mark.parametrize(
    "beside",
    [
        {"boxes": torch.zeros(1, 4)},
        {"target": [{"bbox": [0, 0, 1, 1]}]},
        tv_tensors.Mask(torch.zeros(20, 20, dtype=torch.uint8)),
    ],
    ids=["boxes", "COCO", "mask"],
)
def test_boxes_and_masks_stay_or_are_refused(beside: Any) -> None:
    image = levels(20, 20, 3)
    with pytest.raises(ValueError, match="rotation would move pixels"):
        counterfoil.Corrupt(["fog", "rotation"])(image, beside)
    assert counterfoil.Corrupt("fog")(image, beside)[1] is beside


def test_a_column_of_a_dataset_is_corrupted() -> None:
    images = [Image.fromarray(levels(16, 16, 3, seed=number)) for number in range(4)]
    rows = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 0, 1]}).cast_column(
        "image", datasets.Image()
    )
    corrupts = counterfoil.Corrupt("fog", 3, seed=1)
    mapped = rows.map(corrupts)
    several = rows.with_transform(corrupts)[:]
    assert mapped["label"] == rows["label"] == several["label"]
    for image, by_map, by_transform in zip(images, mapped["image"], several["image"], strict=True):
        assert np.array_equal(np.asarray(corrupts(image)), np.asarray(by_map))
        assert np.array_equal(np.asarray(by_map), np.asarray(by_transform))


def test_what_cannot_be_is_refused_when_the_transform_is_made() -> None:
    with pytest.raises(ValueError, match="no corruption rain"):
        counterfoil.Corrupt(["fog", "rain"])
    with pytest.raises(ValueError, match="severities from 1 to 5"):
        counterfoil.Corrupt("fog", [0, 3])
