"""Open-vocabulary detectors of transformers with random weights, each of a few thousand numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from tiny_captioners import bert_tokenizer

_LETTERS = sorted(set("a photo of t-shirt sandal bag") - {" "})


def _clip_tokenizer(folder: Path) -> int:
    """Save a tokenizer of CLIP in the older format, a vocabulary and merges. Return its number of
    words."""
    # A word ends with a mark. Letters stay apart, except in "of".
    vocabulary = [*_LETTERS, *(f"{letter}</w>" for letter in _LETTERS)]
    vocabulary += ["of</w>", "<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    numbered = {word: index for index, word in enumerate(dict.fromkeys(vocabulary))}
    (folder / "vocab.json").write_text(json.dumps(numbered))
    (folder / "merges.txt").write_text("#version: 0.2\no f</w>\n")
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": 32}
    settings["pad_token"] = "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(numbered)


def _owlv2(folder: Path) -> None:
    words = _clip_tokenizer(folder)
    text: Any = {
        "vocab_size": words, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 32, "bos_token_id": words - 2,
        "eos_token_id": words - 1, "pad_token_id": words - 1,
    }  # fmt: skip
    vision: Any = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 32, "patch_size": 8, "initializer_range": 0.5,
    }  # fmt: skip
    config = transformers.Owlv2Config(text_config=text, vision_config=vision, projection_dim=16)
    model: Any = transformers.Owlv2ForObjectDetection(config)
    head = model.class_head
    # A confidence is sigmoid((cosine + shift) * scale): from 0.01 to 0.8 with these.
    for layer, bias in ((head.logit_shift, -0.5), (head.logit_scale, 2.0)):
        layer.weight.data.zero_()
        layer.bias.data.fill_(bias)
    _saved(model, folder)
    transformers.Owlv2ImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


def _grounding_dino(folder: Path) -> None:
    tokenizer = bert_tokenizer()
    backbone: Any = {
        "model_type": "swin", "image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1, 1],
        "num_heads": [1, 2, 2], "window_size": 4, "out_features": ["stage2", "stage3"],
    }  # fmt: skip
    text: Any = {
        "model_type": "bert", "vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 64,
    }  # fmt: skip
    config = transformers.GroundingDinoConfig(
        backbone_config=backbone, text_config=text, d_model=32, encoder_layers=1, decoder_layers=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
        num_queries=9, num_feature_levels=2, encoder_n_points=2, decoder_n_points=2, max_text_len=32,
    )  # fmt: skip
    _saved(transformers.GroundingDinoForObjectDetection(config), folder)
    size = {"shortest_edge": 32, "longest_edge": 64}
    transformers.GroundingDinoImageProcessor(size=size).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _saved(model: Any, folder: Path) -> None:
    """Save a model with weights that give different answers to different images."""
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)


TEXT_DETECTORS: dict[str, Callable[[Path], None]] = {
    "owlv2": _owlv2,
    "grounding_dino": _grounding_dino,
}


def save_text_detector(family: str, folder: Path) -> Path:
    """Save a detector of a family as transformers does; its weights follow from the family
    alone."""
    torch.manual_seed(len(family))
    TEXT_DETECTORS[family](folder)
    return folder
