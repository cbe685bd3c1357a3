"""The mark of a folder is seen through any path to it, in no other folder, and is gone afterwards."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.store import directory_lock
from counterfoil.store.directory_lock import marked


def test_it_is_seen_where_the_folder_is_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    with marked(folder) as mark:
        mark.refuse_unseen()
        replace(mark, folder=tmp_path / "link").refuse_unseen()
        assert len(list(folder.rglob("mark-*"))) == 1
    assert not list(folder.rglob("mark-*"))


def test_a_folder_that_is_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_lock, "_PATIENCE", 0.0)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with marked(first) as mark:
        shutil.copytree(first, second)
        replace(mark, folder=second).refuse_unseen()  # a copy made now has it too
    with marked(first) as mark:
        for other in (second, tmp_path / "absent"):
            with pytest.raises(UserError) as refused:
                replace(mark, folder=other).refuse_unseen()
            assert f"{other} is not the same folder on" in refused.value.problems[0]
            assert "--collect" in (refused.value.hint or "")


def test_two_marks_do_not_meet(tmp_path: Path) -> None:
    with marked(tmp_path) as one, marked(tmp_path) as two:
        one.refuse_unseen()
        two.refuse_unseen()
        assert one.name != two.name
