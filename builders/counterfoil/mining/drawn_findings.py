"""What findings tell of images that were drawn for them: rounds, tests on pairs, wrong answers before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from counterfoil.documents import STRICT, Count, Interval, Share

# What a round is drawn for; its seed is of the purpose and the round's number. Estimates have a purpose of their own
# beside a search, beside what is tried in its folder, and beside the same findings by another recipe.
Purpose = Literal["baseline", "test", "shorten", "until", "estimate", "try", "try_estimate", "again", "again_estimate"]


@dataclass(frozen=True, slots=True)
class SequentialLook:
    """What a sequential test stood at after some pairs."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    pairs: Count
    log_e: Annotated[float, Field(description="Natural logarithm of the e-value: 0 says nothing, 2.3 one in ten.")]


@dataclass(frozen=True, slots=True)
class StoppedEstimate:
    """A failure rate estimated by drawing until the k-th failure (Wiles 2022); it enters no test."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    until: Annotated[int, Field(ge=2, description="The k that was asked for.")]
    drawn: Annotated[Count, Field(description="The place of the k-th failure, or all images where it never came.")]
    reached: bool
    rate: Share
    interval: Interval


@dataclass(frozen=True, slots=True)
class CountedPairs:
    """Images of a description, each beside a base image of the same noise."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    pairs: Annotated[Count, Field(description="Pairs of which the screen accepted both images.")]
    both: Annotated[Count, Field(description="Pairs of which both images fail.")]
    failing: Annotated[Count, Field(description="Pairs that fail as described and are right on the base.")]
    rescued: Annotated[Count, Field(description="Pairs that are right as described and fail on the base.")]

    def __post_init__(self) -> None:
        if self.both + self.failing + self.rescued > self.pairs:
            raise ValueError(f"{self.both} + {self.failing} + {self.rescued} pairs of {self.pairs}")


@dataclass(frozen=True, slots=True)
class FreshPairs(CountedPairs):
    """Pairs drawn once more for a finding after its test, in a number fixed before: its rates are of these alone."""

    drawn: Annotated[Count, Field(description="Pairs drawn, of which `pairs` were accepted.")]
    round: Annotated[str, Field(description="The folder of their round, as `rounds/07`.")]


@dataclass(frozen=True, slots=True)
class PairedTest(CountedPairs):
    """Pairs that were tested as they were drawn. They prove; drawing ends when they do, so they are no estimate."""

    state: Annotated[
        Literal["confirmed", "futile", "out_of_budget"],
        Field(description="confirmed by e-BH; futile: the difference cannot reach the margin; or the budget ended."),
    ]
    looks: Annotated[tuple[SequentialLook, ...], Field(description="The test after each batch.")]
    estimate: StoppedEstimate | None = None
    drawn: Annotated[Count | None, Field(description="Pairs drawn, the rejected ones included; null: not told.")] = None
    fresh: Annotated[
        FreshPairs | None, Field(description="What the rates are of; null where none were drawn after the test.")
    ] = None


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """A wrong answer, and how often it was given."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    answer: Annotated[str, Field(description="What the target answered, as a name.")]
    images: Count
    share: Annotated[Share, Field(description="Of all images, right ones included.")]
    examples: Annotated[tuple[str, ...], Field(description="Keys of some of them.")] = ()


@dataclass(frozen=True, slots=True)
class WrongAnswers:
    """The most frequent wrong answers on the base and as described (Wiles 2022, Figure 2), most frequent first."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    before: tuple[AnswerCount, ...]
    after: tuple[AnswerCount, ...]


@dataclass(frozen=True, slots=True)
class RoundDrawn:
    """A round: a dataset in the folder of the findings, drawn for one purpose with noise of its own."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Annotated[str, Field(description="Its folder, as `rounds/01`.")]
    purpose: Purpose
    seed: int
    images: Annotated[Count, Field(description="Images drawn.")]
    accepted: Annotated[Count, Field(description="Those that the screen accepted.")]
