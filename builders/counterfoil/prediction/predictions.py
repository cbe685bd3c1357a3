"""Store one model's answers to every image of a dataset in a Parquet cache, complete or in parts.

The key of a cache entry depends on the data files, weights, input transform, class map and versions. While a pass runs,
each model has a folder next to its future entry, with a file for every finished stretch of images. A later run takes
these files up to the first one that is missing or damaged.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.foreign_tables import parquet_bytes
from counterfoil.regular_files import open_regular
from counterfoil.store.atomic import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

    from counterfoil.models.classifiers import Classifier
    from counterfoil.prediction.class_map import ClassMap

# Raise this number when the meaning of a column changes. Older entries are then ignored.
_FORMAT = 2
_KEY = b"counterfoil_key"
# The number of answers that are kept for each image, best first. A model with fewer outputs has fewer answers.
RANKED = 10


@dataclass(frozen=True)
class Predictions:
    """A model's answers to n images, in the order of the images.

    readable: (n,) bool; if False, the other columns of the row mean nothing. answers: (n, k) int32, the k best outputs,
    best first. shares: (n, k) float32, the confidence in these outputs, over the outputs that an answer is chosen from
    (`ClassMap.answering`); NaN if the scale of the scores is unknown. correct, correct_top_k: (n,) bool, by the class
    map. true_confidence: (n,) confidence, summed over the right outputs. correct_otherwise: (n,) bool, whether the
    answer is correct if it is chosen from the other set of outputs (`ClassMap.leads`), if there are two sets. logits:
    (n, outputs) float64, if requested; -inf at outputs that are never an answer. tied: (n,) bool, whether the two best
    scores are equal, if it is known.
    """

    readable: NDArray[np.bool_]
    answers: NDArray[np.int32]
    shares: NDArray[np.float32]
    correct: NDArray[np.bool_]
    correct_top_k: NDArray[np.bool_]
    true_confidence: NDArray[np.float32]
    logits: NDArray[np.float64] | None = None
    correct_otherwise: NDArray[np.bool_] | None = None
    tied: NDArray[np.bool_] | None = None

    @classmethod
    def empty(cls, n: int, ranked: int = 1, outputs: int | None = None, both_ways: bool = False) -> Predictions:
        """Return empty answers to n images. If `outputs` is given, they include logits."""
        return cls(
            readable=np.zeros(n, dtype=bool),
            answers=np.full((n, ranked), -1, dtype=np.int32),
            shares=np.zeros((n, ranked), dtype=np.float32),
            correct=np.zeros(n, dtype=bool),
            correct_top_k=np.zeros(n, dtype=bool),
            true_confidence=np.zeros(n, dtype=np.float32),
            logits=None if outputs is None else np.zeros((n, outputs)),
            correct_otherwise=np.zeros(n, dtype=bool) if both_ways else None,
        )

    @property
    def prediction(self) -> NDArray[np.int32]:
        return self.answers[:, 0]

    @property
    def confidence(self) -> NDArray[np.float32]:
        return self.shares[:, 0]

    def rows(self, start: int, stop: int) -> Predictions:
        return Predictions(**{name: values[start:stop] for name, values in self.columns().items()})

    def columns(self) -> dict[str, NDArray]:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: values for name, values in columns.items() if values is not None}

    def fill(self, rows: slice | NDArray[np.int64], columns: Mapping[str, NDArray]) -> None:
        """Set these rows of the columns. Columns that these answers do not have are ignored."""
        for name, values in self.columns().items():
            if name in columns:
                values[rows] = columns[name]


def join_predictions(parts: Sequence[Predictions]) -> Predictions:
    return Predictions(
        **{name: np.concatenate([part.columns()[name] for part in parts]) for name in parts[0].columns()}
    )


def ranked_of(class_map: ClassMap) -> int:
    """Return the number of answers that are kept for an image. It is at most the number that the model ranks."""
    return max(class_map.top_k, min(RANKED, class_map.most_ranked or class_map.answering))


def no_answers(n: int, class_map: ClassMap, ranked: int, logits: bool = False) -> Predictions:
    return Predictions.empty(n, ranked, class_map.num_classes if logits else None, class_map.class_outputs is not None)


def cache_key(
    content: str, classifier: Classifier, class_map: ClassMap, device: str, ranked: int, logits: bool = False
) -> str:
    import torch

    parts = {
        "format": _FORMAT,
        "data": content,
        "weights": classifier.sha256,
        "input": classifier.input_key,
        "targets": class_map.targets,
        "top_k": class_map.top_k,
        "ranked": ranked,
        "logits": logits,
        # Other scales are newer than the cache, so logits have the key that they had.
        **({} if classifier.score_scale == "logits" else {"scale": classifier.score_scale}),
        # Without `class_outputs`, the key is the same as in versions that had no `class_outputs`.
        **({} if class_map.class_outputs is None else {"answers": class_map.leads}),
        # Floats differ in the last bits between kinds of device and versions of torch.
        "device": torch.device(device).type,
        "versions": _versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache  # finding a version searches all installed packages, for every model of a run
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "timm", "pillow", "torchvision")}


def cache_path(folder: Path, name: str, key: str) -> Path:
    """Return the path of a model's cache entry, made from a readable name and the key."""
    return folder / f"{readable_name(name)}-{key[:16]}.parquet"


