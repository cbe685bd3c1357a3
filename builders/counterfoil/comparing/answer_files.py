"""Read a file of one model's answers that any program may have made: its images, and what each
answer is worth.

The columns are found by the names that programs give them: those of Inspect AI's `samples_df`, of
lm-evaluation-harness's samples, and common ones. The file is not trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import UserError, some_of
from counterfoil.models.answer_tables import AnswerTable, columns_called, open_table
from counterfoil.regular_files import named_path
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.comparing.options import CompareOptions

KEYS = ("key", "image_id", "image", "file_name", "filename", "path", "id", "doc_id")
SCORES = ("correct", "is_correct", "right", "score", "acc", "exact_match")
# samples_df of Inspect names a column after each scorer.
_SCORE_OF_SCORER = "score_"
PREDICTIONS = ("prediction", "predicted", "pred")
LABELS = ("label", "target", "truth")
UNIT = "unit"
EPOCH = "epoch"
# lm-evaluation-harness hashes the question.
_QUESTION = "doc_hash"
_WORTH = {
    **dict.fromkeys(("true", "yes", "c", "correct"), 1.0),
    **dict.fromkeys(("false", "no", "i", "n", "incorrect"), 0.0),
    # How Inspect's `value_to_float` counts partly correct answers.
    "p": 0.5,
}
_MOST_ROWS = 5_000_000
_LONGEST_SHOWN = 60

# The texts of the key columns.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """The columns that are read of a file."""

    key: tuple[str, ...]
    score: str | None
    prediction: str | None
    label: str | None
    unit: str | None
    epoch: str | None
    question: str | None

    @property
    def worth(self) -> str:
        """The column of the scores, or the two that are compared."""
        return self.score or f"{self.prediction} = {self.label}"


@dataclass(frozen=True)
class FileAnswers:
    """One model's answers in a file."""

    path: Path
    columns: AnswerColumns
    scores: Mapping[Key, float]
    """The score of each image's answer; the mean over its epochs."""
    units: Mapping[Key, str]
    """The unit of each image, if the file has them."""
    facts: Mapping[str, Mapping[Key, str]]
    """The label and the question of each image, if the file has them."""
    averaged: int
    """The number of images with several answers."""
    unscored: int
    """The number of rows without a score."""


def read_answer_file(options: CompareOptions, *, second: bool = False) -> FileAnswers:
    """Read one of the two files. Raise UserError for missing columns, for scores that are no
    numbers, and for two answers to one image."""
    path = named_path(options.second if second else options.first)
    known = [*(options.key or KEYS), *options.score]
    table = open_table(path, "compare", known)
    columns = _find_columns(table, options, second)
    scores: dict[Key, list[float]] = {}
    seen: set[tuple[Key, str]] = set()
    units: dict[Key, str] = {}
    facts: dict[str, dict[Key, str]] = {}
    spelt = _Spellings({}, {}, {})
    unscored = 0
    repeated: dict[str, None] = {}
    changing: dict[str, None] = {}
    for row in _rows(table, columns, options.where or {}):
        key = tuple(row[column] or "" for column in columns.key)
        answer = key, (row[columns.epoch] or "" if columns.epoch else "")
        if answer in seen:
            repeated[", ".join(key)] = None
            continue
        seen.add(answer)
        for name, column, known_facts in (
            ("unit", columns.unit, units),
            ("label", columns.label, facts.setdefault("label", {})),
            ("question", columns.question, facts.setdefault("question", {})),
        ):
            text = row[column] if column else None
            if text is not None and known_facts.setdefault(key, text) != text:
                changing[f"{', '.join(key)} ({name})"] = None
        worth = spelt.worth(row, columns) if columns.score is None else _worth(row, columns, path)
        if worth is None:
            unscored += 1
        else:
            scores.setdefault(key, []).append(worth)
    problems = []
    if repeated:
        count = format_count(len(repeated), "image")
        problems.append(
            f"{path}: {count} have several answers, such as {some_of([*repeated], 3)}:"
            " name more columns with --key, choose rows with --where COLUMN=VALUE, or name the"
            " column of repetitions with --epoch"
        )
    if changing:
        problems.append(f"{path}: an image has several values: {some_of([*changing], 3)}")
    problems += [f"{path}: {problem}" for problem in spelt.problems()]
    if not scores and not problems:
        problems.append(f"{path}: no row has a score in {columns.worth}")
    if problems:
        raise UserError(problems)
    means = {}
    for key, values in scores.items():
        means[key] = math.fsum(values) / len(values)
    averaged = sum(len(values) > 1 for values in scores.values())
    return FileAnswers(path, columns, means, units, facts, averaged, unscored)


