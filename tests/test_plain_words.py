"""Plain words in code: docstrings begin with a verb, names are nouns, a public function name has
one meaning.

Counts may only fall: a limit is what a folder has today, and a commit that lowers a count lowers
its limit.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Words:
    """The words of a file, each with where it is."""

    docstrings: list[tuple[str, str]]
    """Those of functions. A property has a noun phrase, as an attribute has, and is left out."""
    comments: list[tuple[str, str]]
    vague: list[tuple[str, str]]
    """Arguments and variables with a name that says nothing."""


@functools.cache
def words_of(path: Path) -> Words:
    text = path.read_text(encoding="utf-8")
    words = Words([], [], [])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            docstring = ast.get_docstring(node)
            if docstring and "property" not in " ".join(marks):
                words.docstrings.append((f"{shown(path)}:{node.lineno}", docstring))
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name in VAGUE:
            words.vague.append((f"{shown(path)}:{node.lineno}", name))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words.comments.append((f"{shown(path)}:{token.start[0]}", token.string))
    return words


def without_verb(words: Words) -> list[str]:
    return [where for where, text in words.docstrings if text.split()[0].strip(",.:") in NO_VERBS]


def riddles(words: Words) -> list[str]:
    return [
        f"{where}: {match.group()}"
        for where, text in (*words.docstrings, *words.comments)
        for match in RIDDLES.finditer(text)
    ]


def vague_names(words: Words) -> list[str]:
    return [f"{where}: {name}" for where, name in words.vague]


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


LIMITS: dict[Path, dict[Callable[[Words], list[str]], int]] = {
    PACKAGE: {without_verb: 0, riddles: 1, vague_names: 34},
    ROOT / "scripts": {without_verb: 0, riddles: 0, vague_names: 10},
    ROOT / "tests": {without_verb: 0, riddles: 0, vague_names: 0},
}


@pytest.mark.parametrize("folder", LIMITS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("count", LIMITS[PACKAGE], ids=lambda count: count.__name__)
def test_counts_only_fall(count: Callable[[Words], list[str]], folder: Path) -> None:
    limit = LIMITS[folder][count]
    lines = [line for path in modules(folder) for line in count(words_of(path))]
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
    texts = [text for path in modules() for _, text in words_of(path).docstrings]
    assert Counter(text.split()[0] for text in texts)["Return"] > 100
