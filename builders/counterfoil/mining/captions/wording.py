"""What a caption adds to its reference, in words for people: "striped", "sandal not on the beach"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_LEAD = re.compile(r"^(?:(?:an? )?(?:photo|photograph|picture|image)(?: of(?= )|$) ?)?(?:(?:an?|the) )?", re.IGNORECASE)
_COMPANION_BEFORE = re.compile(r"(?:an? )?(.+) and an?")
_COMPANION_AFTER = re.compile(r"and (an? .+)")


@dataclass(frozen=True, slots=True)
class _Added:
    """What stands before the noun and after it; `adjective` may end with "of" ("group of")."""

    adjective: str
    after: str


def words_of(class_name: str, caption: str, reference: str, role: Literal["hard", "far_from"]) -> str:
    """The set of images that a caption means within a class, in plain words.

    hard: those like the caption ("checked coat", "sandal on the beach"). far_from: those least like it ("coat, not
    checked", "sandal not on the beach"). The class's name stands where the caption has the reference's noun, which
    may be a category; a caption with another noun, such as a hyponym, is told whole ("kob inside (deer)").
    """
    subject, noun = _subject(caption), _subject(reference)
    added = _added(subject, noun) or _added(subject, class_name)
    if added is None:
        return f"{subject} ({class_name})" if role == "hard" else f"{class_name}, not {_article(subject)} {subject}"
    adjective, after = added.adjective, added.after
    if role == "hard":
        return " ".join(part for part in (adjective, class_name, after) if part)
    if adjective:
        if adjective.endswith(" of"):
            return " ".join(part for part in (f"{class_name}, not a {adjective} {class_name}", after) if part)
        if after:
            return f"{class_name}, not {_article(adjective)} {adjective} one {after}"
        return f"{class_name}, not {adjective}"
    if after.startswith("with "):
        return f"{class_name} without {after.removeprefix('with ')}"
    return f"{class_name} not {after}" if after else class_name


def _subject(caption: str) -> str:
    """The caption without "a photo of a"."""
    text = " ".join(caption.split())
    return _LEAD.sub("", text, count=1)


def _added(subject: str, noun: str) -> _Added | None:
    """What stands around the noun; None where the subject does not have it, or there is none."""
    words, sought = subject.split(), noun.split()
    start = _place_of(sought, words)
    if start is None:
        return None
    before, after = " ".join(words[:start]), " ".join(words[start + len(sought) :])
    if companion := _COMPANION_BEFORE.fullmatch(before):
        before, after = "", f"with {_article(companion[1])} {companion[1]} {after}".strip()
    elif companion := _COMPANION_AFTER.fullmatch(after):
        after = f"with {companion[1]}"
    return _Added(before, after)


def _place_of(sought: Sequence[str], words: Sequence[str]) -> int | None:
    folded, like = [word.casefold() for word in words], [word.casefold() for word in sought]
    places = range(len(folded) - len(like) + 1) if like else ()
    return next((place for place in places if folded[place : place + len(like)] == like), None)


def _article(words: str) -> str:
    return "an" if words[:1].lower() in "aeiou" else "a"
