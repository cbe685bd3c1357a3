"""One reader of folders: descriptions and tables beside images change what rows hold, and never
which rows there are.

Each row of a table is a folder in a form that people publish, with the class of every image as its
maker wrote it down.
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest

from counterfoil.data.folder_cards import pattern_matches
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.data.tables import plain_folder
from counterfoil.recipe.schema_inputs import Conditions
from support.images import encoded
from support.refusals import refuses
from support.tables import as_parquet, classes_by_path, image_table

PIXELS = encoded((9, 9, 9))


def write(
    folder: Path, names: Sequence[str], files: Mapping[str, str | bytes] | None = None
) -> Path:
    """Write an image of every name, and other files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PIXELS)
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def card(names: Sequence[str] = (), configs: str = "") -> str:
    """Write a README.md as the Hub stores it, with names of labels and lists of files."""
    lines = "".join(f"          '{number}': {name}\n" for number, name in enumerate(names))
    features = (
        "dataset_info:\n  features:\n  - name: image\n    dtype: image\n  - name: label\n   "
        " dtype:\n"
        f"      class_label:\n        names:\n{lines}"
    )
    return f"---\n{features if names else ''}{configs}---\n\n# Photographs\n"


def infos(names: Sequence[str]) -> str:
    """Write dataset_infos.json as earlier versions of `datasets` did."""
    label = {"num_classes": len(names), "names": list(names), "_type": "ClassLabel"}
    return json.dumps({"default": {"features": {"image": {"_type": "Image"}, "label": label}}})


def csv(*lines: str, header: str = "file_name,label") -> str:
    return "\n".join([header, *lines, ""])


def of_folders(names: Sequence[str], level: int = 0) -> dict[str, str]:
    """Return the folder at a level of each path, as a plain reference."""
    return {name: name.split("/")[level] for name in names}


GLASS = ("beaker", "test tube")
# Folders in which the words of splits stand in names of classes and of files, with `level` of the
# class and the split.
SPLIT = [
    f"{split}/{name}/{number}.png"
    for split in ("train", "test")
    for name in GLASS
    for number in range(2)
]
SERIES = [
    f"{name}/s{series}/{number}.png"
    for name in ("mug", "star")
    for series in (1, 2)
    for number in range(2)
]
WORDS = [
    f"{name}/photo_{word}_0.PNG"
    for name in ("mug", "star")
    for word in ("test", "new", "train", "val")
]
INSIDE = [f"data/{name}" for name in SPLIT]
TREES = {
    "splits": (SPLIT, "test", 1),
    "series": (SERIES, None, 0),
    "words": (WORDS, None, 0),
    "inside": (INSIDE, "test", 2),
}
BESIDE: Mapping[str, Any] = {
    "nothing": lambda classes, names: {},
    "card": lambda classes, names: {"README.md": card(classes)},
    "infos": lambda classes, names: {"dataset_infos.json": infos(classes)},
    "settings": lambda classes, names: {".huggingface.yaml": card(classes).split("---")[1]},
    "text": lambda classes, names: {"README.md": "---\nlicense: mit\n---\n# configs of my camera"},
    "captions": lambda classes, names: {
        "metadata.csv": csv(*(f"{n},a table" for n in names), header="file_name,text")
    },
    "some captions": lambda classes, names: {
        "metadata.csv": csv(f"{names[-1]},a", header="file_name,text")
    },
    "captions as lines": lambda classes, names: {
        "metadata.jsonl": "\n".join(
            json.dumps({"file_name": name, "text": "a"}) for name in reversed(names)
        )
    },
    "captions as Parquet": lambda classes, names: {
        "metadata.parquet": parquet_of(pd.DataFrame({"file_name": names, "text": "a"}))
    },
    "captions below": lambda classes, names: {
        f"{names[0].rpartition('/')[0]}/metadata.csv": csv(
            f"{names[0].rpartition('/')[2]},a", header="file_name,text"
        )
    },
    "labels": lambda classes, names: {
        "metadata.csv": csv(
            *(f"{name},{next(cls for cls in classes if cls in name)}" for name in reversed(names))
        )
    },
    "labels of one folder": lambda classes, names: {
        f"{names[0].rpartition('/')[0]}/metadata.csv": csv(
            f"{names[0].rpartition('/')[2]},{next(cls for cls in classes if cls in names[0])}"
        )
    },
}


