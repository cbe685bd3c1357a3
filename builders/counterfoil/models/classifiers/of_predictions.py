"""Answers that a model gave elsewhere: `predictions:FILE`, Parquet or CSV (`prediction_files` says what it holds).

The file answers by key or path and cannot score images that it has not seen. Scores a class are matched to classes by
their columns' names; they are taken for probabilities where every row sums to one, else for logits. A file of labels
ranks no second answer, so its top-k is its top-1, and tells no confidence: its answers count as certain. A label that
is no class of the dataset is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.csv_text import as_cell
from counterfoil.errors import UserError
from counterfoil.models.classifiers.class_names import MOST_LINES, plain_name, side_by_side, unique_names
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, Recorded
from counterfoil.models.prediction_files import ROW, PredictionColumns, file_sha256, read_batches, read_columns
from counterfoil.recipe.names import nearest
from counterfoil.regular_files import named_path

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
            raise UserError(f"model {self.name!r}: {self.path} has a score that is no number for {str(image)[:80]!r}")
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
            f"model {name!r}: two classes of the dataset have one name, so a label does not tell which is meant",
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
            f"model {name!r}: {path} never answers {len(missing)} of {len(classes)} classes, and has other labels\n"
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
