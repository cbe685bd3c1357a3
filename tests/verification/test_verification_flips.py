"""One flipped byte in any file is found, and that file and no other is named, with what repairs it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from doctored import KINDS, kind_of

from counterfoil.store.documents import document_bytes
from counterfoil.verification import verify
from tiny_builds import published

FLIPS_A_KIND = 4


def flipped(content: bytes, position: int, bit: int) -> bytes:
    return content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :]


@pytest.fixture(scope="module")
def copies(datasets: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies that every test leaves as they were."""
    folder = tmp_path_factory.mktemp("flips")
    return {kind: Path(shutil.copytree(datasets[kind], folder / kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.whole), "webdataset", "tokens"])
def test_a_flipped_byte_in_each_kind_of_file_is_named(kind: str, copies: dict[str, Path]) -> None:
    directory = copies[kind]
    files = published(directory)
    by_kind: dict[str, list[str]] = {}
    for path in files:
        by_kind.setdefault(kind_of(path), []).append(path)
    chance = random.Random(kind)
    for paths in by_kind.values():
        for _ in range(FLIPS_A_KIND):
            path = chance.choice(paths)
            position, bit = chance.randrange(len(files[path])), chance.randrange(8)
            (directory / path).write_bytes(flipped(files[path], position, bit))
            found = verify(directory)
            (directory / path).write_bytes(files[path])
            assert {problem.path for problem in found.problems} == {path}, (position, bit, found.problems)
            assert all(str(directory) in problem.repair for problem in found.problems)
            if path != "manifest.json":
                assert any(problem.what.startswith("is changed: sha256") for problem in found.problems)
    assert verify(directory).whole


def test_each_kind_of_file_is_there_to_be_flipped(copies: dict[str, Path]) -> None:
    kinds = {kind_of(path) for directory in copies.values() for path in published(directory)}
    folders = {f"{what}/*.{suffix}" for what in ("data", "rejected", "candidates") for suffix in ("parquet", "tar")}
    alone = {"README.md", "recipe.yaml", "lock.json", "manifest.json", "thresholds.json", "_info.json"}
    assert folders | alone | {"receipts/*.json", "figures/*.webp", "tokens/*.safetensors"} <= kinds


@pytest.mark.parametrize("name", ["recipe.yaml", "lock.json", "thresholds.json", "receipts/base-00000.json"])
def test_a_flipped_byte_is_no_traceback_even_where_no_manifest_tells(name: str, copies: dict[str, Path]) -> None:
    """JSON and YAML readers stumble over each position differently."""
    directory = copies["tokens"]
    content, manifest = (directory / name).read_bytes(), (directory / "manifest.json").read_bytes()
    (directory / "manifest.json").unlink()
    chance = random.Random(name)
    try:
        for _ in range(15):
            damaged = flipped(content, chance.randrange(len(content)), chance.randrange(8))
            (directory / name).write_bytes(damaged)
            problems = verify(directory).problems
            assert "manifest.json" in {problem.path for problem in problems}
    finally:
        (directory / name).write_bytes(content)
        (directory / "manifest.json").write_bytes(manifest)


def test_without_a_manifest_receipts_and_lock_tell_of_what_they_list(copies: dict[str, Path]) -> None:
    directory = copies["tokens"]
    files = published(directory)
    (directory / "manifest.json").unlink()
    told = [p for p in files if p.startswith(("data/", "rejected/", "candidates/")) or p.endswith(".safetensors")]
    try:
        for path in told:
            (directory / path).write_bytes(flipped(files[path], len(files[path]) // 2, 3))
            named = {problem.path for problem in verify(directory).problems}
            assert named == {"manifest.json", path}
            (directory / path).write_bytes(files[path])
        (directory / "data/stray.bin").write_bytes(b"")
        assert {problem.path for problem in verify(directory).problems} == {"manifest.json", "data/stray.bin"}
    finally:
        (directory / "data/stray.bin").unlink()
        for path in (*told, "manifest.json"):
            (directory / path).write_bytes(files[path])


def test_a_manifest_that_is_damaged_blames_no_other_file(copies: dict[str, Path]) -> None:
    directory = copies["parquet"]
    content = (directory / "manifest.json").read_bytes()
    document = json.loads(content)
    document["files"][0]["sha256"] = "0" * 64
    (directory / "manifest.json").write_bytes(document_bytes(document))
    found = verify(directory)
    (directory / "manifest.json").write_bytes(content)
    assert [problem.path for problem in found.problems] == ["manifest.json"]
    assert found.manifest_sha256 is None
    assert any("no file was compared with manifest.json" in note for note in found.notes)
