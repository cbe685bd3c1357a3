"""The steps of `screen.keep`: the keep rules that there are (`keep.KEEP_RULES`), by name or with their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, create_model, model_serializer, model_validator

from counterfoil.keep import KEEP_RULES, KeepRule
from counterfoil.section import Section


class _Step(Section):
    """One keep rule: its name, or its name with settings."""

    @model_validator(mode="before")
    @classmethod
    def _name_is_defaults(cls, data: Any) -> Any:
        return {data: {}} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _one_rule(self) -> _Step:
        found = [name for name in KEEP_RULES if getattr(self, name) is not None]
        if len(found) != 1:
            raise ValueError(f"found {' and '.join(found) or 'no rule'}, expected one of: {', '.join(KEEP_RULES)}")
        return self

    @model_serializer
    def _as_written(self) -> Any:
        name = next(name for name in KEEP_RULES if getattr(self, name) is not None)
        settings = getattr(self, name).model_dump(mode="json", exclude_none=True)
        return {name: settings} if settings else name

    @property
    def rule(self) -> KeepRule:
        return next(rule for name in KEEP_RULES if (rule := getattr(self, name)) is not None)


_FIELDS: dict[str, Any] = {
    name: (rule | None, Field(default=None, description=(rule.__doc__ or "").partition("\n")[0]))
    for name, rule in KEEP_RULES.items()
}
KeepStep = create_model("KeepStep", __base__=_Step, __doc__=_Step.__doc__, **_FIELDS)
DEFAULT_KEEP: tuple[Any, ...] = (KeepStep.model_validate("thresholds"),)


def as_steps(value: Any) -> Any:
    """A bare name or rule as a list of one, as recipes wrote it before there were several."""
    if isinstance(value, list | tuple) and not value:
        raise ValueError(f"found an empty list, expected at least one of: {', '.join(KEEP_RULES)}")
    return (value,) if isinstance(value, str | Mapping) else value
