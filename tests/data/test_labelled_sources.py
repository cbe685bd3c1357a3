"""Any dataset of images and labels becomes labelled images: the same rows, labels and bytes,
whatever form it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.data.labelled_sources import NamedDataset, labelled_source, labelled_split
from counterfoil.data.pins import SourcePin
from counterfoil.errors import UserError
from counterfoil.lab.scenes import load_wardrobe, wardrobe_garments
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.recipe import RecipeClass, load_recipe
from counterfoil.store.decoding import rgb_image
from support.images import encoded
from support.refusals import refuses
from support.tables import image_table, parquet_folder

BAG = RecipeClass(
    "bag",
    "hand bag",
    0,
    8,
    (),
)
SANDAL = RecipeClass(
    "00",
    "sandal",
    1,
    5,
    (),
)
BOTH = (BAG, SANDAL)


def jpg(shade: int) -> bytes:
    return encoded(Image.new("RGB", (8, 6), (shade, 0, 0)), "JPEG")


def shades(images: LabelledImages) -> list[int]:
    """Return the red of each image's first pixel; JPEG keeps these to within a step or two."""
    return [int(np.asarray(rgb_image(image))[0, 0, 0]) for _, image in images.images()]


def parquet(
    folder: Path, split: str = "train", classes: list[str] | None = None, **columns: list[Any]
) -> Path:
    """Write rows of the shades 0, 20, 40, … with these columns; `classes` are names of the
    labels."""
    images = [jpg(20 * row) for row in range(len(columns["label"]))]
    return parquet_folder(folder, **{split: image_table(images, names=classes, **columns)})


def imagefolder(folder: Path, **classes: int) -> Path:
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number}.jpg").write_bytes(jpg(20 * number))
    return folder


def test_an_image_folder_is_matched_by_the_names_of_its_folders(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "photos", **{"Hand_Bag": 2, "00": 1, "umbrella": 3})
    images = labelled_source(folder, BOTH)
    assert dict(zip(images.keys, images.labels.tolist(), strict=True)) == {
        "train_00000000": 1, "train_00000001": 0, "train_00000002": 0,
    }  # fmt: skip
    assert images.left_out == {"umbrella": 3}
    assert images.scored_sentence == (
        "3 of 6 images are scored; 3 are of classes that are not scored: umbrella (3)."
    )
    assert images.group_names == ("all",) and images.groups.tolist() == [0, 0, 0]
    assert images.units is None and images.class_names is None
    stored = [
        (folder / "00" / "0.jpg"),
        (folder / "Hand_Bag" / "0.jpg"),
        (folder / "Hand_Bag" / "1.jpg"),
    ]
    assert [image for _, image in images.images()] == [file.read_bytes() for file in stored]
    assert [key for key, _ in images.images(frozenset({"train_00000002"}))] == ["train_00000002"]


def test_rows_of_a_folder_have_the_paths_of_their_files(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "photos" / "train", bag=3, other=2)
    imagefolder(tmp_path / "photos" / "test", bag=1)
    (tmp_path / "link").symlink_to(folder.parent)
    for name in ("photos", "link"):
        images = labelled_source(
            NamedDataset(str(tmp_path / name), "train"), [RecipeClass("bag", "bag", 0, 0, ())]
        )
        assert images.paths == tuple(f"train/bag/{number}.jpg" for number in range(3))
        assert sorted(images.other_paths) == ["train/other/0.jpg", "train/other/1.jpg"]
        some = rows_of(images, np.array([0, 2]))
        assert some.paths == ("train/bag/0.jpg", "train/bag/2.jpg")
        assert images.shown([images.keys[2], "a key of no row\a"]) == [
            "train/bag/2.jpg",
            "a key of no row\\u0007",
        ]
    pathless = replace(images, paths=None)
    assert (pathless.content, pathless.keys) == (images.content, images.keys) and pathless.shown(
        ["a"]
    ) == ["a"]


def test_rows_that_are_no_files_of_the_folder_have_no_paths(tmp_path: Path) -> None:
    packed = parquet(tmp_path / "packed", label=[0, 1], classes=["bag", "sandal"])
    (tmp_path / "named").mkdir()
    cells = [{"bytes": jpg(0), "path": f"/elsewhere/{name}.jpg"} for name in ("a", "b")]
    rows = datasets.Dataset.from_dict({"image": cells, "label": [0, 1]}).cast_column(
        "image", datasets.Image()
    )
    rows.to_parquet(str(tmp_path / "named" / "train.parquet"))
    for dataset in (str(packed), str(tmp_path / "named"), "lab:wardrobe:validation"):
        assert labelled_source(dataset).paths is None


