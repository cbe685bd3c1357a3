"""Answers that a model gave elsewhere: `predictions:FILE`, Parquet or CSV, that anybody may have written.

One column tells the image: `key` (a key, or a path below a folder), `path`, or `row` (its place in the dataset, from
0); where `key` and `path` both stand there, `key` does. Beside it stands the answer: `label` (a class's name),
`class_id`, or one column of scores a class. Nothing else may stand there: the label of a table that a dataset brings is
the truth, not an answer. Columns are read first, then rows in batches.

The file answers by key or path and cannot score images that it has not seen. Scores a class are matched to classes by
their columns' names; they are taken for probabilities where every row sums to one, else for logits. A file of labels
ranks no second answer, so its top-k is its top-1, and tells no confidence: its answers count as certain. A label that
is no class of the dataset is a wrong answer.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
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


@dataclass(frozen=True, kw_only=True)
class RecordedClassifier(Classifier):
    """A file of predictions. `outputs_of` maps plain labels to outputs where it holds labels; its scores else."""

    path: Path
    columns: PredictionColumns
    outputs_of: dict[str, int]
    probabilities: bool

    def transform(self) -> Callable[[Any], Any]:
        raise UserError(_CANNOT.format(self.name))

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        raise UserError(_CANNOT.format(self.name))

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded:
        """The scores of those images that the file answers, as it lists them. UserError for what is no answer."""
        import torch

        # A table that this package wrote may have its path as a spreadsheet's text.
        place = {as_cell(path): position for position, path in enumerate(paths or ())}
        place |= {path: position for position, path in enumerate(paths or ())}
        place |= {key: position for position, key in enumerate(keys)}
        for batch in read_batches(self.path, self.name, self.columns):
            at = self._places(batch, place, len(keys))
            scores, answered = self._scores(batch)
            found = (at >= 0) & answered
            if found.any():
                yield at[found], torch.from_numpy(scores[found])

    def unknown_keys(self, known: Collection[str]) -> tuple[int, tuple[str, ...]]:
        """How many rows of the file are of none of these images, and the first few of their keys; it tells keys."""
        count, first = 0, []
        for batch in read_batches(self.path, self.name, self.columns):
            unknown = [str(key) for key in batch.column(self.columns.image).to_pylist() if key not in known]
            count += len(unknown)
            first += [key[:80] for key in unknown[: _MOST_SHOWN - len(first)]]
        return count, tuple(first)

    def _places(self, batch: pa.RecordBatch, place: dict[str, int], images: int) -> NDArray[np.int64]:
        """The position of each row's image; -1 where it is none of these."""
        column = batch.column(self.columns.image)
        if column.null_count:
            raise UserError(f"model {self.name!r}: {self.path} has rows without a {self.columns.image}")
        if self.columns.image != ROW:
            return np.array([place.get(key, -1) for key in column.to_pylist()], dtype=np.int64)
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
            last = self.num_classes - 1
            outputs = [last if one is None else self.outputs_of.get(plain_name(one), last) for one in labels]
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
    """What the file answers with: its columns of scores, or the dataset's classes where it holds labels.

    Raises UserError for a file that is none, and for labels that are not these classes' names or ids.
    """
    path = named_path(name.removeprefix(PREFIX))
    columns = read_columns(path, name)
    if columns.answer is None:
        return ClassifierFacts(name, str(path), "predictions", len(columns.scores), columns.scores)
    _refuse_other_labels(name, path, columns, classes)
    outputs = (*unique_names(classes), ANOTHER)
    return ClassifierFacts(name, str(path), "predictions", len(outputs), outputs, most_ranked=1)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> RecordedClassifier:
    """The file as a classifier that looks at no image. Raises as `describe`."""
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
        outputs_of=_outputs_of(columns, classes),
        probabilities=columns.answer is None and _are_probabilities(name, path, columns),
    )


