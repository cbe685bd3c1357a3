"""LongCat-Image-Edit edits an image by a prompt, which its language model reads together with the
image."""

from __future__ import annotations

from counterfoil.models.generators.family import Family

LONGCAT_IMAGE_EDIT = Family(
    name="LongCat-Image-Edit",
    pipelines=("LongCatImageEditPipeline",),
    prompts="plain",
    side=1024,  # a call takes no size: it resizes the given image to this area, and draws that
    sized=lambda side: {},
    output="np",
    edits="pipeline",
    needs_image=True,
)