def test_without_classes_labels_are_the_datasets_own(tmp_path: Path) -> None:
    images = labelled_source(imagefolder(tmp_path / "photos", bag=2, sandal=1))
    assert images.class_names == ("bag", "sandal") and images.labels.tolist() == [0, 0, 1]
    numbers = labelled_source(parquet(tmp_path / "numbers", label=[7, 3, 7]))
    assert numbers.class_names == ("3", "7") and numbers.labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("columns", "options", "labels"),
    [
        ({"label": [5, 8, 3, 8]}, {}, [1, 0, 0]),
        ({"label": ["sandal", "hand-bag", "coat", "bag"]}, {}, [1, 0, 0]),
        ({"label": [1, 0, 2, 0], "classes": ["BAG", "Sandal", "coat"]}, {}, None),
        ({"label": [1, 0, -1, 0], "classes": ["bag", "sandal"]}, {}, [1, 0, 0]),
        (
            {"label": [5, 8, 3, 8], "classes": list(CLASSES)},
            {"labels_are_numbers": True},
            [1, 0, 0],
        ),
        ({"label": ["sandal", "bag", None, "bag"]}, {}, [1, 0, 0]),
    ],
    ids=["numbers", "texts", "half", "none", "by number", "missing"],
)
def test_labels_are_matched_by_name_or_number(
    columns: dict[str, Any], options: dict[str, Any], labels: list[int] | None, tmp_path: Path
) -> None:
    images = labelled_source(parquet(tmp_path / "rows", **columns), BOTH, **options)
    if labels is None:  # an id is taken letter by letter, and `BAG` is no name of a class
        assert images.labels.tolist() == [1] and sum(images.left_out.values()) == 3
    else:
        assert images.labels.tolist() == labels
        assert images.keys == ("train_00000000", "train_00000001", "train_00000003")
        assert sum(images.left_out.values()) == 1
        assert [
            abs(seen - shade) < 4 for seen, shade in zip(shades(images), (0, 20, 60), strict=True)
        ] == [True] * 3


def test_labels_of_no_class_are_shown_beside_the_classes(tmp_path: Path) -> None:
    for name, label in (("texts", ["dog", "cat"]), ("numbers", [1, 2])):
        with refuses("unknown-label", f"{tmp_path / name}, split train") as refused:
            labelled_source(parquet(tmp_path / name, label=label), BOTH)
        assert any(str(label[0]) in line for line in refused.value.problems)
        assert any("sandal" in line for line in refused.value.problems)
    twins = (RecipeClass("n02", "crane", 0, 0, ()), RecipeClass("n03", "crane", 1, 1, ()))
    with refuses("unclear-label", None, "'crane'", "n02, n03"):
        labelled_source(parquet(tmp_path / "twins", label=["crane"]), twins)
    assert labelled_source(parquet(tmp_path / "ids", label=["n03"]), twins).labels.tolist() == [1]


@pytest.mark.parametrize(
    ("labels", "alike"),
    [
        (["Mug", "mug", "star"], True),
        (["sea star", "sea_star"], True),
        (["mug ", "mug"], True),
        (["cafe\u0301", "caf\u00e9"], True),
        (["a", "A", "b"], False),
        (["mug", "mugs"], False),
    ],
)
def test_texts_that_several_people_wrote_for_one_class_are_refused(
    labels: list[str], alike: bool, tmp_path: Path
) -> None:
    """Each would be a class, of which answers by the other name are wrong. Folders of such names
    are refused too; letters may be classes."""
    folder = parquet(tmp_path / "rows", label=labels)
    if alike:
        with refuses("unclear-label", "source.label_column", "'label'"):
            labelled_source(folder)
    else:
        assert labelled_source(folder).class_names == tuple(sorted(labels))


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (["mug", "NA", "star", "NA"], "2 images have the label NA"),
        (["mug", "nan", "star"], "1 image has the label nan"),
        ([0, 1, -1, -1, 0], "2 images have the label -1"),
        ([-1, 1, -1], None),
        (["none", "mug"], None),
        ([0, 1, None], None),
    ],
)
def test_labels_that_may_mean_none_are_told_with_their_count(
    labels: list[Any], note: str | None, tmp_path: Path
) -> None:
    notes = labelled_source(parquet(tmp_path / "rows", label=labels)).notes
    beginnings = [text.partition(",")[0] for text in notes]
    assert beginnings == list(filter(None, [note]))


