"""A folder is pinned by its content and found again by it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from counterfoil import build, evaluate, init, mend, mine
from counterfoil.data import folders as room
from counterfoil.data.folders import folder_content, placed_source
from counterfoil.data.hub_folders import listed_files
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import cached_commit
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.progress import Stage, listening
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_inputs import Source
from counterfoil.store.layout import user_cache, writable_cache
from drawn_folders import draw_folder
from support.files import write_all
from support.refusals import refuses

FILES = {
    "a.txt": b"first",
    "train/b.bin": b"\0" * 70_000,
    "train/deep/c.txt": b"",
    ".hidden/d": b"seen too",
}


def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no home folder, as in a container whose user has no account."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


def test_without_a_home_folder_a_cache_is_refused_and_a_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homeless(monkeypatch)
    for cache in (
        user_cache,
        writable_cache,
        partial(
            listed_files,
            "some/one",
            "0" * 40,
        ),
    ):
        with refuses("cannot-write", None, "no home folder") as refused:
            cache()
        assert "XDG_CACHE_HOME" in (refused.value.hint or "")
    write_all(tmp_path, FILES)
    assert set(folder_content(tmp_path).listing.files) == {*FILES}
    assert cached_commit(Source(dataset="some/one")) is None


def later() -> int:
    """Return the time in an hour, when every file is old."""
    return time.time_ns() + 3_600_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_all(tmp_path / "photos", FILES)


def remembered(cache: Path) -> Path:
    (file,) = (cache / "counterfoil" / "folders").iterdir()
    return file


@pytest.mark.parametrize(
    "write",
    [
        lambda out: init("photos", out / "own.yaml"),
        lambda out: build("own.yaml", out, device="cpu"),
        lambda out: evaluate(
            "photos:validation", {"flat": lambda batch: np.zeros((len(batch), 3))}, out=out
        ),
        lambda out: write_keys("photos:validation", out / "keys.csv"),
        lambda out: mine("own.yaml", out, target="lab:resnet10t", on=["validation"], device="cpu"),
        lambda out: mend("lab:resnet10t", "own.yaml", "balanced:label", out, device="cpu"),
    ],
    ids=["init", "build", "evaluate", "write_keys", "mine", "mend"],
)
def test_nothing_is_written_among_the_images_that_are_read(
    write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a build could never end there, and an evaluation's pictures would be read as a
    class."""
    monkeypatch.chdir(tmp_path)
    photos = draw_folder(tmp_path / "photos", per_class=2)
    init("photos", "own.yaml")
    before = folder_content(photos).sha256
    for out in (photos / "new", photos):
        with pytest.raises(UserError, match=r"lies inside the dataset|is not empty and holds no"):
            write(out)
    assert folder_content(photos).sha256 == before and not (photos / "new").exists()


def test_the_same_files_are_the_same_content_whatever_the_folder_is_called(
    folder: Path, tmp_path: Path
) -> None:
    backwards = write_all(tmp_path / "other" / "name", dict(reversed(FILES.items())))
    assert folder_content(folder).sha256 == folder_content(backwards).sha256
    assert len(folder_content(folder).listing.files) == len(FILES)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "a.txt").write_bytes(b"First"),
        lambda folder: (folder / "a.txt").rename(folder / "A.txt"),
        lambda folder: (folder / "a.txt").unlink(),
        lambda folder: (folder / "new").write_bytes(b""),
        lambda folder: (folder / ".hidden" / "d").write_bytes(b""),
    ],
)
def test_every_change_is_another_content(change: Callable[[Path], object], folder: Path) -> None:
    before = folder_content(folder, clock=later)
    change(folder)
    assert folder_content(folder, clock=later).sha256 != before.sha256


def test_files_are_read_once(folder: Path) -> None:
    """Read files once, and tell one reading once."""
    stages: list[Stage] = []
    with listening(stages.append):
        first = folder_content(folder, clock=later)
        again = folder_content(folder, clock=later)
    assert [(stage.name, stage.done) for stage in stages] == [("reading files", len(FILES))]
    assert (first.read, again.read) == (len(FILES), 0)
    assert again.sha256 == first.sha256
    (folder / "a.txt").write_bytes(b"changed")
    assert folder_content(folder, clock=later).read == 1


def test_a_change_that_keeps_size_and_time_is_seen(folder: Path) -> None:
    file = folder / "a.txt"
    os.utime(file, ns=(1, 1))
    before = folder_content(folder, clock=later)
    file.write_bytes(b"FIRST")
    os.utime(file, ns=(1, 1))
    assert folder_content(folder, clock=later).sha256 != before.sha256


def test_a_young_file_is_not_believed(folder: Path) -> None:
    """Such a file can change again within the same tick of its file system's clock."""
    folder_content(folder, clock=later)
    young = (folder / "a.txt").stat().st_ctime_ns

    def soon() -> int:
        return young + 1_000_000_000

    assert folder_content(folder, clock=soon).read == len(FILES)
    # What was young when it was read is not remembered either.
    assert folder_content(folder, clock=later).read == len(FILES)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
        lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
        lambda file: (file.unlink(), os.mkfifo(file)),
        lambda file: (file.unlink(), file.mkdir()),
        lambda file: (file.unlink(), file.symlink_to("/dev/zero")),
    ],
    ids=["empty", "seal", "digest", "pipe", "folder", "device"],
)
def test_a_damaged_or_hostile_memory_is_none(
    damage: Callable[[Path], object], folder: Path, cache: Path
) -> None:
    before = folder_content(folder, clock=later)
    damage(remembered(cache))
    after = folder_content(folder, clock=later)
    assert (after.sha256, after.read) == (before.sha256, len(FILES))


