"""The documentation: the site builds without a broken link and loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from typer.core import TyperGroup
from typer.main import get_command

import counterfoil
import docs_reference
from counterfoil.cli.main import app
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.recipe import load_recipe
from counterfoil.recipe.messages import message
from docs_reference import DOCS, keys

ROOT = DOCS.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site, built strictly: a link to a page or an anchor that is missing fails."""
    out = tmp_path_factory.mktemp("site")
    docs_reference.write_site(out)
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
    options = (site / "reference/options.html").read_text(encoding="utf-8")
    assert not [
        name for name in docs_reference.commands_of_classes() if f'id="{name}"' not in options
    ]
    errors = (site / "reference/errors.html").read_text(encoding="utf-8")
    assert not [code for code in message.codes if f'id="{code}"' not in errors]
    assert "Photographs" in (site / "tutorial.html").read_text(encoding="utf-8")
    recipe = (site / "reference/recipe.html").read_text(encoding="utf-8")
    assert not [name for _, name, _ in keys() if f"<code>{name}</code>" not in recipe]


def test_each_page_has_its_markdown_and_the_list_for_language_models_names_all(site: Path) -> None:
    pages = {page.relative_to(site).with_suffix(".md") for page in site.rglob("*.html")} - {
        Path("404.md")
    }
    assert pages == {page.relative_to(site) for page in site.rglob("*.md")}
    text = (site / "llms.txt").read_text(encoding="utf-8")
    entries = re.findall(r"^- \[[^]]+\]\(([^)]+)\): (.*)", text, re.MULTILINE)
    assert {Path(path) for path, _ in entries} == pages and all(
        len(description) > 20 for _, description in entries
    )
    python = (site / "reference/python.md").read_text(encoding="utf-8")
    assert "\n:::" not in python
    assert "## evaluate" in python
    assert "min_images_per_class" in python
    assert docs_reference.COLUMNS_MARK not in (site / "reference/files.md").read_text(
        encoding="utf-8"
    )


def test_every_page_shows_images_and_links_to_files_that_exist(site: Path) -> None:
    """Zensical says nothing about a missing image or file, strict or not."""
    led_to = re.compile(r"""\s(?:src|href)="([^"#?:]+)(?:[#?][^"]*)?\"""")
    missing = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the root of a server
            continue
        for path in led_to.findall(page.read_text(encoding="utf-8")):
            if not (page.parent / path).exists():
                missing.append(f"{page.name}: {path}")
    assert not missing


def test_the_source_and_licence_of_each_photograph_is_recorded() -> None:
    folder = DOCS / "images" / "photographs"
    photographs = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} - {
        "SOURCES.txt"
    }
    recorded = dict(
        re.findall(
            r"^(\S+): (.+(?:\n    .+)*)", (folder / "SOURCES.txt").read_text("utf-8"), re.MULTILINE
        )
    )
    assert recorded.keys() - {"Changed"} == photographs
    assert all("CC0" in recorded[name] or "public domain" in recorded[name] for name in photographs)


def test_the_table_of_acceptance_names_what_the_recipe_screens() -> None:
    text = (DOCS / "explanation" / "papers.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\w+) \| ([\d.]+) \| [\d.]+ \| (.+) \|$", text, re.MULTILINE)
    assert table[0] == ("base", "92.6", "object caption only")
    shifts = load_recipe("imagenet-star").all_shifts()[1:]
    assert [(name, screened) for name, _, screened in table[1:]] == [
        (shift.name, f"{shift.caption}, {shift.threshold.value:.3f}")
        for shift in shifts
        if shift.threshold
    ]
    assert f"{sum(float(released) for _, released, _ in table[1:]) / 23:.1f}" == "57.9"


def test_the_tests_that_the_papers_tables_name_exist() -> None:
    text = (DOCS / "explanation" / "papers.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:tests/)?([\w/]*test_\w+\.py)`", text))
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / "tests" / name).is_file()]


def test_each_recipe_key_has_an_example_that_the_schema_takes() -> None:
    examples = docs_reference.examples()
    fields = {(at.partition(", kind ")[0], name): field for at, name, field in keys()}
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


def test_pages_and_help_give_the_number_of_corruptions_and_list_each() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "skills").rglob("*.md")]
    pages += (ROOT / "builders" / "counterfoil" / "cli").glob("*.py")
    counted = re.compile(
        r"\b(\d+) corruptions\b|\[Corruptions\]\(corruptions\.md\) lists all (\d+)"
    )
    counts = {page.name: counted.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert {name: len(matches) for name, matches in counts.items() if matches} == {
        "README.md": 1,
        "index.md": 1,
        "corruptions.md": 2,
        "own-photos.md": 1,
    }
    assert {int("".join(number)) for matches in counts.values() for number in matches} == {
        len(CORRUPTIONS)
    }
    text = (DOCS / "how-to" / "corruptions.md").read_text(encoding="utf-8")
    listed = {
        name: kind
        for kind, names in re.findall(r"^\| (\w+) \| (`.+`) \|$", text, re.MULTILINE)
        for name in names[1:-1].split("`, `")
    }
    assert listed == {name: corruption.kind for name, corruption in CORRUPTIONS.items()}


def test_no_code_of_an_error_is_in_two_tables() -> None:
    codes = [code for table in docs_reference.MESSAGES.values() for code in table.codes]
    assert len(codes) == len({*codes})
