"""A build whose classes are left to the input dataset: the same bytes as with every class written out."""

from __future__ import annotations

from pathlib import Path

import pytest
from garments import GARMENT_CLASSES, garment_folder

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.regeneration.regenerate_dataset import regenerate
from tiny_builds import published, tiny

ONE_SHIFT = ("prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null", "screen.object_threshold={percentile: 50}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_classes_left_out_build_the_dataset_of_classes_written_out(tmp_path: Path) -> None:
    photos = garment_folder(tmp_path / "photos")
    source = f"source={{dataset: {photos}, unit_column: null}}"
    tiny(tmp_path / "whole", source, GARMENT_CLASSES, *ONE_SHIFT)
    tiny(tmp_path / "open", source, "source.classes=null", *ONE_SHIFT)
    whole = published(tmp_path / "whole")
    assert published(tmp_path / "open") == whole
    own = load_recipe(tmp_path / "open")
    assert [(entry.id, entry.source_label) for entry in own.source.classes or ()] == [("bag", 0), ("sandal", 1)]
    # Named in another order they are other labels of the dataset, and the same thresholds.
    with pytest.raises(UserError, match="classes"):
        tiny(tmp_path / "open", source, "source.classes=[sandal, bag]", *ONE_SHIFT)
    # Nobody asks the input dataset any more: to go on, or to make it again.
    photos.rename(tmp_path / "gone")
    tiny(tmp_path / "open", source, "source.classes=null", *ONE_SHIFT)
    assert published(tmp_path / "open") == whole
    regenerate(tmp_path / "open", tmp_path / "again", device="cpu", workers=1)
    assert published(tmp_path / "again") == whole


def test_an_own_order_of_the_labels_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    photos = garment_folder(tmp_path / "photos")
    swapped = GARMENT_CLASSES.replace("source_label: 0", "source_label: x").replace(
        "source_label: 1", "source_label: 0"
    )
    with pytest.raises(UserError) as refused:
        tiny(tmp_path / "out", f"source={{dataset: {photos}}}", swapped.replace("source_label: x", "source_label: 1"))
    assert [problem.rpartition("; ")[2] for problem in refused.value.problems] == ["write 0", "write 1"]
    assert not list((tmp_path / "out").glob("*"))
