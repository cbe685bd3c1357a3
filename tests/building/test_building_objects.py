"""A killed build of images with objects goes on to the bytes of an undisturbed one, boxes
included."""

from __future__ import annotations

from pathlib import Path

from counterfoil.building.build_dataset import build
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.tasks.objects.subject import open_objects
from counterfoil.starting.init_recipe import init
from support.boxes import coco_folder
from tiny_builds import killed, published

# A cell is not divided, so there is a shard a group: the base and eight changes.
KINDS = (
    "gaussian_noise",
    "shot_noise",
    "motion_blur",
    "defocus_blur",
    "fog",
    "snow",
    "darker",
    "contrast",
)
SETTINGS = (
    "prompts.shifts={}",
    f"prompts.shifts={{{', '.join(f'{kind}: {{corruption: {kind}, severity: 3}}' for kind in KINDS)}}}",
    "generator.size=96",
    "output={format: parquet, image: {format: png, quality: null}}",
)
IMAGES = 30


def test_a_killed_build_with_objects_ends_with_the_same_bytes(tmp_path: Path) -> None:
    coco_folder(tmp_path / "coco", IMAGES)
    recipe = tmp_path / "recipe.yaml"
    again = tmp_path / "again"
    init(tmp_path / "coco", recipe, device="cpu")
    build(recipe, tmp_path / "whole", overrides=SETTINGS, device="cpu", workers=1)
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    killed(
        ["build", str(recipe), "--out", str(again), "--workers", "1", "--device", "cpu", *settings],
        again,
        2,
    )
    done = len(list((again / "receipts").glob("*.json")))
    assert 2 <= done <= len(KINDS)
    assert (
        build(recipe, again, overrides=SETTINGS, device="cpu", workers=1).shards_made
        == 1 + len(KINDS) - done
    )
    assert published(again) == published(tmp_path / "whole")
    subject = open_objects(open_dataset(again))
    assert (
        subject.images == IMAGES and subject.left_out == 0 and len(subject.truth.box) >= IMAGES - 1
    )
