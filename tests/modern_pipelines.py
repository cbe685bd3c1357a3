"""Text-to-image pipelines of today in miniature, with random weights: transformers, T5 and language
models."""

from __future__ import annotations

from typing import Any

import diffusers
import tokenizers
import torch
import transformers

from miniature_pipelines import WIDTH, _text, _tokenizer

CHAT = "{% for message in messages %}user: {{ message['content'] }}\n{% endfor %}assistant:"
LETTERS = [chr(code) for code in range(32, 127)]


def letters(**settings: Any) -> Any:
    """Return a tokenizer that reads letter by letter: the longer the words, the more tokens."""
    words = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", "\n", *LETTERS])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", **settings
    )


WORDS = len(LETTERS) + 4


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=32, num_layers=2, num_heads=2, is_encoder_decoder=False,
        use_cache=False,
    )  # fmt: skip
    return transformers.T5EncoderModel(config)


def gemma() -> Any:
    config = transformers.Gemma2Config(
        vocab_size=WORDS, head_dim=8, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=1024,
        pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return transformers.Gemma2Model(config)


def autoencoder(channels: int, blocks: tuple[int, ...] = (8, 16)) -> Any:
    make: Any = diffusers.AutoencoderKL
    return make(
        block_out_channels=blocks, down_block_types=("DownEncoderBlock2D",) * len(blocks),
        up_block_types=("UpDecoderBlock2D",) * len(blocks), latent_channels=channels, norm_num_groups=4, sample_size=32,
        use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06, scaling_factor=1.5,
    )  # fmt: skip


def flow() -> Any:
    return diffusers.FlowMatchEulerDiscreteScheduler()


def stable_diffusion_3() -> Any:
    transformer = diffusers.SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=4, caption_projection_dim=WIDTH, joint_attention_dim=2 * WIDTH,
        pooled_projection_dim=2 * WIDTH, pos_embed_max_size=16,
    )  # fmt: skip
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=2 * WIDTH, d_kv=8, d_ff=32, num_layers=1, num_heads=2, is_encoder_decoder=False,
        use_cache=False,
    )  # fmt: skip
    make: Any = diffusers.StableDiffusion3Pipeline
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(4),
        text_encoder=transformers.CLIPTextModelWithProjection(_text()), tokenizer=_tokenizer(),
        text_encoder_2=transformers.CLIPTextModelWithProjection(_text(hidden_act="gelu")), tokenizer_2=_tokenizer(),
        text_encoder_3=transformers.T5EncoderModel(config), tokenizer_3=letters(model_max_length=64),
    )  # fmt: skip


def flux() -> Any:
    """Make a pipeline that was distilled with guidance, as FLUX.1 [dev]."""
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=WIDTH, pooled_projection_dim=WIDTH, axes_dims_rope=(4, 6, 6), guidance_embeds=True,
    )  # fmt: skip
    make: Any = diffusers.FluxPipeline
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(4),
        text_encoder=transformers.CLIPTextModel(_text()), tokenizer=_tokenizer(),
        text_encoder_2=t5(), tokenizer_2=letters(model_max_length=64),
    )  # fmt: skip


def flux_kontext() -> Any:
    """Make FLUX.1 that edits: the image's latents are beside those that are drawn."""
    make: Any = diffusers.FluxKontextPipeline
    return make(**flux().components)


def qwen_image() -> Any:
    text = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": WORDS, "rope_theta": 1e6,
        "rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
        "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0,
    }  # fmt: skip
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 16,
    }
    configured: Any = transformers.Qwen2_5_VLConfig
    config = configured(
        text_config=text, vision_config=vision, hidden_size=16, vocab_size=WORDS, image_token_id=1, video_token_id=1,
        vision_start_token_id=1, vision_end_token_id=1,
    )  # fmt: skip
    transformer = diffusers.QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, guidance_embeds=False, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    make: Any = diffusers.AutoencoderKLQwenImage
    vae = make(
        base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[False],
        latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    pipeline: Any = diffusers.QwenImagePipeline
    return pipeline(
        transformer=transformer, scheduler=flow(), vae=vae, tokenizer=letters(model_max_length=1024),
        text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(config),
    )  # fmt: skip


def z_image() -> Any:
    config = transformers.Qwen3Config(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=512, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    transformer = diffusers.ZImageTransformer2DModel(
        all_patch_size=(2,), all_f_patch_size=(1,), in_channels=4, dim=32, n_layers=2, n_refiner_layers=1, n_heads=2,
        n_kv_heads=2, cap_feat_dim=16, axes_dims=[8, 4, 4], axes_lens=[256, 32, 32],
    )  # fmt: skip
    make: Any = diffusers.ZImagePipeline
    tokenizer = letters(model_max_length=512)
    tokenizer.chat_template = CHAT
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(4), tokenizer=tokenizer,
        text_encoder=transformers.Qwen3Model(config),
    )  # fmt: skip


def sana() -> Any:
    transformer = diffusers.SanaTransformer2DModel(
        patch_size=1, in_channels=4, out_channels=4, num_layers=1, num_attention_heads=2, attention_head_dim=4,
        num_cross_attention_heads=2, cross_attention_head_dim=4, cross_attention_dim=8, caption_channels=16,
        sample_size=16,
    )  # fmt: skip
    make: Any = diffusers.AutoencoderDC
    vae = make(
        latent_channels=4, attention_head_dim=2, encoder_block_types=("ResBlock", "EfficientViTBlock"),
        decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8), encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)),
        encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1), downsample_block_type="conv",
        upsample_block_type="interpolate", decoder_norm_types="rms_norm", decoder_act_fns="silu",
        scaling_factor=0.41407,
    )  # fmt: skip
    pipeline: Any = diffusers.SanaPipeline
    return pipeline(
        transformer=transformer,
        scheduler=flow(),
        vae=vae,
        text_encoder=gemma(),
        tokenizer=letters(model_max_length=64),
    )


