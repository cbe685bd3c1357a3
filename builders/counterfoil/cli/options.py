"""Define arguments and options that several commands share, lists after one flag, and the headings
of `--help`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from counterfoil.errors import UserError
from counterfoil.options import OUTPUT, Option, option, options, options_of


@options
class _Printed:
    json: bool = option(False, OUTPUT)
    """Print JSON for scripts."""


@options
class Opened:
    """What commands that write a page take."""

    opened: bool = option(False, None, "--open")
    """Open the page in a browser."""


_ALL = "--help-all"
T = TypeVar("T")
# The types that are typed, by the annotations of fields. Others are texts.
_TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "Path": Path,
    "str | Path": Path,
    "Sequence[str]": list[str],
    "Sequence[str | Path]": list[Path],
    "str | Sequence[str]": list[str],
    "tuple[str, str]": tuple[str, str],
}


class Given:
    """What was typed, by the spelling of each option, and the options of a verb that are made of
    it."""

    def __init__(self, context: Any, typed: Mapping[str, Any]) -> None:
        self._context = context
        self._typed = {}
        for name, value in typed.items():
            if value is not None and value != []:
                self._typed[name] = value
        self.json = bool(self.get("--json"))

    def get(self, spelling: str) -> Any:
        return self._typed.get(spelling)

    def others(self, *taken: str) -> list[str]:
        """Return the first flags of all options on the command line but these."""
        others = []
        for parameter in self._context.command.params:
            source = self._context.get_parameter_source(parameter.name)
            is_typed = source is not None and source.name == "COMMANDLINE"
            flag = parameter.opts[0]
            if is_typed and parameter.param_type_name == "option" and flag not in taken:
                others.append(flag)
        return others

    def strange(self, flag: str, does: str, *taken: str) -> list[str]:
        """Return a problem for each option on the command line that does not go with a flag. does:
        why, as words after "which". taken: options that go with it."""
        others = self.others(flag, *taken)
        return [f"{other} does not go with {flag}, which {does}" for other in others]

    def made(
        self,
        declared: type[T],
        flag: str = "",
        does: str = "",
        *also: str,
        **others: Any,
    ) -> T:
        """Return the options of a verb. UserError with all that it needs and that was not typed.

        flag: the option that chooses this verb among those of the command; it refuses options of
        other verbs, as `strange` does, except `also`.
        """
        described = options_of(declared)
        taken = [each.spelling for each in described]
        problems = self.strange(flag, does, *taken, *also, "--json") if flag else []
        values = {}
        for each in described:
            typed = self.get(each.spelling)
            if typed is not None:
                values[each.name] = typed if each.read is None else each.read(each, typed)
            elif each.is_required and each.name not in others:
                problems.append(f"{each.spelling} is missing")
        if problems:
            example = self._context.command.epilog
            raise UserError(problems, example.replace("Example", "For example"))
        return declared(**values | others)


@options
class Agreed:
    """What commands that ask take."""

    yes: bool = option(False, None, "--yes", "-y")
    """Do not ask."""


def with_options(
    example: str,
    *declared: type,
) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Give a command the options of these classes. It receives what was typed. example: a command
    line.

    Where classes have the same option, the first one describes it.
    """

    def with_them(command: Callable[[Given], None]) -> Callable[..., None]:
        command.example = example  # type: ignore[attr-defined]
        command.declared = declared  # type: ignore[attr-defined]
        # Typer makes no options of it: `Command` makes them when it is used.
        command.__signature__ = Signature()  # type: ignore[attr-defined]
        return command

    return with_them


def _made(command: Any) -> Any:
    """Return a command of Typer with the options of a function."""
    described: dict[str, Option] = {}
    for declared in (*command.declared, _Printed):
        for each in options_of(declared):
            if not each.in_python_only:
                described.setdefault(each.spelling, each)
    every = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    spellings = {}
    for spelling, each in described.items():
        parameter = _parameter(each)
        every.append(parameter)
        spellings[parameter.name] = spelling

    def called(context: Any, **values: Any) -> None:
        typed = {spellings[name]: value for name, value in values.items()}
        command(Given(context, typed))

    called.__signature__ = Signature(every)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    alone = typer.Typer(add_completion=False)
    alone.command()(called)
    return typer.main.get_command(alone)


