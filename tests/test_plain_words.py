"""Plain words in code: docstrings begin with a verb, names are nouns, a public function name has
one meaning.

Counts may only fall: a limit is what a folder has today, and a commit that lowers a count lowers
its limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.code_facts import PACKAGE, ROOT, CodeFacts, facts_of_text, of_folder

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
VERBS_OF_KINDS = {"describe", "find", "load"}


def without_verb(facts: CodeFacts) -> list[int]:
    return [line for line, text in facts.docstrings if text.split()[0].strip(",.:") in NO_VERBS]


def riddles(facts: CodeFacts) -> list[int]:
    return [
        line for line, text in (*facts.docstrings, *facts.comments) for _ in RIDDLES.finditer(text)
    ]


def vague_names(facts: CodeFacts) -> list[int]:
    return [line for line, _ in facts.vague]


LIMITS: dict[Path, dict[Callable[[CodeFacts], list[int]], int]] = {
    PACKAGE: {without_verb: 0, riddles: 1, vague_names: 34},
    ROOT / "scripts": {without_verb: 0, riddles: 0, vague_names: 10},
    ROOT / "tests": {without_verb: 0, riddles: 0, vague_names: 0},
}


@pytest.mark.parametrize("folder", LIMITS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("count", LIMITS[PACKAGE], ids=lambda count: count.__name__)
def test_counts_only_fall(
    count: Callable[[CodeFacts], list[int]], folder: Path, code_facts: dict[str, CodeFacts]
) -> None:
    limit = LIMITS[folder][count]
    by_file = {path: count(facts) for path, facts in of_folder(code_facts, folder).items()}
    lines = {path: lines for path, lines in by_file.items() if lines}
    number = sum(map(len, lines.values()))
    assert number <= limit, f"{number}, more than {limit}: {lines}"


def test_the_name_of_a_function_has_one_meaning(code_facts: dict[str, CodeFacts]) -> None:
    """Leave out commands, which may have the name of what they call."""
    homes: dict[str, set[str]] = {}
    for path, facts in of_folder(code_facts, PACKAGE).items():
        if "/cli/" not in path:
            for name in facts.functions:
                homes.setdefault(name, set()).add(path)
    assert not {
        name: where
        for name, where in homes.items()
        if len(where) > 1 and not name.startswith("_") and name not in VERBS_OF_KINDS
    }


def test_the_checks_see_what_they_look_for(code_facts: dict[str, CodeFacts]) -> None:
    riddle = "What is none where nobody told it, if there is none"
    assert RIDDLES.findall(riddle) == ["is none", "nobody", "told"]
    of_package = of_folder(code_facts, PACKAGE).values()
    beginnings = [text.split()[0] for facts in of_package for _, text in facts.docstrings]
    assert Counter(beginnings)["Return"] > 100
    assert facts_of_text("def f(one): it = 1").vague == [(1, "it"), (1, "one")]
