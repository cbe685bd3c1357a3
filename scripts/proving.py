"""What the proofs share as programs: their options, and tables that are printed and written as they
come."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import results_page
from program import new_parser

_SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Table:
    """What one part of a proof tells: its lines, and the worlds or classifiers behind them."""

    part: str
    lines: Sequence[str]
    measured_in: str = ""


SETTINGS_SEED = 1
PRINTED_SEED = 100


@dataclass(frozen=True, slots=True)
class SeededProof:
    """A proof whose numbers are drawn: each part is a function of a seed, which yields its table,
    again and again where it grows."""

    script: str
    title: str
    opening: Sequence[str]
    parts: Mapping[str, Callable[[int], Iterable[Table]]]

    def run(self, about: str | None) -> None:
        """Tell the parts that the command line names. about: what `--help` says."""
        settings = "another seed, on which settings are chosen; nothing is written"
        options = parser(about, self.parts, settings).parse_args()
        seed = SETTINGS_SEED if options.settings else PRINTED_SEED
        tables = chain.from_iterable(self.parts[part](seed) for part in options.parts)
        write = options.write and not options.settings
        tell(self.script, self.title, self.opening, tables, list(self.parts), write)


@contextmanager
def timed(what: str, least: float = 0) -> Iterator[None]:
    """Print to stderr how many seconds it took, if these are `least` or more."""
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    if seconds >= least:
        print(f"{what}: {seconds:.0f} s", file=sys.stderr, flush=True)


def parser(
    about: str | None, parts: Iterable[str], settings: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser with `--parts` and `--write`, and with `--settings` where a text says what
    that is."""
    made = new_parser(about)
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
