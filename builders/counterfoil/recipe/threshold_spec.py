"""The thresholds of a recipe: a cosine or a percentile of scores, and for the object also a cosine a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

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
        if self._says_nothing():
            raise ValueError("found neither, expected a number, `value:` or `percentile:`")
        return self

    def _says_nothing(self) -> bool:
        return self.value is None and self.percentile is None


class ObjectThresholdSpec(ThresholdSpec):
    """The least cosine of the object that passes, and those of single classes, which win.

    A base's or a shift's own one may name classes alone: then the others are as the screen says. A layer adds classes
    to those below, and null takes one out.
    """

    classes: dict[str, Annotated[float, Field(ge=-1, le=1)]] | None = Field(
        default=None, description="The least cosine that passes for single classes, by class id; wins over the others."
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _without_those_taken_out(cls, values: Any) -> Any:
        """Without nulls, in one order: what is written in another one gives the same bytes."""
        if not isinstance(values, Mapping):
            return values
        return {key: values[key] for key in sorted(values, key=str) if values[key] is not None} or None

    def _says_nothing(self) -> bool:
        return super()._says_nothing() and self.classes is None

    def over(self, default: ObjectThresholdSpec) -> ObjectThresholdSpec:
        """This one of a base or a shift, with what it leaves open as the screen's `default` says."""
        if self.value is not None or self.percentile is not None:
            return self
        both = {**(default.classes or {}), **(self.classes or {})}
        return default.model_copy(update={"classes": {key: both[key] for key in sorted(both)}})

    def of_class(self, class_id: str) -> float | None:
        """The value of this class alone; None where it is as the others."""
        return None if self.classes is None else self.classes.get(class_id)
