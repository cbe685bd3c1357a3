"""Stages `vae`, `latents`, `sd`, `export-sd`: the miniature Stable Diffusion, from its tokenizer to
its folder.

The tokenizer is a byte-level BPE learned from the world's captions, saved as vocab.json and
merges.txt. The autoencoder maps 64×64×3 to 16×16×4. The UNet learns v-prediction (Salimans & Ho
2022) on a cosine schedule, low noise weighted down (after Hang et al. 2023), together with the CLIP
text encoder. `COUNTERFOIL_LAB_STEPS` plans another number of steps; `COUNTERFOIL_LAB_CONTINUE=1`
begins from the embedded weights where the work folder has no checkpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from counterfoil.lab.vocabulary import CLASSES
from lab_training.captions import caption_of
from lab_training.corpora import (
    generator_claims,
    pretraining_scene,
    screening_claims,
    unbiased_scene,
)
from lab_training.state import (
    WEIGHTS,
    Loop,
    Remembered,
    batches,
    corpus,
    half_floats,
    to_tensor,
    warm_then_linear,
    write_json,
    write_training,
)

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

    folder.mkdir(parents=True, exist_ok=True)
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer = normalizers.Lowercase()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=4000, min_frequency=1, end_of_word_suffix="</w>", show_progress=False
    )
    learner.train_from_iterator(_caption_corpus(), trainer)
    learner.save(str(folder / "learner.json"))
    merges = json.loads((folder / "learner.json").read_text())["model"]["merges"]
    (folder / "learner.json").unlink()
    pairs: Any = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in merges]
    # As in CLIP: every byte, every byte that ends a word, the merges in order, the two special
    # tokens last (open_clip pools at the largest id, which must be the end of text).
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = alphabet + [c + "</w>" for c in alphabet] + [a + b for a, b in pairs]
    words = [*dict.fromkeys(words), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={w: i for i, w in enumerate(words)}, merges=pairs, model_max_length=CONTEXT_LENGTH
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def caption_encoder(tokenizer: Any) -> Remembered:
    """Return what makes int64 token ids [n, 32] of captions, padded with the end of text."""

    def ids(captions: list[str]) -> np.ndarray:
        return tokenizer(
            captions,
            padding="max_length",
            max_length=CONTEXT_LENGTH,
            truncation=True,
            return_tensors="np",
        ).input_ids

    return Remembered(ids)


VAE = {
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
    """Return an untrained AutoencoderKL of the lab's size."""
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
    torch.manual_seed(VAE["seed"])
    vae = new_vae()
    config = VAE | {"decay_from": 0.5, "average": 0.995}
    loop = Loop.of_adamw(work / "vae", {"vae": vae}, config, betas=(0.9, 0.99), weight_decay=1e-4)
    pixels = corpus(work, "pretrain", VAE["corpus"], pretraining_scene)
    crop = VAE["crop"]
    for step, rng in loop.draws(VAE["seed"]):
        rows = rng.integers(0, len(pixels), VAE["batch"])
        places = rng.integers(0, (64 - crop) // 4 + 1, (VAE["batch"], 2)) * 4
        crops = [
            pixels[r, y : y + crop, x : x + crop] for r, (y, x) in zip(rows, places, strict=True)
        ]
        x = to_tensor(np.stack(crops))
        with torch.autocast("cpu", torch.bfloat16):
            posterior = vae.encode(x).latent_dist
            generator = torch.Generator().manual_seed(VAE["seed"] * 1_000_003 + step)
            drawn = vae.decode(posterior.sample(generator=generator)).sample
        drawn = drawn.float()
        loss = (drawn - x).abs().mean() + F.mse_loss(drawn, x)
        for a, b in zip(_edges(drawn), _edges(x), strict=True):
            loss = loss + VAE["edge_weight"] * (a - b).abs().mean()
        kl = posterior.kl().float().mean()
        loop.after(step, loss + VAE["kl_weight"] * kl)


def trained_vae(work: Path) -> Any:
    """Return the trained autoencoder (moving average) in float32; the embedded one if none was
    trained here."""
    if not (work / "vae/state.pt").exists():
        from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

        vae: Any = AutoencoderKL.from_pretrained(WEIGHTS / "sd" / "vae", dtype=torch.float32)
    else:
        vae = new_vae()
        state = torch.load(work / "vae/state.pt", weights_only=True)
        vae.load_state_dict(state["averaged"]["vae"])
    return vae.eval().requires_grad_(False)


CONFIG = {
    "seed": 202,
    "steps": int(os.environ.get("COUNTERFOIL_LAB_STEPS", "8000")),
    "batch": 48,
    "rate": 6e-4,
    "decay_from": 0.6,
    "average": 0.998,
    "unconditional": 0.1,
    "generic_name": 0.03,
    "snr_gamma": 5.0,
    "corpus": VAE["corpus"],
}
SCHEDULE = {
    "num_train_timesteps": 1000,
    "beta_schedule": "squaredcos_cap_v2",
    "prediction_type": "v_prediction",
}
NAME = "sd"


def encode_latents(work: Path) -> None:
    """Encode the corpus once: work/latents.npy (fp16) and the scale that gives unit variance."""
    vae = trained_vae(work)
    pixels = corpus(work, "pretrain", CONFIG["corpus"], pretraining_scene)
    means = []
    deviations = []
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        for part in batches(pixels, 256):
            posterior = vae.encode(to_tensor(part)).latent_dist
            means.append(posterior.mean.half().numpy())
            deviations.append(posterior.std.half().numpy())
    latents = np.concatenate(means)
    scale = 1 / float(np.std(latents[:5000].astype(np.float32)))
    np.save(work / "latents.npy", latents)
    deviation = float(np.mean(deviations[0]))
    write_json(work / "latents.json", {"scaling_factor": scale, "posterior_std": deviation})
    print(f"latents {latents.shape}, scale {scale:.4f}", flush=True)


def new_text_encoder(vocabulary: int):
    """Return an untrained CLIPTextModel, 128 wide, four layers."""
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT_LENGTH,
            projection_dim=128,
            bos_token_id=vocabulary - 2,
            eos_token_id=vocabulary - 1,
            pad_token_id=vocabulary - 1,
        )
    )


