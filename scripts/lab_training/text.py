"""The lab's CLIP tokenizer: a byte-level BPE learned from the world's captions, saved as vocab.json and merges.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.lab.scenes import caption_of, generator_claims, screening_claims, unbiased_scene

CONTEXT_LENGTH = 32
GENERIC = "garment"
"""A word for any class; prompts and token initialisation may use it."""


def _caption_corpus() -> list[str]:
    lines = [f"a photo of a {GENERIC}", f"an embroidery of a {GENERIC}"] * 50
    for number in range(6000):
        rng = np.random.default_rng([77, number])
        attributes = unbiased_scene(number).attributes()
        lines.append(caption_of(generator_claims(attributes, rng)))
        lines.append(caption_of(screening_claims(attributes, rng)))
    return lines


def write_tokenizer(folder: Path):
    """Learn the vocabulary and save a CLIPTokenizer under `folder`; returns it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer = normalizers.Lowercase()
    learner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    trainer = trainers.BpeTrainer(vocab_size=4000, min_frequency=1, end_of_word_suffix="</w>", show_progress=False)
    learner.train_from_iterator(_caption_corpus(), trainer)
    learner.save(str(folder / "learner.json"))
    import json

    merges = json.loads((folder / "learner.json").read_text())["model"]["merges"]
    (folder / "learner.json").unlink()
    pairs: Any = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in merges]
    # As in CLIP: every byte, every byte that ends a word, the merges in order, the two special tokens last
    # (open_clip pools at the largest id, which must be the end of text).
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = alphabet + [c + "</w>" for c in alphabet] + [a + b for a, b in pairs]
    words = [*dict.fromkeys(words), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(vocab={w: i for i, w in enumerate(words)}, merges=pairs, model_max_length=CONTEXT_LENGTH)
    tokenizer.save_pretrained(folder)
    return tokenizer


class CaptionEncoder:
    """Captions → int64 token ids [n, 32], padded with the end of text; remembers captions it has seen."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        self.seen: dict[str, np.ndarray] = {}

    def __call__(self, captions: list[str]) -> np.ndarray:
        new = sorted({c for c in captions if c not in self.seen})
        if new:
            ids = self.tokenizer(
                new, padding="max_length", max_length=CONTEXT_LENGTH, truncation=True, return_tensors="np"
            ).input_ids
            self.seen.update(zip(new, ids, strict=True))
        return np.stack([self.seen[c] for c in captions])
