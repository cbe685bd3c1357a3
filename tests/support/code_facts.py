"""Facts of Python files for the checks of the house. Each file is parsed once a run."""

from __future__ import annotations

import ast
import functools
import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_datasets import Once

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "builders" / "counterfoil"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CROWDING = (
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
)
NESTING = (
    ast.Call,
    ast.Dict,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.keyword,
    ast.Starred,
)
# Every token but layout. An f-string is one token in every version of Python.
TOKEN = re.compile(
    r"""
    [A-Za-z]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |\#[^\n]*
    |[^\W\d]\w*
    |0[xXbBoO]\w+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d[\d_]*)?[jJ]?
    |\.\.\.|\*\*=|//=|>>=|<<=|->|:=|[=!<>+\-*/%&|^@]=|\*\*|//|<<|>>
    |[^\s\\]
    """,
    re.VERBOSE | re.DOTALL,
)
PICKLING = {
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
}
UNSAFE_YAML = {
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
}
TAKES_ANY_CLASS = re.compile(
    r"\bAuto(Tokenizer|Processor|ImageProcessor|Config|Model\w*)\.from_pretrained$"
)
NAME_OF_TYPE = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
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
# Fields that hold names and operators.
NO_NODES = {
    "arg",
    "asname",
    "attr",
    "conversion",
    "ctx",
    "id",
    "is_async",
    "kind",
    "level",
    "module",
    "name",
    "op",
    "ops",
    "simple",
    "type_comment",
}

Nodes = dict[type[ast.AST], list[Any]]
Lines = list[tuple[int, str]]


@dataclass
class CodeFacts:
    """Facts of a file. Lines come first."""

    length: int
    """Lines."""
    tokens: int = 0
    """Tokens without comments and docstrings."""
    token_lines: int = 0
    """Lines that have one."""
    body_tokens: int = 0
    """Tokens in bodies of functions."""
    body_statements: int = 0
    crowded: int = 0
    """Statements in which an argument, an item or a value has several comprehensions or conditional
    expressions."""
    docstrings: Lines = field(default_factory=list)
    """Those of functions. A property has a noun phrase, as an attribute has, and is left out."""
    comments: Lines = field(default_factory=list)
    vague: Lines = field(default_factory=list)
    """Arguments and variables with a name that says nothing."""
    imports: list[tuple[int, int, str]] = field(default_factory=list)
    """Line, level and dotted name of each import, also in a function or only for types."""
    imports_that_run: list[str] = field(default_factory=list)
    """Names that are imported from modules, without those that are for types only."""
    names_read: list[str] = field(default_factory=list)
    """The last name of everything that is read. Imports alone read nothing."""
    unsafe: Lines = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """At the top, as the next ones."""
    classes: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    """Public classes and names of types (`Row = Mapping[str, Any]`) without type variables."""
    pads_to_six: int = 0
    """Values that are formatted as `06d`."""


def nodes_of(tree: ast.AST) -> Nodes:
    """Return the nodes of a tree by class, without operators, in half the time of `ast.walk`."""
    nodes = [tree]
    by_class: Nodes = defaultdict(list)
    for node in nodes:
        by_class[type(node)].append(node)
        for name in node._fields:
            if name not in NO_NODES:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    nodes += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    nodes.append(value)
    return by_class


def crowded_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that a reader takes one by one: arguments and items, each without those
    around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, NESTING):
            yield from crowded_parts(child)
        elif isinstance(child, ast.expr):
            yield child


def is_crowded(statement: ast.stmt) -> bool:
    """Return whether an expression of a statement has several comprehensions or conditions."""
    return any(
        sum(isinstance(node, CROWDING) for node in ast.walk(part)) > 1
        for part in crowded_parts(statement)
    )


def unsafe_code(nodes: Nodes) -> Iterator[tuple[int, str]]:
    """Yield line and name of what would run a stranger's code: remote code, pickles, unsafe
    YAML."""
    for line, _, name in all_imports(nodes):
        if name.split(".")[0] in PICKLING:
            yield line, f"import {name}"
    for node in nodes[ast.Call]:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        keywords = {word.arg: word.value for word in node.keywords}
        # Unparse only the calls that matter: unparsing all takes longer than looking.
        matters = "load" in method or method == "from_pretrained" or "trust_remote_code" in keywords
        called = ast.unparse(node.func) if matters else ""
        refused = (
            ast.unparse(keywords["trust_remote_code"]) if "trust_remote_code" in keywords else None
        )
        # An Auto class takes its class from the files, and asks if their code may run.
        if refused != "False" and (
            "trust_remote_code" in keywords or TAKES_ANY_CLASS.search(called)
        ):
            yield node.lineno, f"{called} without trust_remote_code=False"
        if called in UNSAFE_YAML:
            yield node.lineno, called
        only_weights = keywords.get("weights_only")
        if called == "torch.load" and not (
            isinstance(only_weights, ast.Constant) and only_weights.value is True
        ):
            yield node.lineno, "torch.load without weights_only=True"
        if "allow_pickle" in keywords:
            yield node.lineno, "allow_pickle"


def all_imports(nodes: Nodes) -> Iterator[tuple[int, int, str]]:
    for node in nodes[ast.Import]:
        yield from ((node.lineno, 0, alias.name) for alias in node.names)
    for node in nodes[ast.ImportFrom]:
        source = f"{node.module}." if node.module else ""
        yield from ((node.lineno, node.level, f"{source}{alias.name}") for alias in node.names)


