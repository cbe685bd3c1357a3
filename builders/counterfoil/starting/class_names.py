"""What a stranger's classes are called: names fit for prompts, and slugs for ids, one for each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from counterfoil.errors import UserError

# What the Hub takes for a name, and more than any prompt should spend on its class.
LONGEST_NAME = 96
_MOST_SHOWN = 10
_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")
# Ids that stand for names elsewhere: WordNet's, and plain numbers.
_NO_WORD = re.compile(r"n\d{8}|[\d_.\- ]+")


def spoken_names(labels: Sequence[str]) -> list[str]:
    """Labels as prompts say them: `ankle_boot` is "ankle boot". UserError for what is no name, all of them together.

    A label comes from whoever made the dataset, so one that would move a terminal's cursor, or fill a page, is refused.
    """
    names = [" ".join(label.replace("_", " ").split()) for label in labels]
    problems = []
    for label, name in zip(labels, names, strict=True):
        if not name:
            problems.append(f"the class {label[:LONGEST_NAME]!r} has no name")
        elif not all(each.isprintable() for each in label):
            problems.append(f"the class {label[:LONGEST_NAME]!a} has characters in its name that are no text")
        elif len(name) > LONGEST_NAME:
            problems.append(f"the class '{name[:40]}…' has a name of {len(name):,} characters, at most {LONGEST_NAME}")
    if problems:
        more = [f"… and {len(problems) - _MOST_SHOWN} more"] if len(problems) > _MOST_SHOWN else []
        raise UserError(
            [*problems[:_MOST_SHOWN], *more], "Rename these classes: a generator draws a class by its name."
        )
    return names


def wordless(names: Sequence[str]) -> list[str]:
    """The names that hold no word that anything could be drawn by: numbers, ids of WordNet."""
    return [name for name in names if _NO_WORD.fullmatch(name)]


def slugs(names: Sequence[str]) -> list[str]:
    """A class id for each name: a-z, 0-9 and `_`; unique, by a number where two names come to the same letters."""
    taken: set[str] = set()
    found = []
    width = len(str(len(names)))
    for position, name in enumerate(names):
        slug = slug_of(name) or f"class_{position:0{width}d}"
        unique, number = slug, 2
        while unique in taken:
            unique, number = f"{slug}_{number}", number + 1
        taken.add(unique)
        found.append(unique)
    return found


def slug_of(name: str) -> str:
    """A name in a-z, 0-9 and `_`; nothing for one that has no such letters (a name in Greek)."""
    # NFKD takes accents off their letters; what is no letter of ASCII then goes.
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_A_SLUG.sub("_", plain).strip("_")[:LONGEST_NAME]
