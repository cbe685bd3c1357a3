"""Train a whole network again from new weights, by a plain recipe: stochastic gradient descent with
momentum and weight decay, at a rate that falls by a cosine, on images that are mirrored and shifted
at random (He 2016).

Every variant begins at the same weights and sees the same batches of training rows in the same
order, mirrored and shifted alike. Its own images come beside them, so that the loss of a step is
that of heads (`fitting`):

    CE(a batch of training rows) + λ · CE(a batch of debug rows)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats32
from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.fitting import MOMENTUM, WEIGHT_DECAY, FittedHead, Lesson
from counterfoil.models.classifiers import Classifier
from counterfoil.models.classifiers.of_python import CallableClassifier
from counterfoil.models.classifiers.of_timm import TimmClassifier
from counterfoil.prediction.embedding import Embedder
from counterfoil.progress import report_progress

if TYPE_CHECKING:
    import torch
    from torch import nn

NETWORK = "network"
# Jain 2023, B.1.5: a baseline that stops after 10 of 30 epochs.
STOPPED = 3
# Values of λ: each is a training of minutes.
GRID = (0.0, 0.5)
RATE = 0.02  # chosen in the planted world correlation-0
BATCH = 64
# Debug rows beside each batch.
_BESIDE = 16
_BIASED = 0.7  # Nam 2020, and Jain 2023, B.1.5
_ROWS_AT_ONCE = 256
# Prepared images are held in memory.
_MOST_BYTES = 8_000_000_000


@dataclass(frozen=True, eq=False)
class Network:
    """A whole network in place of a head: its features are prepared images, (n, channels * height *
    width) float32."""

    classifier: Classifier
    module: nn.Module = field(repr=False)
    shape: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, classifier: Classifier, device: str = "cpu", images: int = 0) -> Network:
        """Return a classifier's network. Raise UserError if it cannot be trained, or if so many
        images are too many."""
        module = classifier.module
        shape = classifier.input_size or ()
        is_callable = isinstance(classifier, CallableClassifier)
        if is_callable:
            module = classifier.model
            shape = classifier.shape
        size = 4 * images * int(np.prod(shape))
        if size > _MOST_BYTES:
            raise UserError(
                f"model {classifier.name!r}: --fit network holds all {images:,} images in memory,"
                f" {size / 1e9:.0f} GB; expected at most {_MOST_BYTES / 1e9:.0f}",
                "Name fewer training images (--per-class) and smaller splits, or refit the head:"
                " --fit lbfgs",
            )
        parts = [part for part in module.modules() if hasattr(part, "reset_parameters")]
        drawn = {id(weight) for part in parts for weight in part.parameters(recurse=False)}
        kept = [key for key, weight in module.named_parameters() if id(weight) not in drawn]
        if is_callable and kept:
            raise UserError(
                f"model {classifier.name!r}: --fit network begins at new weights, and the module of"
                f" its parameter {kept[0]} has no reset_parameters()",
                "Give that module one, name a timm model, or refit the head: --fit lbfgs",
            )
        # a person's module stays as it is
        return cls(classifier, copy.deepcopy(module).eval(), shape, device)

    def prepared(self) -> Embedder:
        """Return an embedder whose features are the prepared images."""
        transform = self.classifier.transform()
        return Embedder(
            self.classifier.name,
            "",
            lambda images, _: np.stack([transform(image).numpy().ravel() for image in images]),
            kept=False,
        )

    def logits(self, features: Floats32) -> Floats32:
        import torch

        module = self.module.to(self.device)
        logits = np.empty((len(features), self.classifier.num_classes), np.float32)
        with torch.inference_mode():
            for start in range(0, len(features), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                images = self._images(features[rows])
                logits[rows] = _logits(module, images).cpu()
        return logits

    def tensors(self) -> dict[str, NDArray[Any]]:
        state = self.module.state_dict()
        return {key: tensor.detach().cpu().numpy() for key, tensor in state.items()}

    def holding(self, tensors: dict[str, NDArray[Any]]) -> Network:
        """Return the network with other weights."""
        import torch

        module = copy.deepcopy(self.module)
        state = {key: torch.from_numpy(values) for key, values in tensors.items()}
        module.load_state_dict(state)
        return replace(self, module=module.eval())

    def _images(self, features: Floats32) -> torch.Tensor:
        import torch

        images = torch.from_numpy(np.ascontiguousarray(features))
        return images.reshape(-1, *self.shape).to(self.device)

    def _fresh(self) -> nn.Module:
        """Return the module with new weights, drawn by torch's generator."""
        module = copy.deepcopy(self.module)
        classifier = self.classifier
        if isinstance(classifier, TimmClassifier):
            import timm

            arguments = classifier.model_args | {"num_classes": classifier.num_classes}
            fresh = timm.create_model(classifier.architecture, **arguments)
            module.load_state_dict(fresh.state_dict())
        else:
            for part in module.modules():
                reset: Any = getattr(part, "reset_parameters", None)
                if reset is not None:
                    reset()
        return module.to(self.device).train().requires_grad_(True)


