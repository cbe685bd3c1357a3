"""`Corrupt`: the corruptions as a transform of training code, for torchvision and for datasets."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.corrupting.corrupt import corrupt
from counterfoil.corrupting.corruptions import CORRUPTIONS


class Corrupt:
    """Corrupt images in `torchvision.transforms.v2.Compose`, in `datasets.map` or `set_transform`,
    or by a call.

    names: corruptions, of which each image gets one at random. severities: each image gets one of
    these at random.
    seed: None draws anew at each call, from Python's `random`, which PyTorch seeds in each worker
    of a DataLoader. A number gives the same image the same corruption in every run and order.
    column: the images of a mapping.

    A call takes an image, or an image and more (boxes, masks, labels), or a mapping with a column
    of one image or of several. Images are what `counterfoil.corrupt` takes, or torch tensors, uint8
    [3, height, width]. All but images comes back unchanged. If a corruption moves pixels, a call
    with boxes or masks raises ValueError.
    """

    def __init__(
        self,
        names: str | Sequence[str],
        severities: int | Sequence[int] = (1, 2, 3, 4, 5),
        *,
        seed: int | None = None,
        column: str = "image",
    ) -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.severities = [severities] if isinstance(severities, int) else list(severities)
        self.seed = seed
        self.column = column
        unknown = [name for name in self.names if name not in CORRUPTIONS]
        if unknown:
            raise ValueError(
                f"there is no corruption {', '.join(unknown)}; counterfoil.corruptions() lists them"
            )
        if not self.names or not set(self.severities) <= {1, 2, 3, 4, 5} or not self.severities:
            raise ValueError("expected one corruption or more, and severities from 1 to 5")

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            example = inputs[0]
            images = example[self.column]
            self._refuse_moved(example)
            if isinstance(images, list):
                corrupted = [self._corrupted(image) for image in images]
            else:
                corrupted = self._corrupted(images)
            return {**example, self.column: corrupted}
        image, *others = inputs
        for other in others:
            self._refuse_moved(other)
        corrupted = self._corrupted(image)
        return (corrupted, *others) if others else corrupted

    def __repr__(self) -> str:
        return f"Corrupt({self.names}, {self.severities}, seed={self.seed}, column={self.column!r})"

    def _corrupted(self, image: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(image, torch.Tensor):
            if image.dtype != torch.uint8 or image.ndim != 3:
                raise ValueError(
                    f"a tensor is uint8 [3, height, width], not {image.dtype} {tuple(image.shape)}"
                )
            pixels = self._corrupted(image.permute(1, 2, 0).cpu().numpy())
            corrupted = torch.from_numpy(pixels).permute(2, 0, 1).to(image.device)
            return corrupted.as_subclass(type(image))
        if isinstance(image, np.ndarray) and image.ndim == 4:
            return np.stack([self._corrupted(pixels) for pixels in image])
        rng: Any = random
        if self.seed is not None:
            digest = hashlib.sha256(np.asarray(image).tobytes()).hexdigest()
            rng = random.Random(f"{self.seed} {digest}")
        name = rng.choice(self.names)
        severity = rng.choice(self.severities)
        return corrupt(image, name, severity, seed=rng.getrandbits(63))

    def _refuse_moved(self, other: Any) -> None:
        """Raise ValueError if pixels may move and there are boxes or masks beside the image."""
        moving = [name for name in self.names if CORRUPTIONS[name].moves_pixels]
        geometry = next(_geometry_in(other), None) if moving else None
        if geometry is not None:
            raise ValueError(
                f"{', '.join(moving)} would move pixels, and {geometry} would no longer fit the"
                " image"
            )


# The keys of boxes and masks in the targets of torchvision, of COCO and of the Hub's datasets.
_GEOMETRY = frozenset(
    ("boxes", "bbox", "bboxes", "masks", "mask", "objects", "segmentation", "keypoints")
)


def _geometry_in(value: Any) -> Iterator[str]:
    """Yield what of a value are boxes, masks or points: keys of mappings, and classes of
    torchvision's tensors."""
    if type(value).__name__ in ("BoundingBoxes", "Mask", "KeyPoints"):
        yield type(value).__name__
    if isinstance(value, Mapping):
        yield from (key for key in value if str(key).lower() in _GEOMETRY)
        for nested in value.values():
            yield from _geometry_in(nested)
    elif isinstance(value, list | tuple):
        for nested in value:
            yield from _geometry_in(nested)
