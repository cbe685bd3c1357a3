"""Whether a pipeline edits images, and by which settings: by its family and configurations, before weights load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.diffusion import index_here
from counterfoil.models.generators import Family, family_of

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Generator

# Whose call begins at latents that it is given, and leaves those of each step to a callback.
_INVERTED = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")
# The one whose steps inversion follows back.
_SCHEDULER = "DDIM"
# The option that leaves out steps, so that the way back is another one than the way there.
_CUT_SHORT = "denoising_end"


def edit_problems(generator: Generator, family: Family, called: str, unet: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a pipeline for a recipe that edits rows, or needs an image where none is edited.

    `called` is the class whose call draws, `unet` the UNet's configuration, as far as there is one.
    """
    its = f"generator.model: '{generator.model}' is {family.name}"
    if generator.kind != "edit":
        if family.needs_image:
            yield f"{its}, which draws from an image alone; expected another one, or generator.kind edit"
    elif family.edits is None:
        yield f"{its}, which edits no image; expected Stable Diffusion 1.x, 2.x or XL, or a pipeline that edits"
    elif family.edits == "inversion":
        yield from _inversion_problems(generator, called, unet)


def inverts(generator: Generator) -> bool | None:
    """Whether rows are edited by inversion, by the pipeline's index alone; None where that is not on this machine."""
    if generator.kind != "edit":
        return False
    try:
        index = index_here(generator.model, generator.revision)
    except UserError:  # told by whoever checks the model itself
        return None
    name = (index or {}).get("_class_name")
    family = family_of(name) if isinstance(name, str) and name.isidentifier() else None
    return None if family is None else family.edits == "inversion"


def _inversion_problems(generator: Generator, called: str, unet: Mapping[str, Any]) -> Iterator[str]:
    if called not in _INVERTED or unet.get("time_cond_proj_dim") is not None:
        its = f"generator.model: '{generator.model}' is a {called}"
        yield f"{its}, which is distilled or draws otherwise, so that no image is inverted; expected its teacher"
    if generator.scheduler not in (None, _SCHEDULER):
        yield (
            f"generator.scheduler: found '{generator.scheduler}'; images are inverted by {_SCHEDULER}, expected null or"
            f" '{_SCHEDULER}'"
        )
    if generator.batch_size % 2:
        yield (
            f"generator.batch_size: found {generator.batch_size}; half of a batch are rows and half their edits,"
            " expected an even number"
        )
    if _CUT_SHORT in generator.options:
        yield (
            f"generator.options.{_CUT_SHORT}: an image is inverted over all steps and drawn over all of them; expected"
            " none"
        )
