"""What all sections of a recipe share: frozen models without unknown keys, and the threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A part of a recipe: frozen, without unknown keys; null means "as if not written"."""

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


class ThresholdSpec(Section):
    """The least cosine that passes: a value, or a percentile of scores.

    For the object the percentile is over the class's own validation images; for a shift it is over all
    candidates of the shift, so it is known only after they are rendered: until then the shift is open.
    """

    value: float | None = Field(default=None, ge=-1, le=1, description="The least cosine similarity that passes.")
    percentile: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percentile of scores. Object: of the class's own validation images. Shift: of all its"
        " candidates, which leaves the shift open until `counterfoil calibrate`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _number_is_value(cls, data: Any) -> Any:
        if isinstance(data, int | float) and not isinstance(data, bool):
            return {"value": data}
        return data

    @model_validator(mode="after")
    def _one_of_both(self) -> ThresholdSpec:
        if self.value is not None and self.percentile is not None:
            raise ValueError("found value and percentile, expected one of them (null drops an inherited one)")
        if self.value is None and self.percentile is None:
            raise ValueError("found neither, expected a number, `value:` or `percentile:`")
        return self
