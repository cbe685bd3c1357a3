"""Pipelines of full-size architectures in miniature, with random weights: Stable Diffusion, unCLIP,
Kandinsky."""

from __future__ import annotations

from typing import Any

import diffusers
import torch
import transformers

from counterfoil.models.names import LAB_WEIGHTS

TOKENIZER = LAB_WEIGHTS / "sd" / "tokenizer"
WIDTH = 32


def _text(**settings: Any) -> transformers.CLIPTextConfig:
    tokenizer = transformers.CLIPTokenizer.from_pretrained(TOKENIZER)
    return transformers.CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, max_position_embeddings=32, projection_dim=WIDTH,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, **settings,
    )  # fmt: skip


def _unet(**settings: Any) -> diffusers.UNet2DConditionModel:
    shape: dict[str, Any] = {
        "attention_head_dim": 4,
        "cross_attention_dim": WIDTH,
        "in_channels": 4,
    } | settings
    return diffusers.UNet2DConditionModel(
        sample_size=16, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **shape,
    )  # fmt: skip


def _vae() -> diffusers.AutoencoderKL:
    make: Any = diffusers.AutoencoderKL
    return make(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4, sample_size=32,
    )  # fmt: skip


def _tokenizer() -> transformers.CLIPTokenizer:
    return transformers.CLIPTokenizer.from_pretrained(TOKENIZER)


def stable_diffusion_1() -> Any:
    """Make Stable Diffusion 1 with the filter that blackens pictures, as the released weights have
    it."""
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    vision |= {"image_size": 32, "patch_size": 16}
    text = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    filter_config = transformers.CLIPConfig(
        text_config=text, vision_config=vision, projection_dim=16
    )
    make: Any = diffusers.StableDiffusionPipeline
    return make(
        vae=_vae(), text_encoder=transformers.CLIPTextModel(_text()), tokenizer=_tokenizer(), unet=_unet(),
        scheduler=diffusers.PNDMScheduler(beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1),
        safety_checker=StableDiffusionSafetyChecker(filter_config),
        feature_extractor=transformers.CLIPImageProcessor(crop_size=32, size={"shortest_edge": 32}),
    )  # fmt: skip


def stable_diffusion_2() -> Any:
    """Make it with OpenCLIP's text encoder, heads by block, linear projections, and v
    prediction."""
    make: Any = diffusers.StableDiffusionPipeline
    return make(
        vae=_vae(), text_encoder=transformers.CLIPTextModel(_text(hidden_act="gelu")), tokenizer=_tokenizer(),
        unet=_unet(attention_head_dim=[2, 4], use_linear_projection=True),
        scheduler=diffusers.DDIMScheduler(prediction_type="v_prediction", clip_sample=False, steps_offset=1),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def stable_diffusion_xl() -> Any:
    """Make it with two text encoders, the second with a pooled projection, and sizes as
    conditions."""
    make: Any = diffusers.StableDiffusionXLPipeline
    return make(
        vae=_vae(), text_encoder=transformers.CLIPTextModel(_text()), tokenizer=_tokenizer(),
        text_encoder_2=transformers.CLIPTextModelWithProjection(_text(hidden_act="gelu")), tokenizer_2=_tokenizer(),
        unet=_unet(
            cross_attention_dim=2 * WIDTH, addition_embed_type="text_time", addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + WIDTH, use_linear_projection=True,
            attention_head_dim=[2, 4], transformer_layers_per_block=[1, 2],
        ),
        scheduler=diffusers.EulerDiscreteScheduler(beta_schedule="scaled_linear", timestep_spacing="leading"),
        force_zeros_for_empty_prompt=True,
    )  # fmt: skip


EMBEDDING = 24


def stable_unclip() -> Any:
    """Make Stable Diffusion 2 with an image embedding and its noise in the place of class
    labels."""
    from diffusers.pipelines.stable_diffusion import StableUnCLIPImageNormalizer

    vision = transformers.CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16,
        projection_dim=EMBEDDING,
    )  # fmt: skip
    make: Any = diffusers.StableUnCLIPImg2ImgPipeline
    return make(
        feature_extractor=transformers.CLIPImageProcessor(crop_size=32, size={"shortest_edge": 32}),
        image_encoder=transformers.CLIPVisionModelWithProjection(vision),
        image_normalizer=StableUnCLIPImageNormalizer(embedding_dim=EMBEDDING),
        image_noising_scheduler=diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2"),
        tokenizer=_tokenizer(), text_encoder=transformers.CLIPTextModel(_text(hidden_act="gelu")),
        unet=_unet(class_embed_type="projection", projection_class_embeddings_input_dim=2 * EMBEDDING),
        scheduler=diffusers.DDIMScheduler(prediction_type="v_prediction", clip_sample=False), vae=_vae(),
    )  # fmt: skip


def kandinsky() -> Any:
    """Return a decoder of embeddings alone, with learned variances and steps that draw noise."""
    unet: Any = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=8, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=8, attention_head_dim=4, cross_attention_dim=WIDTH, encoder_hid_dim=EMBEDDING,
        encoder_hid_dim_type="image_proj", addition_embed_type="image", resnet_time_scale_shift="scale_shift",
        down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"),
        up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"),
        mid_block_type="UNetMidBlock2DSimpleCrossAttn",
    )  # fmt: skip
    movq: Any = diffusers.VQModel(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D"),
        up_block_types=("AttnUpDecoderBlock2D", "UpDecoderBlock2D"), latent_channels=4, norm_num_groups=4,
        num_vq_embeddings=12, vq_embed_dim=4, norm_type="spatial",
    )  # fmt: skip
    scheduler = diffusers.DDPMScheduler(
        beta_schedule="linear", variance_type="learned_range", clip_sample=False
    )
    return diffusers.KandinskyV22Pipeline(unet=unet, scheduler=scheduler, movq=movq)


def ip_adapter(unet: Any) -> dict[str, torch.Tensor]:
    """Return an adapter of one embedding of EMBEDDING numbers for a UNet, with random weights, as
    its file holds it."""
    parameters = dict(unet.named_parameters())
    wide = unet.config.cross_attention_dim
    tensors = {
        "image_proj.proj.weight": torch.randn(4 * wide, EMBEDDING), "image_proj.proj.bias": torch.zeros(4 * wide),
        "image_proj.norm.weight": torch.ones(wide), "image_proj.norm.bias": torch.zeros(wide),
    }  # fmt: skip
    # In the order of the processors, numbered with those of self-attention between them.
    layers = [name for name in unet.attn_processors if name.endswith("attn2.processor")]
    for index, layer in enumerate(layers):
        inner, wide = parameters[layer.replace("processor", "to_k.weight")].shape
        for part in ("to_k_ip", "to_v_ip"):
            tensors[f"ip_adapter.{2 * index + 1}.{part}.weight"] = torch.randn(inner, wide)
    return tensors
