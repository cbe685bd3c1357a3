"""Folders of COCO and YOLO files: what is read, and which files of strangers are refused with a
message."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from counterfoil.data.folders import folder_listing
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.object_folders import read_object_folder
from counterfoil.data.open_source import open_source
from counterfoil.data.written_objects import ObjectFolder, ObjectLists
from support.boxes import coco_document, coco_folder, draw_images, drawn_objects, yolo_folder
from support.limited import OPENING, limited
from support.refusals import problems_of, refuses


def read(folder: Path) -> ObjectFolder:
    objects = read_object_folder(folder, folder_listing(folder))
    assert objects is not None
    return objects


def boxes_of(folder: Path, split: str = "train", exif: Any = "ignore") -> dict[str, ObjectLists]:
    """Return name of the image → its objects, in pixels of the image."""
    objects = read_object_folder(folder, folder_listing(folder), split, exif)
    assert objects is not None
    lists, _ = objects.objects(split)
    return {
        Path(image.path).name: cell
        for image, cell in zip(objects.splits[split], lists, strict=True)
    }


@pytest.mark.parametrize("make", [coco_folder, yolo_folder])
def test_the_boxes_of_a_folder_are_those_that_were_drawn(
    make: Callable[[Path], Any], tmp_path: Path
) -> None:
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
    first = drawn_objects(3)
    second = drawn_objects(4, seed=1)
    for name, images in (("train2017", first), ("val2017", second)):  # the same file names in both
        draw_images(tmp_path / name, images)
        annotations = tmp_path / "annotations" / f"instances_{name}.json"
        annotations.parent.mkdir(exist_ok=True)
        annotations.write_text(json.dumps(coco_document(images)))
    (tmp_path / "annotations" / "captions_val2017.json").write_text("{}")
    objects = read(tmp_path)
    assert {split: [image.path for image in rows] for split, rows in objects.splits.items()} == {
        "train": [f"train2017/{name}" for name, _ in first],
        "validation": [f"val2017/{name}" for name, _ in second],
    }


@pytest.mark.parametrize(
    ("homes", "files"),
    [
        (("train", "valid"), ("train/_annotations.coco.json", "valid/_annotations.coco.json")),
        (
            ("images/train2017", "images/val2017"),
            ("annotations/instances_train2017.json", "annotations/instances_val2017.json"),
        ),
    ],
)
def test_an_image_that_a_split_lacks_is_not_that_of_another_split(
    homes: tuple[str, str], files: tuple[str, str], tmp_path: Path
) -> None:
    """Splits number their images alike, and one image of the second split was removed."""
    for seed, (home, file) in enumerate(zip(homes, files, strict=True)):
        drawn = drawn_objects(5, seed=seed)
        draw_images(tmp_path / home, drawn)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(json.dumps(coco_document(drawn)))
    (tmp_path / homes[1] / "002.png").unlink()
    objects = read(tmp_path)
    kept = [f"{homes[1]}/{number:03d}.png" for number in (0, 1, 3, 4)]
    assert [image.path for image in objects.splits["validation"]] == kept
    assert objects.absent == {"train": 0, "validation": 1}
    assert len(objects.splits["train"]) == 5


def test_images_that_a_folder_lacks_are_counted_and_crowds_are_kept(tmp_path: Path) -> None:
    drawn = coco_folder(tmp_path)
    (tmp_path / "images" / drawn[0][0]).unlink()
    document = json.loads((tmp_path / "annotations.json").read_text())
    document["annotations"].append(
        {"image_id": 2, "category_id": 7, "bbox": [0, 0, 5, 5], "iscrowd": 1, "area": 9.5}
    )
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    folder = read(tmp_path)
    assert folder.absent == {"train": 1} and len(folder.splits["train"]) == len(drawn) - 1
    objects = folder.splits["train"][0].lists
    assert (
        objects["iscrowd"][-1] is True
        and objects["area"][-1] == 9.5
        and objects["category"][-1] == 1
    )


def test_polygons_of_yolo_are_read_as_the_boxes_around_them(tmp_path: Path) -> None:
    yolo_folder(tmp_path)
    (tmp_path / "labels" / "train" / "000.txt").write_text("1 0.25 0.5 0.75 0.5 0.5 0.75")
    objects = boxes_of(tmp_path)["000.png"]
    assert objects["bbox"] == [[40.0, 60.0, 80.0, 30.0]] and objects["category"] == [1]


def damaged(**changes: Any) -> Callable[[Path], None]:
    """Replace lists of the COCO file, or its first annotation's values."""

    def change(folder: Path) -> None:
        document = json.loads((folder / "annotations.json").read_text())
        document["annotations"][0] |= {
            key: value for key, value in changes.items() if key not in document
        }
        document |= {key: value for key, value in changes.items() if key in document}
        (folder / "annotations.json").write_text(json.dumps(document))

    return change


