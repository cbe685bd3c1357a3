"""What all sections of a recipe share: frozen models without unknown keys, in which null is as if not written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A part of a recipe: frozen, without unknown keys; null means "as if not written"."""

    # What messages say was expected where something else stands.
    written_as: ClassVar[str] = "a mapping of keys"
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


def refuse(problem: str | None) -> None:
    """Raise the problem that a validator found, if it found one."""
    if problem is not None:
        raise ValueError(problem)
