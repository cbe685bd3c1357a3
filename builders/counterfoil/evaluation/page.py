"""The page of an evaluation: what every task's report has, written once. A task adds a template and
its sections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.evaluation.failures import failures_link, image_link
from counterfoil.evaluation.figures import KINDS, kind_of_shift
from counterfoil.report.results import GroupFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    Table,
    format_count,
    format_interval,
    format_list,
    format_percent,
    format_points,
    in_words,
)
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from markupsafe import Markup

# Short name of a table → its file name, and CSV.
Tables = dict[str, tuple[str, str]]
# A drop of this many points has the full heat colour.
HOTTEST = 50.0


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """The parts of a page that its task gives; all others are the same for every task.

    template: it extends `report.html.j2`. messages: the sentences that people read first. values:
    what the template and those of the sections read, by name.
    """

    template: str
    sections: Sequence[ReportSection]
    messages: Sequence[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def page_html(
    results: Results,
    page: ReportPage,
    notes: Sequence[str] = (),
    gate: tuple[str, Table] | None = None,
) -> str:
    """Return the page as text; equal results give equal bytes. gate: a gate's sentence and table,
    if there is one."""
    of_shifts = {kind_of_shift(shift) for shift in results.shifts}
    kinds = [kind for kind in KINDS if kind in of_shifts]
    template = template_environment(page.template, _FILTERS).get_template(page.template)
    return template.render(
        page.values,
        evaluation=results,
        sections=page.sections,
        messages=page.messages,
        notes=notes,
        gate=gate,
        contents=Contents(),
        kinds=kinds,
        confidence=format_percent(results.confidence, 0),
        failures_link=failures_link,
        image_link=image_link,
        version=__version__,
    )


def drop_bars(charts: Mapping[str, Sequence[tuple[GroupFacts, Estimate]]]) -> dict[str, Any]:
    """Return what draws drops as bars: the charts by name, and the place of a number in percent of
    their width."""
    ends = [0.0]
    for drops in charts.values():
        for _, drop in drops:
            ends.append(drop.value)
            if drop.low is not None and drop.high is not None:
                ends += drop.low, drop.high
    least = min(ends)
    width = (max(ends) - least) or 1.0

    def at(value: float) -> float:
        return 100 * (value - least) / width

    return {"charts": charts, "at": at}


def heading_id(title: str) -> str:
    words = re.sub(r"[^a-z]+", "-", title.lower())
    return words.strip("-")


@dataclass
class Contents:
    """The sections in the order in which their headings were drawn: the id of each and its short
    title."""

    entries: dict[str, str] = field(default_factory=dict)

    def heading(self, title: str, short: str | None = None) -> Markup:
        """Return a section's heading; the same title twice is one entry, at its first place."""
        from markupsafe import Markup

        name = heading_id(title)
        if name in self.entries:
            return Markup("<h2>{}</h2>").format(title)
        self.entries[name] = short or title
        return Markup('<h2 id="{}">{}</h2>').format(name, title)


def whole_points(value: float) -> str:
    """Return a fraction as whole percentage points, for narrow cells."""
    half = 0.5 if value >= 0 else -0.5
    rounded = int(100 * value + half)
    return str(rounded).replace("-", "−")


def breakable_name(name: str) -> Markup:
    """Return a name that a narrow column may break after an underscore, a dot or a slash."""
    from markupsafe import Markup, escape

    escaped = str(escape(name))
    return Markup(re.sub(r"([_./])", r"\1<wbr>", escaped))


def drop_tint(estimate: Estimate | None) -> str:
    return "" if estimate is None else tint_of_drop(estimate.value)


def tint_of_drop(value: float) -> str:
    """Return the CSS tint of a drop, or of a gain if it is below 0. The colour is full at `HOTTEST`
    points."""
    strength = min(1.0, abs(100 * value) / HOTTEST)
    colour = "drop" if value >= 0 else "gain"
    return f"--heat:{62 * strength:.0f}%;--tint:var(--{colour})"


_FILTERS = {
    "points": format_points,
    "percent": format_percent,
    "between": format_interval,
    "in_words": in_words,
    "kind": kind_of_shift,
    "breakable": breakable_name,
    "heat": drop_tint,
    "tint": tint_of_drop,
    "whole": whole_points,
    "counted": format_count,
    "listed": format_list,
    "slug": heading_id,
}
