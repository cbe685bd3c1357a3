"""`counterfoil open`: all pages of a directory in the browser, where thresholds and answers can be
saved."""

from __future__ import annotations

from pathlib import Path

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.terminal import print_json, print_line, print_note, show_in_browser
from counterfoil.options import argument, options


@options
class _OpenOptions:
    directory: Path = argument(metavar="DIR")
    """A dataset's directory, or a folder that evaluate, mine or mend wrote."""
    no_browser: bool = False
    """Print the address and open no browser."""


@with_options("counterfoil open out/wardrobe-mini", _OpenOptions)
def open(given: Given) -> None:
    """Open a directory's pages in your browser: look at images, choose thresholds, answer reviews,
    save.

    Serves the pages to this machine only.
    """
    from counterfoil.opening import open_directory

    with open_directory(given.get("DIR")) as server:
        if given.json:
            print_json({"address": server.address})
        else:
            print_line(server.address)
        print_note(
            "Anyone on this machine who has this address can read these pages and save. Press"
            " Ctrl-C to stop."
        )
        if not given.get("--no-browser"):
            show_in_browser(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_note("Stopped.")