def pixart() -> Any:
    transformer = diffusers.PixArtTransformer2DModel(
        sample_size=16, num_layers=2, patch_size=2, attention_head_dim=8, num_attention_heads=3,
        caption_channels=WIDTH, in_channels=4, cross_attention_dim=24, out_channels=8, attention_bias=True,
        use_additional_conditions=False,
    )  # fmt: skip
    make: Any = diffusers.PixArtSigmaPipeline
    return make(
        transformer=transformer, scheduler=diffusers.DDIMScheduler(), vae=autoencoder(4), text_encoder=t5(),
        tokenizer=letters(model_max_length=64),
    )  # fmt: skip


def lumina_2() -> Any:
    """Make a pipeline that belongs to no other family."""
    transformer = diffusers.Lumina2Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, hidden_size=8, num_layers=2, num_attention_heads=1,
        num_kv_heads=1, multiple_of=16, axes_dim_rope=(4, 2, 2), axes_lens=(300, 32, 32), cap_feat_dim=16,
    )  # fmt: skip
    make: Any = diffusers.Lumina2Pipeline
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(4, (8, 8, 8, 16)), text_encoder=gemma(),
        tokenizer=letters(model_max_length=64),
    )  # fmt: skip


def chroma() -> Any:
    """Make a pipeline that belongs to no other family and pads prompts by masks of their
    lengths."""
    transformer = diffusers.ChromaTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=WIDTH, axes_dims_rope=(4, 6, 6), approximator_num_channels=8, approximator_hidden_dim=32,
        approximator_layers=1,
    )  # fmt: skip
    make: Any = diffusers.ChromaPipeline
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(4), text_encoder=t5(),
        tokenizer=letters(model_max_length=64),
    )  # fmt: skip


def with_perturbed_attention() -> Any:
    """Make Stable Diffusion 1 as diffusers draws with perturbed attention: a class of its own."""
    import miniature_pipelines

    parts = miniature_pipelines.stable_diffusion_1().components | {
        "safety_checker": None,
        "feature_extractor": None,
    }
    make: Any = diffusers.StableDiffusionPAGPipeline
    return make(**parts, requires_safety_checker=False)


def instruct_pix2pix() -> Any:
    """Make Stable Diffusion 1 whose UNet also sees an image's latents."""
    import miniature_pipelines

    parts = miniature_pipelines.stable_diffusion_1().components | {
        "safety_checker": None,
        "feature_extractor": None,
    }
    parts["unet"] = miniature_pipelines._unet(in_channels=8)
    make: Any = diffusers.StableDiffusionInstructPix2PixPipeline
    return make(**parts, requires_safety_checker=False)


def livelier(pipeline: Any) -> Any:
    """Fill every parameter that starts at zero, so that the prompt reaches the picture."""
    with torch.no_grad():
        for name in ("unet", "transformer"):
            for parameter in getattr(pipeline, name, torch.nn.Identity()).parameters():
                if not bool(parameter.any()):
                    parameter.normal_(std=0.3)
    return pipeline


IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def _language_model(words: int, **settings: Any) -> dict[str, Any]:
    return {
        "vocab_size": words, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, **settings,
    }  # fmt: skip


