"""Weights of training rows, as `mine --weights` writes them: by key, with what they came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.key_tables import read_key_table
from counterfoil.mining.interventions import ORIGIN
from counterfoil.regular_files import named_path
from counterfoil.sources import LabelledImages

_NEXT = "Write them by: counterfoil mine RECIPE --weights --out mined"


@dataclass(frozen=True)
class ReadWeights:
    """weights: (n,) of the n rows that were asked for. mined: one record of what they came from."""

    weights: NDArray[np.float64]
    mined: tuple[Mapping[str, Any], ...]


def read_train_weights(name: str, whole: LabelledImages, keys: Sequence[str]) -> ReadWeights:
    """The weights of some rows of the train split `whole`, by key.

    UserError for what is no such file, one of other rows than the split's, one that does not tell what it came from,
    and where no row weighs more than another.
    """
    path = named_path(name)
    if not path.is_file():
        raise UserError(f"--with {name}: there is no such file", _NEXT)
    table = read_key_table(path, f"--with {name}", {"key": str, "weight": float}, _NEXT)
    theirs, weights = table.columns["key"], np.asarray(table.columns["weight"], dtype=np.float64)
    try:
        told = json.loads(table.metadata.get(ORIGIN.encode(), b"null"))
    except (ValueError, RecursionError):
        told = None
    wrong = int((~np.isfinite(weights) | (weights < 0)).sum())
    if wrong:
        raise UserError(f"--with {name}: {wrong:,} weights are negative or no numbers", _NEXT)
    if not isinstance(told, dict) or not isinstance(told.get("mined"), dict):
        raise UserError(f"--with {name}: it does not tell which rows it was mined on, nor of which they are", _NEXT)
    if told.get("train_content") != whole.content or sorted(theirs) != sorted(whole.keys):
        raise UserError(
            f"--with {name}: its rows are not those of {whole.name}: it was written for another split, or under another"
            " list of classes",
            f"{_NEXT} by the recipe that is mended on.",
        )
    known = dict(zip(theirs, weights.tolist(), strict=True))
    found = np.asarray([known[key] for key in keys])
    if not (found > 1).any():
        raise UserError(
            f"--with {name}: not one of {len(keys):,} training rows weighs more than 1", "Name another file."
        )
    return ReadWeights(found, (told["mined"],))
