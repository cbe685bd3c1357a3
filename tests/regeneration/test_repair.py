"""Repair in place: only shards that are not as they were written are made again, and the directory is what it was."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from forged_datasets import with_torch

import warm
from counterfoil.errors import RunFailure, UserError
from counterfoil.regeneration.regenerate_dataset import Regeneration, regenerate
from counterfoil.store import read_receipts, verify_files
from support.files import flip
from tiny_builds import SHARDS, command, published, run_command, tiny


@pytest.fixture
def copy(screened: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(screened, tmp_path / "dataset"))


def repair(directory: Path, allow_mixed: bool = False) -> Regeneration:
    return regenerate(directory, directory, device="cpu", workers=1, allow_mixed=allow_mixed)


def edit(path: Path, change: Callable[[dict], None]) -> None:
    """A receipt that says something else in the form that receipts have."""
    document = json.loads(path.read_text())
    change(document)
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n")


def shard_file(directory: Path, what: str, group: str) -> Path:
    return sorted((directory / what / group).iterdir())[0]


def test_only_damaged_shards_are_made_again(copy: Path, screened: Path) -> None:
    times = {path: (copy / path).stat().st_mtime_ns for path in published(copy)}
    flip(shard_file(copy, "data", "base"))
    shard_file(copy, "candidates", "red").unlink()
    (copy / "receipts" / "in_the_snow-00001.json").write_text("{")
    flip(copy / "README.md")
    min((copy / "figures").iterdir()).unlink()
    assert verify_files(copy)
    made = repair(copy)
    assert (made.shards_made, made.shards, made.repaired) == (3, SHARDS, True)
    assert published(copy) == published(screened)
    assert made.comparison is not None
    assert made.comparison.identical
    whole = [p for p in times if p.startswith(("data/", "candidates/", "rejected/", "receipts/"))]
    touched = {p for p in whole if times[p] != (copy / p).stat().st_mtime_ns}
    shards = {(Path(p).parent.name, p[-27:]) for p in touched if not p.startswith("receipts/")}
    assert {group for group, _ in shards} == {"base", "red", "in_the_snow"}
    assert len(touched) < len(whole) / 2


@pytest.mark.parametrize("manifest", [True, False], ids=["with manifest", "without"])
def test_a_receipt_that_lies_is_found(copy: Path, screened: Path, manifest: bool) -> None:
    folder = copy / "receipts"
    edit(folder / "base-00000.json", lambda document: document["counts"]["base"].update(surplus=1))
    edit(folder / "red-00000.json", lambda document: document["hashes"].update(inputs="0" * 64))
    edit(folder / "red-00001.json", lambda document: document["files"][-1].update(path="../../outside"))
    edit(folder / "in_the_snow-00000.json", lambda document: document.update(shard=1))
    edit(folder / "in_the_snow-00001.json", lambda document: document.update(files=[3]))
    edit(folder / "pencil_sketch-00000.json", lambda document: document["files"][0].update(size=1))
    with (folder / "pencil_sketch-00001.json").open("a") as file:
        file.write("\n")
    if not manifest:
        (copy / "manifest.json").unlink()
    made = repair(copy)
    assert made.shards_made == 7
    assert (made.comparison is None) == (not manifest)
    assert published(copy) == published(screened)


def test_another_stack_in_one_receipt_is_found_by_the_manifest(copy: Path, screened: Path) -> None:
    edit(copy / "receipts" / "base-00000.json", lambda document: document["stack"].update(threads=8))
    assert repair(copy).shards_made == 1
    assert published(copy) == published(screened)


def test_what_stands_beside_whole_shards_is_written_again(copy: Path, screened: Path) -> None:
    for name in ("README.md", "manifest.json"):
        (copy / name).unlink()
    min((copy / "figures").iterdir()).write_bytes(b"no picture")
    made = repair(copy)
    assert (made.shards_made, made.images_made) == (0, 0)
    assert published(copy) == published(screened)


def test_strays_are_refused_by_name(copy: Path) -> None:
    stray = copy / "candidates" / "red" / "test-00009-of-00009.parquet"
    stray.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"candidates/red/test-00009-of-00009\.parquet"):
        repair(copy)
    assert stray.read_bytes() == b"mine"


def test_another_stack_is_refused_before_anything_goes(copy: Path) -> None:
    with_torch(copy, "1.0.0")
    flip(shard_file(copy, "data", "base"))
    before = published(copy)
    with pytest.raises(UserError, match=r"(?s)versions.torch.*--allow-mixed"):
        repair(copy)
    assert published(copy) == before
    made = repair(copy, allow_mixed=True)
    assert made.shards_made == 1
    assert len({receipt.stack["versions"]["torch"] for receipt in read_receipts(copy)}) == 2
    assert made.comparison is not None
    assert any(line.startswith("versions.torch") for line in made.comparison.stack)
    assert made.comparison.unexplained == ()


# Ends the process without a farewell before its n-th removal or rename of a kind, as a kill would.
KILLED = """
import os, sys
left = int(sys.argv[4])
def hook(event, arguments):
    global left
    if event == sys.argv[2] and sys.argv[3] in str(arguments[-2 if event == "os.remove" else 1]):
        if left == 0:
            os._exit(9)
        left -= 1
