"""The manifest: any change to a published file shows, and nothing else does."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from store_cases import build, cached_copy, plan_of

from counterfoil.store import verify_files
from counterfoil.store.manifest import published_paths
from support.files import published


@pytest.fixture
def dataset(tmp_path: Path, format: str) -> Path:
    return build(tmp_path / "cranes", plan_of(f"output.format={format}"))


def test_a_finished_dataset_is_whole(dataset: Path) -> None:
    assert verify_files(dataset) == []
    manifest = json.loads((dataset / "manifest.json").read_text())
    names = [file["path"] for file in manifest["files"]]
    assert names == sorted(names)
    assert {*names, "manifest.json"} == set(published(dataset))
    assert {"README.md", "recipe.yaml", "lock.json", "thresholds.json", "figures/sheet.png"} < set(names)


def flip(content: bytes, position: int, bit: int) -> bytes:
    return content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :]


def test_one_flipped_bit_in_any_file_shows(dataset: Path) -> None:
    chance = random.Random(0)
    for name, content in published(dataset).items():
        path = dataset / name
        for position in chance.sample(range(len(content)), min(3, len(content))):
            path.write_bytes(flip(content, position, chance.randrange(8)))
            problems = verify_files(dataset)
            assert problems, f"{name}: byte {position}"
            if name != "manifest.json":
                assert len(problems) == 1
                assert problems[0].startswith(f"{name} is changed: sha256")
        path.write_bytes(content)
    assert verify_files(dataset) == []


def test_one_flipped_bit_anywhere_in_the_manifest_shows(tmp_path: Path) -> None:
    build(tmp_path, plan_of())
    path = tmp_path / "manifest.json"
    content = path.read_bytes()
    chance = random.Random(1)
    for position in chance.sample(range(len(content)), 150):
        path.write_bytes(flip(content, position, chance.randrange(8)))
        assert any("manifest.json is" in problem for problem in verify_files(tmp_path)), position


def test_missing_unexpected_and_resized_files_are_told_apart(dataset: Path) -> None:
    (dataset / "recipe.yaml").unlink()
    (dataset / "figures/extra.png").write_bytes(b"")
    (dataset / "README.md").write_text("# Cranes, and more\n")
    assert sorted(verify_files(dataset)) == [
        "README.md is changed: 19 bytes, expected 9",
        "figures/extra.png is unexpected: the manifest does not list it",
        "recipe.yaml is missing",
    ]


def test_what_is_not_published_is_not_compared(dataset: Path) -> None:
    for name in (".counterfoil/timings.json", "index.html", ".gitattributes", ".cache/huggingface/x"):
        (dataset / name).parent.mkdir(parents=True, exist_ok=True)
        (dataset / name).write_text("")
    assert verify_files(dataset) == []
    assert not any(name.startswith((".", "index")) for name in published_paths(dataset))


def test_a_copy_of_the_hubs_client_whose_links_lead_to_its_blobs_is_whole_too(dataset: Path, tmp_path: Path) -> None:
    assert verify_files(cached_copy(dataset, tmp_path / "hub" / "datasets--a--b")) == []


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
    assert verify_files(tmp_path) == ["manifest.json is missing: the dataset was not finished, or this is none"]
    (tmp_path / "manifest.json").write_text(content)
    assert verify_files(tmp_path) == ["manifest.json is damaged: it is not the manifest that Counterfoil writes"]


def test_nothing_in_a_dataset_names_this_machine(dataset: Path) -> None:
    import platform

    for name, content in published(dataset).items():
        assert str(dataset.parent).encode() not in content, name
        assert platform.node().encode() not in content, name
