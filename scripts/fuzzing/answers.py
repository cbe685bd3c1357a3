"""The kind of cases about files of answers: a classifier's, a detector's, and tables of keys, with
odd columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fuzzing.cases import Bench, Prepared, Step, command
from fuzzing.commands import NAME
from fuzzing.tables import odd_array, written
from fuzzing.templates import PARQUET, copied
from fuzzing.trees import json_text, mutated
from fuzzing.values import NUMBERS, damaged_bytes, json_fragment, odd_value

_NAMES = ("t-shirt", "bag")
_BOX = ("x", "y", "width", "height")


def answers(bench: Bench) -> Prepared:
    """Write a sound file of answers, change some columns or bytes, and read it as its command
    does."""
    chance = bench.chance
    kind = chance.choice(("classes", "scores", "boxes", "boxes", "keys"))
    directory = copied(bench.templates, PARQUET, bench.folder / NAME)
    columns = _sound(kind, _keys(directory), chance.random() < 0.5)
    ending = chance.choice(
        (".parquet", ".parquet", ".csv", ".json" if kind == "boxes" else ".parquet")
    )
    bench.tell(f"{kind}{ending}")
    content = _WRITTEN[ending](columns, bench)
    if chance.random() < 0.2:
        how, content = damaged_bytes(content, b"key,label\na,b\n", chance)
        bench.tell(how)
    path = bench.folder / f"answers{ending}"
    path.write_bytes(content)
    if kind == "boxes":
        return Prepared(bench.told, [Step("boxes", function=lambda: _boxes(path))])
    if kind == "keys":
        return Prepared(bench.told, [Step("keys", function=lambda: _table_of_keys(path))])
    return Prepared(
        bench.told,
        [command("evaluate", NAME, "--models", f"predictions:./{path.name}", "--device", "cpu")],
    )


def _keys(directory: Path) -> list[str]:
    import pyarrow.parquet as pq

    shards = sorted((directory / "data").rglob("*.parquet"))
    return [
        key
        for shard in shards
        for key in pq.ParquetFile(shard).read(columns=["key"])["key"].to_pylist()
    ]


def _sound(kind: str, keys: Sequence[str], other: bool) -> dict[str, list[Any]]:
    count = len(keys)
    labels = [_NAMES[row % 2] for row in range(count)]
    match kind:
        case "classes":
            return {
                "key": [*keys],
                "class_id" if other else "label": ["00"] * count if other else labels,
            }
        case "scores":
            return {
                "key": [*keys],
                **{name: [0.25 * (row % 3) for row in range(count)] for name in _NAMES},
            }
        case "boxes":
            box = {side: [1.0 + number] * count for number, side in enumerate(_BOX)}
            bbox = {"bbox": [[1.0, 2.0, 3.0, 4.0] for _ in range(count)]}
            return {
                "key": [*keys],
                "category": labels,
                "score": [0.5] * count,
                **(box if other else bbox),
            }
    return {"key": [*keys], "group" if other else "weight": labels if other else [1.5] * count}


def odd_parquet(columns: Mapping[str, list[Any]], bench: Bench) -> bytes:
    """Return these columns as Parquet, one or two of them, or one more, as few readers expect
    them."""
    import pyarrow as pa

    arrays = {name: pa.array(values) for name, values in columns.items()}
    for name in bench.chance.choices([*columns, "notes"], k=bench.chance.choice((1, 1, 2))):
        what, arrays[name] = odd_array(bench.chance, len(next(iter(columns.values()))))
        bench.tell(f"{name} ← {what}")
    return written(pa.table(arrays), bench)


def csv_bytes(columns: Mapping[str, list[Any]], bench: Bench) -> bytes:
    """Return these columns as CSV with an odd value in some cells."""
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    change_cells(rows, bench)
    text = io.StringIO()
    csv.writer(text, delimiter=bench.chance.choice((",", ",", ";", "\t"))).writerows(
        [list(columns), *rows]
    )
    return text.getvalue().encode("utf-8", "surrogatepass")


def _json(columns: Mapping[str, list[Any]], bench: Bench) -> bytes:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    if bench.chance.random() < 0.5:
        change_cells(rows, bench)
    tree: Any = [dict(zip(columns, row, strict=True)) for row in rows]
    if bench.chance.random() < 0.6:
        tree, changes = mutated(tree, bench.chance, json_fragment, bench.chance.choice((1, 2)))
        bench.tell(*changes)
    return json_text(tree, False).encode("utf-8", "surrogatepass")


_WRITTEN: dict[str, Callable[[Mapping[str, list[Any]], Bench], bytes]] = {
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
