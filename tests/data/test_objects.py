"""Objects of rows: whatever way a table writes them, boxes come out in pixels of the stored
image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.objects import SourceObjects, objects_of
from counterfoil.data.open_source import open_source
from counterfoil.recipe.schema_inputs import Source
from support.refusals import refuses

SIZE = (100, 80)
CELL = {
    "bbox": [[10.0, 20.0, 30.0, 40.0], [90.0, 70.0, 30.0, 30.0], [120.0, 0.0, 5.0, 5.0]],
    "category": [1, 0, 0],
}
EMPTY: dict[str, list[Any]] = {"id": [], "area": [], "iscrowd": []}


def source_of(folder: Path, **others: Any) -> Source:
    return Source(dataset=str(folder), objects="objects", categories=("car", "bus"), **others)


def saved(folder: Path, cells: list[Any], features: Any = None) -> Any:
    """Return the rows of a saved `datasets` table with these cells."""
    picture = Image.fromarray(np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
    table = datasets.Dataset.from_dict(
        {"image": [picture] * len(cells), "objects": cells}, features
    )
    table.save_to_disk(str(folder))
    return open_source(NamedDataset(str(folder), objects="objects")).rows("train", labelled=False)


def test_boxes_are_scaled_with_their_image_and_not_cut() -> None:
    objects = SourceObjects([CELL | EMPTY], {0: 0, 1: 1}, "coco").of_image(0, SIZE, (50, 20))
    assert objects == {
        "id": [0, 1, 2],
        "bbox": [[5.0, 5.0, 15.0, 10.0], [45.0, 17.5, 15.0, 7.5], [60.0, 0.0, 2.5, 1.25]],
        "category": [1, 0, 0],
        "area": [30 * 40 / 8, 30 * 30 / 8, 5 * 5 / 8],
        "iscrowd": [False, False, False],
    }


@pytest.mark.parametrize(
    ("form", "box"),
    [("coco", [10, 20, 30, 40]), ("pascal", [10, 20, 40, 60]), ("yolo", [0.25, 0.5, 0.3, 0.5])],
)
def test_the_three_forms_of_a_box_are_one_box(form: Any, box: list[float]) -> None:
    cell = {"bbox": [box], "category": [0]} | EMPTY
    objects = SourceObjects([cell], {0: 0}, form).of_image(0, SIZE, SIZE)
    assert objects["bbox"] == [pytest.approx([10, 20, 30, 40])] and objects["area"] == [
        pytest.approx(1200)
    ]


def notes_on(folder: Path, cells: list[Any], columns: dict[str, Any], **others: Any) -> list[str]:
    """Return the notes on a saved table of these objects."""
    picture = Image.fromarray(np.zeros((SIZE[1], SIZE[0], 3), np.uint8))
    parts = {"image": [picture] * len(cells), "objects": cells} | columns
    datasets.Dataset.from_dict(parts).save_to_disk(str(folder))
    rows = open_source(NamedDataset(str(folder), objects="objects")).rows("train", labelled=False)
    source = source_of(folder, **others)
    return list(
        objects_of(rows, source).checked(
            source,
            rows,
            range(len(cells)),
        )
    )


@pytest.mark.parametrize("exif", [{}, {"exif": "apply"}])
def test_images_of_another_size_than_columns_say_are_counted(
    exif: dict[str, Any], tmp_path: Path
) -> None:
    cells = [{"bbox": [[0, 0, 4, 4]], "category": ["car"]}] * 3
    width, height = SIZE
    widths = {
        "width": [
            width,
            2 * width,
            None,
        ],
        "height": [height, 2 * height, height],
    }
    (note,) = notes_on(tmp_path / "other", cells, widths, **exif)
    assert note.startswith("1 image has another size") and f"{2 * width} × {2 * height}" in note
    right = {"width": [width] * 3, "height": [height + 1] * 3}
    assert not notes_on(tmp_path / "right", cells, right, **exif)
    shares = [{"bbox": [[0.5, 0.5, 0.1, 0.1]], "category": ["car"]}] * 3
    assert not notes_on(
        tmp_path / "shares",
        shares,
        widths,
        boxes="yolo",
        **exif,
    )


@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        ([1, 1], 1),
        ([0, 1], 0),
        (["car", "bus"], 0),
    ],
)
def test_numbers_that_may_count_from_1_are_told(
    numbers: list[Any], count: int, tmp_path: Path
) -> None:
    cells = [{"bbox": [[0, 0, 4, 4]] * 2, "category": numbers}]
    notes = notes_on(tmp_path / "data", cells, {})
    assert len(notes) == count
    assert all("no object has the category 0, 'car'" in note for note in notes)


def test_an_area_is_a_share_where_boxes_are() -> None:
    cell = EMPTY | {
        "bbox": [[0.25, 0.5, 0.3, 0.5]] * 2,
        "category": [0, 0],
        "area": [0.15, 1200],
    }
    objects = SourceObjects([cell], {0: 0}, "yolo").of_image(0, SIZE, SIZE)
    assert objects["area"] == [pytest.approx(1200), 1200]


@pytest.mark.parametrize(
    ("marks", "crowds"),
    [
        ({"difficult": [1, 0, 1]}, [True, False, True]),
        ({"is_difficult": [True, False, None]}, [True, False, False]),
        ({"iscrowd": ["1", "0", "1"]}, [True, False, True]),
        ({"difficult": ["1", "Unspecified", "0"]}, [True, False, False]),
    ],
)
def test_difficult_objects_are_marked_as_crowds_are(
    marks: dict[str, Any], crowds: list[bool], tmp_path: Path
) -> None:
    cell = {"bbox": [[0, 0, 4, 4]] * 3, "category": [0, 1, 0]} | marks
    rows = saved(tmp_path / "data", [cell])
    objects = objects_of(rows, source_of(tmp_path / "data")).of_image(
        0,
        SIZE,
        SIZE,
    )
    assert objects["iscrowd"] == crowds


@given(
    st.lists(st.floats(-500, 500), min_size=4, max_size=4),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
    st.tuples(st.integers(1, 300), st.integers(1, 300)),
)
def test_a_box_has_the_same_place_in_its_image_whatever_the_size(
    box: list[float], size: tuple[int, int], stored: tuple[int, int]
) -> None:
    cell = {"bbox": [box], "category": [0]} | EMPTY
    [kept] = SourceObjects([cell], {0: 0}, "coco").of_image(0, size, stored)["bbox"]
    shares = [value / size[number % 2] for number, value in enumerate(box)]
    assert [value / stored[number % 2] for number, value in enumerate(kept)] == pytest.approx(
        shares
    )


def test_the_middle_square_cuts_boxes_and_ignores_what_is_mostly_outside() -> None:
    """Check a square that begins 50 pixels from the left side of 200 × 100 pixels."""
    boxes = [[60, 10, 20, 20], [40, 0, 40, 10], [30, 0, 30, 30], [0, 0, 40, 40], [140, 50, 0, 9]]
    cell = EMPTY | {"bbox": boxes, "category": [0] * 5}
    truth = SourceObjects([cell], {0: 0}, "coco")
    objects = truth.square_columns(0, (200, 100), 50)["objects"]
    assert objects["bbox"] == [[5, 5, 10, 10], [0, 0, 15, 5], [0, 0, 5, 15]]
    assert objects["iscrowd"] == [False, False, True]
    assert objects["area"] == pytest.approx([100, 75, 75])
    assert objects["id"] == [0, 1, 2]


def test_categories_are_matched_by_name_and_others_are_left_out(tmp_path: Path) -> None:
    listed = datasets.List(datasets.ClassLabel(names=["tree", "Bus", "car"]))
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "objects": {
                "bbox": datasets.List(datasets.List(datasets.Value("float32"))),
                "category": listed,
            },
        }
    )
    rows = saved(tmp_path / "data", [{"bbox": [[0, 0, 4, 4]] * 3, "category": [0, 1, 2]}], features)
    assert objects_of(rows, source_of(tmp_path / "data")).of_image(0, SIZE, SIZE)["category"] == [
        1,
        0,
    ]


def test_names_in_a_list_of_structs_are_read_too(tmp_path: Path) -> None:
    rows = saved(tmp_path / "data", [[{"bbox": [0, 0, 4, 4], "label": "bus"}], []])
    objects = objects_of(rows, source_of(tmp_path / "data"))
    assert (
        objects.of_image(0, SIZE, SIZE)["category"] == [1]
        and objects.of_image(1, SIZE, SIZE)["bbox"] == []
    )


@pytest.mark.parametrize(
    ("cell", "code", "path", "words"),
    [
        ({"bbox": [[0, 0, 4]], "category": [0]}, "invalid-boxes", "source.objects", "four numbers"),
        (
            {"bbox": [[5, 5, -4, 4]], "category": [0]},
            "invalid-boxes",
            "source.objects",
            "below 0 as coco",
        ),
        (
            {"bbox": [[0, 0, 4, 4]], "category": [0, 1]},
            "invalid-boxes",
            "source.objects",
            "1 box and 2 categories",
        ),
        (
            {"bbox": [[0, 0, 4, 4]], "category": [5]},
            "unknown-label",
            "source.categories",
            "category 5",
        ),
        (
            {"bbox": [[0, 0, 4, 4]], "category": ["van"]},
            "unknown-label",
            "source.categories",
            "'car'",
        ),
    ],
)
def test_what_is_no_object_is_refused_in_words(
    cell: Any, code: str, path: str, words: str, tmp_path: Path
) -> None:
    rows = saved(tmp_path / "data", [cell])
    with refuses(code, path, words):
        objects_of(rows, source_of(tmp_path / "data"))


@pytest.mark.parametrize("text", [False, True], ids=["lists", "JSON in a cell"])
def test_a_cell_of_too_many_objects_is_refused_before_it_is_python(
    text: bool, tmp_path: Path
) -> None:
    cell: Any = {"bbox": [[1.0, 2.0, 3.0, 4.0]] * 100_200, "category": [0] * 100_200}
    code = "invalid-boxes" if text else "too-much-data"
    with refuses(code, None, "100,202 lists" if text else "100,200 values", "at most 100,000"):
        objects_of(
            saved(tmp_path / "data", [json.dumps(cell) if text else cell]),
            source_of(tmp_path / "data"),
        )
