"""A dataset knows the content of the folder it was built from; one built before there were such pins goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from garments import GARMENT_CLASSES, garment_folder

from counterfoil.calibration.recut_dataset import recut
from counterfoil.errors import UserError
from counterfoil.store.lock import read_lock
from counterfoil.tokens.learn_tokens import learn_tokens
from tiny_builds import published, tiny

ONE = ["prompts.shifts.red=null", "prompts.shifts.in_the_snow=null", "prompts.shifts.pencil_sketch=null",
       "samples.candidates=1", "screen.keep_rejected=true", GARMENT_CLASSES]  # fmt: skip
VALIDATION = ("validation",)


def source_in(directory: Path) -> dict[str, str | None]:
    lock = read_lock(directory)
    assert lock is not None
    return dict(lock.inputs["source"])


def test_another_content_is_another_input(tmp_path: Path) -> None:
    source, out = garment_folder(tmp_path / "garments", VALIDATION), tmp_path / "dataset"
    settings = [*ONE, f"source.dataset={source}"]
    tiny(out, *settings)
    before = published(out)
    (tmp_path / "moved").mkdir()
    assert len(source_in(out)["content"] or "") == 64
    moved = Path(shutil.move(source, tmp_path / "moved" / "garments"))
    assert tiny(out, *ONE, f"source.dataset={moved}").shards_made == 0
    assert published(out) == before
    (moved / "validation" / "bag" / "0.png").unlink()
    with pytest.raises(UserError) as refused:
        tiny(out, *ONE, f"source.dataset={moved}")
    assert any("source.content" in line for line in refused.value.problems)


def test_a_dataset_whose_lock_tells_no_content_is_resumed_and_cut_again(tmp_path: Path) -> None:
    """Such locks stand in every directory that was built from a folder before; here the folder came later."""
    source, out, layer = tmp_path / "garments", tmp_path / "dataset", tmp_path / "percentile.yaml"
    settings = [*ONE, f"source.dataset={source}"]
    tiny(out, *settings)
    old = {"dataset": "garments", "revision": None, "license": None}
    assert source_in(out) == old
    before = published(out)
    garment_folder(source, VALIDATION)
    (out / "receipts" / "base-00000.json").unlink()
    assert tiny(out, *settings).shards_made == 1
    assert published(out) == before
    layer.write_text("screen: {object_threshold: {percentile: 50}}")
    recut(out, layer, tmp_path / "recut", source=str(source))
    assert source_in(tmp_path / "recut") == old
    entries = json.loads((tmp_path / "recut" / "thresholds.json").read_text())["object"]
    assert {entry["n"] for shift in entries.values() for entry in shift.values()} == {4}


def test_a_cut_measures_on_the_content_that_the_lock_names(tmp_path: Path) -> None:
    source, out, layer = garment_folder(tmp_path / "garments", VALIDATION), tmp_path / "dataset", tmp_path / "cut.yaml"
    tiny(out, *ONE, f"source.dataset={source}")
    layer.write_text("screen: {object_threshold: {percentile: 50}}")
    (source / "validation" / "bag" / "0.png").write_bytes((source / "validation" / "bag" / "1.png").read_bytes())
    with pytest.raises(UserError) as refused:
        recut(out, layer, tmp_path / "recut", source=str(source))
    assert any("source.content" in line for line in refused.value.problems)


def test_tokens_are_of_a_content_and_those_that_tell_none_go_on(tmp_path: Path) -> None:
    from counterfoil.tokens.class_tokens import read_token_file, token_bytes

    source, folder = garment_folder(tmp_path / "garments", ("train",)), tmp_path / "tokens"
    settings = [GARMENT_CLASSES, f"source.dataset={source}", "generator={model: lab:sd, dtype: float32}",
                "tokens={path: null, learn: {steps: 1, size: 32}}"]  # fmt: skip
    assert set(learn_tokens("wardrobe-mini", folder, overrides=settings, device="cpu", workers=1).learned)
    old = shutil.copytree(folder, tmp_path / "old")
    for path in old.glob("*.safetensors"):
        token = read_token_file(path)
        pin = {key: value for key, value in token.notes["source"].items() if key != "content"}
        assert pin != token.notes["source"]
        path.write_bytes(token_bytes(type(token)(token.placeholder, token.vectors, {**token.notes, "source": pin})))
    (source / "train" / "bag" / "0.png").write_bytes((source / "train" / "bag" / "1.png").read_bytes())
    with pytest.raises(UserError) as refused:
        learn_tokens("wardrobe-mini", folder, overrides=settings, device="cpu", workers=1)
    assert any("source.content" in line for line in refused.value.problems)
    (old / "sandal.safetensors").unlink()
    assert learn_tokens("wardrobe-mini", old, overrides=settings, device="cpu", workers=1).learned == ("sandal",)
    assert "content" not in json.loads((old / "manifest.json").read_text())["source"]
