"""What the package imports is declared, and every declared dependency has a lower bound to test."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from support.code_facts import PACKAGE, ROOT, CodeFacts, of_folder

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
RUN = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
ALL = [
    *map(Requirement, PROJECT["build-system"]["requires"]),
    *RUN,
    *(Requirement(line) for extra in EXTRAS.values() for line in extra),
]
# What an extra brings to people, and the package imports where it is asked for.
OPTIONAL = [
    Requirement(name) for extra, names in EXTRAS.items() if extra != "test" for name in names
]
# Parts of a declared dependency's interface that are packages of their own, which it pins: type →
# whose they are.
PARTS = {"annotated-types": "pydantic", "pydantic-core": "pydantic", "markupsafe": "jinja2"}


def lower_bounds(requirement: Requirement) -> list[Version]:
    of_bounds = (">=", "==")  # a pin is its own lowest version
    return [
        Version(bound.version) for bound in requirement.specifier if bound.operator in of_bounds
    ]


def test_every_dependency_has_one_lower_bound() -> None:
    assert not [str(requirement) for requirement in ALL if len(lower_bounds(requirement)) != 1]


def test_the_lowest_versions_are_those_bounds() -> None:
    line = [sys.executable, str(ROOT / "scripts" / "lowest_versions.py")]
    printed = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    pins = [Requirement(pin) for pin in printed]
    assert {pin.name: pin.specifier for pin in pins} == {
        requirement.name: Requirement(f"x=={bound}").specifier
        for requirement in ALL
        for bound in lower_bounds(requirement)
    }


def test_what_is_imported_is_declared(code_facts: dict[str, CodeFacts]) -> None:
    declared = {canonicalize_name(requirement.name) for requirement in (*RUN, *OPTIONAL)}
    assert set(PARTS.values()) <= declared
    sources = metadata.packages_distributions()
    wrong = [
        f"{path}:{line}: {name}"
        for path, facts in of_folder(code_facts, PACKAGE).items()
        for line, level, name in facts.imports
        if (top := name.split(".")[0]) not in {"counterfoil", *sys.stdlib_module_names}
        and not level
        if not {canonicalize_name(project) for project in sources.get(top, [])}
        & (declared | PARTS.keys())
    ]
    assert not wrong, "\n".join(wrong)
