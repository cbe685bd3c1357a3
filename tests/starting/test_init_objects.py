"""`init` on images with boxes: the forms that it reads, reports of odd boxes, and a recipe that
builds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from counterfoil.errors import RunFailure, UserError
from counterfoil.recipe import load_recipe
from counterfoil.starting.init_recipe import InitResult, init
from support.boxes import NAMES, coco_folder, draw_images, drawn_objects, yolo_folder


def metadata_folder(form: str, name: str) -> Callable[[Path], Any]:
    """Return a writer of an imagefolder whose metadata hold boxes in this form, categories by
    name."""

    def make(folder: Path) -> Any:
        drawn = drawn_objects(12)
        draw_images(folder, drawn)
        rows = []
        for file, objects in drawn:
            boxes = [
                [x, y, x + w, y + h] if form == "pascal" else [x, y, w, h]
                for _, (x, y, w, h) in objects
            ]
            if form == "yolo":
                boxes = [
                    [(x + w / 2) / 160, (y + h / 2) / 120, w / 160, h / 120]
                    for _, (x, y, w, h) in objects
                ]
            rows.append(
                {
                    "file_name": file,
                    "objects": {"bbox": boxes, "categories": [NAMES[c] for c, _ in objects]},
                }
            )
        if name.endswith(".csv"):
            cells = [json.dumps(row["objects"]).replace('"', '""') for row in rows]
            lines = [f'{row["file_name"]},"{cell}"' for row, cell in zip(rows, cells, strict=True)]
            (folder / name).write_text("\n".join(["file_name,objects", *lines]))
        else:
            (folder / name).write_text("\n".join(map(json.dumps, rows)))
        return drawn

    return make


def started(folder: Path, make: Callable[[Path], Any]) -> InitResult:
    make(folder / "images-with-boxes")
    return init(folder / "images-with-boxes", folder / "recipe.yaml", device="cpu")


@pytest.mark.parametrize(
    ("make", "words", "boxes"),
    [
        (coco_folder, "[x, y, width, height] in pixels, as COCO writes them", "coco"),
        (yolo_folder, "centre and size as shares of the image, as YOLO writes them", "coco"),
        (
            metadata_folder("coco", "metadata.jsonl"),
            "[x, y, width, height] in pixels, as COCO writes them",
            "coco",
        ),
        (
            metadata_folder("yolo", "metadata.jsonl"),
            "centre and size as shares of the image, as YOLO",
            "yolo",
        ),
        (
            metadata_folder("pascal", "metadata.csv"),
            "two corners in pixels, as Pascal VOC writes them",
            "pascal",
        ),
    ],
)
def test_each_form_of_boxes_is_read_and_said(
    make: Callable[[Path], Any], words: str, boxes: str, tmp_path: Path
) -> None:
    result = started(tmp_path, make)
    assert words in result.notes[0]
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert (recipe.source.boxes, recipe.source.categories) == (boxes, NAMES)
    assert recipe.samples.candidates == 12 and all(
        shift.corruption != "occlusion" for shift in recipe.all_shifts()
    )
    counts = [
        sum(category == index for _, objects in drawn_objects(12) for category, _ in objects)
        for index in (0, 1)
    ]
    named = sorted(zip(counts, NAMES, strict=True), reverse=True)
    listed = " and ".join(f"{name} ({count})" for count, name in named)
    assert any(note == f"{sum(counts)} objects of 2 categories: {listed}" for note in result.notes)
    assert any("1 image has no object" in note for note in result.notes)
    with Image.open(tmp_path / "recipe-boxes.png") as picture:
        assert picture.size == (4 * 320, 3 * 320)


def table_folder(objects: Callable[[int, int], dict[str, Any]]) -> Callable[[Path], Any]:
    """Return a writer of twelve images with one object each. objects: parts of the object at a
    corner."""

    def make(folder: Path) -> None:
        drawn: Any = [(f"{number:02d}.png", []) for number in range(12)]
        draw_images(folder, drawn)
        lines = []
        for number, (name, _) in enumerate(drawn):
            parts = {"category": NAMES[number % 2]} | objects(10 + number, 8 + number)
            lines.append(json.dumps({"file_name": name, "objects": [parts]}))
        (folder / "metadata.jsonl").write_text("\n".join(lines))

    return make


@pytest.mark.parametrize(
    ("objects", "boxes"),
    [
        (
            lambda x, y: {
                "bbox": [
                    x,
                    y,
                    x + 30,
                    y + 24,
                ],
                "area": 720,
            },
            "pascal",
        ),
        (
            lambda x, y: {
                "bbox": [
                    x,
                    y,
                    x + 30,
                    y + 24,
                ],
                "area": (x + 30) * (y + 24),
            },
            "coco",
        ),
        (lambda x, y: {"bbox": [0.5, 0.5, 1.0000001, 1.0]}, "yolo"),
    ],
)
def test_areas_decide_where_two_forms_fit_and_shares_may_be_rounded(
    objects: Callable[[int, int], dict[str, Any]], boxes: str, tmp_path: Path
) -> None:
    result = started(tmp_path, table_folder(objects))
    assert load_recipe(tmp_path / "recipe.yaml").source.boxes == boxes
    assert not any("two corners too" in note for note in result.notes)


def test_boxes_that_fit_in_two_forms_are_told(tmp_path: Path) -> None:
    make = table_folder(lambda x, y: {"bbox": [x, y, x + 30, y + 24]})
    assert any("source.boxes: pascal" in note for note in started(tmp_path, make).notes)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (
            lambda x, y: (
                [
                    0.6,
                    0.6,
                    0.3,
                    0.3,
                ]
                if x % 2
                else [x / 160, y / 120, 0.5, 0.5]
            ),
            "[x, y, width, height]",
        ),
        (lambda x, y: [x / 160, y / 120, 0.9, 0.8], "two corners"),
    ],
)
def test_shares_of_another_form_are_refused(
    box: Callable[[int, int], list[float]], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="of 12 would leave their image") as refused:
        started(tmp_path, table_folder(lambda x, y: {"bbox": box(x, y)}))
    assert words in str(refused.value)


def test_odd_boxes_and_crowds_are_counted(tmp_path: Path) -> None:
    def make(folder: Path) -> None:
        coco_folder(folder)
        document = json.loads((folder / "annotations.json").read_text())
        for box, crowd in (
            ([150, 100, 40, 40], 0),
            ([300, 10, 5, 5], 0),
            ([10, 10, 0, 4], 0),
            ([0, 0, 50, 50], 1),
        ):
            document["annotations"].append(
                {"image_id": 1, "category_id": 3, "bbox": box, "iscrowd": crowd}
            )
        (folder / "annotations.json").write_text(json.dumps(document))

    notes = "\n".join(started(tmp_path, make).notes)
    assert "1 leave their image, and are kept as they are" in notes
    assert "2 have no area in their image, and count as objects that nothing finds" in notes
    assert "1 box is of crowds, which are neither found nor missed" in notes


def test_images_with_boxes_are_not_drawn(tmp_path: Path) -> None:
    coco_folder(tmp_path / "coco")
    with pytest.raises(UserError, match="an image that is drawn has none"):
        init(tmp_path / "coco", tmp_path / "recipe.yaml", generator="lab:sd", device="cpu")


def test_a_full_disk_leaves_nothing_that_the_next_run_refuses(
    small_disk: Path, tmp_path: Path
) -> None:
    coco_folder(tmp_path / "coco")
    (small_disk / "filler").write_bytes(bytes(120_000))
    with pytest.raises(RunFailure, match=r"No space left on device") as full:
        init(tmp_path / "coco", small_disk / "recipe.yaml", device="cpu")
    assert "run the same command again" in str(full.value)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    result = init(tmp_path / "coco", small_disk / "recipe.yaml", device="cpu")
    assert result.path.exists() and (small_disk / "recipe-boxes.png").exists()
