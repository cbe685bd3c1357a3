"""What a gate says to people and to programs: a table, one sentence, Markdown for a pull request, JUnit's XML.

Names of groups come from the dataset, which may be anybody's: each output shows them as text and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from counterfoil.dataset.card.markdown import inline
from counterfoil.dataset.card.markdown import table as markdown_table
from counterfoil.evaluation.gate import MOST_NEEDED, GateResult, Judged
from counterfoil.evaluation.scored_models import short_name
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    TableRow,
    counted,
    listed,
    points,
    points_cell,
)

MARKDOWN, JUNIT = "gate.md", "gate.xml"
_COLUMNS = (
    TableColumn("line", "name"),
    TableColumn("group", "shift"),
    TableColumn("measured"),
    TableColumn("answer", "text"),
    TableColumn("why", "text"),
)


def gate_table(result: GateResult) -> Table:
    """A row a comparison; the model has a column where several are judged."""
    several = len(result.models) > 1
    order = ("fail", "undecided", "pass")

    def rank(one: Judged) -> tuple[bool, int]:
        return one.line.advisory, order.index(one.verdict)

    rows = [
        TableRow(
            (
                *([TableCell(short_name(one.model))] if several else []),
                TableCell(one.line.text),
                TableCell(one.group if one.level is None else f"{one.group}, level {one.level:g}"),
                points_cell(one.estimate),
                TableCell(one.verdict.upper() if one.verdict == "fail" and not one.line.advisory else one.verdict),
                TableCell(why(one)),
            )
        )
        for one in sorted(result.judged, key=rank)
    ]
    columns = (*([TableColumn("model", "name")] if several else []), *_COLUMNS)
    return Table("The gate: 95 % intervals that hold for all lines at once", columns, tuple(rows))


def why(one: Judged) -> str:
    """What an answer rests on, or what would decide it."""
    if one.reason:
        return one.reason
    measured, planned = one.classes
    return _of_interval(one) + (f"; of {planned} classes {measured} are measured" if measured < planned else "")


def _of_interval(one: Judged) -> str:
    limit = points(one.line.limit) + (" %" if one.line.measure == "relative_drop" else "")
    if one.verdict == "pass":
        return f"the whole interval is {'at least' if one.line.above else 'at most'} {limit}"
    if one.verdict == "fail":
        return f"the whole interval is {'below' if one.line.above else 'above'} {limit}"
    if one.needed is None:
        return f"too close to {limit}: even {MOST_NEEDED:,} images per class would not decide it"
    value = points(None if one.estimate is None else one.estimate.value)
    return f"about {one.needed:,} images per class would decide it if {value} is right; it has {one.images:,.0f}"


def gate_sentence(result: GateResult) -> str:
    """The answer in one line."""
    told = []
    for advisory, what in ((False, "comparison"), (True, "advisory comparison")):
        counts = Counter(one.verdict for one in result.judged if one.line.advisory == advisory)
        parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "undecided") if counts[verdict]]
        if parts:
            told.append(f"{counted(counts.total(), what)}: {', '.join(parts)}")
    models = listed([short_name(name) for name in result.models], 3)
    return f"The gate says {result.verdict} for {models} ({'; '.join(told)})."


def gate_markdown(result: GateResult) -> str:
    """For a comment in a pull request; nothing in it is a link, a mention or HTML that a name brought."""
    title, dataset = inline(gate_sentence(result)), inline(result.dataset)
    text = "\n\n".join([f"### {title}", markdown_table(gate_table(result)), f"Dataset: {dataset}\n"])
    # GitHub makes addresses, people, issues and emoji of bare words.
    return _printable(re.sub(r"(?<=[@#])(?=\w)|(?<=:)(?=[\w/])|(?<=www)(?=\.)", "\u200b", text), "\n\u200b")


def gate_junit(result: GateResult) -> str:
    """JUnit's XML: a test a comparison. What is undecided is an error, or skipped where that is allowed.

    An advisory line that does not pass is skipped, with what it says.
    """
    undecided = "skipped" if result.allow_undecided else "error"
    ways = {"pass": "", "fail": "failure", "undecided": undecided}
    kinds = ["skipped" if one.line.advisory and ways[one.verdict] else ways[one.verdict] for one in result.judged]
    counts = Counter(kinds)
    suite = ElementTree.Element(
        "testsuite",
        name=_printable(f"gate: {result.dataset}"),
        tests=str(len(result.judged)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    for one, kind in zip(result.judged, kinds, strict=True):
        name = f"{one.line.text} [{one.group}]"
        case = ElementTree.SubElement(suite, "testcase", classname=_printable(one.model), name=_printable(name))
        if kind:
            cell = points_cell(one.estimate)
            advice = f"advisory, {one.verdict}: " if one.line.advisory else ""
            measured = f"{cell.text} ({cell.below}): " if cell.below else ""
            ElementTree.SubElement(case, kind, message=_printable(f"{advice}{measured}{why(one)}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str, kept: str = "") -> str:
    """Without characters that XML 1.0 cannot hold, or that no reader sees."""
    return "".join(each if each.isprintable() or each in kept else " " for each in text)
