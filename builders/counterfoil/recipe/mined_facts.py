"""What `mined_from` tells of a shift, where it has the form that mining writes: bounded plain text and numbers.

It is free-form and may come from anybody, so that every part is looked at by itself, and what is of another form is as
good as absent. Text is of printable characters alone: a card, a page and a terminal show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 200
MOST_CLASSES = 12
# A set against the rest of its class; images rendered for it against their base; or both in pairs of one noise.
TESTED_ON = ("rows", "rendered", "both", "pairs")
PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED = "perhaps wrong labels", "words untrusted"
MARKS = (PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED)


@dataclass(frozen=True, slots=True)
class MinedFacts:
    """What a mined shift came from; None for what is not told, or not in this form.

    set_rate, rest_rate: the failure rates of the finding's images and of those that they were compared with, as
    fractions, by the rule `failure`. tested_on: what these images were; only the words of `TESTED_ON` are believed.
    marks: what speaks against the finding, of `MARKS`.
    """

    words: str | None = None
    caption: str | None = None
    role: str | None = None
    method: str | None = None
    target: str | None = None
    target_sha256: str | None = None
    set_rate: float | None = None
    rest_rate: float | None = None
    p: float | None = None
    q: float | None = None
    classes: tuple[str, ...] = ()
    tested_on: str | None = None
    failure: str | None = None
    marks: tuple[str, ...] = ()


def mined_facts(record: Mapping[str, Any] | None) -> MinedFacts:
    """The facts of a shift's `mined_from`; none of any where there is no record."""
    record = record or {}
    target = record.get("target")
    classes = record.get("classes")
    return MinedFacts(
        words=shown_text(record.get("words")),
        caption=shown_text(record.get("caption")),
        role=shown_text(record.get("role")),
        method=_named(record.get("method")),
        target=_named(target),
        target_sha256=shown_text(_part(target, "sha256")),
        set_rate=_share(_part(record.get("set"), "rate")),
        rest_rate=_share(_part(record.get("rest"), "rate")),
        p=_share(record.get("p")),
        q=_share(record.get("q")),
        tested_on=tested_on if (tested_on := record.get("tested_on")) in TESTED_ON else None,
        failure=shown_text(record.get("failure")),
        marks=tuple(mark for mark in MARKS if isinstance(told := record.get("marks"), list | tuple) and mark in told),
        classes=tuple(filter(None, map(shown_text, classes if isinstance(classes, list | tuple) else ()))),
    )


def shown_text(value: Any) -> str | None:
    """A text in one line of printable characters, cut where it is long; None for what is no text, or an empty one."""
    if not isinstance(value, str):
        return None
    # What cannot be printed steers terminals, or turns the direction of what stands beside it.
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in value[: 4 * LONGEST]).split())
    return (line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…") or None


def _named(value: Any) -> str | None:
    """A name, or the name that a mapping has."""
    return shown_text(_part(value, "name") if isinstance(value, Mapping) else value)


def _part(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _share(value: Any) -> float | None:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None
