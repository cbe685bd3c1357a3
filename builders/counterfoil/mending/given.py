"""What a person names behind `--with`: images of a built dataset, weights of training rows, or groups to balance.

built                built:hard           user/name@v1:contexts
mined/weights.parquet                     dfr:clip     dfr:weather     dfr:./groups.csv
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from counterfoil.errors import UserError
from counterfoil.recipe.names import without_folders
from counterfoil.regular_files import named_path

IMAGES, WEIGHTS, BALANCED = "images", "weights", "balanced"
BY_CLIP = "clip"
_BALANCED = "dfr:"
_TABLES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Given:
    """One of them. `name` is as it was written; `source` the dataset, file or column; `group` of a dataset alone."""

    kind: Literal["images", "weights", "balanced"]
    name: str
    source: str
    group: str | None = None


def given_arms(written: list[str]) -> tuple[Given, ...]:
    """Each of `written`, once. UserError for none, and for one that nothing can have."""
    if not written:
        raise UserError("nothing to mend with: --with is missing", "Name a built dataset: --with built:contexts")
    return tuple(dict.fromkeys(_given(text) for text in written))


def balanced_by(text: str) -> str | None:
    """What `dfr:…` balances by; None for a name of anything else."""
    return text.removeprefix(_BALANCED) if text.startswith(_BALANCED) else None


def _given(text: str) -> Given:
    source = balanced_by(text)
    if source is not None:
        if not source:
            raise UserError(
                f"--with {text}: balanced by what?",
                "Write dfr:clip, dfr:COLUMN of the input dataset, or dfr:FILE with the columns key and group.",
            )
        return Given("balanced", text, source)
    if not text.strip():
        raise UserError("--with: found nothing, expected DATASET or DATASET:GROUP", "As in --with built:contexts")
    if text.endswith(_TABLES):
        return Given("weights", text, text)
    if named_path(text).is_dir() or ":" not in text:
        return Given("images", text, text)
    dataset, _, group = text.rpartition(":")
    if not dataset or not group:
        raise UserError(f"--with {text}: expected DATASET or DATASET:GROUP", "As in --with built:contexts")
    return Given("images", text, dataset, group)


def names_a_table(source: str) -> bool:
    """Whether groups are told by a file, not by a column."""
    return Path(source).suffix in _TABLES


def told_names(names: Iterable[str]) -> dict[str, str]:
    """Name as it was given → as documents have it, without folders. Of several that would be called alike the later
    have a number."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        source = balanced_by(name)
        plain = without_folders(name) if source is None else name.removesuffix(source) + without_folders(source)
        numbered = (f"{plain} ({number})" for number in itertools.count(2))
        found[name] = next(one for one in itertools.chain([plain], numbered) if one not in found.values())
    return found
