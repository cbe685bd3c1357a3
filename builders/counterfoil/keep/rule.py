"""What a keep rule is: a section of a recipe that decides a whole cell, and says what it needs to know for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from counterfoil.keep.verdicts import Verdict
from counterfoil.section import Section


class KeepRule(Section):
    """Settings and a pure function. Rules are applied in order, each to what those before it left.

    `whole_cell` says that a candidate's fate depends on the others of its cell: such a rule cannot fill a quota, which
    stops drawing by what passes so far.
    """

    whole_cell: ClassVar[bool] = False

    def scores(self) -> tuple[str, ...]:
        """The names of the scores that the rule reads."""
        raise NotImplementedError

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        """For each of the candidates left of a cell, in order of index, why it is dropped; None keeps it."""
        raise NotImplementedError
