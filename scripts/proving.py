"""What the proofs share as programs: their options, and tables that are printed and written as they
come."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import results_page

_SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Table:
    """What one part of a proof tells: its lines, and the worlds or classifiers behind them."""

    part: str
    lines: Sequence[str]
    measured_in: str = ""


def parser(
    about: str | None, parts: Iterable[str], settings: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser with `--parts` and `--write`, and with `--settings` where a text says what
    that is."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(parts)
    made.add_argument(
        "--parts", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names)
    )
    made.add_argument(
        "--write", action="store_true", help="put the tables into the proof's RESULTS.md"
    )
    if settings is not None:
        made.add_argument("--settings", action="store_true", help=settings)
    return made


def tell(
    script: str,
    title: str,
    opening: Sequence[str],
    tables: Iterable[Table],
    order: Sequence[str],
    write: bool,
) -> None:
    """Print tables as they come, and put each into the RESULTS.md beside the proof's parts where
    `write`.

    script: as `results_page.write` takes it; the folder of `prove_x` is `x_proof`, or this one
    where there is none.
    """
    folder = _SCRIPTS / f"{script.split()[0].removeprefix('prove_')}_proof"
    page = (folder if folder.is_dir() else _SCRIPTS) / "RESULTS.md"
    for table in tables:
        print("\n".join([*table.lines, ""]), flush=True)
        if write:
            measured_in = {table.part: table.measured_in}
            results_page.write(
                page, script, title, opening, {table.part: table.lines}, order, measured_in
            )
