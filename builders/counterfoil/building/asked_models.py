"""Pin, load and ask the models of keep rules that ask (`AskingRule`): detectors of what a text names.

Models see each image alone, as the dataset stores it, so that no other image changes an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from counterfoil.errors import CounterfoilError, raise_together
from counterfoil.models.names import pin_model
from counterfoil.models.open_vocabulary import load_text_detector
from counterfoil.recipe.keep.detected import (
    AREAS,
    CONFIDENCES,
    LEAST_CONFIDENCE,
    MOST_BOXES,
    DetectedRule,
)
from counterfoil.recipe.keep.rule import AskingRule
from counterfoil.recipe.names import TRANSFORMERS, without_folders
from counterfoil.store.decoding import rgb_image

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from counterfoil.models.open_vocabulary import TextDetector
    from counterfoil.plan.layout import Plan, Sample
    from counterfoil.recipe import Recipe

# Takes an RGB image and the text of each column. Returns the answers by column.
Asked = Callable[["Image.Image", Mapping[str, str]], dict[str, Any]]

# Boxes of one class that overlap more are of one object, as torchvision's detectors take it.
_SAME_OBJECT = 0.5


def pin_asked_models(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return the pin of each asked model by its name without folders.

    Raise UserError with every model that does not exist, and RunFailure if the Hub cannot be
    reached.
    """
    pins: dict[str, dict[str, Any]] = {}
    errors: list[CounterfoilError] = []
    for rule in recipe.asking_rules:
        try:
            repository, _, revision = rule.model.removeprefix(TRANSFORMERS).partition("@")
            pin = pin_model(repository, revision or None)
            pins[without_folders(rule.model)] = pin.document()
        except CounterfoilError as error:
            problems = [f"screen.keep: {problem}" for problem in error.problems]
            errors.append(type(error)(problems, error.hint))
    raise_together(errors)
    return pins


@dataclass(frozen=True, slots=True)
class AskedModels:
    """The loaded models of a plan's keep rules, by rule."""

    plan: Plan
    models: Mapping[AskingRule, Asked]

    @classmethod
    def load(cls, plan: Plan, pins: Mapping[str, Any], device: str) -> AskedModels:
        """Load the models at their pinned commits."""
        loaded: dict[tuple[type, str], Asked] = {}
        models: dict[AskingRule, Asked] = {}
        for rule in plan.recipe.asking_rules:
            key = (type(rule), rule.model)
            if key not in loaded:
                loaded[key] = _load(rule, pins[without_folders(rule.model)], device)
            models[rule] = loaded[key]
        return cls(plan, models)

    def answers(
        self, samples: Sequence[Sample], images: Sequence[bytes | None]
    ) -> list[dict[str, Any]]:
        """Return the answers to each image by column. A missing image has no answers."""
        answers: list[dict[str, Any]] = [{} for _ in samples]
        for sample, image, columns in zip(samples, images, answers, strict=True):
            if image is None:
                continue
            shift = self.plan.shift(sample.shift)
            asked_class = self.plan.class_of(sample.label)
            picture = rgb_image(image)
            for rule in shift.keep:
                if isinstance(rule, AskingRule):
                    asked = rule.asks(shift)
                    texts = {column: asked_class.text(text) for column, text in asked.items()}
                    columns |= self.models[rule](picture, texts)
        return answers


def _load(rule: AskingRule, pin: Mapping[str, Any], device: str) -> Asked:
    name = rule.model
    if pin["revision"] is not None:
        name = f"{name.partition('@')[0]}@{pin['revision']}"
    assert isinstance(rule, DetectedRule)
    return partial(_detections, load_text_detector(name, device))


def _detections(
    detector: TextDetector, image: Image.Image, texts: Mapping[str, str]
) -> dict[str, Any]:
    boxes, confidences = detector(image, texts[CONFIDENCES], LEAST_CONFIDENCE)
    return detected_objects(boxes, confidences, image.size)


def detected_objects(
    boxes: torch.Tensor, confidences: torch.Tensor, size: tuple[int, int]
) -> dict[str, list[float]]:
    """Return the columns of the objects in an image: boxes that no more confident box covers.

    boxes: float32 [n, 4] in pixels. confidences: float32 [n]. size: width and height.
    """
    from torchvision.ops import box_area, clip_boxes_to_image, nms

    width, height = size
    kept = nms(boxes, confidences, _SAME_OBJECT)[:MOST_BOXES]
    inside = clip_boxes_to_image(boxes[kept], (height, width))
    areas = box_area(inside) / (width * height)
    return {
        CONFIDENCES: confidences[kept].clamp(max=1).tolist(),
        AREAS: areas.clamp(0, 1).tolist(),
    }
