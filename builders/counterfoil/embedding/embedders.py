"""What turns images into features: CLIP's image encoder, or a classifier before its last layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import UserError
from counterfoil.recipe import sha256_json

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.models.classifiers import Classifier
    from counterfoil.models.clip import ClipModel
    from counterfoil.models.names import Pin

_VERSIONS = ("torch", "pillow", "torchvision")


@dataclass(frozen=True, slots=True)
class Embedder:
    """`features(images, batch_size)` gives float32 [n, width]; what a batch holds changes no bit.

    `key` is a sha256 over all that the features depend on beside the images and the batch size. `on` makes the same one
    on a device of another process, where it pickles; None where only this process has it. kept: whether a later run may
    use its features again.
    """

    name: str
    key: str
    features: Callable[[Sequence[Image.Image], int], np.ndarray]
    on: Callable[[str], Embedder] | None = None
    kept: bool = True


def clip_embedder(clip: ClipModel, pin: Pin, weights: str | None = None) -> Embedder:
    """Unit vectors of a CLIP model that `pin` pins, so that a dot product is a cosine.

    `weights`: as it was loaded with.
    """
    key = _key("clip", pin.document(), clip.device, "open_clip_torch")
    return Embedder(pin.name, key, clip.embed_images, partial(_clip_on, clip.name, weights, pin))


def _clip_on(name: str, weights: str | None, pin: Pin, device: str) -> Embedder:
    from counterfoil.models.clip import load_clip

    return clip_embedder(load_clip(name, weights, device, revision=pin.revision), pin, weights)


def classifier_embedder(classifier: Classifier, device: str) -> Embedder:
    """What a classifier's last layer sees. UserError where its kind does not give it, or its content is not known."""
    if classifier.sha256 is None:
        raise UserError(f"model {classifier.name!r}: what it computes is not known, so its features cannot be kept")
    transform = classifier.transform()

    def features(images: Sequence[Image.Image], batch_size: int) -> np.ndarray:
        import torch

        parts = []
        for start in range(0, len(images), batch_size):
            part = [transform(image) for image in images[start : start + batch_size]]
            count = len(part)
            found = classifier.features(torch.stack(part + [part[-1]] * (batch_size - count)), device)
            if found is None:
                raise UserError(f"model {classifier.name!r}: its kind gives no features")
            parts.append(found[:count].numpy())
        return np.concatenate(parts)

    pin = {"sha256": classifier.sha256, "input": classifier.input_key}
    return Embedder(classifier.name, _key("classifier", pin, device, "timm"), features, kept=classifier.kept)


def _key(made_by: str, pin: Any, device: str, library: str) -> str:
    import torch

    return sha256_json(
        {
            "kind": made_by,
            "pin": pin,
            # Floats differ in the last bits between kinds of device and versions of what computes them.
            "device": torch.device(device).type,
            "versions": {name: version(name) for name in (*_VERSIONS, library)},
        }
    )
