"""What keep rules measure of an image's pixels: asked, like judges, about the image as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.store.decoding import rgb_image

if TYPE_CHECKING:
    from counterfoil.plan import Plan, Sample


def measured(plan: Plan, samples: Sequence[Sample], images: Sequence[bytes | None]) -> list[dict[str, float]]:
    """The measures of each image by column; nothing where there is no image, or no rule of its shift measures any."""
    return [_of(plan, sample, image) for sample, image in zip(samples, images, strict=True)]


def _of(plan: Plan, sample: Sample, image: bytes | None) -> dict[str, float]:
    rules = [rule for rule in plan.shift(sample.shift).keep if rule.measures]
    if image is None or not rules:
        return {}
    pixels = np.asarray(rgb_image(image))
    return {name: value for rule in rules for name, value in rule.measure(pixels).items()}
