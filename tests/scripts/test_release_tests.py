"""Release tests run only if what they cover changed since they passed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release_tests import GROUPS, ROOT, ReleaseGroup, due_groups, group_of

TWO = {
    "pages": ReleaseGroup(covers=("pages",)),
    "engine": ReleaseGroup(covers=("engine.py", "pages/shared.js")),
}


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a clone of two files for two groups; `.venv` is not part of it."""
    above = tmp_path / "above"
    (above / "pages").mkdir(parents=True)
    (above / "pages" / "a.html").write_text("a")
    (above / "engine.py").write_text("e")
    git(above, "init", "--quiet")
    git(above, "add", ".")
    git(above, "commit", "--quiet", "-m", "all")
    git(tmp_path, "clone", "--quiet", str(above), "clone")
    (tmp_path / "clone" / ".venv").mkdir()
    return tmp_path / "clone"


def due(checkout: Path) -> list[str]:
    return due_groups(checkout, checkout / ".venv" / "passed", TWO)


def passed(checkout: Path) -> None:
    (checkout / ".venv" / "passed.now").replace(checkout / ".venv" / "passed")


def test_a_fresh_clone_has_nothing_due(checkout: Path) -> None:
    assert due(checkout) == []


@pytest.mark.parametrize("committed", [False, True])
def test_what_differs_from_upstream_is_due(checkout: Path, committed: bool) -> None:
    (checkout / "engine.py").write_text("changed")
    if committed:
        git(checkout, "commit", "--quiet", "-am", "changed")
    assert due(checkout) == ["engine"]


def test_a_new_file_is_due_for_every_group_that_covers_it(checkout: Path) -> None:
    (checkout / "pages" / "shared.js").write_text("new")
    assert due(checkout) == ["pages", "engine"]


def test_what_passed_is_due_again_once_it_changes_committed_or_not(checkout: Path) -> None:
    (checkout / "engine.py").write_text("changed")
    assert due(checkout) == ["engine"]
    assert due(checkout) == ["engine"], "nothing has passed"
    passed(checkout)
    assert due(checkout) == []
    (checkout / "pages" / "a.html").rename(checkout / "pages" / "b.html")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "another name")
    git(checkout, "push", "--quiet", "origin", "HEAD:refs/heads/elsewhere")
    assert due(checkout) == ["pages"]


def test_a_change_during_the_run_did_not_pass(checkout: Path) -> None:
    assert due(checkout) == []
    (checkout / "engine.py").write_text("changed")
    passed(checkout)
    assert due(checkout) == ["engine"]


def test_without_git_everything_is_due(tmp_path: Path) -> None:
    assert due_groups(tmp_path, tmp_path / "passed", TWO) == ["pages", "engine"]


def test_groups_name_files_that_exist_and_cover_their_tests() -> None:
    named = {path for group in GROUPS.values() for path in (*group.covers, *group.tests)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    for group in GROUPS.values():
        assert all(
            any(Path(test).is_relative_to(path) for path in group.covers) for test in group.tests
        )


def test_a_test_is_known_by_its_folder_its_file_or_its_fixture() -> None:
    assert group_of(ROOT / "tests/scripts/test_fuzz.py", ()) == "scripts"
    assert group_of(ROOT / "tests/test_wheel.py", ()) == "wheel"
    assert group_of(ROOT / "tests/test_stats.py", ("tmp_path", "chromium")) == "browser"
    assert group_of(ROOT / "tests/test_stats.py", ("tmp_path",)) is None
