"""The interface of detectors: a function from images to boxes, scores and labels, as those of
torchvision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.models.messages import failure, refusal

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from PIL import Image

ImageDetections = dict[str, Any]
"""Of one image: `boxes` float32 [n, 4], left, top, right and bottom in its pixels; `scores` float32
[n]; `labels` int64 [n], places in the names of labels. Tensors on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Detector:
    """A trained model that finds objects; each kind is a subclass in a file of its own.

    Its answers are all that it has, with a score above 0. Equal `sha256` and `input_key` mean equal
    answers. complete: whether it keeps answers of any score, so that nothing is cut.
    """

    complete: ClassVar[bool] = False

    name: str
    architecture: str
    label_names: tuple[str, ...]
    param_count: int | None
    sha256: str
    input_key: str

    def __call__(self, images: Sequence[Image.Image]) -> list[ImageDetections]:
        """Return what is found in each RGB image. One image's answers do not depend on which others
        are beside it.

        UserError for an image that cannot be prepared, RunFailure if nothing can be computed or is
        not finite.
        """
        raise NotImplementedError


def of_one_shape(inputs: Sequence[Mapping[str, torch.Tensor]]) -> Iterator[list[int]]:
    """Yield the places of prepared images whose tensors have equal shapes, so that they stack
    without a margin."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for index, tensors in enumerate(inputs):
        places.setdefault(tuple(tensor.shape for tensor in tensors.values()), []).append(index)
    yield from places.values()


def checked_detections(name: str, detections: ImageDetections) -> ImageDetections:
    """Return detections on the CPU, in the types of the interface. RunFailure for a number that is
    not finite."""
    import torch

    boxes = detections["boxes"].float().cpu()
    scores = detections["scores"].float().cpu()
    if not (torch.isfinite(boxes).all() and torch.isfinite(scores).all()):
        where = f"model {name!r}"
        raise failure("failed-model.boxes", where)
    return {"boxes": boxes, "scores": scores, "labels": detections["labels"].long().cpu()}


def refuse_unnamed_labels(
    name: str, labels: NDArray[Any], names: Sequence[str], where: str
) -> None:
    """Raise UserError if a label has no name. Labels are places in `names`, from 0. where: what
    holds the names."""
    named = (labels >= 0) & (labels < len(names)) & (labels % 1 == 0)
    if named.all():
        return
    odd = labels[~named][:5].tolist()
    who = f"model {name!r}"
    raise refusal("unmatched-classes.label", who, odd, len(names) - 1, where=where)
