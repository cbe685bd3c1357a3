"""A re-cut dataset is, byte for byte, what a fresh build of the re-cut recipe makes; nothing is
lost on the way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from garments import GARMENT_CLASSES, garment_folder

import warm
from content_reference import content_of_files
from counterfoil.dataset.closing import close_again
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import Stage, listening
from counterfoil.recipe import load_recipe
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_rows
from counterfoil.store.sealed_folder import SEALED_FOLDERS
from support.refusals import problems_of
from tiny_builds import command, images, published, tiny

FEW = ("prompts.shifts.pencil_sketch=null", "prompts.shifts.in_the_snow.threshold={percentile: 30}")
Cut = Callable[..., Path]


@pytest.fixture
def cut(tmp_path: Path) -> Cut:
    """Return a function that writes a cut of thresholds by shift to a file."""

    def write(**thresholds: float) -> Path:
        path = tmp_path / "cut.yaml"
        shifts = {
            name: {"threshold": value}
            for name, value in thresholds.items()
            if name != "keep_rejected"
        }
        kept = (
            {"screen": {"keep_rejected": thresholds["keep_rejected"]}}
            if "keep_rejected" in thresholds
            else {}
        )
        path.write_text(json.dumps({"prompts": {"shifts": shifts}} | kept))
        return path

    return write


@pytest.fixture(
    scope="module", params=["parquet", pytest.param("webdataset", marks=pytest.mark.whole)]
)
def opened(
    request: pytest.FixtureRequest, half_threshold: float, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return a dataset with one open shift and one that is cut; every image kept. Read only."""
    out = tmp_path_factory.mktemp(f"opened-{request.param}") / "dataset"
    result = tiny(out, *changes(request.param, half_threshold, True))
    assert result.open_shifts == ("in_the_snow",)
    assert result.counts["in_the_snow"] == {"open": 6}
    return out


def changes(format: str, object_threshold: float, keep_rejected: bool) -> list[str]:
    kept = f"screen.keep_rejected={str(keep_rejected).lower()}"
    return [*FEW, f"output.format={format}", f"screen.object_threshold={object_threshold!r}", kept]


def middle(directory: Path, shift: str) -> float:
    scores = sorted(
        r["shift_score"] for r in read_rows(directory, what="candidates") if r["shift"] == shift
    )
    return scores[len(scores) // 2]


def differing(first: Path, second: Path) -> list[str]:
    left = published(first)
    right = published(second)
    return sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))


@pytest.mark.parametrize("keep_rejected", [True, pytest.param(False, marks=pytest.mark.whole)])
def test_a_recut_is_a_fresh_build(
    opened: Path, keep_rejected: bool, cut: Cut, half_threshold: float, tmp_path: Path
) -> None:
    format = load_recipe(opened / "recipe.yaml").output.format
    snow = middle(opened, "in_the_snow")
    red = middle(opened, "red")
    file = cut(in_the_snow=snow, red=red, keep_rejected=keep_rejected)
    before = published(opened)
    heard: list[Stage] = []
    with listening(heard.append):
        result = recut(opened, file, tmp_path / "recut")
    assert heard == [Stage("shards", done, result.shards) for done in range(1, result.shards + 1)]
    assert published(opened) == before
    again = (
        f"prompts.shifts.in_the_snow.threshold={snow!r}",
        f"prompts.shifts.red.threshold={red!r}",
    )
    fresh = tmp_path / "fresh"
    settings = [
        change
        for change in changes(format, half_threshold, keep_rejected)
        if "percentile" not in change
    ]
    built = tiny(fresh, *settings, *again)
    assert differing(tmp_path / "recut", fresh) == []
    assert verify_files(tmp_path / "recut") == []
    assert (result.counts, result.manifest_sha256) == (built.counts, built.manifest_sha256)
    assert result.counts["in_the_snow"].get("accepted", 0) < 6
    old = read_lock(opened)
    new = read_lock(fresh)
    assert old is not None
    assert new is not None
    assert [n for n in old.hashes if old.hashes[n] != new.hashes[n]] == ["screen"]
    # In place: the same files, and a later build finds nothing left to do.
    copy = Path(shutil.copytree(opened, tmp_path / "place"))
    dropped = recut(copy, file, in_place=True).images_dropped
    assert dropped == len(images(opened)) - len(images(fresh))
    assert differing(copy, fresh) == []
    page = copy / "index.html"
    text = page.read_text()
    # a kill after the replacement leaves the page before the cut
    page.write_text(text.replace("accepted", "old"))
    assert recut(copy, file, in_place=True).changed == ()
    assert page.read_text() == text
    assert tiny(copy, *settings, *again).images_made == 0
    assert differing(copy, fresh) == []


