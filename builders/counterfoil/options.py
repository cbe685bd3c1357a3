"""Options, declared once: each verb has one frozen class of them, with a text under each field.

Of such a class are made the function's parameters and docstring (`takes`), the command's options
and their help (`cli/options.py`), and the page of options. A field without a default must be given.
The text under a field begins with what `--help` shows; what follows after a blank line is for
`help()` and the page alone. Modules of options import no heavy library, because every `--help`
reads them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from os import PathLike
from textwrap import indent
from typing import Any, Literal, ParamSpec, TypeVar, dataclass_transform

from counterfoil.errors import UserError
from counterfoil.field_texts import key_text, texts_of

MODELS = "Models"
OUTPUT = "Output"
HUB = "Hub"
MACHINES = "Many machines"
DATA = "The data"


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument of a verb, and how the command line shows and reads it."""

    name: str
    annotation: str
    default: Any
    positional: bool
    """Whether Python takes it by its place, and the command line too unless it has flags."""
    text: str
    """What `--help` shows."""
    more: str
    """What `help()` and the page add."""
    named: tuple[str, ...] = ()
    """Its spellings on the command line, if `--` and its name is none of them."""
    panel: str | None = None
    """Its heading in `--help-all`. Without one, `--help` shows it too."""
    metavar: str | None = None
    """What stands for the value. With dots at its end, several values follow one flag."""
    least: float | None = None
    typed: Any = None
    """The type of what is typed, if it does not follow from the annotation."""
    read: Callable[[Option, Any], Any] | None = None
    """Makes the field's value of what was typed."""
    example: str = ""
    default_words: str | None = None
    """The default of the command in words, if the value says too little or Python has none."""
    key: str = ""
    """The recipe's key that it replaces."""
    in_python_only: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        if self.named or self.positional:
            return self.named
        return (f"--{self.name.replace('_', '-')}",)

    @property
    def spelling(self) -> str:
        """The first flag, or what stands for an argument: one for each value that can be typed."""
        return self.flags[0].partition("/")[0] if self.flags else str(self.metavar)

    @property
    def takes_several(self) -> bool:
        """Whether the value is a list, for which a single item stands too."""
        return self.annotation.startswith(("Sequence[", "tuple["))

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


def option(default: Any, panel: str | None = None, *flags: str, **shown: Any) -> Any:
    """Declare an option. flags: its spellings, by default `--` and its name. shown: fields of
    `Option`."""
    return field(default=default, metadata={"panel": panel, "named": flags, **shown})


def in_python(default: Any = None) -> Any:
    """Declare an option that no command has."""
    return field(default=default, metadata={"in_python_only": True})


def argument(
    *flags: str, default: Any = MISSING, kw_only: Literal[False] = False, **shown: Any
) -> Any:
    """Declare what Python takes by its place, and the command line too unless it has flags."""
    return field(default=default, kw_only=kw_only, metadata={"named": flags, **shown})


Declared = TypeVar("Declared")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(argument,))
def options(declared: type[Declared]) -> type[Declared]:
    """Make a frozen dataclass of a class of options."""
    return dataclass(frozen=True, kw_only=True)(declared)


@functools.cache
def options_of(declared: Any) -> list[Option]:
    """Return a class's arguments, then its options: those of the class itself before those of its
    bases.

    An option that replaces a key of the recipe has the key's text, and then its own, which says
    what differs.
    """
    order = [name for base in declared.__mro__ for name in inspect.get_annotations(base)]
    texts = texts_of(declared)
    described = []
    for each in fields(declared):
        key = each.metadata.get("key")
        parts = [key_text(key)] if key else []
        parts.append(texts.get(each.name, ""))
        if key and each.default is None:
            parts.append("Default: the recipe's.")
        shown = []
        further = []
        for part in parts:
            text, _, more = part.partition("\n\n")
            if text:
                shown.append(text)
            if more:
                further.append(more)
        described.append(
            Option(
                each.name,
                str(each.type),
                each.default,
                not each.kw_only,
                "\n".join(shown),
                "\n\n".join(further),
                **each.metadata,
            )
        )
    return sorted(
        described, key=lambda option: -1 if option.positional else order.index(option.name)
    )


