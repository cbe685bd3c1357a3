"""How a nested measure is shown: its sections of report and card, its lines of the terminal, its
table as a file.

Reports, cards and the terminal loop over `NESTED` of `results.py` and name no measure. The template
of a report's section is `report-section.html.j2`, or one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.documents import Strict
from counterfoil.report.words import Table

if TYPE_CHECKING:
    from counterfoil.report.results import Results


@dataclass(frozen=True, slots=True)
class MeasureFacts(Strict):
    """A measure's name in rows and columns, its title and unit, how it is read, and where it is
    shown.

    unit: `percent` of an accuracy or a rate, `points` of a difference of two, `share` of a ratio,
    `plain` of any other number. lower_is_better: whether a better model has less of it.
    """

    name: str
    title: str
    unit: Literal["percent", "points", "share", "plain"]
    reading: str
    shown: tuple[Literal["terminal", "report", "card"], ...] = ()
    lower_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """A section of the report: sentences, figures as SVG, tables and a closing note."""

    title: str = ""
    short: str | None = None
    """Its title in the contents."""
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[str] = ()
    legend: Sequence[tuple[str, str]] = ()
    """Names of the lines of figures, each with the kind whose colour it has."""
    note: str = ""
    alert: str = ""
    """A line of the page's opening that links here."""
    tile: tuple[str, str, str] | None = None
    """Label, value and note of a headline."""
    fold: str = ""
    """What stands for the section until a reader unfolds it, if most skip it."""
    template: str = "report-section.html.j2"
    more: Mapping[str, Any] = field(default_factory=dict)
    """Values for a template of its own, which may have the title too."""


@dataclass(frozen=True, kw_only=True)
class CardSection:
    """A part of the dataset card, drawn by its own template. tables: each with the sentences before
    and after it.

    place: beside the images that failures chose, before the accuracies of models, after the drops,
    or by itself.
    warnings: sentences before all numbers.
    """

    place: Literal["chosen", "accuracies", "drops", "alone"]
    template: str
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, Table, str]] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Shown:
    """How a nested measure is shown, as functions of the results; each returns nothing if nothing
    was measured.
    """

    after: str
    """The section that its own follows in the report."""
    section: Callable[[Results, Sequence[Any]], ReportSection | None]
    """From the results and what the measure draws."""
    terminal: Callable[[Results, int], Sequence[str | Table]] = lambda results, most_models: ()
    """Sentences and tables, of so many models at most."""
    card: Callable[[Results], CardSection | None] = lambda results: None
    warnings: Callable[[Results], Sequence[str]] = lambda results: ()
    """Sentences before all numbers."""
    measures: Sequence[MeasureFacts] = ()
    """The facts of its rows."""
    skipped: Callable[[Results], Sequence[str]] = lambda results: ()
    """Requests that could not be measured, and why."""
    file: str = ""
    csv: Callable[[Results], str | None] = lambda results: None
    """A table of its own."""
    public: Callable[[Any, Callable[[str], str]], Any] = lambda facts, called: facts
    """The facts with models named as on a card; private: a card shows nothing of it."""
    private: bool = False
    features: Callable[[Any], Sequence[str]] = lambda facts: ()
    """Names in its rows that are not of scored models."""
