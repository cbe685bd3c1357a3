"""Read a model's answers from a file of predictions: `predictions:FILE`, Parquet or CSV. The file is not trusted.

One column names the image: `key` (a key, or a path below a folder), `path`, or `row` (the image's index in the dataset,
from 0). The answer is a column `label` (a class's name) or `class_id`, or a column of scores for each class: these are
probabilities if every row sums to one, else logits. A label has a probability of 1, and is wrong if it is no class.

Changes by spreadsheets and pandas are read if they are unambiguous: other delimiters, UTF-16, a decimal comma, `Path`,
`.\\red\\1.jpg`, `7` for the class `007`, and the `'` that `documents.as_cell` puts before a formula.
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
from typing import IO, TYPE_CHECKING, Any

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
    unique_output_names,
)
from counterfoil.models.loading_errors import error_line
from counterfoil.recipe.names import PREDICTIONS, nearest, plain_name
from counterfoil.regular_files import UnfitFile, named_path, open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from counterfoil.recipe.prompts import RecipeClass

# The output for every label that is no class of the dataset.
ANOTHER = "(another label)"
_MOST_LABELS = 1_000_000
_MOST_SHOWN = 5
# The logit of a label. Its softmax is exactly 1 in float32.
_CERTAIN = 100.0
_SUM_OF_ONE = 1e-3
# The logit of a probability of 0. It is below the logits of models.
_NEVER = -1e4


class Spellings:
    """Find images or classes by texts from a file. Texts are normalised in several ways; the first match is taken."""

    SEVERAL = -1

    def __init__(self, *ways: tuple[Callable[[str], str | None], Iterable[tuple[int, str]]]) -> None:
        """ways: pairs of a function that normalises a text, or returns None, and the numbered names to find."""
        self._ways: list[tuple[Callable[[str], str | None], dict[str, int]]] = []
        for spell, named in ways:
            numbers: dict[str, int] = {}
            for number, name in named:
                for spelled in (spell(name), spell(as_cell(name))):
                    if spelled is not None and numbers.setdefault(spelled, number) != number:
                        numbers[spelled] = self.SEVERAL
            self._ways.append((spell, numbers))

    def find(self, text: str) -> int | None:
        """Return the number of the name that matches, SEVERAL if names of several numbers match, or None."""
        for spell, numbers in self._ways:
            spelled = spell(text)
            if spelled is not None and spelled in numbers:
                return numbers[spelled]
        return None


def spelled_images(keys: Sequence[str], paths: Sequence[str]) -> Spellings:
    """Return the spellings of images: their keys, then their paths below a folder."""
    by_path = [*enumerate(paths)]
    return Spellings((str, enumerate(keys)), (str, by_path), (_plain_path, by_path))


def _plain_path(path: str) -> str:
    """Remove `./`, and normalise slashes and accents."""
    parts = unicodedata.normalize("NFC", path).replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def _spelled_classes(classes: Sequence[RecipeClass], column: str) -> Spellings:
    """Return the spellings of classes in a column. Numbers are ids only if no class has a number as its name."""
    ids = [(output, label.id) for output, label in enumerate(classes)]
    names = [(output, label.name) for output, label in enumerate(classes)] if column == "label" else []
    numbered = names if any(_number(name) for _, name in names) else ids
    return Spellings((str, names), (str, ids), (_plain, names), (_plain, ids), (_number, numbered))


def _plain(name: str) -> str:
    return plain_name(unicodedata.normalize("NFC", name))


_INTEGER = re.compile(r"([+-]?[0-9]{1,18})(\.0*)?")


def _number(text: str) -> str | None:
    """Normalise a whole number: `007` and `7.0` become `7`. Return None for any other text."""
    match = _INTEGER.fullmatch(text.strip())
    return None if match is None else str(int(match[1]))


@dataclass(frozen=True, kw_only=True)
class RecordedClassifier(Classifier):
    """A file of predictions. classes: map labels to outputs, if the file has labels."""

    path: Path
    columns: PredictionColumns
    classes: Spellings
    probabilities: bool

    def transform(self) -> Callable[[Any], Any]:
        raise UserError(_CANNOT.format(self.name))

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        raise UserError(_CANNOT.format(self.name))

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded:
        """Yield scores of the images that have an answer, in file order. Raise UserError for an invalid answer."""
        images, known, first = spelled_images(keys, paths or ()), 0, []
        for batch in read_prediction_batches(self.path, self.name, self.columns):
            rows = self._image_rows(batch, images, len(keys))
            scores, answered = self._scores(batch)
            known += int((rows >= 0).sum())
            first += batch.column(self.columns.image).slice(0, _MOST_SHOWN - len(first)).to_pylist()
            usable = (rows >= 0) & answered
            if usable.any():
                yield rows[usable], scores[usable]
        if keys and first and not known:
            in_file, expected = (
                ", ".join(repr(name[:80]) for name in names) for names in (first, (paths or keys)[:_MOST_SHOWN])
            )
            raise UserError(
                f"model {self.name!r}: no {self.columns.image} of {self.path} is an image of these\n"
                f"  there: {in_file}\n  expected: {expected}",
                "evaluate --write-keys FILE lists all keys and paths.",
            )

    def unknown_keys(self, known: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """Count the rows whose keys are not known, and return the first few of these keys."""
        count, first, images = 0, [], spelled_images((), [*known])
        for batch in read_prediction_batches(self.path, self.name, self.columns):
            keys = batch.column(self.columns.image).to_pylist()
            unknown = [str(key) for key in keys if images.find(key) is None]
            count += len(unknown)
            first += [key[:80] for key in unknown[: _MOST_SHOWN - len(first)]]
        return count, tuple(first)

    def _image_rows(self, batch: pa.RecordBatch, spelled: Spellings, images: int) -> NDArray[np.int64]:
        """Return the index of each row's image, or -1 for an unknown image."""
        column = batch.column(self.columns.image)
        if column.null_count:
            raise UserError(f"model {self.name!r}: {self.path} has rows without a {self.columns.image}")
        if self.columns.image != ROW:
            numbers = (spelled.find(key) for key in column.to_pylist())
            return np.array([-1 if number is None else number for number in numbers], dtype=np.int64)
        rows = column.to_numpy(zero_copy_only=False)
        if rows.size and (rows.min() < 0 or rows.max() >= images):
            wrong = rows[(rows < 0) | (rows >= images)][0]
            raise UserError(f"model {self.name!r}: {self.path} has row {wrong:,}, and there are {images:,} images")
        return rows

    def _scores(self, batch: pa.RecordBatch) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return logits (b, num_classes), and whether each row has an answer (b,)."""
        if self.columns.answer is not None:
            labels = batch.column(self.columns.answer).to_pylist()
            scores = np.zeros((len(labels), self.num_classes), dtype=np.float32)
            for row, label in enumerate(labels):
                output = None if label is None else self.classes.find(label)
                scores[row, self.num_classes - 1 if output is None else output] = _CERTAIN
            return scores, np.array([label is not None for label in labels], dtype=bool)
        values = _numbers(batch, self.columns.scores)
        # A row has no answer if every score is missing or minus infinity.
        answered = np.asarray((values > -np.inf).any(axis=1))
        wrong = np.flatnonzero(answered & (np.isnan(values) | (values == np.inf)).any(axis=1))
        if wrong.size:
            image = batch.column(self.columns.image)[int(wrong[0])].as_py()
            column = self.columns.scores[int(np.isfinite(values[wrong[0]]).argmin())]
            raise UserError(
                f"model {self.name!r}: {self.path} has a score that is not a number for {str(image)[:80]!r}, in column"
                f" {column[:80]!r}",
                "Write a score for each image and each class.",
            )
        if self.probabilities:
            with np.errstate(divide="ignore"):
                values = np.log(values)
        return np.maximum(np.nan_to_num(values, nan=_NEVER), _NEVER).astype(np.float32), answered


def refuse_by_row(classifier: Classifier, preview: int | None) -> None:
    """Raise UserError if a file identifies images by row and the dataset is a preview, which lacks rows."""
    if preview is not None and isinstance(classifier, RecordedClassifier) and classifier.columns.image == ROW:
        raise UserError(
            f"model {classifier.name!r} identifies images by row, and a preview does not have every row",
            "Identify images by key or path, or leave out the limit.",
        )


_CANNOT = "model {!r} is a file of predictions: it cannot score images that it has not seen"


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Return the file's outputs: its columns of scores, or the dataset's classes if it holds labels."""
    path = named_path(name.removeprefix(PREDICTIONS))
    columns = read_columns(path, name)
    if columns.answer is None:
        names = {as_cell(label.name): label.name for label in classes} | {label.name: label.name for label in classes}
        scores = tuple(names.get(score, score) for score in columns.scores)
        return ClassifierFacts(name, str(path), "predictions", len(scores), scores)
    # Unknown labels count as wrong. Without the checks below, a misspelled class would have an accuracy of 0.
    spelled = _spelled_classes(classes, columns.answer)
    labels: set[str] = set()
    for batch in read_prediction_batches(path, name, columns):
        labels |= {*batch.column(columns.answer).unique().to_pylist()} - {None}
        if len(labels) > _MOST_LABELS:
            raise UserError(f"model {name!r}: {path} has more than {_MOST_LABELS:,} different labels")
    output_of = {label: spelled.find(label) for label in sorted(labels)}
    several = [label for label, output in output_of.items() if output == Spellings.SEVERAL]
    if several:
        raise UserError(
            f"model {name!r}: {path} has the {columns.answer} {several[0][:80]!r}, which is the name of two classes of"
            " the dataset",
            "Write the column class_id, with ids as evaluate --write-keys FILE lists them.",
        )
    predicted = set(output_of.values())
    missing = [label for output, label in enumerate(classes) if output not in predicted]
    unknown = [label for label, output in output_of.items() if output is None]
    folded = [label.casefold() for label in unknown]
    close = [nearest(label.name.casefold(), folded) for label in missing[:MOST_LINES]]
    none_known = len(unknown) == len(output_of)
    if unknown and missing and (none_known or (columns.answer == "label" and any(close))):
        raise UserError(
            f"model {name!r}: {path} never predicts {len(missing)} of {len(classes)} classes, and has unknown values in"
            f" its column {columns.answer}\n" + "\n".join(side_by_side(missing, unknown, ())),
            "Write the names of the dataset's classes as label, or their ids as class_id, as evaluate --write-keys FILE"
            " lists them.",
        )
    outputs = (*unique_output_names(classes), ANOTHER)
    return ClassifierFacts(name, str(path), "predictions", len(outputs), outputs, most_ranked=1, of_classes=True)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> RecordedClassifier:
    facts = describe(name, classes)
    path = named_path(name.removeprefix(PREDICTIONS))
    columns = read_columns(path, name)
    probabilities = columns.answer is None
    for batch in read_prediction_batches(path, name, columns) if probabilities else ():
        values = _numbers(batch, columns.scores)
        whole = values[(values > -np.inf).any(axis=1)]
        sum_to_one = np.abs(whole.sum(axis=1) - 1) <= _SUM_OF_ONE
        probabilities = bool((whole >= 0).all() and sum_to_one.all())
        if not probabilities:
            break
    with _opened(path, name) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return RecordedClassifier(
        name=name,
        architecture=facts.architecture,
        num_classes=facts.num_classes,
        label_names=facts.label_names,
        sha256=sha256,
        input_key="predictions",
        kept=False,
        path=path,
        columns=columns,
        classes=_spelled_classes(classes, columns.answer or ""),
        probabilities=probabilities,
    )


