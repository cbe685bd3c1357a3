"""A text model of a few thousand random weights that can be talked with, saved as transformers
saves it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tiny_captioners import saved, word_tokenizer

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<end>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant :{% endif %}"
)


def llama(
    folder: Path, seed: int = 0, positions: int = 256, template: str | None = TEMPLATE
) -> Path:
    tokenizer = word_tokenizer(
        "<pad>", "<end>", pad_token="<pad>", eos_token="<end>", chat_template=template
    )
    tokenizer.add_tokens(["user", "assistant", ":", "describe"])
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=48, eos_token_id=1, pad_token_id=0, bos_token_id=None, initializer_range=0.5,
        max_position_embeddings=positions,
    )  # fmt: skip
    torch.manual_seed(seed)
    return saved(folder, LlamaForCausalLM(config), tokenizer)
