"""mended.json, which a stranger may have written: what is written is read back, and nothing else is
believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.errors import UserError
from counterfoil.models.mended import (
    MENDED,
    MOST_BYTES,
    EditsOf,
    MendedModelName,
    MendedNote,
    MendedOn,
    MendedWith,
    mended_of,
    read_mended,
)

HASHES = tuple(character * 64 for character in "abcd")
NOTE = MendedNote(
    format=1,
    model=MendedModelName("lab:resnet10t", HASHES[0]),
    on=(MendedOn("lab:wardrobe:train", HASHES[1]),),
    train_content=(HASHES[2],),
    datasets=(
        MendedWith("mined-built", HASHES[3], "contexts", 7, "mined"),
        MendedWith("x", HASHES[0], None, None, None),
        MendedWith(
            "edits", HASHES[1], None, None, "edits", EditsOf(HASHES[2], "validation", (3, 41))
        ),
    ),
    lam=0.5,
    fit="lbfgs",
    weight_decay=5e-4,
    rows={"": 300},
)


def written(folder: Path, document: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / MENDED).write_text(document if isinstance(document, str) else json.dumps(document))
    return folder


@pytest.mark.parametrize(
    ("rows", "lam"), [({"": 300}, 0.5), ({"train": 300, "debug": 40}, 0.0), ({"discover": 9}, None)]
)
def test_what_is_written_is_read_back(
    tmp_path: Path, rows: dict[str, int], lam: float | None
) -> None:
    note = replace(NOTE, rows=rows, lam=lam)
    assert read_mended(written(tmp_path, note.to_json()), "m") == note


def test_the_content_of_a_whole_set_stands_for_itself(tmp_path: Path) -> None:
    document = NOTE.to_json() | {"train_content": HASHES[2]}
    assert read_mended(written(tmp_path, document), "m") == NOTE


def test_a_model_that_is_not_mended_says_nothing(tmp_path: Path) -> None:
    assert read_mended(tmp_path, "m") is None
    assert mended_of("lab:resnet10t") is None
    assert mended_of("resnet18.a1_in1k") is None
    assert mended_of("predictions:answers.csv") is None


EDITS = {"pool": HASHES[2], "split": "validation", "rows": [3]}


def with_edits(document: dict[str, Any], edits: Any) -> dict[str, Any]:
    *others, last = document["datasets"]
    return document | {"datasets": [*others, last | {"edits": edits}]}


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an unknown key": (lambda doc: doc | {"also": 1}, "also: is not a key"),
    "a key less": (
        lambda doc: {key: value for key, value in doc.items() if key != "on"},
        "on: is missing",
    ),
    "a later format": (lambda doc: doc | {"format": 2}, "format: Input should be .* found 2"),
    "a model as a text": (
        lambda doc: doc | {"model": "lab:resnet10t"},
        "model: Input should be an object",
    ),
    "a short hash": (lambda doc: doc | {"train_content": ["abc"]}, "train_content.0: String"),
    "too many hashes": (lambda doc: doc | {"train_content": [""] * 200_001}, "at most 200,000"),
    "a name of two lines": (
        lambda doc: doc | {"on": [{"name": "a\nb", "content": HASHES[0]}]},
        "on.0.name: expected",
    ),
    "a seed that no recipe has": (
        lambda doc: doc | {"datasets": [doc["datasets"][0] | {"seed": 2**60}]},
        r"datasets\.0\.seed",
    ),
    "a pool by its name": (
        lambda doc: with_edits(doc, EDITS | {"pool": "photos"}),
        "pool: .* found 'photos'",
    ),
    "a row below 0": (
        lambda doc: with_edits(doc, EDITS | {"rows": [1, -1]}),
        r"edits.rows.1: .* found -1",
    ),
    "too many rows": (
        lambda doc: with_edits(doc, EDITS | {"rows": [0] * 200_001}),
        "at most 200,000",
    ),
    "another fit": (
        lambda doc: doc | {"fit": "adam"},
        "fit: Input should be 'lbfgs', 'sgd' or 'network', found 'adam'",
    ),
    "a negative λ": (lambda doc: doc | {"lambda": -1}, "lambda: .* found -1"),
    "no weight decay": (lambda doc: doc | {"weight_decay": None}, "weight_decay: .* found null"),
    "rows of no kind": (lambda doc: doc | {"rows": {}}, "rows: "),
    "a key that is long": (lambda doc: doc | {"\x1b" * 9_000: 1}, "is not a key"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_understood_is_reported(tmp_path: Path, change: str) -> None:
    make, words = CHANGES[change]
    with pytest.raises(UserError, match=words) as caught:
        read_mended(written(tmp_path, make(NOTE.to_json())), "mine")
    assert all("model 'mine'" in line for line in caught.value.problems)
    assert all(line.isprintable() and len(line) < 400 for line in caught.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"format": 1, "format": 1}',
        json.dumps(NOTE.to_json()).replace("0.5", "NaN", 1),
        json.dumps(NOTE.to_json()).replace("300", "9" * 5000),
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
    ids=["cut", "deep", "twice", "NaN", "endless", "half"],
)
def test_a_file_that_is_no_such_document(tmp_path: Path, text: str) -> None:
    (tmp_path / MENDED).write_bytes(
        text.encode("latin-1") if text.startswith("í") else text.encode()
    )
    with pytest.raises(UserError, match=MENDED):
        read_mended(tmp_path, "m")


def test_only_a_regular_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    large, pipe, link = (tmp_path / name for name in ("large", "pipe", "link"))
    for folder in (large, pipe, link):
        folder.mkdir()
    with (large / MENDED).open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    os.mkfifo(pipe / MENDED)
    (link / MENDED).symlink_to(tmp_path / "nowhere")
    for folder in (large, pipe, link):
        with pytest.raises(UserError, match=MENDED):
            read_mended(folder, "m")


def test_many_keys_are_looked_at_once(tmp_path: Path) -> None:
    """Counting each key anew would take minutes with 40,000 keys."""
    keys = ",".join(f'"{index}":0' for index in range(40_000))
    (tmp_path / MENDED).write_text(f'{{{keys},"last":0,"last":0}}')
    with pytest.raises(UserError, match="'last' appears more than once"):
        read_mended(tmp_path, "m")
