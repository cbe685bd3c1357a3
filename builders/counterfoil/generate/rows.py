"""Make samples from real images.

Each sample comes from a row of a pool or of the input dataset. The image of the row is unchanged,
corrupted, or edited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.corrupting.corrupt import apply_gain, contrast_match, corrupt
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.pictures import DrawnAhead, ImageRenderer, as_pictures, padded_to
from counterfoil.generate.render import Renderer, own_randomness
from counterfoil.generate.steps import paired_attention
from counterfoil.models.generators.family import join_encoded
from counterfoil.recipe.severity import SEVERITY
from counterfoil.recipe.tasks.task import UNIT

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from counterfoil.data.truth import RowTruth
    from counterfoil.data.written_objects import Size
    from counterfoil.plan.layout import Sample
    from counterfoil.recipe import Recipe


class PoolRows(ImageRenderer):
    """Takes the images of samples from rows of a pool."""

    def __init__(
        self,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None,
        units: Sequence[int] | None = None,
    ) -> None:
        """Take the functions that read the rows, and the number of each row's unit if rows store
        it."""
        self._image = image
        self._license = license
        self._units = units

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        images = [self._pixels(sample) for sample in samples]
        return lambda: images

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the kind's columns for each sample: its row in the pool, and the licence and unit
        if known."""
        return _columns(samples, self._license, self._units)

    def _pixels(self, sample: Sample) -> np.ndarray | None:
        try:
            return np.asarray(self._image(_row_of(sample)))
        except UserError:  # counted as any image that failed
            return None


def _row_of(sample: Sample) -> int:
    assert sample.row is not None  # the recipe takes or edits rows
    return sample.row


def _columns(
    samples: Sequence[Sample],
    license: Callable[[int], str | None] | None,
    units: Sequence[int] | None,
) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for sample in samples:
        row = _row_of(sample)
        of_row: dict[str, Any] = dict(sample.of_pool)
        if license is not None:
            of_row["license"] = license(row)
        if units is not None:
            of_row[UNIT] = units[row]
        columns.append(of_row)
    return columns


# A worker keeps decoded pictures of at most `_MOST_KEPT` bytes, which are 500 pictures of 256 x 341
# pixels. The worker keeps the first pictures, because every group reads all rows again in the same
# order.
_MOST_KEPT = 1 << 27


class CorruptedRows(PoolRows):
    """Makes the images of rows: unchanged for the base, and corrupted for each shift.

    A row has the same seed under every shift, so two severities of one corruption share their
    noise.
    """

    def __init__(
        self,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None,
        partner_of: Mapping[str, Callable[[int], Image.Image]],
        truth: RowTruth,
        units: Sequence[int] | None,
    ) -> None:
        """Take the functions that read the rows, and what the rows show beside their class.

        For each matching shift, `partner_of` holds a function from a row to the image of its
        partner.
        """
        super().__init__(image, license, units)
        self._partner_of = partner_of
        self._side = recipe.generator.get("size")
        self._shifts = {shift.name: shift for shift in recipe.all_shifts()}
        self._truth = truth
        self._sizes: dict[int, tuple[Size, Size]] = {}
        self._kept: dict[int, np.ndarray] = {}
        self._room = _MOST_KEPT

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the columns of each sample: those of its row, the severity, and what the row
        shows."""
        columns = super().values(samples)
        for column, sample in zip(columns, samples, strict=True):
            row = _row_of(sample)
            column[SEVERITY] = self._shifts[sample.shift].severity
            if row not in self._sizes:
                self._decoded(row)
            size, stored = self._sizes[row]
            column |= self._truth.columns(row, size, stored)
        return columns

    def _pixels(self, sample: Sample) -> np.ndarray:
        """Raise RunFailure for a row that does not decode, because every row decoded when it was
        chosen."""
        row = _row_of(sample)
        shift = self._shifts[sample.shift]
        partner = self._partner_of.get(sample.shift)
        try:
            pixels = self._decoded(row)
            matched = None
            if partner is not None:
                matched = np.asarray(reduced(partner(row), self._side))
        except UserError as error:
            hint = "Each row decoded when it was chosen. Check the disk."
            raise RunFailure(error.problems, hint) from error
        if matched is not None:
            return apply_gain(pixels, *contrast_match(pixels, matched))
        if shift.corruption is None:
            return pixels
        return corrupt(pixels, shift.corruption, shift.severity, seed=sample.seed)

    def _decoded(self, row: int) -> np.ndarray:
        """Return a row's reduced picture, and keep it for the next groups while there is room."""
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
    """Shrink a picture until its shorter side has at most `side` pixels."""
    if side is None or min(picture.size) <= side:
        return picture
    from PIL import Image

    scale = side / min(picture.size)
    width = max(side, round(picture.width * scale))
    height = max(side, round(picture.height * scale))
    return picture.resize((width, height), Image.Resampling.LANCZOS)


