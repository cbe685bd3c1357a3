"""Pin, load and ask the models of keep rules that ask (`AskingRule`): chat models that see, and
detectors of what a text names.

Models see each image alone, as the dataset stores it, so that no other image changes an answer.
What a server answered is kept in the cache of this user: a resumed build asks nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import sha256_json
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.models.chat.judge import load_judge
from counterfoil.models.names import Pin, pin_model
from counterfoil.models.open_vocabulary import load_text_detector
from counterfoil.recipe.keep.detected import (
    AREAS,
    CONFIDENCES,
    LEAST_CONFIDENCE,
    MOST_BOXES,
    DetectedRule,
)
from counterfoil.recipe.keep.rule import AskingRule, as_stored
from counterfoil.recipe.names import ELSEWHERE, TRANSFORMERS, without_folders
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import rgb_image
from counterfoil.store.layout import writable_cache

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from counterfoil.building.judges import Pins
    from counterfoil.models.chat.judge import Judge
    from counterfoil.models.open_vocabulary import TextDetector
    from counterfoil.plan.layout import Plan, Sample
    from counterfoil.recipe import Recipe

# Takes an RGB image and the text of each column. Returns the answers by column.
Answerer = Callable[["Image.Image", Mapping[str, str]], dict[str, Any]]

# Boxes of one class that overlap more are of one object, as torchvision's detectors take it.
_SAME_OBJECT = 0.5
_OPTIONS = ("yes", "no")
_LONGEST_NUMBER = 100  # bytes
_HOW_TO_ANSWER = " Please answer yes or no."  # as VQAScore asks (Lin 2024, section 3)


def pin_asked_models(recipe: Recipe) -> Pins:
    """Return the pin of each asked model by its name without folders.

    Raise UserError with every model that does not exist and every address from a dataset's recipe,
    and RunFailure if the Hub cannot be reached. No server is contacted.
    """
    pins: Pins = {}
    errors: list[CounterfoilError] = []
    for rule in recipe.asking_rules:
        try:
            if rule.address is None:
                name = rule.model.removeprefix(TRANSFORMERS)
                name, _, revision = name.partition("@")
                pin = pin_model(name, revision or None)
            else:
                refuse_address(rule)
                # What a server runs under a name is not known.
                pin = Pin(rule.model, None, None, None)
            pins[without_folders(rule.model)] = pin.document()
        except CounterfoilError as error:
            errors.append(error.at("screen.keep"))
    raise_together(errors)
    return pins


def refuse_address(rule: AskingRule) -> None:
    """Raise UserError if the address of a rule's server comes from a dataset's recipe."""
    if (rule.address or "").startswith(ELSEWHERE):
        raise UserError(
            f"the address of the model '{rule.model}' comes from a dataset's recipe, and no image is"
            " sent there",
            "If you have such a server, give the rule yourself, with its address: --set"
            " screen.keep=…",
        )


@dataclass(frozen=True, slots=True)
class AskedModels:
    """The loaded models of a plan's keep rules, by rule."""

    plan: Plan
    models: Mapping[AskingRule, Answerer]

    @classmethod
    def load(
        cls,
        plan: Plan,
        pins: Mapping[str, Any],
        device: str,
    ) -> AskedModels:
        """Load the models at their pinned commits."""
        loaded: dict[Any, Answerer] = {}
        models = {}
        for rule in plan.recipe.asking_rules:
            key = (type(rule), rule.model, rule.address)
            if key not in loaded:
                pin = pins[without_folders(rule.model)]
                loaded[key] = _load(rule, pin, device)
            models[rule] = loaded[key]
        return cls(plan, models)

    def answers(
        self,
        samples: Sequence[Sample],
        images: Sequence[bytes | None],
    ) -> list[dict[str, Any]]:
        """Return the answers to each image by column. A missing image has no answers."""
        answers: list[dict[str, Any]] = [{} for _ in samples]
        for sample, image, columns in zip(samples, images, answers, strict=True):
            if image is None:
                continue
            shift = self.plan.shift(sample.shift)
            sample_class = self.plan.class_of(sample.label)
            picture = rgb_image(image)
            for rule in shift.keep:
                if isinstance(rule, AskingRule):
                    templates = rule.asks(shift)
                    texts = {
                        name: sample_class.text(template) for name, template in templates.items()
                    }
                    columns |= self.models[rule](picture, texts)
        return answers


def _load(
    rule: AskingRule,
    pin: Mapping[str, Any],
    device: str,
) -> Answerer:
    """Load the model of a rule at its pinned commit. A server is not contacted."""
    name = rule.model
    revision = pin.get("revision")
    if revision is not None:
        name, _, _ = name.partition("@")
        name = f"{name}@{revision}"
    if isinstance(rule, DetectedRule):
        detector = load_text_detector(name, device)
        return partial(_detections, detector)
    judge = load_judge(name, base_url=rule.address, device=device)
    if rule.address is None:
        return partial(_shares_of_yes, judge)
    folder = writable_cache() / "questions"
    return partial(_kept_shares, judge, folder)


def _shares_of_yes(
    judge: Judge,
    image: Image.Image,
    texts: Mapping[str, str],
) -> dict[str, float]:
    """Return the probability of yes to each question, one call a question."""
    shares = {}
    for column, text in texts.items():
        question = text + _HOW_TO_ANSWER
        choice = judge.choose(image, question, _OPTIONS)
        probabilities = choice.probabilities()
        shares[column] = 0.0  # an answer that is neither yes nor no is not yes
        if probabilities is not None:
            shares[column] = as_stored(float(probabilities[0]))
    return shares


def _kept_shares(
    judge: Judge,
    folder: Path,
    image: Image.Image,
    texts: Mapping[str, str],
) -> dict[str, float]:
    """Return the probabilities of a model on a server, which is asked each question about an image
    once."""
    pixels = hashlib.sha256(image.tobytes())
    shares = {}
    for column, text in texts.items():
        question_parts = [judge.key, image.size, pixels.hexdigest(), text, _HOW_TO_ANSWER]
        key = sha256_json(question_parts)
        file = folder / key[:2] / key
        try:
            kept = float(read_regular(file, _LONGEST_NUMBER))
        except (OSError, ValueError):
            kept = None
        if kept is None or not 0 <= kept <= 1:
            answered = _shares_of_yes(judge, image, {column: text})
            kept = answered[column]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, repr(kept).encode())
        shares[column] = kept
    return shares


def _detections(
    detector: TextDetector,
    image: Image.Image,
    texts: Mapping[str, str],
) -> dict[str, Any]:
    boxes, confidences = detector(image, texts[CONFIDENCES], LEAST_CONFIDENCE)
    return detected_objects(boxes, confidences, image.size)


def detected_objects(
    boxes: torch.Tensor,
    confidences: torch.Tensor,
    size: tuple[int, int],
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
