"""The published sizes of Stable Diffusion 1.5, XL and ViT-H-14, as data, and folders of them with
random weights.

Sizes are those of the `config.json`s that the weights were released with (stable-diffusion-v1-5 and
Stability's stable-diffusion-xl-base-1.0); ViT-H-14's are in open_clip. A pipeline takes as long
whatever its weights are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Architecture:
    """A generator: what its parts are made of, its side in pixels, and batches that a GPU of 80 GB
    takes."""

    name: str
    title: str
    pipeline: str
    unet: Config
    vae: Config
    texts: tuple[Config, ...]
    scheduler: tuple[str, Config]
    side: int
    batch: int


_VAE: Config = {
    "in_channels": 3, "out_channels": 3, "latent_channels": 4, "layers_per_block": 2, "norm_num_groups": 32,
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
}  # fmt: skip
_UNET: Config = {"in_channels": 4, "out_channels": 4, "layers_per_block": 2, "norm_num_groups": 32}
_CLIP_L: Config = {
    "vocab_size": 49408, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "max_position_embeddings": 77, "projection_dim": 768, "hidden_act": "quick_gelu",
}  # fmt: skip
_NOISE: Config = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "steps_offset": 1,
}

SD15 = Architecture(
    name="sd15",
    title="Stable Diffusion 1.5",
    pipeline="StableDiffusionPipeline",
    unet={
        **_UNET, "sample_size": 64, "attention_head_dim": 8, "cross_attention_dim": 768,
        "block_out_channels": [320, 640, 1280, 1280],
        "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
        "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
    },
    vae={**_VAE, "sample_size": 512, "scaling_factor": 0.18215},
    texts=(_CLIP_L,),
    scheduler=("PNDMScheduler", {**_NOISE, "skip_prk_steps": True, "set_alpha_to_one": False}),
    side=512,
    batch=32,
)  # fmt: skip

XL = Architecture(
    name="xl",
    title="Stable Diffusion XL",
    pipeline="StableDiffusionXLPipeline",
    unet={
        **_UNET, "sample_size": 128, "attention_head_dim": [5, 10, 20], "cross_attention_dim": 2048,
        "block_out_channels": [320, 640, 1280], "transformer_layers_per_block": [1, 2, 10],
        "down_block_types": ["DownBlock2D"] + ["CrossAttnDownBlock2D"] * 2,
        "up_block_types": ["CrossAttnUpBlock2D"] * 2 + ["UpBlock2D"],
        "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816, "use_linear_projection": True,
    },
    vae={**_VAE, "sample_size": 1024, "scaling_factor": 0.13025, "force_upcast": True},
    texts=(
        _CLIP_L,
        {
            **_CLIP_L, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
            "num_attention_heads": 20, "projection_dim": 1280, "hidden_act": "gelu",
        },
    ),
    scheduler=("EulerDiscreteScheduler", {**_NOISE, "timestep_spacing": "leading"}),
    side=1024,
    batch=8,
)  # fmt: skip

ARCHITECTURES = {architecture.name: architecture for architecture in (SD15, XL)}


def clip_sizes() -> dict[str, Any]:
    """Return the sizes of ViT-H-14, as open_clip has it."""
    import open_clip

    sizes = open_clip.get_model_config("ViT-H-14")
    assert sizes is not None
    return sizes


def tiny(architecture: Architecture) -> Architecture:
    """Return the same parts with few channels, at 64 pixels: for a CPU, only to show that
    everything runs."""
    text = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    texts = tuple({**each, **text, "projection_dim": 32} for each in architecture.texts)
    unet = {
        **architecture.unet, "sample_size": 8, "cross_attention_dim": 32 * len(texts),
        "block_out_channels": [32, 64, 64, 64][: len(architecture.unet["block_out_channels"])],
    }  # fmt: skip
    if "addition_embed_type" in unet:
        unet |= {
            "attention_head_dim": [1, 2, 2], "transformer_layers_per_block": [1, 1, 2], "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 6 * 8 + 32,
        }  # fmt: skip
    vae = {
        **architecture.vae,
        "block_out_channels": [32, 32, 32, 32],
        "layers_per_block": 1,
        "sample_size": 64,
    }
    return replace(architecture, unet=unet, vae=vae, texts=texts, side=64, batch=2)


def tiny_clip_sizes() -> dict[str, Any]:
    """Return the sizes of a small CLIP of the same kind."""
    return {
        "embed_dim": 32,
        "vision_cfg": {
            "image_size": 56,
            "layers": 2,
            "width": 64,
            "head_width": 32,
            "patch_size": 14,
        },
        "text_cfg": {
            "context_length": 77,
            "vocab_size": 49408,
            "width": 32,
            "heads": 2,
            "layers": 2,
        },
    }


def parts(architecture: Architecture) -> dict[str, Any]:
    """Return UNet, VAE and text encoders with random weights, on torch's default device."""
    import diffusers
    import transformers

    unet: Any = diffusers.UNet2DConditionModel
    vae: Any = diffusers.AutoencoderKL
    made = {"unet": unet(**architecture.unet), "vae": vae(**architecture.vae)}
    for index, text in enumerate(architecture.texts):
        projected = index == 1  # the second one's pooled text goes through a projection
        kind: Any = (
            transformers.CLIPTextModelWithProjection if projected else transformers.CLIPTextModel
        )
        made[f"text_encoder{'_2' if index else ''}"] = kind(transformers.CLIPTextConfig(**text))
    return made


def write_pipeline(architecture: Architecture, folder: Path, device: str, dtype: Any) -> None:
    """Write a folder of diffusers with random weights, made on `device` in a number type of
    torch."""
    import diffusers
    import torch
    import transformers

    from counterfoil.models.names import LAB_WEIGHTS

    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    with torch.device(device):
        made = parts(architecture)
    for part in made.values():
        part.to(dtype=dtype)
    _widen_levels(made["vae"], device, dtype)
    # Which words a text has changes no time; that all 77 places are encoded does.
    words = {
        f"tokenizer{'_2' if index else ''}": transformers.CLIPTokenizer.from_pretrained(
            LAB_WEIGHTS / "sd" / "tokenizer", model_max_length=77
        )
        for index in range(len(architecture.texts))
    }
    name, settings = architecture.scheduler
    others: dict[str, Any] = {"scheduler": getattr(diffusers, name)(**settings)}
    if architecture.pipeline == "StableDiffusionPipeline":
        others |= {
            "safety_checker": None,
            "feature_extractor": None,
            "requires_safety_checker": False,
        }
    getattr(diffusers, architecture.pipeline)(**made, **words, **others).save_pretrained(folder)


def _widen_levels(vae: Any, device: str, dtype: Any) -> None:
    """Have random weights draw pictures of all levels, whose PNGs are as large as any: grey is
    encoded in no time."""
    import torch

    with torch.inference_mode():
        drawn = vae.decode(torch.randn(1, 4, 8, 8, device=device, dtype=dtype)).sample.float()
    with torch.no_grad():
        last = vae.decoder.conv_out
        last.weight.mul_(0.5 / float(drawn.std()))
        last.bias.zero_()


def write_clip(sizes: Mapping[str, Any], folder: Path, device: str) -> None:
    """Write a folder of open_clip with random weights in float32, as the screen loads one."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.device(device):
        model = open_clip.CLIP(**sizes)
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    prepared = {
        "mean": open_clip.OPENAI_DATASET_MEAN,
        "std": open_clip.OPENAI_DATASET_STD,
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    }
    config = {"model_cfg": sizes, "preprocess_cfg": prepared}
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