def _outputs_of(columns: PredictionColumns, classes: Sequence[RecipeClass]) -> dict[str, int]:
    """Plain label → output. A label is a class's name, or its id where no class is called so."""
    if columns.answer is None:
        return {}
    ids = {plain_name(one.id): output for output, one in enumerate(classes)}
    if columns.answer == "class_id":
        return ids
    return ids | {plain_name(one.name): output for output, one in enumerate(classes)}


def _refuse_other_labels(name: str, path: Path, columns: PredictionColumns, classes: Sequence[RecipeClass]) -> None:
    """UserError where labels cannot be told apart, where none is a class, or where one is nearly a class.

    The second would score nought silently, and the last nought for one class.
    """
    assert columns.answer is not None
    outputs = _outputs_of(columns, classes)
    if columns.answer == "label" and len({plain_name(one.name) for one in classes}) < len(classes):
        raise UserError(
            f"model {name!r}: two classes of the dataset have the same name, so a label is ambiguous",
            "Write the column class_id instead of label.",
        )
    found: dict[str, str] = {}
    for batch in read_batches(path, name, columns):
        for label in batch.column(columns.answer).unique().to_pylist():
            if label is not None:
                found.setdefault(plain_name(label), label)
        if len(found) > _MOST_LABELS:
            raise UserError(f"model {name!r}: {path} has more than {_MOST_LABELS:,} different labels")
    answered = {outputs[plain] for plain in found if plain in outputs}
    unknown = [label for plain, label in sorted(found.items()) if plain not in outputs]
    missing = [one for output, one in enumerate(classes) if output not in answered]
    close = [nearest(one.name.casefold(), [label.casefold() for label in unknown]) for one in missing[:MOST_LINES]]
    if unknown and missing and (not answered or (columns.answer == "label" and any(close))):
        raise UserError(
            f"model {name!r}: {path} never predicts {len(missing)} of {len(classes)} classes, and has unknown labels\n"
            + "\n".join(side_by_side(missing, unknown, ())),
            "Write the names or ids of the dataset's classes, as its recipe has them.",
        )


def _are_probabilities(name: str, path: Path, columns: PredictionColumns) -> bool:
    """Whether every row of scores has no negative and sums to one."""
    return all(_sum_to_one(_numbers(batch, columns.scores)) for batch in read_batches(path, name, columns))


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
    {"", "__index_level_0__", "unnamed: 0", "index", "shift", "split", "prediction", "confidence", "probability"}
    | {"score", "correct", "right", "class"}
)


@dataclass(frozen=True)
class PredictionColumns:
    """What a file's columns are: the one that tells the image, the one that answers, or the names of the scores."""

    image: str
    answer: str | None
    scores: tuple[str, ...]


def read_columns(path: Path, model: str) -> PredictionColumns:
    """The columns of a file of predictions. UserError for one that is none, with what was expected."""
    with _opened(path, model) as file:
        names = _names_of_columns(file, path)
    return _checked(names, path, model)