def test_class_tokens_stay_as_they_are(cut: Cut, half_threshold: float, tmp_path: Path) -> None:
    learn = "tokens={learn: {steps: 1, classes_in_flight: 1}}"
    settings = [
        learn,
        "source.classes=[{id: '08', name: bag, source_label: 8}]",
        "prompts.shifts.pencil_sketch=null",
        "prompts.shifts.in_the_snow=null",
        f"screen.object_threshold={half_threshold!r}",
    ]
    tiny(tmp_path / "built", *settings, "screen.keep_rejected=true")
    red = middle(tmp_path / "built", "red")
    recut(tmp_path / "built", cut(red=red, keep_rejected=False), tmp_path / "recut")
    tiny(
        tmp_path / "fresh",
        *settings,
        "screen.keep_rejected=false",
        f"prompts.shifts.red.threshold={red!r}",
    )
    assert differing(tmp_path / "recut", tmp_path / "fresh") == []
    assert "<bag-08>" in "".join(
        row["prompt"] for row in read_rows(tmp_path / "recut", what="candidates")
    )


def test_results_stay_with_the_images_that_they_were_measured_on(
    opened: Path, cut: Cut, half_threshold: float, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(opened, tmp_path / "place"))
    content = content_of_files(copy)
    table = b"model,top1\n"
    for folder in SEALED_FOLDERS:
        close_again(copy, folder.files({"content": content}, {"table.csv": table}), content, folder)
    measured = published(copy)
    assert {path for path in measured if path.startswith(("evaluation/", "review/"))} == {
        "evaluation/results.json",
        "evaluation/table.csv",
        "review/selection.json",
        "review/table.csv",
    }
    settings = changes(load_recipe(opened / "recipe.yaml").output.format, half_threshold, True)
    assert tiny(copy, *settings).images_made == 0
    assert published(copy) == measured, "a build that finds nothing to do keeps them"
    file = cut(in_the_snow=middle(opened, "in_the_snow"))
    recut(copy, file, tmp_path / "elsewhere")
    recut(copy, file, in_place=True)
    assert not (copy / "evaluation").exists() and not (copy / "review").exists()
    assert differing(copy, tmp_path / "elsewhere") == []


def test_images_that_were_not_kept_are_counted_by_shift(
    screened: Path, cut: Cut, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(screened, tmp_path / "place"))
    file = tmp_path / "less.yaml"
    file.write_text("screen: {keep_rejected: false}")
    lost = recut(copy, file, in_place=True).images_dropped
    assert lost > 0
    before = published(copy)
    file.write_text("screen: {keep_rejected: true}")
    problems = problems_of(recut, copy, file, in_place=True)
    assert sum(int(line.split(" needs ")[1].split()[0]) for line in problems) == lost
    assert {line.split(":")[0] for line in problems} <= {
        "base",
        "in_the_snow",
        "red",
        "pencil_sketch",
    }
    file.write_text("screen: {object_threshold: -1}")
    assert problems_of(recut, copy, file, tmp_path / "new") == problems
    assert published(copy) == before
    assert not (tmp_path / "new").exists()


# Ends the process abruptly before its n-th rename of a kind, as a kill would.
KILLED = """
import os, sys
left = int(sys.argv[4])
def hook(event, arguments):
    global left
    if event == "os.rename" and sys.argv[3] in str(arguments[1]):
        if left == 0:
            os._exit(9)
        left -= 1
sys.addaudithook(hook)
from counterfoil.reviewing.recut_dataset import recut
recut(sys.argv[1], sys.argv[2], in_place=True)
"""


@pytest.mark.parametrize(
    ("folder", "count", "decided"),
    [
        ("replacement/new/receipts", 2, False),
        ("replacement/old", 1, True),
        ("dataset/data", 0, True),
    ],
)
def test_a_killed_recut_loses_nothing(
    opened: Path, folder: str, count: int, decided: bool, cut: Cut, tmp_path: Path
) -> None:
    if load_recipe(opened / "recipe.yaml").output.format == "webdataset":
        pytest.skip("the swap knows no format")
    file = cut(in_the_snow=middle(opened, "in_the_snow"), keep_rejected=False)
    recut(opened, file, tmp_path / "expected")
    out = Path(shutil.copytree(opened, tmp_path / "dataset"))
    _, environment = command()
    words = [sys.executable, "-c", KILLED, str(out), str(file), folder, str(count)]
    assert warm.run(words, environment).returncode == 9
    if not decided:
        assert published(out) == published(opened), "the old dataset is untouched"
    recut(out, file, in_place=True)
    assert differing(out, tmp_path / "expected") == []