class EditRenderer(Renderer):
    """Edits the row of each sample. The base image is an edit too, and shows what editing alone
    changes.
    """

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None = None,
        units: Sequence[int] | None = None,
        truth: RowTruth | None = None,
    ) -> None:
        """Take the functions that decode a row and return its licence, the number of each row's
        unit if rows store it, and what the rows show beside their class."""
        super().__init__(pipeline, recipe)
        self._truth = truth
        self._stored_side = recipe.generator.saved_size or self.side
        self._sizes: dict[int, Size] = {}
        self._image = image
        self._license = license
        self._units = units
        self.inverted = InvertedRows(self)

    def _start_batches(self, samples: Sequence[Sample]) -> Iterator[tuple[list[int], DrawnAhead]]:
        """Yield batches as a `Renderer` does, without the samples whose rows cannot be decoded."""
        sources = {}
        for index, source in enumerate(self.sources(samples)):
            if source is not None:
                sources[index] = source
        if self.family.edits != "inversion":
            for index, source in sources.items():
                sample = samples[index]
                arguments = self._plain_arguments(sample)
                with own_randomness(sample.seed, self.device), self._ids_in_bounds():
                    pixels = self._call_pipeline({**arguments, "image": source}, [sample])
                yield [index], as_pictures(pixels)
            return
        readable = list(sources)
        half = self.inverted.half
        for start in range(0, len(readable), half):
            indices = readable[start : start + half]
            part = [samples[index] for index in indices]
            rows = [sources[index] for index in indices]
            pixels = self.inverted.edited(part, rows)
            yield indices, as_pictures(pixels)

    def sources(self, samples: Sequence[Sample]) -> list[Image.Image | None]:
        """Return the middle square of each sample's row, scaled to the side that the pipeline
        draws.

        A row that cannot be decoded gives None.
        """
        from PIL import Image, ImageOps

        squares: list[Image.Image | None] = []
        for sample in samples:
            row = _row_of(sample)
            try:
                image = self._image(row)
            except UserError:  # counted as any image that failed
                squares.append(None)
                continue
            self._sizes[row] = image.size
            size = (self.side, self.side)
            if image.size != size:
                image = ImageOps.fit(image, size, Image.Resampling.LANCZOS)
            squares.append(image)
        return squares

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the kind's columns for each sample: its row, what the row shows, and the licence
        and unit if known."""
        columns = _columns(samples, self._license, self._units)
        if self._truth is None:
            return columns
        for column, sample in zip(columns, samples, strict=True):
            row = _row_of(sample)
            if row not in self._sizes:
                self._sizes[row] = self._image(row).size
            size = self._sizes[row]
            column |= self._truth.square_columns(row, size, self._stored_side)
        return columns


class InvertedRows:
    """Draws rows again under other prompts.

    Every call has the same size: the first half of a batch are rows, and the second half are their
    edits.

    DDIM inversion (Song et al. 2021, "Denoising diffusion implicit models", section 4.3) finds the
    noise of a real image and the latents of the image at each step. The edit starts from the same
    noise, in the same call as the image, and attends to the keys and values of the image. Guided
    steps do not lead back to the image exactly. So after each step the latents of the image are set
    to the inverted ones (Ju et al. 2023, "Direct inversion"), and the same correction is added to
    the edit (Wu and De la Torre 2023, "CycleDiffusion"). An edit under the image's own prompt is
    therefore the image, except for what the autoencoder loses.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.pipeline = renderer.pipeline
        self.half = renderer.generator.batch_size // 2

    def edited(self, samples: Sequence[Sample], sources: Sequence[Image.Image]) -> torch.Tensor:
        """Edit the row of each sample. Return pixels [n, 3, side, side].

        There are at most half as many samples as a batch holds.
        """
        import torch

        rows = padded_to(self.half, samples)
        images = padded_to(self.half, sources)
        with self.renderer.computing("edit"), torch.inference_mode():
            latents = self._latents(images)
            drawn = self._draw(rows, self.invert(rows, latents))
        chosen = []
        for index, sample in enumerate(samples):
            # An edit under the row's own prompt would equal the row except for rounding. So take
            # the row itself from the call.
            same = sample.prompt == sample.base_prompt
            chosen.append(index if same else self.half + index)
        return drawn[chosen]

    def _latents(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """Encode images as latents, in the scale that the model expects."""
        import torch

        vae = self.pipeline.vae
        number_type = vae.dtype
        arrays = [np.asarray(image.convert("RGB")) for image in images]
        levels = torch.from_numpy(np.stack(arrays))
        pixels = levels.permute(0, 3, 1, 2).float() / 127.5 - 1
        # The first autoencoder of SDXL overflows in 16 bits. Diffusers decodes it in 32 bits, so
        # encode it so too.
        upcast = number_type == torch.float16 and vae.config.get("force_upcast")
        if upcast:
            vae.to(torch.float32)
        pixels = pixels.to(device=self.renderer.device, dtype=vae.dtype)
        latents = vae.encode(pixels).latent_dist.mode()
        if upcast:
            vae.to(number_type)
        means = vae.config.get("latents_mean")
        deviations = vae.config.get("latents_std")
        if means is not None and deviations is not None:
            latents = latents - latents.new_tensor(means).view(1, -1, 1, 1)
            latents = latents / latents.new_tensor(deviations).view(1, -1, 1, 1)
        scaled = latents * vae.config.scaling_factor
        return scaled.to(self.pipeline.unet.dtype)

    def invert(self, samples: Sequence[Sample], latents: torch.Tensor) -> list[torch.Tensor]:
        """Return the latents of real images at every amount of noise, from no noise to pure noise.

        The list has one element more than there are steps.
        """
        inverted = [latents]

        def remember(
            _pipeline: Any,
            _step: int,
            _time: Any,
            tensors: Mapping[str, Any],
        ) -> dict[str, Any]:
            inverted.append(tensors["latents"].clone())
            return {}

        prompts = [self.renderer.encode(sample.base_prompt or "") for sample in samples]
        alone = {}
        for name, value in join_encoded(prompts).items():
            if not name.startswith("negative"):
                alone[name] = value
        with self._stepping("DDIMInverseScheduler"):
            self._call(alone, samples, latents, remember, guidance_scale=1.0, output_type="latent")
        return inverted

    def _draw(self, samples: Sequence[Sample], inverted: Sequence[torch.Tensor]) -> torch.Tensor:
        import torch

        def put_back(
            _pipeline: Any,
            step: int,
            _time: Any,
            tensors: Mapping[str, Any],
        ) -> dict[str, Any]:
            reached, edited = tensors["latents"].split(self.half)
            due = inverted[-2 - step]
            return {"latents": torch.cat([due, edited + (due - reached)])}

        renderer = self.renderer
        rows = [renderer.encode(sample.base_prompt or "") for sample in samples]
        edits = [renderer.conditioning(sample) for sample in samples]
        encoded = join_encoded([*rows, *edits])
        with (
            self._stepping("DDIMScheduler"),
            paired_attention(self.pipeline, renderer.family, self.half),
        ):
            return self._call(
                encoded,
                [*samples, *samples],
                torch.cat([inverted[-1], inverted[-1]]),
                put_back,
                guidance_scale=renderer.generator.guidance,
                output_type=renderer.family.output,
            )

    def _call(
        self,
        encoded: Mapping[str, Any],
        samples: Sequence[Sample],
        latents: torch.Tensor,
        callback: Any,
        **call: Any,
    ) -> torch.Tensor:
        import torch

        renderer = self.renderer
        noise = [torch.Generator("cpu").manual_seed(sample.seed) for sample in samples]
        return self.pipeline(
            **dict(renderer.family.sets) | renderer.generator.options,
            **encoded,
            **call,
            latents=latents,
            generator=noise,
            num_inference_steps=renderer.generator.steps,
            height=renderer.side,
            width=renderer.side,
            callback_on_step_end=callback,
            callback_on_step_end_tensor_inputs=["latents"],
        ).images

    @contextlib.contextmanager
    def _stepping(self, name: str) -> Iterator[None]:
        """Replace the scheduler of the pipeline within the block by the named one, with the same
        timesteps."""
        import diffusers

        before = self.pipeline.scheduler
        # Clipped latents could not be inverted. The configuration omits settings with default
        # values, and the defaults of schedulers differ, so name all three settings.
        same = {"clip_sample": False, "thresholding": False, "timestep_spacing": "leading"}
        self.pipeline.scheduler = getattr(diffusers, name).from_config(before.config, **same)
        try:
            yield
        finally:
            self.pipeline.scheduler = before
