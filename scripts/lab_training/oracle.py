"""The attribute oracle: it reads every attribute of a picture, was trained on unbiased scenes, and
only judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.models.names import LAB_WEIGHTS

ORACLE_FOLDER = LAB_WEIGHTS / "oracle"


class Oracle:
    """Read the attributes of pictures; one linear head an attribute, in the order of
    `vocabulary.ATTRIBUTES`."""

    def __init__(self, folder: Path = ORACLE_FOLDER) -> None:
        import timm

        model = timm.create_model(f"local-dir:{folder}", pretrained=True)
        self.module = model.eval().requires_grad_(False)

    def answers(self, pixels: np.ndarray, batch_size: int = 128) -> dict[str, np.ndarray]:
        """Return attribute → value index int64 [n], for pictures uint8 [n, 64, 64, 3]."""
        logits = self._logits(pixels, batch_size)
        return {attribute: scores.argmax(1) for attribute, scores in logits.items()}

    def confidences(self, pixels: np.ndarray, batch_size: int = 128) -> dict[str, np.ndarray]:
        """Return attribute → probability of each of its values, float64 [n, values]."""
        from scipy.special import softmax

        logits = self._logits(pixels, batch_size)
        return {
            attribute: softmax(scores.astype(np.float64), axis=1)
            for attribute, scores in logits.items()
        }

    def _logits(self, pixels: np.ndarray, batch_size: int) -> dict[str, np.ndarray]:
        import torch

        rows = []
        for start in range(0, len(pixels), batch_size):
            part = torch.from_numpy(np.array(pixels[start : start + batch_size]))
            with torch.inference_mode():
                images = part.permute(0, 3, 1, 2).float() / 127.5 - 1
                rows.append(self.module(images).numpy())
        ends = np.cumsum([len(values) for values in ATTRIBUTES.values()])[:-1]
        return dict(zip(ATTRIBUTES, np.split(np.concatenate(rows), ends, axis=1), strict=True))
