"""`counterfoil open`: all pages of a directory in the browser, where thresholds and answers can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from counterfoil.cli.options import JsonOption
from counterfoil.cli.terminal import note, print_json, say, show_in_browser

app = typer.Typer()


@app.command(epilog="Example: counterfoil open out/wardrobe-mini")
def open(
    directory: Annotated[
        Path, Argument(metavar="DIR", help="A dataset's directory, or a folder that evaluate, mine or mend wrote.")
    ],
    no_browser: Annotated[bool, Option("--no-browser", help="Print the address and open no browser.")] = False,
    json: JsonOption = False,
) -> None:
    """Open a directory's pages in your browser: look at images, choose thresholds, answer reviews, save.

    Serves the pages to this machine only.
    """
    from counterfoil.opening import open_directory

    with open_directory(directory) as server:
        if json:
            print_json({"address": server.address})
        else:
            say(server.address)
        note("Anyone on this machine who has this address can read these pages and save. Press Ctrl-C to stop.")
        if not no_browser:
            show_in_browser(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            note("Stopped.")