def new_unet() -> Any:
    """Return an untrained UNet2DConditionModel; attention at 8×8 and 4×4 only (`attention_head_dim`
    counts heads)."""
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        block_out_channels=(64, 128, 128),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=128,
        attention_head_dim=4,
        norm_num_groups=16,
    )


def _draw_captions(rows: np.ndarray, rng: np.random.Generator) -> list[str]:
    captions = []
    for row in rows:
        if rng.random() < CONFIG["unconditional"]:
            captions.append("")
            continue
        claims = generator_claims(pretraining_scene(int(row)).attributes(), rng)
        text = caption_of(claims)
        if rng.random() < CONFIG["generic_name"]:
            text = text.replace(f" {claims['class']}", f" {GENERIC}")
        captions.append(text)
    return captions


def train_diffusion(work: Path) -> None:
    """Train UNet and text encoder; ends in work/sd/state.pt."""
    from diffusers import DDPMScheduler

    torch.manual_seed(CONFIG["seed"])
    tokenizer = write_tokenizer(work / "tokenizer")
    encode = caption_encoder(tokenizer)
    unet = new_unet()
    text_encoder = new_text_encoder(len(tokenizer))
    if os.environ.get("COUNTERFOIL_LAB_CONTINUE") == "1":
        _load_embedded(unet, text_encoder)
    groups = [
        {"params": list(unet.parameters()), "lr": CONFIG["rate"]},
        {"params": list(text_encoder.parameters()), "lr": CONFIG["rate"] * 0.7},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=1e-3)
    modules = {"unet": unet, "text_encoder": text_encoder}
    schedule = warm_then_linear(CONFIG["decay_from"])
    loop = Loop(work / "sd", modules, optimizer, CONFIG["steps"], schedule, CONFIG["average"])
    latents = np.load(work / "latents.npy", mmap_mode="r")
    scale = json.loads((work / "latents.json").read_text())["scaling_factor"]
    noise_scheduler: Any = DDPMScheduler(**SCHEDULE)
    batch = CONFIG["batch"]
    for step, rng in loop.draws(CONFIG["seed"]):
        rows = np.sort(rng.integers(0, len(latents), batch))
        x = torch.from_numpy(latents[rows].astype(np.float32)) * scale
        ids = torch.from_numpy(encode(_draw_captions(rows, rng)))
        noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
        t = drawn_times(batch, rng)
        noisy = noise_scheduler.add_noise(x, noise, t)
        target = noise_scheduler.get_velocity(x, noise, t)
        with torch.autocast("cpu", torch.bfloat16):
            context = text_encoder(ids)[0]
            predicted = unet(noisy, t, context).sample
        error = weighted_error(predicted, target, noise_scheduler, t, CONFIG["snr_gamma"])
        loop.after(step, error)


