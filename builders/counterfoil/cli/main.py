"""Define the `counterfoil` command: a typer app of the commands in the other modules."""

from __future__ import annotations

import io
import sys
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from counterfoil import __version__
from counterfoil.cli import build, calibrate, demo, evaluate, mend, mine, open, publish, recipes, review, verify
from counterfoil.cli.options import arranged
from counterfoil.cli.terminal import show_error, show_interrupted
from counterfoil.progress import listening


class _Commands(TyperGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        return command and arranged(cmd_name, command)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(show_interrupted()) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build image test sets from recipes, measure where classifiers fail, find out why, and publish the results.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"counterfoil {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


# In the order of `counterfoil --help`. Heavy imports are inside the commands, so that help is fast.
for _module in (demo, recipes, build, calibrate, review, verify, evaluate, mine, mend, open, publish):
    app.add_typer(_module.app)


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A letter that the terminal lacks, or half a character in a file's name, must not end a finished run.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with listening(lambda event: None):  # commands that show progress add their own listener
            app()
    except Exception as error:
        sys.exit(show_error(error))


if __name__ == "__main__":
    main()
