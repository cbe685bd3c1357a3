"""How much a line and a statement hold, in each folder: it may only fall.

`python tests/test_density.py` lowers the numbers of density.txt to what they are now, and raises
none.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_name("density.txt")
PACKAGE = Path("builders", "counterfoil")
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
CROWDING = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.IfExp


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


def folders() -> Mapping[str, list[Path]]:
    """Return the folders that have a number each, with their files: the package's, the tests and
    the scripts."""
    files: dict[str, list[Path]] = defaultdict(list)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        inside = path.relative_to(ROOT / PACKAGE)
        files[
            "/".join((*PACKAGE.parts, *inside.parts[:1]))
            if len(inside.parts) > 1
            else PACKAGE.as_posix()
        ].append(path)
    for name in ("tests", "scripts"):
        files[name] = sorted((ROOT / name).rglob("*.py"))
    return files


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that a reader takes one by one: arguments and items, each without those
    around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(
            child, ast.Call | ast.Dict | ast.List | ast.Tuple | ast.Set | ast.keyword | ast.Starred
        ):
            yield from parts(child)
        elif isinstance(child, ast.expr):
            yield child


def is_crowded(statement: ast.stmt) -> bool:
    """Return whether an expression of a statement has several comprehensions or conditions."""
    return any(
        sum(isinstance(node, CROWDING) for node in ast.walk(part)) > 1 for part in parts(statement)
    )


def density(files: list[Path]) -> Density:
    tokens = lines = body_tokens = body_statements = crowded = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        docstrings = {
            (node.value.lineno, node.value.col_offset)
            for node in nodes
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        counted = [
            token
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in LAYOUT and token.start not in docstrings
        ]
        starts = [token.start for token in counted]
        tokens += len(starts)
        # A text may go over many lines.
        of_tokens: set[int] = set()
        for token in counted:
            of_tokens.update(range(token.start[0], token.end[0] + 1))
        lines += len(of_tokens)
        statements = [node for node in nodes if isinstance(node, ast.stmt)]
        bodies = [node for node in statements if isinstance(node, FUNCTION)]
        in_bodies = {
            line
            for node in bodies
            for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        }
        body_tokens += sum(line in in_bodies for line, _ in starts)
        body_statements += sum(node.lineno in in_bodies for node in statements)
        crowded += sum(is_crowded(node) for node in statements)
    return Density(
        round(tokens / lines, 1), round(body_tokens / max(1, body_statements), 1), crowded
    )


def limits() -> dict[str, Density]:
    stored = {}
    for line in LIMITS.read_text(encoding="utf-8").splitlines():
        folder, a_line, a_statement, crowded = line.split()
        stored[folder] = Density(float(a_line), float(a_statement), int(crowded))
    return stored


@pytest.mark.parametrize("folder", folders())
def test_a_folder_is_no_denser_than_it_was(folder: str) -> None:
    now = density(folders()[folder])
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
    for name, paths in folders().items():
        measured = density(paths)
        rows.append(f"{name} {measured.lower(known.get(name, measured))}\n")
    LIMITS.write_text("".join(rows), encoding="utf-8")