def takes(
    declared: Callable[Parameters, Declared],
) -> Callable[[Callable[[Declared], Result]], Callable[Parameters, Result]]:
    """Give a function the parameters of a class of options, and their texts in its docstring.

    The function receives an object of the class. Its field `options` is such an object itself, or
    one of a base: its values stand for those that are not given by name.
    """
    described = options_of(declared)

    def taking(function: Callable[[Declared], Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def called(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
            values: Any = named
            if (others := values.pop("options", None)) is not None:
                values = {each.name: getattr(others, each.name) for each in fields(others)} | values
            given: Any = declared(*args, **values)
            several = {}
            problems = []
            for option in described:
                value = getattr(given, option.name)
                if option.least is not None and value is not None and value < option.least:
                    problems.append(f"{option.name} is {value}: expected {option.least} or more")
                if option.takes_several and isinstance(value, str | PathLike | float | int):
                    several[option.name] = (value,)
            if problems:
                raise UserError(problems)
            return function(replace(given, **several))

        texts = "".join(f"    {option.name}: {_indented(option)}\n" for option in described)
        head, returns, tail = inspect.cleandoc(function.__doc__ or "").partition("Returns:\n")
        called.__doc__ = f"{head}Args:\n{texts}\n{returns}{tail}"
        of_class = inspect.signature(declared).parameters
        parameters = [of_class[option.name] for option in described]
        signature = inspect.signature(function).replace(parameters=parameters)
        called.__signature__ = signature  # type: ignore[attr-defined]
        called.declared = declared  # type: ignore[attr-defined]
        return called

    return taking


def _indented(option: Option) -> str:
    text = f"{option.text}\n{option.more}" if option.more else option.text
    return indent(text, " " * 8).lstrip()


def named_values(option: Option, words: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE words. Raise UserError with all words of another form or with a repeated
    name."""
    form = (option.metavar or "").removesuffix("...").replace("[MODEL=]", "MODEL=")
    values = {}
    problems = []
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value) or name in values:
            problems.append(f"{option.spelling} {word}: expected {form}, and each name only once")
        values[name] = value
    if problems:
        raise UserError(problems, f"For example: {option.spelling} {option.example}")
    return values


def for_models(option: Option, words: Sequence[str]) -> str | dict[str, str]:
    """Return the value for all models, or a mapping from names of models."""
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    return named_values(option, words)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The user's choice of an engine.

    name: a key of `ENGINES`. address: the address of a running cluster, or None for a new cluster
    on this machine.
    collect: workers share no folder with this process, so they send their results, and this process
    writes them.
    """

    name: str = "local"
    address: str | None = None
    collect: bool = False


@options
class OnDevices:
    """Where work on several devices runs."""

    device: str = "auto"
    """Where to compute: auto, cpu, cuda (every GPU), cuda:1, cuda:0,cuda:2 …"""
    workers: int | None = option(None, MACHINES, least=1)
    """Processes per device. Default: one per CPU core, one per GPU.

    With a cluster, the number on all machines together."""
    engine: EngineChoice | str | None = option("local", MACHINES)
    """Where the work runs, one of {names of engines}. local is this machine, ray the actors of a
    Ray cluster.

    In Python also an `EngineChoice`, which has the address too."""
    address: str | None = option(None, MACHINES, metavar="HOST:PORT")
    """Address of a running Ray cluster, or auto for the one on this machine. With it, --device sets
    the device of its workers (auto, cpu or cuda) and --workers their total number."""
    collect: bool = option(False, MACHINES)
    """Send the workers' files back to this machine. Use it if they share no folder with it."""

    @property
    def chosen_engine(self) -> EngineChoice:
        if isinstance(self.engine, EngineChoice):
            return self.engine
        return EngineChoice(self.engine or "local", self.address, self.collect)


@options
class Overriding:
    """Changes of the recipe."""

    overrides: Sequence[str] = option((), None, "--set", metavar="KEY=VALUE")
    """Change a value of the recipe, as in samples.candidates=5; null removes it. Repeatable."""


@options
class Limited:
    """How much of the work is done."""

    limit: int | None = option(None, DATA, least=1, metavar="N", key="samples.limit")
