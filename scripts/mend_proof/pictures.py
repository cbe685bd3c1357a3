"""Pictures of the lab's generator by prompt, each drawn once whoever asks: worlds, classifiers and runs share them.

A picture is decided by its prompt and its number: the noise of a number is the same under every prompt, as the lab's
recipes draw in pairs. Planted worlds are drawn by class names. The wardrobe's classes are drawn by their tokens, as
`wardrobe-star` draws them: a checked coat is what its classifiers know as a coat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.lab.vocabulary import CLASSES
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256
from counterfoil.recipe import load_recipe
from counterfoil.tokens.class_tokens import read_class_tokens
from mend_proof.kept import saved
from mend_proof.targets import clip_vectors

# As the lab's recipes draw.
_STEPS, _GUIDANCE, _BATCH = 12, 3.0, 25
_FIRST_SEED = 77_000_000


class Pictures:
    """Pictures under a folder. tokens: whether classes are drawn by the tokens of `wardrobe-star`."""

    def __init__(self, folder: Path, tokens: bool) -> None:
        self.tokens = tokens
        self.folder = folder / "pictures" / f"{'tokens' if tokens else 'names'}-{folder_sha256(LAB_WEIGHTS / 'sd')[:8]}"
        self.drawn = 0

    def of(self, prompt: str, count: int) -> NDArray[np.uint8]:
        """The first `count` pictures of a prompt, uint8 [count, 64, 64, 3]; `{00}` … stand for classes in it."""
        self.have([prompt], count)
        return self._known(prompt)[:count]

    def vectors(self, prompt: str, count: int) -> NDArray[np.float32]:
        """(count, width) of the first pictures of a prompt, by CLIP, kept beside them."""
        path = self.path(prompt).with_suffix(".clip.npy")
        known = np.load(path) if path.exists() else np.zeros((0, 1), np.float32)
        if len(known) < count:
            known = clip_vectors(self.of(prompt, count))
            saved(path, lambda to: np.save(to, known))
        return known[:count]

    def have(self, prompts: Sequence[str], count: int) -> None:
        """Draw what is missing of some prompts, a file a prompt."""
        for prompt in dict.fromkeys(prompts):
            known = self._known(prompt)
            if len(known) < count:
                more = self._draw(prompt, range(len(known), count))
                found = np.concatenate([known, more]) if len(known) else more
                saved(self.path(prompt), lambda to, found=found: np.savez_compressed(to, pixels=found))
                self.drawn += len(more)

    def path(self, prompt: str) -> Path:
        """The file of a prompt."""
        return self.folder / f"{hashlib.sha256(prompt.encode()).hexdigest()[:24]}.npz"

    def _known(self, prompt: str) -> NDArray[np.uint8]:
        path = self.path(prompt)
        if not path.exists():
            return np.zeros((0, 64, 64, 3), np.uint8)
        with np.load(path) as arrays:
            return arrays["pixels"]

    def _draw(self, prompt: str, numbers: range) -> NDArray[np.uint8]:
        import torch

        parts, written = [], self._written(prompt)
        for start in range(numbers.start, numbers.stop, _BATCH):
            own = range(start, min(start + _BATCH, numbers.stop))
            with torch.inference_mode():
                images = self._pipeline(
                    prompt=[written] * len(own),
                    num_inference_steps=_STEPS,
                    guidance_scale=_GUIDANCE,
                    generator=[torch.Generator().manual_seed(_FIRST_SEED + number) for number in own],
                    output_type="np",
                ).images
            parts.append(np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8))
        return np.concatenate(parts)

    def _written(self, prompt: str) -> str:
        """The prompt as the generator reads it: each `{label}` is a class's name, or its token."""
        for label, name in enumerate(CLASSES):
            prompt = prompt.replace(f"{{{label}}}", self._placeholders.get(f"{label:02d}", name))
        return prompt

    @cached_property
    def _class_tokens(self) -> Any:
        return read_class_tokens(load_recipe("wardrobe-star")) if self.tokens else None

    @cached_property
    def _placeholders(self) -> dict[str, str]:
        return {} if self._class_tokens is None else dict(self._class_tokens.placeholders)

    @cached_property
    def _pipeline(self) -> Any:
        tokens = None if self._class_tokens is None else self._class_tokens.by_placeholder()
        return load_pipeline("lab:sd", dtype="float32", tokens=tokens)
