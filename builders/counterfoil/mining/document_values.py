"""Kinds of values that findings are written in: strict, finite, rates as fractions; and how JSON has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = tuple[float, float]


def plain(value: Any) -> Any:
    """A value as JSON's types: dataclasses in the order of their fields, other mappings by key, NumPy's numbers as
    Python's."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def without_titles(schema: Any, *, of_properties: bool = False) -> Any:
    """The schema without the titles that only repeat a property's name."""
    if isinstance(schema, list):
        return [without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_titles(value, of_properties=key in ("properties", "$defs"))
        for key, value in schema.items()
        if of_properties or key != "title"
    }
