"""How much a line and a statement hold, in each folder: it may only fall.

`python tests/test_density.py` lowers the numbers of density.txt to what they are now, and raises
none.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.code_facts import PACKAGE, CodeFacts, all_facts, is_crowded, shown

LIMITS = Path(__file__).with_name("density.txt")


@dataclass(frozen=True)
class Density:
    """The numbers of a folder."""

    tokens_a_line: float
    """Tokens without docstrings, for each line that has one."""
    tokens_a_statement: float
    """The same in bodies of functions, for each statement."""
    crowded: int
    """Statements in which an argument, an item or a value has several comprehensions or conditional
    expressions."""

    def __str__(self) -> str:
        return f"{self.tokens_a_line:.1f} {self.tokens_a_statement:.1f} {self.crowded}"

    def lower(self, other: Density) -> Density:
        return Density(
            min(self.tokens_a_line, other.tokens_a_line),
            min(self.tokens_a_statement, other.tokens_a_statement),
            min(self.crowded, other.crowded),
        )


def folder_of(path: str) -> str:
    """Return the folder whose numbers a file counts for: the package's, the tests or the
    scripts."""
    package = shown(PACKAGE)
    if not path.startswith(f"{package}/"):
        return path.partition("/")[0]
    inside = path.removeprefix(f"{package}/").split("/")
    return f"{package}/{inside[0]}" if len(inside) > 1 else package


def density(facts: Iterable[CodeFacts]) -> Density:
    files = list(facts)
    tokens = sum(file.tokens for file in files)
    lines = sum(file.token_lines for file in files)
    body_tokens = sum(file.body_tokens for file in files)
    statements = sum(file.body_statements for file in files)
    return Density(
        round(tokens / lines, 1),
        round(body_tokens / max(1, statements), 1),
        sum(file.crowded for file in files),
    )


def densities(facts: Mapping[str, CodeFacts]) -> dict[str, Density]:
    """Return the numbers of each folder."""
    files: dict[str, list[CodeFacts]] = defaultdict(list)
    for path, of_file in facts.items():
        files[folder_of(path)].append(of_file)
    return {folder: density(of_folder) for folder, of_folder in files.items()}


def limits() -> dict[str, Density]:
    stored = {}
    for line in LIMITS.read_text(encoding="utf-8").splitlines():
        folder, a_line, a_statement, crowded = line.split()
        stored[folder] = Density(float(a_line), float(a_statement), int(crowded))
    return stored


def test_every_folder_has_a_limit(code_facts: dict[str, CodeFacts]) -> None:
    assert limits().keys() == densities(code_facts).keys()


@pytest.mark.parametrize("folder", limits())
def test_a_folder_is_no_denser_than_it_was(folder: str, code_facts: dict[str, CodeFacts]) -> None:
    now = densities(code_facts)[folder]
    limit = limits()[folder]
    hint = "Give values names, and statements one thing to do."
    assert now.lower(limit) == now, f"{folder} has {now}, and at most {limit} are allowed. {hint}"


def test_crowded_statements_are_recognised() -> None:
    crowded = [
        "x = [a for a in b] + [c for c in d]",
        "x = {a: [c for c in a] for a in b}",
        "x = (1 if a else 2) if b else 3",
        "x = [1 if a else 2 for a in b]",
    ]
    roomy = [
        "x = [a for a in b if a]",
        "x = 1 if a else 2",
        "for a in b:\n    x = [a for a in b]\n    y = [a for a in c]",
    ]
    verdicts = [
        [is_crowded(ast.parse(text).body[0]) for text in texts] for texts in (crowded, roomy)
    ]
    assert verdicts == [[True] * 4, [False] * 3]


if __name__ == "__main__":
    known = limits() if LIMITS.is_file() else {}
    rows = []
    for name, measured in densities(all_facts()).items():
        rows.append(f"{name} {measured.lower(known.get(name, measured))}\n")
    LIMITS.write_text("".join(rows), encoding="utf-8")
