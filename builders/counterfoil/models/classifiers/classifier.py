"""Define the interface of classifiers. Names of outputs are compared without case; `_`, `-` and
spaces are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Self

from counterfoil.arrays import Floats, Ints
from counterfoil.errors import nearest_name
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.score_scale import AnyScale
from counterfoil.models.weights_files import weights_sha256
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.prompts import RecipeClass

if TYPE_CHECKING:
    import torch

# Scores that differ by less, as a share of the largest, may differ by rounding.
_OF_ROUNDING = 1e-4
# Batches: rows of labelled images (b,), and the scores of these rows (b, num_classes).
Recorded = Iterator[tuple[Ints, Floats]]


@dataclass(frozen=True)
class ClassifierFacts:
    """A classifier's description, known before any weight is loaded."""

    name: str
    resolved: str
    """The name with its folder, version or weights."""
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    """The names of its outputs in order, if known."""
    most_ranked: int | None = None
    """How many answers it ranks for each image, if fewer than its outputs."""
    of_classes: bool = False
    """Whether its outputs are the dataset's classes in the dataset's order."""

    def fields(self) -> dict[str, Any]:
        """Return the fields that a `Classifier` has too."""
        return {
            "name": self.name,
            "architecture": self.architecture,
            "num_classes": self.num_classes,
            "label_names": self.label_names,
        }


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A trained model and the form of its input. Each kind is a subclass in a file of its own."""

    name: str
    """The name by which a person names it."""
    architecture: str
    """What kind of network it is."""
    num_classes: int
    """The number of its outputs."""
    label_names: tuple[str, ...] | None
    """The names of its outputs in order, if known."""
    sha256: str | None
    """Of everything that decides the answer to a tensor, or None if that is unknown."""
    input_key: str
    """Models with the same key get the same tensor for an image."""
    input_size: tuple[int, int, int] | None = None
    """(channels, height, width), or None if it depends on the image."""
    param_count: int | None = None
    """The number of its parameters, if known."""
    crop_pct: float | None = None
    """The side of the crop over that of the resized image, if known."""
    interpolation: str | None = None
    """How images are resized, if known."""
    kept: bool = True
    """Whether a later run may reuse answers if the hash and the input key are equal."""
    served: bool = False
    """Whether a server answers, one call an image, which may cost money."""
    module: Any = None
    """The torch module, or None if the kind has none or it was released."""
    score_scale: AnyScale = "logits"
    """What the scores are."""
    read: str = ""
    """How a file or its scores were read, for people."""
    unsteady: str = ""
    """Why its answer to an image is not always the same, for people; empty if it is."""

    @property
    def largest_side(self) -> int | None:
        """The larger of height and width of its input; None if it is not known."""
        return None if self.input_size is None else max(self.input_size[1:])

    def transform(self) -> Callable[[Any], Any]:
        """Return a function that turns a PIL image into the input tensor, and raises UserError if
        that fails."""
        raise NotImplementedError

    def stages(self) -> Any:
        """Return what prepares its images, if `preparation.py` can read the stages of it; else
        None."""
        return None

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """Return the scores of a batch from any device, (b, num_classes) floats on the CPU. Errors
        are not caught.

        Their softmax is the model's confidence, unless `score_scale` says that they are sigmoids or
        unknown.
        """
        raise NotImplementedError

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor | None:
        """Return the inputs of the last layer, float32 (b, d) on the CPU, if the kind can."""
        return None

    def recorded(self, keys: Sequence[str], paths: Sequence[str] | None = None) -> Recorded | None:
        """Return the scores that a file has for images of these keys or paths, or None if the model
        has no file."""
        return None

    def placed(self, device: str) -> Self:
        module = self.module
        if module is None:
            return self
        placed = while_loading(self.name, lambda: module.to(device))
        return replace(self, module=placed)

    def released(self) -> Self:
        return replace(self, module=None)


def with_score_scale(classifier: Classifier, scale: AnyScale | None) -> Classifier:
    """Return a classifier whose scores are what a person says, if they say so."""
    if scale is None:
        return classifier
    read = f"scores are {scale}, as --scores-are says"
    others = apart_from_scores(classifier.read)
    if others:
        read += f"; {others}"
    return replace(classifier, score_scale=scale, read=read)


def far_apart(first: torch.Tensor, second: torch.Tensor, share: float) -> bool:
    """Return whether two tensors differ by more than a share of their spread, and by more than
    rounding."""
    if first.shape != second.shape:
        return True
    numbers = first.double()
    spread = float(numbers.max() - numbers.min())
    most = share * spread + _OF_ROUNDING * float(numbers.abs().max())
    return bool((numbers - second.double()).abs().max() > most)


def apart_from_scores(read: str) -> str:
    """Return what `Classifier.read` says, without what it says of scores."""
    notes = read.split("; ")
    return "; ".join(note for note in notes if not note.startswith("scores "))


def module_fields(
    facts: ClassifierFacts,
    module: Any,
    content: str,
    device: str,
) -> dict[str, Any]:
    """Prepare a module for inference, and return its fields of a `Classifier`. content: hashed with
    the tensors."""
    module.eval().requires_grad_(False)
    return {
        **facts.fields(),
        "param_count": sum(parameter.numel() for parameter in module.parameters()),
        "sha256": weights_sha256(content, module.state_dict()),
        "module": while_loading(facts.name, lambda: module.to(device)),
    }


MOST_LINES = 10
_LONGEST_NAME = 32
# Comparing thousands of names with thousands takes minutes.
_MOST_COMPARED = 2_000


def unique_output_names(classes: Sequence[RecipeClass]) -> tuple[str, ...]:
    """Return the name of each class, or its id if another class has the same name."""
    times = Counter(plain_name(label.name) for label in classes)
    names = []
    for label in classes:
        unique = times[plain_name(label.name)] == 1
        names.append(label.name if unique else label.id)
    return tuple(names)


def side_by_side(
    missing: Sequence[RecipeClass], names: Sequence[str], taken: Iterable[int | None]
) -> list[str]:
    """Return about ten lines of missing classes beside the outputs that no class uses, the nearest
    names first."""
    used = set(taken)
    left = [name for output, name in enumerate(names) if output not in used]
    by_folded = {name.casefold(): name for name in reversed(left[:_MOST_COMPARED])}
    shown = missing[:MOST_LINES]
    close = [nearest_name(label.name.casefold(), by_folded) for label in shown]
    others = iter(shortened(name) for name in left if name.casefold() not in close)
    texts = []
    outputs = []
    for label, name in zip(shown, close, strict=True):
        text = label.name
        if label.id != label.name:
            text += f" ({label.id})"
        texts.append(shortened(text))
        if name is None:
            outputs.append(next(others, ""))
        else:
            outputs.append(f"{shortened(by_folded[name])}  (nearest)")
    outputs += islice(others, MOST_LINES - len(outputs))
    rows = [("classes", "outputs that are left"), *zip_longest(texts, outputs, fillvalue="")]
    more_classes = len(missing) - len(shown)
    more_outputs = len(left) - sum(map(bool, outputs))
    if more_classes > 0 or more_outputs > 0:
        rows.append((_and_more(more_classes), _and_more(more_outputs)))
    return in_columns(rows)


def _and_more(count: int) -> str:
    return f"and {count:,} more" if count > 0 else ""


def in_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(text) for text, _ in rows)
    return [f"  {text:<{width}} | {name}".rstrip() for text, name in rows]


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
