"""What a classifier is: what its configuration tells, the trained model with the form of its input, names of outputs.

Names of classes and of outputs are compared without case, and `_`, `-` and spaces are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from counterfoil.models.loading_errors import while_loading
from counterfoil.models.weights_files import weights_sha256
from counterfoil.recipe.names import nearest, plain_name
from counterfoil.recipe.prompts import RecipeClass

if TYPE_CHECKING:
    import torch

# Rows of labelled images, and the scores (b, num_classes) that are known of them.
Recorded = Iterator[tuple[NDArray[np.int64], "torch.Tensor"]]


@dataclass(frozen=True)
class ClassifierFacts:
    """What a classifier says of itself before any weight is loaded.

    `label_names` are the names of its outputs, in their order; None where it does not tell them. `most_ranked` is how
    many answers it ranks an image, where that is fewer than its outputs: one, where only labels are known. `of_classes`
    says that its outputs were made of the dataset's classes, in their order, so that no name has to be matched.
    """

    name: str
    resolved: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    most_ranked: int | None = None
    of_classes: bool = False


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
        module = self.module
        return self if module is None else replace(self, module=while_loading(self.name, lambda: module.to(device)))

    def released(self) -> Self:
        """The same without its weights."""
        return replace(self, module=None)


def module_fields(facts: ClassifierFacts, module: Any, content: str, device: str) -> dict[str, Any]:
    """The fields of a `Classifier` that any torch module has: in eval mode, without gradients, on `device`.

    content: what decides the answers beside the tensors. RunFailure where the module finds no room on the device.
    """
    module.eval().requires_grad_(False)
    return {
        "name": facts.name,
        "architecture": facts.architecture,
        "num_classes": facts.num_classes,
        "label_names": facts.label_names,
        "param_count": sum(parameter.numel() for parameter in module.parameters()),
        "sha256": weights_sha256(content, module.state_dict()),
        "module": while_loading(facts.name, lambda: module.to(device)),
    }


MOST_LINES = 10
_LONGEST_NAME = 32
# The nearest name is looked for among this many: comparing thousands with thousands takes minutes.
_MOST_COMPARED = 2_000


def unique_names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """A name for each class that is no other's: its own, or its id where another class has the same name."""
    times = Counter(plain_name(one.name) for one in classes)
    return tuple(one.name if times[plain_name(one.name)] == 1 else one.id for one in classes)


def side_by_side(missing: Sequence[RecipeClass], names: Sequence[str], taken: Iterable[int | None]) -> list[str]:
    """At most some ten lines: classes that were not found, and outputs that are left, the nearest beside its class."""
    used = set(taken)
    left = [name for output, name in enumerate(names) if output not in used]
    by_folded = {name.casefold(): name for name in reversed(left[:_MOST_COMPARED])}
    close = [nearest(one.name.casefold(), by_folded) for one in missing[:MOST_LINES]]
    beside = [f"{shortened(by_folded[name])}  (nearest)" if name is not None else None for name in close]
    others = iter(shortened(name) for name in left if name.casefold() not in close)
    right = [name or next(others, "") for name in beside]
    right += [name for _, name in zip(range(MOST_LINES - len(right)), others, strict=False)]
    texts = [one.name if one.id == one.name else f"{one.name} ({one.id})" for one in missing]
    texts = [*(shortened(text) for text in texts[:MOST_LINES]), *[""] * (len(right) - len(beside))]
    rows = [("classes", "outputs that are left"), *zip(texts, right, strict=True)]
    more = len(missing) - len(beside), len(left) - sum(map(bool, right))
    if any(count > 0 for count in more):
        rows.append((f"and {more[0]:,} more" if more[0] else "", f"and {more[1]:,} more" if more[1] > 0 else ""))
    return in_columns(rows)


def in_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """The rows as lines of two columns."""
    width = max(len(text) for text, _ in rows)
    return [f"  {text:<{width}} | {name}".rstrip() for text, name in rows]


def shortened(text: str) -> str:
    """A name, cut where it is long."""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
