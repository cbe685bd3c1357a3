"""Read a file of one model's answers that any program may have made: its images, and what each
answer is worth.

The columns are found by the names that programs give them: those of Inspect AI's `samples_df`, of
lm-evaluation-harness's samples, and common ones. The file is not trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.comparing.messages import message, refusal
from counterfoil.errors import Problems, UserError, some_of
from counterfoil.models.answer_tables import AnswerTable, columns_called, open_table
from counterfoil.regular_files import named_path

if TYPE_CHECKING:
    from counterfoil.comparing.options import CompareOptions

KEYS = ("key", "image_id", "image", "file_name", "filename", "path", "id", "doc_id")
SCORES = ("correct", "is_correct", "right", "score", "acc", "exact_match")
# samples_df of Inspect names a column after each scorer.
_SCORE_OF_SCORER = "score_"
PREDICTIONS = ("prediction", "predicted", "pred")
LABELS = ("label", "target", "truth")
# Columns that are not read by default, but that show what a column of scores holds.
_MORE_PREDICTIONS = ("y_pred", "pred_label", "predicted_label", "pred_class", "predicted_class")
_MORE_LABELS = ("y_true", "true_label", "true_class", "ground_truth", "gt", "actual")
# Programs also call the confidence so.
_MAYBE_CONFIDENCE = "score"
# Programs also call the true class so.
_MAYBE_LABELS = ("correct", "right")
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
    facts: Mapping[str, Mapping[Key, str]]
    """The "unit", the "label" and the "question" of each image, if the file has them."""
    averaged: int
    """The number of images with several answers."""
    unscored: int
    """The number of rows without a score."""


def read_answer_file(
    options: CompareOptions, *, second: bool = False, cased: bool = False
) -> FileAnswers:
    """Read one of the two files. Raise UserError for missing columns, for scores that are no
    numbers, and for two answers to one image.

    cased: whether a prediction that differs from the label in case or `_` alone is wrong.
    """
    path = named_path(options.second if second else options.first)
    keys = options.key or KEYS
    known = [*keys, *options.score]
    table = open_table(path, "compare", known)
    columns = _find_columns(table, options, second)
    scores: dict[Key, list[float]] = {}
    seen: set[tuple[Key, str]] = set()
    fact_columns = {"unit": columns.unit, "label": columns.label, "question": columns.question}
    facts: dict[str, dict[Key, str]] = {name: {} for name in fact_columns}
    # As they are compared → as they are written.
    predictions: dict[str, str] = {}
    labels: dict[str, str] = {}
    unscored = 0
    repeated: dict[str, None] = {}
    changing: dict[str, None] = {}
    for row in _rows(table, columns, options.where or {}):
        key = tuple(row[column] or "" for column in columns.key)
        epoch = row.get(columns.epoch or "") or ""
        answer = key, epoch
        if answer in seen:
            repeated[", ".join(key)] = None
            continue
        seen.add(answer)
        for name, column in fact_columns.items():
            text = row.get(column or "")
            if text is not None and facts[name].setdefault(key, text) != text:
                changing[f"{', '.join(key)} ({name})"] = None
        prediction = row.get(columns.prediction or "")
        label = row.get(columns.label or "")
        worth = None
        if columns.score is not None:
            worth = _worth(row[columns.score], columns.score, path)
        elif prediction is not None and label is not None:
            predicted = _compared(prediction, cased)
            labelled = _compared(label, cased)
            predictions.setdefault(predicted, prediction)
            labels.setdefault(labelled, label)
            worth = float(predicted == labelled)
        if worth is None:
            unscored += 1
        else:
            scores.setdefault(key, []).append(worth)
    problems = Problems(message)
    if not options.score:
        _find_other_meaning(table, columns, options.where or {}, problems)
    if repeated:
        shown = some_of(repeated, 3)
        problems.add("unlike-files.repeated", path, shown, images=len(repeated))
    if changing:
        shown = some_of(changing, 3)
        problems.add("unlike-files.values", path, shown)
    if len(labels) > 1 and labels.keys().isdisjoint(predictions):
        of_predictions = some_of(predictions.values(), 3)
        of_labels = some_of(labels.values(), 3)
        problems.add("unknown-answers.words", path, of_predictions, of_labels)
    if not scores and not problems.count:
        problems.add("unknown-answers.empty", path, columns.worth)
    problems.refuse()
    means = {}
    for key, values in scores.items():
        total = math.fsum(values)
        means[key] = total / len(values)
    averaged = sum(len(values) > 1 for values in scores.values())
    return FileAnswers(
        path,
        columns,
        means,
        facts,
        averaged,
        unscored,
    )


def _find_other_meaning(
    table: AnswerTable,
    columns: AnswerColumns,
    where: Mapping[str, str],
    problems: Problems,
) -> None:
    """Add a problem if the columns beside show that a column of scores holds something else.

    Every answer that equals its label is worth the most, but a confidence gives some of them less.
    """
    names = table.columns
    score = columns.score or ""
    folded = score.strip().casefold()
    prediction = _first_called((*PREDICTIONS, *_MORE_PREDICTIONS), names)
    label = _first_called((*LABELS, *_MORE_LABELS), names)
    is_confidence = folded == _MAYBE_CONFIDENCE and label is not None
    if prediction is None or not (is_confidence or folded in _MAYBE_LABELS):
        return
    beside = replace(columns, prediction=prediction, label=label)
    right = []
    highest = 0.0
    try:
        for row in _rows(table, beside, where):
            worth = _worth(row[score], score, table.path)
            if worth is None:
                continue
            highest = max(highest, worth)
            answer = row[prediction]
            if is_confidence and answer is not None and answer == row[label or ""]:
                right.append(worth)
    except UserError:
        return  # lists of answers show nothing
    less = sum(worth < highest for worth in right)
    if less:
        problems.add("unknown-answers.confidence", table.path, score, answers=less)
    if not is_confidence and highest > 1:
        problems.add("unknown-answers.labels", table.path, score, highest=highest)


def _first_called(known: Sequence[str], columns: Sequence[str]) -> str | None:
    by_name = columns_called(known, columns)
    return next((by_name[each] for each in known if each in by_name), None)


def _compared(text: str, cased: bool) -> str:
    text = text.strip()
    if cased:
        return text
    text = text.casefold()
    return text.replace("_", " ")


def case_counts(labels: Iterable[str]) -> bool:
    """Return whether two of the labels differ in case or `_` alone."""
    distinct = {_compared(label, True) for label in labels}
    folded = {_compared(label, False) for label in distinct}
    return len(folded) < len(distinct)


def _find_columns(table: AnswerTable, options: CompareOptions, second: bool) -> AnswerColumns:
    problems = Problems(message)
    path = table.path
    columns = table.columns

    def named(flag: str, name: str) -> str:
        if name not in columns:
            problems.add("unknown-answers.column", path, name, flag=flag)
        return name

    def called(flag: str, name: str | None, known: Sequence[str]) -> str | None:
        if name is not None:
            return named(flag, name)
        return _first_called(known, columns)

    keys = [named("--key", name) for name in options.key]
    if not keys:
        key = called("--key", None, KEYS)
        keys = [] if key is None else [key]
    score = prediction = label = None
    if options.score:
        score = named("--score", options.score[-1 if second else 0])
    elif options.prediction is None:
        score = called("--score", None, SCORES)
        scorers = [name for name in columns if name.startswith(_SCORE_OF_SCORER)]
        if score is None and len(scorers) > 1:
            several = len(scorers)
            shown = some_of(scorers, 12)
            problems.add("unknown-answers.scorers", path, shown, scorers=several)
        if score is None and scorers:
            score = scorers[0]
    if score is None:
        prediction = called("--prediction", options.prediction, PREDICTIONS)
        label = called("--label", options.label, LABELS)
    for column in options.where or ():
        named("--where", column)
    if not keys:
        problems.add("unknown-answers.images", path, expected=KEYS)
    if score is None and (prediction is None or label is None):
        problems.add("unknown-answers.scores", path, expected=SCORES)
    unit = options.unit or UNIT
    epoch = options.epoch or EPOCH
    problems.refuse(f"{path} has the columns {some_of(columns, 12)}.")
    return AnswerColumns(
        key=tuple(keys),
        score=score,
        prediction=prediction,
        label=label,
        unit=unit if unit in columns else None,
        epoch=epoch if epoch in columns else None,
        question=_QUESTION if _QUESTION in columns else None,
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
            raise refusal("unknown-answers.many", table.path, _MOST_ROWS)
        for row in batch.to_pylist():
            if all(row[name] == value for name, value in where.items()):
                yield row


def _worth(text: str | None, column: str, path: Path) -> float | None:
    """Return what an answer is worth; None if the file does not say."""
    if text is None:
        return None
    worth = _WORTH.get(text.strip().casefold())
    if worth is None:
        try:
            worth = float(text)
        except ValueError:
            worth = math.inf
        if math.isinf(worth):
            raise refusal("unknown-answers.value", path, column, value=text)
    return None if math.isnan(worth) else worth
