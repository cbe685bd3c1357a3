"""What a classifier is: facts that its configuration tells, and the trained model with the form of its input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterfoil.models.input_form import refuse_unlike_sides, resized_sides


@dataclass(frozen=True)
class ClassifierFacts:
    """What a classifier's configuration says, before any weight is loaded."""

    name: str
    resolved: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Classifier:
    """A trained timm model in eval mode, with what its input must look like.

    `data_config` is timm's, at the model's test size: input_size, interpolation, mean, std,
    crop_pct, crop_mode. `sha256` is over the architecture and every loaded tensor, so two
    models are equal when, and only when, they compute the same thing.
    """

    name: str
    module: Any
    data_config: dict[str, Any]
    num_classes: int
    architecture: str
    param_count: int
    sha256: str

    @property
    def input_key(self) -> str:
        """Models with equal keys see the same tensors: a canonical text of the data configuration."""
        return json.dumps(self.data_config, sort_keys=True, default=str)

    def transform(self) -> Callable[[Any], Any]:
        """timm's evaluation transform for this model: a PIL image to a float tensor (C, H, W).

        It raises UserError for an image whose sides are so unlike that resizing would take it beyond memory.
        """
        from timm.data.transforms_factory import create_transform

        timms: Any = create_transform(**self.data_config, is_training=False)
        sides = resized_sides(self.data_config)

        def transformed(image: Any) -> Any:
            refuse_unlike_sides(self.name, image.size, sides, self.data_config["crop_mode"])
            return timms(image)

        return transformed
