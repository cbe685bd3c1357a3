"""Turn validation errors into lines for users: key, file and line, value, expected value, nearest
valid name."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from counterfoil.errors import ProblemLine, quoted
from counterfoil.field_texts import paragraph_lines, texts_of
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import LONGEST_NAME, did_you_mean
from counterfoil.recipe.parts import RecipePath, RecipeProblem
from counterfoil.recipe.section import Section
from counterfoil.recipe.strict_yaml import LocatedList, LocatedMapping, Origin

MOST_PROBLEMS = 300  # a recipe of nonsense may have tens of thousands of problems
_LONGEST_MESSAGE = 800  # a message contains a value of any length
# The codes of pydantic's errors that are not about a type.
_BOUNDS = (
    "greater_than greater_than_equal less_than less_than_equal finite_number multiple_of too_short"
    " too_long string_too_short string_too_long"
)
_CODES = {"literal_error": "unknown-name"} | dict.fromkeys(_BOUNDS.split(), "out-of-range")
_TYPES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def problem_lines(
    model: type[BaseModel],
    raw: LocatedMapping,
    error: ValidationError,
    across: Callable[[Mapping[str, Any]], Iterable[RecipeProblem]],
) -> list[str]:
    """Return every problem of a recipe, or of a file like one, in the order of its files and lines.

    across: checks that compare sections of the recipe.
    """
    problems: dict[tuple[RecipePath, str], None] = {}
    errors = error.errors(include_url=False)
    for details in errors[:MOST_PROBLEMS]:
        if details["type"] == "too_short":
            least = details.get("ctx", {}).get("min_length", 1)
            if len(details["input"]) >= least:
                continue  # the invalid items of this value are reported one by one
        if details["loc"] or details["type"] != "value_error":  # `across` reports these
            path = _path_in(raw, details["loc"])
            problem = _problem(model, raw, path, details)
            problems[path, problem] = None
    for path, problem in islice(across(raw), MOST_PROBLEMS):
        problems[path, problem] = None

    def order(problem: tuple[RecipePath, str]) -> tuple[bool, str, int]:
        origin = origin_of(raw, problem[0])
        return (False, origin.place, origin.line) if origin else (True, "", 0)

    lines: list[str] = []
    for path, problem in sorted(problems, key=order):
        lines.append(_cut(problem).at(shown_path(path), origin_of(raw, path)))
    if len(errors) > MOST_PROBLEMS:
        lines.append(f"… and {len(errors) - MOST_PROBLEMS} more")
    return lines


def origin_of(raw: Any, path: RecipePath) -> Origin | None:
    """Return where the value at a path, or the nearest part around it, was written."""
    origin: Origin | None = None
    for part in path:
        match raw:
            case LocatedMapping() if part in raw:
                origin = raw.origins.get(str(part), origin)
                raw = raw[str(part)]
            case LocatedList() if isinstance(part, int) and part < len(raw):
                origin = raw.origins[part]
                raw = raw[part]
            case _:
                break
    return origin


def shown_path(path: RecipePath) -> str:
    """Write a path in the form `source.classes[3].id`. Very long keys are cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if len(part) <= LONGEST_NAME else f"{part[:LONGEST_NAME]}..."
        text += f".{key}" if text else key
    return text or "recipe"


def _cut(text: str) -> ProblemLine:
    """Return a problem that is not too long. A text of a plugin is an invalid value."""
    problem = text if isinstance(text, ProblemLine) else message("invalid-value", text=text)
    if len(problem) <= _LONGEST_MESSAGE:
        return problem
    shown = f"{problem[:_LONGEST_MESSAGE]} […] {problem[-_LONGEST_MESSAGE // 4 :]}"
    return ProblemLine(shown, problem.code, values=problem.values)


def _path_in(raw: Any, location: Sequence[str | int]) -> RecipePath:
    """Return the part of an error's location that the recipe has."""
    path: RecipePath = ()
    for part in location:
        # A bare number may replace a whole threshold.
        if not isinstance(raw, Mapping | list | tuple) or part == "[key]":
            break
        path = (*path, part)
        raw = _child(raw, part)
    return path


def _child(raw: Any, part: str | int) -> Any:
    if isinstance(raw, Mapping):
        return raw.get(part)
    if isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw):
        return raw[part]
    return None


