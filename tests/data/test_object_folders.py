"""Folders of COCO and YOLO files: what is read, and which files of strangers are refused with a message."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil.data import NamedDataset
from counterfoil.data.folders import folder_listing
from counterfoil.data.object_folders import ObjectFolder, read_object_folder
from counterfoil.data.open_source import open_source
from counterfoil.errors import UserError
from support.boxes import coco_document, coco_folder, draw_images, drawn_objects, yolo_folder


def read(folder: Path) -> ObjectFolder:
    objects = read_object_folder(folder, folder_listing(folder))
    assert objects is not None
    return objects


@pytest.mark.parametrize("make", [coco_folder, yolo_folder])
def test_the_boxes_of_a_folder_are_those_that_were_drawn(make: Callable[[Path], Any], tmp_path: Path) -> None:
    folder = tmp_path / "data"  # caches are beside it
    drawn = make(folder)
    rows = open_source(NamedDataset(str(folder), objects="objects")).rows("train", labelled=False)
    assert rows.count == len(drawn) and rows.class_names("objects") == ("box", "disk")
    assert [Path(path).name for path in rows.paths() or ()] == [name for name, _ in drawn]
    for cell, (_, objects) in zip(rows.column("objects"), drawn, strict=True):
        assert cell["category"] == [category for category, _ in objects]
        assert cell["bbox"] == [pytest.approx(box) for _, box in objects]
        assert cell["area"] == pytest.approx([box[2] * box[3] for _, box in objects])
        assert not any(cell["iscrowd"])
    assert rows.image(0).size == (160, 120)


def test_coco_splits_are_read_from_names_of_files_or_of_folders(tmp_path: Path) -> None:
    first, second = drawn_objects(3), drawn_objects(4, seed=1)
    for name, images in (("train2017", first), ("val2017", second)):  # the same file names in both
        draw_images(tmp_path / name, images)
        annotations = tmp_path / "annotations" / f"instances_{name}.json"
        annotations.parent.mkdir(exist_ok=True)
        annotations.write_text(json.dumps(coco_document(images)))
    (tmp_path / "annotations" / "captions_val2017.json").write_text("{}")
    objects = read(tmp_path)
    assert {split: [path for path, _ in rows] for split, rows in objects.splits.items()} == {
        "train": [f"train2017/{name}" for name, _ in first],
        "validation": [f"val2017/{name}" for name, _ in second],
    }


def test_images_that_a_folder_lacks_are_counted_and_crowds_are_kept(tmp_path: Path) -> None:
    drawn = coco_folder(tmp_path)
    (tmp_path / "images" / drawn[0][0]).unlink()
    document = json.loads((tmp_path / "annotations.json").read_text())
    document["annotations"].append({"image_id": 2, "category_id": 7, "bbox": [0, 0, 5, 5], "iscrowd": 1, "area": 9.5})
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    folder = read(tmp_path)
    assert folder.absent == {"train": 1} and len(folder.splits["train"]) == len(drawn) - 1
    objects = folder.splits["train"][0][1]
    assert objects["iscrowd"][-1] is True and objects["area"][-1] == 9.5 and objects["category"][-1] == 1


def test_polygons_of_yolo_are_read_as_the_boxes_around_them(tmp_path: Path) -> None:
    drawn = yolo_folder(tmp_path)
    (tmp_path / "labels" / "train" / "000.txt").write_text("1 0.25 0.5 0.75 0.5 0.5 0.75")
    objects = read(tmp_path).splits["train"][0][1]
    assert objects["bbox"] == [[40.0, 60.0, 80.0, 30.0]] and objects["category"] == [1] and len(drawn) == 12


def damaged(**changes: Any) -> Callable[[Path], None]:
    """Replace lists of the COCO file, or its first annotation's values."""

    def change(folder: Path) -> None:
        document = json.loads((folder / "annotations.json").read_text())
        document["annotations"][0] |= {key: value for key, value in changes.items() if key not in document}
        document |= {key: value for key, value in changes.items() if key in document}
        (folder / "annotations.json").write_text(json.dumps(document))

    return change


def second_file(folder: Path) -> None:
    shutil.copy(folder / "annotations.json", folder / "train.json")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged(bbox=[1, 2, 3]), r"annotations\[0\]: bbox is .* expected \[x, y, width, height\]"),
        (damaged(bbox=[1, 2, float("inf"), 3]), "bbox is"),
        (damaged(category_id=4), "there is no category '4'"),
        (damaged(image_id=99), "there is no image '99'"),
        (damaged(iscrowd=2), "iscrowd is '2', expected 0 or 1"),
        (damaged(categories=[{"id": 3, "name": "box"}, {"id": 7, "name": "Box"}]), "found 'box' again"),
        (damaged(categories=[{"id": 3}]), "expected a name"),
        (damaged(images=[{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]), "an id of its own"),
        (second_file, "are annotations of one split"),
    ],
)
def test_a_coco_file_of_another_form_is_refused_in_words(
    damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    coco_folder(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        read(tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_no_image_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    coco_folder(folder)
    shutil.copy(folder / "images" / "000.png", tmp_path / "outside.png")
    names = ["../outside.png", str(tmp_path / "outside.png"), "images/../../outside.png"]
    images = [{"id": number, "file_name": name} for number, name in enumerate(names, start=1)]
    damaged(images=images, annotations=[])(folder)
    with pytest.raises(UserError, match="lists 3 images, and none of them is in the folder"):
        read(folder)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("labels/train/000.txt", "2 0.5 0.5 0.1 0.1", "line 1: .* expected a number from 0 to 1 and four shares"),
        ("labels/train/000.txt", "0 0.5 0.5 nan 0.1", "line 1"),
        ("labels/train/000.txt", "0 0.5\nbox", "line 2"),
        ("data.yaml", "names: {0: a, 2: b}\ntrain: images/train", "numbers that are not 0 to 1"),
        ("data.yaml", "names: [a, a]\ntrain: images/train", "found 'a' again"),
        ("data.yaml", "names: [a]\ntrain: ../../etc", "name no folder that has an image"),
        ("data.yaml", "a: &a [x]\nnames: [*a, *a\n", "YAML"),
    ],
)
def test_a_yolo_folder_of_another_form_is_refused_in_words(file: str, text: str, message: str, tmp_path: Path) -> None:
    yolo_folder(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError) as caught:
        read(tmp_path)
    assert re.search(message, "\n".join(caught.value.problems))


def test_class_folders_with_another_json_file_are_no_folder_of_boxes(tmp_path: Path) -> None:
    draw_images(tmp_path / "box", drawn_objects(2))
    (tmp_path / "notes.json").write_text('{"images": 3}')
    assert read_object_folder(tmp_path, folder_listing(tmp_path)) is None
