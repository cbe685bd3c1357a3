"""The steps of `screen.keep`: the keep rules that there are (`keep.KEEP_RULES`), by name or with their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        name = self.name
        settings = getattr(self, name).model_dump(mode="json", exclude_none=True)
        return {name: settings} if settings else name

    @property
    def name(self) -> str:
        return next(name for name in KEEP_RULES if getattr(self, name) is not None)

    @property
    def rule(self) -> KeepRule:
        return getattr(self, self.name)


_FIELDS: dict[str, Any] = {
    name: (rule | None, Field(default=None, description=(rule.__doc__ or "").partition("\n")[0]))
    for name, rule in KEEP_RULES.items()
}
KeepStep = create_model("KeepStep", __base__=_Step, __doc__=_Step.__doc__, **_FIELDS)
DEFAULT_KEEP: tuple[Any, ...] = (KeepStep.model_validate("thresholds"),)


def order_problem(steps: Sequence[Any] | None) -> str | None:
    """What is wrong with the order of some steps, or None."""
    names = [step.name for step in steps or ()]
    for place, name in enumerate(names):
        missing = [other for other in KEEP_RULES[name].after if other not in names[:place]]
        if missing:
            return f"found '{name}', expected '{missing[0]}' before it"
    repeated = next((name for place, name in enumerate(names) if name in names[:place]), None)
    return None if repeated is None else f"found '{repeated}' again, expected each rule once"


def as_steps(value: Any) -> Any:
    """A bare name or rule as a list of one, as recipes wrote it before there were several."""
    if isinstance(value, list | tuple) and not value:
        raise ValueError(f"found an empty list, expected at least one of: {', '.join(KEEP_RULES)}")
    return (value,) if isinstance(value, str | Mapping) else value
