"""The input dataset's split `audit` beside one of the lab's classifiers, as parts see a planted world."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.models.names import LAB_WEIGHTS
from directions_proof.worlds import AuditedWorld

CLASSIFIERS: tuple[str, ...] = (
    "resnet10t", "resnet14t", "convnext_atto", "convnext_pico", "vit_tiny_patch8", "vit_tiny_patch16",
    "mobilenetv3_small_050", "lcnet_035",
)  # fmt: skip
"""Folders of the lab's weights."""

SPLIT = "audit"
_ROWS_OF = {"train": "train", "validation": SPLIT}


class AuditedWardrobe(AuditedWorld):
    """One of the lab's classifiers on 12,000 images; `validation` is the split `audit`, and nothing is planted."""

    def __init__(self, classifier: str, classifiers: Path, kept: Path) -> None:
        super().__init__("null-0", classifiers, kept)  # it has the same ten classes
        self.classifier = classifier
        self.folder = LAB_WEIGHTS / classifier

    @property
    def name(self) -> str:
        return self.classifier

    @cached_property
    def attributes(self) -> Mapping[str, NDArray[np.str_]]:
        """Attribute → its value in each row's scene, (n,)."""
        scenes = [wardrobe_scene(SPLIT, row).attributes() for row in range(len(self._images("validation")))]
        return {name: np.asarray([scene[name] for scene in scenes]) for name in scenes[0] if name != "class"}

    def _images(self, split: str, most: int | None = None) -> LabelledImages:
        assert most is None
        return labelled_source(f"lab:wardrobe:{_ROWS_OF[split]}", self.classes, unit_column="garment")
