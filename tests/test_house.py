"""The package is as CONTRIBUTING.md describes it: layers, small files, plain names, no remote code,
no pickles."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator

import pytest

import counterfoil
from counterfoil import plugins
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.evaluation.results import Evaluation
from counterfoil.recipe.tasks import TASKS
from counterfoil.registry import part_named
from counterfoil.report.results import NESTED
from support.code_facts import (
    PACKAGE,
    ROOT,
    CodeFacts,
    modules,
    nodes_of,
    of_folder,
    shown,
    unsafe_code,
)

Facts = dict[str, CodeFacts]

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


@pytest.fixture(scope="module")
def package(code_facts: Facts) -> Facts:
    return of_folder(code_facts, PACKAGE)


def inside(path: str) -> list[str]:
    """Return the parts of a path below the package."""
    return path.removeprefix(f"{shown(PACKAGE)}/").split("/")


def package_of(path: str) -> str:
    return inside(path)[0].removesuffix(".py")


def imported_names(path: str, facts: CodeFacts) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that a module of the package imports, lazily or only
    for types too."""
    package = ("counterfoil", *inside(path)[:-1])
    for line, level, name in facts.imports:
        above = package[: len(package) - level + 1] if level else ()
        yield line, ".".join((*above, name))


def packages_imported(path: str, facts: CodeFacts) -> Iterator[tuple[int, str]]:
    """Yield line and package of each import from Counterfoil; `__version__` belongs to the
    whole."""
    for line, name in imported_names(path, facts):
        first, *rest = name.split(".")
        if first == "counterfoil" and rest != ["__version__"]:
            yield line, rest[0] if rest else "counterfoil"


def may_import(package: str, other: str) -> bool:
    if package == other:
        return True
    if ASIDE in (package, other):
        return (package, other) in {(ASIDE, "errors"), *((door, ASIDE) for door in DOORS_TO_ASIDE)}
    return ORDER.index(other) < ORDER.index(package)


def test_every_package_is_in_a_layer(package: Facts) -> None:
    assert set(map(package_of, package)) - {"__init__"} == {*ORDER, ASIDE}


def test_a_package_imports_only_what_stands_before_it(package: Facts) -> None:
    wrong = [
        f"{path}:{line}: {package_of(path)} imports {other}"
        for path, facts in package.items()
        if inside(path) != ["__init__.py"]  # the public face leads to all
        for line, other in packages_imported(path, facts)
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


def test_no_modules_import_each_other_in_a_circle(package: Facts) -> None:
    imported: dict[str, set[str]] = {}
    modules_of = {
        ".".join(("counterfoil", *inside(path))).removesuffix(".py"): facts
        for path, facts in package.items()
        if not path.endswith("/__init__.py")
    }
    for module, facts in modules_of.items():
        names = set(facts.imports_that_run)
        # a module, or a name in one
        names |= {name.rpartition(".")[0] for name in names - modules_of.keys()}
        imported[module] = names & modules_of.keys()
    graphlib.TopologicalSorter(imported).prepare()  # says which modules do


def test_files_are_short(code_facts: Facts) -> None:
    assert not [path for path, facts in code_facts.items() if facts.length > LONGEST_FILE]


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
    assert bool(list(unsafe_code(nodes_of(ast.parse(code))))) is refused


def test_no_remote_code_and_no_pickles(code_facts: Facts) -> None:
    wrong = [
        f"{path}:{line}: {what}"
        for path, facts in of_folder(code_facts, PACKAGE, ROOT / "scripts").items()
        for line, what in facts.unsafe
    ]
    assert not wrong, "\n".join(wrong)


def test_the_key_of_a_sample_is_spelled_in_one_place(package: Facts) -> None:
    spelled = {path: facts.pads_to_six for path, facts in package.items() if facts.pads_to_six}
    assert spelled == {"builders/counterfoil/plan/layout.py": 1}, (
        "plan.sample_key and plan.layout.pair_id spell it"
    )


def test_the_name_of_a_class_has_one_meaning(package: Facts) -> None:
    homes: dict[str, list[str]] = {}
    for path, facts in package.items():
        # options have one name in many commands, and each its own words of help
        if package_of(path) != "cli":
            for name in facts.types:
                homes.setdefault(name, []).append(path)
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


def test_nothing_public_is_there_for_tests_alone(package: Facts, code_facts: Facts) -> None:
    used = set(counterfoil.__all__) | WAITING
    for facts in of_folder(code_facts, PACKAGE, ROOT / "scripts").values():
        used |= set(facts.names_read)
    # looked up by the corruption's name
    used |= {prefix + name for name in CORRUPTIONS for prefix in ("", "draw_")}
    # what packages extend
    used |= set(plugins.__all__)
    # imported by the task that names it
    used |= {name.rpartition(":")[2] for _, name in parts_of_tasks()}
    unused = [
        f"{path}: {name}"
        for path, facts in package.items()
        if not path.endswith("/testing.py")  # what plugins call
        for name in (*facts.functions, *facts.classes)
        if not name.startswith("_") and name not in used
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
    tree = ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8"))
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
