"""Captioners of a few thousand random weights, saved as transformers saves them: one of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    PreTrainedTokenizerFast,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
)

SIDE = 16
WORDS = """a photo of the in on at red blue green striped dotted sandal sneaker bag coat snow night water grass beach
with person and it is realistic photograph . ( )""".split()  # noqa: SIM905


def picture(seed: int, width: int = 20, height: int = 20) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def word_tokenizer(*special: str, **named: Any) -> PreTrainedTokenizerFast:
    """A token a word; special ones come first."""
    vocabulary = {word: place for place, word in enumerate([*special, "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", **named)


def image_processor() -> ViTImageProcessor:
    return ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def vision_encoder_decoder(folder: Path, seed: int = 0, positions: int = 32) -> Path:
    tokenizer = word_tokenizer("[PAD]", "[BOS]", "[EOS]", pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]")
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
    for settings in (model.config, model.generation_config):
        assert settings is not None
        settings.decoder_start_token_id, settings.pad_token_id, settings.eos_token_id = 1, 0, 2
    return saved(folder, model, tokenizer, image_processor())


def saved(folder: Path, *parts: Any) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder
