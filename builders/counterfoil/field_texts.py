"""Read the texts under the fields of classes, of options and of a recipe's sections, from their code.

Help shows them before the libraries of these classes load. So the code of what is not imported yet
is read too: a recipe's keys, and the tables of what is registered, for texts that name it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path

from counterfoil.registry import plugin_names

_PACKAGE = Path(__file__).parent
# A place in a text for what is registered: {names of engines}, {prefixes of classifiers}.
_REGISTERED = re.compile(r"\{(names|prefixes)\s+of\s+([a-z\s]+)\}")
_REGISTRIES = {
    "classifiers": "models/classifiers/__init__.py",
    "detectors": "models/detectors/__init__.py",
    "engines": "engines/__init__.py",
    "exports": "evaluation/failure_folder.py",
    "methods": "mining/methods/__init__.py",
    "trackers": "evaluation/trackers.py",
}


def texts_of(declared: type) -> dict[str, str]:
    """Return the texts under the fields of a class and of its bases, by field."""
    texts = {}
    for base in declared.__mro__:
        module = sys.modules.get(base.__module__)
        file = str(getattr(module, "__file__", None))
        if file.endswith(".py"):
            of_module = _texts(Path(file))
            texts = of_module.get(base.__name__, {}) | texts
    return {name: _filled(text) for name, text in texts.items()}


def key_text(key: str) -> str:
    """Return the text of a recipe's key, such as `mine.method`."""
    section, _, name = key.partition(".")
    declared = section.capitalize()
    for file in sorted(_PACKAGE.glob("recipe/schema_*.py")):
        code = file.read_text(encoding="utf-8")
        if f"class {declared}(" in code:
            texts = _texts(file)[declared]
            return _filled(texts[name])
    raise KeyError(key)


def paragraph_lines(text: str) -> str:
    """Return a text with one line for each paragraph and for each entry of a list."""
    return re.sub(r"(?<!\n)\n(?!\n|- ) *", " ", text)


@functools.cache
def _texts(file: Path) -> dict[str, dict[str, str]]:
    """Return the text under each field of each class of a Python file."""
    texts: dict[str, dict[str, str]] = {}
    module = ast.parse(file.read_bytes())
    for declared in module.body:
        if not isinstance(declared, ast.ClassDef):
            continue
        of_fields = texts[declared.name] = {}
        for name, text in pairwise(declared.body):
            match name, text:
                case ast.AnnAssign(ast.Name(field)), ast.Expr(ast.Constant(str(words))):
                    # With a character before it, a text that lacks a first paragraph keeps lacking it.
                    clean = inspect.cleandoc(f".{words}")
                    of_fields[field] = clean[1:]
    return texts


def _filled(text: str) -> str:
    """Return a text with names in its places: our own, then those of plugins."""
    return _REGISTERED.sub(_names, text)


def _names(gap: re.Match[str]) -> str:
    names = []
    for group in re.split(r"\s+and\s+", gap[2]):
        names += _own_names(group)
        names += plugin_names(f"counterfoil.{group}")
    after = ":" if gap[1] == "prefixes" else ""
    distinct = dict.fromkeys(names)
    return ", ".join(f"{name}{after}" for name in distinct if name)


def _own_names(group: str) -> list[str]:
    """Return the names of the table from which a registry is made."""
    file = _PACKAGE / _REGISTRIES[group]
    code = ast.parse(file.read_bytes())
    for node in ast.walk(code):
        match node:
            case ast.Call(ast.Name("Registry"), [_, ast.Dict(keys), *_]):
                return [ast.literal_eval(key) for key in keys if key]
    raise KeyError(group)
