"""Files of predictions of anybody: what is none is refused in words, and nothing without end is opened or unfolded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier, of_predictions
from counterfoil.recipe.prompts import RecipeClass

CLASSES = [RecipeClass("00", "t-shirt", 0, 0, ()), RecipeClass("01", "ankle boot", 1, 1, ())]


def parquet(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), path)
    return f"predictions:{path}"


def csv(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return f"predictions:{path}"


def recorded(name: str, keys: list[str], paths: list[str] | None = None) -> dict[str, list[float]]:
    found = load_classifier(name, classes=CLASSES).recorded(keys, paths)
    assert found is not None
    return {keys[place]: scores.tolist() for at, rows in found for place, scores in zip(at, rows, strict=True)}


def test_scores_come_by_key_whatever_the_order_and_what_else_is_there(tmp_path: Path) -> None:
    name = csv(tmp_path / "a.csv", "Ankle_Boot,key,t-shirt\n1.5,b,0.5\n-2,elsewhere,3\n0.25,a,7\n")
    assert describe_classifier(name, CLASSES).label_names == ("Ankle_Boot", "t-shirt")
    assert recorded(name, ["a", "b", "c"]) == {"a": [0.25, 7.0], "b": [1.5, 0.5]}


@pytest.mark.parametrize("column", ["key", "path"])
def test_a_path_names_an_image_as_its_key_does(tmp_path: Path, column: str) -> None:
    # A spreadsheet's text has a mark before what would be a formula; a key is meant before a path of the same name.
    message = f"{column},t-shirt,ankle boot\nnight/x.jpg,1,2\n'=1.jpg,3,4\nb,5,6\nelsewhere.jpg,7,8\n"
    found = recorded(csv(tmp_path / "a.csv", message), ["a", "b", "c"], ["night/x.jpg", "other.jpg", "=1.jpg"])
    assert found == {"a": [1, 2], "b": [5, 6], "c": [3, 4]}
    beside = csv(tmp_path / "b.csv", "key,path,t-shirt,ankle boot\na,elsewhere.jpg,1,2\n")
    assert recorded(beside, ["a"], ["night/x.jpg"]) == {"a": [1, 2]}


def test_numbers_as_keys_and_ids_stay_text(tmp_path: Path) -> None:
    name = csv(tmp_path / "a.csv", "key,class_id\n007,01\n8,00\n")
    facts = describe_classifier(name, CLASSES)
    assert (facts.label_names, facts.most_ranked) == (("t-shirt", "ankle boot", "(another label)"), 1)
    found = recorded(name, ["007", "8"])
    assert [int(np.argmax(found[key])) for key in ("007", "8")] == [1, 0]


def test_probabilities_become_logits_of_the_same_softmax(tmp_path: Path) -> None:
    name = csv(tmp_path / "a.csv", "key,t-shirt,ankle boot\na,0.25,0.75\nb,0,1\n")
    found = recorded(name, ["a", "b"])
    assert np.exp(found["a"]) == pytest.approx([0.25, 0.75])
    assert np.isfinite(found["b"]).all() and found["b"][1] == 0
    logits = csv(tmp_path / "b.csv", "key,t-shirt,ankle boot\na,0.25,0.75\nb,0,1.1\n")
    assert recorded(logits, ["a"]) == {"a": [0.25, 0.75]}


ODD: dict[str, tuple[str | bytes, str]] = {
    "no image": ("label\nt-shirt\n", "has the columns 'label'; expected key"),
    "both": ("key,row,label\na,0,t-shirt\n", "expected key \\(or path or row\\)"),
    "no answer": ("key\na\n", "expected key \\(or path or row\\)"),
    "truth beside": ("key,label,shift\na,t-shirt,base\n", "remove the label: it may be the true one"),
    "two answers": ("key,label,class_id\na,t-shirt,00\n", "expected key \\(or path or row\\)"),
    "template": ("key,path,label,class\na,x.jpg,0,t-shirt\n", "remove the label: it may be the true one"),
    "class": ("key,class\na,t-shirt\n", "column 'class' among its scores"),
    "index": (",key,t-shirt,ankle boot\n0,a,1,2\n", "column '' among its scores"),
    "confidence": ("key,t-shirt,ankle boot,confidence\na,1,2,9\n", "'confidence' among its scores"),
    "twice": ("key,t-shirt,t-shirt\na,1,2\n", "'t-shirt' more than once"),
    "text": ("key,t-shirt,ankle boot\na,high,2\n", "cannot be read"),
    "no number": ("key,t-shirt,ankle boot\na,nan,2\n", "a score that is not a number for 'a'"),
    "endless": ("key,t-shirt,ankle boot\na,inf,2\n", "a score that is not a number for 'a'"),
    "half empty": ("key,t-shirt,ankle boot\na,,2\n", "a score that is not a number for 'a'"),
    "no key": ("key,label\n,t-shirt\n", "rows without a key"),
    "row": ("row,label\n7,t-shirt\n", "has row 7, and there are 1 images"),
    "row before": ("row,label\n-1,t-shirt\n", "has row -1"),
    "row of text": ("row,label\nfirst,t-shirt\n", "cannot be read"),
    "other columns": ("key,label\na,t-shirt,3\n", "cannot be read"),
    "nothing": ("", "cannot be read"),
    "bytes": (b"key,label\n\xff\xfe,\x00\n", "cannot be read"),
}


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
        ("pipe.csv", "is a pipe"), ("folder.parquet", "is a folder"), ("cut.parquet", "cannot be read"),
        ("model.pkl", "expected .parquet or .csv"), ("none.csv", "there is no file"),
    ):  # fmt: skip
        with pytest.raises(CounterfoilError, match=says):
            describe_classifier(f"predictions:{tmp_path / file}", CLASSES)


def test_columns_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'label' is int64, expected text"):
        describe_classifier(parquet(tmp_path / "a.parquet", key=["a"], label=[0]), CLASSES)
    scores = {"t-shirt": [1.0], "ankle boot": [[2.0]]}
    with pytest.raises(UserError, match=r"'ankle boot' is list<.*expected numbers"):
        recorded(parquet(tmp_path / "b.parquet", key=["a"], **scores), ["a"])
    coded = parquet(tmp_path / "c.parquet", key=["a"], label=pa.array(["t-shirt"]).dictionary_encode())
    assert recorded(coded, ["a"])


def test_sizes_are_bounded_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = parquet(tmp_path / "small.parquet", key=[f"k{i}" for i in range(5000)], label=["t-shirt"] * 5000)
    monkeypatch.setattr(of_predictions, "_MOST_UNFOLDED", 4000)
    with pytest.raises(UserError, match="uncompressed bytes"):
        describe_classifier(small, CLASSES)
    monkeypatch.setattr(of_predictions, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="expected at most 1,000"):
        describe_classifier(small, CLASSES)


def test_two_classes_of_one_name_need_ids(tmp_path: Path) -> None:
    cranes = [RecipeClass("n1", "crane", 0, 0, ()), RecipeClass("n2", "crane", 1, 1, ())]
    with pytest.raises(UserError, match="two classes of the dataset have the same name"):
        describe_classifier(csv(tmp_path / "a.csv", "key,label\na,crane\n"), cranes)
    assert describe_classifier(csv(tmp_path / "b.csv", "key,class_id\na,n2\n"), cranes).num_classes == 3


def test_it_scores_no_image_that_it_has_not_seen(tmp_path: Path) -> None:
    classifier = load_classifier(csv(tmp_path / "a.csv", "key,label\na,t-shirt\n"), classes=CLASSES)
    with pytest.raises(UserError, match="cannot score images that it has not seen"):
        classifier.transform()
