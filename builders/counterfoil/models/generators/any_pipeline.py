"""Drive other text-to-image pipelines of diffusers with plain prompts. Each image is drawn by a
call of its own."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

from counterfoil.models.generators.family import Family, is_required

ANY_PIPELINE = Family(
    name="another text-to-image pipeline of diffusers",
    pipelines=(),  # each is a family of its own, because their calls differ
    prompts="plain",
    multiple=16,  # fits most pipelines of diffusers; the others raise an error
    output="np",  # the only output with the same range in all pipelines
)

_NEEDED = ("prompt", "height", "width", "num_inference_steps", "generator", "output_type")
# A call with such an argument draws from more than a prompt, or draws no picture.
_OTHER_TASK = re.compile(
    r"video|frames|audio|^mask|^image_embed|control|source|reference|token_indices|gligen"
)
# Pipelines that take images to edit, but can draw without one.
_DRAW_WITHOUT_IMAGE = (
    "QwenImage21Pipeline", "GlmImagePipeline", "BriaFibo2Pipeline", "ZImageOmniPipeline",
    "StableCascadeCombinedPipeline",
)  # fmt: skip
# Pipelines that return embeddings for another pipeline, or depth and an image.
_NO_PICTURES = re.compile(r"Prior|LDM3D")
_SCALES = ("guidance_scale", "true_cfg_scale")


def any_family(pipeline: str) -> Family | str:
    """Return a family made from the signature of a pipeline class's call, or words that say why
    there is none."""
    import diffusers

    try:
        pipeline_class = getattr(diffusers, pipeline)
    except (AttributeError, ImportError, RuntimeError):  # a lazy import that lacks a library
        pipeline_class = None
    if not (
        inspect.isclass(pipeline_class) and issubclass(pipeline_class, diffusers.DiffusionPipeline)
    ):
        return "which diffusers does not have"
    taken = inspect.signature(pipeline_class.__call__).parameters
    lacking = [name for name in _NEEDED if name not in taken]
    if lacking or _NO_PICTURES.search(pipeline):
        why = f" (its call takes no {lacking[0]})" if lacking else ""
        return f"which draws no image from a prompt{why}"
    edits = pipeline in _DRAW_WITHOUT_IMAGE
    others = [
        name
        for name in taken
        if not edits and (name in ("image", "images") or _OTHER_TASK.search(name))
    ]
    needed = [
        name
        for name, parameter in taken.items()
        if is_required(parameter) and name not in ("self", "prompt")
    ]
    if others or needed:
        return f"which draws from more than a prompt (its call takes {(others + needed)[0]})"
    scale = next((name for name in _SCALES if name in taken), None)
    return replace(
        ANY_PIPELINE,
        name=pipeline,
        pipelines=(pipeline,),
        # Such pipelines, for example Qwen-Image's, use guidance only with a negative prompt.
        blank=" " if scale == "true_cfg_scale" else None,
        scale=scale,
        takes_negative="negative_prompt" in taken,
        sets={"use_resolution_binning": False} if "use_resolution_binning" in taken else {},
    )
