"""Resuming: only what is missing is made again, with the same bytes, and nothing else is ever mixed in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from garments import GARMENT_CLASSES, garment_folder

from counterfoil.errors import UserError
from counterfoil.progress import listening
from counterfoil.store.reading import read_receipts
from tiny_builds import SHARDS, published, tiny


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed, tmp_path / "copy"))


def _times(directory: Path) -> dict[str, int]:
    return {path: (directory / path).stat().st_mtime_ns for path in published(directory)}


def test_only_missing_shards_are_made_again(copy: Path, undisturbed: Path) -> None:
    before = _times(copy)
    (copy / "receipts" / "red-00001.json").unlink()
    (copy / "receipts" / "base-00000.json").unlink()
    (copy / "data" / "base" / "test-00000-of-00002.parquet").unlink()
    result = tiny(copy)
    assert (result.shards_made, result.shards, result.images_made) == (2, SHARDS, 6)
    assert published(copy) == published(undisturbed)
    after = _times(copy)
    untouched = {p for p in before if p.startswith(("data/", "candidates/", "receipts/")) and before[p] == after[p]}
    assert len(untouched) == 3 * (SHARDS - 2)


def test_nothing_pending_renders_nothing_and_changes_nothing(copy: Path, undisturbed: Path) -> None:
    heard = []
    with listening(heard.append):
        result = tiny(copy)
    assert (result.shards_made, result.images_made, result.images_per_second) == (0, 0, None)
    assert heard == []
    assert published(copy) == published(undisturbed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("generator.steps=3", "generator.steps"),
        ("samples.seed=1", "samples.seed"),
        ("screen.object_threshold=0.1", "object_threshold"),
        ("screen.keep_rejected=true", "keep_rejected"),
        ("prompts.shifts.red.prompt=a red {class}", "a red {class}"),
    ],
)
def test_another_recipe_is_refused_with_its_difference(change: str, said: str, copy: Path, undisturbed: Path) -> None:
    (copy / "receipts" / "red-00001.json").unlink()
    before = published(copy)
    with pytest.raises(UserError) as refused:
        tiny(copy, change)
    assert refused.value.exit_code == 2
    assert said in "\n".join(refused.value.problems)
    assert published(copy) == before


def test_what_changes_no_byte_of_an_image_is_accepted(copy: Path, undisturbed: Path) -> None:
    changes = ["description=Other words.", "evaluate.models=[lab:resnet10t]", "license=cc0-1.0"]
    result = tiny(copy, *changes)
    assert result.images_made == 0
    before, after = published(undisturbed), published(copy)
    assert {path for path in before if before[path] != after[path]} == {
        "README.md",
        "croissant.json",
        "recipe.yaml",
        "manifest.json",
    }
    assert b"Other words." in after["README.md"]


def _other_stack(directory: Path) -> None:
    """As if an earlier version of torch had made the shards that are there."""
    for path in [directory / "lock.json", *(directory / "receipts").iterdir()]:
        document = json.loads(path.read_text())
        document["stack"]["versions"]["torch"] = "1.0.0"
        path.write_text(json.dumps(document))


def test_another_stack_is_refused_unless_mixing_is_allowed(copy: Path, undisturbed: Path) -> None:
    (copy / "receipts" / "red-00001.json").unlink()
    _other_stack(copy)
    before = published(copy)
    with pytest.raises(UserError) as refused:
        tiny(copy)
    said = "\n".join([*refused.value.problems, refused.value.hint or ""])
    assert "versions.torch" in said
    assert "1.0.0" in said
    assert "--allow-mixed" in said
    assert published(copy) == before
    tiny(copy, allow_mixed=True)
    torches = {receipt.stack["versions"]["torch"] for receipt in read_receipts(copy)}
    assert len(torches) == 2
    assert "1.0.0" in torches
    assert "Mixed stacks" in (copy / "README.md").read_text()
    assert "Mixed stacks" not in (undisturbed / "README.md").read_text()


def test_a_directory_without_shards_takes_the_new_stack(copy: Path, undisturbed: Path) -> None:
    _other_stack(copy)
    for receipt in (copy / "receipts").iterdir():
        receipt.unlink()
    tiny(copy)
    assert published(copy) == published(undisturbed)


def test_thresholds_are_not_computed_again_and_the_input_dataset_may_be_gone(tmp_path: Path) -> None:
    source = garment_folder(tmp_path / "garments", ("validation",))
    changes = [
        f"source.dataset={source}",
        GARMENT_CLASSES,
        "prompts.shifts.red=null", "prompts.shifts.in_the_snow=null",
        "samples.candidates=1", "screen.object_threshold={percentile: 25}",
    ]  # fmt: skip
    out = tmp_path / "dataset"
    tiny(out, *changes)
    before = published(out)
    thresholds = json.loads(before["thresholds.json"])["object"]
    assert {entry["n"] for shift in thresholds.values() for entry in shift.values()} == {4}
    shutil.rmtree(source)
    (out / "receipts" / "base-00000.json").unlink()
    assert tiny(out, *changes).shards_made == 1
    assert published(out) == before
    with pytest.raises(UserError):
        tiny(tmp_path / "other", *changes)
