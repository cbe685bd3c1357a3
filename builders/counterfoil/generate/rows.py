"""Real images as a generator: a sample is a row of a pool or of the input dataset, as it is, corrupted, or edited."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.corruptions import apply_gain, contrast_match, corrupt
from counterfoil.generate.pictures import DrawnAhead, as_pictures
from counterfoil.generate.render import Renderer, own_randomness
from counterfoil.generate.steps import paired_attention
from counterfoil.models.generators.family import join_encoded
from counterfoil.recipe.objects import OBJECTS
from counterfoil.recipe.severity import SEVERITY

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from counterfoil.data.objects import SourceObjects
    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe


class PoolRows:
    """Gives batches of samples their images, as a `Renderer` does."""

    def __init__(self, image: Callable[[int], Image.Image], license: Callable[[int], str | None] | None) -> None:
        self._image = image
        self._license = license

    def render(self, samples: Sequence[Sample]) -> list[np.ndarray | None]:
        """uint8 [height, width, 3] of each sample's row; None for one that cannot be decoded."""
        return [self._pixels(sample) for sample in samples]

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        images = self.render(samples)
        return lambda: images

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the cells of the kind's columns for each sample: its row in the pool, and the licence if known."""
        return _columns(samples, self._license)

    def _pixels(self, sample: Sample) -> np.ndarray | None:
        assert sample.row is not None
        try:
            return np.asarray(self._image(sample.row))
        except UserError:  # counted as any image that failed
            return None


def _columns(samples: Sequence[Sample], license: Callable[[int], str | None] | None) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for sample in samples:
        assert sample.row is not None  # the recipe takes or edits rows
        columns.append({**sample.of_pool, **({} if license is None else {"license": license(sample.row)})})
    return columns


# Decoded pictures that a worker keeps, in bytes: 500 of 256 x 341 pixels. Every group asks for all rows again, so the
# first ones are kept, and not the last.
_MOST_KEPT = 1 << 27


class CorruptedRows(PoolRows):
    """Rows untouched, as the base, and under the corruption of each shift.

    An image depends on its row, the corruption, its severity and the sample's seed alone: one seed serves a row under
    every shift, so that two severities of one corruption share their noise.
    """

    def __init__(
        self,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None,
        partner_of: Mapping[str, Callable[[int], Image.Image]] = MappingProxyType({}),
        objects: SourceObjects | None = None,
    ) -> None:
        """Take in `partner_of`, for each matching shift, a function from a row to its partner; and rows' objects."""
        super().__init__(image, license)
        self._partner_of = partner_of
        self._side = recipe.generator.size
        self._shifts = {shift.name: shift for shift in recipe.all_shifts()}
        self._objects = objects
        self._sizes: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._kept: dict[int, np.ndarray] = {}
        self._room = _MOST_KEPT

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the columns of rows, the severity, and the objects in pixels of the stored image."""
        columns = super().values(samples)
        for column, sample in zip(columns, samples, strict=True):
            column[SEVERITY] = self._shifts[sample.shift].severity
            if self._objects is not None:
                assert sample.row is not None
                if sample.row not in self._sizes:
                    self._decoded(sample.row)
                column[OBJECTS] = self._objects.of_image(sample.row, *self._sizes[sample.row])
        return columns

    def _pixels(self, sample: Sample) -> np.ndarray:
        """Return uint8 [height, width, 3]. RunFailure for a row that no longer decodes: each did when it was chosen."""
        assert sample.row is not None
        shift, partner = self._shifts[sample.shift], self._partner_of.get(sample.shift)
        try:
            pixels = self._decoded(sample.row)
            matched = None if partner is None else np.asarray(reduced(partner(sample.row), self._side))
        except UserError as error:
            raise RunFailure(error.problems, "Each row decoded when it was chosen. Check the disk.") from error
        if matched is not None:
            return apply_gain(pixels, *contrast_match(pixels, matched))
        return pixels if shift.corruption is None else corrupt(pixels, shift.corruption, shift.severity, sample.seed)

    def _decoded(self, row: int) -> np.ndarray:
        """Return a row's picture, uint8 [height, width, 3], and keep it for the next groups while there is room."""
        pixels = self._kept.get(row)
        if pixels is None:
            picture = self._image(row)
            smaller = reduced(picture, self._side)
            self._sizes[row] = picture.size, smaller.size
            pixels = np.asarray(smaller)
            if pixels.nbytes <= self._room:
                self._room -= pixels.nbytes
                self._kept[row] = pixels
        return pixels


