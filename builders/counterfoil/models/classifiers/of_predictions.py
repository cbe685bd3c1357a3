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
from typing import TYPE_CHECKING, Any, Literal

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
from counterfoil.models.messages import message, refusal
from counterfoil.models.score_scale import UNKNOWN, AnyScale, ScaleEvidence, scale_note
from counterfoil.recipe.names import PREDICTIONS, plain_name
from counterfoil.regular_files import named_path, open_regular
from counterfoil.report.words import format_list

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
_OF_SCORES = frozenset(("confidence", "probability", "prob", "score", "weight", "energy"))
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
# Words in the titles of columns of classes: those of scores, and those of the truth.
_SCORES = frozenset(
    [
        "prob",
        "proba",
        "probability",
        "p",
        "score",
        "logit",
        "confidence",
        "conf",
        "sigmoid",
        "softmax",
    ]
)
_TRUTH = frozenset(["true", "truth", "gt", "target", "actual", "label"])
_NO_SCORES = (_TRUTH | _SUMMARIES) - _SCORES - {"pred"}
_COMPANIONS = _BESIDE - _OF_SCORES
_NEGATIONS = frozenset(["not", "no", "non", "without"])
# What programs and people call a column of answers, and one of true labels.
_PREDICTED = frozenset(
    [
        "answer",
        "argmax",
        "pred",
        "pred class",
        "pred label",
        "predict",
        "predicted",
        "predicted class",
        "predicted label",
        "prediction",
        "y hat",
        "y pred",
    ]
)
_TRUE = frozenset(
    [
        "actual",
        "ground truth",
        "gt",
        "target",
        "true",
        "true class",
        "true label",
        "truth",
        "y",
        "y true",
    ]
)
_NAMING = _PREDICTED | _TRUE | {"label", "class", "class id", "class name"}
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
    plain = plain_name(unicodedata.normalize("NFC", name))
    # The mark before a number is its sign: -1 is not the class 1.
    return f"-{plain}" if _NEGATIVE.match(name) else plain


_NEGATIVE = re.compile(r"\s*-\.?\d")


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
        raise refusal("invalid-predictions.repeated", who, repeated[0])
    images = columns_called(KEYS, names)
    # --write-keys writes a path beside the key.
    names_images_once = len(images) == 1 or {*images} == {"key", PATH}
    if not names_images_once:
        raise refusal("invalid-predictions.keys", who, shown)
    image = "key" if "key" in images else next(iter(images))
    rest = [name for name in names if name not in images.values()]
    if not rest:
        raise refusal("invalid-predictions.no-answers", who, shown)
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


def _title(name: str) -> str:
    """Return what a column is called, without the mark that tidymodels writes first."""
    return _plain(name).removeprefix(".")


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

    before, after = _affixes(table, rest, of_class, who)
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
        further = []
        for name in others:
            if name in outputs and _folded(outputs[name]) not in _SUMMARIES:
                further.append(name)
        others = further
        # These columns are called like those of the classes, so they are outputs unless sums show
        # that they are none.
        if others and _meaning_by_sums(table, [*scores], others) == "no outputs":
            others = []
    elif not scores:
        return _unnamed_scores(table, rest, numbers, others, who)
    elif others and len(scores) >= len(classes):
        # Every class has a column, and the names of the others do not say what they are.
        imagenet = any(label.imagenet for label in classes)
        meaning = "outputs"
        if not imagenet or len(scores) + len(others) != _IMAGENET_OUTPUTS:
            meaning = _meaning_by_sums(table, [*scores], others)
        if meaning == "unknown":
            first = classes[0].name
            raise refusal(
                "invalid-predictions.no-class",
                who,
                len(others),
                columns=_shown(others),
                first=first,
            )
        if meaning == "no outputs":
            others = []
    chosen = {}
    for name in rest:
        if name in scores or name in others:
            output = outputs[name]
            chosen[name] = named.get(output, output)
    return chosen


