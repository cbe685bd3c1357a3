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
# What the Hub takes for the name of a repository or its owner (`huggingface_hub.utils.validate_repo_id`).
LONGEST_NAME = 96
_HUB_NAME = rf"[A-Za-z0-9](?:[A-Za-z0-9_.-]{{0,{LONGEST_NAME - 2}}}[A-Za-z0-9_])?"
_NOT_ON_THE_HUB = r"(?!.*(?:--|\.\.|\.git$))"
DATASET_NAME = re.compile(_NOT_ON_THE_HUB + _HUB_NAME)
REPOSITORY = re.compile(f"{_NOT_ON_THE_HUB}{_HUB_NAME}/{_HUB_NAME}")
# What a class is called in prompts and captions: no text encoder reads as much.
LONGEST_CLASS_NAME = 200
# As messages quote what they found.
_LONGEST_QUOTED = 60

# "base" is the prompt without a shift; the others are configs, splits or words with a meaning to `datasets`.
RESERVED_GROUPS = frozenset({"base", "all", "default", "candidates", "rejected", "data"})


def nearest(found: str, valid: Iterable[str]) -> str | None:
    """The valid name closest to the one found, or None when none is close."""
    if len(found) > LONGEST_CLASS_NAME:
        return None  # comparing it with thousands takes minutes, and it is a mistake for none of them
    names = [name for name in valid if len(name) <= LONGEST_CLASS_NAME]
    close = difflib.get_close_matches(found, names, n=1, cutoff=0.6)
    if close:
        return close[0]
    folded = {name.casefold(): name for name in names}
    return folded.get(found.casefold())


def did_you_mean(found: str, valid: Iterable[str]) -> str:
    """A clause to append to a message: "; did you mean 'x'?", or nothing."""
    name = nearest(found, valid)
    return f"; did you mean '{name}'?" if name is not None else ""


def quoted(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return f"'{text}'" if len(text) <= _LONGEST_QUOTED else f"'{text[: _LONGEST_QUOTED - 3]}...'"


def dataset_name_problem(name: str) -> str | None:
    """What is wrong with the name of a dataset, which is that of a repository where it is published, or None."""
    if DATASET_NAME.fullmatch(name):
        return None
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    return (
        f"found {quoted(name)}, expected letters, digits, '.', '_', '-', as the Hub takes them: a letter or digit"
        " first, no '-' or '.' last, and no '--', '..' or '.git' at the end"
    )


def derived_name(name: str, suffix: str) -> str:
    """`NAME-SUFFIX`, of a name that is cut where both are too long together."""
    return f"{name[: LONGEST_NAME - len(suffix) - 1].rstrip('.-')}-{suffix}"


def _too_long(name: str) -> str:
    return f"found {quoted(name)} of {len(name):,} characters, expected at most {LONGEST_NAME}"


def class_id_problem(name: str) -> str | None:
    """What is wrong with a class id, or None."""
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    if CLASS_ID.fullmatch(name):
        return None
    return f"found {quoted(name)}, expected a slug of letters, digits, '_' and '-' (a dot would break the keys)"


def group_name_problem(name: str, what: str) -> str | None:
    """What is wrong with the name of a shift or group, or None. Both become config and split names."""
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    if not GROUP_NAME.fullmatch(name):
        slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or what
        return f"found {quoted(name)}, expected a {what} name of a-z, 0-9 and '_', such as '{slug}'"
    if name in RESERVED_GROUPS:
        reserved = ", ".join(sorted(RESERVED_GROUPS))
        return f"found '{name}', which is reserved ({reserved}); expected another {what} name"
    return None
