"""A mining method of a plugin: its own settings, and, without captions, its own hypotheses without
a CLIP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mined_examples import mine_sneakers

from counterfoil import registry
from counterfoil.errors import UserError
from support.plugins import install
from support.refusals import problems_of

SOURCE = """
from dataclasses import replace
from pydantic import Field
from counterfoil.mining.methods.slices import find_slices
from counterfoil.plugins import FindMethod
from counterfoil.recipe.schema_mine import SlicesSettings

class Settings(SlicesSettings):
    first: int = Field(default=1, ge=1)

def first_groups(half, mine, settings, workers):
    groups = find_slices(half, mine, settings, workers)
    return replace(groups, hypotheses=groups.hypotheses[: settings.first])

FIRST = FindMethod(Settings, first_groups)
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = {"counterfoil.methods": {"first_groups": "first_groups:FIRST"}}
    install(tmp_path / "plugin", monkeypatch, "first_groups", entries, SOURCE)
    yield
    registry._points.cache_clear()
    sys.modules.pop("first_groups", None)


def test_its_hypotheses_are_tested_and_reported(tmp_path: Path) -> None:
    settings = ("mine.settings.permutations=null", "mine.settings.first=2", "mine.others=[]")
    result = mine_sneakers(tmp_path / "out", *settings, method="first_groups", limit=300)
    assert result.findings.method.name == "first_groups"
    assert len(result.findings.findings) == 2
    assert result.files["report"].is_file()


def test_its_settings_are_checked_by_its_own_section(tmp_path: Path) -> None:
    problems = problems_of(
        mine_sneakers,
        tmp_path,
        "mine.settings.permutations=null",
        "mine.settings.first=0",
        method="first_groups",
    )
    assert "mine.settings.first" in problems[0]
    with pytest.raises(UserError, match="did you mean 'first_groups'"):
        mine_sneakers(tmp_path, method="first_group")
