"""Generator families: each kind of pipeline that is driven is a file here and a line in this table."""

from __future__ import annotations

from counterfoil.models.generators.family import Family
from counterfoil.models.generators.kandinsky import KANDINSKY
from counterfoil.models.generators.stable_diffusion import STABLE_DIFFUSION
from counterfoil.models.generators.stable_diffusion_xl import STABLE_DIFFUSION_XL
from counterfoil.models.generators.stable_unclip import STABLE_UNCLIP

FAMILIES: tuple[Family, ...] = (
    STABLE_DIFFUSION,
    STABLE_DIFFUSION_XL,
    STABLE_UNCLIP,
    KANDINSKY,
)


def family_of(pipeline: str) -> Family | None:
    """The family that drives a class of diffusers' pipelines; None where there is none."""
    return next((family for family in FAMILIES if pipeline in family.pipelines), None)


def known_families() -> str:
    """The families as a person reads them."""
    return " or ".join(family.name for family in FAMILIES)


__all__ = ["FAMILIES", "Family", "family_of", "known_families"]
