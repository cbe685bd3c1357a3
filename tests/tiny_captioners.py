"""Captioners of a few thousand random weights, saved as transformers saves them: one of every
kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    CLIPImageProcessor,
    CLIPVisionConfig,
    GitConfig,
    GitForCausalLM,
    GPT2Config,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)

SIDE = 16
WORDS = """a photo of the in on at red blue green striped dotted sandal sneaker bag coat snow night water grass beach
with person and it is realistic photograph . ( )""".split()  # noqa: SIM905


def word_tokenizer(*special: str, **named: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token a word; special ones come first."""
    vocabulary = {word: index for index, word in enumerate([*special, "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **named)


def image_processor() -> ViTImageProcessor:
    return ViTImageProcessor(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )


def vision_encoder_decoder(folder: Path, seed: int = 0, positions: int = 32) -> Path:
    tokenizer = word_tokenizer(
        "[PAD]", "[BOS]", "[EOS]", pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]"
    )
    encoder = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=SIDE, patch_size=4,
        initializer_range=0.5,
    )  # fmt: skip
    decoder = GPT2Config(
        vocab_size=len(tokenizer), n_embd=24, n_layer=2, n_head=2, n_positions=positions, add_cross_attention=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    torch.manual_seed(seed)
    model = VisionEncoderDecoderModel(config)
    configs: tuple[Any, ...] = (model.config, model.generation_config)
    for settings in configs:
        settings.decoder_start_token_id = 1
        settings.pad_token_id = 0
        settings.eos_token_id = 2
    return saved(folder, model, tokenizer, image_processor())


def saved(folder: Path, *parts: Any) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder


def bert_tokenizer(*more: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token a word and BERT's special ones: padding, class and
    separator."""
    return word_tokenizer(
        "[PAD]", "[CLS]", "[SEP]", *more, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


def git(folder: Path, seed: int = 0) -> Path:
    tokenizer = bert_tokenizer()
    config = GitConfig(
        vision_config={
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "image_size": SIDE, "patch_size": 4, "initializer_range": 0.5,
        },
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
        max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(seed)
    return saved(folder, GitForCausalLM(config), tokenizer, image_processor())


def blip(folder: Path, seed: int = 0) -> Path:
    tokenizer = bert_tokenizer("[DEC]")
    config = BlipConfig(
        vision_config={
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "image_size": SIDE, "patch_size": 4,
        },
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 24, "encoder_hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32, "pad_token_id": 0,
            "bos_token_id": 3, "eos_token_id": 2, "sep_token_id": 2, "initializer_range": 0.5,
        },
    )  # fmt: skip
    torch.manual_seed(seed)
    return saved(folder, BlipForConditionalGeneration(config), tokenizer, image_processor())


TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% if message['role'] == 'assistant' %}<end>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def chat_tokenizer(*special: str) -> PreTrainedTokenizerFast:
    names = ("<pad>", "<end>", "<image>", *special)
    tokenizer = word_tokenizer(
        *names, pad_token="<pad>", eos_token="<end>", extra_special_tokens=list(names[2:])
    )
    tokenizer.add_tokens(["user", "assistant", ":", "describe", "image", "one", "sentence"])
    return tokenizer


def llava(folder: Path, seed: int = 0) -> Path:
    tokenizer = chat_tokenizer()
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=SIDE,
            patch_size=4,
        ),
        text_config=LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=48, eos_token_id=1, pad_token_id=0, bos_token_id=None, initializer_range=0.3,
        ),
        image_token_index=2, image_seq_length=16, vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(seed)
    pictures = CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    )
    processor = LlavaProcessor(
        pictures, tokenizer, patch_size=4, vision_feature_select_strategy="default", chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )  # fmt: skip
    return saved(folder, LlavaForConditionalGeneration(config), processor)


def idefics3(folder: Path, seed: int = 0) -> Path:
    rows = [f"<row_{row + 1}_col_{column + 1}>" for row in range(6) for column in range(6)]
    tokenizer = chat_tokenizer(
        "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", *rows
    )
    config = Idefics3Config(
        vision_config={
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "image_size": SIDE, "patch_size": 4,
        },
        text_config=LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=48, eos_token_id=1, pad_token_id=0, bos_token_id=None, initializer_range=0.3,
        ),
        image_token_id=2, scale_factor=2,
        pad_token_id=0,  # pyrefly: ignore[unexpected-keyword]
    )  # fmt: skip
    torch.manual_seed(seed)
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 2 * SIDE},
        max_image_size={"longest_edge": SIDE},
        do_image_splitting=True,
    )
    processor = Idefics3Processor(pictures, tokenizer, image_seq_len=4, chat_template=TEMPLATE)
    return saved(folder, Idefics3ForConditionalGeneration(config), processor)


def qwen2_vl(folder: Path, seed: int = 0) -> Path:
    tokenizer = chat_tokenizer(
        "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
    )
    ids = dict(zip(("vision_start", "vision_end", "image", "video"), range(3, 7), strict=True))
    config = Qwen2VLConfig(
        vision_config={
            "embed_dim": 16, "hidden_size": 24, "depth": 2, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "intermediate_size": 48, "eos_token_id": 1, "pad_token_id": 0,
            "bos_token_id": None, "initializer_range": 0.3, "rope_parameters": {
                "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]},
        },
        image_token_id=ids["image"], video_token_id=ids["video"], vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )  # fmt: skip
    torch.manual_seed(seed)
    pictures = Qwen2VLImageProcessor(
        patch_size=4, merge_size=2, min_pixels=64, max_pixels=4 * SIDE**2
    )
    videos = Qwen2VLVideoProcessor(patch_size=4, merge_size=2)
    template = TEMPLATE.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = Qwen2VLProcessor(pictures, tokenizer, videos, chat_template=template)
    return saved(folder, Qwen2VLForConditionalGeneration(config), processor)


PLAIN = {"vision-encoder-decoder": vision_encoder_decoder, "git": git, "blip": blip}
CHAT = {"llava": llava, "idefics3": idefics3, "qwen2_vl": qwen2_vl}
EVERY = PLAIN | CHAT
