"""Sections of RESULTS.md: between two markers, so that running a script again replaces its own and
nothing else.

A section has parts, a table each, of which a run may replace some. So each part tells for itself
what it was measured in, with which versions and when its table was written; the section's opening
tells what holds for all.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

import counterfoil

_VERSIONS = ("numpy", "scipy", "scikit-learn", "torch", "diffusers", "transformers")
_WRITTEN = "*Written on "
# For a part from before parts recorded it.
_UNTOLD = f"{_WRITTEN}a day, in worlds and with versions that were not kept.*"


def table(titles: Sequence[str], rows: Iterable[Iterable[object]], words: int = 1) -> list[str]:
    """Return a table as Markdown, its first `words` columns aligned to the left, the others to the
    right."""
    rules = ["--"] * words + ["--:"] * (len(titles) - words)
    return [f"| {' | '.join(map(str, cells))} |" for cells in (titles, rules, *rows)]


def by_kind(names: Sequence[str]) -> str:
    """Return `3 worlds (correlation 100 101; rare 100)`: planted worlds by kind and seed, and
    classifiers by name."""
    seeds: dict[str, list[str]] = {}
    worlds = 0
    for name in names:
        kind, _, seed = name.rpartition("-")
        if kind and seed.isdigit():
            seeds.setdefault(kind, []).append(seed)
            worlds += 1
        else:
            seeds[name] = []
    counts = [(worlds, "world"), (len(names) - worlds, "classifier")]
    counted = " and ".join(
        f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count
    )
    return (
        f"{counted}"
        f" ({'; '.join(' '.join([kind, *seeds_of_kind]) for kind, seeds_of_kind in seeds.items())})"
    )


def write(
    path: Path,
    script: str,
    title: str,
    opening: Sequence[str],
    tables: Mapping[str, Sequence[str]],
    order: Sequence[str],
    measured_in: Mapping[str, str] | None = None,
) -> None:
    """Put the section into the file, which need not be there: in place of the one before, or at its
    end.

    script: its name, without .py, a bench's behind `bench_`; and behind a space which of its
    sections it is, where it has several. Parts of `order` without a table stand as they did.
    measured_in: by part, the worlds or classifiers behind its table and how many they are.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    begin = f"<!-- {script}: begin -->"
    end = f"<!-- {script}: end -->"
    before = f"{text.rstrip()}\n\n".lstrip()
    after = "\n"
    section = ""
    if begin in text and end in text:
        before, _, section = text.partition(begin)
        section, _, after = section.partition(end)
    lines = [
        begin,
        f"## {title}: `scripts/{_command(script)}`",
        "",
        *opening,
        *([""] if opening else []),
    ]
    for part in order:
        first = f"<!-- {script}: {part} -->"
        last = f"<!-- {script}: {part} ends -->"
        if part in tables:
            lines += [
                first,
                *tables[part],
                "",
                _written((measured_in or {}).get(part, "")),
                "",
                last,
                "",
            ]
        elif first in section and last in section:
            stands = section[section.index(first) : section.index(last)].rstrip()
            lines += [stands, *([] if _WRITTEN in stands else ["", _UNTOLD]), "", last, ""]
    path.write_text(before + "\n".join([*lines, end]) + after, encoding="utf-8")


def _command(script: str) -> str:
    name = script.split()[0]
    if name.startswith("bench_"):
        return f"bench.py {name.removeprefix('bench_')}"
    return name if name.endswith(".sh") else f"{name}.py"


def _written(measured_in: str) -> str:
    """Return what one table says of itself: when it was written, what was measured, and with which
    versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    versions = f"counterfoil {counterfoil.__version__}, {versions}"
    of = f", of {measured_in}" if measured_in else ""
    return (
        f"{_WRITTEN}{date.today().isoformat()}{of}, on {platform.system()} with Python"
        f" {platform.python_version()} and"
        f" {versions}.*"
    )
