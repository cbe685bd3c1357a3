"""Sections of RESULTS.md: between two markers, so that running a script again replaces its own and nothing else."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

_VERSIONS = ("counterfoil", "numpy", "torch", "diffusers", "transformers")


def section(
    script: str,
    title: str,
    opening: Sequence[str],
    tables: Mapping[str, Sequence[str]],
    order: Sequence[str],
    before: str = "",
) -> str:
    """Markdown from marker to marker; of `order`, parts without a table stand as they did `before`.

    script: its name, without .py, and behind a space which of its sections it is, where it has several.
    """
    begin, end = _markers(script)
    versions = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    lines = [
        begin,
        f"## {title}: `scripts/{_file(script)}`",
        "",
        f"On {platform.system()} with Python {platform.python_version()} and {versions}.",
        *opening,
        "",
    ]
    for part in order:
        first, last = f"<!-- {script}: {part} -->", f"<!-- {script}: {part} ends -->"
        if part in tables:
            lines += [first, *tables[part], "", last, ""]
        elif first in before and last in before:
            lines += [before[before.index(first) : before.index(last) + len(last)], ""]
    return "\n".join([*lines, end])


def write(
    path: Path,
    script: str,
    title: str,
    opening: Sequence[str],
    tables: Mapping[str, Sequence[str]],
    order: Sequence[str],
) -> None:
    """Put the section into the file: in place of the one before, or at its end."""
    text = path.read_text(encoding="utf-8")
    begin, end = _markers(script)
    if begin in text and end in text:
        before, after = text[: text.index(begin)], text[text.index(end) + len(end) :]
        own = text[text.index(begin) : text.index(end)]
        text = before + section(script, title, opening, tables, order, own) + after
    else:
        text = f"{text.rstrip()}\n\n{section(script, title, opening, tables, order)}\n"
    path.write_text(text, encoding="utf-8")


def _file(script: str) -> str:
    name = script.split()[0]
    return name if name.endswith(".sh") else f"{name}.py"


def _markers(script: str) -> tuple[str, str]:
    return f"<!-- {script}: begin -->", f"<!-- {script}: end -->"