def second_file(folder: Path) -> None:
    shutil.copy(folder / "annotations.json", folder / "train.json")


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (damaged(bbox=[1, 2, 3]), "invalid-coco", "annotations[0]: bbox is '[1, 2, 3]'"),
        (damaged(bbox=[1, 2, float("inf"), 3]), "invalid-coco", "bbox is"),
        (damaged(bbox=[9, 9, -3, 3]), "invalid-coco", "no side is below 0"),
        (damaged(category_id=4), "invalid-coco", "category '4'"),
        (damaged(image_id=99), "invalid-coco", "image '99'"),
        (damaged(iscrowd=2), "invalid-coco", "iscrowd is '2'"),
        (
            damaged(categories=[{"id": 3, "name": "box"}, {"id": 7, "name": "Box"}]),
            "invalid-coco",
            "found 'box' again",
        ),
        (
            damaged(categories=[{"id": 3, "name": "a"}, {"id": 7, "name": "a"}]),
            "invalid-coco",
            "found 'a' again",
        ),
        (damaged(categories=[{"id": 3}]), "invalid-coco", "categories[0]: found \"{'id': 3}\""),
        (
            damaged(images=[{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]),
            "invalid-coco",
            "images[1]: ",
        ),
        (second_file, "unclear-split", "annotations.json, train.json"),
    ],
)
def test_a_coco_file_of_another_form_is_refused_in_words(
    damage: Callable[[Path], None], code: str, words: str, tmp_path: Path
) -> None:
    coco_folder(tmp_path)
    damage(tmp_path)
    path = tmp_path if code == "unclear-split" else tmp_path / "annotations.json"
    with refuses(code, path, words):
        read(tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_no_image_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    coco_folder(folder)
    shutil.copy(folder / "images" / "000.png", tmp_path / "outside.png")
    names = ["../outside.png", str(tmp_path / "outside.png"), "images/../../outside.png"]
    images = [{"id": number, "file_name": name} for number, name in enumerate(names, start=1)]
    damaged(images=images, annotations=[])(folder)
    with refuses("no-images", folder / "annotations.json", "3 images"):
        read(folder)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "labels/train/000.txt",
            "2 0.5 0.5 0.1 0.1",
            "line 1: .* expected a number from 0 to 1 and four shares",
        ),
        ("labels/train/000.txt", "0 0.5 0.5 nan 0.1", "line 1"),
        ("labels/train/000.txt", "0 0.5\nbox", "line 2"),
        ("labels/train/000.txt", "0 80 60 20 20", "four shares from 0 to 1"),
        ("labels/train/000.txt", "0 0.5 0.5 -0.1 0.1", "from 0 to 1"),
        ("labels/train/000.txt", "0 0.5 0.5 0.1 0.1 0.9 7", "a score and the number of a track"),
        ("labels/train/000.txt", "0.5 0.5 0.5 0.1 0.1", "a number from 0 to 1"),
        ("data.yaml", "nc: 3\nnames: [a, b]\ntrain: images/train", "nc is 3, and names has 2"),
        ("data.yaml", "names: {0: a, 2: b}\ntrain: images/train", "numbers that are not 0 to 1"),
        ("data.yaml", "names: [a, a]\ntrain: images/train", "found 'a' again"),
        ("data.yaml", "names: [a]\ntrain: ../../etc", "name no folder that has an image"),
        ("data.yaml", "a: &a [x]\nnames: [*a, *a\n", "YAML"),
    ],
)
def test_a_yolo_folder_of_another_form_is_refused_in_words(
    file: str, text: str, message: str, tmp_path: Path
) -> None:
    yolo_folder(tmp_path)
    (tmp_path / file).write_text(text)
    problems = problems_of(read, tmp_path)
    code = "unreadable-data" if message == "YAML" else "invalid-yolo"
    assert {(problem.code, problem.path) for problem in problems} == {(code, str(tmp_path / file))}
    assert re.search(message, "\n".join(problems))


