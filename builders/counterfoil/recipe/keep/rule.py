"""Define keep rules: sections of a recipe that decide cells by candidates' scores and
thresholds."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    """Scores and thresholds of one candidate, by the name of the score. A missing value is None.

    The object score is None if rendering failed. The shift score is None if the shift is not
    screened. Without a screen both scores and the object threshold are None. open: the shift's
    threshold is a percentile over candidates that are not all finished.
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
        score = self.scores.get(name)
        threshold = self.thresholds.get(name)
        return score is not None and threshold is not None and score < threshold


def as_stored(value: float) -> float:
    """Return the nearest float32 number."""
    return struct.unpack("f", struct.pack("f", value))[0]


# Versions of the rows' columns: the first, which older recipes of datasets do not name; the last
# that changed the rows of every dataset; and that of new builds.
FIRST_ROWS = 1
EVERY_ROWS = 1
NEWEST_ROWS = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dataset's tables: its type in `datasets` and its description for cards. Cells
    may be empty."""

    type: Literal[
        "int32", "int64", "float32", "bool", "string", "Image", "ClassLabel", "list<float32>", "list<ClassLabel>",
        "objects",
    ]  # fmt: skip
    description: str
    since: int = field(default=FIRST_ROWS, kw_only=True)
    """The first version of rows with this column."""


class KeepRule(Section):
    """The settings of a rule and a pure function. Rules run in order, each on the candidates that
    earlier rules kept.

    whole_cell: a decision depends on the other candidates of the cell, so the rule cannot be used
    with a quota. after: rules that must precede this one. reasons: all that `dropped` may return.
    measures: columns that `measure` fills from the pixels of a stored image, each with its minimum
    and maximum. may_lack: those that may be empty. compares: whether a rule compares an edit with
    its row; then `measure_against` fills its columns.
    """

    whole_cell: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    reasons: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {}
    may_lack: ClassVar[tuple[str, ...]] = ()
    compares: ClassVar[bool] = False

    def scores(self) -> tuple[str, ...]:
        """Return the names of the scores that the rule reads."""
        raise NotImplementedError

    def columns(self) -> dict[str, Column]:
        """Return the columns that the rule adds to every row, by the name of the score in each
        column."""
        return {}

    def judges(self) -> tuple[str, ...]:
        """Return the classifiers whose answers are scores. A rule with classifiers does not apply
        to the base."""
        return ()

    def measure(self, pixels: NDArray[Any]) -> dict[str, float]:
        """Measure an image, uint8 (height, width, 3). Return a float32 number for each name in
        `measures`."""
        return {}

    def measure_against(self, pixels: NDArray[Any], original: NDArray[Any]) -> dict[str, float]:
        """Measure an edit against its row, as it was prepared for the edit; both uint8 (height,
        width, 3)."""
        return {}

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """Return for each remaining candidate of a cell, in order of index, the reason to drop it,
        or None."""
        raise NotImplementedError
