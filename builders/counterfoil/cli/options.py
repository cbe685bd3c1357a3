"""Arguments and options that several commands share."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

RecipeArgument = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="A bundled name, a YAML file, or a dataset directory."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value, as in samples.candidates=5; null drops it. Repeatable.",
    ),
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where work is done: local, this machine; ray, the actors of a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="A Ray cluster that runs, or auto for this machine's. Then --device is its workers': auto, cpu or cuda;"
        " --workers, how many in all.",
    ),
]
CollectOption = Annotated[
    bool, typer.Option("--collect", help="Workers share no folder with this machine: what they make comes back to it.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]


def open_page(page: Path, wanted: bool) -> None:
    """Open a page that was written, where somebody wants that; a line on stderr where no browser is here."""
    from counterfoil.cli.progress import note

    if wanted and not show_in_browser(page.resolve().as_uri()):
        note(f"There is no browser here to open {page} in.")


def show_in_browser(address: str) -> bool:
    """Open an address in the browser; False where there is none."""
    import webbrowser

    # Without a screen a browser of text may be found, which would take the terminal.
    screenless = sys.platform.startswith("linux") and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(not screenless or os.environ.get("BROWSER")) and webbrowser.open(address)


def print_json(value: Any) -> None:
    """Print a value to stdout as JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # Names of files may hold half a character, which no terminal and no file takes; JSON spells it.
    typer.echo(text if text.isascii() or _is_text(text) else json.dumps(value, indent=2))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