def parquet_of(frame: pd.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.to_parquet(stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("tree", "beside"),
    [*(("splits", beside) for beside in BESIDE), *itertools.product(TREES, ("nothing", "labels"))],
)
def test_what_lies_beside_images_changes_neither_rows_nor_classes(
    tree: str, beside: str, tmp_path: Path
) -> None:
    names, split, level = TREES[tree]
    classes = sorted({name.split("/")[level] for name in names})
    folder = write(tmp_path / "photos", names, BESIDE[beside](classes, names))
    for top in ("train", "test") if split else (None,):
        wanted = [name for name in names if top is None or f"/{top}/" in f"/{name}"]
        assert classes_by_path(folder, top) == of_folders(wanted, level)


FLAT = [f"{number}.png" for number in range(4)]
LABELLED = [f"{name},{'mug' if number % 2 else 'star'}" for number, name in enumerate(FLAT)]
CLASSES = ["mug/1.png", "mug/2.png", "star/1.png", "star/2.png"]
LISTED = "configs:\n- config_name: default\n  data_files:\n"


@pytest.mark.parametrize(
    ("names", "files", "split", "expected"),
    [
        # Tables with labels: at the top, in folders of splits, below, in several places.
        (
            FLAT,
            {"metadata.csv": csv(*LABELLED)},
            None,
            dict.fromkeys(FLAT[::2], "star") | dict.fromkeys(FLAT[1::2], "mug"),
        ),
        (
            ["images/a.png", "images/b.png"],
            {"metadata.csv": csv("images\\a.png,x", "./images/b.png,y")},
            None,
            {"images/a.png": "x", "images/b.png": "y"},
        ),
        (
            ["test_1.png", "train_2.png"],
            {"metadata.csv": csv("test_1.png,x", "train_2.png,y")},
            None,
            {"test_1.png": "x", "train_2.png": "y"},
        ),
        (
            ["train/1.png", "train/3.png", "test/test_2.png"],
            {"metadata.csv": csv("test/test_2.png,x", "train/1.png,x", "train/3.png,y")},
            "test",
            {"test/test_2.png": "x"},
        ),
        (
            ["imgs_train/1.png", "imgs_test/2.png"],
            {"metadata.csv": csv("imgs_train/1.png,x", "imgs_test/2.png,y")},
            "test",
            {"imgs_test/2.png": "y"},
        ),
        (
            ["train/x/1.png", "train/y/1.png", "test/a.png", "test/b.png"],
            {"test/metadata.csv": csv("a.png,x", "b.png,y")},
            "test",
            {"test/a.png": "x", "test/b.png": "y"},
        ),
        (
            ["cam1/a.png", "cam2/a.png"],
            {"cam1/metadata.csv": csv("a.png,x"), "cam2/metadata.csv": csv("a.png,y")},
            None,
            {"cam1/a.png": "x", "cam2/a.png": "y"},
        ),
        (CLASSES, {"mug/metadata.csv": csv("1.png,Mug", "2.png,mug")}, None, of_folders(CLASSES)),
        (
            CLASSES,
            {
                "metadata.csv": csv(
                    *(f"{name},{'xy'[number % 2]}" for number, name in enumerate(CLASSES))
                )
            },
            None,
            {name: "xy"[number % 2] for number, name in enumerate(CLASSES)},
        ),
        (
            ["cafe\u0301/1.png", "b/1.png"],
            {"metadata.csv": csv("caf\u00e9/1.png,x", "b/1.png,y")},
            None,
            {"cafe\u0301/1.png": "x", "b/1.png": "y"},
        ),
        (
            FLAT[:2],
            {"metadata.csv": "\ufeff" + csv("0.png,NA,", "1.png,007,", header="file_name,label,")},
            None,
            {"0.png": "NA", "1.png": "007"},
        ),
        # Lists of files in a card.
        (
            [f"a/{name}" for name in CLASSES] + [f"b/{name}" for name in CLASSES],
            {
                "README.md": card(
                    configs=f"{LISTED}  - split: train\n    path: a/**\n  - split: test\n    path:"
                    " b/**\n"
                )
            },
            "test",
            of_folders([f"b/{name}" for name in CLASSES], 1),
        ),
        (
            [*CLASSES, "old/mug/9.png"],
            {
                "README.md": card(
                    configs=f"{LISTED}  - split: test\n    path:\n    - mug/*.png\n    -"
                    " star/*.png\n"
                )
            },
            "test",
            of_folders(CLASSES),
        ),
        (
            [f"photos/{name}" for name in SERIES] + ["cover.png"],
            {"README.md": card(configs="configs:\n- config_name: default\n  data_dir: photos\n")},
            None,
            of_folders([f"photos/{name}" for name in SERIES], 1),
        ),
        # What else lies in folders of strangers.
        (
            [*CLASSES, ".cache/huggingface/mug/1.png", "mug/.thumbs/1.png"],
            {"README.md": card(("star", "mug"))},
            None,
            of_folders(CLASSES),
        ),
        (
            ["mug/1.JPEG", "star/test.Png"],
            {"README.md": card(("mug", "star")), "notes_test.txt": "x"},
            None,
            {"mug/1.JPEG": "mug", "star/test.Png": "star"},
        ),
        (
            ["test tube/cam_a/1.png", "train ticket/cam_a/1.png"],
            {"README.md": card(("test tube", "train ticket"))},
            None,
            of_folders(["test tube/cam_a/1.png", "train ticket/cam_a/1.png"]),
        ),
    ],
)
def test_tables_and_descriptions_are_read_as_they_are_documented(
    names: list[str],
    files: dict[str, str],
    split: str | None,
    expected: dict[str, str],
    tmp_path: Path,
) -> None:
    assert classes_by_path(write(tmp_path / "photos", names, files), split) == expected


def test_labels_are_numbered_as_the_description_says(tmp_path: Path) -> None:
    order = ("star", "mug", "bowl")
    for number, beside in enumerate(
        ({"README.md": card(order)}, {"dataset_infos.json": infos(order)})
    ):
        images = labelled_source(write(tmp_path / f"photos-{number}", CLASSES, beside))
        assert images.class_names == order and images.labels.tolist() == [1, 1, 0, 0]
    numbers = csv("0.png,1", "1.png,0", "2.png,1", "3.png,")
    images = labelled_source(
        write(tmp_path / "numbers", FLAT, {"metadata.csv": numbers, "README.md": card(("a", "b"))})
    )
    assert images.class_names == ("a", "b") and images.labels.tolist() == [1, 0, 1]


EVERY = f"{LISTED}  - split: train\n    path: '**'\n"
REFUSED = [
    # Which split?
    (["test tube/cam_a/1.png", "train ticket/cam_a/1.png"], {}, "unclear-split", ["'test tube'"]),
    (
        ["test_images/1.png", "images/2.png"],
        {"metadata.csv": csv("test_images/1.png,x", "images/2.png,y")},
        "unclear-split",
        ["'test_images'"],
    ),
    (
        ["train/1.png", "test/1.png", "more/1.png"],
        {},
        "unclear-split",
        ["test/, train/", "1 image lies outside"],
    ),
    (
        ["mug/test/1.png", "mug/train/1.png", "star/test/1.png"],
        {"README.md": card(("mug", "star"))},
        "unclear-split",
        ["3 folders", "below class folders"],
    ),
    (
        ["train/mug/1.png", "test/mug/1.png"],
        {"README.md": card(configs=f"{EVERY}")},
        "unclear-split",
        ["as the one split 'train'"],
    ),
    (
        CLASSES,
        {"README.md": card(configs=f"{EVERY}  - split: test\n    path: star/*\n")},
        "unclear-split",
        ["in train and in test"],
    ),
    (
        CLASSES,
        {"README.md": card(configs=f"{EVERY}  - split: test\n    path: test/*\n")},
        "no-images",
        ["'test'"],
    ),
    # Which class?
    (CLASSES, {"README.md": card(("mug", "cup"))}, "unknown-label", ["'star'", "'mug', 'cup'"]),
    (
        FLAT,
        {"metadata.csv": csv(*LABELLED), "README.md": card(("mug", "cup"))},
        "unknown-label",
        ["the labels 'star'"],
    ),
    (
        [*CLASSES, "1.png"],
        {"README.md": card(("mug", "star"))},
        "missing-label",
        ["1 image lies", "1.png"],
    ),
    (
        CLASSES,
        {"mug/metadata.csv": csv("1.png,red", "2.png,blue")},
        "missing-label",
        ["mug/metadata.csv", "2 images lie in other folders"],
    ),
    (
        FLAT,
        {"metadata.csv": csv("0.png,x", "0.png,y", "1.png,x")},
        "image-list",
        ["'0.png' the label 'x' and 'y'"],
    ),
    # Which image?
    (
        FLAT,
        {"metadata.csv": csv("0.png,x", "9.png,y", ",z")},
        "image-list",
        ["image 2: file_name: names '9.png'"],
    ),
    (
        FLAT,
        {
            "metadata.csv": csv(
                "../photos/0.png,x", "/etc/passwd,y", "C:\\0.png,x", "file:///0.png,y"
            )
        },
        "image-list",
        ["image 4", "no path inside"],
    ),
    (
        FLAT,
        {"metadata.csv": csv("0.png;x", header="file_name;label")},
        "missing-column",
        ["file_name"],
    ),
    (FLAT, {"metadata.csv": csv()}, "image-list", ["metadata.csv"]),
    (FLAT, {"metadata.jsonl": "{not json"}, "unreadable-data", ["metadata.jsonl: "]),
    (
        FLAT,
        {"metadata.csv": csv(*LABELLED), "metadata.jsonl": "{}"},
        "image-list",
        ["several forms"],
    ),
]


@pytest.mark.parametrize(("names", "files", "code", "words"), REFUSED)
def test_what_is_not_known_is_asked(
    names: list[str], files: dict[str, str], code: str, words: list[str], tmp_path: Path
) -> None:
    folder = write(tmp_path / "photos", names, files)
    split = "train" if "'train'" in words[0] else None
    with refuses(code, None, *words) as refused:
        labelled_source(NamedDataset(str(folder), split))
    assert all(problem.path.startswith(str(folder)) for problem in refused.value.problems)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("lines", "labels", "scored", "note"),
    [
        (
            [*LABELLED[:3]],
            3,
            "3 of 4 images are scored; 1 has no line in the table of labels.",
            "1 of 4 images has no line in metadata.csv, and are left out",
        ),
        (
            [*LABELLED, *LABELLED[:2], LABELLED[0]],
            4,
            "3 lines that repeat another are left out.",
            "3 lines of metadata.csv repeat an image, and each image counts once",
        ),
    ],
)
def test_what_a_table_leaves_out_or_repeats_is_told_once(
    lines: list[str], labels: int, scored: str, note: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "photos", FLAT, {"metadata.csv": csv(*lines)})
    images = labelled_source(folder)
    assert (len(images), images.scored_sentence, images.notes) == (labels, scored, ())
    read = open_source(NamedDataset(str(folder))).folder
    assert read is not None and note in read.notes()


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (("mug", "mug", "star", "star"), None),
        (("mug", "star", "star", "star"), "1 of 4 images lies in the folder of another class"),
        (("star", "star", "mug", "mug"), "4 of 4 images lie in the folder of another class"),
        (("x", "y", "x", "y"), None),
        (("mug", "mug", "bowl", "star"), None),
    ],
)
def test_a_table_that_contradicts_class_folders_is_told(
    labels: tuple[str, ...], note: str | None, tmp_path: Path
) -> None:
    """Check that the note appears where labels and folders have the same names alone."""
    lines = [f"{name},{label}" for name, label in zip(CLASSES, labels, strict=True)]
    folder = write(
        tmp_path / "photos",
        CLASSES,
        {"metadata.csv": csv(*lines)},
    )
    assert classes_by_path(folder) == dict(zip(CLASSES, labels, strict=True))
    notes = labelled_source(folder).notes
    beginnings = [text.partition(" than ")[0] for text in notes]
    assert beginnings == list(filter(None, [note]))