sys.addaudithook(hook)
from counterfoil.regeneration.regenerate_dataset import regenerate
regenerate(sys.argv[1], sys.argv[1], device="cpu", workers=1)
"""


@pytest.mark.parametrize(
    ("event", "place", "count", "left"),
    [
        ("os.remove", "dataset/receipts", 1, 3),  # between the removals of two receipts
        pytest.param("os.remove", "dataset/manifest.json", 0, 3, marks=pytest.mark.whole),
        ("os.rename", "dataset/candidates", 0, 3),  # a shard half written
        ("os.rename", "dataset/receipts", 1, 2),  # one shard done, the next without its receipt
        pytest.param("os.rename", "dataset/manifest.json", 0, 0, marks=pytest.mark.whole),
    ],
)
def test_a_killed_repair_goes_on(event: str, place: str, count: int, left: int, copy: Path, screened: Path) -> None:
    flip(shard_file(copy, "data", "base"))
    flip(shard_file(copy, "candidates", "red"))
    # Only the manifest tells that this one lies.
    edit(copy / "receipts" / "red-00001.json", lambda document: document["stack"].update(threads=8))
    _, environment = command()
    words = [sys.executable, "-c", KILLED, str(copy), event, place, str(count)]
    assert warm.run(words, environment).returncode == 9
    assert published(copy) != published(screened)
    assert repair(copy).shards_made == left
    assert published(copy) == published(screened)
    assert not list(copy.rglob("*.tmp"))


def test_the_command_says_what_it_did(copy: Path, screened: Path) -> None:
    flip(shard_file(copy, "data", "base"))
    run = run_command(["build", "--from", str(copy), "--out", f"{copy}/../dataset", "--workers", "1"])
    assert run.returncode == 0, run.stderr
    assert f"1 of {SHARDS} shards made now" in run.stdout
    assert "Identical to the original" in run.stdout
    assert published(copy) == published(screened)


def test_an_unfinished_build_goes_on_without_its_input_dataset(copy: Path, screened: Path) -> None:
    for name in ("receipts/red-00000.json", "manifest.json", "README.md"):
        (copy / name).unlink()
    assert repair(copy).shards_made == 1
    assert published(copy) == published(screened)


def test_a_build_takes_finished_shards_on_trust_and_says_how_to_repair(copy: Path, half_threshold: float) -> None:
    path = shard_file(copy, "data", "base")
    path.write_bytes(path.read_bytes()[:-1])
    kept = ("screen.keep_rejected=true", "screen.store_embeddings=false")
    with pytest.raises(RunFailure, match="bytes, expected") as refused:
        tiny(copy, f"screen.object_threshold={half_threshold!r}", *kept)
    assert f"counterfoil build --from {copy} --out {copy}" in (refused.value.hint or "")
