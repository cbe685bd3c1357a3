"""The section of RESULTS.md: between two markers, so that running the proof again replaces it and nothing else."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from directions_proof.parts import PARTS

BEGIN, END = "<!-- prove_directions: begin -->", "<!-- prove_directions: end -->"
_VERSIONS = ("counterfoil", "numpy", "scikit-learn", "torch")


def section(tables: Mapping[str, Sequence[str]], worlds: int, proof_rows: int, before: str = "") -> str:
    """Markdown from marker to marker; parts that were not measured this time stand as they did `before`."""
    versions = ", ".join(f"{name} {version(name)}" for name in _VERSIONS)
    lines = [
        BEGIN,
        "## Failure directions: `scripts/prove_directions.py`",
        "",
        f"{worlds} planted worlds, on {platform.system()} with Python {platform.python_version()} and {versions}.",
        f"Settings were chosen on seeds 0 to 3, these are others. The truth is {proof_rows:,} rows of `proof` a world.",
        "In brackets: 95 % over worlds, by bootstrap over worlds.",
        "",
    ]
    for part in PARTS:
        if part in tables:
            lines += [
                f"<!-- {part} -->",
                f"### {PARTS[part].title}",
                "",
                *tables[part],
                "",
                f"<!-- {part} ends -->",
                "",
            ]
        else:
            lines += [*_standing(part, before)]
    return "\n".join([*lines, END])


def _standing(part: str, before: str) -> list[str]:
    """A part of an earlier section, with its markers; nothing where there is none."""
    first, last = f"<!-- {part} -->", f"<!-- {part} ends -->"
    if first not in before or last not in before:
        return []
    return [before[before.index(first) : before.index(last) + len(last)], ""]


def write(
    path: Path,
    tables: Mapping[str, Sequence[str]],
    found: Mapping[str, Mapping[str, Mapping[str, Any]]],
    proof_rows: int,
) -> None:
    """Put the section into the file: in place of the one before, or at its end."""
    text = path.read_text(encoding="utf-8")
    worlds = len({name for results in found.values() for name in results})
    if BEGIN in text and END in text:
        before, after = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
        text = before + section(tables, worlds, proof_rows, text) + after
    else:
        text = f"{text.rstrip()}\n\n{section(tables, worlds, proof_rows)}\n"
    path.write_text(text, encoding="utf-8")
