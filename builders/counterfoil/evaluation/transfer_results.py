"""What is returned of transfer: how models fail on images that are there because another one, a judge, was wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from counterfoil.evaluation.statistics import Estimate

Relation = Literal["judge", "same architecture", "same family", "other"]


@dataclass(frozen=True)
class TransferRate:
    """How often a model fails, by one failure rule (`top1`, `top3`), on images that a judge was wrong about.

    rate: over all these images, its interval by captions. base_rate, and by name those of images that stand beside the
    dataset: rates by class there, averaged with the mixture of classes of these images; None where there are none.
    """

    rule: str
    failures: int
    rate: Estimate
    base_rate: float | None
    beside: Mapping[str, float]


@dataclass(frozen=True)
class TransferScore:
    """One model on the images that a judge was wrong about; `shift` is None over all of them.

    relation: the judge itself, which is wrong by construction: its top-1 rate is 1, and its top-3 rate is where the
    first three answers were asked about; another model of its architecture with other
    weights, as far as names and configurations tell; of its family; or another. captions: shifts times classes.
    """

    model: str
    family: str
    relation: Relation
    shift: str | None
    captions: int
    images: int
    base_images: int
    rates: tuple[TransferRate, ...]

    def rate(self, rule: str) -> TransferRate | None:
        """The rate by a failure rule; None where the model ranks too few answers for it."""
        return next((one for one in self.rates if one.rule == rule), None)


@dataclass(frozen=True)
class TransferShift:
    """A shift that keeps what at least so many of its judges get wrong; `images` are those that this one got wrong.

    failure: the rule that says what is wrong.
    """

    shift: str
    judges: tuple[str, ...]
    at_least: int
    candidates: int
    accepted: int
    images: int
    failure: str = "top1"


@dataclass(frozen=True)
class Transfer:
    """A judge of the build, and every model's failures on the images that are there because it was wrong.

    near_chance: the models that are so on the base; classes_near_chance: the names of classes that are, whose images no
    rate counts. scored: whether it is among the models of this evaluation. Scores over all images come first, then by
    shift, where there are several.
    """

    judge: str
    architecture: str
    family: str
    scored: bool
    captions: int
    images: int
    shifts: tuple[TransferShift, ...]
    scores: tuple[TransferScore, ...]
    near_chance: tuple[str, ...] = ()
    classes_near_chance: tuple[str, ...] = ()

    def of(self, shift: str | None) -> tuple[TransferScore, ...]:
        """The scores of one shift, or over all."""
        return tuple(score for score in self.scores if score.shift == shift)