@pytest.mark.parametrize("home", ["", "set"])
def test_labels_of_yolo_without_names_are_refused(home: str, tmp_path: Path) -> None:
    """Exports of Label Studio have classes.txt; and data.yaml may be in a folder below."""
    yolo_folder(tmp_path / home)
    if not home:
        (tmp_path / "data.yaml").rename(tmp_path / "classes.txt")
    with refuses(
        "invalid-yolo",
        tmp_path,
        "no data.yaml",
        "labels/train/000.txt",
    ):
        read(tmp_path)
    (tmp_path / home / "labels" / "train" / "000.txt").write_text("a photograph of 2 cats")
    assert read_object_folder(tmp_path, folder_listing(tmp_path)) is None


def test_class_folders_with_another_json_file_are_no_folder_of_boxes(tmp_path: Path) -> None:
    draw_images(tmp_path / "box", drawn_objects(2))
    (tmp_path / "notes.json").write_text('{"images": 3}')
    assert read_object_folder(tmp_path, folder_listing(tmp_path)) is None


MANY = 500_000  # their lists would take 300 MB


def crowded_coco(folder: Path) -> None:
    coco_folder(folder, 2)
    document = json.loads((folder / "annotations.json").read_text())
    text = json.dumps(document | {"annotations": []})
    entry = json.dumps(document["annotations"][0])
    (folder / "annotations.json").write_text(text.replace("[]", f"[{', '.join([entry] * MANY)}]"))


def crowded_yolo(folder: Path) -> None:
    yolo_folder(folder, 2)
    (folder / "labels" / "train" / "000.txt").write_text("0 .5 .5 .1 .1\n" * MANY)


@pytest.mark.parametrize(
    ("make", "crowd"), [(coco_folder, crowded_coco), (yolo_folder, crowded_yolo)]
)
def test_very_many_boxes_on_an_image_are_refused_with_little_memory(
    make: Callable[[Path], Any], crowd: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "first")
    crowd(tmp_path / "crowded")
    (answer,) = limited(
        OPENING, [[str(tmp_path / name), "objects"] for name in ("first", "crowded")], 200_000_000
    )
    assert answer.startswith("UserError: ") and "objects, expected at most" in answer


# ---- Variants of one folder: however it is written, the boxes are those that were drawn


def drawn_boxes(drawn: Any) -> dict[str, list[list[float]]]:
    return {name: [list(map(float, box)) for _, box in objects] for name, objects in drawn}


