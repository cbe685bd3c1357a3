"""What became of each class in a run of mining: its numbers, and its direction or contexts, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from counterfoil.documents import STRICT, Count, Interval, Share


@dataclass(frozen=True, slots=True)
class ClassDirection:
    """The direction of a class, found on its discover rows."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    strength: Annotated[Share, Field(description="Cross-validated balanced accuracy: .5 is chance.")]
    interval: Interval | None
    p: Annotated[Share, Field(description="Permutation p of the strength over the whole grid of C.")]
    C: float
    rows: Annotated[Count, Field(description="Rows of the class on the discover half.")]
    errors: Annotated[Count, Field(description="Failures among them.")]
    solver: str


@dataclass(frozen=True, slots=True)
class ScoredCaption:
    """A caption with its score along a class's direction: low is hard."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    caption: str
    score: float


@dataclass(frozen=True, slots=True)
class ClassContext:
    """A context that a class may be in, and how often its discover rows are, as CLIP tells among all of the class's."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    words: Annotated[str, Field(description="The context alone: 'in the snow'.")]
    caption: Annotated[str, Field(description="What CLIP compared with images.")]
    failures: Annotated[
        Count, Field(description="Failures of the class that are in it, of all classifiers that were pooled.")
    ]
    of_failures: Annotated[Count, Field(description="Failures of the class.")]
    right: Annotated[Count, Field(description="Right answers of the class that are in it.")]
    of_right: Annotated[Count, Field(description="Right answers of the class.")]
    lift: Annotated[float | None, Field(ge=0, description="Its share of failures over its share of right answers.")]
    rank: Annotated[Count | None, Field(description="Its place among those chosen, from 0; null where it was not.")]
    failed_images: Annotated[
        Count | None, Field(description="Images among its failures, of pooled classifiers; null where none was pooled.")
    ] = None


@dataclass(frozen=True, slots=True)
class ClassAudit:
    """What became of one class: its numbers over both halves, and its direction or contexts, or why it has none."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    name: str
    rows: Annotated[Count, Field(description="Rows of the class, both halves together.")]
    errors: Annotated[Count, Field(description="Failures among them.")]
    rate: Annotated[Share | None, Field(description="Their failure rate; null where the class has no row.")]
    direction: ClassDirection | None = None
    reason: Annotated[str | None, Field(description="Why there is no direction; null where there is one.")] = None
    hard: Annotated[tuple[ScoredCaption, ...], Field(description="Hardest captions, hardest first.")] = ()
    easy: Annotated[tuple[ScoredCaption, ...], Field(description="Easiest captions, easiest first.")] = ()
    interval: Annotated[Interval | None, Field(description="Of the rate, where rows are images drawn for it.")] = None
    contexts: Annotated[
        tuple[ClassContext, ...], Field(description="Its contexts, the chosen ones first; none for other methods.")
    ] = ()
    drawn: Annotated[
        Count | None, Field(description="Images drawn of it, of which the screen accepted `rows`; null for no round.")
    ] = None