def _unnamed_scores(
    table: AnswerTable,
    rest: Sequence[str],
    numbers: Sequence[str],
    others: Sequence[str],
    who: str,
) -> dict[str, str]:
    """Return the columns of scores of a file of which no column names a class: those that count
    their outputs, or all of them.

    Raise UserError if they count the best answers of each image instead.
    """
    numbered = {}
    for name in numbers:
        match = _NUMBERED.fullmatch(name.strip())
        if match:
            numbered[name] = int(match[1])
    if len(numbered) > 1 and sorted(numbered.values()) == list(range(len(numbered))):
        ordered = sorted(numbered, key=lambda name: numbered[name])
        beside = _numbered_alike(rest, ordered)
        if beside and _descending(table, ordered):
            raise refusal("invalid-predictions.ranks", who, _shown([beside, ordered[0]]))
        return {name: str(numbered[name]) for name in ordered}
    candidates = [name for name in rest if _folded(name) not in _BESIDE]
    if len(others) > 1 and len(others) == len(candidates):
        # matching their names with classes says what is missing
        return {name: name for name in others}
    return {}


def _numbered_alike(names: Sequence[str], scores: Sequence[str]) -> str:
    """Return the first of other columns that are numbered as the columns of scores are: `label_0`
    beside `prob_0`; empty if there are none."""
    stems: dict[str, list[str]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?)\d+", name)
        if match and name not in scores:
            stems.setdefault(match[1], []).append(name)
    for alike in stems.values():
        if len(alike) == len(scores):
            return alike[0]
    return ""


def _descending(table: AnswerTable, columns: Sequence[str]) -> bool:
    """Return whether no number is above the one in the column before."""
    for batch in table.batches(dict.fromkeys(columns, "numbers")):
        if (np.diff(_numbers(batch), axis=1) > 0).any():
            return False
    return True


def _affixes(
    table: AnswerTable,
    names: Sequence[str],
    of_class: Callable[[str], bool],
    who: str,
) -> tuple[str, str]:
    """Return what most columns of classes have before and after the class: `prob_cat`, `cat_prob`
    or `p(cat)`.

    Raise UserError for several sets of scores that answer differently, such as those of two models.
    """
    if any(map(of_class, names)):
        return "", ""
    # (before, after) → class → column
    sets: dict[tuple[str, str], dict[str, str]] = {}
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
            for affixes, output in ((leading, behind), (trailing, begin)):
                if of_class(output):
                    sets.setdefault(affixes, {})[output] = name
    least = 1 if len(names) == 1 else 2
    words_of = {}
    for affixes, columns in sets.items():
        words = {*re.findall(r"[^\W_]+", "".join(affixes).casefold())}
        if len(columns) >= least and words.isdisjoint(_NEGATIONS):
            words_of[affixes] = words
    kinds = list(words_of)
    may_be_scores = [affixes for affixes in kinds if words_of[affixes].isdisjoint(_NO_SCORES)]
    kinds = may_be_scores or kinds
    called_scores = [affixes for affixes in kinds if words_of[affixes] & _SCORES]
    kinds = called_scores or kinds
    # Such as the deviations of scores: std_cat.
    no_companions = [affixes for affixes in kinds if words_of[affixes].isdisjoint(_COMPANIONS)]
    kinds = no_companions or kinds
    if not kinds:
        return "", ""
    most = max(len(sets[affixes]) for affixes in kinds)
    chosen, *largest = [affixes for affixes in kinds if len(sets[affixes]) == most]
    columns = sets[chosen]
    for affixes in largest:
        others = sets[affixes]
        of_others = {*others.values()}
        if of_others & {*columns.values()} or not of_others <= table.numeric:
            continue
        if columns.keys() != others.keys() or not _same_answers(table, columns, others):
            alike = _shown([next(iter(columns.values())), next(iter(others.values()))])
            raise refusal("invalid-predictions.sets", who, alike)
    return chosen