def changed_coco(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Return a writer that changes a COCO document."""

    def write(folder: Path) -> None:
        document = json.loads((folder / "annotations.json").read_text())
        change(document)
        (folder / "annotations.json").write_text(json.dumps(document))

    return write


def with_ids(convert: Callable[[int], Any]) -> Callable[[Path], None]:
    def change(document: dict[str, Any]) -> None:
        for entry in (*document["images"], *document["categories"]):
            entry["id"] = convert(entry["id"])
        for entry in document["annotations"]:
            entry["image_id"], entry["category_id"] = (
                convert(entry["image_id"]),
                convert(entry["category_id"]),
            )

    return changed_coco(change)


def with_sizes(width: Any, height: Any, times: float = 1.0) -> Callable[[Path], None]:
    def change(document: dict[str, Any]) -> None:
        for entry in document["images"]:
            entry |= {"width": width, "height": height}
        for entry in document["annotations"]:
            entry["bbox"] = [value * times for value in entry["bbox"]]
            entry["area"] *= times**2

    return changed_coco(change)


@pytest.mark.parametrize(
    "change",
    [
        with_ids(float),
        with_ids(lambda number: f"no. {number}"),
        changed_coco(lambda document: document["categories"].reverse()),
        with_sizes(0, 0),
        with_sizes(None, None),
        with_sizes("160", "120"),
        with_sizes(320, 240, 2.0),
        with_sizes(161, 120),  # rounded
    ],
)
def test_variants_of_a_coco_file_have_the_same_boxes(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    drawn = coco_folder(tmp_path)
    change(tmp_path)
    cells = boxes_of(tmp_path)
    assert read(tmp_path).names == ("box", "disk")
    for name, objects in drawn:
        assert cells[name]["bbox"] == [pytest.approx(list(box)) for _, box in objects]
        assert cells[name]["category"] == [category for category, _ in objects]
        assert cells[name]["area"] == pytest.approx([box[2] * box[3] for _, box in objects])


def one_other_size(document: dict[str, Any]) -> None:
    document["images"][0] |= {"width": 640, "height": 480}


@pytest.mark.parametrize(
    "change",
    [with_sizes(160, 60), with_sizes(120, 160), changed_coco(one_other_size)],
)
def test_sizes_that_no_ratio_explains_are_refused(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    coco_folder(tmp_path)
    change(tmp_path)
    with refuses("invalid-boxes", tmp_path, "another size"):
        boxes_of(tmp_path)


def test_a_scaled_file_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    coco_folder(folder)
    with_sizes(80, 60, 0.5)(folder)
    rows = open_source(NamedDataset(str(folder), objects="objects")).rows("train", labelled=False)
    assert any(
        "boxes are multiplied by 2, because images have another size" in note for note in rows.notes
    )


ROOTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "of Roboflow": ({"id": 0, "name": "things", "supercategory": "none"}, "things"),
    "without a word": ({"id": 0, "name": "things"}, None),
    "with a number elsewhere": ({"id": 9, "name": "things", "supercategory": "none"}, "things"),
}


@pytest.mark.parametrize("name", ROOTS)
def test_an_empty_category_that_groups_others_is_no_category(name: str, tmp_path: Path) -> None:
    coco_folder(tmp_path)
    root, above = ROOTS[name]

    def change(document: dict[str, Any]) -> None:
        first = 10 if root["id"] else 1
        for entry in document["annotations"]:
            entry["category_id"] = first + (entry["category_id"] == 7)
        others = [{"id": first, "name": "box"}, {"id": first + 1, "name": "disk"}]
        if above is not None:
            others = [{**entry, "supercategory": above} for entry in others]
        document["categories"] = [root, *others]

    changed_coco(change)(tmp_path)
    folder = read(tmp_path)
    assert folder.groups == {"things"} and folder.names == ("things", "box", "disk")
    assert folder.ids == (() if root["id"] == 0 else (10, 11))
    assert any("'things' has no object and groups the others" in note for note in folder.notes)


@pytest.mark.parametrize(
    ("root", "used", "right"),
    [
        ({"supercategory": "none"}, False, True),
        ({"supercategory": "none"}, True, False),
        ({}, False, False),
    ],
)
def test_a_group_that_has_the_name_of_its_category_is_no_category(
    root: dict[str, str], used: bool, right: bool, tmp_path: Path
) -> None:
    """Roboflow's project of disks has a group `disk` and a category `disk`."""
    coco_folder(tmp_path)

    def change(document: dict[str, Any]) -> None:
        for entry in document["annotations"]:
            entry["category_id"] = 1
        document["annotations"][0]["category_id"] = int(not used)
        category = {"id": 1, "name": "disk", "supercategory": "disk"}
        document["categories"] = [{"id": 0, "name": "disk"} | root, category]

    changed_coco(change)(tmp_path)
    if right:
        folder = read(tmp_path)
        assert folder.groups == {"disk (group)"} and folder.names == ("disk (group)", "disk")
        cells = boxes_of(tmp_path).values()
        assert {category for cell in cells for category in cell["category"]} == {1}
    else:
        with refuses("invalid-coco", None, "expected each category once"):
            read(tmp_path)


def test_an_empty_category_of_its_own_stays(tmp_path: Path) -> None:
    coco_folder(tmp_path)
    # A stranger's file may hold anything as the group of a category.
    cup = {"id": 8, "name": "cup", "supercategory": ["kitchen"]}
    changed_coco(lambda document: document["categories"].append(cup))(tmp_path)
    folder = read(tmp_path)
    assert (
        folder.groups == frozenset()
        and folder.names == ("box", "disk", "cup")
        and folder.ids == (3, 7, 8)
    )


def test_an_annotation_id_of_0_is_told(tmp_path: Path) -> None:
    coco_folder(tmp_path)
    changed_coco(lambda document: document["annotations"][0].update(id=0))(tmp_path)
    assert any("pycocotools counts its object as missed" in note for note in read(tmp_path).notes)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"ignore": 1}, "2 objects marked with ignore and not with iscrowd"),
        ({"ignore": 1, "iscrowd": 1}, None),
        ({"ignore": 0}, None),
        ({"attributes": {"occluded": False, "rotation": 330.0}}, "2 boxes are rotated"),
        ({"attributes": {"rotation": 0.0}}, None),
        ({"attributes": {"rotation": "north"}}, None),
        ({"area": 0}, "2 objects with an area of 0"),
        ({"area": 1e5}, "2 objects with an area of 0 or of more than twice the box"),
        ({"area": None}, None),
    ],
)
def test_what_other_programs_read_in_another_way_is_told(
    parts: dict[str, Any], words: str | None, tmp_path: Path
) -> None:
    coco_folder(tmp_path)

    def change(document: dict[str, Any]) -> None:
        for annotation in document["annotations"][:2]:
            annotation |= parts

    changed_coco(change)(tmp_path)
    notes = read(tmp_path).notes
    expected = [] if words is None else [words]
    assert len(notes) == len(expected)
    assert all(
        each in note
        for each, note in zip(
            expected,
            notes,
            strict=True,
        )
    )


