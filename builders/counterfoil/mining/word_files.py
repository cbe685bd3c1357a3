"""Words that people wrote for mining, read from a bundled file or one of their own: YAML, or a plain list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.names import refuse_elsewhere
from counterfoil.recipe.layering import bundled_folder, text_of
from counterfoil.recipe.names import did_you_mean, is_local
from counterfoil.recipe.strict_yaml import LocatedList, LocatedMapping, Origin, read_yaml
from counterfoil.regular_files import named_path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_words(source: str | Path, kind: str, expected: str) -> LocatedMapping:
    """The mapping of a bundled name or a path; a plain list is that of the key `kind`.

    `kind` is also the folder of bundled ones (`captions`); `expected` says what a file should hold. In a text file each
    line is an item; empty lines, and those that begin with `#`, are none. UserError for what cannot be read.
    """
    path = _found(source, kind)
    shown, text = str(path), text_of(path)
    raw = _lines(text, shown) if path.suffix == ".txt" else read_yaml(text, shown)
    if isinstance(raw, LocatedList):
        raw = LocatedMapping({kind: raw}, {kind: Origin(shown)})
    if not isinstance(raw, LocatedMapping):
        raise UserError(f"{shown}: found neither keys nor a list, expected {expected}")
    return raw


def with_tuples(value: Any) -> Any:
    """Lists as tuples, which strict validation wants for fields that are tuples."""
    if isinstance(value, Mapping):
        return {key: with_tuples(item) for key, item in value.items()}
    return tuple(with_tuples(item) for item in value) if isinstance(value, list) else value


def _found(source: str | Path, kind: str) -> Path:
    known = {path.stem: path for path in sorted((bundled_folder() / kind).glob("*.yaml"))}
    if not isinstance(source, str) or not _BARE.fullmatch(source):
        if isinstance(source, str) and not is_local(source):
            raise UserError(
                f"{kind}: '{source[:200]}' is neither a bundled name nor a path",
                f"Bundled {kind}: {', '.join(known)}. A file is named by its path, as in ./{source[:100]}.",
            )
        refuse_elsewhere(str(source), kind)
        return named_path(source)
    if source not in known:
        hint = f"Bundled {kind}: {', '.join(known)}. A file is named by its path, as in ./{source}.yaml."
        raise UserError(f"no bundled {kind} are called '{source}'{did_you_mean(source, known)}", hint=hint)
    return known[source]


def _lines(text: str, place: str) -> LocatedList:
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    told = [(number, line) for number, line in lines if line and not line.startswith("#")]
    return LocatedList([line for _, line in told], [Origin(place, number) for number, _ in told])