def test_what_nothing_pins_is_known_by_its_labels_and_images(tmp_path: Path) -> None:
    contents = []
    for labels in ([8, 5], [8, 5], [5, 8], [8, 5, 5]):
        folder = parquet(tmp_path / "photos", label=labels)
        source = NamedDataset(str(folder))
        unpinned = SourcePin("photos", None, None)
        contents.append(labelled_split(source, "train", BOTH, unpinned).content)
    assert contents[0] == contents[1] and len({*contents}) == 3


def test_a_column_names_groups_and_units(tmp_path: Path) -> None:
    folder = parquet(
        tmp_path / "rows",
        label=[8, 5, 3, 8],
        weather=["rain", "fog", "hail", "fog"],
        shop=[1, 2, 3, 1],
    )
    images = labelled_source(folder, BOTH, group_column="weather", unit_column="shop")
    assert images.group_names == ("fog", "rain") and images.groups.tolist() == [1, 0, 0]
    assert images.units == ("1", "2", "1")
    for option in ("group_column", "unit_column", "label_column", "image_column"):
        options: dict[str, Any] = {option: "nothing"}
        with refuses("missing-column", f"source.{option}", "'nothing'") as refused:
            if option == "group_column":
                labelled_source(folder, BOTH, group_column="nothing")
            else:
                labelled_source(NamedDataset(str(folder), **options), BOTH)
        assert "image, label, weather, shop" in (refused.value.hint or "")
    empty = parquet(tmp_path / "empty", label=[8, 5], shop=["a", None])
    with refuses("unfit-column", "source.unit_column", "1 row has no shop, such as row 1"):
        labelled_source(empty, BOTH, unit_column="shop")


def test_configs_are_groups(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name, labels in (("plain", [8, 5]), ("snow", [5])):
        parquet(folder / name, "test", label=labels)
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}/test.parquet\n"
        for name in ("plain", "snow")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    images = labelled_source(f"{folder}:test", BOTH, configs_are_groups=True)
    assert images.group_names == ("plain", "snow") and images.groups.tolist() == [0, 0, 1]
    assert images.keys == ("plain_test_00000000", "plain_test_00000001", "snow_test_00000000")
    assert len(list(images.images())) == 3
    assert labelled_source(NamedDataset(str(folder), config="snow"), BOTH).labels.tolist() == [1]
    with pytest.raises(UserError):
        labelled_source(folder, BOTH)
    with refuses("unclear-choice"):
        labelled_source(folder, BOTH, group_column="label", configs_are_groups=True)
    with refuses("unclear-choice", "source"):
        labelled_source(parquet(tmp_path / "one", label=[8]), BOTH, configs_are_groups=True)


def test_a_split_is_named_where_there_are_several(tmp_path: Path) -> None:
    for split, labels in (("train", [8]), ("test", [5, 5])):
        parquet(tmp_path / "photos", split, label=labels)
    with refuses("unclear-choice", "source", "train, test"):
        labelled_source(tmp_path / "photos", BOTH)
    images = labelled_source(f"{tmp_path / 'photos'}:test", BOTH)
    assert images.keys == ("test_00000000", "test_00000001")
    with refuses("unreadable-data", "source", "'trian'"):
        labelled_source(f"{tmp_path / 'photos'}:trian", BOTH)


def test_content_tells_images_rows_and_labels_apart(tmp_path: Path) -> None:
    first = labelled_source(parquet(tmp_path / "photos", label=[8, 5]), BOTH)
    again = labelled_source(parquet(tmp_path / "moved", label=[8, 5]), BOTH)
    assert first.content == again.content
    others = [
        labelled_source(parquet(tmp_path / "labels", label=[5, 8]), BOTH),
        labelled_source(parquet(tmp_path / "rows", label=[8, 5, 5]), BOTH),
        labelled_source(tmp_path / "photos", (BAG,)),
        labelled_source(parquet(tmp_path / "split", "test", label=[8, 5]), BOTH),
    ]
    assert len({first.content, *(other.content for other in others)}) == 1 + len(others)


