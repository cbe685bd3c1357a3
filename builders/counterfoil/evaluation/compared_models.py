"""The two models that are compared: among the models that are scored, and one mended from the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.mended import MendedNote
from counterfoil.recipe.names import did_you_mean

_HINT = "As in --compare local-dir:mended/model lab:resnet10t: the mended model, then its original."


def with_compared(models: Any, compare: tuple[str, str] | None) -> Any:
    """The models to score with the two that are compared among them; these alone where no other is named.

    UserError where one model would be compared with itself, or a mapping of models lacks a name.
    """
    if compare is None:
        return models
    if len(compare) != 2 or compare[0] == compare[1]:
        raise UserError(f"compared are two models, and these are {' and '.join(map(repr, compare))}", _HINT)
    if isinstance(models, Mapping):
        known = [str(name) for name in models]
        problems = [
            f"compare: {name!r} is none of the given models{did_you_mean(name, known)}"
            for name in compare
            if name not in models
        ]
        if problems:
            raise UserError(problems)
        return models
    if models is None:
        named: list[str | Path] = []
    else:
        named = [models] if isinstance(models, str | Path) else list(models)
    # In front, so that the report shows them first.
    return [*compare, *(name for name in named if name not in compare)]


def refuse_uncompared(names: Sequence[str], compare: tuple[str, str] | None) -> None:
    """UserError where a compared name is no model, but a file that lists some."""
    problems = [f"compare: {name!r} is no model's name" for name in compare or () if name not in names]
    if problems:
        raise UserError(problems, _HINT)


def other_origin(compare: tuple[str, str], note: MendedNote | None, original_sha256: str | None) -> str | None:
    """A sentence where the mended model says that it was mended from another one than it is compared with."""
    if note is None or note.model.sha256 is None or original_sha256 in (None, note.model.sha256):
        return None
    return f"{compare[0]} says that it was mended from {note.model.name}, whose weights are not those of {compare[1]}."