@pytest.mark.parametrize("ending", ["BMP", "tif", "jpeg", "gif"])
def test_images_of_every_ending_keep_their_boxes(ending: str, tmp_path: Path) -> None:
    drawn = yolo_folder(tmp_path, 3)
    for name, _ in drawn:
        path = tmp_path / "images" / "train" / name
        with Image.open(path) as picture:
            picture.convert("RGB").save(path.with_suffix(f".{ending}"))
        path.unlink()
    cells = boxes_of(tmp_path)
    for name, objects in drawn:
        of_image = cells[str(Path(name).with_suffix(f".{ending}"))]
        assert of_image["bbox"] == [pytest.approx(list(box)) for _, box in objects]


def test_an_image_of_more_pixels_than_a_stored_one_keeps_its_boxes(tmp_path: Path) -> None:
    yolo_folder(tmp_path, 2)
    Image.new("L", (5000, 4000)).save(tmp_path / "images" / "train" / "000.png")
    (tmp_path / "labels" / "train" / "000.txt").write_text("0 0.5 0.5 0.25 0.5")
    assert boxes_of(tmp_path)["000.png"]["bbox"] == [[1875.0, 1000.0, 1250.0, 2000.0]]


TRANSPOSED = {
    3: Image.Transpose.ROTATE_180,
    6: Image.Transpose.ROTATE_90,
    8: Image.Transpose.ROTATE_270,
}


def turn_photographs(folder: Path, tag: int) -> None:
    """Store photographs as a camera held otherwise does: a viewer that follows the tag shows them
    as before."""
    exif = Image.Exif()
    exif[274] = tag
    for path in sorted(folder.rglob("*.png")):
        with Image.open(path) as picture:
            picture.transpose(TRANSPOSED[tag]).save(path, exif=exif)


@pytest.mark.parametrize(
    ("make", "tag"), [(coco_folder, 3), (coco_folder, 6), (yolo_folder, 6), (yolo_folder, 8)]
)
def test_boxes_of_upright_photographs_stay_when_these_are_turned(
    make: Callable[[Path], Any], tag: int, tmp_path: Path
) -> None:
    drawn = drawn_boxes(make(tmp_path))
    turn_photographs(tmp_path, tag)
    folder = read(tmp_path)
    assert folder.turning("train") == "apply"
    cells = boxes_of(tmp_path, exif="apply")
    assert {name: objects["bbox"] for name, objects in cells.items()} == {
        name: [pytest.approx(box) for box in boxes] for name, boxes in drawn.items()
    }
    if make is coco_folder and tag != 3:
        with refuses("unclear-exif", tmp_path, "as they are turned") as refused:
            boxes_of(tmp_path)
        assert "Set source.exif to apply" in (refused.value.hint or "")


def test_a_coco_file_of_photographs_as_stored_is_refused_where_they_are_turned(
    tmp_path: Path,
) -> None:
    coco_folder(tmp_path)
    turn_photographs(tmp_path, 6)
    with_sizes(120, 160)(tmp_path)
    assert read(tmp_path).turning("train") == "ignore"
    assert boxes_of(tmp_path)
    with refuses("unclear-exif", tmp_path, "as they are stored"):
        boxes_of(tmp_path, exif="apply")


def test_two_images_of_one_file_of_labels_are_refused(tmp_path: Path) -> None:
    yolo_folder(tmp_path)
    shutil.copy(
        tmp_path / "images" / "train" / "000.png", tmp_path / "images" / "train" / "000.bmp"
    )
    with refuses("invalid-yolo", tmp_path, "labels/train/000.txt", "images/train/000.bmp"):
        read(tmp_path)


