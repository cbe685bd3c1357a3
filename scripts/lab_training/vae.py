"""Stage `vae`: the miniature Stable Diffusion's autoencoder, 64×64×3 ↔ 16×16×4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from counterfoil.lab.scenes import pretraining_scene
from lab_training.corpus import corpus, to_tensor
from lab_training.state import WEIGHTS, Loop, warm_then_linear

CONFIG = {
    "seed": 101,
    "steps": 1400,
    "batch": 64,
    "crop": 32,
    "rate": 2e-3,
    "kl_weight": 1e-6,
    "edge_weight": 1.0,
    "corpus": 60000,
}


def new_vae() -> Any:
    """An untrained AutoencoderKL of the lab's size."""
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(32, 64, 96),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        mid_block_add_attention=False,
        sample_size=64,
    )


def _edges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., 1:, :] - x[..., :-1, :], x[..., 1:] - x[..., :-1]


def train_vae(work: Path) -> None:
    """Train on random crops (the network is convolutional); ends in work/vae/state.pt."""
    torch.manual_seed(CONFIG["seed"])
    vae = new_vae()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=CONFIG["rate"], betas=(0.9, 0.99), weight_decay=1e-4)
    loop = Loop(work / "vae", {"vae": vae}, optimizer, CONFIG["steps"], warm_then_linear(0.5), average=0.995)
    pixels = corpus(work, "pretrain", CONFIG["corpus"], pretraining_scene)
    crop = CONFIG["crop"]
    for step in loop.steps():
        rng = np.random.default_rng([CONFIG["seed"], step])
        rows = rng.integers(0, len(pixels), CONFIG["batch"])
        places = rng.integers(0, (64 - crop) // 4 + 1, (CONFIG["batch"], 2)) * 4
        batch = np.stack([pixels[r, y : y + crop, x : x + crop] for r, (y, x) in zip(rows, places, strict=True)])
        x = to_tensor(batch)
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(x).latent_dist
            generator = torch.Generator().manual_seed(CONFIG["seed"] * 1_000_003 + step)
            drawn = vae.decode(posterior.sample(generator=generator)).sample
        drawn = drawn.float()
        loss = (drawn - x).abs().mean() + F.mse_loss(drawn, x)
        for a, b in zip(_edges(drawn), _edges(x), strict=True):
            loss = loss + CONFIG["edge_weight"] * (a - b).abs().mean()
        kl = posterior.kl().float().mean()
        loop.after(step, loss + CONFIG["kl_weight"] * kl)


def trained_vae(work: Path) -> Any:
    """The trained autoencoder (moving average) in float32; the embedded one where none was trained here."""
    if not (work / "vae/state.pt").exists():
        from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

        return AutoencoderKL.from_pretrained(WEIGHTS / "sd" / "vae", dtype=torch.float32).eval().requires_grad_(False)
    vae = new_vae()
    state = torch.load(work / "vae/state.pt", weights_only=True)
    vae.load_state_dict(state["averaged"]["vae"])
    return vae.eval().requires_grad_(False)
