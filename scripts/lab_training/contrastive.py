"""Stage `clip`: the lab's open_clip model, trained from scratch on the pretraining corpus and its
captions.

The targets know which captions are true of which pictures (`captions.is_true`), so that the many
repeated captions of a small world do not count as negatives (as in UniCL, Yang et al. 2022).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from counterfoil.lab.vocabulary import CLASSES
from lab_training.captions import caption_of
from lab_training.corpora import is_true, pretraining_scene, screening_claims
from lab_training.diffusion import CONTEXT_LENGTH, VAE, caption_encoder, write_tokenizer
from lab_training.state import (
    WEIGHTS,
    Loop,
    corpus,
    half_floats,
    softened,
    to_tensor,
    write_training,
)

CONFIG = {
    "seed": 303,
    "steps": 7600,
    "batch": 128,
    "rate": 1e-3,
    "decay_from": 0.5,
    "average": 0.998,
    # The shifts are learned by then and the classes are not: captions turn to them.
    "class_from": 3000,
    "class_shares": (0.15, 0.65),
    # From here each picture also meets the captions of all ten classes, not only those of its
    # batch.
    "all_classes_from": 4200,
    "soft_from": 4200,
}
NAME = "clip"
PREPROCESSING = {
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def model_config(vocabulary: int) -> dict:
    """Return open_clip's configuration: a timm RegNet tower and a small causal text transformer."""
    return {
        "embed_dim": 128,
        "vision_cfg": {
            "timm_model_name": "regnetx_002",
            "timm_model_pretrained": False,
            "timm_pool": "avg",
            "timm_proj": "linear",
            "image_size": 64,
        },
        "text_cfg": {
            "context_length": CONTEXT_LENGTH,
            "vocab_size": vocabulary,
            "hf_tokenizer_name": "tokenizer",
            "tokenizer_kwargs": {},
            "width": 128,
            "heads": 4,
            "layers": 3,
        },
    }


def new_clip(vocabulary: int):
    """Return an untrained open_clip CustomTextCLIP/CLIP of the lab's size."""
    from open_clip.factory import CLIP  # the class that create_model chooses for this configuration

    return CLIP(**model_config(vocabulary))


def train_clip(work: Path) -> None:
    """Train and export; ends in lab/weights/clip."""
    torch.manual_seed(CONFIG["seed"])
    tokenizer = write_tokenizer(work / "tokenizer")
    encode = caption_encoder(tokenizer)
    model = new_clip(len(tokenizer))
    print(f"clip {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters", flush=True)
    loop = Loop.of_adamw(
        work / "clip", {"clip": model}, CONFIG, betas=(0.9, 0.98), weight_decay=0.05
    )
    pixels = corpus(work, "pretrain", VAE["corpus"], pretraining_scene)
    for step, rng in loop.draws(CONFIG["seed"]):
        rows = np.sort(rng.integers(0, len(pixels), CONFIG["batch"]))
        attributes = [pretraining_scene(int(r)).attributes() for r in rows]
        shares = CONFIG["class_shares"] if step >= CONFIG["class_from"] else ()
        claims = [screening_claims(a, rng, *shares) for a in attributes]
        images = to_tensor(pixels[rows])
        if rng.random() < 0.5:
            images = images.flip(-1)
        if step >= CONFIG["soft_from"]:
            images = softened(images, rng)
        ids = torch.from_numpy(encode([caption_of(c) for c in claims]))
        truth = torch.tensor([[float(is_true(c, a)) for c in claims] for a in attributes])
        with torch.autocast("cpu", torch.bfloat16):
            seen = model.encode_image(images)
            read = model.encode_text(ids)
        seen = F.normalize(seen.float(), dim=-1)
        read = F.normalize(read.float(), dim=-1)
        logits = _scores(model, seen, read)
        loss = (_against(logits, truth, 1) + _against(logits, truth, 0)) / 2
        if step >= CONFIG["all_classes_from"]:
            style = ("a photo of a", "a")[step % 2]
            names = torch.from_numpy(encode([f"{style} {name}" for name in CLASSES]))
            with torch.autocast("cpu", torch.bfloat16):
                named = model.encode_text(names)
            scores = _scores(model, seen, F.normalize(named.float(), dim=-1))
            labels = torch.tensor([CLASSES.index(a["class"]) for a in attributes])
            loss = loss + F.cross_entropy(scores, labels)
        loop.after(step, loss)
    loop.load_averages()
    export_clip(model, tokenizer)


def _scores(model, seen: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
    """Return the score of each picture and text, from unit vectors."""
    return model.logit_scale.exp().clamp(max=100) * seen @ read.T


def _against(scores: torch.Tensor, truth: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the cross-entropy along `dim` with all that is true."""
    shares = truth / truth.sum(dim, keepdim=True).clamp(min=1)
    return -(shares * scores.log_softmax(dim)).sum(dim).mean()


def export_clip(model, tokenizer) -> None:
    """Write an open_clip local-dir with fp16 safetensors."""
    from safetensors.torch import save_file

    folder = WEIGHTS / NAME
    folder.mkdir(parents=True, exist_ok=True)
    save_file(half_floats(model.state_dict()), folder / "open_clip_model.safetensors")
    config = {"model_cfg": model_config(len(tokenizer)), "preprocess_cfg": PREPROCESSING}
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer.save_pretrained(folder)
    write_training(folder, "clip", CONFIG)
