"""Builds in bad places and from strangers' directories: told before the long work, and nothing half-written stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from test_building_killed import PATIENCE, running_build, shards_done, wait_for, workers_of

import warm
from counterfoil.errors import RunFailure, UserError
from counterfoil.regeneration.regenerate_dataset import regenerate
from tiny_builds import build_arguments, command, published, run_command, tiny

Place = Callable[[Path], Path]


def in_proc(folder: Path) -> Path:
    return Path("/proc/dataset")


def below_a_file(folder: Path) -> Path:
    (folder / "file").write_text("kept")
    return folder / "file" / "dataset"


def too_long(folder: Path) -> Path:
    return folder / ("x" * 300)


def far_too_long(folder: Path) -> Path:
    return folder / "/".join(["x" * 100] * 50)


PLACES = [in_proc, below_a_file, too_long, far_too_long]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_takes_no_files_is_told_before_libraries_are_loaded(tmp_path: Path, place: Place) -> None:
    out = place(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    # Without a model by this name: were anything loaded first, it would be what is told.
    run = run_command(build_arguments(out, "generator.model=lab:none"))
    assert run.returncode == 2, run.stderr
    assert "cannot write in" in run.stderr or "too long for a path" in run.stderr
    assert "internal error" not in run.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_limit_on_the_size_of_files_ends_a_build_in_words_and_it_goes_on_without(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    words, environment = command(*build_arguments(out))
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))"
    limited = f"{limit}; from counterfoil.cli.main import main; main()"
    done = warm.run([words[0], "-c", limited, *words[3:]], environment)
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr and "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "manifest.json").exists()
    tiny(out)
    assert published(out) == published(undisturbed)


def test_a_directory_that_is_removed_in_the_middle_ends_the_build_and_stays_removed(tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(lambda: len(workers_of(process)) == 2 and shards_done(out) >= 1, process)
        # At once, as `mv` does: removing file by file could be overtaken by a worker.
        out.rename(tmp_path / "away")
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert "Traceback" not in said and "internal error" not in said
    assert str(out) in said
    assert not (out / "receipts").exists() and not (out / "manifest.json").exists()


def test_a_scheduler_that_there_is_not_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    for name in ("../x", "DDIMM", "os"):
        with pytest.raises(UserError, match=r"generator\.scheduler"):
            tiny(tmp_path / "dataset", f"generator.scheduler={name}", "screen.model=lab:none")


@pytest.mark.parametrize("name", ["data", "recipe.yaml", "receipts", "more"])
def test_a_directory_with_links_is_neither_resumed_nor_made_again(undisturbed: Path, tmp_path: Path, name: str) -> None:
    out, elsewhere = tmp_path / "dataset", tmp_path / "elsewhere"
    shutil.copytree(undisturbed, out)
    elsewhere.mkdir()
    if (out / name).exists():
        (out / name).rename(elsewhere / name)
    (out / name).symlink_to(elsewhere / name)
    for run in (lambda: tiny(out), lambda: regenerate(out, tmp_path / "again", device="cpu")):
        with pytest.raises(RunFailure, match="is a link, expected a regular file of the dataset"):
            run()
    assert not (tmp_path / "again" / "manifest.json").exists()
