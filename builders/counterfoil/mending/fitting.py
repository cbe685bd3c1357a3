"""Fit a head again. The objective has a term for training rows, one for debug rows, and weight
decay (Chegini 2023, equation 1 and Table 4):

    L(W, b) = CE(train) + λ · CE(debug) + decay/2 · (|W|² + |b|²)

The objective is strictly convex, so gradient descent and L-BFGS have the same minimum. Sums are
float64. Each head is stored as soon as it is fitted, so that an interrupted sweep resumes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Floats, Ints
from counterfoil.documents import sha256_json
from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.variants import rows_of_cells
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.store.atomic import make_folder, write_atomically

FITS = ("lbfgs", "sgd")  # of heads
# Chegini 2023, Table 4; torch's SGD decays the bias too.
WEIGHT_DECAY = 5e-4
RATE = 0.2
MOMENTUM = 0.9
EPOCHS = 1000
# With decay the objective is strongly convex, so at most |gradient|² / (2 · decay) is left to gain.
# L-BFGS ends when this bound is at most the share `_LITTLE` of the objective. A head is settled if
# it is at most the share `_SETTLED`.
_LITTLE = 1e-8
_SETTLED = 1e-4
# Without decay there is no such bound. L-BFGS then ends when no derivative is larger than `_FLAT`.
# In both cases it ends when the relative gain of a step is at most `_NO_GAIN`, which rounding can
# cause.
_FLAT = 1e-7
_NO_GAIN = 1e-14
_MOST_STEPS = 2000
# Descent fails if it ends at more than this multiple of its beginning.
_HIGHER = 1.01
_ROWS_AT_ONCE = 2048
# The fewest rows of a cell (class and group) that limit the number of rows of all cells.
FEWEST_IN_A_CELL = 5
FORMAT = 1
HEADS = ".mend"
_NUMBERS = "numbers"


@dataclass(frozen=True, eq=False)
class Lesson:
    """The n rows that a head learns from.

    features: (n, d). targets: (n,) int, the right output for each row. weights: (n,), the weight of
    each row in the mean, not negative; None if each row counts once.
    """

    features: AnyFloats = field(repr=False)
    targets: NDArray[np.integer] = field(repr=False)
    weights: AnyFloats | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def shares(self) -> Floats:
        """The weight of each row in the mean, (n,). The weights sum to 1."""
        weights = np.ones(len(self))
        if self.weights is not None:
            weights = self.weights.astype(np.float64)
        return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class FittedHead:
    """A fitted head, with the objective and the length of the gradient at its end, and the number
    of steps.

    head: a `LinearHead`, or a trained `Network`. settled: whether the gradient is short enough for
    a minimum.
    """

    head: Any
    loss: float
    steps: int
    gradient_norm: float
    settled: bool


def fit_head(
    start: LinearHead,
    train: Lesson,
    debug: Lesson | None,
    lam: float,
    how: Literal["lbfgs", "sgd"] = "lbfgs",
    *,
    weight_decay: float = WEIGHT_DECAY,
    epochs: int = EPOCHS,
) -> FittedHead:
    """Return the head that minimises the objective; the fit begins at `start`.

    "sgd" is full batch with torch's rule of momentum, and only "sgd" uses `epochs`. Raise
    RunFailure if descent diverges, as it does on long features at a large rate.
    """
    weighted = [(train, train.shares)]
    if debug is not None and lam > 0:
        weighted.append((debug, lam * debug.shares))
    objective = _Objective(weighted, start.weight.shape, weight_decay)
    begun = np.concatenate([start.weight.ravel(), start.bias]).astype(np.float64)
    if how == "sgd":
        end, steps = _descend(objective, begun, epochs)
    else:
        end, steps = _minimise(objective, begun)
    loss, gradient = objective(end)
    length = float(np.linalg.norm(gradient))
    weight, bias = objective.parts(end)
    head = LinearHead(weight.astype(np.float32), bias.astype(np.float32))
    settled = length**2 <= _SETTLED * 2 * weight_decay * loss
    return FittedHead(head, loss, steps, length, settled)


class _Objective:
    """The objective and its gradient at a vector that holds W, row by row, and then b. Both are
    float64."""

    def __init__(
        self, lessons: Sequence[tuple[Lesson, Floats]], shape: tuple[int, ...], decay: float
    ) -> None:
        self.lessons = lessons
        self.shape = shape
        self.decay = decay

    def parts(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Return views of W and b in such a vector."""
        weights = parameters[: -self.shape[0]]
        return weights.reshape(self.shape), parameters[-self.shape[0] :]

    def __call__(self, parameters: Floats) -> tuple[float, Floats]:
        weight, bias = self.parts(parameters)
        gradient = self.decay * parameters
        of_weight, of_bias = self.parts(gradient)
        loss = 0.5 * self.decay * float(parameters @ parameters)
        for lesson, shares in self.lessons:
            for start in range(0, len(lesson), _ROWS_AT_ONCE):
                block = slice(start, start + _ROWS_AT_ONCE)
                features = lesson.features[block].astype(np.float64, copy=False)
                targets = lesson.targets[block]
                share = shares[block]
                scores = features @ weight.T
                scores += bias
                scores -= scores.max(axis=1, keepdims=True)
                rows = np.arange(len(targets))
                of_target = scores[rows, targets]
                np.exp(scores, out=scores)
                sums = scores.sum(axis=1)
                loss += float(share @ (np.log(sums) - of_target))
                scores *= (share / sums)[:, None]
                scores[rows, targets] -= share
                of_weight += scores.T @ features
                of_bias += scores.sum(axis=0)
        return loss, gradient


