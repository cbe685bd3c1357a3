"""Names of images in a file of answers match by one rule, whatever folder paths begin in."""

from __future__ import annotations

import unicodedata

import pytest

from counterfoil.errors import UserError
from counterfoil.models.image_names import NO_IMAGE, find_images

PATHS = ["val/cat/1.jpg", "val/cat/2.jpg", "val/dog/1.jpg", "val/dog/ü x.jpg"]
KEYS = [f"val_{row:08d}" for row in range(len(PATHS))]
WRITTEN = {
    "keys": KEYS,
    "below the folder": PATHS,
    "below the split's folder": [path.removeprefix("val/") for path in PATHS],
    "absolute": [f"/home/me/photos/{path}" for path in PATHS],
    "another root": [f"/data/{path.removeprefix('val/')}" for path in PATHS],
    "above": [f"../photos/{path}" for path in PATHS],
    "dots": [f"./{path}" for path in PATHS],
    "backslashes": [path.replace("/", "\\") for path in PATHS],
    "a drive": ["C:\\photos\\" + path.replace("/", "\\") for path in PATHS],
    "double slashes": [path.replace("/", "//") for path in PATHS],
    "decomposed accents": [unicodedata.normalize("NFD", path) for path in PATHS],
    "another order": [*PATHS[2:], *PATHS[:2]],
}


@pytest.mark.parametrize("case", WRITTEN)
def test_one_rule_fits_every_line(case: str) -> None:
    further = ["train/bird/7.jpg", "nothing"] if case in ("keys", "absolute", "dots") else []
    names = [*further, *WRITTEN[case]]
    right = [PATHS.index(path) for path in (WRITTEN[case] if case == "another order" else PATHS)]
    images = find_images(names, KEYS, PATHS, "answers.csv")
    assert images.rows.tolist() == [NO_IMAGE] * len(further) + right
    assert bool(images.how) == (
        case in ("below the split's folder", "absolute", "another root", "above", "a drive")
    )
    assert "photos" not in images.how and "home" not in images.how


def test_file_names_alone_are_enough_if_each_is_of_one_image() -> None:
    paths = [f"val/{'cat' if number % 2 else 'dog'}/im{number}.jpg" for number in range(8)]
    names = [path.rpartition("/")[2] for path in paths]
    for before in ("", "/tmp/all/"):
        images = find_images(
            [f"{before}{name}" for name in names], [f"k{n}" for n in range(8)], paths, "answers.csv"
        )
        assert images.rows.tolist() == list(range(8)) and images.how
    with pytest.raises(UserError, match=r"'1.jpg' fits several images, and 1 more line does"):
        find_images(["1.jpg", "1.jpg"], KEYS, PATHS, "answers.csv")


def test_a_path_that_may_be_two_images_is_none_of_them() -> None:
    paths = ["red\\1.jpg", "red/1.jpg"]
    images = find_images([*reversed(paths)], ["a", "b"], paths, "answers.csv")
    assert images.rows.tolist() == [1, 0], "written exactly"
    with pytest.raises(UserError, match=r"'./red/1.jpg' fits several images"):
        find_images(["./red/1.jpg"], ["a", "b"], paths, "answers.csv")


@pytest.mark.parametrize(
    ("file", "dataset"),
    [
        ("train", "val"),
        ("training", "test"),
        ("test", "train"),
    ],
)
def test_images_of_another_split_are_said_to_be(file: str, dataset: str) -> None:
    paths = [path.replace("val", dataset) for path in PATHS]
    words = f"4 lines of {file} stand for images of {dataset}"
    for before in (f"{file}/", f"/home/me/photos/{file}/", f"C:\\photos\\{file}\\"):
        names = [before + path.partition("/")[2] for path in paths]
        images = find_images(names, KEYS, paths, "answers.csv")
        assert images.rows.tolist() == [0, 1, 2, 3] and words in images.how
    for names in (
        [f"/home/{file}/{path}" for path in paths],
        [f"/home/me/{path.partition('/')[2]}" for path in paths],
        [path.partition("/")[2] for path in paths],
    ):
        images = find_images(names, KEYS, paths, "answers.csv")
        assert (
            images.rows.tolist()
            == [
                0,
                1,
                2,
                3,
            ]
            and "stand for" not in images.how
        )


def test_two_rules_that_fit_are_told() -> None:
    paths = ["cat/1.jpg", "cat/2.jpg"]
    names = ["train/cat/1.jpg", "train/cat/2.jpg", "val/cat/1.jpg", "val/cat/2.jpg"]
    with pytest.raises(
        UserError,
        match=r"fit the dataset's in more than one way: 'train/cat/1.jpg' may be cat/1.jpg or",
    ):
        find_images(names, ["a", "b"], paths, "answers.csv")


def test_keys_come_first_and_lines_of_other_images_are_none() -> None:
    images = find_images(["a", "b", "c", "x/b"], ["b", "a"], ["a", "x/b"], "answers.csv")
    assert images.rows.tolist() == [1, 0, NO_IMAGE, 1]
    assert find_images(["'=1.jpg"], ["k"], ["=1.jpg"], "answers.csv").rows.tolist() == [0]
    assert find_images(["elsewhere/9.jpg"], KEYS, PATHS, "answers.csv").rows.tolist() == [NO_IMAGE]
