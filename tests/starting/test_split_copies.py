"""`init` and `check` say which tested images are copies of training images."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image, ImageOps
from typer.testing import CliRunner

from counterfoil import image_copies
from counterfoil.cli.main import app
from counterfoil.data import fingerprints
from counterfoil.errors import RunFailure, UserError
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.starting import split_copies
from counterfoil.starting.init_recipe import InitResult, init
from support.images import encoded

CLASSES = ("mug", "star")
EACH = 6


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@cache
def scene(number: int) -> Image.Image:
    return Image.fromarray(render(wardrobe_scene("audit", number)))


def write(name: str, content: bytes) -> None:
    path = Path("photos", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def photos() -> Path:
    """Write two splits of different scenes."""
    number = 0
    for split in ("train", "test"):
        for name in CLASSES:
            for row in range(EACH):
                write(f"{split}/{name}/{row}.png", encoded(scene(number)))
                number += 1
    return Path("photos")


def add_copies() -> None:
    """Add an exact and a mirrored copy, one of another label, and one of a test image."""
    write("test/mug/exact.webp", encoded(scene(0), "WEBP", lossless=True))
    write("test/mug/near.jpg", encoded(ImageOps.mirror(scene(1)), "JPEG", quality=80))
    write("test/star/wrong.png", encoded(scene(2)))
    write("test/star/twice.png", encoded(scene(2 * EACH + 1)))


def proposed(**given: Any) -> InitResult:
    return init("photos", device="cpu", force=True, **given)


def noted(notes: tuple[str, ...], words: str) -> list[str]:
    return [note for note in notes if words in note]


def checked(*more: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(app, ["check", "recipe.yaml", "--json", *more])
    assert done.exit_code == 0, done.output
    lacks = json.loads(done.stdout)["lacks"]
    return [lack for lack in lacks if "cop" in lack["text"] or "repeat" in lack["text"]]


def test_init_counts_copies_and_lists_them_and_check_counts_them(photos: Path) -> None:
    add_copies()
    result = proposed()
    assert noted(
        result.notes, "3 of 16 images of test are copies of images of train: 2 exact, 1 near"
    )
    (labels,) = noted(result.notes, "another label")
    assert "test/star/wrong.png (star) = train/mug/2.png (mug)" in labels
    assert noted(result.notes, "1 of 16 images of test repeats another")
    (copies,) = result.copies
    assert (copies.exact, copies.near, copies.other_label, copies.repeated) == (2, 1, 1, 1)
    rows = csv.DictReader(Path("recipe-copies.csv").read_text().splitlines())
    listed = {(row["image"], row["train_image"], row["kind"], row["mirrored"]) for row in rows}
    assert listed == {
        ("test/mug/exact.webp", "train/mug/0.png", "exact", "False"),
        ("test/mug/near.jpg", "train/mug/1.png", "near", "True"),
        ("test/star/wrong.png", "train/mug/2.png", "exact", "False"),
    }
    lacks = checked()
    assert {(lack["key"], lack["weight"]) for lack in lacks} == {("generator.split", "optional")}
    text = " ".join(lack["text"] for lack in lacks)
    assert "3 of 16 images of test are copies of images of train: 2 exact, 1 near" in text
    assert "1 copy has another label" in text


def test_without_copies_init_says_so_and_check_nothing(photos: Path) -> None:
    Path("recipe-copies.csv").write_text("of an earlier run")
    result = proposed()
    assert noted(result.notes, "no image of test is a copy of an image of train")
    assert not Path("recipe-copies.csv").exists()
    assert not checked()


def test_a_list_of_an_earlier_run_is_kept_without_force(photos: Path) -> None:
    add_copies()
    kept = Path("recipe-copies.csv")
    kept.write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        init("photos", device="cpu")
    assert kept.read_text() == "mine"
    assert not Path("recipe.yaml").exists()
    proposed()
    assert kept.read_text().startswith("image,train_image")


def test_no_list_is_written_if_init_fails(photos: Path) -> None:
    add_copies()
    with pytest.raises(UserError, match="no boxes"):
        proposed(detector="detector.onnx")
    assert not Path("recipe-copies.csv").exists()


def test_zero_compares_nothing(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_copies()
    monkeypatch.setattr(split_copies, "fingerprint", lambda encoded: pytest.fail("compared"))
    assert not proposed(copies=0).copies
    assert not checked("--copies", "0")


def test_a_sample_says_how_many_it_compares_and_is_no_all_clear(photos: Path) -> None:
    clear = proposed(copies=8).notes
    assert noted(
        clear, "no copy was found among the 8 of 12 images of test and the 8 of 12 images of train"
    )
    assert not noted(clear, "no image of test")
    add_copies()
    result = proposed(copies=8)
    assert noted(result.notes, "only 8 of 16 images of test, evenly spread, were compared")
    assert noted(result.notes, "only 8 of 12 images of train, evenly spread, were compared")
    assert noted(result.notes, "add --copies 16")


def test_images_that_were_not_wholly_compared_are_counted(photos: Path) -> None:
    write("test/mug/broken.png", encoded(scene(0))[:200])
    write("test/mug/plain.png", encoded((90, 90, 90)))
    write("train/mug/plain.png", encoded((91, 90, 90)))
    result = proposed()
    assert noted(result.notes, "that cannot be read, so their files alone were compared: 1 of test")
    assert noted(result.notes, "compared for exact copies only: 1 of test and 1 of train")
    assert not noted(result.notes, "no image of test")


def test_splits_that_are_not_compared_are_named() -> None:
    splits = (
        "test",
        "a",
        "b",
        "c",
        "d",
    )
    save_tables(train=[(0, 0), (1, 1)], **{split: [(2, 0), (3, 1)] for split in splits})
    result = proposed()
    assert len(result.copies) == 4
    left_out = {*splits} - {copies.tested for copies in result.copies}
    assert noted(result.notes, f"copies were not looked for in {left_out.pop()}: only the first 4")


def test_a_split_that_fails_is_named(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("validation/mug/0.png", encoded(scene(50)))
    write("validation/star/1.png", encoded(scene(60)))
    real = split_copies._affordable

    def affordable(rows: Any) -> int:
        if rows.split == "test":
            raise RunFailure("the disk is gone")
        return real(rows)

    monkeypatch.setattr(split_copies, "_affordable", affordable)
    (note,) = noted(proposed().notes, "the disk is gone")
    assert "copies were not looked for in test, because of test: the disk" in note


def frame(chance: np.random.Generator) -> bytes:
    """Return a noisy frame of a camera that does not move."""
    picture = np.asarray(scene(0), np.float32)
    noisy = picture + chance.normal(0, 12, picture.shape)
    return encoded(noisy.clip(0, 255).astype(np.uint8))


def test_frames_of_one_camera_are_no_all_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_copies, "MOST_CANDIDATES", 300)
    chance = np.random.default_rng(0)
    for split in ("train", "test"):
        for row in range(24):
            write(f"{split}/{CLASSES[row % 2]}/{row}.png", frame(chance))
    result = proposed()
    (copies,) = result.copies
    assert copies.radius < image_copies.RADIUS
    assert not noted(result.notes, "no image of test")
    (note,) = noted(result.notes, "near copies were")
    assert "look alike. The images may be of few scenes" in note
    assert [lack for lack in checked() if lack["text"] == note]


def test_large_images_are_sampled_by_default(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_copies, "_MOST_BYTES", 1)
    assert noted(proposed().notes, "only 1 of 12 images of test")


def test_one_split_is_compared_with_nothing() -> None:
    for row in range(EACH):
        for number, name in enumerate(CLASSES):
            write(f"{name}/{row}.png", encoded(scene(2 * row + number)))
    assert not proposed().copies
    assert not checked()


def test_fingerprints_are_kept_by_content(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proposed()
    decoded = []
    monkeypatch.setattr(
        split_copies,
        "fingerprint",
        lambda file: decoded.append(file) or fingerprints.fingerprint(file),
    )
    proposed()
    assert not decoded
    write("test/mug/new.png", encoded(scene(40)))
    Path("photos/test/mug/0.png").rename("photos/test/mug/other.png")
    proposed()
    assert len(decoded) == 1
    for kept in Path("cache/counterfoil/fingerprints").iterdir():
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    proposed()
    assert len(decoded) == 1 + 4 * EACH + 1


def save_tables(**rows_of: list[tuple[int, int]]) -> None:
    """Save splits of a table: the scene and the label of each row, -1 for none."""
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    )
    splits: Any = {}
    for split, rows in rows_of.items():
        images = [{"bytes": encoded(scene(number)), "path": None} for number, _ in rows]
        columns = {"image": images, "label": [label for _, label in rows]}
        splits[split] = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(splits).save_to_disk("photos")


def test_rows_of_tables_are_named_by_number() -> None:
    save_tables(train=[(0, 0), (1, 1), (2, 0), (3, 1)], test=[(4, 0), (5, 1), (3, 1)])
    result = proposed()
    (pair,) = result.copies[0].pairs
    assert (pair["image"], pair["train_image"]) == ("test row 2", "train row 3")
    assert noted(result.notes, "1 of 3 images of test is a copy")


def test_a_missing_label_is_not_a_wrong_one() -> None:
    save_tables(train=[(0, 0), (1, 1), (3, -1)], test=[(4, 0), (5, 1), (3, 1), (1, 0)])
    (copies,) = proposed().copies
    assert (copies.exact, copies.other_label) == (2, 1)


def test_one_of_many_equal_training_images_with_another_label_is_seen() -> None:
    repeated = [(3, 0)] * 24
    save_tables(
        train=[
            (0, 0),
            (1, 1),
            *repeated,
            (3, 1),
        ],
        test=[
            (4, 1),
            (5, 0),
            (3, 0),
        ],
    )
    result = proposed()
    (copies,) = result.copies
    assert (copies.exact, copies.other_label) == (1, 1)
    assert noted(result.notes, "labels is wrong: test row 2 (mug) = train row 26 (star)")
    assert len(Path("recipe-copies.csv").read_text().splitlines()) == 1 + 20
    assert noted(result.notes, "recipe-copies.csv has 20 of 25 pairs of test")


def test_equal_images_all_count_as_near_copies(photos: Path) -> None:
    changed = encoded(ImageOps.mirror(scene(1)), "JPEG", quality=80)
    for row in range(3):
        write(f"test/mug/near-{row}.jpg", changed)
    (copies,) = proposed().copies
    assert (copies.exact, copies.near, copies.repeated) == (0, 3, 2)
    assert len(copies.pairs) == 3


def test_names_of_files_are_escaped(photos: Path) -> None:
    write("test/mug/=\x1b[31m.png", encoded(scene(0)))
    result = proposed()
    text = Path("recipe-copies.csv").read_text()
    assert "\x1b" not in text + " ".join(result.notes)


def test_several_splits_are_each_compared(photos: Path) -> None:
    write("validation/mug/0.png", encoded(scene(0)))
    write("validation/star/1.png", encoded(scene(60)))
    copies = {each.tested: each.exact for each in proposed().copies}
    assert copies == {"test": 0, "validation": 1}


def test_json_has_the_counts(photos: Path) -> None:
    add_copies()
    done = CliRunner().invoke(app, ["init", "photos", "--device", "cpu", "--json"])
    (document,) = json.loads(done.stdout)["copies"]
    assert document == {
        "train": "train",
        "tested": "test",
        "compared": {"test": 16, "train": 12},
        "unreadable": {"test": 0, "train": 0},
        "plain": {"test": 0, "train": 0},
        "radius": 18,
        "exact": 2,
        "near": 1,
        "other_label": 1,
        "repeated": 1,
    }
