"""The base of all sections of a recipe, and their validators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from counterfoil.field_texts import paragraph_lines, texts_of

# Readers of a stranger's dataset allocate an image of this side at most. Generators draw about 2048
# pixels.
LARGEST_SIDE = 4096
NonEmpty = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A part of a recipe: frozen, without unknown keys; null means "as if not written"."""

    # The words with which messages name the expected form of a section.
    written_as: ClassVar[str] = "a mapping of keys"
    # The key that a bare value is written for, and the types of such a value.
    short: ClassVar[tuple[str, tuple[type, ...]] | None] = None
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        _SECTIONS.append(cls)

    @model_validator(mode="before")
    @classmethod
    def _null_is_unset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            key, types = cls.short or ("", ())
            is_short = isinstance(data, types) and not isinstance(data, bool)
            return {key: data} if is_short else data
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in cls.model_fields
        }

    def problem(self) -> str | None:
        """Return what is wrong with keys that do not go together, or None."""
        return None

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        raise_problem(self.problem())
        return self


# In the order in which they are made: a section comes after those that it has.
_SECTIONS: list[type[Section]] = []


def describe_sections() -> None:
    """Give each key the text under it as its description, for schemas and the documentation.

    It takes time, so classes are made without.
    """
    changed = False
    for section in _SECTIONS:
        texts = texts_of(section)
        fields = section.model_fields
        bare = [name for name in texts.keys() & fields.keys() if fields[name].description is None]
        for name in bare:
            fields[name].description = paragraph_lines(texts[name])
        changed = changed or bool(bare)
        if changed:  # its own fields, or those of a section that it has
            section.model_rebuild(force=True)


def raise_problem(problem: str | None) -> None:
    """Raise ValueError with a problem, if there is one."""
    if problem is not None:
        raise ValueError(problem)


def field_check(*fields: str, by: Callable[[Any], str | None]) -> Any:
    """Return a validator for these fields. It refuses a value other than null with the problem that
    `by` returns."""

    def check(value: Any) -> Any:
        if value is not None:
            raise_problem(by(value))
        return value

    return field_validator(*fields)(check)


def written_keys(section: Section, keys: Iterable[str]) -> list[str]:
    """Return the keys of a section whose values differ from their defaults."""
    fields = type(section).model_fields
    return [
        key
        for key in keys
        if getattr(section, key) != fields[key].get_default(call_default_factory=True)
    ]
