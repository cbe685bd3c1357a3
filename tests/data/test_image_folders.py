"""A folder of image files is read by its tree: each image once, in its split, with its class.

References: a plain walk over the files, torchvision's `ImageFolder`, and `datasets` where it reads
the same rows.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import datasets
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from torchvision.datasets import ImageFolder as TorchvisionFolder

from counterfoil.data.folders import folder_listing
from counterfoil.data.image_folders import ImageFolder, read_image_folder, rows_mark
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.errors import UserError
from counterfoil.starting.init_recipe import init
from counterfoil.store.inside import Listing
from support.images import encoded
from support.refusals import refuses
from support.tables import classes_by_path

PIXELS = encoded((9, 9, 9))


def draw(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PIXELS)
    return folder


def numbered(*folders: str, count: int = 2) -> list[str]:
    return [f"{folder}/{number}.png" for folder in folders for number in range(count)]


def read(folder: Path) -> ImageFolder:
    images = read_image_folder(folder, folder_listing(folder))
    assert images is not None
    return images


def walked(folder: Path, top: str = "") -> dict[str, str]:
    """Return every file below `top` with its first folder there, as a plain reference."""
    classes = {}
    for parent, _, files in os.walk(folder / top):
        for file in files:
            path = Path(parent, file)
            classes[path.relative_to(folder).as_posix()] = path.relative_to(folder / top).parts[0]
    return classes


# Names with the words of splits in them, which no folder but one at the top may be taken for.
CLASSES = (
    "mug",
    "star",
    "test tube",
    "train",
    "train car",
    "val",
    "evaluation_set",
    "retrain",
    "Straße",
    "日本",
    "a.b",
)
FILES = ("1.png", "photo_test_0.png", "train-2.png", "x.val.png", "IMG (3).PNG", "développé.png")
FOLDERS_BELOW = ("", "session 1", "train_2", "left/right")


@st.composite
def trees(draw_: st.DrawFn) -> tuple[tuple[str, ...], dict[str, str]]:
    """Draw splits, and path → class of images in SPLIT/CLASS/…/FILE, or in CLASS/…/FILE without
    splits."""
    split_sets = [
        (),
        ("train",),
        ("train", "test"),
        ("Training", "VAL", "eval"),
        ("dev", "test"),
        ("validation",),
    ]
    splits = draw_(st.sampled_from(split_sets))
    classes = draw_(st.lists(st.sampled_from(CLASSES), min_size=2, max_size=4, unique=True))
    below = draw_(st.lists(st.sampled_from(FOLDERS_BELOW), min_size=1, max_size=2, unique=True))
    if not splits:  # what may be a split or a class is refused, in a test below
        worded = () if below == [""] else ("test tube", "train car", "evaluation_set")
        classes = [name for name in classes if name not in ("train", "val", *worded)]
        assume(len(classes) > 1)
    images = {}
    for split in splits or ("",):
        for name in classes:
            for folder in below:
                for file in draw_(
                    st.lists(st.sampled_from(FILES), min_size=1, max_size=3, unique=True)
                ):
                    images["/".join(part for part in (split, name, folder, file) if part)] = name
    return splits, images


@given(trees())
def test_every_image_is_read_once_in_the_split_and_the_class_that_its_place_says(
    tree: tuple[tuple[str, ...], dict[str, str]],
) -> None:
    splits, images = tree
    read_folder = read_image_folder(Path("/nowhere"), Listing(sorted(images)))
    assert read_folder is not None
    of_word = {"training": "train", "val": "validation", "dev": "validation", "eval": "test"}
    expected: dict[str, dict[str, str]] = {}
    for path, name in images.items():
        top = path.split("/")[0].lower() if splits else "train"
        expected.setdefault(of_word.get(top, top), {})[path] = name
    assert {split: list(paths) for split, paths in read_folder.splits.items()} == {
        split: sorted(names) for split, names in expected.items()
    }
    for split, names in expected.items():
        table = read_folder.table(split).with_format("arrow")[:]
        paths = [image["path"].removeprefix("/nowhere/") for image in table["image"].to_pylist()]
        labels = [read_folder.classes[label] for label in table["label"].to_pylist()]
        assert list(zip(paths, labels, strict=True)) == sorted(names.items())


@pytest.mark.parametrize(
    ("names", "split", "top"),
    [
        (numbered("train/mug", "train/test tube", "test/mug", "test/test tube"), "test", "test"),
        (
            ["mug/photo_test_0.png", "mug/photo_1.png", "star/train_1.png", "star/2.png"],
            "train",
            "",
        ),
        ([*numbered("mug", "star"), "star/detail/close/9.png"], "train", ""),
        (numbered("train", "car", "bus"), "train", ""),
        (numbered("Train/mug", "Train/star", "Val/mug", "Val/star"), "validation", "Val"),
    ],
)
def test_rows_are_those_of_a_plain_walk_and_of_torchvision(
    names: list[str], split: str, top: str, tmp_path: Path
) -> None:
    folder = draw(tmp_path / "photos", *names)
    assert classes_by_path(folder, split) == walked(folder, top)
    reference = TorchvisionFolder(str(folder / top))
    torchvision_classes = {
        Path(path).relative_to(folder).as_posix(): reference.classes[label]
        for path, label in reference.samples
    }
    assert classes_by_path(folder, split) == torchvision_classes
    images = labelled_source(NamedDataset(str(folder), split))
    assert list(images.class_names or ()) == reference.classes


def test_a_folder_that_holds_all_others_is_stepped_into(tmp_path: Path) -> None:
    folder = draw(
        tmp_path / "photos",
        *numbered("archive/data/train/mug", "archive/data/train/star", "archive/data/test/mug"),
    )
    assert classes_by_path(folder, "test") == walked(folder, "archive/data/test")
    assert classes_by_path(folder, "train") == walked(folder, "archive/data/train")
    assert any("archive/data/" in note for note in read(folder).notes())


def test_splits_may_be_named_with_more_words_where_all_are_and_share_their_classes(
    tmp_path: Path,
) -> None:
    folder = draw(
        tmp_path / "photos",
        *numbered("imgs_train/mug", "imgs_train/star", "imgs_test/mug", "imgs_test/star"),
    )
    assert classes_by_path(folder, "test") == walked(folder, "imgs_test")
    classes = draw(tmp_path / "classes", *numbered("test tube", "train car"))
    assert classes_by_path(classes) == walked(classes)


def test_parts_of_splits_are_named_as_datasets_names_them(tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", *numbered("train/mug", "test/mug", count=4))
    images = read(folder)
    assert len(images.table("train[:50%]")) == 2 and len(images.table("train+test")) == 8
    with refuses("unknown-split", "source", "'val'") as refused:
        images.table("val")
    assert "train (train/), test (test/)" in (refused.value.hint or "")
    with refuses("unknown-split", "source", "'tets'; did you mean 'test'?"):
        images.table("tets")


JUNK = ["mug/@eaDir/1.png", "@eaDir/mug/1.png", "__MACOSX/mug/._1.png", "__MACOSX/mug/2.png", "#recycle/old/1.png",
        "star/.ipynb_checkpoints/1-checkpoint.png", "$RECYCLE.BIN/x.png", "mug/._1.png", ".DS_Store"]  # fmt: skip


def test_junk_is_skipped_and_counted(tmp_path: Path) -> None:
    clean = draw(tmp_path / "clean", *numbered("mug", "star"))
    messy = draw(tmp_path / "messy", *numbered("mug", "star"), *JUNK, "mug/notes.txt")
    assert classes_by_path(messy) == classes_by_path(clean) == walked(clean)
    (skipped,) = (note for note in read(messy).notes() if "skipped" in note)
    for name, count in {
        "#recycle": 1,
        "$RECYCLE.BIN": 1,
        ".ipynb_checkpoints": 1,
        "@eaDir": 2,
        "__MACOSX": 1,
    }.items():
        assert f"{count} image{'s' if count > 1 else ''} in {name}" in skipped
    assert (
        "3 hidden files ignored" in read(messy).notes()
        and "1 file of other kinds ignored" in read(messy).notes()
    )


def test_what_lies_deeper_is_joined_and_told(tmp_path: Path) -> None:
    sessions = [f"{name}/s{session}" for name in ("mug", "star") for session in range(4)]
    (note,) = read(draw(tmp_path / "sessions", *numbered(*sessions))).notes()
    assert note == (
        "classes are the folders of level 1 below the top: mug, star. Subfolders are joined with"
        " them: 16 images in 4"
        " subfolders a class"
    )
    deeper = draw(
        tmp_path / "deeper", *numbered("train/mug", "train/star"), "train/mug/close/9.png"
    )
    (note,) = read(deeper).notes()
    assert (
        "below the splits: mug, star." in note
        and "1 image in 1 subfolder (train/mug/close/9.png)" in note
    )
    assert labelled_source(deeper).notes == (note,)


def test_an_empty_class_folder_is_told(tmp_path: Path) -> None:
    folder = draw(
        tmp_path / "photos", *numbered("train/mug", "train/star", "test/mug", "test/star")
    )
    (folder / "train" / "ladder").mkdir()
    (folder / "test" / "@eaDir").mkdir()
    assert "no image is in 1 class folder: train/ladder" in read(folder).notes()
    assert read(folder).notes(["test"]) == []


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        (["1.png", "2.png"], "missing-label", ["photos: "]),
        ([*numbered("mug", "star"), "cover.png"], "missing-label", ["1 image lies", "cover.png"]),
        (
            [*numbered("train/mug", "test/mug"), "train/7.png"],
            "missing-label",
            ["1 image lies", "train/7.png"],
        ),
        (
            [*numbered("train/mug", "test/mug"), "cover.png"],
            "unclear-split",
            ["1 image lies", "cover.png"],
        ),
        (
            numbered("train/mug", "test/mug", "extra/mug"),
            "unclear-split",
            ["2 images lie", "extra/"],
        ),
        (numbered("val/mug", "dev/mug"), "unclear-split", ["'validation'", "val/", "dev/"]),
        (
            numbered("mug/train", "mug/test", "star/train"),
            "unclear-split",
            ["3 folders", "mug/test/"],
        ),
        (numbered("seg_train/seg_train/mug", "seg_pred"), "unclear-split", ["'seg_train'"]),
        (
            numbered(
                "mug",
                "star",
                "test",
            ),
            "unclear-split",
            ["test/", "4 images lie"],
        ),
        (
            numbered(
                "mug",
                "star",
                "Val",
            ),
            "unclear-split",
            ["Val/", "4 images lie"],
        ),
        (
            numbered("STRASSE", "Straße", "strasse", "mug"),
            "unclear-label",
            ["'STRASSE', 'Straße' and 'strasse'"],
        ),
        (numbered("a", " a", "b"), "unclear-label", ["' a' and 'a'"]),
        (
            numbered("cafe\u0301", "caf\u00e9", "b"),
            "unclear-label",
            ["'cafe\\u0301' and 'caf\\xe9'"],
        ),
        (["1.png", "2.png", "labels.csv"], "missing-label", []),
        (
            ["mug/b\udce9b\udce9.png", "star/1.png"],
            "unreadable-data",
            ["mug/b\\xe9b\\xe9.png: "],
        ),
        (["mug/1.heic", "star/2.HEIC"], "no-images", ["2 HEIC photographs"]),
        (["notes.txt"], "no-images", []),
    ],
)
def test_what_cannot_be_told_apart_is_refused_by_init_and_evaluate_in_the_same_words(
    names: list[str],
    code: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = draw(tmp_path / "photos", *names)
    with refuses(code, None, *words) as by_init:
        init(folder, device="cpu")
    assert ("called metadata.csv" in (by_init.value.hint or "")) == ("labels.csv" in names)
    split = "train" if (folder / "train").is_dir() else None
    with pytest.raises(UserError) as by_evaluate:
        labelled_source(NamedDataset(str(folder), split))
    assert (
        by_init.value.problems == by_evaluate.value.problems
        and by_init.value.hint == by_evaluate.value.hint
    )
    assert str(by_init.value).isprintable() or "\n" in str(by_init.value)
    assert not (tmp_path / "recipe.yaml").exists()


def test_a_split_without_class_folders_is_left_out_by_init_and_refused_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = draw(tmp_path / "photos", *numbered("train/mug", "train/star", "test"))
    result = init(folder, device="cpu")
    assert result.recipe.source.validation_split == "train"
    assert any("split test has no class folders" in note for note in result.notes)
    with refuses("missing-label", folder / "test"):
        labelled_source(NamedDataset(str(folder), "test"))
    assert (
        len(open_source(NamedDataset(str(folder))).rows("test", labelled=False).paths() or ()) == 2
    )


@pytest.mark.parametrize(
    ("tops", "split"),
    [
        (("mug", "star", "train"), "train"),
        (("invalid", "valid", "unread"), "train"),
        (("control", "test"), "train"),
    ],
)
def test_a_word_of_splits_may_be_a_class(tops: tuple[str, ...], split: str, tmp_path: Path) -> None:
    folder = draw(tmp_path / "photos", *numbered(*tops))
    assert read(folder).classes == tuple(sorted(tops)) and [*read(folder).splits] == [split]


@pytest.mark.parametrize(
    "below",
    [
        "images",
        "images/more",
        "val",
        "unknown",
    ],
)
def test_one_folder_that_is_no_class_of_the_other_splits_is_none(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiny ImageNet has train/CLASS/images/ and val/images/, whose labels are in a text file."""
    monkeypatch.chdir(tmp_path)
    tops = ("train/mug/images", "train/star/images", f"val/{below}", "test/mug", "test/star")
    names = numbered(*tops)
    folder = draw(tmp_path / "tiny", *names)
    assert read(folder).classes == ("mug", "star")
    for split in ("train", "test"):
        assert classes_by_path(folder, split) == walked(folder, split)
    with refuses("missing-label", folder / "val"):
        labelled_source(NamedDataset(str(folder), "validation"))
    result = init(folder, device="cpu")
    assert result.recipe.source.validation_split == "test"
    assert any("split validation has no class folders" in note for note in result.notes)