def _descend(objective: _Objective, begun: Floats, epochs: int) -> tuple[Floats, int]:
    at = begun.copy()
    velocity = np.zeros_like(begun)
    losses = []
    for _ in range(epochs):
        loss, gradient = objective(at)
        losses.append(loss)
        velocity *= MOMENTUM
        velocity += gradient
        at -= RATE * velocity
    # Cross-entropy has bounded gradients: too large a rate swings between high values, and rarely
    # overflows.
    if not losses[-1] <= losses[0] * _HIGHER:
        raise RunFailure(
            f"gradient descent at rate {RATE:g} diverges on these features: the objective is"
            f" {losses[-1]:.3g} after {epochs:,} epochs, and was {losses[0]:.3g} before",
            "Fit by L-BFGS (--fit lbfgs), which finds the minimum of the same objective.",
        )
    return at, epochs


def _minimise(objective: _Objective, begun: Floats) -> tuple[Floats, int]:
    from scipy import optimize

    last: dict[str, float] = {}

    def looked_at(parameters: Floats) -> tuple[float, Floats]:
        loss, gradient = objective(parameters)
        last["left"] = float(gradient @ gradient) - _LITTLE * 2 * objective.decay * loss
        return loss, gradient

    def after_a_step(_: Floats) -> None:
        if last["left"] <= 0:
            raise StopIteration  # a step ends at its last evaluation

    options = {"maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "gtol": _FLAT, "ftol": _NO_GAIN}
    minimum: Any = optimize.minimize(
        looked_at, begun, jac=True, method="L-BFGS-B", options=options, callback=after_a_step
    )
    return np.asarray(minimum.x, dtype=np.float64), int(minimum.nit)


def balanced_lesson(
    features: AnyFloats,
    targets: NDArray[np.integer],
    classes: Ints,
    groups: Ints,
    *,
    seed: int,
    fewest: int = FEWEST_IN_A_CELL,
) -> Lesson:
    """Return equal numbers of discover rows by class and group: Deep Feature Reweighting
    (Kirichenko 2023).

    True groups are an oracle. Groups by CLIP are a baseline that needs no drawn image. features:
    (n, d). targets, classes, groups: (n,). A cell is a class and a group. Each cell gives as many
    rows as the smallest cell with at least `fewest` rows has. Smaller cells give all their rows.
    Raise UserError if no cell is large enough.
    """
    _, cells, sizes = np.unique(
        np.stack([classes, groups]), axis=1, return_inverse=True, return_counts=True
    )
    cells = cells.ravel().astype(np.int64)
    large = sizes[sizes >= fewest]
    if not len(large):
        raise UserError(
            f"groups of {len(classes):,} rows: none has {fewest} rows of one class, so none can be"
            " drawn evenly",
            "Use fewer groups, or more images.",
        )
    most = dict.fromkeys(range(len(sizes)), int(large.min()))
    rows = rows_of_cells(cells, most, seed)
    return Lesson(features[rows], targets[rows])


class KeptHeads:
    """Fits heads, and reuses the heads in `folder` that an earlier run fitted from the same
    numbers.

    start: a `LinearHead`, or a `Network`. fit: a function with the first four arguments of
    `fit_head`; `how` names it.
    """

    def __init__(
        self, folder: Path, start: Any, how: Any, fit: Callable[..., FittedHead] = fit_head
    ) -> None:
        self.folder = folder / HEADS
        self.start = start
        self.how = how
        self.fit = fit
        self.begun = _digest(*start.tensors().values())

    def fitted(self, train: Lesson, debug: Lesson | None, lam: float) -> FittedHead:
        from importlib.metadata import version

        from safetensors import SafetensorError
        from safetensors.numpy import load, save

        key = sha256_json(
            {
                "format": FORMAT,
                "start": self.begun,
                "train": _lesson(train),
                # At λ = 0 the head learns nothing from the debug rows.
                "debug": None if debug is None or lam == 0 else _lesson(debug),
                "lambda": lam,
                "how": self.how,
                "settings": [WEIGHT_DECAY, RATE, MOMENTUM, EPOCHS],
                "versions": {name: version(name) for name in ("numpy", "scipy", "torch")},
            }
        )
        path = self.folder / f"{key[:32]}.safetensors"
        # A head that is missing or damaged is fitted again.
        with contextlib.suppress(OSError, SafetensorError, KeyError, ValueError, RuntimeError):
            arrays = load(path.read_bytes())
            loss, steps, norm, settled = arrays.pop(_NUMBERS).tolist()
            head = self.start.holding(arrays)
            return FittedHead(head, loss, int(steps), norm, bool(settled))
        fitted_head = self.fit(self.start, train, debug, lam)
        make_folder(self.folder)
        numbers = np.asarray(
            [fitted_head.loss, fitted_head.steps, fitted_head.gradient_norm, fitted_head.settled],
            dtype=np.float64,
        )
        write_atomically(path, save(fitted_head.head.tensors() | {_NUMBERS: numbers}))
        return fitted_head


def _lesson(lesson: Lesson) -> list[str]:
    arrays = [lesson.features, lesson.targets]
    if lesson.weights is not None:
        arrays.append(lesson.weights)
    return [_digest(array) for array in arrays]


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
