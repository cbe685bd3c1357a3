"""Compute the two cosines of Vendrow 2023, section 3.1.

One cosine says whether the image shows the object, and the other says whether the image shows the
shift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.generate.screen.known_classes import (
    KnownClasses,
    base_caption,
    known_classes,
    own_captions,
)
from counterfoil.recipe import object_caption_for

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.models.clip import ClipModel
    from counterfoil.plan.layout import Plan, Sample
    from counterfoil.recipe import Recipe


def shift_scores(
    images: np.ndarray,
    objects: np.ndarray,
    shifts: Sequence[np.ndarray | None],
) -> list[tuple[float, float | None]]:
    """Return the object cosine and the shift cosine of each image as float32 numbers.

    The function computes them in float64, row by row. images, objects: the unit embeddings of
    images and of object captions, [n, width]. shifts: n unit embeddings of shift captions, each
    [width].
    """

    def cosine(image: np.ndarray, caption: np.ndarray) -> float:
        product = image.astype(np.float64) @ caption.astype(np.float64)
        return float(np.float32(product))

    scores = []
    for image, caption, shift in zip(images, objects, shifts, strict=True):
        object_score = cosine(image, caption)
        shift_score = None if shift is None else cosine(image, shift)
        scores.append((object_score, shift_score))
    return scores


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores batches of rendered images against the captions of their samples.

    Each caption of the plan is encoded once.
    """

    clip: ClipModel
    plan: Plan
    _captions: dict[str, np.ndarray] = field(default_factory=dict)

    def score(
        self,
        images: Sequence[Image.Image],
        samples: Sequence[Sample],
    ) -> tuple[np.ndarray, list[tuple[float, float | None]]]:
        """Return the embeddings, float32 [n, width], and the pair of cosines (object, shift) of
        each image."""
        embeddings = self.embed(images)
        objects = []
        shifts = []
        for sample in samples:
            shift = self.plan.shift(sample.shift)
            cls = self.plan.class_of(sample.label)
            caption = object_caption_for(shift, cls)
            objects.append(self._encoded(caption))
            shifts.append(None if shift.caption is None else self._encoded(shift.caption))
        scores = shift_scores(embeddings, np.stack(objects), shifts)
        return embeddings, scores

    def embed(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Return unit embeddings float32 [n, width]."""
        return self.clip.embed_images(images, self.plan.recipe.generator.batch_size)

    def _encoded(self, caption: str) -> np.ndarray:
        if caption not in self._captions:
            self._captions[caption] = self.clip.embed_texts([caption])[0]
        return self._captions[caption]


class ValidationScores:
    """Computes the cosines of the validation images of each class with a caption."""

    def __init__(
        self,
        recipe: Recipe,
        clip: ClipModel,
        labels: np.ndarray,
        embeddings: np.ndarray,
    ) -> None:
        """Take the labels of the images in the recipe, [n], and the unit vectors of the images,
        float32 [n, width]."""
        self.recipe = recipe
        self.clip = clip
        self.embeddings: dict[str, np.ndarray] = {}
        for cls in recipe.classes:
            of_class = labels == cls.label
            if np.any(of_class):
                self.embeddings[cls.id] = embeddings[of_class]

    def __call__(self, caption: str) -> Mapping[str, np.ndarray]:
        scores = {}
        for cls in self.recipe.classes:
            # A shift of some classes may use a parent that other classes do not have.
            if cls.id in self.embeddings and cls.has_words_for(caption):
                [text] = self.clip.embed_texts([cls.text(caption)])
                images = self.embeddings[cls.id].astype(np.float64)
                cosines = images @ text
                scores[cls.id] = cosines.astype(np.float32)
        return scores

    def known_classes(self, labels: Sequence[int] | None = None) -> KnownClasses | None:
        """Measure which classes CLIP knows by the object captions of the base. Without `labels`,
        measure all."""
        texts = own_captions(self.recipe)
        if labels is not None:
            ids = {self.recipe.classes[label].id for label in labels}
            texts = {class_id: text for class_id, text in texts.items() if class_id in ids}
        if len(texts) < 2:
            return None
        embedded = self.clip.embed_texts(list(texts.values()))
        return known_classes(base_caption(self.recipe), texts, embedded, self.embeddings)
