"""Define the `counterfoil` command: a typer app of the commands in the other modules."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from counterfoil import __version__
from counterfoil.cli import (
    build,
    calibrate,
    compare,
    demo,
    evaluate,
    mend,
    mine,
    open,
    publish,
    recipes,
    review,
    verify,
)
from counterfoil.cli.options import add_commands
from counterfoil.cli.terminal import print_note, refuse_low_limits, show_error
from counterfoil.errors import CounterfoilWarning
from counterfoil.progress import listening
from counterfoil.signals import heed_signals, show_signal, signalled


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **named: Any) -> Any:
        with _interruptible():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with _interruptible(), warnings.catch_warnings():
            others = warnings.showwarning

            def show(message: Any, category: Any, *where: Any) -> None:
                if issubclass(category, CounterfoilWarning):
                    for line in f"Warning: {message}".split("\n"):
                        print_note(line)
                else:
                    others(message, category, *where)

            warnings.simplefilter("always", CounterfoilWarning)
            warnings.showwarning = show  # pyrefly: ignore[bad-assignment]
            return super().invoke(ctx)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(show_signal()) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Build image test sets from recipes, measure where classifiers fail, find out why, and"
    " publish the results.",
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
    refuse_low_limits()


# In the order of `counterfoil --help`. Heavy imports are inside the commands, so that help is fast.
add_commands(
    app,
    demo.demo,
    recipes.init,
    recipes.recipes,
    recipes.show,
    recipes.check,
    build.tokens,
    build.build,
    calibrate.calibrate,
    review.review,
    verify.verify,
    evaluate.evaluate,
    compare.compare,
    mine.mine,
    mend.mend,
    open.open,
    publish.publish,
)


# What shells report for a program whose output has no reader: 128 and the number of SIGPIPE.
_UNREAD = 141


class _Output(io.TextIOWrapper):
    """Standard output. If its reader is gone, as `head` is after its last line, the command ends
    without a word."""

    def write(self, text: str, /) -> int:
        with self._ends_unread():
            return super().write(text)

    def flush(self) -> None:
        with self._ends_unread():
            super().flush()

    @contextlib.contextmanager
    def _ends_unread(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # Python writes what is left when it ends
            raise SystemExit(_UNREAD) from None


@contextlib.contextmanager
def _standard_output() -> Iterator[None]:
    """Write what a terminal lacks, or half a character of a file's name, as escapes: it must not
    end a finished run."""
    if not isinstance(sys.stdout, io.TextIOWrapper):
        yield
        return
    given = sys.stdout
    given.flush()
    output = _Output(
        given.buffer, given.encoding, "backslashreplace", line_buffering=given.line_buffering
    )
    try:
        with contextlib.redirect_stdout(output):
            yield
    finally:
        try:
            output.flush()
        finally:
            output.detach()  # which leaves the other's buffer open


def main() -> None:
    try:
        # commands that show progress add their own listener
        with _standard_output(), listening(lambda event: None):
            app()
    except Exception as error:
        # a library may have made an error of it
        sys.exit(show_signal() if signalled() else show_error(error))


if __name__ == "__main__":
    heed_signals()
    main()
