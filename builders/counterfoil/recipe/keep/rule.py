"""The interface of keep rules. A rule reads the scores and thresholds of candidates, by the score's name.

A rule is a section of a recipe. It decides a whole cell and lists the scores that it needs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.recipe.section import Section

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The two cosines of Vendrow 2023, section 3.1. Other rules add scores under other names.
OBJECT = "object"
SHIFT = "shift"
CLIP_SCORES = (OBJECT, SHIFT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores and thresholds of one candidate, by the score's name; a missing one is None.

    The object score is None if rendering failed. The shift score is None if the shift is not screened, as the base.
    Without a screen both scores and the object threshold are None. `open`: the shift's threshold is not known yet,
    because it is a percentile over candidates that are still being made.
    """

    scores: Mapping[str, float | None]
    thresholds: Mapping[str, float | None]
    open: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the image was not rendered, or its scores are not finite."""
        return self.scores.get(OBJECT) is None and self.thresholds.get(OBJECT, 0.0) is not None

    def is_low(self, name: str) -> bool:
        """Return whether a known score is below a known threshold."""
        score, threshold = self.scores.get(name), self.thresholds.get(name)
        return score is not None and threshold is not None and score < threshold


def as_stored(value: float) -> float:
    """Return the nearest float32 number."""
    return struct.unpack("f", struct.pack("f", value))[0]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dataset's tables: its type in `datasets` and its description for cards. Cells may be empty."""

    type: Literal["int32", "int64", "float32", "bool", "string", "Image", "ClassLabel", "list<float32>", "objects"]
    description: str


class KeepRule(Section):
    """The settings of a rule and a pure function. Rules run in order, each on the candidates that earlier rules kept.

    `whole_cell`: the decision on a candidate depends on the other candidates of its cell. Such a rule cannot be used
    with a quota, which stops drawing once enough candidates pass. `measures`: columns that `measure` fills from the
    pixels of a stored image, each with its minimum and maximum.
    """

    whole_cell: ClassVar[bool] = False
    # Rules that must precede this one in the list.
    after: ClassVar[tuple[str, ...]] = ()
    # Every reason that `dropped` may return; a stored candidate's reason identifies the rule that dropped it.
    reasons: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def scores(self) -> tuple[str, ...]:
        """Return the names of the scores that the rule reads."""
        raise NotImplementedError

    def columns(self) -> dict[str, Column]:
        """Return the columns that the rule adds to every row; a column holds the score of the same name."""
        return {}

    def judges(self) -> tuple[str, ...]:
        """Return the names of classifiers whose answers are scores. A rule with such classifiers skips the base."""
        return ()

    def measure(self, pixels: NDArray[Any]) -> dict[str, float]:
        """Measure an image, uint8 (height, width, 3): a float32 number for each of `measures`."""
        return {}

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """Return the reason to drop each remaining candidate of a cell, or None to keep it, in order of index."""
        raise NotImplementedError
