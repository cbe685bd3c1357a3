"""Define keep rules: sections of a recipe that decide cells by candidates' scores and
thresholds."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from counterfoil.recipe.section import Section

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from counterfoil.recipe.prompts import Shift


# The two cosines of Vendrow 2023, section 3.1. Other rules add scores under other names.
OBJECT = "object"
SHIFT = "shift"
CLIP_SCORES = (OBJECT, SHIFT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores and thresholds of one candidate, by the name of the score. A missing value is None.

    A score is a number, or the list of numbers that a column of lists holds.
    The object score is None if rendering failed. The shift score is None if the shift is not
    screened. Without a screen both scores and the object threshold are None. open: the shift's
    threshold is a percentile over candidates that are not all finished.
    """

    scores: Mapping[str, Any]
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

    def of_level(self) -> Self:
        """Return the rule for a level of a shift: without limits that mild levels would fail."""
        return self

    def measure_against(self, pixels: NDArray[Any], original: NDArray[Any]) -> dict[str, float]:
        """Measure an edit against its row, as it was prepared for the edit; both uint8 (height,
        width, 3)."""
        return {}

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """Return for each remaining candidate of a cell, in order of index, the reason to drop it,
        or None."""
        return [self.reason_of(verdict) for verdict in left]

    def reason_of(self, verdict: Verdict) -> str | None:
        """Return the reason to drop a candidate, or None. A rule that compares the candidates of a
        cell overrides `dropped` instead."""
        raise NotImplementedError


class AskingRule(KeepRule):
    """A rule that asks a model about each image alone, also of the base, and stores the answers.

    texts: the keys of what is asked, each with whether it is about the shift. A text about the
    object holds `{class}`; one about the shift may hold `{class}` and `{shift}`.
    """

    texts: ClassVar[Mapping[str, bool]] = {}

    model: str
    """The model that is asked."""

    @property
    def address(self) -> str | None:
        """Return the address of the server that answers, or None if the model runs in the build."""
        return None

    def asks(self, shift: Shift) -> dict[str, str]:
        """Return the text that is asked of a shift's images, by column of the answer.

        `{class}` stands for the name of the class.
        """
        raise NotImplementedError

    def limits(self) -> dict[str, float | None]:
        """Return the lowest answer that passes, from 0 to 1, by column. Of a list, the first number
        counts. None: only measured."""
        raise NotImplementedError

    def faults(self, answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield each column whose answer no model gives, and what was expected. No answer is
        None."""
        raise NotImplementedError
