"""Which images with objects a build takes, and what it refuses or tells before it makes one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from counterfoil.data.open_source import open_source
from counterfoil.errors import UserError
from counterfoil.generate.kinds.corrupt import CorruptMaker
from counterfoil.generate.kinds.kind import ChosenTable
from counterfoil.recipe import load_recipe
from counterfoil.starting.found_data import find_data
from counterfoil.starting.found_objects import FoundObjects
from counterfoil.starting.options import InitOptions
from support.boxes import NAMES, coco_folder, draw_images, drawn_objects, yolo_folder


def chosen_rows(folder: Path, **source: Any) -> ChosenTable:
    described = {
        "dataset": str(folder),
        "objects": "objects",
        "categories": list(NAMES),
        "train_split": "none",
    }
    document = {
        "recipe": 1, "name": "streets", "license": "other", "source": described | source,
        "generator": {"kind": "corrupt", "split": "train"},
        "prompts": {"shifts": {"darker": {"corruption": "darker", "severity": 2}}},
        "samples": {"candidates": 4},
    }  # fmt: skip
    file = folder.parent / "recipe.yaml"
    file.write_text(json.dumps(document))
    recipe = load_recipe(file)
    return CorruptMaker().choose_rows(recipe, open_source(recipe.source).pin, {}, "cpu")


def metadata_folder(folder: Path) -> Any:
    drawn = drawn_objects(4)
    draw_images(folder, drawn)
    lines = []
    for name, objects in drawn:
        boxes = [list(box) for _, box in objects]
        categories = [NAMES[category] for category, _ in objects]
        lines.append(
            json.dumps({"file_name": name, "objects": {"bbox": boxes, "categories": categories}})
        )
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return drawn


def turned(folder: Path, tag: int = 6) -> None:
    exif = Image.Exif()
    exif[274] = tag
    for path in folder.rglob("*.png"):
        with Image.open(path) as picture:
            picture.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)


def without_labels(folder: Path) -> None:
    for path in (folder / "labels" / "train").iterdir():
        path.write_text("")


def without_annotations(folder: Path) -> None:
    document = json.loads((folder / "annotations.json").read_text())
    (folder / "annotations.json").write_text(json.dumps(document | {"annotations": []}))


@pytest.mark.parametrize(
    ("make", "empty"), [(yolo_folder, without_labels), (coco_folder, without_annotations)]
)
def test_images_without_a_single_object_do_not_build(
    make: Callable[..., Any], empty: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "data", 4)
    empty(tmp_path / "data")
    with pytest.raises(
        UserError, match=r"none of 4 images has an object of the recipe's 2 categories"
    ):
        chosen_rows(tmp_path / "data")


@pytest.mark.parametrize("make", [yolo_folder, metadata_folder])
def test_a_recipe_says_whether_boxes_are_of_turned_photographs(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    make(tmp_path / "data")
    turned(tmp_path / "data")
    with pytest.raises(UserError, match=r"an EXIF tag turns \d photographs") as refused:
        chosen_rows(tmp_path / "data")
    assert "Set source.exif to apply if boxes were drawn on upright photographs" in (
        refused.value.hint or ""
    )
    for exif in ("apply", "ignore"):
        assert chosen_rows(tmp_path / "data", exif=exif)
        written = load_recipe(tmp_path / "recipe.yaml").source.model_dump()
        assert written["exif"] == exif, (
            "kept where a recipe is written down, though it may be the default"
        )


@pytest.mark.parametrize("make", [coco_folder, yolo_folder, metadata_folder])
def test_a_first_recipe_turns_photographs_and_their_boxes_fit(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    drawn = make(tmp_path / "data")
    turned(tmp_path / "data")
    data = find_data(InitOptions(tmp_path / "data"), drawn=False)
    assert data.origin.exif == "apply" and data.placed is not None and data.placed.exif == "apply"
    rows = open_source(data.origin).rows("train", labelled=False)
    assert rows.image(0).size == (160, 120)
    boxes = [cell["bbox"] for cell in rows.column("objects")]
    assert boxes == [[pytest.approx(list(box)) for _, box in objects] for _, objects in drawn]


def test_a_first_recipe_names_the_numbers_of_the_file(tmp_path: Path) -> None:
    coco_folder(tmp_path / "data")
    objects = find_data(InitOptions(tmp_path / "data"), drawn=False).placed
    assert isinstance(objects, FoundObjects) and (objects.names, objects.ids) == (NAMES, (3, 7))


def test_notes_of_a_folder_and_on_the_order_of_categories_are_told(tmp_path: Path) -> None:
    coco_folder(tmp_path / "data")
    document = json.loads((tmp_path / "data" / "annotations.json").read_text())
    document["images"].append({"id": 99, "file_name": "lost.png"})
    (tmp_path / "data" / "annotations.json").write_text(json.dumps(document))
    notes = chosen_rows(tmp_path / "data").notes
    assert any("1 listed image not in the folder, and left out" in note for note in notes)
    swapped = chosen_rows(tmp_path / "data", categories=["disk", "box"]).notes
    assert any("not all categories of the dataset in their order" in note for note in swapped)
