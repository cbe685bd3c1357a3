"""Plain words in code: docstrings begin with a verb, names are nouns, a public function name has
one meaning.

Counts may only fall: a limit is what a folder has today, and a commit that lowers a count lowers
its limit.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from test_house import PACKAGE, ROOT, modules, shown, tree_of

NO_VERBS = {
    "A",
    "An",
    "How",
    "None",
    "The",
    "Those",
    "What",
    "Where",
    "Whether",
    "Which",
    "Who",
    "Whoever",
}
RIDDLES = re.compile(
    r"\bnone where\b|(?<!there )\b(?-i:is none)\b|\bof no\b|\bof none\b|\bstands\b(?!"
    r" for)|\b(?:told|tells)\b"
    r"|\b(?:lies|lie)\b(?! (?:in|inside|on|at|nearer)\b)"
    r"|\b(?:nobody|somebody|whoever|whosoever)\b|\bwhether\b[^.;:]*\bor not\b",
    re.IGNORECASE,
)
VAGUE = {
    "asked",
    "found",
    "here",
    "it",
    "one",
    "own",
    "place",
    "said",
    "their",
    "theirs",
    "there",
    "told",
}
VERBS_OF_KINDS = {"describe", "find", "load"}
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield where each docstring of a function is, and its text; a property has a noun phrase, as
    an attribute has."""
    for path in modules(folder):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, DOCUMENTED) or any(
                "property" in ast.unparse(mark) for mark in node.decorator_list
            ):
                continue
            if text := ast.get_docstring(node):
                yield f"{shown(path)}:{node.lineno}", text


def comments(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield where each comment is, and its text."""
    for path in modules(folder):
        for token in tokenize.generate_tokens(
            io.StringIO(path.read_text(encoding="utf-8")).readline
        ):
            if token.type == tokenize.COMMENT:
                yield f"{shown(path)}:{token.start[0]}", token.string


def without_verb(folder: Path) -> list[str]:
    return [where for where, text in docstrings(folder) if text.split()[0].strip(",.:") in NO_VERBS]


def riddles(folder: Path) -> list[str]:
    return [
        f"{where}: {match.group()}"
        for where, text in (*docstrings(folder), *comments(folder))
        for match in RIDDLES.finditer(text)
    ]


def vague_names(folder: Path) -> list[str]:
    names = []
    for path in modules(folder):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE:
                names.append(f"{shown(path)}:{node.lineno}: {node.id}")
            elif isinstance(node, ast.arg) and node.arg in VAGUE:
                names.append(f"{shown(path)}:{node.lineno}: {node.arg}")
    return names


def repeated_functions() -> list[str]:
    """Return public functions of one name in several modules; a command may have the name of what
    it calls."""
    homes: dict[str, set[str]] = {}
    for path in modules():
        for node in tree_of(path).body:
            if (
                isinstance(node, DOCUMENTED)
                and not node.name.startswith("_")
                and "/cli/" not in shown(path)
            ):
                homes.setdefault(node.name, set()).add(shown(path))
    return [
        f"{name}: {', '.join(sorted(where))}" for name, where in homes.items() if len(where) > 1
    ]


LIMITS: dict[Path, dict[Callable[[Path], list[str]], int]] = {
    PACKAGE: {without_verb: 0, riddles: 1, vague_names: 34},
    ROOT / "scripts": {without_verb: 0, riddles: 0, vague_names: 10},
    ROOT / "tests": {without_verb: 0, riddles: 0, vague_names: 0},
}


@pytest.mark.parametrize("folder", LIMITS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("count", LIMITS[PACKAGE], ids=lambda count: count.__name__)
def test_counts_only_fall(count: Callable[[Path], list[str]], folder: Path) -> None:
    limit = LIMITS[folder][count]
    lines = count(folder)
    by_file = Counter(line.partition(":")[0] for line in lines)
    assert len(lines) <= limit, f"{len(lines)}, more than {limit}: {by_file.most_common()}"


def test_the_name_of_a_function_has_one_meaning() -> None:
    assert not [
        line for line in repeated_functions() if line.partition(":")[0] not in VERBS_OF_KINDS
    ]


def test_the_checks_see_what_they_look_for() -> None:
    assert RIDDLES.findall("What is none where nobody told it, if there is none") == [
        "is none",
        "nobody",
        "told",
    ]
    assert Counter(text.split()[0] for _, text in docstrings(PACKAGE))["Return"] > 100
