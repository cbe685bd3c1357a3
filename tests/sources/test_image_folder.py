"""A folder's table by its names alone is the one that `datasets` makes of it; folders that are links are followed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest

from counterfoil.errors import CounterfoilError
from counterfoil.sources import labelled_source
from counterfoil.sources.folder_content import folder_listing
from counterfoil.sources.image_folder import image_folder
from drawn_folders import draw_folder

# What decides splits, classes and kinds of files, in names that people give.
FOLDERS = ("train", "test", "val", "cat", "dog", "my-train", "test_2", "valid.old", "retrain", "__pycache__", ".trash",
           "a.jpg.b", "evaluation", "Train", "dev set")  # fmt: skip
FILES = ("1.jpg", "2.JPG", "3.png", "4.Jpg", "train_5.png", "6-test-1.jpg", "x.test.png", "notes.txt", "label.csv",
         "Thumbs.db", ".DS_Store", "metadata.csv", "7.tar.png", "LICENSE", "8.jpg.txt", "config.json",
         "9.h5")  # fmt: skip
# Of random trees most are read by name; the others are for `datasets`.
EXAMPLES = 24


def tree(seed: int, place: Path) -> Path:
    chance = random.Random(seed)
    odd = chance.random() < 0.5
    for _ in range(chance.randint(2, 12)):
        parts = chance.choices(FOLDERS if odd else FOLDERS[:5], k=chance.choice((1, 2, 2, 2, 3) if odd else (2,)))
        file = place.joinpath(*parts, chance.choice(FILES if chance.random() < 0.3 else FILES[:3]))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"file_name,x\n1.jpg,2\n" if file.suffix == ".csv" else b"x")
    return place


def as_told(tables: dict[str, Any]) -> dict[str, Any]:
    """Rows, columns and classes by split, with the paths of images."""
    told = {}
    for split, table in tables.items():
        images = table.cast_column("image", datasets.Image(decode=False))["image"][:]
        labels = table["label"][:] if "label" in table.features else None
        told[str(split)] = (table.features, [each["path"] for each in images], labels)
    return told


def test_what_is_read_by_name_is_what_datasets_reads(tmp_path: Path) -> None:
    read = 0
    for seed in range(EXAMPLES):
        folder = tree(seed, tmp_path / f"photos-{seed}")
        found = image_folder(folder, folder_listing(folder).files)
        if found is not None:
            read += 1
            expected = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
            assert as_told(found) == as_told(dict(expected)), seed
    assert read > EXAMPLES / 3


def test_folders_that_are_links_give_the_rows_and_images_of_what_they_lead_to(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    plain = labelled_source(folder)
    shutil.move(folder / "mug", tmp_path / "collected")
    (folder / "mug").symlink_to(tmp_path / "collected")
    linked = labelled_source(folder)
    assert (linked.keys, linked.labels.tolist(), linked.class_names, linked.content) == (
        plain.keys, plain.labels.tolist(), plain.class_names, plain.content,
    )  # fmt: skip
    assert all(image for _, image in linked.read(None))


@pytest.mark.parametrize("place", ["file", "deeper", "described"])
def test_no_other_link_leads_out_of_a_dataset(place: str, tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    shutil.move(folder / "mug", tmp_path / "private")
    if place == "file":
        (folder / "mug").mkdir()
        (folder / "mug" / "000.png").symlink_to(tmp_path / "private" / "000.png")
    else:
        (tmp_path / "private" / "more").symlink_to(tmp_path)
        (folder / "mug").symlink_to(tmp_path / "private")
    if place == "described":
        (tmp_path / "private" / "more").unlink()
        (folder / "README.md").write_text("---\nconfigs: [{config_name: a, data_files: '*/*'}]\n---\n")
    with pytest.raises(CounterfoilError, match="is a link"):
        labelled_source(folder)
