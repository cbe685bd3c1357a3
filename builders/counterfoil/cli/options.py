"""Define arguments and options that several commands share, lists after one flag, and the headings of `--help`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option
from typer.core import TyperCommand

from counterfoil.errors import UserError

RecipeArgument = Annotated[
    str, Argument(metavar="RECIPE", help="A bundled recipe's name, a YAML file, or a dataset directory.")
]
BuiltArgument = Annotated[Path, Argument(metavar="DATASET", help="Directory of a built dataset.")]
DatasetArgument = Annotated[str, Argument(metavar="DATASET", help="A dataset directory, or user/name\\[@revision].")]
SetOption = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the recipe, as in samples.candidates=5; null removes it. Repeatable.",
    ),
]
DeviceOption = Annotated[str, Option("--device", help="Where to compute: auto, cpu, cuda, cuda:1 …")]
DevicesOption = Annotated[
    str, Option("--device", help="Where to compute: auto, cpu, cuda (every GPU), cuda:1, cuda:0,cuda:2 …")
]
WorkersOption = Annotated[
    int | None, Option("--workers", min=1, help="Processes per device. Default: one per CPU core, one per GPU.")
]
EngineOption = Annotated[
    str, Option("--engine", help="Where the work runs: local (this machine) or ray (the actors of a Ray cluster).")
]
AddressOption = Annotated[
    str | None,
    Option(
        "--address",
        metavar="HOST:PORT",
        help="Address of a running Ray cluster, or auto for the one on this machine. With it, --device sets the device"
        " of its workers (auto, cpu or cuda) and --workers their total number.",
    ),
]
CollectOption = Annotated[
    bool,
    Option("--collect", help="Send the workers' files back to this machine. Use it if they share no folder with it."),
]
LimitOption = Annotated[
    int | None,
    Option(
        "--limit",
        min=1,
        metavar="N",
        help="Make a preview: at most N images of each shift (mine: of each split). Every page says so; gates and"
        " publish refuse it.",
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON for scripts.")]
OpenOption = Annotated[bool, Option("--open", help="Open the page in a browser.")]
_ALL = "--help-all"
_MODELS, _OUTPUT, _HUB, _MACHINES, _DATA = "Models", "Output", "Hub", "Many machines", "The data"

# Map a command to its headings, and a heading to the first names of options. `_EVERYWHERE` is for every command.
_EVERYWHERE = {
    _DATA: ("--limit",),
    _OUTPUT: ("--json",),
    _MACHINES: ("--workers", "--shards", "--engine", "--address", "--collect", "--batch-size"),
}
_PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "init": {
        _DATA: ("--config", "--image-column", "--label-column", "--train-split", "--validation-split"),
        _MODELS: ("--device",),
        _OUTPUT: ("--name",),
    },
    "calibrate": {_DATA: ("--source",), _MODELS: ("--device",), _OUTPUT: ("--yes",)},
    "review": {_DATA: ("--shift", "--seed", "--source", "--controls")},
    "evaluate": {
        _DATA: ("--recipe", "--groups", "--base", "--beside", "--write-keys"),
        "Comparisons": ("--compare", "--distances", "--against", "--reference"),
        "Gate": ("--gate", "--allow-undecided"),
        _OUTPUT: (
            "--min-images",
            "--outputs",
            "--class-order",
            "--scores-are",
            "--seed",
            "--export-failures",
            "--report-to",
        ),
        _HUB: ("--repo",),
    },
    "mine": {
        _MODELS: ("--confirm", "--device", "--set"),
        "More to learn from": ("--pool", "--pool-rows", "--pool-labels", "--weights"),
        "In the folder of an earlier run": ("--try", "--class", "--again"),
    },
    "mend": {
        _DATA: ("--test", "--own"),
        "How heads are fitted": ("--lambda", "--fit", "--epochs", "--per-class", "--seed", "--effects"),
        _MODELS: ("--device", "--set"),
        _OUTPUT: ("--save", "--open"),
    },
    "publish": {_HUB: ("--revision", "--tag", "--create-pr", "--files-per-commit")},
}


def repeat_flags(args: list[str], flags: Mapping[str, str]) -> list[str]:
    """Repeat a flag before every value that follows it. flags: maps each spelling to the flag to repeat."""
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


def arranged(name: str, command: Any) -> Any:
    """Put a command's options under their headings, which `--help-all` alone shows, and return the command."""
    headings, further = [*_PANELS.get(name, {}).items(), *_EVERYWHERE.items()], []
    for parameter in command.params:
        panel = next((heading for heading, flags in headings if not {*parameter.opts}.isdisjoint(flags)), None)
        if panel is not None:
            parameter.rich_help_panel = panel
            further.append(parameter)
    whole, parse = command.format_help, command.parse_args

    def parse_args(context: Any, args: list[str]) -> list[str]:
        context.meta[_ALL] = _ALL in args
        return parse(context, args)

    def format_help(context: Any, formatter: Any) -> None:
        context.command.get_help_option(context).help = f"Show these options, or {len(further)} more (--help-all)."
        for parameter in further:
            parameter.hidden = not context.meta[_ALL]
        whole(context, formatter)

    command.parse_args, command.format_help = parse_args, format_help
    command.context_settings = {**command.context_settings, "help_option_names": ["-h", "--help", _ALL]}
    return command


def named_values(flag: str, words: Sequence[str], form: str, example: str) -> dict[str, str]:
    """Parse NAME=VALUE words. Raise UserError with all words of another form or with a repeated name."""
    values: dict[str, str] = {}
    problems = []
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value) or name in values:
            problems.append(f"{flag} {word}: expected {form}, and each name only once")
        values[name] = value
    if problems:
        raise UserError(problems, f"For example: {flag} {example}")
    return values


class ManyValues(TyperCommand):
    """A command that reads `--models a b` as `--models a --models b`, for every option whose metavar ends in dots."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {}
        for parameter in self.params:
            if isinstance(parameter.metavar, str) and parameter.metavar.endswith("..."):
                flags |= dict.fromkeys(parameter.opts, parameter.opts[0])
        return super().parse_args(ctx, repeat_flags(args, flags))