@pytest.mark.parametrize(
    ("header", "values", "sizes"),
    [
        ("split", ("train", "train", "val", "test"), "train (2), val (1) and test (1)"),
        ("Set", ("Training", "Testing", "Testing", "Testing"), "Training (1) and Testing (3)"),
        ("split", ("test", "test", "test", "test"), None),
        ("split", ("a", "b", "test", "train"), None),
        ("camera", ("train", "test", "test", "test"), None),
    ],
)
def test_a_column_of_splits_is_told_where_all_rows_are_one_split(
    header: str, values: tuple[str, ...], sizes: str | None, tmp_path: Path
) -> None:
    lines = [f"{name},mug,{value}" for name, value in zip(CLASSES, values, strict=True)]
    table = csv(*lines, header=f"file_name,label,{header}")
    notes = labelled_source(
        write(
            tmp_path / "photos",
            CLASSES,
            {"metadata.csv": table},
        )
    ).notes
    expected = f"the column {header} says {sizes}, and all these images are read as one split"
    beginnings = [text.partition(". ")[0] for text in notes]
    assert beginnings == ([] if sizes is None else [expected])


def test_class_folders_in_an_archive_are_refused(tmp_path: Path) -> None:
    """`datasets` would look for their names in the folder that the archive lies in."""
    with zipfile.ZipFile(
        write(
            tmp_path / "photos",
            [],
            {"note.txt": ""},
        )
        / "all.zip",
        "w",
    ) as file:
        for name in CLASSES:
            file.writestr(name, PIXELS)
    with refuses("unreadable-data", "source", "all.zip"):
        labelled_source(tmp_path / "photos")


