"""What a stranger's classes are called: names fit for prompts, and how a recipe lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from itertools import count
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.layering import class_slug
from counterfoil.recipe.names import LONGEST_NAME
from counterfoil.sources.label_agreement import label_by_name

_MOST_SHOWN = 10
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


def class_entries(names: Sequence[str], source_labels: Sequence[int], labels: Sequence[str]) -> list[Any]:
    """The classes as a recipe lists them: the name alone, where a build makes the same id and finds the same label.

    labels: what the data calls every label, in order. Others are written out: names that come to one id, or to none.
    """
    # A letter may come to several of ASCII, and an id is as long as a name may be.
    made = [class_slug(name)[:LONGEST_NAME] for name in names]
    # A name that is written out may not take an id that another one is given by its letters.
    taken = {slug for slug in made if slug}
    owners: set[str] = set()
    entries: list[Any] = []
    width = len(str(len(labels)))
    for name, slug, label in zip(names, made, source_labels, strict=True):
        if slug and slug == class_slug(name) and slug not in owners and label_by_name(slug, name, labels) == (label,):
            owners.add(slug)
            entries.append(name)
            continue
        own = slug if slug and slug not in owners else _unique(slug or f"class-{label:0{width}d}", taken | owners)
        owners.add(own)
        entries.append({"id": own, "name": name, "source_label": label})
    return entries


def _unique(slug: str, taken: Set[str]) -> str:
    """The slug, or with the first number from 2 that makes it none of those that are taken."""
    tries = (f"{slug[: LONGEST_NAME - 8]}-{number}" for number in count(2))
    return slug if slug not in taken else next(each for each in tries if each not in taken)
