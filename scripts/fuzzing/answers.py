"""The kind of cases about files of answers: a classifier's, a detector's, and tables of keys, with
odd columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzzing.cases import NAME, Bench, Prepared, Step, command
from fuzzing.tables import odd_array, written
from fuzzing.templates import PARQUET
from fuzzing.trees import json_text
from fuzzing.values import NUMBERS, as_bytes, json_fragment, odd_value

Columns = dict[str, list[Any]]

_NAMES = ("t-shirt", "bag")
_BOX = ("x", "y", "width", "height")


def answers(bench: Bench) -> Prepared:
    """Write a sound file of answers, change some columns or bytes, and read it as its command
    does."""
    chance = bench.chance
    kind = chance.choice(("classes", "scores", "boxes", "boxes", "keys"))
    directory = bench.copy(PARQUET)
    columns = _sound(kind, _keys(directory), chance.random() < 0.5)
    ending = chance.choice(
        (".parquet", ".parquet", ".csv", ".json" if kind == "boxes" else ".parquet")
    )
    bench.tell(f"{kind}{ending}")
    content = _WRITTEN[ending](columns, bench)
    if chance.random() < 0.2:
        content = bench.damage(content, b"key,label\na,b\n")
    name = f"answers{ending}"
    bench.write(name, content)
    path = bench.folder / name
    if kind == "boxes":
        return bench.prepared(Step("boxes", function=lambda: _boxes(path)))
    if kind == "keys":
        return bench.prepared(Step("keys", function=lambda: _table_of_keys(path)))
    words = ("evaluate", NAME, "--models", f"predictions:./{name}", "--device", "cpu")
    return bench.prepared(command(*words))


def _keys(directory: Path) -> list[str]:
    import pyarrow.parquet as pq

    keys: list[str] = []
    for shard in sorted((directory / "data").rglob("*.parquet")):
        keys += pq.ParquetFile(shard).read(columns=["key"])["key"].to_pylist()
    return keys


def _sound(kind: str, keys: Sequence[str], other: bool) -> Columns:
    count = len(keys)
    labels = [_NAMES[row % 2] for row in range(count)]
    columns: Columns = {"key": [*keys]}
    if kind == "classes":
        columns |= {"class_id": ["00"] * count} if other else {"label": labels}
    elif kind == "scores":
        columns |= {name: [0.25 * (row % 3) for row in range(count)] for name in _NAMES}
    elif kind == "boxes":
        columns |= {"category": labels, "score": [0.5] * count}
        if other:
            columns |= {side: [1.0 + number] * count for number, side in enumerate(_BOX)}
        else:
            columns["bbox"] = [[1.0, 2.0, 3.0, 4.0] for _ in range(count)]
    else:
        columns |= {"group": labels} if other else {"weight": [1.5] * count}
    return columns


def odd_parquet(columns: Columns, bench: Bench) -> bytes:
    """Return these columns as Parquet, one or two of them, or one more, as few readers expect
    them."""
    import pyarrow as pa

    arrays = {name: pa.array(values) for name, values in columns.items()}
    for name in bench.chance.choices([*columns, "notes"], k=bench.chance.choice((1, 1, 2))):
        what, arrays[name] = odd_array(bench.chance, len(next(iter(columns.values()))))
        bench.tell(f"{name} ← {what}")
    return written(pa.table(arrays), bench)


def csv_bytes(columns: Columns, bench: Bench) -> bytes:
    """Return these columns as CSV with an odd value in some cells."""
    rows = rows_of(columns)
    change_cells(rows, bench)
    text = io.StringIO()
    delimiter = bench.chance.choice((",", ",", ";", "\t"))
    csv.writer(text, delimiter=delimiter).writerows([list(columns), *rows])
    return as_bytes(text.getvalue())


def _json(columns: Columns, bench: Bench) -> bytes:
    rows = rows_of(columns)
    if bench.chance.random() < 0.5:
        change_cells(rows, bench)
    tree: Any = [dict(zip(columns, row, strict=True)) for row in rows]
    if bench.chance.random() < 0.6:
        tree = bench.mutate(tree, json_fragment, 1, 2)
    return as_bytes(json_text(tree))


def rows_of(columns: Columns) -> list[list[Any]]:
    return [list(row) for row in zip(*columns.values(), strict=True)]


_WRITTEN: dict[str, Callable[[Columns, Bench], bytes]] = {
    ".parquet": odd_parquet,
    ".csv": csv_bytes,
    ".json": _json,
}


def change_cells(rows: list[list[Any]], bench: Bench) -> None:
    """Put an odd value into one column: its first cell, or all."""
    chance = bench.chance
    column = chance.randrange(len(rows[0]))
    value = chance.choice((chance.choice(NUMBERS), odd_value(chance)))
    bench.tell(f"column {column} ← {str(value)[:50]!r}")
    for row in rows if chance.random() < 0.4 else rows[:1]:
        row[column] = value


def _boxes(path: Path) -> None:
    from counterfoil.evaluation.tasks.objects.detections import _box, _entries

    for entry in _entries(path, path.read_bytes(), "predictions:answers"):
        json.dumps(_box(entry), allow_nan=False)


def _table_of_keys(path: Path) -> None:
    from counterfoil.mending.given import _table, read_key_table

    if path.suffix == ".parquet":
        read_key_table(path, "weights", {"key": str, "weight": float})
    _table(str(path))
