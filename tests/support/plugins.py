"""Packages that register objects, as `pip install` leaves them: a module, and its metadata beside
it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from counterfoil import registry
from tiny_builds import command


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    entries: dict[str, dict[str, str]],
    source: str = "",
) -> None:
    """Install a package into a folder that is on the path until the test ends.

    entries: group → name → value of the entry point. source: of the package's one module, named as
    the package.
    """
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{package}-1.2.3.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {package}\nVersion: 1.2.3\n", encoding="utf-8"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
        for group, named in entries.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    registry._points.cache_clear()


MAIN = (
    "import sys; from counterfoil.cli.entry import main; sys.argv = ['counterfoil',"
    " *sys.argv[1:]]; sys.exit(main())"
)


# A warm process has the schema of recipes without a plugin: it imports the package again.
FRESH_PACKAGE = Path(__file__).with_name("fresh_package")


def ran(
    folder: Path, plugin: Path | None, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, in a process of its own, with the packages installed in the folder
    `plugin`."""
    return ran_code(folder, plugin, MAIN, *words, **variables)


def ran_code(
    folder: Path, plugin: Path | None, code: str, *words: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as `ran` runs a command."""
    paths = [str(FRESH_PACKAGE), *([str(plugin)] if plugin else []), *filter(None, sys.path)]
    _, environment = command()
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"} | variables
    return warm.run([sys.executable, "-c", code, *words], environment, cwd=folder)
