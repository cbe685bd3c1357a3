"""Read a model's answers from a file of predictions: `predictions:FILE`. The file is not trusted.

One column names the image: `key` (a key, or a path), `path`, or `row` (the image's index in the
dataset, from 0).

The answers are the columns that name a class, one for each, whose numbers are read by
`score_scale.py`. A file without such columns has one more column, which holds the answers whatever
it is called: names of classes, or ids. Other columns are no answers. They are left out, and said to
be; where it is uncertain what is an answer, the file is refused.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.documents import as_cell
from counterfoil.errors import UserError, some_of
from counterfoil.models.answer_tables import AnswerTable, columns_called, open_table
from counterfoil.models.classifiers.classifier import (
    Classifier,
    ClassifierFacts,
    Recorded,
    side_by_side,
    unique_output_names,
)
from counterfoil.models.image_names import NO_IMAGE, find_images
from counterfoil.models.score_scale import UNKNOWN, AnyScale, ScaleEvidence, scale_note
from counterfoil.recipe.names import PREDICTIONS, plain_name
from counterfoil.regular_files import named_path, open_regular
from counterfoil.report.words import format_count, format_list

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from counterfoil.recipe.prompts import RecipeClass

# The output for every label that is no class of the dataset. A file may also say so itself.
ANOTHER = "(another label)"
_MOST_LABELS = 1_000_000
_MOST_SHOWN = 5

PATH = "path"
ROW = "row"
KEYS = ("key", PATH, ROW)
LABEL = "label"
CLASS_ID = "class_id"
ANSWERS = (LABEL, CLASS_ID)
# Columns that programs write beside scores or beside an answer, and that are neither.
_BESIDE = frozenset(
    [
        "index",
        "id",
        "number",
        "n",
        "confidence",
        "probability",
        "prob",
        "score",
        "margin",
        "entropy",
        "loss",
        "nll",
        "uncertainty",
        "variance",
        "std",
        "temperature",
        "energy",
        "distance",
        "rank",
        "time",
        "seconds",
        "width",
        "height",
        "size",
        "fold",
        "seed",
        "epoch",
        "batch",
        "weight",
    ]
)
_SUMMARIES = _BESIDE | {
    "max",
    "min",
    "mean",
    "sum",
    "top",
    "top1",
    "best",
    "argmax",
    "pred",
    "true",
    "total",
}
# The names of an index in files of pandas and spreadsheets.
_UNNAMED = re.compile(r"\s*(unnamed: \d+|__index_level_\d+__)?\s*", re.IGNORECASE)
# Outputs that are called by their numbers.
_NUMBERED = re.compile(r"(?:label|class|output|logit|score|prob)?[ _-]?(\d+)", re.IGNORECASE)
# What pandas writes for an answer that is missing.
_MISSING = frozenset(("nan", "none", "null", "na", "n/a", "<na>", "nat"))


class Spellings:
    """Find classes by texts from a file. Texts are normalised in several ways; the first match is
    taken."""

    SEVERAL = -1

    def __init__(
        self, *ways: tuple[Callable[[str], str | None], Iterable[tuple[int, str]]]
    ) -> None:
        """ways: pairs of a function that normalises a text, or returns None, and the numbered names
        to find."""
        self._ways: list[tuple[Callable[[str], str | None], dict[str, int]]] = []
        for spell, named in ways:
            numbers: dict[str, int] = {}
            for number, name in named:
                for text in (name, as_cell(name)):
                    spelled = spell(text)
                    if spelled is None:
                        continue
                    if numbers.setdefault(spelled, number) != number:
                        numbers[spelled] = self.SEVERAL
            self._ways.append((spell, numbers))

    def find(self, text: str) -> int | None:
        """Return the number of the name that matches, SEVERAL if names of several numbers match, or
        None."""
        for spell, numbers in self._ways:
            spelled = spell(text)
            if spelled is not None and spelled in numbers:
                return numbers[spelled]
        return None


def _plain(name: str) -> str:
    return plain_name(unicodedata.normalize("NFC", name))


_INTEGER = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")


def _number(text: str) -> str | None:
    """Normalise a whole number: `007` and `7.0` become `7`. Return None for any other text."""
    match = _INTEGER.fullmatch(text.strip())
    return None if match is None else str(int(match[1]))


@dataclass(frozen=True)
class PredictionColumns:
    """The columns of a file: of the image, of the answer, of scores."""

    image: str
    is_row: bool
    """Whether the image is named by its index."""
    answer: str | None
    scores: tuple[str, ...]
    outputs: tuple[str, ...]
    """The name of the output that each column of scores is of."""
    left_out: tuple[str, ...]
    """Columns that are none of these."""

    @property
    def image_kind(self) -> dict[str, Any]:
        return {self.image: "whole numbers" if self.is_row else "text"}


def read_columns(table: AnswerTable, classes: Sequence[RecipeClass]) -> PredictionColumns:
    """Say what each column is. Raise UserError if that is uncertain."""
    names = [name for name in table.columns if not _UNNAMED.fullmatch(name)]
    who = f"{table.who}: {table.path}"
    shown = _shown(names)
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise UserError(f"{who} has the column {repeated[0][:40]!r} more than once")
    images = columns_called(KEYS, names)
    # --write-keys writes a path beside the key.
    names_images_once = len(images) == 1 or {*images} == {"key", PATH}
    if not names_images_once:
        raise UserError(
            f"{who} has the columns {shown}; expected key (or path or row), then a column of scores"
            " for each class, or one column with the answers",
            "Call the column of the images key or path, as evaluate --write-keys FILE does.",
        )
    image = "key" if "key" in images else next(iter(images))
    rest = [name for name in names if name not in images.values()]
    if not rest:
        raise UserError(
            f"{who} has the columns {shown}, and no answers",
            "Add a label, or scores for each class.",
        )
    scores = _score_columns(table, rest, classes, who)
    answer = None if scores else _answer_column(table, rest, who)
    left_out = [name for name in rest if name not in scores and name != answer]
    return PredictionColumns(
        image=images[image],
        is_row=image == ROW,
        answer=answer,
        scores=tuple(scores),
        outputs=tuple(scores.values()),
        left_out=tuple(left_out),
    )


def _shown(names: Sequence[str]) -> str:
    text = ", ".join(repr(name[:40]) for name in names[:8])
    if len(names) > 8:
        text += " …"
    return text


def _folded(name: str) -> str:
    return name.strip().casefold()


def _score_columns(
    table: AnswerTable,
    rest: Sequence[str],
    classes: Sequence[RecipeClass],
    who: str,
) -> dict[str, str]:
    """Return the columns of scores and the outputs that they are of, or nothing if the file has
    none.

    Raise UserError if a column may be a further output or not.
    """
    first = rest[0]
    if len(rest) == 1 and (first not in table.numeric or _folded(first) in ANSWERS):
        return {}
    numbers = [name for name in rest if name in table.numeric]
    known = set()
    named = {}
    for label in classes:
        known |= {_plain(label.name), _plain(label.id)}
        cell = as_cell(label.name)
        named[cell] = label.name
    named |= {label.name: label.name for label in classes}

    def of_class(output: str) -> bool:
        parts = (output, *output.split(","))
        return output in named or any(_plain(part) in known for part in parts)

    before, after = _affixes(rest, of_class)
    outputs = {}
    scores = {}
    for name in rest:
        if name.startswith(before) and name.endswith(after):
            output = name[len(before) : len(name) - len(after)]
            outputs[name] = output
            if of_class(output):
                scores[name] = output
    others = [name for name in numbers if name not in scores and _folded(name) not in _BESIDE]
    if before or after:
        # Further outputs are called like those of the classes. Unless sums say otherwise, they are
        # no summary of these.
        further = []
        for name in others:
            if name in outputs and _folded(outputs[name]) not in _SUMMARIES:
                further.append(name)
        others = further
        if others and _further_outputs(table, [*scores], others) is False:
            others = []
    elif not scores:
        return _unnamed_scores(rest, numbers, others)
    elif others and len(scores) >= len(classes):
        imagenet = any(label.imagenet for label in classes)
        whole = len(scores) + len(others) == 1000
        in_all = (imagenet and whole) or _further_outputs(table, [*scores], others)
        if in_all is None:
            columns = format_count(
                len(others), "column of numbers names", "columns of numbers name"
            )
            raise UserError(
                f"{who}: {columns} no class: {_shown(others)}",
                "Remove them if they are no outputs of the model. If they are, call every output"
                f" score_NAME: score_{classes[0].name[:40]}.",
            )
        if not in_all:
            others = []
    chosen = {}
    for name in rest:
        if name in scores or name in others:
            output = outputs[name]
            chosen[name] = named.get(output, output)
    return chosen


def _unnamed_scores(
    rest: Sequence[str],
    numbers: Sequence[str],
    others: Sequence[str],
) -> dict[str, str]:
    """Return the columns of scores of a file of which no column names a class: those that count
    their outputs, or all of them."""
    numbered = {}
    for name in numbers:
        match = _NUMBERED.fullmatch(name.strip())
        if match:
            numbered[name] = int(match[1])
    if len(numbered) > 1 and sorted(numbered.values()) == list(range(len(numbered))):
        ordered = sorted(numbered, key=lambda name: numbered[name])
        return {name: str(numbered[name]) for name in ordered}
    candidates = [name for name in rest if _folded(name) not in _BESIDE]
    if len(others) > 1 and len(others) == len(candidates):
        # matching their names with classes says what is missing
        return {name: name for name in others}
    return {}


def _affixes(names: Sequence[str], of_class: Callable[[str], bool]) -> tuple[str, str]:
    """Return what most columns of classes have before and after the class: `prob_cat`, `cat_prob`
    or `p(cat)`."""
    if any(map(of_class, names)):
        return "", ""
    affix_counts = Counter[tuple[str, str]]()
    for name in names[:_MOST_AFFIXED]:
        for mark in re.finditer(r"[_ :./(\-]", name):
            begin = name[: mark.start()]
            behind = name[mark.end() :]
            closing = ""
            if mark[0] == "(":
                behind = behind.removesuffix(")")
                closing = ")"
            leading = (name[: mark.end()], closing)
            trailing = ("", name[mark.start() :])
            affix_counts[leading] += of_class(behind)
            affix_counts[trailing] += of_class(begin)
    for affixes, count in affix_counts.most_common(1):
        if count > 1 or (count == 1 and len(names) == 1):
            return affixes
    return "", ""


_MOST_AFFIXED = 10_000


def _further_outputs(
    table: AnswerTable,
    scores: Sequence[str],
    others: Sequence[str],
) -> bool | None:
    """Return whether other columns of numbers are outputs too, as sums show it; None if sums show
    nothing."""
    alone = ScaleEvidence()
    together = ScaleEvidence()
    kinds: dict[str, Any] = dict.fromkeys((*scores, *others), "numbers")
    for batch in table.batches(kinds):
        values = _given(_numbers(batch))
        alone.add(values[:, : len(scores)])
        together.add(values)
    if alone.scale() in _ADDING_UP:
        return False
    return True if together.scale() in _ADDING_UP else None


_ADDING_UP = ("probabilities", "percent", "log-probabilities")


def _answer_column(table: AnswerTable, rest: Sequence[str], who: str) -> str:
    """Return the column that holds the answers of a file without scores. Raise UserError if several
    may."""
    others = [name for name in rest if name not in table.numeric or _folded(name) not in _BESIDE]
    answers = [name for name in others if _folded(name) in ANSWERS]
    if len(rest) == 1:
        return rest[0]
    if len(others) == 1 and answers:
        return answers[0]
    hint = "Keep one column of answers beside the key: one of the others may be the true label."
    if len(answers) == 1:
        hint = (
            f"If {answers[0]!r} holds the answers, keep it alone beside the key: it may be the"
            " true label."
        )
    raise UserError(
        f"{who} has the columns {_shown(rest)} beside the key, and several of them may be the"
        " answers",
        hint,
    )


def _numbers(batch: pa.RecordBatch, first: int = 0) -> Floats:
    """Return the columns from `first` on as scores (b, columns), NaN for an empty cell."""
    columns: list[Any] = []
    for column in batch.columns[first:]:
        values = column.to_numpy(zero_copy_only=False)
        columns.append(values)
    return np.stack(columns, axis=1).astype(np.float64)


@dataclass(frozen=True)
class ReadLabels:
    """How the values of a column of answers are read.

    outputs: value → class; None for a missing answer, the number of classes for an answer that is
    no class.
    """

    outputs: Mapping[str, int | None]
    note: str


def read_labels(
    counts: Mapping[str, int],
    column: str,
    classes: Sequence[RecipeClass],
    where: str,
) -> ReadLabels:
    """Match the values of a column of answers with the classes. counts: value → number of lines.

    All values are names of classes, or all are ids. Raise UserError if both fit and differ, or if a
    class is never answered while other answers are no class: it may have another name there.
    """
    names = [(output, label.name) for output, label in enumerate(classes)]
    ids = [(output, label.id) for output, label in enumerate(classes)]
    # Numbers are ids only if no class has a number as its name.
    called_by_number = any(_number(name) for _, name in names)
    by_name = Spellings((str, names), (_plain, names), (_number, names))
    by_id = Spellings((str, ids), (_plain, ids), (_number, ids))
    numbered = (_number, names if called_by_number else ids)
    by_either = Spellings((str, names), (str, ids), (_plain, names), (_plain, ids), numbered)
    missing = set()
    values = []
    for text in sorted(counts):
        if _folded(text) in _MISSING and by_either.find(text) is None:
            missing.add(text)
        elif text != ANOTHER:
            values.append(text)
    as_names = [by_name.find(text) for text in values]
    as_ids = [by_id.find(text) for text in values]
    exact_names = {name for _, name in names}.issuperset(values)
    exact_ids = {class_id for _, class_id in ids}.issuperset(values)
    fits_names = None not in as_names
    fits_ids = None not in as_ids
    is_id = _folded(column) == CLASS_ID
    note = ""
    # First as they are documented, and as they are written.
    if is_id and exact_ids and not exact_names:
        outputs = as_ids
    elif exact_names and _folded(column) == LABEL:
        outputs = as_names
    elif fits_names and fits_ids and as_names != as_ids and (is_id or called_by_number):
        # The values are names and ids, of different classes: one reading must be impossible.
        if Spellings.SEVERAL not in (*as_names, *as_ids):
            raise _two_readings(values, as_names, as_ids, column, classes, where)
        outputs = as_ids if Spellings.SEVERAL in as_names else as_names
    elif fits_names and not (is_id and fits_ids):
        # Names come first, but not in a column of ids that ids fit.
        outputs = as_names
        if is_id:
            note = f"{column} holds names of classes"
    elif is_id or (fits_ids and (exact_ids or not called_by_number)):
        # A number is an id unless it may be the name of another class.
        outputs = as_ids
    else:
        # Some values are no class at all.
        outputs = [by_either.find(text) for text in values]
    if Spellings.SEVERAL in outputs:
        several = values[outputs.index(Spellings.SEVERAL)]
        raise UserError(
            f"{where} has the {column} {several[:80]!r}, which is the name of two classes of the"
            " dataset",
            "Write the column class_id, with ids as evaluate --write-keys FILE lists them.",
        )
    of_value: dict[str, int | None] = dict.fromkeys(missing)
    of_value[ANOTHER] = len(classes)
    unknown = []
    for text, output in zip(values, outputs, strict=True):
        if output is None:
            unknown.append(text)
            output = len(classes)
        of_value[text] = output
    if not unknown:
        return ReadLabels(of_value, note)
    lines = sum(counts[text] for text in unknown)
    absent = [label for output, label in enumerate(classes) if output not in outputs]
    if absent:
        never = format_count(len(absent), "class is", "classes are")
        no_class = format_count(lines, "answer is", "answers are")
        compared = "\n".join(side_by_side(absent, unknown, ()))
        raise UserError(
            f"{where}: {never} never answered, and {no_class} no class: they may be the same under"
            f" two names, in the column {column[:40]!r}\n{compared}",
            "Write the names of the dataset's classes as label, or their ids as class_id, as"
            f" evaluate --write-keys FILE lists them. Write {ANOTHER} for an answer that is none of"
            " them, which counts as wrong.",
        )
    counted = [f"{text[:40]!r} ({counts[text]:,})" for text in unknown]
    named = format_list(counted, _MOST_SHOWN)
    share = f"{lines:,} of {sum(counts.values()):,} answers"
    wrong = f"{share} are no class of the dataset and count as wrong: {named}"
    if note:
        wrong = f"{note}; {wrong}"
    return ReadLabels(of_value, wrong)


def _two_readings(
    values: Sequence[str],
    as_names: Sequence[int | None],
    as_ids: Sequence[int | None],
    column: str,
    classes: Sequence[RecipeClass],
    where: str,
) -> UserError:
    lines = []
    for text, by_name, by_id in zip(values, as_names, as_ids, strict=True):
        if by_name is not None and by_id is not None and by_name != by_id:
            named = classes[by_name].name
            other = classes[by_id]
            identified = f"{other.name[:40]!r} ({other.id[:40]})"
            line = f"  {text[:40]!r} is the name of {named[:40]!r} and the id of {identified}"
            lines.append(line)
    differing = "\n".join(lines[:_MOST_SHOWN])
    return UserError(
        f"{where}: the column {column[:40]!r} may hold names of classes or ids, and these differ\n"
        f"{differing}",
        "Write the names as text in a column label, with words that no id has, or ids as evaluate"
        " --write-keys FILE lists them in a column class_id, with their zeros.",
    )


@dataclass(frozen=True, kw_only=True)
class RecordedClassifier(Classifier):
    """A file of predictions."""

    table: AnswerTable
    columns: PredictionColumns
    labels: Mapping[str, int | None] = field(default_factory=dict)
    """The output of each value of its column of answers."""
    lines: int = 0
    """The number of lines with an answer."""

    def transform(self) -> Callable[[Any], Any]:
        raise UserError(_CANNOT.format(self.name))

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        raise UserError(_CANNOT.format(self.name))

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded:
        """Yield scores of the images that have an answer, in file order. Raise UserError for an
        invalid answer."""
        names = self._image_names()
        rows = self.found(names, keys, paths or ())
        start = 0
        if keys and len(names) and not (rows != NO_IMAGE).any():
            in_file = ", ".join(repr(str(name)[:80]) for name in names[:_MOST_SHOWN])
            expected = ", ".join(repr(name[:80]) for name in (paths or keys)[:_MOST_SHOWN])
            raise UserError(
                f"model {self.name!r}: no {self.columns.image} of {self.table.path} is an image of"
                f" these\n  there: {in_file}\n  expected: {expected}",
                "evaluate --write-keys FILE lists all keys and paths.",
            )
        for batch in self.table.batches(_kinds(self.columns)):
            batch_rows = rows[start : start + batch.num_rows]
            start += batch.num_rows
            scores, answered = self._scores(batch)
            usable = (batch_rows != NO_IMAGE) & answered
            if usable.any():
                yield batch_rows[usable], scores[usable]

    def found(self, names: Sequence[Any], keys: Sequence[str], paths: Sequence[str]) -> Ints:
        """Return the index of each line's image, or NO_IMAGE."""
        who = f"model {self.name!r}: {self.table.path}"
        if not self.columns.is_row:
            return find_images(names, keys, paths, who).rows
        rows = np.array(names, dtype=np.int64)
        if not len(keys):
            return np.full(len(rows), NO_IMAGE)
        wrong = rows[(rows < 0) | (rows >= len(keys))]
        if wrong.size:
            raise UserError(f"{who} has row {wrong[0]:,}, and there are {len(keys):,} images")
        return rows

    def told(
        self,
        parts: Iterable[tuple[Sequence[str], Sequence[str] | None]],
        answered: int | None,
    ) -> str:
        """Return in words how the file was read. parts: keys and paths of images. answered: their
        number, or None if these images are only some of those that the file is for.
        """
        notes = [self.read]
        if not self.columns.is_row:
            names = self._image_names()
            where = f"model {self.name!r}: {self.table.path}"
            ways = {}
            for keys, paths in parts:
                matched = find_images(names, keys, paths or (), where)
                ways[matched.how] = None
            notes += ways
        if answered is not None and answered < self.lines:
            notes.append(
                f"{answered:,} of {self.lines:,} lines are of these images, and the others are left"
                " out"
            )
        return "; ".join(filter(None, notes))

    def unknown_keys(self, known: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """Count the lines whose images are not known, and return the first few of their names."""
        names = self._image_names()
        rows = self.found(names, (), [*known])
        unknown = np.flatnonzero(rows == NO_IMAGE)
        first = [str(names[line])[:80] for line in unknown[:_MOST_SHOWN]]
        return len(unknown), tuple(first)

    def _image_names(self) -> list[Any]:
        """Return the name of each line's image."""
        image = self.columns.image
        names = []
        for batch in self.table.batches(self.columns.image_kind):
            column = batch.column(0)
            if column.null_count:
                where = f"model {self.name!r}: {self.table.path}"
                raise UserError(f"{where} has rows without a {image}")
            names += column.to_pylist()
        return names

    def _scores(self, batch: pa.RecordBatch) -> tuple[Floats, Bools]:
        """Return scores (b, num_classes) as the file writes them, and whether each row has an
        answer (b,)."""
        if self.columns.answer is not None:
            scores = np.zeros((batch.num_rows, self.num_classes))
            for row, value in enumerate(batch.column(1).to_pylist()):
                if value is None:
                    continue
                output = self.labels.get(value, self.num_classes - 1)
                if output is not None:
                    scores[row, output] = 1.0
            return scores, np.asarray(scores.any(axis=1))
        scores = _numbers(batch, 1)
        answered = _answered(scores)
        not_numbers = np.isnan(scores) | (scores == np.inf)
        wrong = np.flatnonzero(answered & not_numbers.any(axis=1))
        if wrong.size:
            row = int(wrong[0])
            image = batch.column(0)[row].as_py()
            column_number = int(np.isfinite(scores[row]).argmin())
            column = self.columns.scores[column_number]
            raise UserError(
                f"model {self.name!r}: {self.table.path} has a score that is not a number for"
                f" {str(image)[:80]!r}, in column {column[:80]!r}",
                "Write a score for each image and each class.",
            )
        return scores, answered


def _answered(values: Floats) -> Bools:
    """Return which rows have an answer: not those in which every score is missing or minus
    infinity."""
    return np.asarray((values > -np.inf).any(axis=1))


def _given(values: Floats) -> Floats:
    """Return the rows that have an answer, in which an empty score is minus infinity."""
    given = values[_answered(values)]
    return np.where(np.isnan(given), -np.inf, given)


def refuse_by_row(classifier: Classifier, preview: int | None) -> None:
    """Raise UserError if a file identifies images by row and the dataset is a preview, which lacks
    rows."""
    if preview is None or not isinstance(classifier, RecordedClassifier):
        return
    if classifier.columns.is_row:
        raise UserError(
            f"model {classifier.name!r} identifies images by row, and a preview does not have every"
            " row",
            "Identify images by key or path, or leave out the limit.",
        )


_CANNOT = "model {!r} is a file of predictions: it cannot score images that it has not seen"


@dataclass(frozen=True)
class _Described:
    table: AnswerTable
    columns: PredictionColumns
    facts: ClassifierFacts
    counts: Mapping[str, int]
    labels: ReadLabels | None

    @classmethod
    def of(cls, name: str, classes: Sequence[RecipeClass]) -> _Described:
        path = named_path(name.removeprefix(PREDICTIONS))
        table = open_table(path, f"model {name!r}", KEYS)
        columns = read_columns(table, classes)
        kind = (name, str(table.path), "predictions")
        if columns.answer is None:
            facts = ClassifierFacts(*kind, len(columns.outputs), columns.outputs)
            return cls(table, columns, facts, {}, None)
        counts = _counts(table, columns)
        labels = read_labels(counts, columns.answer, classes, f"{table.who}: {table.path}")
        outputs = (*unique_output_names(classes), ANOTHER)
        facts = ClassifierFacts(*kind, len(outputs), outputs, most_ranked=1, of_classes=True)
        return cls(table, columns, facts, counts, labels)


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    """Return the file's outputs: its columns of scores, or the dataset's classes if it holds
    labels."""
    return _Described.of(name, classes).facts


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> RecordedClassifier:
    described = _Described.of(name, classes)
    table = described.table
    columns = described.columns
    read = described.labels
    scale: AnyScale = UNKNOWN
    lines = 0
    if read is not None:
        for text, count in described.counts.items():
            if read.outputs[text] is not None:
                lines += count
        notes = [f"answers without confidences, from the column {str(columns.answer)[:40]!r}"]
        if read.note:
            notes.append(read.note)
    else:
        evidence = ScaleEvidence()
        for batch in table.batches(dict.fromkeys(columns.scores, "numbers")):
            values = _given(_numbers(batch))
            evidence.add(values)
            lines += len(values)
        scale = evidence.scale()
        notes = [scale_note(scale, evidence)]
    if columns.left_out:
        names = some_of([column[:40] for column in columns.left_out], 8)
        notes.append(f"columns that name no class are left out: {names}")
    with open_regular(table.path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return RecordedClassifier(
        **described.facts.fields(),
        sha256=sha256,
        input_key="predictions",
        kept=False,
        score_scale=scale,
        read="; ".join(notes),
        table=table,
        columns=columns,
        labels={} if read is None else read.outputs,
        lines=lines,
    )


def _kinds(columns: PredictionColumns) -> dict[str, Any]:
    if columns.answer is not None:
        return columns.image_kind | {columns.answer: "text"}
    return columns.image_kind | dict.fromkeys(columns.scores, "numbers")


def _counts(table: AnswerTable, columns: PredictionColumns) -> Counter[str]:
    """Count the lines of each answer. Raise UserError for too many different answers."""
    counts = Counter[str]()
    for batch in table.batches({columns.image: "text", columns.answer or "": "text"}):
        answers = batch.column(1).to_pylist()
        counts.update(answer for answer in answers if answer is not None)
        if len(counts) > _MOST_LABELS:
            where = f"{table.who}: {table.path}"
            raise UserError(f"{where} has more than {_MOST_LABELS:,} different labels")
    return counts
