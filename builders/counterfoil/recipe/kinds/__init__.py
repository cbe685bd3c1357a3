"""List the kinds of generator. Each kind is a file here, and `kind.py` describes its attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.kinds.corrupt import CorruptKind
from counterfoil.recipe.kinds.diffusers import DiffusersKind
from counterfoil.recipe.kinds.drawn_elsewhere import DrawnElsewhereKind
from counterfoil.recipe.kinds.edit import EditKind
from counterfoil.recipe.kinds.kind import GENERATOR, RETRIEVAL, ROW, GeneratorKind, written
from counterfoil.recipe.kinds.retrieve import RANK, SCORE, RetrieveKind
from counterfoil.recipe.kinds.rows import RowsKind

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Generator

# Each kind has a name in a recipe. If two kinds have one name, the second is the kind of a generator without `rows`.
KINDS: Sequence[GeneratorKind] = (
    DiffusersKind("diffusers"),
    RowsKind("rows"),
    DrawnElsewhereKind("rows", "drawn_elsewhere"),
    RetrieveKind("retrieve"),
    EditKind("edit"),
    CorruptKind("corrupt"),
)


def kind_of(generator: Generator | Mapping[str, Any]) -> GeneratorKind:
    """Return the kind of a recipe's generator, which may be a mapping of any form."""
    values = generator if isinstance(generator, Mapping) else {"kind": generator.kind, "rows": generator.rows}
    name = "diffusers" if values.get("kind") is None else values["kind"]
    named = [kind for kind in KINDS if kind.name == name]
    if not named:
        return GeneratorKind(name)
    return named[-1] if values.get("rows") is None else named[0]


def keys_of_others(name: str) -> list[str]:
    """Return the keys that only kinds of other names read."""
    read = {key for kind in KINDS if kind.name == name for key in kind.keys}
    return [key for key in dict.fromkeys(key for kind in KINDS for key in kind.keys) if key not in read]


__all__ = [
    "GENERATOR", "KINDS", "RANK", "RETRIEVAL", "ROW", "SCORE", "GeneratorKind", "keys_of_others", "kind_of", "written",
]  # fmt: skip
