"""List the families of generators. Each family is a file here and a line in the table."""

from __future__ import annotations

from functools import cache

from counterfoil.models.generators.any_pipeline import ANY_PIPELINE, any_family
from counterfoil.models.generators.family import Family
from counterfoil.models.generators.flux import FLUX, FLUX_KONTEXT
from counterfoil.models.generators.flux_2 import FLUX_2, FLUX_2_KLEIN_KV
from counterfoil.models.generators.kandinsky import KANDINSKY
from counterfoil.models.generators.longcat_image import LONGCAT_IMAGE_EDIT
from counterfoil.models.generators.pixart import PIXART, SANA
from counterfoil.models.generators.qwen_image import QWEN_IMAGE, QWEN_IMAGE_EDIT
from counterfoil.models.generators.stable_diffusion import (
    INSTRUCT_PIX2PIX,
    STABLE_DIFFUSION,
    STABLE_DIFFUSION_3,
    STABLE_DIFFUSION_XL,
    STABLE_UNCLIP,
)
from counterfoil.models.generators.z_image import Z_IMAGE

FAMILIES: tuple[Family, ...] = (
    STABLE_DIFFUSION,
    STABLE_DIFFUSION_XL,
    STABLE_DIFFUSION_3,
    FLUX,
    QWEN_IMAGE,
    Z_IMAGE,
    SANA,
    PIXART,
    STABLE_UNCLIP,
    KANDINSKY,
    INSTRUCT_PIX2PIX,
    FLUX_KONTEXT,
    QWEN_IMAGE_EDIT,
    FLUX_2,
    FLUX_2_KLEIN_KV,
    LONGCAT_IMAGE_EDIT,
    ANY_PIPELINE,
)


def family_of(pipeline: str) -> Family | None:
    """Return the family of a pipeline class, or None. Import diffusers if no family names the
    class."""
    family = _family_or_reason(pipeline)
    return family if isinstance(family, Family) else None


def why_no_family(pipeline: str) -> str | None:
    """Return why a pipeline class has no family, in words that follow its name, or None if it has
    one."""
    family = _family_or_reason(pipeline)
    return None if isinstance(family, Family) else family


@cache
def _family_or_reason(pipeline: str) -> Family | str:
    for family in FAMILIES:
        if pipeline in family.pipelines:
            return family
    return any_family(pipeline)


def known_families() -> str:
    *most, last = (family.name for family in FAMILIES)
    return f"{', '.join(most)} or {last}"