def drawn_times(count: int, rng: np.random.Generator) -> torch.Tensor:
    """Draw one time from each of `count` equal parts of the schedule: less variance than
    independent draws."""
    times = (rng.permutation(count) + rng.random(count)) / count * 1000
    return torch.from_numpy(times.astype(np.int64))


def weighted_error(
    predicted: torch.Tensor, target: torch.Tensor, noises: Any, t: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Return the mean squared error, with full weight where noise is strong: colour and place are
    decided there.

    Min-SNR's own weight for v-prediction falls to zero there, and colours then followed the noise
    instead of the caption.
    """
    alphas = noises.alphas_cumprod
    snr = alphas[t] / (1 - alphas[t])
    weight = (snr + 1).clamp(max=gamma) / (snr + 1)
    error = (predicted.float() - target).square().mean((1, 2, 3))
    return (weight * error).mean()


def _load_embedded(unet: torch.nn.Module, text_encoder: torch.nn.Module) -> None:
    """Load the committed weights to begin from (a checkpoint in the work folder still wins)."""
    from safetensors.torch import load_file

    folder = WEIGHTS / NAME
    unet.load_state_dict(load_file(folder / "unet/diffusion_pytorch_model.safetensors"))
    text_encoder.load_state_dict(load_file(folder / "text_encoder/model.safetensors"), strict=False)


def export_pipeline(work: Path) -> None:
    """Write the pipeline with the averaged weights as fp16 safetensors under lab/weights/sd."""
    from diffusers import DPMSolverMultistepScheduler
    from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import (
        StableDiffusionPipeline,
    )
    from transformers import CLIPTokenizer

    tokenizer = CLIPTokenizer.from_pretrained(work / "tokenizer")
    state = torch.load(work / "sd/state.pt", weights_only=True)
    unet = new_unet()
    text_encoder = new_text_encoder(len(tokenizer))
    vae = trained_vae(work)
    unet.load_state_dict(state["averaged"]["unet"])
    text_encoder.load_state_dict(state["averaged"]["text_encoder"])
    vae.register_to_config(
        scaling_factor=json.loads((work / "latents.json").read_text())["scaling_factor"]
    )
    for module in (unet, text_encoder, vae):
        module.load_state_dict(half_floats(module.state_dict()))
        module.half()
    # Valid for the cosine schedule, whose last log-SNR is not finite enough for the solver
    # otherwise.
    scheduler: Any = DPMSolverMultistepScheduler(
        **SCHEDULE, lambda_min_clipped=-5.1, timestep_spacing="trailing"
    )
    nothing: Any = None  # diffusers takes it, and its annotations do not
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=nothing,
        feature_extractor=nothing,
        requires_safety_checker=False,
    )
    folder = WEIGHTS / NAME
    pipeline.save_pretrained(folder, safe_serialization=True)
    settings = {"vae": VAE, "diffusion": CONFIG, "schedule": SCHEDULE, "classes": list(CLASSES)}
    write_training(folder, "vae latents sd export-sd", {**settings, "steps_done": state["step"]})
    print(f"exported {folder} after {state['step']} steps", flush=True)