def test_captions_of_several_lines_and_columns_of_conditions_are_all_rows(tmp_path: Path) -> None:
    captions = csv(*(f"{name},{text}" for name in FLAT for text in "ab"), header="file_name,text")
    pool = open_source(
        NamedDataset(str(write(tmp_path / "captions", FLAT, {"metadata.csv": captions})))
    )
    assert list(pool.rows("train", labelled=False).column("text")) == list("ab") * 4
    columns = csv(
        *(f"{name},{number % 2}.0" for number, name in enumerate(FLAT[:3])), header="file_name,hat"
    )
    folder = write(tmp_path / "faces", FLAT, {"metadata.csv": columns})
    faces = open_source(NamedDataset(str(folder), conditions=Conditions(columns=("hat",)))).rows(
        "train", labelled=False
    )
    assert list(faces.column("hat")) == [0.0, 1.0, 0.0] and faces.paths() == tuple(FLAT[:3])


SAME = [
    (
        ["train/1.png", "test/2.png", "test/3.png"],
        {"train/metadata.csv": csv("1.png,x"), "test/metadata.csv": csv("3.png,x", "2.png,y")},
        "test",
    ),
    (["images/a.png", "images/b.png"], {"images/metadata.csv": csv("b.png,y", "a.png,x")}, "train"),
    (
        CLASSES,
        {"metadata.csv": csv(*(f"{name},{name[:1]}" for name in reversed(CLASSES)))},
        "train",
    ),
]