def _numbers(batch: pa.RecordBatch, names: Sequence[str]) -> NDArray[np.float64]:
    """Return scores (b, columns), NaN for an empty cell."""
    index = {name: number for number, name in enumerate(batch.schema.names)}
    columns: Iterator[Any] = (batch.column(index[name]).to_numpy(zero_copy_only=False) for name in names)
    return np.stack(list(columns), axis=1).astype(np.float64)


# The size of the scores of 1,000 classes for 250,000 images as float32.
MOST_BYTES = 1 << 30
MOST_COLUMNS = 100_000
_MOST_HEADER_BYTES = 1 << 24
# The most bytes of the values in one batch.
_BATCH_BYTES = 1 << 26
_MOST_UNFOLDED = 1 << 30
_MOST_ROWS_A_BATCH = 8_192
_LONGEST_TEXT = 10_000

PATH, ROW = "path", "row"
KEYS = ("key", PATH, ROW)
ANSWERS = ("label", "class_id")
# Names of common columns that are not scores of a class.
_NO_SCORES = frozenset(
    {"index", "shift", "split", "prediction", "confidence", "probability", "score", "correct", "right", "class"}
)
# The names of an index in files of pandas and spreadsheets.
_UNNAMED = re.compile(r"\s*(unnamed: \d+|__index_level_\d+__)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class PredictionColumns:
    """The columns of a file: image, and answer or scores. written: image and answer column → name in the file."""

    image: str
    answer: str | None
    scores: tuple[str, ...]
    written: Mapping[str, str]


def read_columns(path: Path, model: str) -> PredictionColumns:
    import pyarrow.parquet as pq

    with _opened(path, model) as file:
        columns = csv_form(file, KEYS).columns if _is_csv(path) else pq.ParquetFile(file).schema_arrow.names
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


def read_prediction_batches(path: Path, model: str, columns: PredictionColumns) -> Iterator[pa.RecordBatch]:
    """Read rows in batches of bounded size: keys and answers as text, rows as int64, scores as float64."""
    import pyarrow as pa

    kinds = {columns.image: pa.int64() if columns.image == ROW else pa.string()}
    kinds |= {columns.answer: pa.string()} if columns.answer else dict.fromkeys(columns.scores, pa.float64())
    types = {columns.written.get(name, name): type for name, type in kinds.items()}
    with _opened(path, model) as file:
        for batch in _csv(file, types) if _is_csv(path) else _parquet(file, types, path, model, columns):
            # Columns are taken by index, because pyarrow searches all names for a column's name.
            index = {name: number for number, name in enumerate(batch.schema.names)}
            typed = pa.RecordBatch.from_arrays(
                [batch.column(index[name]).cast(type) for name, type in types.items()], list(kinds)
            )
            typed.validate(full=True)  # refuses text that is not UTF-8
            yield typed


def _called(wanted: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Map the wanted columns that exist to their names in the file. Case is ignored if no name is exact."""
    exact = {name: name for name in wanted if name in names}
    return exact or {name.strip().casefold(): name for name in names if name.strip().casefold() in wanted}


@dataclass(frozen=True)
class CsvForm:
    columns: list[str]
    encoding: str
    delimiter: str
    decimal: str
    spaced: bool


_DELIMITERS = (",", ";", "\t")
_LOOKED_AT = 100  # rows
_FRACTION = r"\s*[+-]?\d*{}\d+(e[+-]?\d+)?\s*"
_WITH_COMMA, _WITH_POINT = (re.compile(_FRACTION.format(mark), re.IGNORECASE) for mark in (",", r"\."))


def csv_form(file: IO[bytes], keys: Sequence[str]) -> CsvForm:
    """Read the format of a CSV file that has one of the columns `keys`, and go back to its beginning.

    Raise ValueError if it is not CSV.
    """
    head = file.read(_MOST_HEADER_BYTES)
    file.seek(0)
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError("it is neither UTF-8 nor UTF-16 text with its mark; save it as CSV in UTF-8")
    parsed = {
        mark: list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=mark), _LOOKED_AT))
        for mark in _DELIMITERS
    }
    if not parsed[","]:
        raise ValueError("it is empty")
    delimiter = next((mark for mark in _DELIMITERS if _called(keys, parsed[mark][0])), ",")
    header, *rows = parsed[delimiter]
    if not rows and len(head) == _MOST_HEADER_BYTES:
        raise ValueError(f"its header has more than {_MOST_HEADER_BYTES:,} bytes")
    cells = [cell for row in rows for cell in row] if delimiter != "," else []
    comma = any(map(_WITH_COMMA.fullmatch, cells)) and not any(map(_WITH_POINT.fullmatch, cells))
    spaced = len(header) > 1 and all(cell.startswith(" ") for cell in header[1:])
    columns = [cell.lstrip(" ") for cell in header] if spaced else header
    return CsvForm(columns, encoding.removesuffix("-sig"), delimiter, "," if comma else ".", spaced)


def _csv(file: BufferedReader, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    form = csv_form(file, KEYS)
    if form.spaced:
        yield from _spaced_csv(file, form, types)
        return
    # Columns that are not read may have equal names or no names.
    names = [name if name in types else f"\0{number}" for number, name in enumerate(form.columns)]
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
        message = re.sub(r"CSV column #(\d+)", lambda match: f"column {form.columns[int(match[1])][:40]!r}", str(error))
        if "conversion error to double" in message:
            message += "; each column but that of the image must have the scores of one class"
        raise ValueError(message) from error


def _spaced_csv(file: BufferedReader, form: CsvForm, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Read a CSV with spaces after its delimiters. pyarrow would read these spaces as parts of texts."""
    import pyarrow as pa

    text = io.TextIOWrapper(file, form.encoding, newline="")
    reader = csv.reader(text, delimiter=form.delimiter, skipinitialspace=True)
    next(reader)
    index = {name: number for number, name in enumerate(form.columns)}
    while rows := [row for row in islice(reader, _rows_a_batch(len(form.columns))) if row]:
        wrong = next((row for row in rows if len(row) != len(form.columns)), None)
        if wrong is not None:
            raise ValueError(
                f"expected {len(form.columns)} columns, got {len(wrong)}, in a row before {reader.line_num}"
            )
        arrays = []
        for name, type in types.items():
            cells = [row[index[name]].strip() or None for row in rows]
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
    # A dictionary holds a text of many rows once, and its length is checked before the text is repeated.
    table = pq.ParquetFile(file, read_dictionary=texts)
    kinds = dict(zip(table.schema_arrow.names, table.schema_arrow.types, strict=True))
    for name, type in types.items():
        kind = kinds[name]
        numeric = pa.types.is_integer(kind) or (pa.types.is_floating(kind) and type != pa.int64())
        coded = pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or coded
        if numeric and name == answer:
            texts.remove(name)  # pandas saves names and ids that are numbers as numbers
        elif not (text if type == pa.string() else numeric):
            wanted = {pa.string(): "text", pa.int64(): "whole numbers"}.get(type, "numbers")
            raise UserError(f"model {model!r}: {path}: column {name[:40]!r} is {kind}, expected {wanted}")
    for group in range(table.metadata.num_row_groups):
        for column in range(table.metadata.num_columns):
            unfolded = table.metadata.row_group(group).column(column).total_uncompressed_size
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
    import pyarrow as pa
    import pyarrow.compute

    functions: Any = pyarrow.compute
    texts = column.dictionary if pa.types.is_dictionary(column.type) else column
    return functions.max(functions.binary_length(texts)).as_py() or 0


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() in (".csv", ".tsv")


@contextmanager
def _opened(path: Path, model: str) -> Iterator[BufferedReader]:
    """Open a file of predictions. Raise UserError or RunFailure for any error in opening or reading it."""
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
        raise UserError(f"model {model!r}: {path} cannot be read: {error_line(error)}") from error
    except OSError as error:
        raise RunFailure(f"model {model!r}: {path} cannot be read: {error.strerror or error}") from error
