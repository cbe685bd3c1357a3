"""What a keep rule is, and what it reads: the scores of a candidate by name, and the thresholds they must reach.

A rule is a section of a recipe that decides a whole cell, and says what it needs to know for that.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.recipe.section import Section

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The two cosines of Vendrow 2023, section 3.1. Others have names beside them.
OBJECT = "object"
SHIFT = "shift"
CLIP_SCORES = (OBJECT, SHIFT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores and thresholds of one candidate, by the score's name; None where there is none.

    The object's score is None where rendering failed, the shift's where the shift is not screened (the base); where
    nothing is screened both are, and so is the object's threshold. `open` says that the shift's threshold is not known
    yet: a percentile over candidates that are still being made.
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
    """A column of a dataset's tables: its type in `datasets`, and what cards say of it. Its cells may be empty."""

    type: Literal["int32", "int64", "float32", "bool", "string", "Image", "ClassLabel", "list<float32>", "objects"]
    description: str


class KeepRule(Section):
    """Settings and a pure function. Rules are applied in order, each to what those before it left.

    `whole_cell` says that a candidate's fate depends on the others of its cell: such a rule cannot fill a quota, which
    stops drawing by what passes so far. `measures` are columns that `measure` fills from the pixels of an image as it
    is stored, each with the least and the most that it can be.
    """

    whole_cell: ClassVar[bool] = False
    # Rules that must stand before this one in the list.
    after: ClassVar[tuple[str, ...]] = ()
    # Every reason that `dropped` may give: by them one tells of a stored candidate which rule dropped it.
    reasons: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def scores(self) -> tuple[str, ...]:
        """Return the names of the scores that the rule reads."""
        raise NotImplementedError

    def columns(self) -> dict[str, Column]:
        """Return columns that the rule adds to every row; the value of each is the score of the same name."""
        return {}

    def judges(self) -> tuple[str, ...]:
        """Return names of the classifiers whose answers are among the scores; what asks any never filters the base."""
        return ()

    def measure(self, pixels: NDArray[Any]) -> dict[str, float]:
        """Measure an image, uint8 (height, width, 3): a float32 number for each of `measures`."""
        return {}

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """Return for each remaining candidate of a cell, in order of index, why it is dropped, or None."""
        raise NotImplementedError
