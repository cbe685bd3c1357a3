"""Keep images in which an open-vocabulary detector finds the object, as often and as large as
asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from counterfoil.recipe.keep.rule import AskingRule, Column, Verdict, as_stored
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import text_detector_problem
from counterfoil.recipe.section import field_check, written_keys

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import Shift

CONFIDENCES = "detected_confidences"
AREAS = "detected_areas"
# Boxes are stored from this confidence on, so that a later cut can lower the recipe's.
LEAST_CONFIDENCE = 0.05
MOST_BOXES = 20


class DetectedRule(AskingRule):
    """Keep images in which a detector finds the object. Without a confidence, it only measures.

    Boxes with less confidence than `confidence_at_least` do not count. A box that overlaps a more
    confident one by half (IoU above 0.5) is the same object.
    """

    reasons = ("not_detected", "too_many", "too_small")
    texts: ClassVar[Mapping[str, bool]] = {"text": False}

    model: str
    """The detector, OWLv2, OWL-ViT or Grounding DINO: `transformers:NAME` or
    `transformers:FOLDER`."""
    text: str = "a photo of a {class}"
    """The text that the detector looks for; `{class}` is the name of the class."""
    confidence_at_least: float | None = Field(default=None, ge=LEAST_CONFIDENCE, le=1)
    """Lowest confidence of a box that counts; null: only measured."""
    count_at_least: int = Field(default=1, ge=1, le=MOST_BOXES)
    """Fewest objects to be found."""
    count_at_most: int | None = Field(default=None, ge=1, lt=MOST_BOXES)
    """Most objects to be found; null: any number."""
    area_at_least: float | None = Field(default=None, gt=0, le=1)
    """Lowest share of the image that the box of the largest object covers."""

    _named = field_check("model", by=text_detector_problem)

    def problem(self) -> str | None:
        if self.count_at_most is not None and self.count_at_most < self.count_at_least:
            return message(
                "out-of-range.counts", found=self.count_at_most, least=self.count_at_least
            )
        limits = written_keys(self, ("count_at_least", "count_at_most", "area_at_least"))
        if self.confidence_at_least is None and limits:
            return message("missing-key.confidence", found=limits[0])
        return None

    def scores(self) -> tuple[str, ...]:
        return (CONFIDENCES, AREAS)

    def columns(self) -> dict[str, Column]:
        confidences = (
            "Confidence of each object that the detector finds, highest first, from"
            f" {LEAST_CONFIDENCE} on, at most {MOST_BOXES}."
        )
        areas = "Share of the image that the box of each of these objects covers."
        return {
            CONFIDENCES: Column("list<float32>", confidences),
            AREAS: Column("list<float32>", areas),
        }

    def asks(self, shift: Shift) -> dict[str, str]:
        return dict.fromkeys(self.scores(), self.text)

    def limits(self) -> dict[str, float | None]:
        return {CONFIDENCES: self.confidence_at_least}

    def faults(self, answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        lists = {name: answers[name] for name in self.scores()}
        numbers = {name: values for name, values in lists.items() if values is not None}
        if len(numbers) == 1 or len({len(values) for values in numbers.values()}) > 1:
            yield AREAS, f"expected as many numbers as in {CONFIDENCES}"
        for name, values in numbers.items():
            least = LEAST_CONFIDENCE if name == CONFIDENCES else 0
            in_range = all(least <= value <= 1 for value in values)
            if len(values) > MOST_BOXES or not in_range:
                yield name, f"expected at most {MOST_BOXES} numbers from {least:g} to 1"
        if any(value < later for value, later in pairwise(lists[CONFIDENCES] or ())):
            yield CONFIDENCES, "expected the highest first"

    def reason_of(self, verdict: Verdict) -> str | None:
        confidences, areas = (verdict.scores.get(name) for name in self.scores())
        # A candidate that was not looked at is not dropped.
        if self.confidence_at_least is None or confidences is None or areas is None:
            return None
        least = as_stored(self.confidence_at_least)
        count = sum(confidence >= least for confidence in confidences)
        if count < self.count_at_least:
            return "not_detected"
        if self.count_at_most is not None and count > self.count_at_most:
            return "too_many"
        # the boxes are in order of confidence
        if self.area_at_least is not None and max(areas[:count]) < as_stored(self.area_at_least):
            return "too_small"
        return None
