"""The manifest: any change to a published file shows, and nothing else does."""

from __future__ import annotations

import json
import platform
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.errors import RunFailure
from counterfoil.store.atomic import remove_durably, write_atomically
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.layout import PRIVATE
from counterfoil.store.manifest import check_files, published_paths, verify_files
from counterfoil.store.replacement import (
    closed_or_as_before,
    replace_dataset,
    replacement_folder,
    settle_directory,
)
from support.files import flipped, published, write_all
from support.refusals import refuses


@pytest.fixture
def dataset(cranes: Path) -> Path:
    return cranes


def test_a_finished_dataset_is_whole(built: dict[str, Path]) -> None:
    always = {"README.md", "recipe.yaml", "lock.json", "thresholds.json", "figures/sheet.png"}
    for dataset in built.values():
        assert verify_files(dataset) == []
        manifest = json.loads((dataset / "manifest.json").read_text())
        names = [file["path"] for file in manifest["files"]]
        assert names == sorted(names)
        assert {*names, "manifest.json"} == set(published(dataset)) > always


def test_one_flipped_bit_in_any_file_shows(dataset: Path) -> None:
    chance = random.Random(0)
    for name, content in published(dataset).items():
        path = dataset / name
        of_manifest = name == "manifest.json"
        for position in chance.sample(range(len(content)), 40 if of_manifest else 1):
            path.write_bytes(flipped(content, position, chance.randrange(8)))
            problems = verify_files(dataset)
            if of_manifest:
                assert any(line.startswith("manifest.json: ") for line in problems), position
            else:
                (problem,) = problems
                assert problem.startswith(f"{name}: is changed: sha256")
        path.write_bytes(content)
    assert verify_files(dataset) == []


def test_missing_unexpected_and_resized_files_are_reported_apart(dataset: Path) -> None:
    (dataset / "recipe.yaml").unlink()
    (dataset / "figures/extra.png").write_bytes(b"")
    (dataset / "README.md").write_text("# Cranes, and more\n")
    assert sorted(verify_files(dataset)) == [
        "README.md: is changed: 19 bytes, expected 9 [changed-file]",
        "figures/extra.png: is unexpected: the manifest does not list it [unexpected-file]",
        "recipe.yaml: is missing [missing-file]",
    ]


def test_what_is_not_published_is_not_compared(dataset: Path) -> None:
    for name in (
        ".counterfoil/timings.json",
        "index.html",
        ".gitattributes",
        ".cache/huggingface/x",
    ):
        (dataset / name).parent.mkdir(parents=True, exist_ok=True)
        (dataset / name).write_text("")
    assert verify_files(dataset) == []
    assert not any(name.startswith((".", "index")) for name in published_paths(dataset))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"files": 3}',
        '{"files": [{"path": "a"}]}',
        '{"files": [{"path": 1, "size": "", "sha256": 2}]}',
    ],
)
def test_a_manifest_of_another_form_is_reported(tmp_path: Path, content: str) -> None:
    assert [problem.code for _, problem in check_files(tmp_path).problems] == ["not-finished"]
    (tmp_path / "manifest.json").write_text(content)
    assert [problem.code for _, problem in check_files(tmp_path).problems] == ["damaged-file"]


def test_nothing_in_a_dataset_names_this_machine(built: dict[str, Path]) -> None:
    for dataset in built.values():
        for name, content in published(dataset).items():
            assert str(dataset.parent).encode() not in content, name
            assert platform.node().encode() not in content, name


# A dataset replaces another completely or not at all, at whatever step a run is killed.


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
    """Write an old dataset with a finished new one beside it."""
    write_all(directory, OLD | HIDDEN)
    write_all(replacement_folder(directory), NEW)
    return directory


class Killed(BaseException):
    """Raised to end a process abruptly."""


class Killer:
    """Ends work just before its n-th change of a name; what it does on its way out changes nothing
    on the disk."""

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
        """Do the work, ended before its change of that number, and return whether it had one."""
        self.left = step
        self.killed = False
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


def test_a_run_killed_at_any_step_leaves_the_old_or_comes_to_the_new(
    memory_folder: Path, killer: Killer
) -> None:
    outcomes = []
    for step in range(200):
        directory = begun(memory_folder / str(step))
        killed = killer.met(step, lambda directory=directory: swap(directory))
        files = files_of(directory)
        assert "lock.json" in files, "what pins the inputs is never absent"
        if "manifest.json" in files:
            assert files in (OLD | HIDDEN, NEW | HIDDEN), "a manifest stands for a whole dataset"
        if (
            "receipts/base-00000.json" in files
            and files["receipts/base-00000.json"] == "old receipt"
        ):
            assert files["data/base/test-00000.parquet"] == "old data", (
                "receipts never tell of another's data"
            )
        # The next run may be killed too, at every step of the rest.
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
    assert all(outcome == NEW | HIDDEN for outcome in outcomes[decided:]), (
        "what is decided stays decided"
    )
    assert len(outcomes) > 12


def test_a_closing_killed_at_any_step_leaves_the_dataset_as_before(
    memory_folder: Path, killer: Killer
) -> None:
    closing = ("README.md", "croissant.json", "evaluation/results.json", "manifest.json")
    before = OLD | HIDDEN | {"evaluation/results.json": "old", "evaluation/old.csv": "old"}
    after = before | dict.fromkeys(closing, "new")

    def close(directory: Path) -> None:
        with directory_lock(directory), closed_or_as_before(directory):
            remove_durably(directory / "manifest.json")
            for name in closing:
                write_atomically(directory / name, b"new")

    outcomes = []
    for step in range(200):
        directory = memory_folder / str(step)
        write_all(directory, before)
        killed = killer.met(step, lambda directory=directory: close(directory))
        again = 0
        while killer.met(again, lambda directory=directory: settle_directory(directory)):
            again += 1
        outcomes.append(files_of(directory))
        assert outcomes[-1] in (before, after) and not replacement_folder(directory).parent.exists()
        shutil.rmtree(directory)
        if not killed:
            break
    assert outcomes[0] == before and outcomes[-1] == after and len(outcomes) > 12

    def fail(directory: Path) -> None:
        with directory_lock(directory), closed_or_as_before(directory):
            remove_durably(directory / "manifest.json")
            write_atomically(directory / "README.md", b"new")
            raise RunFailure("the disk is full")

    write_all(directory, before)
    with pytest.raises(RunFailure, match="the disk is full"):
        fail(directory)
    assert files_of(directory) == before and not replacement_folder(directory).parent.exists()


def test_what_was_only_begun_is_cleared_away(tmp_path: Path) -> None:
    settle_directory(begun(tmp_path))
    assert files_of(tmp_path) == OLD | HIDDEN
    assert not replacement_folder(tmp_path).parent.exists()


def test_nothing_is_settled_under_another_process(tmp_path: Path) -> None:
    begun(tmp_path)
    with directory_lock(tmp_path), refuses("in-use", tmp_path):
        settle_directory(tmp_path)
    assert replacement_folder(tmp_path).is_dir()


def test_a_damaged_journal_is_reported(tmp_path: Path) -> None:
    begun(tmp_path)
    (replacement_folder(tmp_path).parent / "swap.json").write_text('{"new": 3}')
    with pytest.raises(RunFailure):
        settle_directory(tmp_path)
    assert files_of(tmp_path) == OLD | HIDDEN
