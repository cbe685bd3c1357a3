"""The package is as CONTRIBUTING.md describes it: layers, small files, plain names, no remote code,
no pickles."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil import plugins
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.evaluation.results import Evaluation
from counterfoil.recipe.tasks import TASKS
from counterfoil.registry import part_named
from counterfoil.report.results import NESTED

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "builders" / "counterfoil"

# The packages of each layer, in order: a package imports itself, earlier ones of its layer, and
# lower layers.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *(
            "arrays",
            "errors",
            "registry",
            "field_texts",
            "options",
            "corrupting",
            "signals",
            "progress",
        ),
        *("stats", "sequential_stats", "paired_stats", "resampled_stats", "accuracy_stats"),
        "trajectory_stats",
        "detection_stats",
        *(
            "mask_stats",
            "multilabel_stats",
            "feature_stats",
            "registration",
            "image_copies",
            "regular_files",
            "parquet_pages",
            "foreign_tables",
            "documents",
        ),
    ),
    ("recipe", "report", "plan"),
    ("models", "store", "data", "engines"),
    ("prediction", "generate", "dataset", "starting", "comparing"),
    ("building", "reviewing", "evaluation"),
    ("mining", "mending", "publishing"),
    ("opening", "plugins", "testing", "cli"),
)
ORDER = [package for layer in LAYERS for package in layer]
# Aside: reached by a model's or a dataset's name, through two packages only, and knowing none of
# the layers.
ASIDE = "lab"
DOORS_TO_ASIDE = {"models", "data"}

# Lines. Tokens measure size, and test_density.py counts what a line holds.
LONGEST_FILE = 1000
NAMES_THAT_SAY_NOTHING = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "manager",
    "managers",
    "misc",
}


def modules(folder: Path = PACKAGE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), shown(path))


@pytest.fixture(autouse=True, scope="module")
def trees_go() -> Iterator[None]:
    """Drop the trees of all files, which are many objects that later tests do not need."""
    yield
    tree_of.cache_clear()


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that a module imports, lazily or only for types
    too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*above, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def packages_imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and package of each import from Counterfoil; `__version__` belongs to the
    whole."""
    package = ("counterfoil", *path.relative_to(PACKAGE).parts[:-1])
    for line, name in imported_names(tree_of(path), package):
        first, *rest = name.split(".")
        if first == "counterfoil" and rest != ["__version__"]:
            yield line, rest[0] if rest else "counterfoil"


def may_import(package: str, other: str) -> bool:
    if package == other:
        return True
    if ASIDE in (package, other):
        return (package, other) in {(ASIDE, "errors"), *((door, ASIDE) for door in DOORS_TO_ASIDE)}
    return ORDER.index(other) < ORDER.index(package)


def test_every_package_is_in_a_layer() -> None:
    packages = {package_of(path) for path in modules()} - {"__init__"}
    assert packages == {*ORDER, ASIDE}


def test_a_package_imports_only_what_stands_before_it() -> None:
    wrong = [
        f"{shown(path)}:{line}: {package_of(path)} imports {other}"
        for path in modules()
        if path.parent != PACKAGE or path.name != "__init__.py"  # the public face leads to all
        for line, other in packages_imported(path)
        if not may_import(package_of(path), other)
    ]
    assert not wrong, "\n".join(wrong)


def parts_of_tasks() -> Iterator[tuple[str, str]]:
    """Yield the package that a part of a task of our own belongs to, and the part's name."""
    for task in TASKS.bundled.values():
        for part in (task.reader, task.row_fault):
            if part is not None:
                yield "data", part
        yield "evaluation", task.measured_by


def test_parts_that_a_task_names_lie_where_other_parts_of_tasks_do() -> None:
    for package, name in parts_of_tasks():
        assert name.startswith(f"counterfoil.{package}.") and callable(part_named(name))
    for name, task in TASKS.bundled.items():
        assert part_named(task.measured_by).name == task.name == name