def _same_answers(
    table: AnswerTable,
    columns: Mapping[str, str],
    others: Mapping[str, str],
) -> bool:
    """Return whether the best score is of the same class in every row of two sets of columns, by
    class."""
    names = [*columns.values(), *(others[output] for output in columns)]
    for batch in table.batches(dict.fromkeys(names, "numbers")):
        values = _numbers(batch)
        values = np.where(np.isnan(values), -np.inf, values)
        first, second = values[:, : len(columns)], values[:, len(columns) :]
        best = first.argmax(axis=1)[:, None]
        # Equal scores may be those of one number that was rounded.
        if (np.take_along_axis(second, best, axis=1)[:, 0] < second.max(axis=1)).any():
            return False
    return True


_MOST_AFFIXED = 10_000


_IMAGENET_OUTPUTS = 1000


def _meaning_by_sums(
    table: AnswerTable,
    scores: Sequence[str],
    others: Sequence[str],
) -> Literal["outputs", "no outputs", "unknown"]:
    """Return whether other columns of numbers are outputs too: the scores of a row add up either with
    or without them."""
    alone = ScaleEvidence()
    together = ScaleEvidence()
    kinds: dict[str, Any] = dict.fromkeys((*scores, *others), "numbers")
    for batch in table.batches(kinds):
        values = _given(_numbers(batch))
        alone.add(values[:, : len(scores)])
        together.add(values)
    if alone.scale() in _ADDING_UP:
        return "no outputs"
    return "outputs" if together.scale() in _ADDING_UP else "unknown"


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
    sentence = "invalid-predictions.several"
    if len(answers) == 1:
        sentence = "invalid-predictions.label"
    raise refusal(sentence, who, _shown(rest), answer=answers[:1])


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


@dataclass(frozen=True)
class _ClassTexts:
    """The texts by which a column of answers may call the classes."""

    by_name: Spellings
    by_id: Spellings
    by_either: Spellings
    have_numbers: bool
    """Whether a number is the name of a class. Else numbers are ids."""

    @classmethod
    def of(cls, classes: Sequence[RecipeClass]) -> _ClassTexts:
        names = [(output, label.name) for output, label in enumerate(classes)]
        ids = [(output, label.id) for output, label in enumerate(classes)]
        have_numbers = any(_number(name) for _, name in names)
        numbered = (_number, names if have_numbers else ids)
        return cls(
            Spellings((str, names), (_plain, names), (_number, names)),
            Spellings((str, ids), (_plain, ids), (_number, ids)),
            Spellings(
                (str, names),
                (str, ids),
                (_plain, names),
                (_plain, ids),
                numbered,
            ),
            have_numbers,
        )


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
    texts = _ClassTexts.of(classes)
    missing = set()
    values = []
    for text in sorted(counts):
        if _folded(text) in _MISSING and texts.by_either.find(text) is None:
            missing.add(text)
        elif text != ANOTHER:
            values.append(text)
    matched, note = _matched_values(
        values,
        column,
        classes,
        texts,
        where,
    )
    if Spellings.SEVERAL in matched:
        several = values[matched.index(Spellings.SEVERAL)]
        raise refusal("invalid-predictions.two-classes", where, several, column=column)
    unknown = [text for text, output in zip(values, matched, strict=True) if output is None]
    outputs: dict[str, int | None] = dict(zip(values, matched, strict=True))
    outputs |= dict.fromkeys((*unknown, ANOTHER), len(classes))
    outputs |= dict.fromkeys(missing)
    if not unknown:
        return ReadLabels(outputs, note)
    lines = sum(counts[text] for text in unknown)
    absent = [label for output, label in enumerate(classes) if output not in matched]
    if absent:
        problem = message(
            "unmatched-classes.never",
            where,
            lines,
            never=len(absent),
            column=column,
        )
        compared = "\n".join(side_by_side(absent, unknown, ()))
        raise UserError(problem.with_end(f"\n{compared}"))
    counted = [f"{text[:40]!r} ({counts[text]:,})" for text in unknown]
    named = format_list(counted, _MOST_SHOWN)
    share = f"{lines:,} of {sum(counts.values()):,} answers"
    wrong = f"{share} are no class of the dataset and count as wrong: {named}"
    return ReadLabels(outputs, f"{note}; {wrong}" if note else wrong)