def reduced(picture: Image.Image, side: int | None) -> Image.Image:
    """Shrink a picture to a shorter side of at most `side` pixels."""
    if side is None or min(picture.size) <= side:
        return picture
    from PIL import Image

    scale = side / min(picture.size)
    width, height = (max(side, round(each * scale)) for each in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS)


class EditRenderer(Renderer):
    """Gives batches of samples their images, as a `Renderer` does, each from the row that it names.

    `image` decodes a row, `license` tells what its dataset says of it. The base goes the same way as every shift, so
    that it tells what the way itself costs. An image depends on its sample, its row and the batch size alone.
    """

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None = None,
    ) -> None:
        super().__init__(pipeline, recipe)
        self._image = image
        self._license = license
        self.inverted = InvertedRows(self)

    def _lots(self, samples: Sequence[Sample]) -> Iterator[tuple[list[int], DrawnAhead]]:
        """Yield lots as `Renderer._lots`, without rows that cannot be decoded."""
        sources = self.sources(samples)
        readable = [index for index, source in enumerate(sources) if source is not None]
        if self.family.edits != "inversion":
            for index in readable:
                sample = samples[index]
                with own_randomness(sample.seed, self.pipeline._execution_device), self._ids_in_bounds():
                    pixels = self._called(self._plain(sample) | {"image": sources[index]}, [sample])
                yield [index], as_pictures(pixels)
            return
        half = self.inverted.half
        for start in range(0, len(readable), half):
            lot = readable[start : start + half]
            rows = [source for index in lot if (source := sources[index]) is not None]
            yield lot, as_pictures(self.inverted.edited([samples[index] for index in lot], rows))

    def sources(self, samples: Sequence[Sample]) -> list[Image.Image | None]:
        """Return the middle square of each sample's row, at the side that is drawn."""
        return [self._source(sample) for sample in samples]

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the cells of the kind's columns for each sample: its row, and the licence if known."""
        return _columns(samples, self._license)

    def _source(self, sample: Sample) -> Image.Image | None:
        from PIL import Image, ImageOps

        assert sample.row is not None
        try:
            image = self._image(sample.row)
        except UserError:  # counted as any image that failed
            return None
        if image.size == (self.side, self.side):
            return image
        return ImageOps.fit(image, (self.side, self.side), Image.Resampling.LANCZOS)


