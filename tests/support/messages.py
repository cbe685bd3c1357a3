"""Checks that every package makes of its table of messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

from counterfoil.errors import MessageTable, ProblemLine

# What makes a problem of a sentence, and the values that these take by their positions.
_STATING = {"message", "refusal", "failure", "add"}
_BY_POSITION = ("name", "path", "found", "expected", "hint")


def gaps(text: str) -> set[str]:
    return {gap for _, gap, _, _ in Formatter().parse(text) if gap is not None}


def gaps_of(table: MessageTable, name: str) -> set[str]:
    """Return the gaps of a sentence and of its advice, without the hint that the table makes."""
    code = name.partition(".")[0]
    advice = table.advice.get(name) or table.advice.get(code) or ""
    names = gaps(table.sentences[name]) | gaps(advice)
    return names - {"hint"}


def said(table: MessageTable, name: str) -> ProblemLine:
    """Return a sentence with the kinds of values that its gaps are for, checked to be said whole."""
    advice = table.advice.get(name) or table.advice.get(name.partition(".")[0]) or ""
    values: dict[str, Any] = {"hint": ""}
    for _, gap, spec, _ in Formatter().parse(f"{table.sentences[name]} {advice}"):
        if gap is None or gap in values:
            continue
        values[gap] = "text"
        if "|" in (spec or "") or re.fullmatch(r"[,.\d]*[dfg]|,", spec or ""):
            values[gap] = 2
        elif spec in ("some", "first"):
            values[gap] = ["a", "b"]
    problem = table(name, "a.b", **values)
    assert problem.startswith("a.b: ")
    assert problem.endswith(f" [{problem.code}]")
    assert problem.path == "a.b"
    assert values.keys() - {"hint"} == gaps_of(table, name)
    return problem


def statements(package: Path, table: MessageTable) -> Iterator[tuple[str, set[str]]]:
    """Yield the name and the gaps of every sentence that a package states."""
    for path in sorted(package.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            called = ast.unparse(call.func).rpartition(".")[2]
            if called not in _STATING:
                continue
            values = {keyword.arg or "" for keyword in call.keywords}
            values.update(_BY_POSITION[2 : len(call.args)])
            for part in ast.walk(call.args[0]):
                if isinstance(part, ast.Constant) and part.value in table.sentences:
                    yield str(part.value), values


def mentioned(package: Path, table: MessageTable) -> set[str]:
    """Return the names of sentences that a package writes anywhere."""
    names = set()
    for path in sorted(package.rglob("*.py")):
        for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(part, ast.Constant) and part.value in table.sentences:
                names.add(str(part.value))
    return names
