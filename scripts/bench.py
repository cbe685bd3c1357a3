"""Measure what something costs, beside what others would do, in one run: a bench by its name, a
file of `benches/`.

python scripts/bench.py build --candidates 17 20 50 --write      # print its tables; put them into
scripts/RESULTS.md python scripts/bench.py guidance --help                          # what it
measures, and its own options
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import results_page
from program import new_parser

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS / "RESULTS.md"
BENCHES = (
    "bugs", "build", "corrupt", "directions", "evaluate", "gpu", "guidance", "padding", "peers", "scale",
    "start", "tokens",
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Run a bench: `words` are its name and its options."""
    chooser = new_parser(__doc__)
    chooser.add_argument("bench", choices=BENCHES)
    chosen = chooser.parse_args(words[:1]).bench
    bench = importlib.import_module(f"benches.{chosen}")
    parser = new_parser(bench.__doc__)
    parser.prog = f"bench.py {chosen}"
    bench.add_options(parser)
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FILE",
        help="put the tables there as they come",
    )
    options = parser.parse_args(words[1:])
    tables = {}
    failed = False
    for page in bench.measure(options):
        tables = page.tables
        failed = page.failed
        if options.write is not None:
            name = f"bench_{chosen} {page.variant}".rstrip()
            results_page.write(
                options.write,
                name,
                bench.TITLE,
                page.opening,
                tables,
                bench.PARTS,
                page.measured_in,
            )
    print("\n".join(line for lines in tables.values() for line in (*lines, "")))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
