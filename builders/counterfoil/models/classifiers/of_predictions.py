"""Answers that a model gave elsewhere: `predictions:FILE`, Parquet or CSV, that anybody may have written.

One column tells the image: `key` (a key, or a path below a folder), `path`, or `row` (its place in the dataset, from
0); where `key` and `path` both stand there, `key` does. Beside it stands the answer: `label` (a class's name),
`class_id`, or one column of scores a class. Nothing else may stand there but an index without a name: the label of a
table that a dataset brings is the truth, not an answer. Columns are read first, then rows in batches.

What spreadsheets and pandas make of a table is read where it can mean one thing: other delimiters, UTF-16, a decimal
comma, `Path`, `.\\red\\1.jpg`, `7` for the class `007`, and the `'` that `documents.as_cell` puts before a formula.
What is written exactly comes first, so classes that differ in case alone have answers of their own.

The file answers by key or path and cannot score images that it has not seen. Scores a class are matched to classes by
their columns' names; they are taken for probabilities where every row sums to one, else for logits. A file of labels
ranks no second answer, so its top-k is its top-1, and tells no confidence: its answers count as certain. A label that
is no class of the dataset is a wrong answer.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.documents import as_cell
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers.classifier import (
    MOST_LINES,
    Classifier,
    ClassifierFacts,
    Recorded,
    side_by_side,
    unique_names,
)
from counterfoil.models.loading_errors import one_line
from counterfoil.recipe.names import nearest, plain_name
from counterfoil.regular_files import UnfitFile, named_path, open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from counterfoil.recipe.prompts import RecipeClass

PREFIX = "predictions:"
# The output that stands for every label that is no class of the dataset.
ANOTHER = "(another label)"
_MOST_LABELS = 1_000_000
_MOST_SHOWN = 5
# Its softmax is 1 to the last bit of a float32.
_CERTAIN = 100.0
_SUM_OF_ONE = 1e-3
# Below any logit that a model gives, where a probability is nought.
_NEVER = -1e4


class Spellings:
    """What a text of a file means among things that have names: the first way of writing that fits decides."""

    SEVERAL = -1

    def __init__(self, *ways: tuple[Callable[[str], str | None], Iterable[tuple[int, str]]]) -> None:
        """ways: how a text is compared (None: not at all), and the numbers and names of the things that it may mean."""
        self._ways = [(spell, self._places(spell, named)) for spell, named in ways]

    @staticmethod
    def _places(spell: Callable[[str], str | None], named: Iterable[tuple[int, str]]) -> dict[str, int]:
        places: dict[str, int] = {}
        for place, name in named:
            for written in (spell(name), spell(as_cell(name))):
                if written is not None and places.setdefault(written, place) != place:
                    places[written] = Spellings.SEVERAL
        return places

    def find(self, text: str) -> int | None:
        """The number of the thing that is meant; SEVERAL where more than one may be, None where none is."""
        for spell, places in self._ways:
            written = spell(text)
            if written is not None and written in places:
                return places[written]
        return None


def spelled_images(keys: Sequence[str], paths: Sequence[str]) -> Spellings:
    """Images by their keys, else by paths below a folder."""
    by_path = [*enumerate(paths)]
    return Spellings((str, enumerate(keys)), (str, by_path), (_plain_path, by_path))


def _plain_path(path: str) -> str:
    """A path as it is compared: `./`, the kind of slash, and how an accent is composed do not count."""
    parts = unicodedata.normalize("NFC", path).replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def _spelled_classes(classes: Sequence[RecipeClass], column: str) -> Spellings:
    """Classes as the column `label` or `class_id` writes them: by name, else by id; or by id alone.

    Numbers are ids only where no class is called by a number: `3` is the class `3`, whatever stands in third place.
    """
    ids = [(output, one.id) for output, one in enumerate(classes)]
    names = [(output, one.name) for output, one in enumerate(classes)] if column == "label" else []
    numbered = names if any(_number(name) for _, name in names) else ids
    return Spellings((str, names), (str, ids), (_plain, names), (_plain, ids), (_number, numbered))


def _plain(name: str) -> str:
    return plain_name(unicodedata.normalize("NFC", name))


_INTEGER = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")


def _number(text: str) -> str | None:
    """A whole number as it is compared, `7` for `007` and `7.0`; None for any other text."""
    found = _INTEGER.fullmatch(text.strip())
    return None if found is None else str(int(found[1]))


@dataclass(frozen=True, kw_only=True)
class RecordedClassifier(Classifier):
    """A file of predictions. `classes` say which output a label is, where it holds labels."""

    path: Path
    columns: PredictionColumns
    classes: Spellings
    probabilities: bool

    def transform(self) -> Callable[[Any], Any]:
        raise UserError(_CANNOT.format(self.name))

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        raise UserError(_CANNOT.format(self.name))

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded:
        """The scores of those images that the file answers, as it lists them. UserError for what is no answer."""
        import torch

        images, known, others = spelled_images(keys, paths or ()), 0, []
        for batch in read_batches(self.path, self.name, self.columns):
            at = self._places(batch, images, len(keys))
            scores, answered = self._scores(batch)
            known += int((at >= 0).sum())
            others += batch.column(self.columns.image).slice(0, _MOST_SHOWN - len(others)).to_pylist()
            found = (at >= 0) & answered
            if found.any():
                yield at[found], torch.from_numpy(scores[found])
        if keys and others and not known:
            both = (", ".join(repr(one[:80]) for one in few) for few in (others, (paths or keys)[:_MOST_SHOWN]))
            raise UserError(
                f"model {self.name!r}: no {self.columns.image} of {self.path} is an image of these\n"
                "  there: {}\n  expected: {}".format(*both),
                "evaluate --write-keys FILE lists all keys and paths.",
            )

    def unknown_keys(self, known: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """How many rows of the file are of none of these images, and the first few of their keys; it tells keys."""
        count, first, images = 0, [], spelled_images((), [*known])
        for batch in read_batches(self.path, self.name, self.columns):
            keys = batch.column(self.columns.image).to_pylist()
            unknown = [str(key) for key in keys if images.find(key) is None]
            count += len(unknown)
            first += [key[:80] for key in unknown[: _MOST_SHOWN - len(first)]]
        return count, tuple(first)

    def _places(self, batch: pa.RecordBatch, spelled: Spellings, images: int) -> NDArray[np.int64]:
        """The position of each row's image; -1 where it is none of these."""
        column = batch.column(self.columns.image)
        if column.null_count:
            raise UserError(f"model {self.name!r}: {self.path} has rows without a {self.columns.image}")
        if self.columns.image != ROW:
            found = (spelled.find(key) for key in column.to_pylist())
            return np.array([-1 if place is None else place for place in found], dtype=np.int64)
        rows = column.to_numpy(zero_copy_only=False)
        if rows.size and (rows.min() < 0 or rows.max() >= images):
            wrong = rows[(rows < 0) | (rows >= images)][0]
            raise UserError(f"model {self.name!r}: {self.path} has row {wrong:,}, and there are {images:,} images")
        return rows

    def _scores(self, batch: pa.RecordBatch) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(b, num_classes) logits, and which rows have an answer at all."""
        if self.columns.answer is not None:
            labels = batch.column(self.columns.answer).to_pylist()
            scores = np.zeros((len(labels), self.num_classes), dtype=np.float32)
            found = (None if one is None else self.classes.find(one) for one in labels)
            outputs = [self.num_classes - 1 if one is None else one for one in found]
            scores[np.arange(len(labels)), outputs] = _CERTAIN
            return scores, np.array([one is not None for one in labels], dtype=bool)
        values = _numbers(batch, self.columns.scores)
        # A row that scores no class at all, or each at minus infinity, answers nothing.
        answered = np.asarray((values > -np.inf).any(axis=1))
        wrong = np.flatnonzero(answered & (np.isnan(values) | (values == np.inf)).any(axis=1))
        if wrong.size:
            image = batch.column(self.columns.image)[int(wrong[0])].as_py()
            raise UserError(
                f"model {self.name!r}: {self.path} has a score that is not a number for {str(image)[:80]!r}"
            )
        if self.probabilities:
            with np.errstate(divide="ignore"):
                values = np.log(values)
        return np.maximum(np.nan_to_num(values, nan=_NEVER), _NEVER).astype(np.float32), answered


_CANNOT = "model {!r} is a file of predictions: it cannot score images that it has not seen"


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Return what the file answers with: its columns of scores, or the dataset's classes where it holds labels.

    Raises UserError for a file that is none, and for labels that are not these classes' names or ids.
    """
    path = named_path(name.removeprefix(PREFIX))
    columns = read_columns(path, name)
    if columns.answer is None:
        named = {as_cell(one.name): one.name for one in classes} | {one.name: one.name for one in classes}
        scores = tuple(named.get(score, score) for score in columns.scores)
        return ClassifierFacts(name, str(path), "predictions", len(scores), scores)
    # A label that is no class would score nought silently; one that is nearly a class, nought for one class.
    assert columns.answer is not None
    spelled = _spelled_classes(classes, columns.answer)
    labels: set[str] = set()
    for batch in read_batches(path, name, columns):
        labels |= {*batch.column(columns.answer).unique().to_pylist()} - {None}
        if len(labels) > _MOST_LABELS:
            raise UserError(f"model {name!r}: {path} has more than {_MOST_LABELS:,} different labels")
    found = {label: spelled.find(label) for label in sorted(labels)}
    several = [label for label, output in found.items() if output == Spellings.SEVERAL]
    if several:
        raise UserError(
            f"model {name!r}: {path} has the {columns.answer} {several[0][:80]!r}, which is the name of two classes of"
            " the dataset",
            "Write the column class_id, with ids as evaluate --write-keys FILE lists them.",
        )
    missing = [one for output, one in enumerate(classes) if output not in found.values()]
    unknown = [label for label, output in found.items() if output is None]
    close = [nearest(one.name.casefold(), [label.casefold() for label in unknown]) for one in missing[:MOST_LINES]]
    none_known = len(unknown) == len(found)
    if unknown and missing and (none_known or (columns.answer == "label" and any(close))):
        raise UserError(
            f"model {name!r}: {path} never predicts {len(missing)} of {len(classes)} classes, and has unknown values in"
            f" its column {columns.answer}\n" + "\n".join(side_by_side(missing, unknown, ())),
            "Write the names of the dataset's classes as label, or their ids as class_id, as evaluate --write-keys FILE"
            " lists them.",
        )
    outputs = (*unique_names(classes), ANOTHER)
    return ClassifierFacts(name, str(path), "predictions", len(outputs), outputs, most_ranked=1, of_classes=True)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> RecordedClassifier:
    """Load the file as a classifier that looks at no image. Raises as `describe`."""
    facts = describe(name, classes)
    path = named_path(name.removeprefix(PREFIX))
    columns = read_columns(path, name)
    return RecordedClassifier(
        name=name,
        architecture=facts.architecture,
        num_classes=facts.num_classes,
        label_names=facts.label_names,
        param_count=None,
        sha256=file_sha256(path, name),
        input_key="predictions",
        input_size=None,
        crop_pct=None,
        interpolation=None,
        kept=False,
        path=path,
        columns=columns,
        classes=_spelled_classes(classes, columns.answer or ""),
        probabilities=columns.answer is None
        and all(_sum_to_one(_numbers(batch, columns.scores)) for batch in read_batches(path, name, columns)),
    )


