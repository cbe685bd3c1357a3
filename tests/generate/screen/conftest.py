"""The lab's CLIP, loaded once, and the wardrobe's pictures that it looks at."""

from __future__ import annotations

import pytest
from PIL import Image

from counterfoil.lab.world import render
from counterfoil.models.clip import ClipModel, load_clip
from lab_training.corpora import unbiased_scene


@pytest.fixture(scope="session")
def clip() -> ClipModel:
    return load_clip("lab:clip")


@pytest.fixture(scope="session")
def pictures() -> list[Image.Image]:
    return [
        Image.fromarray(render(unbiased_scene(number, split="heldout"))) for number in range(10)
    ]
