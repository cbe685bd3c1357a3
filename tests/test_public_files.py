"""What registries and archives read of the repository: skills, their marketplace, and the citation."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

import counterfoil
from counterfoil.cli.main import app

ROOT = Path(__file__).parents[1]
SKILLS = sorted((ROOT / "skills").rglob("SKILL.md"))
# agentskills.io/specification: each field of the head, with the most characters of a text.
MOST = {"name": 64, "description": 1024, "license": None, "compatibility": 500}
FIELDS = {*MOST, "metadata", "allowed-tools"}
MOST_LINES = 500


def parts(skill: Path) -> tuple[dict[str, object], str]:
    """Return the fields of a skill's head, and its body."""
    _, head, body = skill.read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(head), body


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.parent.name)
def test_a_skill_has_the_form_that_agents_read(skill: Path) -> None:
    facts, body = parts(skill)
    assert {"name", "description"} <= facts.keys() <= FIELDS
    assert facts["name"] == skill.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", str(facts["name"]))
    for field, most in MOST.items():
        text = facts.get(field, "absent")
        assert isinstance(text, str) and text.strip() == text != "", field
        assert most is None or len(text) <= most, field
    metadata = facts.get("metadata", {})
    assert isinstance(metadata, dict)
    assert all(isinstance(text, str) for entry in metadata.items() for text in entry)
    assert len(body.splitlines()) < MOST_LINES
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", body):
        assert (skill.parent / link).is_file() and link.count("/") <= 1, link


def test_the_skill_names_commands_and_files_that_exist() -> None:
    [skill] = SKILLS
    _, text = parts(skill)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = re.findall(r"^\$ counterfoil (.*)", text, re.MULTILINE)
    assert len(commands) == 4
    for line in commands:
        name, *arguments = shlex.split(line)
        group.commands[name].make_context(name, arguments).close()
    options = {"--help"}
    for command in group.commands.values():
        for param in command.params:
            options.update(param.opts)
    assert set(re.findall(r"--[a-z][a-z-]+", text)) <= options
    assert all((ROOT / path).is_file() for path in re.findall(r"`(recipes/[^`]+)`", text))


def test_the_marketplace_lists_every_skill() -> None:
    text = (ROOT / ".claude-plugin" / "marketplace.json").read_text(encoding="utf-8")
    marketplace = json.loads(text)
    assert marketplace["owner"]["name"]
    listed = []
    for plugin in marketplace["plugins"]:
        assert {"name", "description", "source"} <= plugin.keys()
        source = ROOT / plugin["source"]
        listed += [(source / path / "SKILL.md").resolve() for path in plugin["skills"]]
    assert sorted(listed) == SKILLS


def test_the_version_is_told_alike() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    marketplace = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text("utf-8"))
    versions = {citation["version"], marketplace["metadata"]["version"]}
    for skill in SKILLS:
        facts, _ = parts(skill)
        metadata = facts["metadata"]
        assert isinstance(metadata, dict)
        versions.add(metadata["counterfoil-version"])
    assert versions == {counterfoil.__version__}


def test_the_citation_has_the_day_of_a_released_version_and_a_doi_that_is_one() -> None:
    """Require no day of a version that is not released, and no DOI that no archive gave."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(
        rf"^## {re.escape(counterfoil.__version__)}(?:, (.*))?$", changes, re.MULTILINE
    )
    assert heading is not None
    released = re.fullmatch(r"\d{4}-\d{2}-\d{2}", heading[1] or "")
    day = date.fromisoformat(released[0]) if released else None
    assert citation.get("date-released") == day
    assert re.fullmatch(r"10\.\d{4,9}/\S+", citation.get("doi", "10.1234/absent"))