def write_names(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "data.yaml").write_text(f"train: images/train\n{text}\n")


def labels_in_capitals(folder: Path) -> None:
    for path in (folder / "labels" / "train").iterdir():
        path.rename(path.with_suffix(".TXT"))


def numbers_as_floats(folder: Path) -> None:
    for path in (folder / "labels" / "train").iterdir():
        lines = (line.split(" ", 1) for line in path.read_text().splitlines())
        path.write_text("".join(f"{float(number)} {rest} 0.75\n" for number, rest in lines))


def as_list_of_files(folder: Path) -> None:
    paths = sorted((folder / "images" / "train").iterdir())
    (folder / "train.txt").write_text("".join(f"./images/train/{path.name}\n" for path in paths))
    (folder / "data.yaml").write_text("train: train.txt\nnames: [box, disk]\n")


@pytest.mark.parametrize(
    "change",
    [
        write_names("names: [box, disk]"),
        write_names("names: {1: disk, 0: box}"),
        write_names("nc: 2\nnames: {'0': box, '1': disk}"),
        labels_in_capitals,
        numbers_as_floats,
        as_list_of_files,
    ],
)
def test_variants_of_a_yolo_folder_have_the_same_boxes(
    change: Callable[[Path], Any], tmp_path: Path
) -> None:
    drawn = yolo_folder(tmp_path, 4)
    change(tmp_path)
    assert read(tmp_path).names == ("box", "disk")
    cells = boxes_of(tmp_path)
    for name, objects in drawn:
        assert cells[name]["bbox"] == [pytest.approx(list(box)) for _, box in objects]
        assert cells[name]["category"] == [category for category, _ in objects]


def test_labels_and_listed_files_without_an_image_are_counted(tmp_path: Path) -> None:
    yolo_folder(tmp_path, 4)
    as_list_of_files(tmp_path)
    (tmp_path / "images" / "train" / "001.png").unlink()
    folder = read(tmp_path)
    assert folder.absent == {"train": 1}
    assert folder.notes == (
        "1 file of labels, such as 'labels/train/001.txt', of no image in a split",
    )


@pytest.mark.parametrize("key", ["val", "validation", "valid"])
def test_a_validation_split_is_read_or_its_lack_is_told(key: str, tmp_path: Path) -> None:
    yolo_folder(tmp_path, 4)
    train = "train: images/train"
    (tmp_path / "data.yaml").write_text(f"{train}\n{key}: images/val\nnames: [box, disk]\n")
    (note,) = read(tmp_path).notes
    assert "'images/val'" in note and "validation" in note
    (tmp_path / "data.yaml").write_text(f"{train}\n{key}: images/train\nnames: [box, disk]\n")
    folder = read(tmp_path)
    assert set(folder.splits) == {"train", "validation"} and folder.notes == ()


# ---- Pascal VOC


def voc_folder(folder: Path, count: int = 6, home: str = "") -> Any:
    """Write Annotations/, JPEGImages/ and ImageSets/Main/ with the boxes of `drawn_objects`, from
    pixel 1 on."""
    drawn = drawn_objects(count)
    draw_images(folder / home / "JPEGImages", drawn)
    annotations = folder / home / "Annotations"
    lists = folder / home / "ImageSets" / "Main"
    annotations.mkdir(parents=True)
    lists.mkdir(parents=True)
    for name, objects in drawn:
        parts = [
            f"<object><name>{('box', 'disk')[category]}</name><difficult>{int(number == 1)}</difficult><bndbox>"
            f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>"
            for number, (category, (x, y, w, h)) in enumerate(objects)
        ]
        size = "<size><width>160</width><height>120</height><depth>3</depth></size>"
        text = f"<?xml version='1.0'?><annotation><filename>{name}</filename>{size}{''.join(parts)}</annotation>"
        (annotations / name).with_suffix(".xml").write_text(text)
    stems = [Path(name).stem for name, _ in drawn]
    (lists / "train.txt").write_text("\n".join(stems[2:]))
    (lists / "val.txt").write_text("\n".join(f"{stem}  1" for stem in [*stems[:2], "999"]))
    (lists / "box_train.txt").write_text(f"{stems[0]} -1")
    return drawn