def test_a_memory_is_of_one_folder(folder: Path, tmp_path: Path, cache: Path) -> None:
    folder_content(folder, clock=later)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    assert folder_content(moved, clock=later).read == len(FILES)
    assert len(list((cache / "counterfoil" / "folders").iterdir())) == 2


def test_without_a_place_to_remember_it_is_read_each_time(folder: Path, cache: Path) -> None:
    cache.write_text("a file where the cache should be")
    assert folder_content(folder, clock=later).read == len(FILES)
    assert folder_content(folder, clock=later).read == len(FILES)


@pytest.mark.parametrize("kind", ["file", "dangling", "itself", "above", "link in a link", "pipe"])
def test_links_and_pipes_have_no_content(kind: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secret.txt").write_text("mine")
    odd = folder / "train" / "odd"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "link in a link":
        (tmp_path / "elsewhere" / "more").symlink_to(tmp_path / "cache")
        odd.symlink_to(tmp_path / "elsewhere")
    else:
        targets = {"file": "secret.txt", "dangling": "nothing", "itself": odd, "above": "."}
        odd.symlink_to(tmp_path / targets[kind])
    at = odd / "more" if kind == "link in a link" else odd
    with refuses("unreadable-data", at, "is a pipe" if kind == "pipe" else "is a link"):
        folder_content(folder)


def test_a_class_folder_that_is_a_link_has_the_content_of_its_files(
    folder: Path, tmp_path: Path
) -> None:
    plain = folder_content(folder).sha256
    shutil.move(folder / "train", tmp_path / "collected")
    (folder / "train").symlink_to(tmp_path / "collected")
    assert folder_content(folder).sha256 == plain
    (tmp_path / "collected" / "new.txt").write_text("new")
    assert folder_content(folder).sha256 != plain


def test_what_is_kept_in_a_built_dataset_is_none_of_its_content(folder: Path) -> None:
    plain = folder_content(folder).sha256
    write_all(folder, {".counterfoil/evaluation/report.html": b"report"})
    assert folder_content(folder).sha256 == plain
    write_all(folder, {"train/.counterfoil/x": b"x"})
    assert folder_content(folder).sha256 != plain


@pytest.mark.parametrize(
    "mark", [".cache/huggingface/x", "README.md", "a/b.parquet", "manifest.json"]
)
def test_what_others_made_follows_no_link(mark: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (folder / "odd").symlink_to(tmp_path / "private")
    folder_content(folder)
    write_all(folder, {mark: b"theirs"})
    with refuses("unreadable-data", folder / "odd", "is a link"):
        folder_content(folder)


def test_a_listing_has_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_FILES", len(FILES) - 1)
    with pytest.raises(CounterfoilError, match="more than 3 files"):
        folder_content(folder)


@pytest.fixture
def mugs(tmp_path: Path) -> Path:
    (tmp_path / "photos" / "mug").mkdir(parents=True)
    (tmp_path / "photos" / "mug" / "1.png").write_bytes(b"one")
    return tmp_path / "photos"


def source_of(name: str) -> Source:
    return load_recipe("wardrobe-mini").source.model_copy(update={"dataset": name})


def test_the_folder_of_a_pin_is_found_where_it_lies_now(mugs: Path) -> None:
    pin = open_source(source_of(str(mugs))).pin.document()
    portable = source_of("elsewhere:./photos")
    assert placed_source(portable, pin).dataset == str(mugs.resolve())
    moved = mugs.rename(mugs.with_name("other"))
    assert placed_source(portable, pin) is portable, "nothing lies there any more"
    open_source(source_of(str(moved)))
    assert placed_source(portable, pin).dataset == str(moved.resolve())


def test_a_folder_that_has_changed_or_was_never_seen_is_not_opened(mugs: Path) -> None:
    pin = open_source(source_of(str(mugs))).pin.document()
    portable = source_of("elsewhere:./photos")
    (mugs / "mug" / "2.png").write_bytes(b"two")
    assert placed_source(portable, pin) is portable
    for strange in (
        None,
        {},
        {"content": "../../x"},
        {"content": 3},
        {"content": "0" * 64},
        {"content": "G" * 64},
    ):
        assert placed_source(portable, strange) is portable


def test_names_of_the_hub_and_of_the_lab_stay_what_they_are(mugs: Path) -> None:
    pin = open_source(source_of(str(mugs))).pin.document()
    for name in ("lab:wardrobe", "someone/photos", str(mugs)):
        source = source_of(name)
        assert placed_source(source, pin) is source


def test_folders_that_are_links_give_the_rows_and_images_of_what_they_lead_to(
    tmp_path: Path,
) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    plain = labelled_source(folder)
    shutil.move(folder / "mug", tmp_path / "collected")
    (folder / "mug").symlink_to(tmp_path / "collected")
    linked = labelled_source(folder)
    assert (linked.keys, linked.labels.tolist(), linked.class_names, linked.content) == (
        plain.keys, plain.labels.tolist(), plain.class_names, plain.content,
    )  # fmt: skip
    assert all(image for _, image in linked.read(None))


@pytest.mark.parametrize("link_at", ["file", "deeper", "described"])
def test_no_other_link_leads_out_of_a_dataset(link_at: str, tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    shutil.move(folder / "mug", tmp_path / "private")
    if link_at == "file":
        (folder / "mug").mkdir()
        (folder / "mug" / "000.png").symlink_to(tmp_path / "private" / "000.png")
    else:
        (tmp_path / "private" / "more").symlink_to(tmp_path)
        (folder / "mug").symlink_to(tmp_path / "private")
    if link_at == "described":
        (tmp_path / "private" / "more").unlink()
        (folder / "README.md").write_text(
            "---\nconfigs: [{config_name: a, data_files: '*/*'}]\n---\n"
        )
    with pytest.raises(CounterfoilError, match="is a link"):
        labelled_source(folder)