@pytest.mark.parametrize(("names", "files", "split"), SAME)
def test_rows_of_tables_that_datasets_reads_rightly_stay_as_they_are(
    names: list[str], files: dict[str, str], split: str, tmp_path: Path
) -> None:
    """They have no mark of their own, so answers and pins that were stored for them stay valid."""
    folder = write(tmp_path / "photos", names, files)
    read = plain_folder(NamedDataset(str(folder)))
    assert read is not None and read.read_alike
    reference = datasets.load_dataset(
        str(folder), split=split, cache_dir=str(tmp_path / "datasets")
    )
    reference = reference.cast_column("image", datasets.Image(decode=False))
    table = read.table(split).cast_column("image", datasets.Image(decode=False))
    assert table.column_names == reference.column_names
    assert table[:] == reference[:]


FEW = ("mug", "star")


def parquet(labels: Sequence[str]) -> bytes:
    return as_parquet(image_table([PIXELS] * len(labels), label=list(labels)))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.parquet": 1, "test.parquet": 2}, {"train": 1, "test": 2}),
        (
            {"data/train-00000-of-00002.parquet": 1, "data/train-00001-of-00002.parquet": 2},
            {"train": 3},
        ),
        ({"a.parquet": 1, "b.parquet": 2}, {"train": 3}),
        ({"test/a.parquet": 1, "train/b.parquet": 2}, {"test": 1, "train": 2}),
        (
            {"a-test.parquet": 1, "b.parquet": 2},
            "no split has b.parquet, and a-test.parquet as test would be read",
        ),
        ({"a-test.parquet": 1, "B.PARQUET": 2}, "no split has B.PARQUET"),
        ({"test/a.parquet": 1, "more/b.parquet": 2}, "no split has more/b.parquet"),
        (
            {"train_data/test/a.parquet": 1, "train_data/train/b.parquet": 1},
            "would be read in several splits",
        ),
        (
            {"train-00000-of-00002.parquet": 1},
            "train: lacks 1 part of 2, such as train-00001-of-00002.parquet",
        ),
    ],
)
def test_every_file_of_rows_belongs_to_one_split_or_the_command_asks(
    files: dict[str, int], expected: dict[str, int] | str, tmp_path: Path
) -> None:
    folder = write(
        tmp_path / "rows", (), {name: parquet(FEW * count) for name, count in files.items()}
    )
    opened = open_source(NamedDataset(str(folder)))
    if isinstance(expected, str):
        code = "unreadable-data" if "lacks" in expected else "unclear-split"
        with refuses(code, "source", expected) as refused:
            opened.rows("test")
        assert refused.value.hint
    else:
        assert {split: opened.rows(split).count // 2 for split in opened.splits} == expected


def test_csv_files_belong_to_splits_too_and_a_list_in_the_card_is_an_answer(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "rows", (), {"images_test.csv": "a,label\n1,x\n", "images.csv": "a,label\n2,y\n"}
    )
    with refuses("unclear-split", "source", "images.csv", "images_test.csv as test"):
        open_source(NamedDataset(str(folder))).rows("test")
    listed = {"README.md": card(configs=f"{LISTED}  - split: test\n    path: a-test.parquet\n")}
    files = {"a-test.parquet": parquet(FEW), "b.parquet": parquet(FEW)}
    assert open_source(
        NamedDataset(str(write(tmp_path / "listed", (), files | listed)))
    ).splits == ("test",)


def test_a_snapshot_of_the_hubs_client_is_read_wherever_its_cache_lies(tmp_path: Path) -> None:
    repository = tmp_path / "elsewhere" / "datasets--someone--photos"
    snapshot = repository / "snapshots" / ("a" * 40)
    for name in SERIES:
        blob = repository / "blobs" / name.replace("/", "-")
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(PIXELS)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    images = labelled_source(NamedDataset(str(snapshot)))
    assert classes_by_path(snapshot) == of_folders(SERIES)
    assert [image for _, image in images.images()] == [PIXELS] * len(SERIES)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("train/**", "train/mug/1.png", True),
        ("train/*", "train/mug/1.png", False),
        ("train", "train/mug/1.png", True),
        ("./train/", "train/1.png", True),
        ("**/*.png", "1.png", True),
        ("**/*.png", "a/b/1.png", True),
        ("data/train-*", "data/train-1.png", True),
        ("*/1.[jp]*", "a/1.png", True),
        ("../secret/*", "secret/1.png", False),
        ("/etc/**", "etc/passwd", False),
        ("/".join(["**"] * 300), "/".join(["a"] * 300), True),
    ],
)
def test_patterns_of_a_card_choose_among_the_files_of_the_folder(
    pattern: str, name: str, expected: bool
) -> None:
    assert pattern_matches(pattern, name) is expected
