"""The attribute oracle: reads every attribute of a wardrobe picture; trained on unbiased scenes, used only to judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from counterfoil.lab.vocabulary import ATTRIBUTES

FOLDER = Path(__file__).parent / "weights" / "oracle"


class Oracle:
    """Judges batches of pictures; one linear head a attribute, in the order of `vocabulary.ATTRIBUTES`."""

    def __init__(self, folder: Path = FOLDER) -> None:
        import timm

        self.module = timm.create_model(f"local-dir:{folder}", pretrained=True).eval().requires_grad_(False)

    def judge(self, pixels: np.ndarray, batch_size: int = 128) -> dict[str, np.ndarray]:
        """Attribute → value index int64 [n], for pictures uint8 [n, 64, 64, 3]."""
        import torch

        rows = []
        for start in range(0, len(pixels), batch_size):
            part = torch.from_numpy(np.array(pixels[start : start + batch_size])).permute(0, 3, 1, 2)
            with torch.inference_mode():
                rows.append(self.module(part.float() / 127.5 - 1).numpy())
        logits = np.concatenate(rows)
        answers, start = {}, 0
        for attribute, values in ATTRIBUTES.items():
            answers[attribute] = logits[:, start : start + len(values)].argmax(1)
            start += len(values)
        return answers
