"""Files of predictions of strangers: other files are refused with a message, and reading them is
bounded."""

from __future__ import annotations

import csv as standard_csv
import io
import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil import foreign_tables
from counterfoil.documents import as_cell, csv_text
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models import answer_tables
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.prediction.class_map import map_classes
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.prompts import RecipeClass

KEY_COLUMNS = ("key", "path", "class_id", "label")
CLASSES = [RecipeClass("00", "t-shirt", 0, 0, ()), RecipeClass("01", "ankle boot", 1, 1, ())]


def parquet(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return f"predictions:{path}"


def csv(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return f"predictions:{path}"


def recorded(
    name: str,
    keys: list[str],
    paths: list[str] | None = None,
    classes: Sequence[RecipeClass] = CLASSES,
) -> dict[str, list[float]]:
    chunks = load_classifier(name, classes=classes).recorded(keys, paths)
    assert chunks is not None
    return {
        keys[row]: scores.tolist()
        for indices, rows in chunks
        for row, scores in zip(indices, rows, strict=True)
    }


def test_scores_come_by_key_whatever_the_order_and_what_else_is_there(tmp_path: Path) -> None:
    name = csv(tmp_path / "a.csv", "Ankle_Boot,key,t-shirt\n1.5,b,0.5\n-2,elsewhere,3\n0.25,a,7\n")
    assert describe_classifier(name, CLASSES).label_names == ("Ankle_Boot", "t-shirt")
    assert recorded(name, ["a", "b", "c"]) == {"a": [0.25, 7.0], "b": [1.5, 0.5]}


@pytest.mark.parametrize("column", ["key", "path"])
def test_a_path_names_an_image_as_its_key_does(tmp_path: Path, column: str) -> None:
    # A spreadsheet's text has a mark before what would be a formula; keys come before paths of the
    # same name.
    message = (
        f"{column},t-shirt,ankle boot\nnight/x.jpg,1,2\n'=1.jpg,3,4\nb,5,6\nelsewhere.jpg,7,8\n"
    )
    scores = recorded(
        csv(tmp_path / "a.csv", message), ["a", "b", "c"], ["night/x.jpg", "other.jpg", "=1.jpg"]
    )
    assert scores == {"a": [1, 2], "b": [5, 6], "c": [3, 4]}
    beside = csv(tmp_path / "b.csv", "key,path,t-shirt,ankle boot\na,elsewhere.jpg,1,2\n")
    assert recorded(beside, ["a"], ["night/x.jpg"]) == {"a": [1, 2]}


ODD: dict[str, tuple[str | bytes, str]] = {
    "no image": ("label\nt-shirt\n", "has the columns 'label'; expected key"),
    "both": ("key,row,label\na,0,t-shirt\n", "expected key \\(or path or row\\)"),
    "no answer": ("key\na\n", "and no answers"),
    "truth beside": (
        "key,label,shift\na,t-shirt,base\n",
        "may be the answers.*\n.*may be the true label",
    ),
    "answers and truth": (
        "key,prediction,truth\na,t-shirt,t-shirt\n",
        "several of them may be the answers",
    ),
    "image": ("filename,label\na,t-shirt\n", "Call the column of the images key or path"),
    "other image": ("path,label\nphotos/x.jpg,t-shirt\n", "there: 'photos/x.jpg'\n  expected: 'a'"),
    "other ids": ("key,class_id\na,7\n", "2 classes are never answered, and 1 answer is no class"),
    "bars": ("key|label\na|t-shirt\n", "has the columns 'key|label'"),
    "Latin-1": (
        "key,label\na,böot\n".encode("latin-1"),
        "cannot be read.*neither UTF-8 nor UTF-16.*save it as CSV in UTF-8",
    ),
    "half UTF-16": (
        "key,label\na,t-shirt\n".encode("utf-16-le"),
        "neither UTF-8 nor UTF-16 text with its mark",
    ),
    "spaced": ("key, label\na, t-shirt, red\n", "expected 2 columns, got 3"),
    "twice": ("key,t-shirt,t-shirt\na,1,2\n", "'t-shirt' more than once"),
    "text": (
        "key,t-shirt,ankle boot\na,high,2\n",
        "column 't-shirt'.*must have the scores of one class",
    ),
    "no number": (
        "key,t-shirt,ankle boot\na,nan,2\n",
        "a score that is not a number for 'a', in column 't-shirt'",
    ),
    "endless": (
        "key,t-shirt,ankle boot\na,2,inf\n",
        "a score that is not a number for 'a', in column 'ankle boot'",
    ),
    "no key": ("key,label\n,t-shirt\n", "rows without a key"),
    "row": ("row,label\n7,t-shirt\n", "has row 7, and there are 1 images"),
    "row before": ("row,label\n-1,t-shirt\n", "has row -1"),
    "row of text": ("row,label\nfirst,t-shirt\n", "cannot be read"),
    "nothing": ("", "cannot be read"),
}


def test_numbers_as_keys_and_ids_stay_text(tmp_path: Path) -> None:
    name = csv(tmp_path / "a.csv", "key,class_id\n007,01\n8,00\n")
    facts = describe_classifier(name, CLASSES)
    assert (facts.label_names, facts.most_ranked) == (
        ("t-shirt", "ankle boot", "(another label)"),
        1,
    )
    scores = recorded(name, ["007", "8"])
    assert [int(np.argmax(scores[key])) for key in ("007", "8")] == [1, 0]


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_file_of_predictions_is_reported(tmp_path: Path, case: str) -> None:
    text, says = ODD[case]
    with pytest.raises(UserError, match=says) as caught:
        recorded(csv(tmp_path / "odd.csv", text), ["a"])
    assert len(str(caught.value)) < 1200 + len(str(tmp_path))


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "model.pkl").write_bytes(b"")
    for file, says in (
        ("pipe.csv", "is a pipe"), ("folder.parquet", "is a folder"), ("cut.parquet", "cannot be"
            " read"),
        ("model.pkl", "expected .parquet, .csv"), ("none.csv", "there is no file"),
    ):  # fmt: skip
        with pytest.raises(CounterfoilError, match=says):
            describe_classifier(f"predictions:{tmp_path / file}", CLASSES)


def test_columns_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'label' of list<.*expected text"):
        describe_classifier(
            parquet(tmp_path / "a.parquet", key=["a"], label=[["t-shirt"]]), CLASSES
        )
    scores = {"t-shirt": [1.0], "ankle boot": [[2.0]]}
    with pytest.raises(UserError, match=r"'ankle boot' of list<.*expected numbers"):
        recorded(parquet(tmp_path / "b.parquet", key=["a"], **scores), ["a"])
    coded = parquet(
        tmp_path / "c.parquet", key=["a"], label=pa.array(["t-shirt"]).dictionary_encode()
    )
    assert recorded(coded, ["a"])


def test_sizes_are_bounded_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = parquet(
        tmp_path / "small.parquet", key=[f"k{i}" for i in range(5000)], label=["t-shirt"] * 5000
    )
    monkeypatch.setattr(foreign_tables, "_MOST_UNFOLDED", 4000)
    with pytest.raises(UserError, match=r"bytes in its column '\w+', expected at most 4,000"):
        describe_classifier(small, CLASSES)
    monkeypatch.setattr(answer_tables, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="expected at most 1,000"):
        describe_classifier(small, CLASSES)


def test_two_classes_of_one_name_need_ids(tmp_path: Path) -> None:
    cranes = [RecipeClass("n1", "crane", 0, 0, ()), RecipeClass("n2", "crane", 1, 1, ())]
    with pytest.raises(UserError, match=r"'crane', which is the name of two classes.*\n.*class_id"):
        describe_classifier(csv(tmp_path / "a.csv", "key,label\na,crane\n"), cranes)
    assert (
        describe_classifier(csv(tmp_path / "b.csv", "key,class_id\na,n2\n"), cranes).num_classes
        == 3
    )


# What spreadsheets, pandas and people on other systems make of "key,label" and of scores.
SCORES = {"a": [0.25, 7.0], "b": [1.5, 0.5]}
PLAIN = "key,t-shirt,ankle boot\na,0.25,7\nb,1.5,0.5\n"
WRITTEN: dict[str, bytes] = {
    "byte-order mark": PLAIN.encode("utf-8-sig"),
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-16 of the other order": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "decimal commas": PLAIN.replace(",", ";").replace(".", ",").encode(),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "carriage returns": PLAIN.replace("\n", "\r\n").encode(),
    "spaces and quotes": b'key, "t-shirt", "ankle boot"\na, "0.25", 7\nb, 1.5, 0.5\n',
    "many blank lines": b"key, t-shirt, ankle boot\na, 0.25, 7\n"
    + b"\n" * 20_000
    + b"b, 1.5, 0.5\n",
    "many blank lines without spaces": PLAIN.replace("\nb", "\n" * 20_000 + "b").encode(),
    "capitals": PLAIN.replace("key", "Key").encode(),
    "index of pandas": b"Unnamed: 0,key,t-shirt,ankle boot\n0,a,0.25,7\n1,b,1.5,0.5\n",
    "empty columns": b"key,t-shirt,ankle boot,,\na,0.25,7,,\nb,1.5,0.5,,\n",
}


@pytest.mark.parametrize("case", WRITTEN)
def test_what_programs_make_of_a_table_is_read(tmp_path: Path, case: str) -> None:
    ending = "tsv" if case == "tabs" else "csv"
    assert recorded(csv(tmp_path / f"a.{ending}", WRITTEN[case]), ["a", "b"]) == SCORES


def test_delimiters_in_names_of_classes_part_nothing(tmp_path: Path) -> None:
    classes = [
        RecipeClass("0", "a;b", 0, 0, ()),
        RecipeClass("1", "c\td", 1, 1, ()),
        RecipeClass("2", "e, f", 2, 2, ()),
    ]
    table = pd.DataFrame({"key": ["k"], **{cls.name: [float(cls.label)] for cls in classes}})
    for mark in (",", ";", "\t"):
        table.to_csv(tmp_path / "a.csv", sep=mark, index=False)
        name = f"predictions:{tmp_path / 'a.csv'}"
        assert describe_classifier(name, classes).label_names == ("a;b", "c\td", "e, f"), mark
        assert recorded(name, ["k"], classes=classes) == {"k": [0, 1, 2]}


def test_pandas_with_its_index_and_capitals_is_read(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {"Path": ["b.jpg", "a.jpg"], "Label": ["t-shirt", "ankle boot"]}, index=[7, 3]
    )
    table.to_parquet(tmp_path / "a.parquet")
    scores = recorded(f"predictions:{tmp_path / 'a.parquet'}", ["0", "1"], ["a.jpg", "b.jpg"])
    assert {key: int(np.argmax(row)) for key, row in scores.items()} == {"0": 1, "1": 0}


# Names that spreadsheets, CSV, pandas and comparisons of names treat in ways of their own.
HOSTILE = st.one_of(
    st.sampled_from(
        ["=cmd", "'=cmd", "+1", "-2", "@SUM(A1)", "=1+1", '"', '"q"', "a,b", "a;b", "a\tb", "a\nb", "a\r\nb", "a\rb",
         "", " a", "a ", "a", "A", "STRASSE", "Straße", "strasse", "a_b", "a-b", "a b", "NA", "None", "nan", "null",
         "inf", "TRUE", "0", "00", "007", "7", "7.0", "1e5", "-0",
         "٣", "３", "עברית", "\u202eabc", "🧥", "👩🏽\u200d🚒", "e\u0301", "é", "'", "''",
         "key", "path", "row", "label", "class_id", "index", "score", "\\", "x" * 300]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)  # fmt: skip


def written_keys(classes: Sequence[RecipeClass]) -> str:
    """Return the CSV of one image a class, as `--write-keys` writes it."""
    rows = [(f"k{cls.label}", f"p/{cls.label}.jpg", cls.id, cls.name) for cls in classes]
    return csv_text([dict(zip(KEY_COLUMNS, row, strict=True)) for row in rows], KEY_COLUMNS)


def answered(path: Path, classes: Sequence[RecipeClass]) -> dict[str, int]:
    """Return the class of each answered image, by the outputs and the map that scoring uses."""
    name = f"predictions:{path}"
    outputs = map_classes(classes, describe_classifier(name, classes)).targets
    assert outputs == tuple((label,) for label in range(len(classes)))
    keys = [f"k{cls.label}" for cls in classes]
    scores_by_key = recorded(name, keys, [f"p/{cls.label}.jpg" for cls in classes], classes)
    return {key: int(np.argmax(scores)) for key, scores in scores_by_key.items()}


@given(
    names=st.lists(HOSTILE, min_size=2, max_size=6, unique=True),
    ids=st.booleans(),
    image=st.sampled_from(KEY_COLUMNS[:2]),
)
def test_what_is_written_is_read(names: list[str], ids: bool, image: str) -> None:
    classes = [
        RecipeClass(f"{label:04d}" if ids else f"c{label}", name, label, label, ())
        for label, name in enumerate(names)
    ]
    keys = written_keys(classes)
    raw = list(standard_csv.DictReader(io.StringIO(keys)))
    tables = {
        "csv": pd.read_csv(io.StringIO(keys), dtype=str, keep_default_na=False),
        "raw": pd.DataFrame({name: [row[name] for row in raw] for name in KEY_COLUMNS}),
        "names": pd.DataFrame(
            [(f"k{cls.label}", f"p/{cls.label}.jpg", cls.id, cls.name) for cls in classes],
            columns=[*KEY_COLUMNS],
        ),
    }
    if ids:  # leading zeros are lost where pandas guesses
        tables["guessed"] = pd.read_csv(io.StringIO(keys))[["key", "path", "class_id"]]
    right = {f"k{cls.label}": cls.label for cls in classes}
    with tempfile.TemporaryDirectory() as folder:
        for kind, table in tables.items():
            # Class ids are always unambiguous.
            for path in (Path(folder, f"{kind}.csv"), Path(folder, f"{kind}.parquet")):
                save(table[[image, "class_id"]], path)
                assert answered(path, classes) == right, path.name
            # A name may be ambiguous or empty as a cell: then no image is scored as another class.
            if kind == "guessed":
                continue
            for path in (Path(folder, f"{kind}-names.csv"), Path(folder, f"{kind}-names.parquet")):
                save(table[[image, "label"]], path)
                spelled = [{name, as_cell(name)} for name in names]
                if len({*itertools.chain(*spelled)}) == sum(map(len, spelled)) and not {
                    "",
                    "\r",
                } & {
                    *names,
                    *"".join(names),
                }:
                    assert answered(path, classes) == right, path.name
                    continue
                try:
                    answers = answered(path, classes)
                except UserError:
                    pass
                else:
                    assert answers.items() <= right.items(), path.name


def save(table: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)


@given(names=st.lists(HOSTILE, min_size=2, max_size=6, unique_by=plain_name))
def test_scores_are_read_by_what_columns_are_called(names: list[str]) -> None:
    classes = [RecipeClass(f"c{label}", name, label, label, ()) for label, name in enumerate(names)]
    scores = {
        name: [float(label == row) for row in range(len(names))] for label, name in enumerate(names)
    }
    table = {"key": [f"k{label}" for label in range(len(names))], **scores}
    with tempfile.TemporaryDirectory() as folder:
        for path in (Path(folder, "a.csv"), Path(folder, "a.parquet"), Path(folder, "cells.csv")):
            called = [as_cell(name) if path.stem == "cells" else name for name in table]
            save(pd.DataFrame(dict(zip(called, table.values(), strict=False))), path)
            name = f"predictions:{path}"
            try:
                facts = describe_classifier(name, classes)
                targets = map_classes(classes, facts).targets
            except UserError:
                continue  # a column that names no class, or two
            rows = recorded(name, [f"k{label}" for label in range(len(names))], classes=classes)
            assert facts.label_names is not None
            for label in range(len(names)):
                assert (
                    np.argmax(rows[f"k{label}"]) == targets[label][0]
                    and facts.label_names[targets[label][0]] in names
                )


def test_classes_that_differ_in_case_or_spaces_alone_are_told_apart(tmp_path: Path) -> None:
    names = ["STRASSE", "Straße", "strasse", " a", "a"]
    for ids in (["strasse", "strasse-2", "strasse-3", "a", "a-2"], names):
        classes = [
            RecipeClass(*pair, label, label, ())
            for label, pair in enumerate(zip(ids, names, strict=True))
        ]
        for column, values in (("class_id", ids), ("label", names)):
            path = tmp_path / "a.csv"
            pd.DataFrame({"key": [f"k{label}" for label in range(5)], column: values}).to_csv(
                path, index=False
            )
            assert answered(path, classes) == {f"k{label}": label for label in range(5)}, (
                column,
                ids,
            )
        with pytest.raises(
            UserError, match=r"'strassE', which is the name of two classes.*\n.*class_id"
        ):
            describe_classifier(csv(tmp_path / "b.csv", "key,label\nk0,strassE\n"), classes)