def test_the_labs_split_is_what_the_recipe_calls_its_source() -> None:
    recipe = load_recipe("wardrobe-mini")
    images = labelled_split(recipe.source, "validation", recipe.classes)
    labels, pixels = load_wardrobe("validation")
    np.testing.assert_array_equal(images.labels, labels)
    assert images.units == wardrobe_garments("validation")
    key = "validation_00000017"
    ((image_key, image),) = images.images(frozenset({key}))
    assert image_key == key
    np.testing.assert_array_equal(np.asarray(rgb_image(image)), pixels(17))
    named = labelled_source("lab:wardrobe:validation", recipe.classes, unit_column="garment")
    assert (named.content, named.keys, named.units) == (images.content, images.keys, images.units)
    some = labelled_split(recipe.source, "validation", recipe.classes[5:6])
    assert some.content != images.content
    assert set(some.labels.tolist()) == {0} and len(some) == 150
    assert sum(some.left_out.values()) == 1350
    with refuses("unclear-choice", "source"):
        labelled_source("lab:wardrobe")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lab:wardrobe", ("lab:wardrobe", None, None)),
        ("lab:wardrobe:audit", ("lab:wardrobe", None, "audit")),
        ("user/photos@v1.2:test", ("user/photos", "v1.2", "test")),
        ("user/photos@refs/pr/1", ("user/photos", "refs/pr/1", None)),
        ("mnist:test", ("mnist", None, "test")),
    ],
)
def test_references_are_read_as_people_write_them(
    text: str, expected: tuple[str | None, ...]
) -> None:
    reference = NamedDataset.parse(text)
    assert (reference.dataset, reference.revision, reference.split) == expected


def test_a_folder_that_there_is_is_meant_even_with_a_colon_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    assert NamedDataset.parse(tmp_path / "a:b") == NamedDataset(str(tmp_path / "a:b"))
    assert NamedDataset.parse(f"{tmp_path}/a:b:test") == NamedDataset(str(tmp_path / "a:b"), "test")
    with refuses("unknown-dataset", f"{tmp_path}/nothing"):
        NamedDataset.parse(f"{tmp_path}/nothing:test")
    with refuses("unknown-dataset", "./nothing"):
        NamedDataset.parse("./nothing")


def test_a_damaged_image_is_given_as_it_is_for_the_reader_to_judge(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "photos", bag=1, sandal=2)
    (folder / "sandal" / "1.jpg").write_bytes(b"no image at all")
    images = labelled_source(folder, (RecipeClass("x", "sandal", 0, 0, ()),))
    assert [image for _, image in images.images()][1] == b"no image at all"


def numbered(folder: Path, images: int) -> Path:
    folder.mkdir()
    for number in range(images):
        (folder / f"{number}.jpg").write_bytes(jpg(20 * number))
    return folder


LISTED = {
    "all": ([("0.jpg", "cat"), ("1.jpg", "dog"), ("2.jpg", "cat"), ("3.jpg", "dog")], 4, ""),
    "empty labels": (
        [("0.jpg", "cat"), ("1.jpg", "dog"), ("2.jpg", ""), ("3.jpg", "")],
        2,
        "2 of 4 images are scored; 2 have no label.",
    ),
    "several": (
        [("0.jpg", "cat"), ("0.jpg", "cat"), ("1.jpg", "dog"), ("2.jpg", "")],
        2,
        "2 of 4 images are scored; 1 has no label and 1 has no line in the table of labels; 1 line"
        " that repeats",
    ),
}


@pytest.mark.parametrize("case", LISTED)
def test_images_and_lines_that_are_left_out_are_counted(tmp_path: Path, case: str) -> None:
    lines, scored, sentence = LISTED[case]
    folder = numbered(tmp_path / "photos", 4)
    text = "".join(f"{file},{label}\n" for file, label in [("file_name", "label"), *lines])
    (folder / "metadata.csv").write_text(text)
    images = labelled_source(folder)
    assert len(images) == scored and sentence in images.scored_sentence
    assert bool(sentence) == bool(images.scored_sentence)