def _reader_of_images() -> tuple[Any, Any, Any]:
    """Return a tokenizer, a processor and a language model that read images beside letters."""
    tokenizer = letters(model_max_length=1024)
    tokenizer.add_special_tokens({"additional_special_tokens": [*IMAGE_TOKENS]})
    number = dict(zip(IMAGE_TOKENS, tokenizer.convert_tokens_to_ids([*IMAGE_TOKENS]), strict=True))
    images = transformers.Qwen2VLImageProcessor(
        patch_size=4, temporal_patch_size=2, merge_size=2, min_pixels=8 * 8, max_pixels=16 * 16
    )
    videos = transformers.Qwen2VLVideoProcessor(patch_size=4, temporal_patch_size=2, merge_size=2)
    processor = transformers.Qwen2VLProcessor(images, tokenizer, videos, chat_template=CHAT)
    text = _language_model(
        len(tokenizer), bos_token_id=1, eos_token_id=1, pad_token_id=0, rope_theta=1e6,
        rope_scaling={"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
    )  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
        "patch_size": 4, "spatial_patch_size": 4, "temporal_patch_size": 2, "window_size": 16,
        "fullatt_block_indexes": [0],
    }  # fmt: skip
    configured: Any = transformers.Qwen2_5_VLConfig
    config = configured(
        text_config=text, vision_config=vision, vision_start_token_id=number["<|vision_start|>"],
        vision_end_token_id=number["<|vision_end|>"], image_token_id=number["<|image_pad|>"],
        video_token_id=number["<|video_pad|>"],
    )  # fmt: skip
    return tokenizer, processor, transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen_image_edit(make: Any = diffusers.QwenImageEditPipeline) -> Any:
    """Make a pipeline whose 1,024² pixels are few latents."""
    tokenizer, processor, reader = _reader_of_images()
    halved = 5
    make_vae: Any = diffusers.AutoencoderKLQwenImage
    vae = make_vae(
        base_dim=4, z_dim=4, dim_mult=[1] * (halved + 1), num_res_blocks=1,
        temperal_downsample=[False] * halved, latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = qwen_image().transformer
    return make(
        transformer=transformer, scheduler=flow(), vae=vae, tokenizer=tokenizer, processor=processor,
        text_encoder=reader,
    )  # fmt: skip


def qwen_image_edit_plus() -> Any:
    return qwen_image_edit(diffusers.QwenImageEditPlusPipeline)


def longcat_image_edit() -> Any:
    """Make a pipeline whose 1,024² pixels are few latents."""
    tokenizer, processor, reader = _reader_of_images()
    transformer = diffusers.LongCatImageTransformer2DModel(
        in_channels=64, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=[4, 6, 6],
    )  # fmt: skip
    make: Any = diffusers.LongCatImageEditPipeline
    return make(
        transformer=transformer, scheduler=flow(), vae=autoencoder(16, (4,) * 6), tokenizer=tokenizer,
        text_processor=processor, text_encoder=reader,
    )  # fmt: skip


def _flux_2_parts(*, guided: bool) -> dict[str, Any]:
    make: Any = diffusers.AutoencoderKLFlux2
    vae = make(
        block_out_channels=(8, 8, 8, 8), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, latent_channels=4, norm_num_groups=4,
    )  # fmt: skip
    transformer = diffusers.Flux2Transformer2DModel(
        in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=3 * 16, timestep_guidance_channels=16, axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guided,
    )  # fmt: skip
    return {"transformer": transformer, "scheduler": flow(), "vae": vae}


def flux_2() -> Any:
    """Make a pipeline whose language model also reads images, and whose guidance is an input."""
    tokenizer = letters(model_max_length=512)
    tokenizer.chat_template = (
        "{% for message in messages %}{% for part in message['content'] %}{{ part['text'] }}"
        "{% endfor %}\n{% endfor %}"
    )
    configured: Any = transformers.Mistral3Config
    config = configured(
        text_config=_language_model(WORDS, model_type="mistral", head_dim=8),
        vision_config={
            "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
        },
        image_token_index=2,
    )  # fmt: skip
    make: Any = diffusers.Flux2Pipeline
    encoder = transformers.Mistral3ForConditionalGeneration(config)
    return make(**_flux_2_parts(guided=True), text_encoder=encoder, tokenizer=tokenizer)


def flux_2_klein(make: Any = diffusers.Flux2KleinPipeline) -> Any:
    tokenizer = letters(model_max_length=512)
    tokenizer.chat_template = CHAT
    config = transformers.Qwen3Config(**_language_model(WORDS, head_dim=8))
    encoder = transformers.Qwen3ForCausalLM(config)
    return make(**_flux_2_parts(guided=False), text_encoder=encoder, tokenizer=tokenizer)


def flux_2_klein_kv() -> Any:
    return flux_2_klein(diffusers.Flux2KleinKVPipeline)
