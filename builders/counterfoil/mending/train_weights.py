"""Weights of training rows, as `mine --weights` writes them: by the number of a row in its split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.regular_files import named_path

_COLUMNS = ("row", "weight")
_NEXT = "Write them by: counterfoil mine RECIPE --weights --out mined"


def read_train_weights(name: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """(n,) the weight of each of n rows of the train split. UserError for what is no such file, or a row it has not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = named_path(name)
    if not path.is_file():
        raise UserError(f"--with {name}: there is no such file", _NEXT)
    try:
        table = pq.read_table(path, columns=list(_COLUMNS))
        numbers = table["row"].to_numpy().astype(np.int64)
        weights = table["weight"].to_numpy(zero_copy_only=False).astype(np.float64)
    except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise UserError(
            f"--with {name}: expected a Parquet with the columns row and weight ({type(error).__name__})", _NEXT
        ) from error
    wrong = int((~np.isfinite(weights) | (weights < 0)).sum())
    if wrong:
        raise UserError(f"--with {name}: {wrong:,} weights are negative or no numbers", _NEXT)
    known = dict(zip(numbers.tolist(), weights.tolist(), strict=True))
    missing = [row for row in rows.tolist() if row not in known]
    if missing:
        raise UserError(
            f"--with {name}: {len(missing):,} of {len(rows):,} training rows have no weight, such as row {missing[0]}",
            "Is it of another recipe's train split?",
        )
    found = np.asarray([known[row] for row in rows.tolist()])
    if not (found > 1).any():
        raise UserError(
            f"--with {name}: not one of {len(rows):,} training rows weighs more than 1", "Name another file."
        )
    return found
