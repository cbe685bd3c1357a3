"""The two cosines of Vendrow 2023, section 3.1: is the object there, is the shift there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.generate.screen.known_classes import KnownClasses, base_caption, known_classes, own_captions
from counterfoil.recipe import object_caption_for

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.models.clip import ClipModel
    from counterfoil.plan import Plan, Sample
    from counterfoil.recipe import Recipe


def shift_scores(
    images: np.ndarray, objects: np.ndarray, shifts: Sequence[np.ndarray | None]
) -> list[tuple[float, float | None]]:
    """Object and shift cosine of each image, from unit embeddings: images and object captions [n, width],
    shift captions n × ([width] or None). Computed in float64 row by row and given as float32."""
    scores = []
    for image, caption, shift in zip(images, objects, shifts, strict=True):
        seen = image.astype(np.float64)
        shift_score = None if shift is None else float(np.float32(seen @ shift.astype(np.float64)))
        scores.append((float(np.float32(seen @ caption.astype(np.float64))), shift_score))
    return scores


@dataclass(frozen=True, slots=True)
class Captions:
    """Unit embeddings of the captions of a plan, encoded once each when first asked for."""

    clip: ClipModel
    plan: Plan
    seen: dict[str, np.ndarray]

    def of(self, text: str) -> np.ndarray:
        if text not in self.seen:
            self.seen[text] = self.clip.embed_texts([text])[0]
        return self.seen[text]

    def for_sample(self, sample: Sample) -> tuple[np.ndarray, np.ndarray | None]:
        shift, cls = self.plan.shift(sample.shift), self.plan.class_of(sample.label)
        caption = shift.caption
        return self.of(object_caption_for(shift, cls)), None if caption is None else self.of(caption)


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores batches of rendered images against their samples' captions."""

    captions: Captions
    batch_size: int

    @classmethod
    def for_plan(cls, clip: ClipModel, plan: Plan) -> Scorer:
        return cls(Captions(clip, plan, {}), plan.recipe.generator.batch_size)

    def score(
        self, images: Sequence[Image.Image], samples: Sequence[Sample]
    ) -> tuple[np.ndarray, list[tuple[float, float | None]]]:
        """Return embeddings float32 [n, width], and the (object, shift) cosines of each image."""
        embeddings = self.embed(images)
        pairs = [self.captions.for_sample(sample) for sample in samples]
        return embeddings, shift_scores(embeddings, np.stack([p[0] for p in pairs]), [p[1] for p in pairs])

    def embed(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Return unit embeddings float32 [n, width] of images, in batches of one size."""
        return self.captions.clip.embed_images(images, self.batch_size)


class ValidationScores:
    """Cosines of each class's own validation images with a caption.

    `labels` [n] are the labels of n images in the recipe, `embeddings` [n, width] their unit vectors in float32.
    """

    def __init__(self, recipe: Recipe, clip: ClipModel, labels: np.ndarray, embeddings: np.ndarray) -> None:
        self.recipe = recipe
        self.clip = clip
        self.embeddings: dict[str, np.ndarray] = {
            cls.id: embeddings[labels == cls.label] for cls in recipe.classes if np.any(labels == cls.label)
        }

    def __call__(self, caption: str) -> Mapping[str, np.ndarray]:
        scores = {}
        for cls in self.recipe.classes:
            # A shift of some classes may use a parent that the others do not have.
            if cls.id in self.embeddings and cls.has_words_for(caption):
                text = self.clip.embed_texts([cls.text(caption)])[0]
                scores[cls.id] = (self.embeddings[cls.id].astype(np.float64) @ text).astype(np.float32)
        return scores

    def known_classes(self, labels: Sequence[int] | None = None) -> KnownClasses | None:
        """Return what CLIP makes of the images among the classes' own object captions, as the base has them.

        labels: the classes that are told apart; all, where it is None.
        """
        texts = own_captions(self.recipe)
        if labels is not None:
            ids = {cls.id for cls in self.recipe.classes if cls.label in labels}
            texts = {class_id: text for class_id, text in texts.items() if class_id in ids}
        if len(texts) < 2:
            return None
        embedded = self.clip.embed_texts(list(texts.values()))
        return known_classes(base_caption(self.recipe), texts, embedded, self.embeddings)