def fit_network(
    start: Network,
    train: Lesson,
    debug: Lesson | None,
    lam: float,
    *,
    epochs: int,
    seed: int = 0,
    early: bool = False,
    biased: bool = False,
) -> FittedHead:
    """Return the network after its training. `seed` draws its first weights, its batches and their
    changes.

    early: stop after a third of the epochs (Liu 2021). biased: by generalised cross-entropy (Nam
    2020). Raise RunFailure if training diverges.
    """
    import torch

    batches = max(1, len(train) // BATCH)
    of_train, of_debug = (np.random.default_rng([seed, purpose]) for purpose in range(2))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = start._fresh()
        optimizer = torch.optim.SGD(
            module.parameters(), RATE, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
        last = -(-epochs // STOPPED) if early else epochs
        loss = torch.zeros(())
        for epoch in range(last):
            order = of_train.permutation(len(train))
            for batch, rows in enumerate(np.array_split(order, batches)):
                learned = [(train, rows, 1.0)]
                if debug is not None and lam > 0:
                    beside = of_debug.integers(len(debug), size=_BESIDE)
                    learned.append((debug, beside, lam))
                features = []
                targets = []
                weights = []
                for lesson, some, share in learned:
                    features.append(lesson.features[some])
                    targets.append(lesson.targets[some])
                    weights.append(share * lesson.shares[some] * len(lesson) / len(some))
                step = epoch * batches + batch
                torch.manual_seed(step)
                images = start._images(np.concatenate(features))
                images = _changed(images, np.random.default_rng([seed, step]))
                losses = torch.nn.functional.cross_entropy(
                    _logits(module, images),
                    torch.from_numpy(np.concatenate(targets)).to(start.device),
                    reduction="none",
                )
                if biased:
                    losses = biased_losses(losses)
                weight = torch.from_numpy(np.concatenate(weights))
                loss = (losses * weight.to(losses)).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            report_progress(f"{start.classifier.name}: training the network", epoch + 1, last)
    if not torch.isfinite(loss):
        raise RunFailure(
            f"model {start.classifier.name!r}: --fit network diverges at its rate of {RATE:g}",
            "Refit the head: --fit lbfgs",
        )
    network = replace(start, module=module.eval().requires_grad_(False))
    return FittedHead(network, loss.item(), last * batches, 0.0, settled=True)


def _changed(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Return images (n, channels, height, width) shifted by up to an eighth, about half of them
    mirrored.

    The first ones are changed alike whatever comes after them.
    """
    import torch

    n, channels, height, width = images.shape
    most = width // 8
    padded = torch.nn.functional.pad(images, (most,) * 4, mode="replicate")
    down, right, mirrored = rng.integers((2 * most + 1, 2 * most + 1, 2), size=(n, 3)).T[:, :, None]
    across = np.arange(width)
    rows = down + np.arange(height)
    columns = right + np.where(mirrored, across[::-1], across)
    return padded[
        np.arange(n)[:, None, None, None],
        np.arange(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None],
    ]


def biased_losses(losses: torch.Tensor) -> torch.Tensor:
    """Return the generalised cross-entropies of cross-entropies: what is easy weighs most (Nam
    2020)."""
    return (1 - (-_BIASED * losses).exp()) / _BIASED


def _logits(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    output = module(images)
    return getattr(output, "logits", output).float()
