"""Make text from recipes and models safe inside Markdown: as prose, as code, as a fenced block.

Marks around the part of a card that this package writes let publishing it again keep what people
wrote around it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.report.words import Table
from counterfoil.store.messages import refusal

# What starts something anywhere in a line: code, emphasis, links, tables, HTML, formulas,
# strikethrough.
_ANYWHERE = re.compile(r"([\\`*\[\]<>|~$])")
# An underscore inside a word starts nothing; at its edge it may.
_EDGE_UNDERSCORE = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
# What starts something at the beginning of a line: headings, lists, rules, front matter.
_LINE_START = re.compile(r"^([#+=-])")
_ADDRESS = re.compile(r"https?://[^\s<>`\\]+")
_NUMBERED = re.compile(r"^(\d+)([.)])")

_BLOCK = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?\n?", re.DOTALL | re.MULTILINE)
_BEGIN = "<!-- Counterfoil writes this part, {}: write above or below it, and your text stays -->"
_END = "<!-- End of the part that Counterfoil writes -->"
# A text in the part, such as that of a recipe, may hold marks of its own: the first begins the
# part, the last ends it.
_PART = re.compile(
    rf"^{re.escape(_BEGIN).replace(re.escape('{}'), '(?P<hash>[0-9a-f]{8})')}\r?\n(?P<part>.*)^{re.escape(_END)}\r?\n?",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(
    rf"^(?:{re.escape(_END)}|{re.escape(_BEGIN).replace(re.escape('{}'), '.*')})\r?\n?",
    re.MULTILINE,
)


def prose(text: str) -> str:
    """Return paragraphs that read as the text itself, whatever marks it holds; empty lines separate
    them."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(text.splitlines()).strip())
    written = []
    for paragraph in paragraphs:
        lines = filter(None, (" ".join(line.split()) for line in paragraph.splitlines()))
        written.append("\n".join(map(_escaped, lines)))
    return "\n\n".join(written)


def inline(text: str) -> str:
    """Return the text in one line of prose, such as a table's cell."""
    return _escaped(" ".join(text.split()))


def code(text: str) -> str:
    """Return the text as code in a line of prose; a dash for an empty one."""
    line = " ".join(text.split())
    if not line:
        return "–"
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def code_cell(text: str) -> str:
    """Return the text as code in a table, where a bar ends the cell even inside code."""
    return code(text).replace("|", "\\|")


def fenced(text: str, language: str) -> str:
    """Return a fenced block whose fence is longer than any run of backticks in the text."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def address(text: str) -> str:
    """Return a web address as a link that shows itself, any other text as code."""
    if _ADDRESS.fullmatch(text):
        return f"<{text}>"
    return code(text)


def _escaped(line: str) -> str:
    line = _LINE_START.sub(r"\\\1", _within(line))
    return _NUMBERED.sub(r"\1\\\2", line)


def _within(line: str) -> str:
    """Escape text that begins no line, as in a table's cell."""
    line = _ANYWHERE.sub(r"\\\1", " ".join(line.split()))
    line = _EDGE_UNDERSCORE.sub(r"\\_", line)
    return _ENTITY.sub(r"\\&", line)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def markdown_table(shown: Table) -> str:
    """Write a table; a cell's small print follows its text in brackets, and the last line says what
    was cut off."""
    headings = []
    rules = []
    for column in shown.columns:
        label = code_cell(column.label)
        if not column.named:
            label = _within(column.label[0].upper() + column.label[1:])
        if column.note:
            label += f" ({_within(column.note)})"
        headings.append(label)
        rules.append("--:" if column.kind == "number" else ":--")
    lines = [f"| {' | '.join(headings)} |", f"|{'|'.join(rules)}|"]
    for row in shown.rows:
        cells = []
        for column, cell in row.of(shown):
            text = code_cell(cell.text) if column.kind in ("name", "shift") else _within(cell.text)
            if cell.below:
                text += f" ({_within(cell.below)})"
            cells.append(text)
        lines.append(f"| {' | '.join(cells)} |")
    if shown.more:
        lines += ["", f"{inline(shown.more[0].upper() + shown.more[1:])}."]
    return "\n".join(lines)


def split_card(text: str, where: str) -> tuple[dict[str, Any], str]:
    """Split a card into metadata and text. UserError for metadata that is not understood."""
    match = _BLOCK.match(text)
    if match is None:
        return {}, text
    metadata = read_yaml(match["yaml"], where)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise refusal("wrong-card.metadata", where, metadata)
    return json.loads(json.dumps(metadata, default=str)), text[match.end() :]


def with_marks(text: str) -> str:
    """Put marks around the text of a card, below its metadata."""
    block = _BLOCK.match(text)
    start = block.end() if block else 0
    part = text[start:].strip("\n") + "\n"
    return f"{text[:start]}\n{_BEGIN.format(_short_hash(part))}\n{part}{_END}\n"


@dataclass(frozen=True, slots=True)
class MarkedText:
    """The text of a card: the marked part, the texts above and below it, and whether the part is as
    it was written."""

    above: str
    part: str
    below: str
    as_written: bool


def marked_text(text: str) -> MarkedText | None:
    """Split the text of a card at its marks. None if it has no part between two marks."""
    match = _PART.search(text)
    if match is None:
        return None
    as_written = match["hash"] == _short_hash(match["part"].replace("\r\n", "\n"))
    return MarkedText(text[: match.start()], match[0], text[match.end() :], as_written)


def without_marks(text: str) -> str:
    return _MARK.sub("", text)


def _short_hash(part: str) -> str:
    return hashlib.sha256(part.encode()).hexdigest()[:8]
