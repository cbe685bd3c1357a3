"""Tables of strangers are measured before a library without bounds reads them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.data.table_sizes import _bytes_of, refuse_vast
from counterfoil.errors import UserError
from counterfoil.foreign_tables import SPARE
from support.images import encoded
from support.limited import OPENING, limited

MOST = 300_000_000  # bytes that a refusal may take, with the libraries that it imports
ROWS = 10_000


def stream(table: pa.Table, times: int = 1, compression: str | None = None) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_stream(
        file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        for _ in range(times):
            writer.write_table(table)
    return file.getvalue()


def parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def repeated(text: str, rows: int = ROWS) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def saved(folder: Path) -> None:
    """Write a saved dataset with other rows than it says, which take a gigabyte."""
    datasets.Dataset.from_dict({"image": [None], "label": ["mug"]}).save_to_disk(str(folder))
    rows = pa.table({"image": pa.nulls(1), "label": [" " * (1 << 26)]})
    (folder / "data-00000-of-00001.arrow").write_bytes(stream(rows, 16, "zstd"))


def written(name: str, content: bytes | Callable[[], bytes]) -> Callable[[Path], None]:
    """Return a function that writes a table, beside an image that it names."""

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / name).write_bytes(content if isinstance(content, bytes) else content())
        if name.startswith("metadata"):
            (folder / "0.png").write_bytes(encoded(0))

    return write


def tar(member: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(member))
    return file.getvalue()


def texts() -> bytes:
    """Return a table with a text of a megabyte in every row."""
    notes = repeated("x" * (1 << 20))
    return parquet(
        pa.table(
            {
                "file_name": repeated("0.png"),
                "image": pa.nulls(ROWS),
                "notes": notes,
            }
        )
    )


KEYS = b"".join(b'{"file_name":"0.png","k%d":%d}\n' % (row, row) for row in range(ROWS))
DEEP = b'{"file_name":"0.png","label":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
WIDE = (
    b"file_name,"
    + b",".join(b"c%d" % column for column in range(9_000))
    + b"\n"
    + b"0.png\n" * ROWS
)
BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a text in every row": (
        written("train.parquet", texts),
        r"train\.parquet: takes over .* bytes of memory",
    ),
    "a key in every line": (written("train.jsonl", KEYS), "has 10,001 columns"),
    "lists in lists": (written("train.jsonl", DEEP), "nested too deeply"),
    "a header of many columns": (written("train.csv", WIDE), "too much memory for its size"),
    "compressed rows of a saved dataset": (saved, "has compressed values or dictionaries"),
    "texts about images": (written("metadata.parquet", texts), r"metadata\.parquet: takes over"),
    "a key in every line about images": (written("metadata.jsonl", KEYS), "has 10,001 columns"),
    "lists in lists about an image": (written("metadata.jsonl", DEEP), "nested too deeply"),
    "many columns about images": (written("metadata.csv", WIDE), "too much memory for its size"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_that_takes_much_memory_is_refused_in_words(case: str, tmp_path: Path) -> None:
    """Open it with little memory. Each file has less than 400 kB. Read, it takes a gigabyte or ends
    the process."""
    make, says = BOMBS[case]
    make(tmp_path / "bomb")
    assert sum(file.stat().st_size for file in (tmp_path / "bomb").iterdir()) < 400_000
    written("train.csv", b"image,label\n,mug\n")(tmp_path / "first")
    answers = limited(OPENING, [[str(tmp_path / name), None] for name in ("first", "bomb")], MOST)
    assert len(answers) == 1 and re.match(f"UserError: .*{says}", answers[0]), answers


SOUND = {
    # The largest image has 500 times the bytes of the others.
    "a large image": pa.table(
        {"image": [bytes([row % 250]) * (10 << 20 if row == 9 else 20_000) for row in range(200)]}
    ),
    "plain": pa.table(
        {"text": ["a", "b"] * 50, "number": [1, None] * 50, "list": [[1.5], None] * 50}
    ),
    "images": pa.table(
        {"image": [{"bytes": bytes(range(250)) * 40, "path": f"{row}.png"} for row in range(100)]}
    ),
    "fixed lists": pa.table(
        {"box": pa.array([[1.0, 2.0, 3.0, 4.0], None] * 500, pa.list_(pa.float32(), 4))}
    ),
    "nested": pa.table({"objects": [{"bbox": [[1.0, 2.0]], "tags": ["a", "b"]}, None] * 50}),
    "map": pa.table({"map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))}),
    "dictionary": pa.table({"class": pa.array(["mug", None, "star"] * 50).dictionary_encode()}),
    "empty": pa.table({"text": pa.array([], pa.string())}),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_table_takes_at_most_what_is_measured(case: str, tmp_path: Path) -> None:
    table = SOUND[case]
    for options in ({}, {"row_group_size": 7, "compression": "zstd"}, {"use_dictionary": False}):
        content = parquet(table, **options)
        most = SPARE + 16 * len(content)
        assert pq.read_table(io.BytesIO(content)).nbytes <= _bytes_of(
            io.BytesIO(content), ".parquet", None, most
        )
    if case != "dictionary":  # `datasets` writes none into its own files
        (tmp_path / "rows.arrow").write_bytes(stream(table))
        with (tmp_path / "rows.arrow").open("rb") as file:
            assert table.nbytes <= _bytes_of(file, ".arrow", None, SPARE)
    if "image" not in table.column_names:
        lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
        assert len(table) * table.num_columns <= _bytes_of(
            io.BytesIO(lines.encode()), ".jsonl", None, SPARE
        )


@pytest.mark.parametrize(
    ("ending", "content", "says"),
    [
        (".jsonl", b'{"a": "b\n"}', "a text does not end on its line"),
        (".json", b"[" + b'{"a":\n' * 200 + b"}" * 200 + b"]", "nested too deeply"),
        (".csv", b"\x1f\x8b\x08", "is compressed"),
        (".csv", b"," * 20_000, "has 20,001 columns"),
        (".parquet", b"PAR1", "is no Parquet file"),
        (".tar", tar("a.npz"), "has the member 'a.npz', which would be unpacked"),
        (".tar", b"\x1f\x8b\x08", "cannot be read"),
        (".png", parquet(pa.table({"a": pa.nulls(100_000_000)})), "takes over"),
    ],
)
def test_what_no_reader_should_be_given_is_refused(
    ending: str, content: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / f"rows{ending}").write_bytes(content)
    with pytest.raises(UserError, match=f"given: rows{ending}: .*{says}"):
        refuse_vast([tmp_path / f"rows{ending}"], "given")


def test_texts_are_no_keys_and_no_lists() -> None:
    """Brackets and colons in texts, and quotes in them, count for nothing."""
    line = {"caption": '[[{"a": 1, \\', "b": '": {', "c": "\\\\", "d": '\\"]: [' * 50}
    content = "".join(f"{json.dumps(line)}\n" for _ in range(100)).encode()
    assert _bytes_of(io.BytesIO(content), ".jsonl", None, SPARE) == 100 * 4 * 8


def test_small_files_share_what_any_table_may_take(tmp_path: Path) -> None:
    content = parquet(pa.table({"text": repeated("x" * 10_000)}))
    files = [tmp_path / f"{number}.parquet" for number in range(3)]
    for file in files:
        file.write_bytes(content)
    refuse_vast(files[:2], "given")
    with pytest.raises(UserError, match=r"given: 2\.parquet: takes over"):
        refuse_vast(files, "given")


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_any_damage_of_a_file_is_an_error_for_people(ending: str, tmp_path: Path) -> None:
    """Change bytes of a small file. It is measured, or refused in words."""
    table = SOUND["nested"].slice(0, 4)
    whole = parquet(table) if ending == ".parquet" else stream(table)
    for position in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[position] ^= 0x5A
        (tmp_path / f"rows{ending}").write_bytes(damaged)
        with contextlib.suppress(UserError):
            refuse_vast([tmp_path / f"rows{ending}"], "given")