def imported_when_it_runs(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, at the top or in a function, but not those that only
    name types."""
    names: list[str] = []

    class Imports(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                self.generic_visit(node)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)

    Imports().visit(tree_of(path))
    for name in names:
        for module in (name, name.rpartition(".")[0]):
            if (PACKAGE.parent / module.replace(".", "/")).with_suffix(".py").is_file():
                yield module
                break


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules_of = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in modules()
        if path.name != "__init__.py"
    }
    order = graphlib.TopologicalSorter(
        {name: set(imported_when_it_runs(path)) for name, path in modules_of.items()}
    )
    order.prepare()  # says which modules do


def test_files_are_short() -> None:
    long = {
        shown(path): lines
        for folder in (PACKAGE, ROOT / "scripts", ROOT / "tests")
        for path in modules(folder)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE
    }
    assert not long


def test_names_say_what_is_inside() -> None:
    parts = {
        part: shown(path)
        for folder in (PACKAGE, ROOT / "scripts", ROOT / "tests")
        for path in modules(folder)
        for part in path.relative_to(folder).with_suffix("").parts
    }
    assert not {
        part: path for part, path in parts.items() if set(part.split("_")) & NAMES_THAT_SAY_NOTHING
    }


_TAKES_ANY_CLASS = re.compile(
    r"\bAuto(Tokenizer|Processor|ImageProcessor|Config|Model\w*)\.from_pretrained$"
)


def unsafe(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of what would run a stranger's code: remote code, pickles, unsafe
    YAML."""
    for line, name in imported_names(tree, ()):
        if name.split(".")[0] in {
            "pickle",
            "cPickle",
            "cloudpickle",
            "dill",
            "joblib",
            "marshal",
            "shelve",
        }:
            yield line, f"import {name}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
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
            "trust_remote_code" in keywords or _TAKES_ANY_CLASS.search(called)
        ):
            yield node.lineno, f"{called} without trust_remote_code=False"
        if called in {"yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"}:
            yield node.lineno, called
        if called == "torch.load" and not _is_true(keywords.get("weights_only")):
            yield node.lineno, "torch.load without weights_only=True"
        if "allow_pickle" in keywords:
            yield node.lineno, "allow_pickle"


def _is_true(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ("torch.load(path)", True),
        ("torch.load(path, weights_only=False)", True),
        ("torch.load(path, weights_only=True)", False),
        ("np.load(path)", False),
        ("np.load(path, allow_pickle=True)", True),
        ("import pickle", True),
        ("from pickle import load", True),
        ("yaml.load(text)", True),
        ("yaml.safe_load(text)", False),
        ("load_dataset(name, trust_remote_code=True)", True),
        ("AutoTokenizer.from_pretrained(folder, trust_remote_code=asked)", True),
        ("transformers.AutoProcessor.from_pretrained(folder)", True),
        ("AutoProcessor.from_pretrained(folder, trust_remote_code=False)", False),
    ],
)
def test_what_is_unsafe_would_be_seen(code: str, refused: bool) -> None:
    assert bool(list(unsafe(ast.parse(code)))) is refused


def test_no_remote_code_and_no_pickles() -> None:
    wrong = [
        f"{shown(path)}:{line}: {what}"
        for folder in (PACKAGE, ROOT / "scripts")
        for path in modules(folder)
        for line, what in unsafe(tree_of(path))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_key_of_a_sample_is_spelled_in_one_place() -> None:
    spelled = [
        shown(path)
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FormattedValue)
        and node.format_spec
        and ast.unparse(node.format_spec) == "f'06d'"
    ]
    assert spelled == ["builders/counterfoil/plan/layout.py"], (
        "plan.sample_key and plan.layout.pair_id spell it"
    )


