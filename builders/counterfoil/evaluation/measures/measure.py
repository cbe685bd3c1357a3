"""What a measure is: a function from answers to rows, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from counterfoil.evaluation.scores import AllAnswers
from counterfoil.report.results import MeasureFacts, ResultRow, Results

ShownIn = Literal["terminal", "report", "card"]
EVERYWHERE: tuple[ShownIn, ...] = ("terminal", "report", "card")


@dataclass(frozen=True)
class Measure:
    """A measure; its name, and that of its rows, is its key in `MEASURES`.

    rows: one number each, of the measure's name. unit and reading: as in `MeasureFacts`. shown: which pages have a
    table of it, a row a group and a column a model; a number that another table tells is in none. Every number is in
    measures.csv, and in pandas and robustness.csv where it is of a model and a group. figure: SVG for the report.
    """

    rows: Callable[[AllAnswers], Iterable[ResultRow]]
    title: str
    unit: Literal["percent", "points", "share", "plain"]
    reading: str
    shown: tuple[ShownIn, ...] = EVERYWHERE
    figure: Callable[[Results], str | None] | None = None

    def facts(self, name: str) -> MeasureFacts:
        """What the document of results has of it."""
        return MeasureFacts(name, self.title, self.unit, self.reading, self.shown)
