"""List the kinds of generator. Each kind is a file here, and `kind.py` describes its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from counterfoil.recipe.kinds.corrupt import CorruptKind
from counterfoil.recipe.kinds.diffusers import DiffusersKind
from counterfoil.recipe.kinds.drawing import DrawingKind
from counterfoil.recipe.kinds.drawn_elsewhere import DrawnElsewhereKind
from counterfoil.recipe.kinds.edit import EditKind
from counterfoil.recipe.kinds.kind import GENERATOR, RETRIEVAL, ROW, AlteringKind, GeneratorKind
from counterfoil.recipe.kinds.retrieve import RANK, SCORE, RetrieveKind
from counterfoil.recipe.kinds.rows import RowsKind
from counterfoil.recipe.messages import message
from counterfoil.registry import Registry, extending

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
    extending(GeneratorKind),
)


def kind_of(values: Mapping[str, Any]) -> type[GeneratorKind]:
    """Return the kind of a recipe's generator of any form."""
    name = "diffusers" if values.get("kind") is None else values["kind"]
    if not isinstance(name, str) or name not in KINDS:
        return GeneratorKind
    if name == "rows" and values.get("rows") is None:
        return DrawnElsewhereKind
    return KINDS[name]


def read_generator(values: Mapping[str, Any]) -> GeneratorKind:
    """Return the section of the kind that the values name. Raise ValidationError with every
    problem.

    A key that only other kinds read may be null or at its default.
    """
    kind = kind_of(values)
    if kind is GeneratorKind:
        unknown = InitErrorDetails(
            type="literal_error",
            loc=("kind",),
            input=values["kind"],
            ctx={"expected": " or ".join(KINDS)},
        )
        raise ValidationError.from_exception_data("generator", [unknown])
    read = dict(values)
    problems: list[Any] = []
    for key in values.keys() - kind.model_fields.keys():
        fields = [other.model_fields[key] for other in KINDS.values() if key in other.model_fields]
        if not fields:
            continue
        if read.pop(key) not in (None, fields[0].get_default(call_default_factory=True)):
            refused = ValueError(message("wrong-kind.key", found=key, kind=kind.name))
            problems.append(
                InitErrorDetails(
                    type="value_error",
                    loc=(key,),
                    input=values[key],
                    ctx={"error": refused},
                )
            )
    section = None
    try:
        section = kind.model_validate(read, strict=True)
    except ValidationError as error:
        problems += error.errors(include_url=False)
    if section is None or problems:
        raise ValidationError.from_exception_data("generator", problems)
    return section


__all__ = [
    "GENERATOR", "KINDS", "RANK", "RETRIEVAL", "ROW", "SCORE", "AlteringKind", "DrawingKind", "GeneratorKind",
    "kind_of", "read_generator",
]  # fmt: skip
