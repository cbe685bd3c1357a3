"""The images that models get wrong as a table for pandas, read from what an evaluation wrote of every answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.names import did_you_mean

# What a table of an earlier version may lack.
_LATER = ("path", "class")
_COLUMNS = ("model", "key", "path", "label", "class", "answered", "confidence", "shift")


def failures_frame(predictions: Path, models: Sequence[str], model: str | None = None) -> Any:
    """A row an image and model that is wrong about it, the surest first. See `Evaluation.failures`."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet as pq

    if model is not None and model not in models:
        raise UserError(
            f"model {model!r} was not scored{did_you_mean(model, models)}", f"These were: {', '.join(models)}."
        )
    functions: Any = pyarrow.compute
    try:
        file = pq.ParquetFile(predictions)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{predictions} cannot be read: {error}", "Evaluate again: it holds every answer.") from error
    there = file.schema_arrow.names
    tables = []
    with file:
        for name in [model] if model is not None else models:
            own = {f"{column}.{name}": column for column in ("answered", "confidence", "right")}
            known = ("key", "label", "shift", *_LATER)
            table = file.read(columns=[column for column in (*known, *own) if column in there])
            wrong = table.filter(functions.invert(table[f"right.{name}"]))
            wrong = wrong.rename_columns([own.get(column, column) for column in wrong.column_names])
            tables.append(wrong.append_column("model", pa.array([name] * wrong.num_rows, pa.string())))
    found = pa.concat_tables(tables).to_pandas().reindex(columns=list(_COLUMNS)).astype({"path": object})
    found["path"] = found["path"].where(found["path"].notna(), None)
    return found.sort_values("confidence", ascending=False, kind="stable", ignore_index=True)