def _matched_values(
    values: Sequence[str],
    column: str,
    classes: Sequence[RecipeClass],
    texts: _ClassTexts,
    where: str,
) -> tuple[Sequence[int | None], str]:
    """Return the class of each value, all read as names or all as ids, and a note.

    The class is None for a value without one, and SEVERAL for a value that may mean several.
    """
    as_names = [texts.by_name.find(text) for text in values]
    as_ids = [texts.by_id.find(text) for text in values]
    fit_names = None not in as_names
    fit_ids = None not in as_ids
    are_names = {label.name for label in classes}.issuperset(values)
    are_ids = {label.id for label in classes}.issuperset(values)
    column_of_ids = _folded(column) == CLASS_ID
    # The column's title says whether it has ids or names, and the values are written exactly so.
    if column_of_ids and are_ids and not are_names:
        return as_ids, ""
    if are_names and _folded(column) == LABEL:
        return as_names, ""
    # Every value is both a name and an id, of different classes. Only a value that may mean several
    # classes in one reading decides for the other.
    both_fit = fit_names and fit_ids and as_names != as_ids
    if both_fit and (column_of_ids or texts.have_numbers):
        if Spellings.SEVERAL not in (*as_names, *as_ids):
            raise _two_readings(
                values,
                as_names,
                as_ids,
                column,
                classes,
                where,
            )
        return as_ids if Spellings.SEVERAL in as_names else as_names, ""
    # Values are read as names if they can be, except in a column of ids that can be read as ids.
    if fit_names and not column_of_ids:
        return as_names, ""
    if fit_names and not fit_ids:
        return as_names, f"{column} holds names of classes"
    # Values that are no names are ids. Numbers are read as ids if no class has a number as its name, or
    # if they are written exactly like ids.
    if column_of_ids or (fit_ids and (are_ids or not texts.have_numbers)):
        return as_ids, ""
    # Some values are neither names nor ids. Each of the others is read alone.
    return [texts.by_either.find(text) for text in values], ""


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
    problem = message("invalid-predictions.two-ways", where, column)
    return UserError(problem.with_end(f"\n{differing}"))


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
        where = f"model {self.name!r}"
        raise refusal("unfit-model.recorded", where)

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        where = f"model {self.name!r}"
        raise refusal("unfit-model.recorded", where)

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded:
        """Yield scores of the images that have an answer, in file order. Raise UserError for an
        invalid answer."""
        names = self._image_names()
        rows = self.found(names, keys, paths or ())
        start = 0
        if keys and len(names) and not (rows != NO_IMAGE).any():
            in_file = ", ".join(repr(str(name)[:80]) for name in names[:_MOST_SHOWN])
            expected = ", ".join(repr(name[:80]) for name in (paths or keys)[:_MOST_SHOWN])
            problem = message("unmatched-images.none", self._where, self.columns.image)
            raise UserError(problem.with_end(f"\n  there: {in_file}\n  expected: {expected}"))
        for batch in self.table.batches(_kinds(self.columns)):
            batch_rows = rows[start : start + batch.num_rows]
            start += batch.num_rows
            scores, answered = self._scores(batch)
            usable = (batch_rows != NO_IMAGE) & answered
            if usable.any():
                yield batch_rows[usable], scores[usable]

    def found(self, names: Sequence[Any], keys: Sequence[str], paths: Sequence[str]) -> Ints:
        """Return the index of each line's image, or NO_IMAGE."""
        if not self.columns.is_row:
            return find_images(names, keys, paths, self._where).rows
        rows = np.array(names, dtype=np.int64)
        if not len(keys):
            return np.full(len(rows), NO_IMAGE)
        wrong = rows[(rows < 0) | (rows >= len(keys))]
        if wrong.size:
            raise refusal("unmatched-images.row", self._where, wrong[0], len(keys))
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
            ways = {}
            for keys, paths in parts:
                matched = find_images(names, keys, paths or (), self._where)
                ways[matched.how] = None
            notes += ways
        if answered is not None and answered < self.lines:
            notes.append(
                f"{answered:,} of {self.lines:,} lines are of these images, and the others are left"
                " out"
            )
        return "; ".join(filter(None, notes))

    @property
    def may_be_truth(self) -> bool:
        """Whether its column of answers may as well hold true labels, by its name and by the
        columns beside it."""
        name = _title(self.columns.answer or "")
        return name in _TRUE or (name not in _PREDICTED and bool(self.columns.left_out))

    def holds_answers(self, column: str) -> bool:
        """Return whether a column is called as columns of answers are."""
        return _title(column) in _PREDICTED

    def named_beside(
        self,
        keys: Sequence[str],
        paths: Sequence[str] | None,
        classes: Sequence[RecipeClass],
    ) -> dict[str, Ints]:
        """Return the class that each column beside the scores names for each image, (n,), -1 for
        none. Only columns of which every value names a class are returned."""
        rows = None
        beside = {}
        for column in self.columns.left_out:
            if _title(column) not in _NAMING:
                continue
            texts = []
            for batch in self.table.batches({column: "text"}):
                texts += batch.column(0).to_pylist()
            counts = Counter(text for text in texts if text is not None)
            try:
                outputs = read_labels(counts, column, classes, self._where).outputs
            except UserError:
                continue
            if any(outputs[text] == len(classes) for text in counts):
                continue
            if rows is None:
                rows = self.found(self._image_names(), keys, paths or ())
            named = np.full(len(keys), -1)
            for row, text in zip(rows.tolist(), texts, strict=True):
                output = outputs.get(text)
                if row >= 0 and output is not None:
                    named[row] = output
            beside[column] = named
        return beside

    def unknown_keys(self, known: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """Count the lines whose images are not known, and return the first few of their names."""
        names = self._image_names()
        rows = self.found(names, (), [*known])
        unknown = np.flatnonzero(rows == NO_IMAGE)
        first = [str(names[line])[:80] for line in unknown[:_MOST_SHOWN]]
        return len(unknown), tuple(first)

    @property
    def _where(self) -> str:
        """The model and its file, for messages."""
        return f"model {self.name!r}: {self.table.path}"

    def _image_names(self) -> list[Any]:
        """Return the name of each line's image."""
        image = self.columns.image
        names = []
        for batch in self.table.batches(self.columns.image_kind):
            column = batch.column(0)
            if column.null_count:
                raise refusal("unmatched-images.unnamed", self._where, image)
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
            raise refusal("invalid-predictions.score", self._where, image, column=column)
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
        where = f"model {classifier.name!r}"
        raise refusal("unmatched-images.preview", where)


@dataclass(frozen=True)
class _Described:
    table: AnswerTable
    columns: PredictionColumns
    facts: ClassifierFacts
    counts: Mapping[str, int]
    """The number of lines of each answer, if a column holds the answers."""
    labels: ReadLabels | None

    @classmethod
    def of(cls, name: str, classes: Sequence[RecipeClass]) -> _Described:
        path = named_path(name.removeprefix(PREDICTIONS))
        table = open_table(path, f"model {name!r}", KEYS)
        columns = read_columns(table, classes)
        outputs = columns.outputs
        counts: Mapping[str, int] = {}
        labels = None
        if columns.answer is not None:
            outputs = (*unique_output_names(classes), ANOTHER)
            counts = _counts(table, columns)
            labels = read_labels(counts, columns.answer, classes, f"{table.who}: {table.path}")
        facts = ClassifierFacts(
            name,
            str(table.path),
            "predictions",
            len(outputs),
            outputs,
            most_ranked=None if labels is None else 1,
            of_classes=labels is not None,
        )
        return cls(
            table,
            columns,
            facts,
            counts,
            labels,
        )


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
            raise refusal("invalid-predictions.labels", where, None, _MOST_LABELS)
    return counts
