"""Train a whole network again from new weights, by a plain recipe: stochastic gradient descent with momentum and weight
decay, at a rate that falls by a cosine, on images that are mirrored and shifted at random (He 2016).

Every variant begins at the same weights and sees the same batches of training rows in the same order, mirrored and
shifted alike. Its own images come beside them, so that the loss of a step is that of heads (`fitting`):

    CE(a batch of training rows) + λ · CE(a batch of debug rows)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.fitting import MOMENTUM, WEIGHT_DECAY, FittedHead, Lesson
from counterfoil.models.classifiers import Classifier
from counterfoil.models.classifiers.of_python import CallableClassifier
from counterfoil.models.classifiers.of_timm import TimmClassifier
from counterfoil.prediction.embedding import Embedder
from counterfoil.progress import report

if TYPE_CHECKING:
    import torch
    from torch import nn

NETWORK = "network"
# Jain 2023, B.1.5: 30 epochs, and a baseline that stops after 10 of them.
EPOCHS = 30
STOPPED = 3
# Values of λ: each is a training of minutes.
GRID = (0.0, 0.5)
RATE = 0.05
BATCH = 64
# Debug rows beside each batch.
_BESIDE = 16
_BIASED = 0.7  # Nam 2020, and Jain 2023, B.1.5
_SEED = 707
_ROWS_AT_ONCE = 256
# Prepared images are held in memory.
_MOST_BYTES = 8_000_000_000


@dataclass(frozen=True, eq=False)
class Network:
    """A whole network in place of a head: its features are prepared images, (n, channels * height * width) float32."""

    classifier: Classifier
    module: nn.Module = field(repr=False)
    shape: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, classifier: Classifier, device: str = "cpu", images: int = 0) -> Network:
        """Return a classifier's network. Raise UserError if it cannot be trained, or if so many images are too many."""
        own = isinstance(classifier, CallableClassifier)
        network = cls(
            classifier,
            classifier.model if own else classifier.module,  # pyrefly: ignore[bad-argument-type]  # heads are of modules
            classifier.shape if own else classifier.input_size or (),
            device,
        )
        name = f"model {classifier.name!r}: --fit network"
        size = 4 * images * int(np.prod(network.shape))
        if size > _MOST_BYTES:
            raise UserError(
                f"{name} holds all {images:,} images in memory, {size / 1e9:.0f} GB; expected at most"
                f" {_MOST_BYTES / 1e9:.0f}",
                "Name fewer training images (--per-class) and smaller splits, or refit the head: --fit lbfgs",
            )
        if classifier.score_scale != "logits":
            raise UserError(f"{name} needs its logits, and it gives others", "Refit its head: --fit lbfgs")
        parts = [part for part in network.module.modules() if hasattr(part, "reset_parameters")]
        drawn = {id(weight) for part in parts for weight in part.parameters(recurse=False)}
        kept = [key for key, weight in network.module.named_parameters() if id(weight) not in drawn]
        if own and kept:
            raise UserError(
                f"{name} begins at new weights, and the module of its parameter {kept[0]} has no reset_parameters()",
                "Give that module one, name a timm model, or refit the head: --fit lbfgs",
            )
        return network

    def prepared(self) -> Embedder:
        """Return an embedder whose features are the prepared images."""
        transform = self.classifier.transform()
        return Embedder(
            self.classifier.name,
            "",
            lambda images, _: np.stack([transform(image).numpy().ravel() for image in images]),
            kept=False,
        )

    def logits(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        import torch

        module = self.module.to(self.device)
        parts = range(0, len(features), _ROWS_AT_ONCE)
        with torch.inference_mode():
            logits = [_logits(module, self._images(features[start : start + _ROWS_AT_ONCE])).cpu() for start in parts]
        return torch.cat(logits).numpy() if logits else np.empty((0, self.classifier.num_classes), np.float32)

    def tensors(self) -> dict[str, NDArray[Any]]:
        return {key: tensor.detach().cpu().numpy() for key, tensor in self.module.state_dict().items()}

    def holding(self, tensors: dict[str, NDArray[Any]]) -> Network:
        """Return the network with other weights."""
        import torch

        module = copy.deepcopy(self.module)
        module.load_state_dict({key: torch.from_numpy(values) for key, values in tensors.items()})
        return replace(self, module=module.eval())

    def _images(self, features: NDArray[np.float32]) -> torch.Tensor:
        import torch

        return torch.from_numpy(np.ascontiguousarray(features)).reshape(-1, *self.shape).to(self.device)

    def _changed(self, features: NDArray[np.float32], rng: np.random.Generator) -> torch.Tensor:
        """Return images shifted by up to an eighth of their width, half of them mirrored."""
        import torch

        height, width = self.shape[-2:]
        most = width // 8
        padded = torch.nn.functional.pad(self._images(features), (most,) * 4, mode="replicate")
        shifts, mirrored = rng.integers(2 * most + 1, size=(len(padded), 2)), rng.random(len(padded)) < 0.5
        images = [
            image[:, down : down + height, right : right + width]
            for image, (down, right) in zip(padded, shifts.tolist(), strict=True)
        ]
        return torch.stack([image.flip(-1) if flip else image for image, flip in zip(images, mirrored, strict=True)])

    def _fresh(self) -> nn.Module:
        """Return the module with new weights, drawn by torch's generator."""
        module, classifier = copy.deepcopy(self.module), self.classifier
        if isinstance(classifier, TimmClassifier):
            import timm

            arguments = classifier.model_args | {"num_classes": classifier.num_classes}
            module.load_state_dict(timm.create_model(classifier.architecture, **arguments).state_dict())
        else:
            for part in module.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()
        return module.to(self.device).train().requires_grad_(True)


def fit_network(
    start: Network,
    train: Lesson,
    debug: Lesson | None,
    lam: float,
    *,
    epochs: int = EPOCHS,
    early: bool = False,
    biased: bool = False,
) -> FittedHead:
    """Return the network after its training.

    early: stop after a third of the epochs (Liu 2021). biased: by generalised cross-entropy (Nam 2020).
    Raise RunFailure if training diverges.
    """
    import torch
    from torch.nn import functional

    batches = max(1, len(train) // BATCH)
    of_train, of_debug = (np.random.default_rng([_SEED, purpose]) for purpose in range(2))
    lessons = [(train, of_train, 1.0)] + ([(debug, of_debug, lam)] if debug is not None and lam > 0 else [])
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        module = start._fresh()
        optimizer = torch.optim.SGD(module.parameters(), RATE, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
        last = -(-epochs // STOPPED) if early else epochs
        for epoch in range(last):
            for rows in np.array_split(of_train.permutation(len(train)), batches):
                chosen = [rows, of_debug.integers(len(debug or train), size=_BESIDE)][: len(lessons)]
                images = [
                    start._changed(lesson.features[some], rng)
                    for (lesson, rng, _), some in zip(lessons, chosen, strict=True)
                ]
                logits = _logits(module, torch.cat(images)).split([len(some) for some in chosen])
                loss = torch.zeros((), device=start.device)
                for (lesson, _, share), some, of_lesson in zip(lessons, chosen, logits, strict=True):
                    targets = torch.from_numpy(lesson.targets[some]).to(start.device)
                    losses = functional.cross_entropy(of_lesson, targets, reduction="none")
                    if biased:
                        losses = biased_losses(losses)
                    weights = torch.from_numpy(lesson.shares[some] * len(lesson)).to(losses)
                    loss = loss + share * (weights * losses).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            report(f"{start.classifier.name}: training the network", epoch + 1, last)
    if not torch.isfinite(loss):
        raise RunFailure(
            f"model {start.classifier.name!r}: --fit network diverges at its rate of {RATE:g}",
            "Refit the head: --fit lbfgs",
        )
    network = replace(start, module=module.eval().requires_grad_(False))
    return FittedHead(network, float(loss), last * batches, 0.0, settled=True)


def biased_losses(losses: torch.Tensor) -> torch.Tensor:
    """Return the generalised cross-entropies of cross-entropies: what is easy weighs most (Nam 2020)."""
    return (1 - (-_BIASED * losses).exp()) / _BIASED


def _logits(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    output = module(images)
    return getattr(output, "logits", output).float()
