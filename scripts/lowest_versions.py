"""The lowest version of every dependency in pyproject.toml: as pip's constraints, or compared with
what is installed.

    python scripts/lowest_versions.py                 # name==version, a line each, for pip install
    --constraint python scripts/lowest_versions.py --installed     # a table; exits 1 where another
    version is installed

Needs nothing but Python, as it runs before anything is installed. Exits 1 where a dependency has no
lower bound.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
# name[extras]>=version, and maybe further conditions; or ==, of what is pinned.
BOUND = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?[>=]=(?P<version>[0-9][0-9a-z.]*)(?:,.*)?"
)


def declared(project: dict[str, Any]) -> list[str]:
    """Return the requirements of pyproject.toml: to build, to run, and of every extra."""
    extras = project["project"]["optional-dependencies"].values()
    return [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *chain.from_iterable(extras),
    ]


def lowest(requirements: list[str]) -> dict[str, str]:
    """Return name → lowest version. Exit with a list of names that have no lowest version, or
    two."""
    versions: dict[str, str] = {}
    wrong: list[str] = []
    for requirement in requirements:
        bound = BOUND.fullmatch(requirement)
        if bound is None:
            wrong.append(
                f"{requirement}: write name>=version, with a version that scripts/test_lowest.sh"
                " has tested"
            )
        elif versions.setdefault(bound["name"], bound["version"]) != bound["version"]:
            wrong.append(
                f"{requirement}: elsewhere it is {bound['name']}>={versions[bound['name']]}"
            )
    if wrong:
        sys.exit("\n".join([f"error: {PROJECT.name}", *wrong]))
    return versions


def lowest_python(project: dict[str, Any]) -> str:
    return project["project"]["requires-python"].removeprefix(">=")


def plain(version: str) -> str:
    """Return a version without zeros at the end and a build's local name: 6.0.0 is 6, 2.10.0+cpu is
    2.10."""
    return re.sub(r"(\.0)+$", "", version.partition("+")[0])


def left_out(project: dict[str, Any]) -> set[str]:
    """Return the packages of extras that scripts/test_lowest.sh does not install."""
    extras = project["project"]["optional-dependencies"].items()
    return set(
        lowest([requirement for extra, those in extras if extra != "test" for requirement in those])
    )


def compared(versions: dict[str, str], python: str, optional: set[str]) -> int:
    """Print a line for each version; return 1 if one is not the lowest. Optional ones may be
    absent."""
    installed = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    wanted = {"python": python, **versions}
    for name in versions:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "none"
    width = max(map(len, wanted))
    code = 0
    for name, version in wanted.items():
        remark = ""
        if installed[name] == "none" and name in optional:
            remark = "  is left out"
        elif plain(version) != plain(installed[name]):
            remark = "  is not the lowest"
            code = 1
        print(f"{name:<{width}}  >={version:<9}  {installed[name]}{remark}")
    return code


def main() -> int:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    versions = lowest(declared(project))
    if sys.argv[1:] == ["--installed"]:
        return compared(versions, lowest_python(project), left_out(project))
    for name, version in versions.items():
        print(f"{name}=={version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
