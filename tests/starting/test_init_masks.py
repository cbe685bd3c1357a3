"""`init` on images with masks: where it finds them, what it counts, what it refuses, and a recipe that
builds and is scored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import yaml
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.data.masks import class_colours
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.recipe import load_recipe
from counterfoil.starting.init_recipe import InitResult, init
from support.boxes import coco_folder
from support.masks import mask_folder
from support.outlines import outlined_folder
from support.refusals import problems_of

COUNT = 6


def started(folder: Path, **options: Any) -> InitResult:
    return init(folder, folder.parent / "recipe.yaml", device="cpu", **options)


def in_two_folders(folder: Path) -> list[np.ndarray]:
    return mask_folder(folder, COUNT)


def in_metadata(folder: Path) -> list[np.ndarray]:
    masks = mask_folder(folder.parent / "plain", COUNT)
    (folder / "train").mkdir(parents=True)
    lines = ["file_name,mask_file_name"]
    for number in range(COUNT):
        for side in ("images", "masks"):
            source = folder.parent / "plain" / side / f"{number:03d}.png"
            shutil.copy(source, folder / "train" / f"{number}-{side}.png")
        lines.append(f"{number}-images.png,{number}-masks.png")
    (folder / "train" / "metadata.csv").write_text("\n".join(lines))
    return masks


def in_parquet(image: str, mask: str) -> Callable[[Path], list[np.ndarray]]:
    def make(folder: Path) -> list[np.ndarray]:
        masks = mask_folder(folder.parent / "plain", COUNT)
        rows = []
        for number in range(COUNT):
            row = {}
            for column, side in ((image, "images"), (mask, "masks")):
                file = folder.parent / "plain" / side / f"{number:03d}.png"
                row[column] = {"bytes": file.read_bytes(), "path": None}
            rows.append(row)
        features = datasets.Features({image: datasets.Image(), mask: datasets.Image()})
        folder.mkdir()
        table = datasets.Dataset.from_list(rows, features=features)
        table.to_parquet(folder / "train.parquet")
        return masks

    return make


@pytest.mark.parametrize(
    ("make", "option", "image", "column"),
    [
        (in_two_folders, {}, "image", "mask"),
        (in_metadata, {}, "image", "mask"),
        (in_parquet("pixel_values", "label"), {}, "pixel_values", "label"),
        (in_parquet("first", "second"), {"mask_column": "second"}, "first", "second"),
    ],
)
def test_masks_are_found_and_counted(
    make: Callable[[Path], list[np.ndarray]],
    option: dict[str, str],
    image: str,
    column: str,
    tmp_path: Path,
) -> None:
    masks = make(tmp_path / "patches")
    result = started(tmp_path / "patches", **option)
    recipe = load_recipe(tmp_path / "recipe.yaml")
    source = recipe.source.model_dump()
    assert (source["image_column"], source["masks"]["column"]) == (image, column)
    assert source["masks"]["classes"] == ("class_0", "class_1", "class_2")
    assert recipe.samples.candidates == COUNT
    pixels = np.stack(masks)
    shares = [
        f"class_{number} ({(pixels == number).mean():.1%} of pixels, in"
        f" {(pixels == number).any(axis=(1, 2)).sum()} images)"
        for number in range(3)
    ]
    assert f"3 classes: {shares[0]}, {shares[1]} and {shares[2]}" in result.notes
    assert f"{(pixels == 255).mean():.1%} of pixels have no class" in result.notes
    assert any("the numbers in masks have no names here" in note for note in result.notes)
    assert result.commands[-1].endswith("--models predictions:FOLDER")


def test_the_picture_shows_the_colours_of_classes(tmp_path: Path) -> None:
    masks = mask_folder(tmp_path / "patches", 14)
    started(tmp_path / "patches")
    with Image.open(tmp_path / "recipe-masks.png") as picture:
        assert picture.width == 4 * 320 and picture.height > 3 * 320
        shown = np.asarray(picture.convert("RGB")).astype(int)
    # The first tile is 312 × 234 pixels at (4, 4), grey under half of the colour.
    tile = shown[4 : 4 + 234, 4 : 4 + 312]
    colours = class_colours().astype(int)
    for y, x in ((20, 20), (120, 150), (200, 300), (1, 1)):
        number = masks[0][y * 60 // 234, x * 80 // 312]
        grey = 2 * tile[y, x] - colours[number]
        assert np.ptp(grey) <= 4


def black_and_white(folder: Path) -> None:
    for path in (folder / "masks").iterdir():
        with Image.open(path) as mask:
            pixels = np.asarray(mask)
        Image.fromarray(np.where(pixels == 1, 255, 0).astype(np.uint8)).save(path)


def named(*names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "classes.txt").write_text("\n".join(names))

    return write


@pytest.mark.parametrize(
    ("change", "classes", "numbers", "note"),
    [
        (
            named("ground", "box", "sign", "sky"),
            ("ground", "box", "sign", "sky"),
            (),
            "1 class: sky",
        ),
        (named("box", "sign"), ("box", "sign"), (1, 2), "of pixels have no class"),
        (black_and_white, ("class_0", "class_255"), (0, 255), "255 is read as a class"),
    ],
)
def test_names_and_numbers(
    change: Callable[[Path], None],
    classes: tuple[str, ...],
    numbers: tuple[int, ...],
    note: str,
    tmp_path: Path,
) -> None:
    mask_folder(tmp_path / "patches", COUNT)
    change(tmp_path / "patches")
    result = started(tmp_path / "patches")
    masks = load_recipe(tmp_path / "recipe.yaml").source.model_dump()["masks"]
    assert (masks["classes"], masks["numbers"]) == (classes, numbers)
    assert any(note in each for each in result.notes)


def resized(folder: Path) -> None:
    Image.new("L", (40, 30)).save(folder / "masks" / "003.png")


def in_colours(folder: Path) -> None:
    Image.new("RGB", (80, 60)).save(folder / "masks" / "003.png")


def unlabelled(folder: Path) -> None:
    for path in (folder / "masks").iterdir():
        Image.new("L", (80, 60), 255).save(path)


def suffixed(folder: Path) -> None:
    for path in list((folder / "masks").iterdir()):
        path.rename(path.with_name(f"{path.stem}_mask.png"))


REFUSED: dict[str, tuple[Callable[[Path], None], dict[str, str], str]] = {
    "sizes": (resized, {}, "row 3, images/003.png: mask: it has 40×30 pixels, and its image 80×60"),
    "colours": (in_colours, {}, "it has the channels RGB, expected one channel or a palette"),
    "no class": (unlabelled, {}, "no pixel of its masks has a class"),
    "other names": (suffixed, {}, "no image has a mask of its name"),
    "too few names": (named("ground"), {}, "masks have the number 2, and classes.txt has 1 name"),
    "a name twice": (named("box", "Box", "sign"), {}, "classes.txt: found 'box' again"),
    "drawn": (lambda _: None, {"generator": "lab:sd"}, "an image that is drawn has none"),
    "a detector": (lambda _: None, {"detector": "model.onnx"}, "these images have no boxes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(name: str, tmp_path: Path) -> None:
    change, options, problem = REFUSED[name]
    mask_folder(tmp_path / "patches", COUNT)
    change(tmp_path / "patches")
    problems = problems_of(started, tmp_path / "patches", **options)
    assert problem in "\n".join(problems)
    assert [path.name for path in tmp_path.iterdir()] == ["patches"]


def test_columns_of_images_that_may_be_masks_are_named(tmp_path: Path) -> None:
    in_parquet("first", "second")(tmp_path / "patches")
    with pytest.raises(UserError) as caught:
        started(tmp_path / "patches")
    assert "name it with --mask-column" in (caught.value.hint or "")
    with pytest.raises(UserError, match="there is no column 'third'"):
        started(tmp_path / "patches", mask_column="third")


@pytest.mark.parametrize("turn", [3, 6])
def test_a_first_recipe_says_whether_photographs_are_turned(tmp_path: Path, turn: int) -> None:
    """Masks of another size than the upright photograph are of the stored one; nothing shows a half
    turn."""
    mask_folder(tmp_path / "patches", 2)
    path = tmp_path / "patches" / "images" / "001.png"
    with Image.open(path) as picture:
        exif = picture.getexif()
        exif[0x0112] = turn
        picture.save(path, exif=exif)
    result = started(tmp_path / "patches")
    expected = "ignore" if turn == 6 else "apply"
    assert load_recipe(tmp_path / "recipe.yaml").source.exif == expected
    assert any(f"source.exif is {expected}" in note for note in result.notes)


def test_objects_with_outlines_are_boxes_unless_masks_are_asked_for(tmp_path: Path) -> None:
    coco_folder(tmp_path / "boxes")
    assert not any("--mask-column" in note for note in started(tmp_path / "boxes").notes)
    outlined_folder(tmp_path / "coco")
    boxes = started(tmp_path / "coco", force=True)
    assert load_recipe(boxes.path).source.objects == "objects"
    assert "images have masks too: for a segmenter, add --mask-column segmentation" in boxes.notes


def test_a_first_recipe_of_outlines_is_built_and_scored(tmp_path: Path) -> None:
    """Answers that are the masks themselves are right everywhere."""
    outlined_folder(tmp_path / "coco", 5)
    result = started(tmp_path / "coco", mask_column="segmentation")
    document = yaml.safe_load(result.path.read_text())
    assert document["source"]["masks"]["classes"] == ["background", "box", "disk"]
    document["prompts"]["shifts"] = {"fog": document["prompts"]["shifts"]["fog"]}
    result.path.write_text(yaml.safe_dump(document))
    built = tmp_path / "coco-corrupt"
    notes = build(result.path, built, device="cpu", workers=1).notes
    assert any("of all pixels have no class" in note for note in notes)
    answers = tmp_path / "answers"
    answers.mkdir()
    for split in datasets.load_dataset(str(built)).values():
        for row in split.to_iterable_dataset():
            row["mask"].save(answers / f"{row['key']}.png")
    results = evaluate(built, [f"predictions:{answers}"]).results
    for group in ("base", "fog"):
        assert results.rows.value("mIoU", model=results.models[0].name, group=group) == 1
    assert verify(built).problems == ()
    assert "0 `background`, 1 `box`, 2 `disk`" in (built / "README.md").read_text()
