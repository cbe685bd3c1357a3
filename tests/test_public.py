"""What people rely on from outside stays as it is: functions, options, errors' exit codes, names of
written files.

`public.txt` beside this file holds it as lines. After an intended change, which the changelog
reports, write it anew:

    .venv/bin/python tests/test_public.py
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import counterfoil
from counterfoil import errors
from counterfoil.cli.main import app
from counterfoil.evaluation.gate import FAILED, UNDECIDED

PINNED = Path(__file__).with_name("public.txt")


def functions() -> Iterator[str]:
    for name in sorted(set(counterfoil.__all__) - {"__version__"}):
        for parameter in inspect.signature(getattr(counterfoil, name)).parameters.values():
            default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
            yield f"function {name}: {parameter.kind.description} {parameter.name}{default}"


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    for param in command.params:
        names = " ".join((*param.opts, *param.secondary_opts))
        flags = "".join(
            f", {word}"
            for word in ("required", "multiple", "is_flag")
            if getattr(param, word, False)
        )
        bounds = "".join(
            f", {word} {value}"
            for word in ("min", "max")
            if (value := getattr(param, word)) is not None
        )
        yield f"command {' '.join(path)}: {names} = {param.default!r}{flags}{bounds}"
    for name, inner in getattr(command, "commands", {}).items():
        yield from options(inner, (*path, name))


def exit_codes() -> Iterator[str]:
    for name in ("CounterfoilError", "RunFailure", "UserError"):
        yield f"exit code of {name}: {getattr(errors, name).exit_code}"
    yield f"exit code of a gate: {FAILED} where a line fails, {UNDECIDED} where one is undecided"


def public() -> list[str]:
    return [*functions(), *options(typer.main.get_command(app)), *exit_codes()]


def test_what_people_rely_on_stays() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    assert pinned == public(), "\n".join(
        difflib.unified_diff(pinned, public(), "pinned", "now", lineterm="", n=0)
    )


if __name__ == "__main__":
    PINNED.write_text("\n".join(public()) + "\n", encoding="utf-8")