# What decides splits, classes and kinds of files for `datasets`, in names that people give.
SPLITS = ("train", "test", "val")
OTHERS = ("my-train", "valid.old", "Train", "evaluation", "cat")
KINDS = ("cat", "dog", "retrain", "Mug 2")
ODD_KINDS = (*KINDS, "test_2", "dev set", "__pycache__", ".trash", "@eaDir", "a.jpg.b", "cat/left")
ODD_FILES = ("1.jpg", "2.JPG", "3.png", "4.Jpg", "train_5.png", "6-test-1.jpg", "x.test.png", "notes.txt", "7.tar.png",
             "label.csv", "Thumbs.db", ".DS_Store", "LICENSE", "8.jpg.txt", "config.json", "9.avif",
             "9.ico")  # fmt: skip
EXAMPLES = 14


def tree(seed: int, root: Path) -> Path:
    chance = random.Random(seed)
    tops = chance.choice((SPLITS, SPLITS[:2], ("",), (*SPLITS[:2], chance.choice(OTHERS))))
    plain = KINDS, (*ODD_FILES[:3], ".DS_Store", "notes.txt")
    kinds, files = plain if chance.random() < 0.6 else (ODD_KINDS, ODD_FILES)
    for _ in range(chance.randint(3, 12)):
        file = root.joinpath(chance.choice(tops), chance.choice(kinds), chance.choice(files))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return root


