"""Images of the lab's generator, each drawn once whoever asks for it: kept on disk by prompt, class
and seed.

A sample's pixels depend on its prompt, its seed, and the generator with its tokens, and on nothing
around it (`generate.Renderer`). So the base images of two targets' rounds, and every cell that two
of them ask for, are the same pictures. Models are loaded when the first picture is missing, once a
process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from counterfoil.arrays import Floats32
from counterfoil.generate.render import Renderer
from counterfoil.generate.tokens.class_tokens import ClassTokens, read_class_tokens
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.clip import ClipModel, load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.names import LAB_WEIGHTS, folder_sha256
from counterfoil.plan.layout import Sample
from counterfoil.recipe import Recipe
from proof_files import Arrays, arrays_of, digest_of, kept_array, save_arrays, text_digest
from proof_pictures import Pixels, images_of

_NOTHING: Arrays = {
    "pixels": np.zeros((0, 64, 64, 3), np.uint8),
    "features": np.zeros((0, 1), np.float32),
}


@dataclass(frozen=True, slots=True)
class PictureCell:
    """The pictures of one prompt (tokens in it), class id and seed of a plan, by index."""

    prompt: str
    class_id: str
    seed: int

    @property
    def name(self) -> str:
        """Its file."""
        return text_digest(f"{self.prompt}\0{self.class_id}\0{self.seed}")


@dataclass(frozen=True)
class Pictures:
    """n pictures of a cell. pixels: uint8 (n, 64, 64, 3). features: (n, width), unit vectors of the
    recipe's CLIP."""

    pixels: Pixels
    features: Floats32

    def __len__(self) -> int:
        return len(self.pixels)


class PictureStore:
    """Pictures under one folder, drawn as the recipe's generator draws them. drawn: how many this
    process drew."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tokens: ClassTokens | None = read_class_tokens(recipe)
        self.folder = folder / drawing_hash(recipe, self.tokens)
        self.drawn = 0
        self._held: dict[PictureCell, Pictures] = {}

    def of(
        self, wanted: Sequence[tuple[PictureCell, Sequence[Sample]]]
    ) -> Iterator[tuple[int, int]]:
        """Draw the missing pictures of some cells, each with its samples by index from 0; yield
        (drawn, to draw) on the way.

        What is missing is drawn in full batches, across cells.
        """
        missing = [
            (cell, sample) for cell, samples in wanted for sample in samples[len(self[cell]) :]
        ]
        size = self._batch
        done: dict[PictureCell, list[tuple[Pixels, Floats32]]] = {}
        for start in range(0, len(missing), size):
            part = missing[start : start + size]
            for (cell, _), picture in zip(
                part, self._drawn([sample for _, sample in part]), strict=True
            ):
                done.setdefault(cell, []).append(picture)
            # A cell is kept when no later batch has more of it.
            later = {cell for cell, _ in missing[start + size :]}
            for cell in [cell for cell in done if cell not in later]:
                self._keep(cell, done.pop(cell))
            yield min(start + size, len(missing)), len(missing)

    def __getitem__(self, cell: PictureCell) -> Pictures:
        if cell not in self._held:
            arrays = arrays_of(self._path(cell)) or _NOTHING
            self._held[cell] = Pictures(arrays["pixels"], arrays["features"])
        return self._held[cell]

    def embed_text(self, text: str) -> Floats32:
        """Return (width,) of a caption, and keep it: the screen asks for the same few again."""
        path = self.folder / "texts" / f"{text_digest(text)}.npy"
        with one_thread():
            return kept_array(path, lambda: self._clip.embed_texts([text])[0])

    def _keep(self, cell: PictureCell, more: Sequence[tuple[Pixels, Floats32]]) -> None:
        known = self[cell]
        pixels, features = (np.stack(part) for part in zip(*more, strict=True))
        if len(known):
            pixels = np.concatenate([known.pixels, pixels])
            features = np.concatenate([known.features, features])
        self._held[cell] = Pictures(pixels, features)
        save_arrays(self._path(cell), vars(self._held[cell]), compressed=True)

    def _drawn(self, samples: Sequence[Sample]) -> list[tuple[Pixels, Floats32]]:
        with one_thread():
            images = self._renderer.render(samples)
            if any(image is None for image in images):
                raise RuntimeError("the lab's generator gave no finite numbers")
            pixels = [np.asarray(image, dtype=np.uint8) for image in images]
            features = self._clip.embed_images(images_of(pixels), self._batch)
        self.drawn += len(samples)
        return list(zip(pixels, features.astype(np.float32), strict=True))

    @property
    def _batch(self) -> int:
        return self.recipe.generator.batch_size

    @cached_property
    def _renderer(self) -> Renderer:
        generator = self.recipe.drawing
        pipeline = load_pipeline(
            generator.model, scheduler=generator.scheduler, dtype=generator.dtype, device="cpu",
            tokens=None if self.tokens is None else self.tokens.by_placeholder(),
        )  # fmt: skip
        return Renderer(pipeline, self.recipe)

    @cached_property
    def _clip(self) -> ClipModel:
        return load_clip(self.recipe.screen.clip, self.recipe.screen.weights)

    def _path(self, cell: PictureCell) -> Path:
        return self.folder / "cells" / cell.name[:2] / f"{cell.name}.npz"


def drawing_hash(recipe: Recipe, tokens: ClassTokens | None) -> str:
    """Return a hash of what a picture depends on beside prompt and seed: generator, CLIP, tokens,
    their settings."""
    decides = [
        folder_sha256(LAB_WEIGHTS / "sd"),
        folder_sha256(LAB_WEIGHTS / "clip"),
        recipe.generator.model_dump(mode="json"),
        None if tokens is None else tokens.hashes(),
    ]
    return digest_of(decides)
