"""The threshold of a recipe: a cosine, or a percentile of scores."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from counterfoil.section import Section


class ThresholdSpec(Section):
    """The least cosine that passes: a value, or a percentile of scores.

    For the object the percentile is over the class's own validation images; for a shift it is over all
    candidates of the shift, so it is known only after they are rendered: until then the shift is open.
    """

    written_as = "a number, or `value:` or `percentile:`"

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