def types_named(tree: ast.Module) -> Iterator[str]:
    """Return public classes and names of types (`Row = Mapping[str, Any]`) of a module, but no type
    variables."""
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not ast.unparse(node.value).startswith("TypeVar("):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (
            name for name in names if re.fullmatch(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", name)
        )


def test_the_name_of_a_class_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in modules():
        # options have one name in many commands, and each its own words of help
        if package_of(path) != "cli":
            for name in types_named(tree_of(path)):
                homes.setdefault(name, []).append(shown(path))
    assert not {name: where for name, where in homes.items() if len(where) > 1}


def test_every_nested_measure_has_a_name_on_the_evaluation() -> None:
    """`Evaluation.NAME` returns the facts of a nested measure, or a table of them."""
    assert not [name for name in NESTED if not hasattr(Evaluation, name)]


def test_no_file_is_called_run() -> None:
    assert not [shown(path) for path in modules() if path.stem == "run"], (
        "say what is run: build_dataset.py"
    )


# For people's own scripts, and for what is built next (a mend of weights needs no words).
WAITING = {"verify_files"}


def used_names(tree: ast.AST) -> Iterator[str]:
    """Return everything that a module reads, by its last name; imports alone use nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_nothing_public_is_there_for_tests_alone() -> None:
    face = ast.literal_eval(
        next(
            node.value
            for node in tree_of(PACKAGE / "__init__.py").body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        )
    )
    used = {
        name
        for path in (*modules(), *modules(ROOT / "scripts"))
        for name in used_names(tree_of(path))
    }
    # looked up by the corruption's name
    used |= {prefix + name for name in CORRUPTIONS for prefix in ("", "draw_")}
    # what packages extend
    used |= set(plugins.__all__)
    # imported by the task that names it
    used |= {name.rpartition(":")[2] for _, name in parts_of_tasks()}
    unused = [
        f"{shown(path)}: {node.name}"
        for path in modules()
        if path.name != "testing.py"  # what plugins call
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        if not node.name.startswith("_") and node.name not in used | WAITING | set(face)
    ]
    assert not unused, "\n".join(unused)


# What one new file and one new line add: the file with the table, its name, and the files beside it
# that are no entry.
TABLES = {
    "recipe/keep": ("KEEP_RULES", {"rule", "cells"}),
    "recipe/tasks": ("TASKS", {"task"}),
    "models/classifiers": ("CLASSIFIER_KINDS", {"classifier", "head"}),
    "models/detectors": ("DETECTOR_KINDS", {"detector", "onnx_forms"}),
    "models/generators": ("FAMILIES", {"family"}),
    "engines": ("ENGINES", {"engine", "executor", "processes", "ray_cluster"}),
    "models/chat": ("CHAT_KINDS", {"judge"}),
    "evaluation/tasks/classes/measures": (
        "MEASURES",
        set(NESTED) - {"distances", "reference"} | {"source"},
    ),
    "mining/methods": ("METHODS", {"context_proposals", "svm"}),
}


def table_of(folder: str, name: str) -> tuple[ast.Module, ast.expr]:
    tree = tree_of(PACKAGE / folder / "__init__.py")
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if (
            isinstance(target, ast.Name)
            and target.id == name
            and isinstance(node, ast.AnnAssign)
            and node.value
        ):
            return tree, node.value
    raise AssertionError(f"{folder} has no table {name}")


@pytest.mark.parametrize("folder", TABLES)
def test_a_new_kind_is_one_file_and_one_line(folder: str) -> None:
    name, beside = TABLES[folder]
    tree, table = table_of(folder, name)
    used = {node.id for node in ast.walk(table) if isinstance(node, ast.Name)}
    imported: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"  # a module of the folder, or a name in one
                module = (
                    whole
                    if (PACKAGE.parent / whole.replace(".", "/")).with_suffix(".py").is_file()
                    else node.module
                )
                imported.setdefault(module.rpartition(".")[2], set()).add(
                    alias.asname or alias.name
                )
    files = {path.stem for path in (PACKAGE / folder).glob("*.py")}
    assert beside <= files
    entries = files - {"__init__"} - beside
    assert {entry for entry in entries if not imported.get(entry, set()) & used} == set()


@pytest.mark.parametrize("folder", TABLES)
def test_the_guide_names_the_file_and_the_line(folder: str) -> None:
    name, _ = TABLES[folder]
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\*\*An? .*?(?=\n\n)", guide, re.MULTILINE | re.DOTALL)
    assert [entry for entry in entries if f"`{folder}/" in entry and f"`{name}`" in entry], folder


def test_the_guide_draws_the_layers_as_they_are() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", guide, re.MULTILINE)
    drawn: dict[int, list[str]] = {}
    for layer, packages in rows:
        drawn.setdefault(int(layer), []).extend(
            name.strip("`/ ").removesuffix(".py") for name in packages.split(" · ")
        )
    assert [tuple(drawn[layer]) for layer in sorted(drawn)] == list(LAYERS)
