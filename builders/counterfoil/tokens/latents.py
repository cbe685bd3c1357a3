"""Training images as latents: each one that a class's draws need is decoded and encoded once, then kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from counterfoil.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

_BATCH = 16  # images of one call of the VAE; short calls are padded, so that neighbours change no bit


@dataclass(frozen=True, slots=True)
class TrainingImages:
    """The training images of a class: how many, and a function that decodes one as RGB."""

    count: int
    image: Callable[[int], Image.Image]

    def __len__(self) -> int:
        return self.count


def centred_square(image: Image.Image, side: int) -> np.ndarray:
    """uint8 [side, side, 3]: the shorter side resized to `side` (bilinear), then the centre cut out."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    return np.asarray(ImageOps.fit(image.convert("RGB"), (side, side), Pillow.Resampling.BILINEAR))


class LatentCache:
    """Posterior mean and deviation of the VAE for (image, mirrored), by class."""

    def __init__(self, vae: Any, side: int) -> None:
        self.vae = vae
        self.side = side
        self._places: dict[str, dict[tuple[int, bool], int]] = {}
        self._means: dict[str, torch.Tensor] = {}
        self._deviations: dict[str, torch.Tensor] = {}

    def fill(self, class_id: str, images: TrainingImages, rows: np.ndarray, flips: np.ndarray) -> None:
        """Encode what the draws of a class need, once. UserError with every image that cannot be decoded."""
        if class_id in self._places:
            return
        pairs = sorted({(int(r), bool(f)) for r, f in zip(rows.flat, flips.flat, strict=True)})
        means, deviations = [], []
        problems: dict[str, None] = {}
        for start in range(0, len(pairs), _BATCH):
            part = pairs[start : start + _BATCH]
            pixels = []
            for row, flip in part:
                try:
                    pixels.append(self._pixels(images, row, flip))
                except UserError as error:
                    problems |= dict.fromkeys(error.problems)
            if problems:
                continue  # the rest is only looked at, so that all of them are told together
            mean, deviation = self._encode(np.stack(pixels + [pixels[-1]] * (_BATCH - len(part))))
            means.append(mean[: len(part)])
            deviations.append(deviation[: len(part)])
        if problems:
            raise UserError(list(problems)[:20], "Remove or replace these rows of the input dataset.")
        self._means[class_id], self._deviations[class_id] = torch.cat(means), torch.cat(deviations)
        self._places[class_id] = {pair: place for place, pair in enumerate(pairs)}

    def of(self, class_id: str, rows: np.ndarray, flips: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and deviation, each float32 [n, channels, height, width], of n draws."""
        places = self._places[class_id]
        chosen = torch.tensor([places[int(r), bool(f)] for r, f in zip(rows, flips, strict=True)])
        return self._means[class_id][chosen], self._deviations[class_id][chosen]

    def drop(self, class_id: str) -> None:
        """Forget a class whose token is learned."""
        for kept in (self._places, self._means, self._deviations):
            kept.pop(class_id, None)

    def _pixels(self, images: TrainingImages, row: int, flip: bool) -> np.ndarray:
        square = centred_square(images.image(row), self.side)
        return square[:, ::-1] if flip else square

    def _encode(self, pixels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Posterior of uint8 [n, side, side, 3], float32 on the CPU: a thousand images of 768 px take 300 MB."""
        vae = self.vae
        dtype = torch.float32 if getattr(vae.config, "force_upcast", False) else vae.dtype
        images = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).to(vae.device, dtype) / 127.5 - 1
        before = vae.dtype
        with torch.inference_mode():
            if dtype != before:
                vae.to(dtype)
            posterior = vae.encode(images).latent_dist
            if dtype != before:
                vae.to(before)
        # Clones: what inference mode made may not take part in a later graph.
        return posterior.mean.cpu().float().clone(), posterior.std.cpu().float().clone()
