"""One model's answers to every image of a dataset, and the Parquet cache that keeps them.

The cache is keyed by content: the data files, the model's weights, its input transform, the class map
and the versions that compute. A model of the same name with other weights is another entry, so nothing
is ever overwritten by something else, and a run over many models resumes at the first it has not done.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.store.atomic import write_atomically

if TYPE_CHECKING:
    import pyarrow as pa

    from counterfoil.models.classifiers import Classifier
    from counterfoil.prediction.class_map import ClassMap

# Raise it when the meaning of a column changes; older entries are then left aside.
_FORMAT = 1
_KEY = b"counterfoil_key"


@dataclass(frozen=True)
class Predictions:
    """A model's answers, one row an accepted image, in plan order.

    readable: (n,) bool; where False the image could not be decoded and the other columns mean nothing.
    prediction: (n,) argmax over all outputs. correct, correct_top_k: (n,) bool by the class map.
    confidence: (n,) softmax of the prediction. true_confidence: (n,) softmax summed over the right outputs.
    """

    readable: NDArray[np.bool_]
    prediction: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top_k: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    true_confidence: NDArray[np.float32]

    @classmethod
    def empty(cls, n: int) -> Predictions:
        """No answer yet to any of n images."""
        return cls(
            readable=np.zeros(n, dtype=bool),
            prediction=np.full(n, -1, dtype=np.int32),
            correct=np.zeros(n, dtype=bool),
            correct_top_k=np.zeros(n, dtype=bool),
            confidence=np.zeros(n, dtype=np.float32),
            true_confidence=np.zeros(n, dtype=np.float32),
        )


def cache_key(content: str, classifier: Classifier, class_map: ClassMap, device: str) -> str:
    """sha256 of everything that a model's answers depend on."""
    import torch

    parts = {
        "format": _FORMAT,
        "data": content,
        "weights": classifier.sha256,
        "input": classifier.input_key,
        "targets": class_map.targets,
        "top_k": class_map.top_k,
        # Floats differ in the last bits between kinds of device and versions of torch.
        "device": torch.device(device).type,
        "versions": {name: version(name) for name in ("torch", "timm", "pillow", "torchvision")},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cache_path(folder: Path, name: str, key: str) -> Path:
    """The entry of a model: its name for people, the key for truth."""
    readable = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)[-60:]
    return folder / f"{readable.strip('._-')}-{key[:16]}.parquet"


def save_predictions(path: Path, key: str, keys: tuple[str, ...], predictions: Predictions) -> None:
    """Write an entry atomically; raises UserError or RunFailure when the disk refuses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    absent = ~predictions.readable
    columns: dict[str, pa.Array] = {"key": pa.array(keys, pa.string())}
    columns["prediction"] = pa.array(predictions.prediction, pa.int32(), mask=absent)
    columns["correct"] = pa.array(predictions.correct, pa.bool_(), mask=absent)
    columns["correct_top_k"] = pa.array(predictions.correct_top_k, pa.bool_(), mask=absent)
    columns["confidence"] = pa.array(predictions.confidence, pa.float32(), mask=absent)
    columns["true_confidence"] = pa.array(predictions.true_confidence, pa.float32(), mask=absent)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns).replace_schema_metadata({_KEY: key.encode()}), buffer)
    write_atomically(path, buffer.getvalue().to_pybytes())


def load_predictions(path: Path, key: str, keys: tuple[str, ...]) -> Predictions | None:
    """The entry at `path`; None when there is none, when it is damaged, or when it answers something else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        table = pq.read_table(path)
        return _as_predictions(table, key, keys)
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        return None


def _as_predictions(table: Any, key: str, keys: tuple[str, ...]) -> Predictions | None:
    if (table.schema.metadata or {}).get(_KEY) != key.encode() or table["key"].to_pylist() != list(keys):
        return None
    readable = table["prediction"].is_valid().to_numpy(zero_copy_only=False)

    def column(name: str, absent: int | float | bool, kind: type) -> NDArray:
        return table[name].fill_null(absent).to_numpy(zero_copy_only=False).astype(kind)

    return Predictions(
        readable=readable,
        prediction=column("prediction", -1, np.int32),
        correct=column("correct", False, np.bool_),
        correct_top_k=column("correct_top_k", False, np.bool_),
        confidence=column("confidence", 0.0, np.float32),
        true_confidence=column("true_confidence", 0.0, np.float32),
    )