def _sum_to_one(values: NDArray[np.float64]) -> bool:
    whole = values[(values > -np.inf).any(axis=1)]
    return bool((whole >= 0).all() and (np.abs(whole.sum(axis=1) - 1) <= _SUM_OF_ONE).all())


def _numbers(batch: pa.RecordBatch, names: Sequence[str]) -> NDArray[np.float64]:
    """(b, columns) of scores; NaN where there is none."""
    place = {name: at for at, name in enumerate(batch.schema.names)}
    columns: Iterator[Any] = (batch.column(place[name]).to_numpy(zero_copy_only=False) for name in names)
    return np.stack(list(columns), axis=1).astype(np.float64)


# Scores of 1,000 classes for 250,000 images as float32.
MOST_BYTES = 1 << 30
MOST_COLUMNS = 100_000
_MOST_HEADER_BYTES = 1 << 24
# What the values of one batch may take; a column chunk of Parquet may unfold to no more either.
_BATCH_BYTES = 1 << 26
_MOST_UNFOLDED = 1 << 30
_MOST_ROWS_A_BATCH = 8_192
_LONGEST_TEXT = 10_000

PATH, ROW = "path", "row"
KEYS = ("key", PATH, ROW)
ANSWERS = ("label", "class_id")
# What tables hold beside scores: an index that was saved along, or what somebody made of the scores.
_NO_SCORES = frozenset(
    {"index", "shift", "split", "prediction", "confidence", "probability", "score", "correct", "right", "class"}
)
# An index as pandas and spreadsheets save it; no class is called so.
_UNNAMED = re.compile(r"\s*(unnamed: \d+|__index_level_\d+__)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class PredictionColumns:
    """What a file's columns are: the one that tells the image, the one that answers, or the names of the scores.

    `written` has what the file calls the first two, where that is not so.
    """

    image: str
    answer: str | None
    scores: tuple[str, ...]
    written: Mapping[str, str]


def read_columns(path: Path, model: str) -> PredictionColumns:
    """The columns of a file of predictions. UserError for one that is none, with what was expected."""
    import pyarrow.parquet as pq

    with _opened(path, model) as file:
        names = _csv_form(file).columns if _is_csv(path) else pq.ParquetFile(file).schema_arrow.names
    return _checked(names, path, model)


def read_batches(path: Path, model: str, columns: PredictionColumns) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded size: the image's key as text or row as int64, the answer as text, scores float64.

    UserError where a value is none of these.
    """
    import pyarrow as pa

    kinds = {columns.image: pa.int64() if columns.image == ROW else pa.string()}
    kinds |= {columns.answer: pa.string()} if columns.answer else dict.fromkeys(columns.scores, pa.float64())
    types = {columns.written.get(name, name): type for name, type in kinds.items()}
    with _opened(path, model) as file:
        for batch in _csv(file, types) if _is_csv(path) else _parquet(file, types, path, model, columns):
            # By place: to find a column by its name looks at all before it.
            place = {name: at for at, name in enumerate(batch.schema.names)}
            whole = pa.RecordBatch.from_arrays(
                [batch.column(place[name]).cast(type) for name, type in types.items()], list(kinds)
            )
            whole.validate(full=True)  # text that is no UTF-8 is refused here
            yield whole


def file_sha256(path: Path, model: str) -> str:
    """SHA-256 of the file."""
    with _opened(path, model) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(columns: Sequence[str], path: Path, model: str) -> PredictionColumns:
    names = [name for name in columns if not _UNNAMED.fullmatch(name)]
    images = _called(KEYS, names)
    rest = [name for name in names if name not in images.values()]
    answers = _called(ANSWERS, rest) if len(rest) == 1 else {name: name for name in rest if name in ANSWERS}
    others = [name for name in rest if name not in answers.values()]
    repeated = [name for name, times in Counter(names).items() if times > 1]
    shown = ", ".join(repr(name[:40]) for name in names[:8]) + (" …" if len(names) > 8 else "")
    if len(names) > MOST_COLUMNS:
        raise UserError(f"model {model!r}: {path} has {len(names):,} columns, expected at most {MOST_COLUMNS:,}")
    if repeated:
        raise UserError(f"model {model!r}: {path} has the column {repeated[0][:40]!r} more than once")
    if (len(images) != 1 and {*images} != {"key", PATH}) or len(answers) > 1 or bool(answers) == bool(others):
        if not images:
            hint = "Call the column of the images key or path, as evaluate --write-keys FILE does."
        elif not rest:
            hint = "Add the answers."
        else:
            hint = "If the file has both scores and a label, remove the label: it may be the true one."
        raise UserError(
            f"model {model!r}: {path} has the columns {shown}; expected key (or path or row), then label, or class_id,"
            " or a column of scores a class, and no others",
            hint,
        )
    odd = [name for name in others if name.strip().casefold() in _NO_SCORES]
    if odd:
        raise UserError(
            f"model {model!r}: {path} has the column {odd[0][:40]!r} among its scores, which is not a class",
            "If it holds the answers, call it label (names of classes) or class_id; else remove it.",
        )
    image = "key" if "key" in images else next(iter(images))
    return PredictionColumns(image, next(iter(answers), None), tuple(others), images | answers)


def _called(wanted: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Those of the wanted columns that there are, and what the file calls them: exactly so, else without case."""
    exact = {name: name for name in wanted if name in names}
    return exact or {name.strip().casefold(): name for name in names if name.strip().casefold() in wanted}


@dataclass(frozen=True)
class _CsvForm:
    """How a CSV file is written: columns, encoding, delimiter, decimal point, and whether spaces follow delimiters."""

    columns: list[str]
    encoding: str
    delimiter: str
    decimal: str
    spaced: bool


_DELIMITERS = (",", ";", "\t")
_LOOKED_AT = 100  # rows
_FRACTION = r"\s*[+-]?\d*{}\d+(e[+-]?\d+)?\s*"
_WITH_COMMA, _WITH_POINT = (re.compile(_FRACTION.format(mark), re.IGNORECASE) for mark in (",", r"\."))


def _csv_form(file: BufferedReader) -> _CsvForm:
    """The form of a CSV file, which is at its beginning before and after. ValueError for what is no such text."""
    head = file.read(_MOST_HEADER_BYTES)
    file.seek(0)
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError("it is neither UTF-8 nor UTF-16 text with its mark; save it as CSV in UTF-8")
    ways = {
        mark: list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=mark), _LOOKED_AT))
        for mark in _DELIMITERS
    }
    if not ways[","]:
        raise ValueError("it is empty")
    delimiter = next((mark for mark in _DELIMITERS if _called(KEYS, ways[mark][0])), ",")
    header, *rows = ways[delimiter]
    if not rows and len(head) == _MOST_HEADER_BYTES:
        raise ValueError(f"its header has more than {_MOST_HEADER_BYTES:,} bytes")
    cells = [cell for row in rows for cell in row] if delimiter != "," else []
    comma = any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    spaced = len(header) > 1 and all(cell.startswith(" ") for cell in header[1:])
    columns = [cell.lstrip(" ") for cell in header] if spaced else header
    return _CsvForm(columns, encoding.removesuffix("-sig"), delimiter, "," if comma else ".", spaced)


