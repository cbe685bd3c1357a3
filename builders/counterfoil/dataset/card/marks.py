"""Mark the part of a card that this package writes, so that publishing it again keeps what people wrote around it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.strict_yaml import read_yaml

_BLOCK = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?\n?", re.DOTALL | re.MULTILINE)
_BEGIN = "<!-- Counterfoil writes this part, {}: write above or below it, and your text stays -->"
_END = "<!-- End of the part that Counterfoil writes -->"
# A text in the part, such as that of a recipe, may hold marks of its own: the first begins the part, the last ends it.
_PART = re.compile(
    rf"^{re.escape(_BEGIN).replace(re.escape('{}'), '(?P<hash>[0-9a-f]{8})')}\r?\n(?P<part>.*)^{re.escape(_END)}\r?\n?",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(rf"^(?:{re.escape(_END)}|{re.escape(_BEGIN).replace(re.escape('{}'), '.*')})\r?\n?", re.MULTILINE)


def split_card(text: str, where: str) -> tuple[dict[str, Any], str]:
    """Split a card into metadata and text. UserError for metadata that is not understood."""
    match = _BLOCK.match(text)
    if match is None:
        return {}, text
    metadata = read_yaml(match["yaml"], where)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict):
        raise UserError(f"{where}: its metadata is {str(metadata)[:80]!r}, expected a mapping")
    return json.loads(json.dumps(metadata, default=str)), text[match.end() :]


def with_marks(text: str) -> str:
    """Put marks around the text of a card, below its metadata."""
    block = _BLOCK.match(text)
    start = block.end() if block else 0
    part = text[start:].strip("\n") + "\n"
    return f"{text[:start]}\n{_BEGIN.format(_short_hash(part))}\n{part}{_END}\n"


@dataclass(frozen=True, slots=True)
class MarkedText:
    """The text of a card: the marked part, the texts above and below it, and whether the part is as it was written."""

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