def read_batches(path: Path, model: str, columns: PredictionColumns) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded size: the image's key as text or row as int64, the answer as text, scores float64.

    UserError where a value is none of these.
    """
    import pyarrow as pa

    types = {columns.image: pa.int64() if columns.image == ROW else pa.string()}
    types |= {columns.answer: pa.string()} if columns.answer else dict.fromkeys(columns.scores, pa.float64())
    with _opened(path, model) as file:
        for batch in _csv(file, types) if _is_csv(path) else _parquet(file, types, path, model):
            # By place: to find a column by its name looks at all before it.
            place = {name: at for at, name in enumerate(batch.schema.names)}
            whole = pa.RecordBatch.from_arrays(
                [batch.column(place[name]).cast(type) for name, type in types.items()], list(types)
            )
            whole.validate(full=True)  # text that is no UTF-8 is refused here
            yield whole


def file_sha256(path: Path, model: str) -> str:
    """SHA-256 of the file."""
    with _opened(path, model) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(names: list[str], path: Path, model: str) -> PredictionColumns:
    expected = "key (or path or row), then label, or class_id, or a column of scores a class"
    repeated = [name for name, times in Counter(names).items() if times > 1]
    images, answers = [name for name in KEYS if name in names], [name for name in ANSWERS if name in names]
    others = [name for name in names if name not in (*KEYS, *ANSWERS)]
    shown = ", ".join(repr(name[:40]) for name in names[:8]) + (" …" if len(names) > 8 else "")
    if len(names) > MOST_COLUMNS:
        raise UserError(f"model {model!r}: {path} has {len(names):,} columns, expected at most {MOST_COLUMNS:,}")
    if repeated:
        raise UserError(f"model {model!r}: {path} has the column {repeated[0][:40]!r} more than once")
    if (len(images) != 1 and images != ["key", PATH]) or len(answers) > 1 or bool(answers) == bool(others):
        raise UserError(
            f"model {model!r}: {path} has the columns {shown}; expected {expected}, and no others",
            "If the file has both scores and a label, remove the label: it may be the true one.",
        )
    odd = [name for name in others if name.casefold() in _NO_SCORES]
    if odd:
        raise UserError(
            f"model {model!r}: {path} has the column {odd[0][:40]!r} among its scores, which is not a class",
            "Remove it (in pandas: index=False).",
        )
    return PredictionColumns(images[0], answers[0] if answers else None, tuple(others))


def _names_of_columns(file: BufferedReader, path: Path) -> list[str]:
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    if not _is_csv(path):
        return list(pq.ParquetFile(file).schema_arrow.names)
    header = file.readline(_MOST_HEADER_BYTES)
    return list(pc.read_csv(io.BytesIO(header if header.endswith(b"\n") else header + b"\n")).column_names)


def _csv(file: BufferedReader, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as pc

    reader = pc.open_csv(
        file,
        read_options=pc.ReadOptions(block_size=_MOST_HEADER_BYTES),
        convert_options=pc.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""]),
    )
    for batch in reader:
        for start in range(0, batch.num_rows, _MOST_ROWS_A_BATCH):
            yield batch.slice(start, _MOST_ROWS_A_BATCH)


def _parquet(file: BufferedReader, types: dict[str, pa.DataType], path: Path, model: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name, type in types.items() if type == pa.string()]
    # A text that stands in many rows is held once, and looked at before it is written out for each.
    table = pq.ParquetFile(file, read_dictionary=texts)
    kinds = dict(zip(table.schema_arrow.names, table.schema_arrow.types, strict=True))
    for name, type in types.items():
        found = kinds[name]
        numeric = pa.types.is_integer(found) or (pa.types.is_floating(found) and type != pa.int64())
        text = pa.types.is_string(found) or pa.types.is_large_string(found) or _is_coded_text(found)
        if not (text if type == pa.string() else numeric):
            wanted = "text" if type == pa.string() else "whole numbers" if type == pa.int64() else "numbers"
            raise UserError(f"model {model!r}: {path}: column {name[:40]!r} is {found}, expected {wanted}")
    for group in range(table.metadata.num_row_groups):
        for place in range(table.metadata.num_columns):
            unfolded = table.metadata.row_group(group).column(place).total_uncompressed_size
            if unfolded > _MOST_UNFOLDED:
                raise UserError(
                    f"model {model!r}: {path} has a column of {unfolded:,} uncompressed bytes, too many to read"
                )
    rows = max(1, min(_MOST_ROWS_A_BATCH, _BATCH_BYTES // (8 * len(types))))
    for batch in table.iter_batches(batch_size=rows, columns=list(types)):
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


def _is_coded_text(type: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_dictionary(type) and pa.types.is_string(type.value_type)


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


@contextmanager
def _opened(path: Path, model: str) -> Iterator[BufferedReader]:
    """The file, open; what it is not, and what its reader raises, is an error in words."""
    import pyarrow as pa

    if path.suffix.lower() not in (".csv", ".parquet"):
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
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UserError(f"model {model!r}: {path} cannot be read: {one_line(error)}") from error
    except OSError as error:
        raise RunFailure(f"model {model!r}: {path} cannot be read: {error.strerror or error}") from error