def imports_that_run(nodes: Nodes) -> Iterator[str]:
    for_types: set[int] = set()
    for node in nodes[ast.If]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for_types |= set(map(id, ast.walk(node)))
    for node in nodes[ast.ImportFrom]:
        if id(node) not in for_types:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def types_named(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not ast.unparse(node.value).startswith("TypeVar("):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if NAME_OF_TYPE.fullmatch(name))


def names_read(nodes: Nodes) -> set[str]:
    loaded = {node.id for node in nodes[ast.Name] if isinstance(node.ctx, ast.Load)}
    return loaded | {node.attr for node in nodes[ast.Attribute]}


def vague_names(nodes: Nodes) -> Iterator[tuple[int, str]]:
    for node in nodes[ast.Name]:
        if node.id in VAGUE and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
    for node in nodes[ast.arg]:
        if node.arg in VAGUE:
            yield node.lineno, node.arg


def docstrings_of_functions(nodes: Nodes) -> Iterator[tuple[int, str]]:
    for kind in FUNCTIONS:
        for node in nodes[kind]:
            marks = map(ast.unparse, node.decorator_list)
            docstring = ast.get_docstring(node)
            if docstring and "property" not in " ".join(marks):
                yield node.lineno, docstring


def count_tokens(text: str, nodes: Nodes, facts: CodeFacts) -> None:
    """Add numbers of tokens, lines and statements, and the comments."""
    ends = np.cumsum([len(line) + 1 for line in text.split("\n")])
    docstrings = {
        (node.lineno, node.col_offset)
        for node in nodes[ast.Expr]
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    in_bodies = np.zeros(len(ends) + 1, bool)
    for kind in FUNCTIONS:
        for node in nodes[kind]:
            in_bodies[node.body[0].lineno : node.end_lineno + 1] = True
    spans = np.array([match.span() for match in TOKEN.finditer(text)]).reshape(-1, 2)
    first, last = np.searchsorted(ends, spans - [0, 1], side="right").T + 1
    for index, (line, start, end) in enumerate(zip(first.tolist(), *spans.T.tolist(), strict=True)):
        if text[start] == "#":
            facts.comments.append((line, text[start:end]))
            first[index] = 0
    for line, column in docstrings:
        start = column + (ends[line - 2] if line > 1 else 0)
        first[np.searchsorted(spans[:, 0], start)] = 0
    counted = first > 0
    facts.tokens = int(counted.sum())
    facts.body_tokens = int(in_bodies[first[counted]].sum())
    lines = set(first[counted].tolist())
    for index in np.flatnonzero(counted & (last > first)):
        lines.update(range(first[index], last[index] + 1))
    facts.token_lines = len(lines)
    crowding = sorted(node.lineno for kind in CROWDING for node in nodes[kind])
    for kind, of_kind in nodes.items():
        if not issubclass(kind, ast.stmt):
            continue
        for node in of_kind:
            facts.body_statements += int(in_bodies[node.lineno])
            marks = getattr(node, "decorator_list", None)
            begins = marks[0].lineno if marks else node.lineno
            inside = bisect_right(crowding, node.end_lineno) - bisect_left(crowding, begins)
            facts.crowded += inside > 1 and is_crowded(node)


def facts_of_text(text: str) -> CodeFacts:
    tree = ast.parse(text)
    nodes = nodes_of(tree)
    facts = CodeFacts(
        len(text.splitlines()),
        docstrings=[*docstrings_of_functions(nodes)],
        vague=[*vague_names(nodes)],
        imports=[*all_imports(nodes)],
        imports_that_run=[*imports_that_run(nodes)],
        names_read=sorted(names_read(nodes)),
        unsafe=[*unsafe_code(nodes)],
        functions=[node.name for node in tree.body if isinstance(node, FUNCTIONS)],
        classes=[node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        types=[*types_named(tree)],
        pads_to_six=sum(
            node.format_spec is not None and ast.unparse(node.format_spec) == "f'06d'"
            for node in nodes[ast.FormattedValue]
        ),
    )
    count_tokens(text, nodes, facts)
    return facts


def modules(folder: Path = PACKAGE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def all_facts() -> dict[str, CodeFacts]:
    """Return the facts of every file of package, scripts and tests, by path from the root."""
    paths = [*modules(), *modules(ROOT / "scripts"), *modules(ROOT / "tests")]
    return {shown(path): facts_of_text(path.read_text(encoding="utf-8")) for path in paths}


@functools.cache
def _read(path: Path) -> dict[str, CodeFacts]:
    facts = json.loads(path.read_text(encoding="utf-8"))
    return {name: CodeFacts(**of_file) for name, of_file in facts.items()}


@pytest.fixture(scope="session")
def code_facts(once_a_run: Once) -> dict[str, CodeFacts]:
    """Return `all_facts()`, made once a run."""

    def make(folder: Path) -> None:
        folder.mkdir()
        facts = {name: asdict(of_file) for name, of_file in all_facts().items()}
        (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")

    return _read(once_a_run("code-facts", make) / "facts.json")


def of_folder(facts: dict[str, CodeFacts], *folders: Path) -> dict[str, CodeFacts]:
    """Return the facts of the files in these folders, in the order of their paths."""
    beginnings = tuple(f"{shown(folder)}/" for folder in folders)
    return {name: of_file for name, of_file in facts.items() if name.startswith(beginnings)}