def _problem(
    model: type[BaseModel],
    raw: LocatedMapping,
    path: RecipePath,
    details: ErrorDetails,
) -> str:
    error_type = details["type"]
    if error_type == "value_error":
        error = details.get("ctx", {}).get("error", details["msg"])
        for stated in getattr(error, "args", ()):
            if isinstance(stated, ProblemLine):
                return stated
        return str(error)
    if error_type == "extra_forbidden":
        whole = tuple(details["loc"])
        is_name = path != whole  # a bare name replaces a section that has this key
        section = _type_at(model, whole[:-1])
        keys: list[str] = []
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys = list(section.model_fields)
        name = str(whole[-1])
        return message(
            "unknown-name.section" if is_name else "unknown-key",
            found=quoted(name),
            hint=did_you_mean(name, keys),
            keys=", ".join(keys),
        )
    field = _field_at(model, details["loc"])
    expected = _expected(field, details)
    if error_type == "missing":
        about = None
        if isinstance(field, FieldInfo):
            *parents, name = details["loc"]
            section = _type_at(model, parents)
            about = field.description or paragraph_lines(texts_of(section).get(str(name), ""))
        return message("missing-key", expected=expected, about=f": {about}" if about else "")
    value = details["input"]
    around: Any = raw
    for part in path[:-1]:
        around = _child(around, part)
    hint = ""
    # a null that should delete a value, under a mistyped name
    if value is None and isinstance(around, Mapping):
        siblings = [key for key in around if key != path[-1]]
        hint = did_you_mean(str(path[-1]), siblings)
    elif expected.startswith("text") and isinstance(value, int | float):
        hint = "; put it in quotes"
    elif isinstance(value, str) and error_type.startswith(("int", "float", "bool")):
        plain = value in ("true", "false") if error_type.startswith("bool") else _is_number(value)
        hint = "; write it without quotes" if plain else ""
    elif error_type == "literal_error":
        hint = did_you_mean(str(value), expected.split(" or "))
    code = _CODES.get(error_type, "wrong-type")
    return message(
        code,
        found=_shown(value),
        expected=expected,
        hint=hint,
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return quoted(value)
        case Mapping():
            return "a mapping"
        case _:
            return "an empty list" if not value else "a list"


def _expected(field: Any, details: ErrorDetails) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "too_short":
            return "at least one item"
        case "string_too_long":
            return f"text of at most {context.get('max_length')} characters"
        case "string_too_short":
            return "text that is not empty"
        case "finite_number":
            return "a finite number"
        case "multiple_of":
            return f"a multiple of {context.get('multiple_of')}"
    if field is None:
        return details["msg"].removeprefix("Input should be ")
    plain = _without_none(_annotation(field))
    if get_origin(plain) is typing.Annotated:  # the bounds are in the type
        field = FieldInfo.from_annotation(plain)
        plain = field.annotation
    bounds = _bounds(field) if isinstance(field, FieldInfo) else ""
    if get_origin(plain) is typing.Literal:
        return " or ".join(map(str, get_args(plain))) + bounds
    if get_origin(plain) is tuple:
        return f"a list{bounds}"
    if isinstance(plain, type) and issubclass(plain, Section):
        return plain.written_as + bounds
    return _TYPES.get(plain, "a mapping of keys") + bounds


def _bounds(field: FieldInfo) -> str:
    low = next((rule for rule in field.metadata if isinstance(rule, Ge | Gt)), None)
    high = next((rule for rule in field.metadata if isinstance(rule, Le | Lt)), None)
    match low, high:
        case Ge(), Le():
            return f" from {low.ge} to {high.le}"
        case Ge(), Lt():
            return f" from {low.ge} to below {high.lt}"
        case Ge(), None:
            return f" of at least {low.ge}"
        case Gt(), None:
            return f" above {low.gt}"
        case Gt(), Le():
            return f" above {low.gt} to {high.le}"
    return ""


def _annotation(field: Any) -> Any:
    return field.annotation if isinstance(field, FieldInfo) else field


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    options = [option for option in get_args(annotation) if option is not types.NoneType]
    return options[0] if len(options) == 1 else annotation


def _type_at(model: type[BaseModel], path: Sequence[str | int]) -> Any:
    return _without_none(_annotation(_field_at(model, path)))


def _field_at(model: type[BaseModel], path: Sequence[str | int]) -> Any:
    """Return the field, or the type of the item, at a path. Return None if the schema has
    neither."""
    field: Any = model
    for part in path:
        plain = _without_none(_annotation(field))
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            field = plain.model_fields.get(str(part))
        elif get_origin(plain) in (dict, tuple):
            field = get_args(plain)[1 if get_origin(plain) is dict else 0]
        else:
            return None
        if field is None:
            return None
    return field