def _find_columns(table: AnswerTable, options: CompareOptions, second: bool) -> AnswerColumns:
    problems = []

    def named(flag: str, name: str) -> str:
        if name not in table.columns:
            problems.append(
                f"{table.path} has no column '{name}' ({flag}): it has {some_of(table.columns, 12)}"
            )
        return name

    def called(flag: str, name: str | None, known: Sequence[str]) -> str | None:
        if name is not None:
            return named(flag, name)
        by_name = columns_called(known, table.columns)
        return next((by_name[each] for each in known if each in by_name), None)

    keys = [named("--key", name) for name in options.key]
    if not keys:
        key = called("--key", None, KEYS)
        keys = [] if key is None else [key]
    score = prediction = label = None
    if options.score:
        score = named("--score", options.score[-1 if second else 0])
    elif options.prediction is None:
        score = called("--score", None, SCORES)
        scorers = [name for name in table.columns if name.startswith(_SCORE_OF_SCORER)]
        if score is None and len(scorers) > 1:
            problems.append(
                f"{table.path} has {len(scorers):,} columns of scores, {some_of(scorers, 12)}:"
                " choose one with --score"
            )
        if score is None and scorers:
            score = scorers[0]
    if score is None:
        prediction = called("--prediction", options.prediction, PREDICTIONS)
        label = called("--label", options.label, LABELS)
    for column in options.where or ():
        named("--where", column)
    if not keys:
        problems.append(
            f"{table.path} has no column of images: expected one of {', '.join(KEYS)}, or --key"
        )
    if score is None and (prediction is None or label is None):
        problems.append(
            f"{table.path} has no column of scores: expected one of {', '.join(SCORES)}, or --score;"
            f" or {PREDICTIONS[0]} and {LABELS[0]}"
        )
    unit = options.unit or UNIT
    epoch = options.epoch or EPOCH
    if problems:
        raise UserError(problems, f"{table.path} has the columns {some_of(table.columns, 12)}.")
    return AnswerColumns(
        key=tuple(keys),
        score=score,
        prediction=prediction,
        label=label,
        unit=unit if unit in table.columns else None,
        epoch=epoch if epoch in table.columns else None,
        question=_QUESTION if _QUESTION in table.columns else None,
    )


def _rows(
    table: AnswerTable, columns: AnswerColumns, where: Mapping[str, str]
) -> Iterator[Mapping[str, str | None]]:
    """Yield the rows with these values, with the columns that are read, as texts."""
    read = [
        *columns.key,
        columns.score,
        columns.prediction,
        columns.label,
        columns.unit,
        columns.epoch,
        columns.question,
        *where,
    ]
    names = [*dict.fromkeys(name for name in read if name is not None)]
    count = 0
    for batch in table.batches(dict.fromkeys(names, "any")):
        count += batch.num_rows
        if count > _MOST_ROWS:
            raise UserError(f"{table.path} has over {_MOST_ROWS:,} rows: compare parts of it")
        for row in batch.to_pylist():
            if all(row[name] == value for name, value in where.items()):
                yield row


@dataclass(frozen=True)
class _Spellings:
    """How the predictions and labels of a file are written, by the text without case and outer
    spaces, by which they are compared."""

    predictions: dict[str, str]
    labels: dict[str, str]
    alike: dict[str, None]
    """Labels that differ from another one in case or outer spaces alone."""

    def worth(self, row: Mapping[str, str | None], columns: AnswerColumns) -> float | None:
        """Return 1 for the right prediction, 0 for another, and None if one of both is missing."""
        answer = row[columns.prediction or ""]
        truth = row[columns.label or ""]
        if answer is None or truth is None:
            return None
        predicted = answer.strip().casefold()
        labelled = truth.strip().casefold()
        self.predictions.setdefault(predicted, answer)
        if self.labels.setdefault(labelled, truth) != truth:
            self.alike[truth] = None
        return float(predicted == labelled)

    def problems(self) -> Iterator[str]:
        if self.alike:
            yield (
                f"labels differ in case or spaces alone, such as '{next(iter(self.alike))}':"
                " write a column that says which answers are right, and name it with --score"
            )
        elif len(self.labels) > 1 and self.labels.keys().isdisjoint(self.predictions):
            predictions = some_of(self.predictions.values(), 3)
            labels = some_of(self.labels.values(), 3)
            yield (
                f"no prediction is one of the labels: predictions are {predictions}, labels are"
                f" {labels}. Write both in the same words, or write a column that says which answers"
                " are right, and name it with --score"
            )


def _worth(row: Mapping[str, str | None], columns: AnswerColumns, path: Path) -> float | None:
    """Return what an answer is worth; None if the file does not say."""
    text = row[columns.score or ""]
    if text is None:
        return None
    worth = _WORTH.get(text.strip().casefold())
    if worth is None:
        try:
            worth = float(text)
        except ValueError:
            worth = math.inf
        if math.isinf(worth):
            raise UserError(
                f"{path}: the column {columns.score} has '{text[:_LONGEST_SHOWN]}', expected a number,"
                " or right or wrong (true or false, yes or no, C or I)",
                "Choose another column with --score, or name --prediction and --label.",
            )
    return None if math.isnan(worth) else worth
