"""Kept answers: found by their key, in one form for every kind of answer; what is damaged or
foreign is not read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.evaluation.tasks.objects.detections import are_detections
from counterfoil.models.classifiers import load_classifier
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import MappedClassifier, Predictions

EVERY_KIND: Columns = {
    "share": np.array([[0.1, np.nan], [-0.0, np.inf], [1e-45, 0.3]], np.float32),
    "features": np.array([[1.5, np.nan], [-0.0, 6e-8], [65504, 1]], np.float16),
    "logits": np.array([[-np.inf, 1 / 3], [2.0, -1.0], [0.0, 1e300]]),
    "answer": np.array([3, -1, 2], np.int32),
    "row": np.array([0, 1 << 40, 2]),
    "hash": np.arange(6, dtype=np.uint8).reshape(3, 2),
    "right": np.array([True, False, True]),
    "caption": np.array([b"", b"a \xed\xa0\x80 bag", b"\0"], dtype=object),
}


def some(columns: Columns, rows: range) -> bool:
    return len(columns["row"]) == len(rows)


def test_answers_of_every_kind_are_read_as_they_were_to_the_bit(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, "a/model: of mine", "key" * 20, 3, some)
    assert cache.load() is None
    cache.save(EVERY_KIND)
    kept = cache.load()
    assert kept is not None and list(kept) == list(EVERY_KIND)
    for name, values in EVERY_KIND.items():
        assert (kept[name].dtype, kept[name].shape) == (values.dtype, values.shape)
        if values.dtype == object:
            assert kept[name].tolist() == values.tolist()
        else:
            assert kept[name].tobytes() == values.tobytes()
    none = {name: values[:0] for name, values in EVERY_KIND.items() if name != "caption"}
    empty = replace(cache, images=0)
    empty.save(none)
    again = empty.load()
    assert again is not None and [again[name].shape for name in none] == [
        values.shape for values in none.values()
    ]


def test_another_key_or_number_of_images_is_not_read(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, "kept", "0123456789abcdef, one", 3, some)
    cache.save(EVERY_KIND)
    other = replace(cache, key="0123456789abcdef, another")
    assert cache.load() is not None and other.path == cache.path
    assert replace(cache, images=4).load() is None and other.load() is None
    pq.write_table(pq.read_table(cache.path).replace_schema_metadata(None), cache.path)
    assert cache.load() is None


def test_parts_are_taken_up_to_the_first_gap_and_end_with_the_entry(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path, "kept", "key", 9, some)
    for start, stop in ((0, 2), (2, 3), (3, 6), (8, 9)):
        cache.save_part({"row": np.arange(start, stop)}, start, stop)
    folder = tmp_path / "kept-key.parts"
    (folder / "0000000000-9999999999.parquet").write_bytes(b"")
    (folder / "notes.parquet").mkdir()

    def taken(images: int = 9) -> tuple[list[int], int]:
        parts, done = replace(cache, images=images).load_parts()
        return [int(row) for part in parts for row in part["row"]], done

    assert taken() == (list(range(6)), 6)
    assert taken(5) == (list(range(3)), 3), "the answers to more images than there are"
    damaged = folder / "0000000002-0000000003.parquet"
    whole = damaged.read_bytes()
    for content in (b"", whole[:-20], whole[:20], whole.replace(b"row", b"raw"), b"PAR1" * 10):
        damaged.write_bytes(content)
        assert taken() == ([0, 1], 2)
    cache.save({"row": np.arange(9)})
    assert not folder.exists() and cache.load() is not None and taken() == ([], 0)


def images(content: str, number: int = 500) -> LabelledImages:
    zeros = np.zeros(number, dtype=np.int64)
    return LabelledImages(
        "some", content, tuple(map(str, zeros)), zeros, zeros, ("all",), lambda _: iter(())
    )


def hostile(entry: AnswerCache, **columns: Any) -> None:
    """Change columns of an entry, as a stranger can who knows its key."""
    table = pq.read_table(entry.path)
    for name, values in columns.items():
        kept = table.drop_columns([name]) if name in table.column_names else table
        table = kept.append_column(name, values)
    pq.write_table(table, entry.path)


def repeated_text(rows: int, length: int) -> pa.Array:
    """Return much text that takes some kB in a file."""
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int32)), pa.array(["x" * length])
    )


def test_predictions_of_another_form_or_of_much_memory_are_not_read(
    tmp_path: Path, models: dict[str, str]
) -> None:
    class_map = ClassMap("source labels", 3, ((0,), (1,), (2,)))
    entry = MappedClassifier(load_classifier(models["sharp"]), class_map, "cpu").cache(
        tmp_path, images("content")
    )
    answers = Predictions.empty(500, 3).columns()
    others: dict[str, Any] = {
        "notes": repeated_text(500, 1 << 20),  # half a gigabyte
        "answers": pa.array([1] * 500),
        "readable": pa.array([True, None] * 250),
        "correct": pa.array([[True]] * 500),
        "shares": pa.array([bytes(12)] * 499 + [None], pa.binary(12)),
        "true_confidence": pa.array([{"a": 1}] * 500),
    }
    for name, values in others.items():
        entry.save(answers)
        assert entry.load() is not None
        hostile(entry, **{name: values})
        assert entry.load() is None, name
    for number_type in ("O", "i4,O", "<f8", "", "no type", "<f4\0", "(3,", "(2,)<f4"):
        entry.save(answers)
        table = pq.read_table(entry.path)
        pq.write_table(
            table.replace_schema_metadata({**table.schema.metadata, b"shares": number_type}),
            entry.path,
        )
        assert entry.load() is None, number_type


@pytest.mark.parametrize(
    "other",
    [
        {"row": pa.array([0, 7])},
        {"row": pa.array(["a", "b"])},
        {"label": pa.array([0.5, 1.0])},
        {"left": pa.array([np.nan, 1.0], pa.float32())},
        {"score": pa.array([None, 1.0], pa.float32())},
        {"top": pa.array([[1.0], [2.0]])},
        {"notes": None},
    ],
    ids=lambda other: next(iter(other)),
)
def test_damaged_answers_of_a_detector_are_not_read(tmp_path: Path, other: dict[str, Any]) -> None:
    entry = AnswerCache(tmp_path, "kept", "key", 2, are_detections)
    sides = dict.fromkeys(("left", "top", "right", "bottom", "score"), np.ones(2, np.float32))
    entry.save({"row": np.array([0, 1]), **sides, "label": np.array([3, 3])})
    assert entry.load() is not None
    if "notes" in other:
        other = {"notes": repeated_text(2, 1 << 28)}
    hostile(entry, **other)
    assert entry.load() is None


def test_a_key_is_of_everything_that_decides_answers(
    models: dict[str, str], tmp_path: Path
) -> None:
    assert len({answers_key("cpu", a=1), answers_key("cpu", a=2), answers_key("cuda:0", a=1)}) == 3
    assert answers_key("cuda:0", a=1) == answers_key("cuda:1", a=1)
    wide = ClassMap("names", 3, ((0,), (1,)))
    classifier = load_classifier(models["sharp"])
    entries = {
        MappedClassifier(classifier, class_map, "cpu", logits).cache(tmp_path, images(content)).key
        for content in "ab"
        for logits in (False, True)
        for class_map in (wide, wide.answered_both_ways("all"), wide.answered_both_ways("classes"))
    }
    assert len(entries) == 12
