"""What a classifier is: facts that its configuration tells, and the trained model with the form of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

# Rows of labelled images, and the scores (b, num_classes) that are known of them.
Recorded = Iterator[tuple[NDArray[np.int64], "torch.Tensor"]]


@dataclass(frozen=True)
class ClassifierFacts:
    """What a classifier says of itself before any weight is loaded.

    `label_names` are the names of its outputs, in their order; None where it does not tell them. `most_ranked` is how
    many answers it ranks an image, where that is fewer than its outputs: one, where only labels are known.
    """

    name: str
    resolved: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    most_ranked: int | None = None


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A trained model with what its input must look like; each kind is a subclass in a file of its own.

    Equal `input_key`s mean equal input tensors. `sha256` is over all that decides its answers to a tensor; it is None
    where that cannot be known. `input_size` is (channels, height, width), None where it follows the images or is not
    known; so are `crop_pct` and `interpolation`, and `param_count` is None for what is no torch module. `kept` says
    whether equal hashes and input keys mean equal answers, so that a later run may use answers again. `module` is the
    torch module that a run moves and lets go, None afterwards and for kinds without one.
    """

    name: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    param_count: int | None
    sha256: str | None
    input_key: str
    input_size: tuple[int, int, int] | None
    crop_pct: float | None
    interpolation: str | None
    kept: bool = True
    module: Any = None

    def transform(self) -> Callable[[Any], Any]:
        """A function from a PIL image to the tensor that the model takes; batches are stacks of them.

        It raises UserError for an image that cannot be brought into this form.
        """
        raise NotImplementedError

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """The scores of a batch of such tensors, on whatever device it is: float32 (b, num_classes) on the CPU.

        What the model raises, it raises: `prediction.inference.logits_of` checks the scores and tells errors in words.
        """
        raise NotImplementedError

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor | None:
        """What the last layer sees of a batch, float32 (b, d) on the CPU; None where the kind does not give it."""
        return None

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded | None:
        """Scores that were computed elsewhere, of images with these keys; None for a model that looks at images.

        paths: what images of a folder may be called beside their keys.
        """
        return None

    def placed(self, device: str) -> Self:
        """The same with its weights on `device`. RunFailure where they find no room there."""
        from counterfoil.models.loading_errors import told_in_words

        module = self.module
        return self if module is None else replace(self, module=told_in_words(self.name, lambda: module.to(device)))

    def released(self) -> Self:
        """The same without its weights."""
        return replace(self, module=None)
