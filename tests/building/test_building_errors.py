"""Bad input to the real command: a message that says what, where and what to do; never a
traceback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from test_building_resume import PATIENCE, running_build, shards_done, wait_for, workers_of

import warm
from counterfoil.building.build_dataset import build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.errors import RunFailure, UserError
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.starting.init_recipe import init
from drawn_folders import draw_folder
from tiny_builds import build_arguments, command, published, run_command, tiny

PERCENTILE = "screen.object_threshold={percentile: 5}"


def _refused(out: Path, *changes: str, code: int = 2) -> str:
    """Return the command's refusal on stderr, in one line."""
    run = run_command(build_arguments(out, *changes))
    message = " ".join(run.stderr.split())
    assert run.returncode == code, message
    assert "Traceback" not in message
    assert "internal error" not in message
    assert run.stdout == ""
    return message


def _parquet(folder: Path, damaged: int) -> Path:
    """Write validation images as a Parquet folder; the bytes of the row `damaged` are no
    picture."""
    folder.mkdir()
    rows = [render(wardrobe_scene("validation", row)) for row in (5, 8, 15, 18)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    table = datasets.Dataset.from_dict({"image": rows, "label": [5, 8, 5, 8]}, features=features)
    contents = list(table.cast_column("image", datasets.Image(decode=False))["image"])
    contents[damaged]["bytes"] = contents[damaged]["bytes"][:100]
    plain = datasets.Dataset.from_dict({"image": contents, "label": [5, 8, 5, 8]})
    plain.to_parquet(str(folder / "validation.parquet"))
    return folder


def test_an_unknown_model_suggests_the_nearest(tmp_path: Path) -> None:
    message = _refused(tmp_path / "dataset", "generator.model=lab:sdd")
    assert "lab:sdd" in message
    assert "did you mean 'sd'?" in message


def test_unusable_output_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    assert "thesis.txt" in _refused(foreign)
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    assert "is a file" in _refused(tmp_path / "file")
    assert str(tmp_path / "file") in _refused(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_something_else_is_refused_before_an_image_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    recipe = init(
        draw_folder(tmp_path / "photos", per_class=2), tmp_path / "own.yaml", device="cpu"
    ).path
    opened: list[str] = []
    real = os.open

    def noted(path: str, *others: int, **named: int) -> int:
        opened.append(os.fspath(path))
        return real(path, *others, **named)

    monkeypatch.setattr(os, "open", noted)
    with pytest.raises(UserError, match=r"thesis\.txt"):
        build(recipe, tmp_path / "foreign", device="cpu")
    assert not [path for path in opened if "/photos/" in path]


def test_a_missing_input_dataset_is_reported_where_a_percentile_needs_it(tmp_path: Path) -> None:
    message = _refused(tmp_path / "dataset", PERCENTILE, f"source.dataset={tmp_path / 'gone'}")
    assert "gone" in message
    assert "source" in message
    assert not (tmp_path / "dataset").exists()


def test_an_unreadable_image_is_named_by_its_row(tmp_path: Path) -> None:
    source = _parquet(tmp_path / "garments", damaged=2)
    two = (
        "source.classes=[{id: a, name: sandal, source_label: 5}, {id: b, name: bag,"
        " source_label:"
        " 8}]"
    )
    message = _refused(tmp_path / "dataset", PERCENTILE, f"source.dataset={source}", two)
    assert "validation_00000002" in message
    assert "unreadable image" in message
    assert not (tmp_path / "dataset" / "README.md").exists()


# Builds in bad places and from strangers' directories: reported before long work, and nothing
# half-written stays.


Place = Callable[[Path], Path]


def in_proc(folder: Path) -> Path:
    return Path("/proc/dataset")


def far_too_long(folder: Path) -> Path:
    return folder / "/".join(["x" * 100] * 50)


@pytest.mark.parametrize("path_in", [in_proc, far_too_long])
def test_a_place_that_takes_no_files_is_reported_before_libraries_are_loaded(
    tmp_path: Path, path_in: Place
) -> None:
    out = path_in(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    # No model has this name: if anything were loaded first, the message would be about the model.
    run = run_command(build_arguments(out, "generator.model=lab:none"))
    assert run.returncode == 2, run.stderr
    assert "cannot write here" in run.stderr or "too long for a path" in run.stderr
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


def test_a_directory_that_is_removed_in_the_middle_ends_the_build_and_stays_removed(
    tmp_path: Path,
) -> None:
    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(lambda: len(workers_of(process)) == 2 and shards_done(out) >= 1, process)
        # At once, as `mv` does: removing file by file could be overtaken by a worker.
        out.rename(tmp_path / "away")
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors and "internal error" not in errors
    assert str(out) in errors
    assert not (out / "receipts").exists() and not (out / "manifest.json").exists()


def test_a_scheduler_that_there_is_not_is_reported_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    for name in ("../x", "DDIMM", "os"):
        with pytest.raises(UserError, match=r"generator\.scheduler"):
            tiny(tmp_path / "dataset", f"generator.scheduler={name}", "screen.model=lab:none")


@pytest.mark.parametrize("name", ["recipe.yaml", "receipts", "more"])
def test_a_directory_with_links_is_neither_resumed_nor_made_again(
    undisturbed: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "dataset"
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(undisturbed, out)
    elsewhere.mkdir()
    if (out / name).exists():
        (out / name).rename(elsewhere / name)
    (out / name).symlink_to(elsewhere / name)
    for run in (lambda: tiny(out), lambda: regenerate(out, tmp_path / "again", device="cpu")):
        with pytest.raises(RunFailure, match="is a link, expected a regular file of the dataset"):
            run()
    assert not (tmp_path / "again" / "manifest.json").exists()