def _csv(file: BufferedReader, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    form = _csv_form(file)
    if form.spaced:
        yield from _spaced_csv(file, form, types)
        return
    # Columns that are not read may have one name, or none.
    names = [name if name in types else f"\0{place}" for place, name in enumerate(form.columns)]
    try:
        reader = pc.open_csv(
            file,
            read_options=pc.ReadOptions(
                block_size=_MOST_HEADER_BYTES, encoding=form.encoding, column_names=names, skip_rows_after_names=1
            ),
            parse_options=pc.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                strings_can_be_null=True,
                null_values=[""],
                decimal_point=form.decimal,
            ),
        )
        for batch in reader:
            for start in range(0, batch.num_rows, _MOST_ROWS_A_BATCH):
                yield batch.slice(start, _MOST_ROWS_A_BATCH)
    except pa.ArrowInvalid as error:
        said = re.sub(r"CSV column #(\d+)", lambda at: f"column {form.columns[int(at[1])][:40]!r}", str(error))
        raise ValueError(said) from error


def _spaced_csv(file: BufferedReader, form: _CsvForm, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV whose delimiters are followed by spaces, which pyarrow takes for part of a text."""
    import pyarrow as pa

    text = io.TextIOWrapper(file, form.encoding, newline="")
    reader = csv.reader(text, delimiter=form.delimiter, skipinitialspace=True)
    next(reader)
    place = {name: at for at, name in enumerate(form.columns)}
    while rows := [row for row in islice(reader, _rows_a_batch(len(form.columns))) if row]:
        wrong = next((row for row in rows if len(row) != len(form.columns)), None)
        if wrong is not None:
            raise ValueError(
                f"expected {len(form.columns)} columns, got {len(wrong)}, in a row before {reader.line_num}"
            )
        arrays = []
        for name, type in types.items():
            cells = [row[place[name]].strip() or None for row in rows]
            if type == pa.float64():
                cells = [None if cell is None else cell.replace(form.decimal, ".") for cell in cells]
            arrays.append(pa.array(cells, pa.string()))
        yield pa.RecordBatch.from_arrays(arrays, list(types))


def _rows_a_batch(columns: int) -> int:
    return max(1, min(_MOST_ROWS_A_BATCH, _BATCH_BYTES // (8 * columns)))


def _parquet(
    file: BufferedReader, types: dict[str, pa.DataType], path: Path, model: str, columns: PredictionColumns
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name, type in types.items() if type == pa.string()]
    answer = columns.written.get(columns.answer or "")
    # A text that stands in many rows is held once, and looked at before it is written out for each.
    table = pq.ParquetFile(file, read_dictionary=texts)
    kinds = dict(zip(table.schema_arrow.names, table.schema_arrow.types, strict=True))
    for name, type in types.items():
        found = kinds[name]
        numeric = pa.types.is_integer(found) or (pa.types.is_floating(found) and type != pa.int64())
        coded = pa.types.is_dictionary(found) and pa.types.is_string(found.value_type)
        text = pa.types.is_string(found) or pa.types.is_large_string(found) or coded
        if numeric and name == answer:
            texts.remove(name)  # what pandas makes of names or ids that are numbers
        elif not (text if type == pa.string() else numeric):
            wanted = "text" if type == pa.string() else "whole numbers" if type == pa.int64() else "numbers"
            raise UserError(f"model {model!r}: {path}: column {name[:40]!r} is {found}, expected {wanted}")
    for group in range(table.metadata.num_row_groups):
        for place in range(table.metadata.num_columns):
            unfolded = table.metadata.row_group(group).column(place).total_uncompressed_size
            if unfolded > _MOST_UNFOLDED:
                raise UserError(
                    f"model {model!r}: {path} has a column of {unfolded:,} uncompressed bytes, too many to read"
                )
    for batch in table.iter_batches(batch_size=_rows_a_batch(len(types)), columns=list(types)):
        for name in texts:
            if (longest := longest_text(batch.column(name))) > _LONGEST_TEXT:
                raise UserError(
                    f"model {model!r}: {path}: column {name!r} has a text of {longest:,} letters, expected at most"
                    f" {_LONGEST_TEXT:,}"
                )
        yield batch


def longest_text(column: Any) -> int:
    """The bytes of the longest text of a column, which may hold each text once."""
    import pyarrow as pa
    import pyarrow.compute

    functions: Any = pyarrow.compute
    kept = column.dictionary if pa.types.is_dictionary(column.type) else column
    return functions.max(functions.binary_length(kept)).as_py() or 0


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() in (".csv", ".tsv")


@contextmanager
def _opened(path: Path, model: str) -> Iterator[BufferedReader]:
    """The file, open; what it is not, and what its reader raises, is an error in words."""
    import pyarrow as pa

    if path.suffix.lower() not in (".csv", ".tsv", ".parquet"):
        raise UserError(f"model {model!r}: {path} is not a file of predictions: expected .parquet or .csv")
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
            yield file
    except FileNotFoundError as error:
        raise UserError(f"model {model!r}: there is no file {path}", "Correct the path.") from error
    except UnfitFile as error:
        raise UserError(f"model {model!r}: {path} {error.strerror}") from error
    except (pa.ArrowException, csv.Error, ValueError, OverflowError) as error:
        raise UserError(f"model {model!r}: {path} cannot be read: {one_line(error)}") from error
    except OSError as error:
        raise RunFailure(f"model {model!r}: {path} cannot be read: {error.strerror or error}") from error