class InvertedRows:
    """Draws rows anew under prompts, in calls of one size: half of a batch are rows, the other half their edits.

    DDIM inversion (Song et al. 2021, "Denoising diffusion implicit models", section 4.3) gives the noise from which a
    model draws a real image, and the image's own way from it. The edit is drawn from that noise beside the image, and
    attends to its keys and values. No step of a model under guidance leads back exactly: after each the image is put
    back on its way (Ju et al. 2023, "Direct inversion"), and what the step missed is added to the edit as well, as the
    noise that explains a real image is added to its edit by Wu and De la Torre 2023, "CycleDiffusion". So the edit
    under the image's own prompt is the image, but for what the autoencoder loses, whatever the guidance and the number
    of steps; for what rounding would leave of it, the image itself is taken there. All steps are diffusers' own.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.pipeline = renderer.pipeline
        self.half = renderer.generator.batch_size // 2

    def edited(self, samples: Sequence[Sample], sources: Sequence[Image.Image]) -> torch.Tensor:
        """Edit up to half a batch of samples, each from its row's image: pixels [n, 3, side, side]."""
        import torch

        missing = self.half - len(samples)
        rows = [*samples, *[samples[-1]] * missing]
        images = [*sources, *[sources[-1]] * missing]
        with self.renderer.computing("edit"), torch.inference_mode():
            way = self.way(rows, self._latents(images))
            drawn = self._drawn(rows, way)
        # Under its own prompt the edit is its row but for what rounding leaves, and the row is in the call itself.
        chosen = []
        for index, sample in enumerate(samples):
            chosen.append(index if sample.prompt == sample.base_prompt else self.half + index)
        return drawn[chosen]

    def _latents(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Encode images as latents, scaled as the model expects."""
        import torch

        vae = self.pipeline.vae
        number_type = vae.dtype
        pixels = torch.from_numpy(np.stack([np.asarray(image.convert("RGB")) for image in images]))
        pixels = pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
        # As diffusers decodes: XL's first autoencoder overflows in 16 bits.
        upcast = number_type == torch.float16 and vae.config.get("force_upcast")
        if upcast:
            vae.to(torch.float32)
        latents = vae.encode(pixels.to(device=self.pipeline._execution_device, dtype=vae.dtype)).latent_dist.mode()
        if upcast:
            vae.to(number_type)
        mean, std = (vae.config.get(name) for name in ("latents_mean", "latents_std"))
        if mean is not None and std is not None:
            own = {"device": latents.device, "dtype": latents.dtype}
            latents = (latents - torch.tensor(mean, **own).view(1, -1, 1, 1)) / torch.tensor(std, **own).view(
                1, -1, 1, 1
            )
        return (latents * vae.config.scaling_factor).to(self.pipeline.unet.dtype)

    def way(self, samples: Sequence[Sample], latents: torch.Tensor) -> list[torch.Tensor]:
        """Invert real images: latents from no noise to all of it, one more than there are steps."""
        way = [latents]

        def remember(_pipeline: Any, _step: int, _time: Any, held: Mapping[str, Any]) -> dict[str, Any]:
            way.append(held["latents"].clone())
            return {}

        encoded = join_encoded([self.renderer.encode(sample.base_prompt or "") for sample in samples])
        alone = {name: value for name, value in encoded.items() if not name.startswith("negative")}
        with self._stepping("DDIMInverseScheduler"):
            self._call(alone, samples, latents, remember, guidance_scale=1.0, output_type="latent")
        return way

    def _drawn(self, samples: Sequence[Sample], way: Sequence[torch.Tensor]) -> torch.Tensor:
        import torch

        def put_back(_pipeline: Any, step: int, _time: Any, held: Mapping[str, Any]) -> dict[str, Any]:
            reached, edits = held["latents"].split(self.half)
            due = way[-2 - step]
            return {"latents": torch.cat([due, edits + (due - reached)])}

        renderer = self.renderer
        rows = [renderer.encode(sample.base_prompt or "") for sample in samples]
        encoded = join_encoded([*rows, *(renderer.conditioning(sample) for sample in samples)])
        with self._stepping("DDIMScheduler"), paired_attention(self.pipeline, renderer.family, self.half):
            return self._call(
                encoded,
                [*samples, *samples],
                torch.cat([way[-1], way[-1]]),
                put_back,
                guidance_scale=renderer.generator.guidance,
                output_type=renderer.family.output,
            )

    def _call(
        self, encoded: Mapping[str, Any], samples: Sequence[Sample], latents: torch.Tensor, callback: Any, **own: Any
    ) -> torch.Tensor:
        import torch

        renderer = self.renderer
        return self.pipeline(
            **dict(renderer.family.sets) | renderer.generator.options,
            **encoded,
            **own,
            latents=latents,
            generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
            num_inference_steps=renderer.generator.steps,
            height=renderer.side,
            width=renderer.side,
            callback_on_step_end=callback,
            callback_on_step_end_tensor_inputs=["latents"],
        ).images

    @contextlib.contextmanager
    def _stepping(self, name: str) -> Iterator[None]:
        """Replace the pipeline's scheduler inside the block by one of diffusers with the same timesteps."""
        import diffusers

        before = self.pipeline.scheduler
        # Latents go beyond 1, and clipped ones lead nowhere back. Named beside the configuration, for what that has by
        # default is left out of it.
        same = {"clip_sample": False, "thresholding": False, "timestep_spacing": "leading"}
        self.pipeline.scheduler = getattr(diffusers, name).from_config(before.config, **same)
        try:
            yield
        finally:
            self.pipeline.scheduler = before
