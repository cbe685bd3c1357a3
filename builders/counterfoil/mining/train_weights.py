"""Weights of the train split's rows: more where the direction of a row's class calls it hard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding import Embedder
from counterfoil.errors import UserError
from counterfoil.mining.audited import features_of
from counterfoil.mining.binary import row_labels
from counterfoil.mining.findings import Findings
from counterfoil.mining.findings_layer import origin_of
from counterfoil.mining.interventions import hard_weights, write_weights
from counterfoil.mining.method import Found
from counterfoil.mining.opened_images import train_rows
from counterfoil.mining.pools import decided
from counterfoil.recipe import Recipe
from counterfoil.sources.open_source import open_source


@dataclass(frozen=True, slots=True)
class TrainWeights:
    """n rows of the train split by key, and their weights (n,): one column, or one a condition.

    content: of the train split.
    """

    keys: tuple[str, ...]
    columns: dict[str, NDArray[np.float64]]
    content: str

    def write(self, path: Path, findings: Findings) -> None:
        """As a Parquet by row, with what it was mined on. Raises as `write_atomically`."""
        rows = np.asarray([int(key.rpartition("_")[2]) for key in self.keys], dtype=np.int64)
        origin = {"train_content": self.content, "mined": origin_of(findings)}
        write_weights(path, self.keys, rows, self.columns, origin)


def need_train_split(recipe: Recipe) -> None:
    """UserError for a source without the split that weights are of."""
    splits = open_source(recipe.source).splits
    if recipe.source.train_split not in splits:
        raise UserError(
            f"--weights: '{recipe.source.dataset}' has no split '{recipe.source.train_split}', whose rows have weights",
            f"Its splits are {', '.join(splits) or 'not named'}; set source.train_split.",
        )


def weigh_train_rows(recipe: Recipe, found: Found, embedder: Embedder) -> TrainWeights:
    """Weights of every row of the train split: 1 where its class has no direction, or nobody can decode it."""
    images, has = train_rows(recipe)
    features = features_of(images, embedder)
    every = np.arange(len(images))
    if has is None:
        return TrainWeights(
            images.keys, {"weight": hard_weights(decided(features, every, images.labels, found))}, images.content
        )
    rows, labels = row_labels(has.present)
    decisions = decided(features, rows, labels, found).reshape(has.present.shape)
    return TrainWeights(images.keys, dict(zip(has.names, hard_weights(decisions).T, strict=True)), images.content)
