"""Which names a recipe may use for classes, shifts, groups and splits, and the nearest one to a mistake."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

CLASS_ID = re.compile(r"[A-Za-z0-9_-]+")  # no dots: a dot in a WebDataset key silently merges samples
GROUP_NAME = re.compile(r"[a-z0-9_]+")  # split names of `datasets` hold no "-", and keys hold no "."
# What a dataset directory calls its own recipe and what that recipe brings along; `store/layout.py` has the rest.
RECIPE = "recipe.yaml"
LOCK = "lock.json"
ROWS = "rows.csv"
TOKENS = "tokens"
EMBEDDINGS = "embeddings.safetensors"
# Before a folder's name in a dataset's own recipe: of the machine that it was built on, and never opened here.
ELSEWHERE = "elsewhere:"
DATASET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")

# "base" is the prompt without a shift; the others are configs, splits or words with a meaning to `datasets`.
RESERVED_GROUPS = frozenset({"base", "all", "default", "candidates", "rejected", "data"})


def nearest(found: str, valid: Iterable[str]) -> str | None:
    """The valid name closest to the one found, or None when none is close."""
    names = list(valid)
    close = difflib.get_close_matches(found, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = {name.casefold(): name for name in names}
    return folded.get(found.casefold())


def did_you_mean(found: str, valid: Iterable[str]) -> str:
    """A clause to append to a message: "; did you mean 'x'?", or nothing."""
    name = nearest(found, valid)
    return f"; did you mean '{name}'?" if name is not None else ""


def class_id_problem(name: str) -> str | None:
    """What is wrong with a class id, or None."""
    if CLASS_ID.fullmatch(name):
        return None
    return f"found '{name}', expected a slug of letters, digits, '_' and '-' (a dot would break the keys)"


def group_name_problem(name: str, what: str) -> str | None:
    """What is wrong with the name of a shift or group, or None. Both become config and split names."""
    if not GROUP_NAME.fullmatch(name):
        slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or what
        return f"found '{name}', expected a {what} name of a-z, 0-9 and '_', such as '{slug}'"
    if name in RESERVED_GROUPS:
        reserved = ", ".join(sorted(RESERVED_GROUPS))
        return f"found '{name}', which is reserved ({reserved}); expected another {what} name"
    return None
