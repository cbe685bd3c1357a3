"""Heads by arm and λ, each kept as soon as it is fitted, so that a sweep that is killed goes on where it stood."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.mending.fitting import EPOCHS, MOMENTUM, RATE, WEIGHT_DECAY, FittedHead, Lesson, fit_head
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.recipe import sha256_json
from counterfoil.store.atomic import make_folder, write_atomically

FORMAT = 1
HEADS = ".mend"


class KeptHeads:
    """Fits heads, and finds those in `folder` again that an earlier run fitted from the same numbers."""

    def __init__(self, folder: Path, start: LinearHead, how: Any) -> None:
        self.folder, self.start, self.how = folder / HEADS, start, how
        self.begun = _digest(start.weight, start.bias)

    def fitted(self, train: Lesson, debug: Lesson | None, lam: float) -> FittedHead:
        """As `fit_head`."""
        path = self.folder / f"{self._key(train, debug, lam)[:32]}.safetensors"
        known = _read(path)
        if known is not None:
            return known
        found = fit_head(self.start, train, debug, lam, self.how)
        make_folder(self.folder)
        write_atomically(path, _bytes(found))
        return found

    def _key(self, train: Lesson, debug: Lesson | None, lam: float) -> str:
        from importlib.metadata import version

        return sha256_json(
            {
                "format": FORMAT,
                "start": self.begun,
                "train": _lesson(train),
                # Without weight nothing of it is learned.
                "debug": None if debug is None or lam == 0 else _lesson(debug),
                "lambda": lam,
                "how": self.how,
                "settings": [WEIGHT_DECAY, RATE, MOMENTUM, EPOCHS],
                "versions": {name: version(name) for name in ("numpy", "scipy")},
            }
        )


def _lesson(lesson: Lesson) -> list[str]:
    arrays = [lesson.features, lesson.targets] + ([] if lesson.weights is None else [lesson.weights])
    return [_digest(one) for one in arrays]


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _bytes(fitted: FittedHead) -> bytes:
    from safetensors.numpy import save

    numbers = np.asarray([fitted.loss, fitted.steps, fitted.gradient_norm, fitted.settled], dtype=np.float64)
    return save({"weight": fitted.head.weight, "bias": fitted.head.bias, "numbers": numbers})


def _read(path: Path) -> FittedHead | None:
    """What was kept; None for what is not there or not whole, which is fitted again."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(path.read_bytes())
        loss, steps, norm, settled = arrays["numbers"].tolist()
        return FittedHead(LinearHead(arrays["weight"], arrays["bias"]), loss, int(steps), norm, bool(settled))
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