def test_a_changed_file_is_not_cut_into_a_new_dataset(
    undisturbed: Path, cut: Cut, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(undisturbed, tmp_path / "place"))
    shard = copy / "data" / "red" / "test-00000-of-00002.parquet"
    shutil.copy(copy / "data" / "base" / "test-00000-of-00002.parquet", shard)
    with pytest.raises(RunFailure, match="is missing or differs from"):
        recut(copy, cut(red=0.1), in_place=True)
    assert tiny_recipe(copy) == tiny_recipe(undisturbed)


def tiny_recipe(directory: Path) -> bytes:
    return (directory / "recipe.yaml").read_bytes()


def test_an_unfinished_dataset_and_a_stranger_are_refused(
    undisturbed: Path, cut: Cut, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(undisturbed, tmp_path / "place"))
    (copy / "receipts" / "red-00001.json").unlink()
    with pytest.raises(UserError, match="not finished: 7 of 8"):
        recut(copy, cut(red=0.1), in_place=True)
    with pytest.raises(UserError, match="not a Counterfoil dataset"):
        recut(tmp_path / "nothing", cut(red=0.1), in_place=True)
    assert not (tmp_path / "nothing").exists()


def test_a_quota_is_filled_again_or_refused(tmp_path: Path) -> None:
    settings = [
        "source.classes=[{id: bag, name: bag, source_label: 8}, {id: '05', name: sandal,"
        " source_label: 5}]",
        "prompts.shifts.in_the_snow=null", "prompts.shifts.pencil_sketch=null",
        "samples=null", "samples={accepted: 2, at_most: 6, seed: 0}",
        "generator.batch_size=2", "output.rows_per_shard=12", "screen.keep_rejected=true",
    ]  # fmt: skip
    everything = tmp_path / "everything"
    tiny(everything, *settings, "screen.object_threshold=1")
    scores = sorted(row["object_score"] for row in read_rows(everything, what="candidates"))
    layer = tmp_path / "cut.yaml"
    # Fewer candidates than there are: a build would have stopped earlier.
    layer.write_text(f"screen: {{object_threshold: {scores[len(scores) // 2]!r}}}")
    recut(everything, layer, tmp_path / "recut")
    tiny(tmp_path / "fresh", *settings, f"screen.object_threshold={scores[len(scores) // 2]!r}")
    assert differing(tmp_path / "recut", tmp_path / "fresh") == []
    assert len(images(tmp_path / "fresh")) < len(scores)
    layer.write_text("screen: {object_threshold: 1}")
    problems = problems_of(recut, tmp_path / "recut", layer, in_place=True)
    assert any("cells need candidates that were not rendered" in line for line in problems)


def test_object_percentiles_are_measured_once(cut: Cut, tmp_path: Path) -> None:
    source = garment_folder(tmp_path / "garments", ("validation",))
    settings = [
        f"source.dataset={source}",
        GARMENT_CLASSES,
        "prompts.shifts.pencil_sketch=null", "prompts.shifts.in_the_snow=null", "samples.candidates=1",
        "screen.object_threshold={percentile: 5}", "screen.keep_rejected=true",
    ]  # fmt: skip
    out = tmp_path / "dataset"
    result = tiny(out, *settings)
    assert [(few.class_id, few.n, few.needs) for few in result.few_images] == [
        ("bag", 4, 20),
        ("sandal", 4, 20),
    ]
    assert (
        "class 'bag': percentile 5 of 4 validation images, needs 20"
        in (out / "README.md").read_text()
    )
    layer = tmp_path / "percentile.yaml"
    layer.write_text("screen: {object_threshold: {percentile: 50}}")
    recut(out, layer, tmp_path / "recut", source=str(source))
    tiny(
        tmp_path / "fresh",
        *settings,
        "screen.object_threshold=null",
        "screen.object_threshold={percentile: 50}",
    )
    assert differing(tmp_path / "recut", tmp_path / "fresh") == []
    shutil.rmtree(source)
    before = read_lock(out)
    assert before is not None
    recut(out, cut(red=0.9), in_place=True)
    after = read_lock(out)
    assert after is not None
    assert [name for name in before.hashes if before.hashes[name] != after.hashes[name]] == [
        "screen"
    ]
    with pytest.raises(UserError):
        recut(out, layer, in_place=True)


def test_a_dataset_that_nobody_can_write_to_is_cut_elsewhere(
    opened: Path, cut: Cut, tmp_path: Path
) -> None:
    file = cut(in_the_snow=middle(opened, "in_the_snow"), keep_rejected=True)
    readonly = tmp_path / "readonly"
    readonly.mkdir()
    mount = ["mount", "--bind", str(opened), str(readonly)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting needs privileges")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(readonly)], check=True)
        recut(readonly, file, tmp_path / "recut")
    finally:
        subprocess.run(["umount", "--lazy", str(readonly)], check=True)
    recut(opened, file, tmp_path / "expected")
    assert differing(tmp_path / "recut", tmp_path / "expected") == []