def test_rows_without_a_mark_of_their_own_are_those_that_datasets_reads(tmp_path: Path) -> None:
    """Answers that were saved by a folder's content, when `datasets` read it, stay valid."""
    alike = 0
    marked = 0
    for seed in range(EXAMPLES):
        folder = tree(seed, tmp_path / f"photos-{seed}")
        try:
            images = read_image_folder(folder, folder_listing(folder))
        except UserError:
            continue
        if images is None:
            continue
        marks = [rows_mark(images.table(split).info.description) for split in images.splits]
        marked += None not in marks
        if not any(marks):
            try:
                tables = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
            except ValueError:
                # a split holds more texts than images: `datasets` cannot read it, so no answers
                # exist
                continue
            if any("image" not in table.column_names for table in tables.values()):
                continue
            alike += 1
            assert set(tables) == set(images.splits)
            for split, table in tables.items():
                read_table = images.table(str(split))
                for column in table.column_names:
                    if column == "label" and None in table[column]:
                        continue  # `datasets` drops all labels if its first split has one class
                    plain = [
                        dataset.cast_column("image", datasets.Image(decode=False))[column][:]
                        for dataset in (read_table, table)
                    ]
                    assert plain[0] == plain[1], (seed, split, column)
    assert alike > EXAMPLES / 4 and marked > EXAMPLES / 10, (alike, marked)


def test_formats_that_are_read_become_rows(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    draw(folder, "star/1.png")
    (folder / "mug").mkdir()
    for ending in ("png", "jpg", "webp", "bmp", "gif", "tiff", "avif", "ppm"):
        Image.new("RGB", (8, 8), (200, 10, 10)).save(folder / "mug" / f"1.{ending}")
    images = labelled_source(folder)
    [*pictures, _] = [images.decoded(image) for _, image in images.images()]
    assert len(pictures) == 8
    for picture in pictures:
        assert picture is not None and picture.size == (8, 8) and picture.getpixel((4, 4))[0] > 180  # type: ignore[index]
