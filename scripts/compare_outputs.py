"""Whether every number of some recorded outputs is in others: what a change to how results are told
has lost or moved.

    python scripts/compare_outputs.py OLD NEW

Both are folders that `scripts/record_outputs.sh` filled. Tables of the same name and columns are
compared cell by cell. Of the other files (JSON, tables, the text of pages) every number of OLD is
looked for in the file of the same path in NEW, and then in all of NEW's files of the same run (the
first folder or file name below NEW). Floats agree to 1e-12 of themselves. Paths that hold data
rather than results (`data/`, `candidates/`, `rounds/`, `.counterfoil/`) are left out.
"""

from __future__ import annotations

import contextlib
import csv
import html
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LEFT_OUT = {
    "data",
    "candidates",
    "rejected",
    "rounds",
    ".counterfoil",
    "figures",
    "failures",
    "model",
}
_KINDS = {".json", ".csv", ".html", ".md", ".out"}
# A comma belongs to a number only between thousands.
_NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)\.?\d*(?:e-?\d+)?")
_MOST_TOLD = 12


def files(folder: Path) -> dict[str, Path]:
    """Return path below a folder → file, of the files that hold results."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix in _KINDS)
    return {
        str(path.relative_to(folder)): path
        for path in paths
        if not _LEFT_OUT.intersection(path.relative_to(folder).parts)
    }


def numbers(path: Path) -> set[float]:
    """Return all numbers of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in (".json", ".out"):
        with contextlib.suppress(ValueError):
            return set(_of_json(json.loads(text)))
    if path.suffix == ".csv":
        text = "\n".join(cell for row in csv.reader(text.splitlines()) for cell in row)
    if path.suffix == ".html":
        text = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
        text = html.unescape(text)
    return _of_text(text)


def _of_json(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _of_json(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _of_text(text: str) -> set[float]:
    return {
        float(text_of_number.replace(",", "").replace("−", "-"))
        for text_of_number in _NUMBER.findall(text)
    }


def missing(old: set[float], new: set[float]) -> list[float]:
    """Return the numbers that are not in `new`, to 1e-12 of themselves."""
    rounded = {f"{number:.11e}" for number in new}
    return sorted(number for number in old - new if f"{number:.11e}" not in rounded)


def cells_that_differ(old: Path, new: Path) -> list[str] | None:
    """Return the differences between two tables; None if their columns or lines differ."""
    first, second = (
        list(csv.reader(path.read_text(encoding="utf-8").splitlines())) for path in (old, new)
    )
    if not first or not second or len(first) != len(second) or not set(first[0]) <= set(second[0]):
        return None
    places = [second[0].index(name) for name in first[0]]
    return [
        f"line {line}, {name}: {was!r} is now {now!r}"
        for line, (a, b) in enumerate(zip(first[1:], second[1:], strict=True), 2)
        for name, was, now in zip(first[0], a, [b[at] for at in places], strict=True)
        if was != now
    ]


def _run_of(name: str) -> str:
    return re.split(r"[/.]", name)[0]


def main(old: Path, new: Path) -> int:
    """Tell file by file what is lost; how many files lost a number."""
    old_files = files(old)
    new_files = files(new)
    runs: dict[str, set[float]] = defaultdict(set)
    for name, path in new_files.items():
        runs[_run_of(name)] |= numbers(path)
    lost = 0
    for name, path in old_files.items():
        other = new_files.get(name)
        lost_numbers = None
        if other is not None and path.suffix == ".csv":
            lost_numbers = cells_that_differ(path, other)
        if lost_numbers is None:
            gone = missing(numbers(path), numbers(other) if other else set())
            elsewhere = missing(set(gone), runs[_run_of(name)])
            lost_numbers = [f"{number:.12g}" for number in elsewhere]
        state = "same"
        if lost_numbers:
            lost += 1
            state = f"{len(lost_numbers)} lost: {'; '.join(lost_numbers[:_MOST_TOLD])}"
        print(f"{name}{'' if other else ' (gone)'}: {state}")
    return lost


if __name__ == "__main__":
    sys.exit(min(1, main(Path(sys.argv[1]), Path(sys.argv[2]))))
