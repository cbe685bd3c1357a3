"""The answers of an earlier evaluation of the same images, so that a gate compares a model with what a file remembers.

`results.json` says which images and models were evaluated; `predictions.parquet` beside it says which image each model
got right. Both are checked against the images at hand: comparisons are paired by image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.recipe.names import PREDICTIONS
from counterfoil.regular_files import named_path, open_regular, read_regular
from counterfoil.report.results import results_from
from counterfoil.report.words import listed

_MOST_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class StoredAnswers:
    """A model of an earlier evaluation. name: file and model, for people. right, unreadable: (images,) each."""

    name: str
    right: NDArray[np.bool_]
    unreadable: NDArray[np.bool_]
    near_chance: bool
    sha256: str


def is_stored(name: str) -> bool:
    """Return whether what a line compares with is an earlier evaluation rather than a model."""
    return name.endswith(".json") and not name.startswith(PREDICTIONS)


def read_stored(files: Iterable[str], models: Sequence[str], subject: Subject) -> dict[tuple[str, str], StoredAnswers]:
    """Read, for each file and judged model, the answers of the model of that name, or of the file's only model.

    UserError with every file that cannot be read, is of other images, or leaves open which model is meant.
    """
    problems, stored = [], {}
    for file in dict.fromkeys(files):
        try:
            stored |= {(file, model): answers for model, answers in _read(file, models, subject).items()}
        except UserError as error:
            problems += [f"gate: {problem}" for problem in error.problems]
    if problems:
        raise UserError(
            problems,
            "A line compares with results.json of an earlier evaluation of the same images, and with the"
            " predictions.parquet that was written beside it.",
        )
    return stored


def _read(file: str, models: Sequence[str], subject: Subject) -> dict[str, StoredAnswers]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = named_path(file)
    try:
        results = results_from(read_regular(path, _MOST_BYTES), file)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    if results.content != subject.content:
        raise UserError(
            f"{file}: is of other images ({results.dataset}, content {results.content[:12]}), expected those of"
            f" {subject.name} ({subject.content[:12]})"
        )
    facts = {model_facts.name: model_facts for model_facts in results.models}
    meant = {model: model if model in facts else next(iter(facts), "") for model in models}
    if len(facts) != 1 and (unknown := [model for model in models if model not in facts]):
        raise UserError(f"{file}: has {listed(list(facts)) or 'no model'}, and no model {unknown[0]!r}")
    table_path = path.with_name("predictions.parquet")
    columns = ["key", *(f"right.{name}" for name in dict.fromkeys(meant.values()))]
    try:
        with open_regular(table_path) as handle, pq.ParquetFile(handle) as table:
            if table.metadata.num_rows != len(subject.keys):
                raise UserError(f"{table_path}: has {table.metadata.num_rows:,} rows, expected {len(subject.keys):,}")
            if lacking := [column for column in columns if column not in table.schema_arrow.names]:
                raise UserError(f"{table_path}: has no column {lacking[0]!r}")
            answers = table.read(columns=columns)
        right = {name: answers[name].cast(pa.bool_()) for name in columns[1:]}
    except OSError as error:
        raise UserError(f"{table_path}: cannot be read: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise UserError(f"{table_path}: is not a table of predictions: {error}") from error
    if answers["key"].to_pylist() != list(subject.keys):
        raise UserError(f"{table_path}: its keys are not those of {subject.name}")
    return {
        model: StoredAnswers(
            name=file if len(facts) == 1 else f"{file} ({name})",
            right=np.array(right[f"right.{name}"].fill_null(False)),
            unreadable=np.array(right[f"right.{name}"].is_null()),
            near_chance=facts[name].near_chance,
            sha256=facts[name].sha256,
        )
        for model, name in meant.items()
    }
