"""The documentation: the site builds without a broken link, loads nothing from elsewhere, and its commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

import counterfoil
import docs_reference
from counterfoil.cli.main import app
from docs_reference import DOCS, keys

ROOT = DOCS.parent
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: any warning about a link, an anchor or a page fails."""
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(https?:)?//|<link[^>]*stylesheet[^>]*href=\"(https?:)?//"
    )
    assert not [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))]


def test_the_pages_that_code_writes_name_everything(site: Path) -> None:
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    assert not [name for name in group.commands if f"counterfoil {name}</code>" not in commands]
    python = (site / "reference/python.html").read_text(encoding="utf-8")
    assert not [name for name in counterfoil.__all__ if name[0] != "_" and f".{name}" not in python]
    assert "Photographs" in (site / "tutorial.html").read_text(encoding="utf-8")
    recipe = (site / "reference/recipe.html").read_text(encoding="utf-8")
    assert not [name for _, name, _ in keys() if f"<code>{name}</code>" not in recipe]


def test_each_recipe_key_has_an_example_that_the_schema_takes() -> None:
    examples = docs_reference.examples()
    fields = {(at, name): field for at, name, field in keys()}
    assert {(at, name) for at, section in examples.items() for name in section} <= set(fields)
    for (at, name), field in fields.items():
        example = examples.get(at, {}).get(name)
        if example is None:
            leads_to_sections = any(docs_reference._sections(field.annotation))
            assert leads_to_sections or name == "settings", f"{at}.{name} has no example"
            continue
        try:
            TypeAdapter(field.rebuild_annotation()).validate_python(example)
        except ValidationError as error:
            raise AssertionError(f"{at}.{name}: {example}: {error}") from error


def printed_commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every line in a block that a reader is told to type."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```(?:console|bash)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                for part in re.split(r"&&|;|\|(?!\|)", re.split(r"  #| > ", line)[0]):
                    if match := re.match(r"\s*(?:\$ )?(?:srun )?(counterfoil .*)", part):
                        yield page.relative_to(ROOT).as_posix(), match[1].strip()


PRINTED = sorted(set(printed_commands()))


def test_commands_are_printed_on_most_pages() -> None:
    assert len({page for page, _ in PRINTED}) >= 8 and len(PRINTED) >= 40


@pytest.mark.parametrize(("page", "line"), PRINTED)
def test_a_printed_command_is_one(page: str, line: str) -> None:
    """Its name, options and values are parsed by the command line; it does not run."""
    line = line.replace("$((SLURM_ARRAY_TASK_ID + 1))", "1").replace("…", "a")
    _, name, *arguments = shlex.split(line)
    if name.startswith("-"):
        return
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.commands.get(name)
    assert command is not None, f"{page}: {line}: no command {name!r}"
    try:
        command.make_context(name, arguments).close()
    except TyperException as error:
        raise AssertionError(f"{page}: {line}: {error}") from error
