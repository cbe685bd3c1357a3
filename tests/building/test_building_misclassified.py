"""A set of what a classifier gets wrong: built, gone on with, verified, cut again, made again, published and loaded."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform

import warm
from counterfoil.building import build
from counterfoil.calibration.recut_dataset import recut
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.recipe import load_recipe
from counterfoil.regeneration.regenerate_dataset import regenerate
from counterfoil.store.layout import What
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm
from counterfoil.verification import verify
from loopback_hub import LoopbackHub, Reader, client_environment
from tiny_builds import CLASSES, build_arguments, command, killed, published, tiny

JUDGE = "lab:resnet10t"
WRONG = (f"screen.keep=[thresholds, {{misclassified: {{models: ['{JUDGE}', 'lab:lcnet_035']}}}}]", "generator.steps=2")
# The base is whole; a shift draws until two of a cell are misclassified, or eight are drawn.
QUOTA = (
    *WRONG,
    "screen.keep_rejected=true",
    "prompts.shifts.red.samples={accepted: 2, at_most: 8}",
    "prompts.shifts.in_the_snow.samples={candidates: 5}",
    "prompts.shifts.pencil_sketch=null",
)
REPO = "someone/wrong"
COLUMNS = ("resnet10t_answer", "resnet10t_confidence", "resnet10t_right")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wrong") / "dataset"
    tiny(out, *QUOTA)
    return out


def rows_of(directory: Path, what: What = "candidates", *more: str) -> Iterator[dict[str, Any]]:
    form = TableForm.of(load_recipe(directory))
    columns = ["key", "shift", "label", "class_id", *([] if what == "data" else ["reason"]), *form.added, *more]
    for receipt in read_receipts(directory):
        yield from read_shard(directory, receipt, columns, what, form)


def test_only_what_is_answered_wrongly_is_kept_and_the_base_whole(wrong: Path) -> None:
    kept = list(rows_of(wrong, "data"))
    assert {row["shift"] for row in kept} == {"base", "in_the_snow", "red"}
    for row in kept:
        answers = (row["resnet10t_right"], row["lcnet_035_right"])
        assert answers == (None, None) if row["shift"] == "base" else False in answers
    reasons = {row["reason"] for row in rows_of(wrong) if row["shift"] == "base"}
    assert reasons == {"accepted"}
    dropped = [row for row in rows_of(wrong) if row["reason"] == "answered_right"]
    assert all(row["resnet10t_right"] and row["lcnet_035_right"] for row in dropped)


def test_judges_see_what_is_stored(wrong: Path) -> None:
    folder = LAB_WEIGHTS / JUDGE.removeprefix("lab:")
    model: Any = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    prepared: dict[str, Any] = resolve_model_data_config(model, use_test_size=True)
    transform: Any = create_transform(**prepared, is_training=False)
    looked = 0
    for what in ("data", "rejected"):
        for row in rows_of(wrong, what, "image"):
            if row["shift"] == "base":
                continue
            image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
            with torch.inference_mode():
                shares = model(transform(image)[None])[0].softmax(0)
            assert row["resnet10t_answer"] == int(shares.argmax())
            assert row["resnet10t_confidence"] == pytest.approx(float(shares.max()), abs=1e-4)
            source = load_recipe(wrong).classes[row["label"]].source_label
            assert row["resnet10t_right"] == (row["resnet10t_answer"] == source)
            looked += 1
    assert looked > 20


def test_a_cell_tells_how_many_candidates_filled_it(wrong: Path) -> None:
    receipts = [receipt for receipt in read_receipts(wrong) if receipt.group == "red"]
    told = {cls: at for receipt in receipts for cls, at in (receipt.filled or {})["red"].items()}
    assert set(told) == {"00", "05", "08"}
    for class_id, at in told.items():
        cell = [row["reason"] for row in rows_of(wrong) if (row["shift"], row["class_id"]) == ("red", class_id)]
        accepted = [place for place, reason in enumerate(cell, start=1) if reason == "accepted"]
        assert at == (accepted[1] if len(accepted) == 2 else None)
        assert len(cell) == 12 or (at is not None and len(cell) < at + 4)
    assert all(receipt.filled is None for receipt in read_receipts(wrong) if receipt.group != "red")


def test_it_is_whole_and_what_is_changed_is_seen(wrong: Path, tmp_path: Path) -> None:
    assert verify(wrong).problems == ()
    lock = json.loads((wrong / "lock.json").read_text())["inputs"]["judges"]
    assert set(lock) == {JUDGE, "lab:lcnet_035"}
    assert lock[JUDGE]["targets"] == [[0], [5], [8]]


@pytest.mark.whole
def test_a_killed_build_goes_on_to_the_same_bytes(wrong: Path, tmp_path: Path) -> None:
    killed(build_arguments(tmp_path / "out", *QUOTA), tmp_path / "out", 3)
    assert tiny(tmp_path / "out", *QUOTA).shards_made < len(read_receipts(wrong))
    assert published(tmp_path / "out") == published(wrong)


def test_other_settings_of_known_judges_are_a_cut(wrong: Path, tmp_path: Path) -> None:
    both = WRONG[0].removeprefix("screen.keep=").replace("]}}", "], at_least: 2}}")
    whole = [change for change in QUOTA if not change.startswith("prompts.shifts.red.samples")]
    tiny(tmp_path / "whole", *whole)
    (tmp_path / "cut.yaml").write_text(f"screen: {{keep: {both}}}\n")
    recut(tmp_path / "whole", tmp_path / "cut.yaml", tmp_path / "cut")
    tiny(tmp_path / "fresh", *whole, f"screen.keep={both}")
    assert published(tmp_path / "cut") == published(tmp_path / "fresh")
    (tmp_path / "none.yaml").write_text("screen: {keep: thresholds}\n")
    recut(tmp_path / "whole", tmp_path / "none.yaml", tmp_path / "none")
    tiny(tmp_path / "plain", *whole, "screen.keep=thresholds")
    assert published(tmp_path / "none") == published(tmp_path / "plain")


def test_a_judge_that_was_never_asked_is_no_cut(wrong: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("screen: {keep: [thresholds, {misclassified: {models: ['lab:resnet14t']}}]}\n")
    with pytest.raises(UserError, match="lab:resnet14t was not asked about the images of in_the_snow, red"):
        recut(wrong, tmp_path / "cut.yaml", tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_it_is_made_again_by_itself(wrong: Path, tmp_path: Path) -> None:
    found = regenerate(wrong, tmp_path / "again", device="cpu", workers=1)
    assert found.comparison is not None
    assert published(tmp_path / "again") == published(wrong)


def test_a_judge_elsewhere_is_the_same_by_its_weights(tmp_path: Path) -> None:
    """A directory does not say where a folder lies; who makes it again says it, and other weights are refused."""
    for name, model in (("first", "resnet10t"), ("second", "resnet14t")):
        shutil.copytree(LAB_WEIGHTS / model, tmp_path / name / "judge")

    def keep(name: str) -> str:
        return f"screen.keep=[thresholds, {{misclassified: {{models: ['local-dir:{tmp_path / name / 'judge'}']}}}}]"

    few = ("prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null", "samples.candidates=1")
    tiny(tmp_path / "out", *few, keep("first"))
    (tmp_path / "first").rename(tmp_path / "moved")
    with pytest.raises(CounterfoilError, match="folder of the machine that the dataset was built on"):
        regenerate(tmp_path / "out", tmp_path / "again", device="cpu", workers=1)
    with pytest.raises(UserError, match=r"the judges are not those that lock\.json pins"):
        regenerate(tmp_path / "out", tmp_path / "again", overrides=[keep("second")], device="cpu", workers=1)
    regenerate(tmp_path / "out", tmp_path / "again", overrides=[keep("moved")], device="cpu", workers=1)
    assert published(tmp_path / "again") == published(tmp_path / "out")


@pytest.mark.parametrize(
    ("judge", "told"), [("lab:resnet10", "did you mean 'resnet10t'"), ("local-dir:/none", "there is no folder /none")]
)
def test_a_judge_that_is_not_there_is_told_before_anything_is_made(judge: str, told: str, tmp_path: Path) -> None:
    keep = f"screen.keep=[thresholds, {{misclassified: {{models: ['{judge}']}}}}]"
    with pytest.raises((UserError, RunFailure), match=told):
        build("wardrobe-mini", tmp_path / "out", overrides=[CLASSES, keep], device="cpu", workers=1)
    assert not (tmp_path / "out").exists()


def test_it_is_published_and_loaded_with_its_columns(wrong: Path, loopback: LoopbackHub, tmp_path: Path) -> None:
    words, environment = command("publish", str(wrong), REPO, "--yes")
    there = client_environment(loopback, tmp_path / "home", inherited=environment)
    warm.run(words, there, check=True)
    with Reader(loopback, tmp_path / "reader") as reader:
        found = reader.rows(REPO, columns=["key", *COLUMNS])
    kept = {row["key"]: row for row in rows_of(wrong, "data")}
    read = {row["key"]: row for rows in found.values() for row in rows}
    assert set(read) == set(kept)
    for key, row in read.items():
        assert [row[name] for name in COLUMNS] == [kept[key][name] for name in COLUMNS]
