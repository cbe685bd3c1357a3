"""List the kinds of generator. Each kind is a file here, and `kind.py` describes its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from counterfoil.recipe.kinds.corrupt import CorruptKind
from counterfoil.recipe.kinds.diffusers import DiffusersKind
from counterfoil.recipe.kinds.drawing import DrawingKind
from counterfoil.recipe.kinds.drawn_elsewhere import DrawnElsewhereKind
from counterfoil.recipe.kinds.edit import EditKind
from counterfoil.recipe.kinds.kind import GENERATOR, RETRIEVAL, ROW, GeneratorKind
from counterfoil.recipe.kinds.of_rows import AlteringKind
from counterfoil.recipe.kinds.retrieve import RANK, SCORE, RetrieveKind
from counterfoil.recipe.kinds.rows import RowsKind
from counterfoil.registry import Registry


def _problem(registered: Any) -> str | None:
    if isinstance(registered, type) and issubclass(registered, GeneratorKind):
        return None
    return "no class that extends `GeneratorKind`"


# Maps the name of a kind in recipes to its section: of our own kinds and of installed plugins.
KINDS: Registry[type[GeneratorKind]] = Registry(
    "counterfoil.generators",
    {
        "diffusers": DiffusersKind,
        "rows": RowsKind,
        "retrieve": RetrieveKind,
        "edit": EditKind,
        "corrupt": CorruptKind,
    },
    _problem,
)


def kind_of(values: Mapping[str, Any]) -> type[GeneratorKind]:
    """Return the kind of a recipe's generator of any form."""
    name = "diffusers" if values.get("kind") is None else values["kind"]
    if not isinstance(name, str) or name not in KINDS:
        return GeneratorKind
    if name == "rows" and values.get("rows") is None:
        return DrawnElsewhereKind
    return KINDS[name]


def field_of_kinds(key: str) -> FieldInfo | None:
    """Return the field of the first kind that reads a key, or None."""
    return next((kind.model_fields[key] for kind in KINDS.values() if key in kind.model_fields), None)


def read_generator(values: Mapping[str, Any]) -> GeneratorKind:
    """Return the section of the kind that the values name.

    A key that only other kinds read may be null or at its default. Other problems raise ValidationError.
    """
    kind = kind_of(values)
    if kind is GeneratorKind:
        known = {"expected": " or ".join(KINDS)}
        unknown: InitErrorDetails = {
            "type": "literal_error", "loc": ("kind",), "input": values["kind"], "ctx": known
        }  # fmt: skip
        raise ValidationError.from_exception_data("generator", [unknown])
    read = dict(values)
    for key in values.keys() - kind.model_fields.keys():
        field = field_of_kinds(key)
        if field is not None and values[key] in (None, field.get_default(call_default_factory=True)):
            del read[key]
    return kind.model_validate(read, strict=True)


__all__ = [
    "GENERATOR", "KINDS", "RANK", "RETRIEVAL", "ROW", "SCORE", "AlteringKind", "DrawingKind", "GeneratorKind",
    "field_of_kinds", "kind_of", "read_generator",
]  # fmt: skip
