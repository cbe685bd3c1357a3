"""What a keep rule is: a section of a recipe that decides a whole cell, and says what it needs to know for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.keep.verdicts import Verdict
from counterfoil.section import Section

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is in a table because a recipe asks for it; its cells may be empty."""

    type: Literal["int32", "int64", "float32", "bool", "string"]
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
        """The names of the scores that the rule reads."""
        raise NotImplementedError

    def columns(self) -> dict[str, Column]:
        """Columns that the rule adds to every row; the value of each is the score of the same name."""
        return {}

    def judges(self) -> tuple[str, ...]:
        """Names of the classifiers whose answers are among the scores; what asks any never filters the base."""
        return ()

    def measure(self, pixels: NDArray[Any]) -> dict[str, float]:
        """What the rule measures of an image, uint8 (height, width, 3): a float32 number for each of `measures`."""
        return {}

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """For each of the candidates left of a cell, in order of index, why it is dropped; None keeps it."""
        raise NotImplementedError