def readable_name(name: str) -> str:
    """Return a model's name in a form that is readable in the name of a file."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[-60:].strip("._-")


# The number of images in a part. After a kill, at most so many images are scored again.
PART_ROWS = 1024
_NAME = re.compile(r"(\d{10})-(\d{10})\.parquet")


def part_rows(batch_size: int) -> int:
    """Return the number of rows in a part. A part has whole batches, so a resumed run forms the same batches."""
    return -(-PART_ROWS // batch_size) * batch_size


def parts_folder(entry: Path) -> Path:
    return entry.with_suffix(".parts")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cache file of one model's answers, and the folder with its parts. keys: the keys of the images, in order."""

    path: Path
    key: str
    keys: tuple[str, ...]

    def save(self, predictions: Predictions) -> None:
        """Write the file atomically. UserError or RunFailure if it cannot be written."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        absent = ~predictions.readable
        columns: dict[str, pa.Array] = {"key": pa.array(self.keys, pa.string())}
        for name, values in predictions.columns().items():
            if name == "readable":
                continue  # unreadable rows are null in all other columns
            if values.ndim == 1:
                columns[name] = pa.array(values, mask=absent)
            else:
                flat = pa.array(values.reshape(-1))
                columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pa.array(absent))
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table(columns).replace_schema_metadata({_KEY: self.key.encode()}), buffer)
        write_atomically(self.path, buffer.getvalue().to_pybytes())

    def load(self, form: Predictions) -> Predictions | None:
        """Read the file with the columns of `form`. Return None if it is missing, damaged or of another key."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.is_file():
            return None
        try:
            with open_regular(self.path) as file:
                parquet_bytes(file)
                table: Any = pq.read_table(file)
            same_key = (table.schema.metadata or {}).get(_KEY) == self.key.encode()
            if not same_key or table["key"].to_pylist() != list(self.keys):
                return None
            readable = table["correct"].is_valid().to_numpy(zero_copy_only=False)
            columns: dict[str, NDArray] = {"readable": readable}
            for name, like in form.columns().items():
                if name == "readable":
                    continue
                column = table[name].combine_chunks()
                # The stored values of null rows are arbitrary, so they are overwritten.
                flat = (column.values if like.ndim == 2 else column).fill_null(False if like.dtype == bool else 0)
                shape = (len(self.keys), *like.shape[1:])
                values = flat.to_numpy(zero_copy_only=False).astype(like.dtype).reshape(shape)
                values[~readable] = -1 if name == "answers" else 0
                columns[name] = values
            return Predictions(**columns)
        except (OSError, pa.ArrowException, AttributeError, ValueError, TypeError, KeyError):
            return None

    def _part(self, start: int, stop: int) -> CacheEntry:
        path = parts_folder(self.path) / f"{start:010d}-{stop:010d}.parquet"
        return CacheEntry(path, self.key, self.keys[start:stop])

    def save_part(self, answers: Predictions, start: int, stop: int) -> None:
        self._part(start, stop).save(answers.rows(start, stop))

    def load_parts(self, answers: Predictions) -> int:
        """Copy the saved answers, up to the first gap, into `answers`. Return the number of rows filled."""
        done = 0
        names = [_NAME.fullmatch(path.name) for path in parts_folder(self.path).glob("*.parquet")]
        stretches = sorted((int(name[1]), -int(name[2])) for name in names if name is not None)
        for start, minus_stop in stretches:
            stop = -minus_stop
            if start != done or stop > len(self.keys):
                continue
            part = self._part(start, stop).load(answers)
            if part is not None:
                answers.fill(slice(start, stop), part.columns())
                done = stop
        return done

    def finish(self, answers: Predictions) -> None:
        """Write the complete answers, and remove the parts."""
        self.save(answers)
        shutil.rmtree(parts_folder(self.path), ignore_errors=True)