@pytest.mark.parametrize("home", ["", "VOCdevkit/VOC2007"])
def test_a_folder_of_pascal_voc_has_the_boxes_that_were_drawn(home: str, tmp_path: Path) -> None:
    drawn = voc_folder(tmp_path, home=home)
    for beside in ("SegmentationClass", "thumbnails"):  # drawings and copies of the same names
        shutil.copytree(tmp_path / home / "JPEGImages", tmp_path / home / beside)
    folder = read(tmp_path)
    assert (folder.form, folder.names, folder.absent) == (
        "Pascal VOC",
        ("box", "disk"),
        {"train": 0, "validation": 1},
    )
    assert (
        folder.notes[0]
        == "boxes count pixels from 1 and include their last pixel, as Pascal VOC has it"
    )
    cells = boxes_of(tmp_path, "train") | boxes_of(tmp_path, "validation")
    assert set(boxes_of(tmp_path, "validation")) == {name for name, _ in drawn[:2]}
    for name, objects in drawn:
        assert cells[name]["bbox"] == [list(map(float, box)) for _, box in objects]
        assert cells[name]["iscrowd"] == [number == 1 for number in range(len(objects))]


def test_names_with_spaces_are_listed_and_rotated_boxes_are_told(tmp_path: Path) -> None:
    voc_folder(tmp_path, 4)
    for path in [*(tmp_path / "Annotations").iterdir(), *(tmp_path / "JPEGImages").iterdir()]:
        path.rename(path.with_name(f"IMG {path.name}"))
    for path in (tmp_path / "ImageSets" / "Main").iterdir():
        lines = [f"IMG {line.split()[0]}" for line in path.read_text().splitlines()]
        path.write_text("\n".join(lines))
    folder = read(tmp_path)
    assert {split: len(images) for split, images in folder.splits.items()} == {
        "train": 2,
        "validation": 2,
    }
    assert not any("rotated" in note for note in folder.notes)
    path = tmp_path / "Annotations" / "IMG 000.xml"
    attribute = "<attribute><name>rotation</name><value>30.0</value></attribute>"
    text = path.read_text().replace("<bndbox>", f"<attributes>{attribute}</attributes><bndbox>")
    path.write_text(text)
    assert any(re.match(r"\d+ box(es are| is) rotated", note) for note in read(tmp_path).notes)


def test_annotations_beside_images_are_split_by_their_folders(tmp_path: Path) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        voc_folder(tmp_path / split, 3)
        shutil.rmtree(tmp_path / split / "ImageSets")
        for path in (tmp_path / split / "Annotations").iterdir():
            path.rename(tmp_path / split / "JPEGImages" / f"{seed}{path.name}")
        for path in (tmp_path / split / "JPEGImages").glob("*.png"):
            path.rename(path.with_name(f"{seed}{path.name}"))
    assert {split: len(images) for split, images in read(tmp_path).splits.items()} == {
        "test": 3,
        "train": 3,
    }


BOX = "<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation><object><name>box</name></object></annotation>", "object 1: has the bndbox"),
        (
            f"<annotation><object>{BOX.format(1, 1, 5, 5)}</object></annotation>",
            "object 1: has no name",
        ),
        (
            f"<annotation><object><name>a</name>{BOX.format(9, 1, 5, 5)}</object></annotation>",
            "'9, 1, 5, 5'",
        ),
        (
            f"<annotation><object><name>a</name>{BOX.format(1, 1, 'nan', 5)}</object></annotation>",
            "the bndbox",
        ),
        ("<annotation><object></annotation>", "is not XML"),
        (
            "<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><annotation>&e;</annotation>",
            "document type",
        ),
        ("<annotation>" + "<a>" * 500 + "</a>" * 500 + "</annotation>", "nested deeper"),
    ],
)
def test_xml_of_another_form_is_refused_in_words(text: str, message: str, tmp_path: Path) -> None:
    voc_folder(tmp_path)
    (tmp_path / "Annotations" / "000.xml").write_text(text)
    problem, *_ = problems_of(read, tmp_path)
    path = str(tmp_path / "Annotations" / "000.xml")
    assert (problem.code, problem.path) == ("invalid-voc", path)
    assert message in problem


def test_boxes_that_begin_at_pixel_0_are_told(tmp_path: Path) -> None:
    voc_folder(tmp_path)
    text = f"<annotation><object><name>box</name>{BOX.format(0, 0, 9, 9)}</object></annotation>"
    (tmp_path / "Annotations" / "000.xml").write_text(text)
    assert any(
        "1 box with a corner at pixel 0: the files may count from 0" in note
        for note in read(tmp_path).notes
    )
