"""Qwen-Image-Edit: edits an image by a prompt, which a language model reads beside it at 1024² whatever is drawn."""

from counterfoil.models.generators.family import Family

QWEN_IMAGE_EDIT = Family(
    name="Qwen-Image-Edit",
    pipelines=("QwenImageEditPipeline", "QwenImageEditPlusPipeline"),
    prompts="plain",
    blank=" ",  # it is guided only where it has a negative prompt
    scale="true_cfg_scale",
    multiple=16,
    usual_steps=50,
    usual_guidance=4.0,
    output="np",
    edits="pipeline",
    needs_image=True,
)
