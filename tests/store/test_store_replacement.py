"""A dataset takes another's place whole or not at all, whichever step a run is killed at."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.errors import RunFailure, UserError
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.layout import PRIVATE
from counterfoil.store.replacement import replace_dataset, replacement_folder, settle_directory
from support.files import write_all

OLD = {
    "README.md": "old card", "lock.json": "old lock", "manifest.json": "old manifest", "recipe.yaml": "old",
    "receipts/base-00000.json": "old receipt", "data/base/test-00000.parquet": "old data",
    "rejected/base/test-00000.parquet": "rejected", "tokens/a.safetensors": "token",
}  # fmt: skip
NEW = {
    "README.md": "new card", "lock.json": "new lock", "manifest.json": "new manifest", "recipe.yaml": "new",
    "receipts/base-00000.json": "new receipt", "data/base/test-00000.parquet": "new data",
    "tokens/a.safetensors": "token", "_info.json": "new",
}  # fmt: skip
HIDDEN = {".gitattributes": "kept"}
STEPS = ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree")


def files_of(directory: Path) -> dict[str, str]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    inside = {path.relative_to(directory).as_posix(): path for path in paths}
    return {name: path.read_text() for name, path in inside.items() if not name.startswith(PRIVATE)}


def begun(directory: Path) -> Path:
    """An old dataset with a finished new one beside it."""
    write_all(directory, OLD | HIDDEN)
    write_all(replacement_folder(directory), NEW)
    return directory


class Killed(BaseException):
    """A process that ends without a farewell."""


class Killer:
    """Ends work just before its n-th change of a name; what it does on its way out changes nothing on the disk."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.killed = False
        sys.addaudithook(self._meet)

    def _meet(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.left is None or event not in (*STEPS, *(("open",) if self.killed else ())):
            return
        if self.left == 0:
            self.killed = True
            raise Killed
        self.left -= 1

    def met(self, step: int, work: Callable[[], None]) -> bool:
        """Whether the work had a change of that number, before which it was ended."""
        self.left, self.killed = step, False
        try:
            work()
        except Killed:
            pass
        finally:
            self.left = None
        return self.killed


@pytest.fixture(scope="module")
def killer() -> Killer:
    return Killer()


def swap(directory: Path) -> None:
    with directory_lock(directory):
        replace_dataset(directory)


def test_the_new_dataset_takes_the_place_and_the_old_one_goes(tmp_path: Path) -> None:
    swap(begun(tmp_path))
    assert files_of(tmp_path) == NEW | HIDDEN
    assert not replacement_folder(tmp_path).parent.exists()


def test_a_run_killed_at_any_step_leaves_the_old_or_comes_to_the_new(memory_folder: Path, killer: Killer) -> None:
    outcomes = []
    for step in range(200):
        directory = begun(memory_folder / str(step))
        killed = killer.met(step, lambda directory=directory: swap(directory))
        here = files_of(directory)
        assert "lock.json" in here, "what pins the inputs is never absent"
        if "manifest.json" in here:
            assert here in (OLD | HIDDEN, NEW | HIDDEN), "a manifest stands for a whole dataset"
        if "receipts/base-00000.json" in here and here["receipts/base-00000.json"] == "old receipt":
            assert here["data/base/test-00000.parquet"] == "old data", "receipts never tell of another's data"
        # Whoever comes next may be killed too, at every step of the rest.
        again = 0
        while killer.met(again, lambda directory=directory: settle_directory(directory)):
            again += 1
        outcomes.append(files_of(directory))
        assert outcomes[-1] in (OLD | HIDDEN, NEW | HIDDEN)
        assert not replacement_folder(directory).parent.exists()
        shutil.rmtree(directory)
        if not killed:
            break
    assert outcomes[0] == OLD | HIDDEN, "killed before the decision"
    assert outcomes[-1] == NEW | HIDDEN
    decided = outcomes.index(NEW | HIDDEN)
    assert all(outcome == NEW | HIDDEN for outcome in outcomes[decided:]), "what is decided stays decided"
    assert len(outcomes) > 12


def test_what_was_only_begun_is_cleared_away(tmp_path: Path) -> None:
    settle_directory(begun(tmp_path))
    assert files_of(tmp_path) == OLD | HIDDEN
    assert not replacement_folder(tmp_path).parent.exists()


def test_nothing_is_settled_under_another_process(tmp_path: Path) -> None:
    begun(tmp_path)
    with directory_lock(tmp_path), pytest.raises(UserError, match="in use by another process"):
        settle_directory(tmp_path)
    assert replacement_folder(tmp_path).is_dir()


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    begun(tmp_path)
    (replacement_folder(tmp_path).parent / "swap.json").write_text('{"new": 3}')
    with pytest.raises(RunFailure):
        settle_directory(tmp_path)
    assert files_of(tmp_path) == OLD | HIDDEN