def _parameter(option: Option) -> Parameter:
    known = list[str] if option.read else str
    annotation = option.annotation.removesuffix(" | None")
    typed = option.typed or _TYPES.get(annotation, known)
    default = option.default
    if option.is_required or isinstance(default, tuple):
        default = None
    words = " ".join(option.text.split())
    words = words.replace("[", r"\[")
    # No word of Python is such a name, as a flag may be.
    name = re.sub(r"\W", "_", option.spelling).lower()
    if option.flags:
        info: Any = typer.Option(
            *option.flags,
            metavar=option.metavar,
            min=option.least,
            help=words,
            rich_help_panel=option.panel,
            show_default=option.default_words or default is not None,
        )
    else:
        info = typer.Argument(metavar=option.metavar, help=words, show_default=False)
        if option.is_required and option.default_words is None:
            default = Parameter.empty
    if default is None:
        typed = typed | None
    annotated = Annotated[typed, info]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotated)


def repeat_flags(args: list[str], flags: Mapping[str, str]) -> list[str]:
    """Repeat a flag before every value that follows it. flags: maps each spelling to the flag to
    repeat."""
    given: list[str] = []
    listing: str | None = None
    for index, word in enumerate(args):
        flag, _, value = word.partition("=")
        if flag in flags and value:
            listing = flags[flag]
            given += [listing, value]
            continue
        if word == "--":
            # After a list, `--` only ends the list. Elsewhere it keeps its usual meaning.
            return given + (args[index + 1 :] if listing else args[index:])
        if word.startswith("-"):
            listing = flags.get(word)
            if listing is None or index + 1 == len(args) or args[index + 1].startswith("-"):
                given.append(word)
        elif listing:
            given += [listing, word]
        else:
            given.append(word)
    return given


class Command(TyperCommand):
    """A command that reads `--models a b` as `--models a --models b`, for every option whose
    metavar ends in dots.

    Its `--help` leaves out the options that have a heading, and `--help-all` shows them too. The
    options are made when they are first asked for, so that the list of commands makes none.
    """

    @cached_property
    def _with_options(self) -> Any:
        assert self.callback is not None
        return _made(inspect.unwrap(self.callback))

    @property
    def params(self) -> Any:  # pyrefly: ignore[bad-override]
        return self._with_options.params

    @params.setter
    def params(self, of_callback: Any) -> None:
        """Ignore what Typer makes of the callback, which has no parameters."""

    def invoke(self, ctx: Any) -> Any:
        return ctx.invoke(self._with_options.callback, **ctx.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ALL] = _ALL in args
        flags = {}
        for parameter in self.params:
            if isinstance(parameter.metavar, str) and parameter.metavar.endswith("..."):
                flags |= dict.fromkeys(parameter.opts, parameter.opts[0])
        return super().parse_args(ctx, repeat_flags(args, flags))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        further = 0
        for parameter in self.params:
            if getattr(parameter, "rich_help_panel", None):
                further += 1
                parameter.hidden = not ctx.meta[_ALL]  # type: ignore[attr-defined]
        shown = self.get_help_option(ctx)
        assert shown is not None
        shown.help = f"Show these options, or {further} more ({_ALL})."
        super().format_help(ctx, formatter)


def add_commands(app: typer.Typer, *commands: Callable[..., None]) -> None:
    """Add commands that `with_options` made."""
    for command in commands:
        names = ["-h", "--help", _ALL]
        epilog = f"Example: {command.example}"  # type: ignore[attr-defined]
        # Help is wrapped to the terminal, so a paragraph is one line.
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
        settings = {"help_option_names": names}
        app.command(cls=Command, help=text, epilog=epilog, context_settings=settings)(command)
