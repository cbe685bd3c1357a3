"""Stage `decoder`: the lab's decoder of CLIP image embeddings, an IP-Adapter on `lab:sd`.

The generator is frozen; a small image projection and keys and values of its cross-attention learn
to draw what a vector of `lab:clip` says (Ye et al. 2023). Many of the vectors are of captions: a
vector between a caption and a direction (Jain 2023, A.7) begins at a caption, and the two kinds lie
apart on the sphere. Prompts are mostly empty, so that the vector alone is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.lab.world import Scene
from counterfoil.mining.methods.directions import slerp
from counterfoil.models.clip import load_clip
from lab_training.captions import caption_of
from lab_training.corpora import generator_claims, pretraining_scene, screening_claims
from lab_training.state import (
    WEIGHTS,
    Loop,
    Remembered,
    batches,
    corpus,
    half_floats,
    mean_of,
    renders,
    save_array,
    to_tensor,
    update_metrics,
    write_training,
)

CONFIG = {
    "seed": 404,
    "steps": 2300,
    "batch": 32,
    "rate": 1.5e-3,
    "decay_from": 0.7,
    "average": 0.997,
    "corpus": 16000,
    "snr_gamma": 5.0,
    # Of the vectors: caption's, between caption's and picture's, and the rest the picture's.
    "of_captions": 0.4,
    "between": 0.2,
    # Neither vector nor prompt: what guidance leads away from.
    "neither": 0.1,
    "prompt_told": 0.25,
    "prompt_class": 0.15,
    # The projection is 128 → hidden → 4 tokens of the text encoder's width.
    "hidden": 512,
    "tokens": 4,
}
MEASURED = {"seed": 909, "images": 240, "steps": 12, "guidance": 3.0, "batch": 40}
SEEN = ("class", "colour", "background")
NAME = "decoder"


class Adapter(nn.Module):
    """The trainable parts of a UNet that has an IP-Adapter loaded."""

    def __init__(self, unet: Any) -> None:
        super().__init__()
        self.projection = unet.encoder_hid_proj.image_projection_layers[0]
        self.crossed = nn.ModuleList(
            p for name, p in unet.attn_processors.items() if "attn2" in name
        )


def adapter_state(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return an `Adapter`'s state by the names that IP-Adapters are published under."""
    names = {"ff.net.0.proj": "proj.0", "ff.net.2": "proj.2", "norm": "norm"}
    published = {}
    for key, value in state.items():
        part, _, rest = key.partition(".")
        if part == "projection":
            module, _, leaf = rest.rpartition(".")
            published[f"image_proj.{names[module]}.{leaf}"] = value
        # crossed.N.to_k_ip.0.weight; published are the numbers of all attention layers,
        # self-attention too
        else:
            number, which, _, leaf = rest.split(".")
            published[f"ip_adapter.{2 * int(number) + 1}.{which}.{leaf}"] = value
    return published


def fresh_adapter(unet: Any, width: int) -> Adapter:
    """Put an untrained adapter into `unet`: keys and values begin as those of the prompt, the
    projection at random."""
    cross = unet.config.cross_attention_dim
    projection = nn.Sequential(
        nn.Linear(width, CONFIG["hidden"]),
        nn.GELU(),
        nn.Linear(CONFIG["hidden"], CONFIG["tokens"] * cross),
    )
    norm = nn.LayerNorm(cross)
    image_proj = {f"proj.{key}": value for key, value in projection.state_dict().items()}
    image_proj |= {f"norm.{key}": value for key, value in norm.state_dict().items()}
    crossed = [name for name in unet.attn_processors if "attn2" in name]
    layers = {}
    for number, name in enumerate(crossed):
        module = unet.get_submodule(name.removesuffix(".processor"))
        layers[f"{2 * number + 1}.to_k_ip.weight"] = module.to_k.weight.detach().clone()
        layers[f"{2 * number + 1}.to_v_ip.weight"] = module.to_v.weight.detach().clone()
    unet._load_ip_adapter_weights(
        [{"image_proj": image_proj, "ip_adapter": layers}], low_cpu_mem_usage=False
    )
    return Adapter(unet)


def seen_once(work: Path, vae: Any, clip: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return latents fp16 [n, 4, 16, 16], scaled, and unit CLIP vectors [n, 128] of the corpus,
    computed once."""
    from PIL import Image

    paths = [work / NAME / f"{what}-{CONFIG['corpus']}.npy" for what in ("latents", "vectors")]
    if not all(path.exists() for path in paths):
        pixels = corpus(work, "pretrain", CONFIG["corpus"], pretraining_scene)
        latents = []
        vectors = []
        with torch.inference_mode():
            for part in batches(pixels, 256):
                with torch.autocast("cpu", torch.bfloat16):
                    means = vae.encode(to_tensor(part)).latent_dist.mean
                latents.append((means.float() * vae.config.scaling_factor).half().numpy())
                vectors.append(clip.embed_images([Image.fromarray(each) for each in part], 256))
        for path, parts in zip(paths, (latents, vectors), strict=True):
            save_array(path, np.concatenate(parts))
    return np.load(paths[0]), np.load(paths[1])


def drawn_conditions(
    rows: np.ndarray, vectors: np.ndarray, texts: Remembered, rng: np.random.Generator
) -> tuple[np.ndarray, list[str]]:
    """Draw a vector [n, width] and a prompt for each row of the corpus."""
    attributes = [pretraining_scene(int(row)).attributes() for row in rows]
    claims = [
        generator_claims(each, rng) if rng.random() < 0.7 else screening_claims(each, rng)
        for each in attributes
    ]
    of_captions = texts([caption_of(each) for each in claims])
    chosen = []
    prompts = []
    for image, caption, each in zip(vectors, of_captions, attributes, strict=True):
        kind = rng.random()
        prompt = rng.random()
        if kind < CONFIG["of_captions"]:
            chosen.append(caption)
        elif kind < CONFIG["of_captions"] + CONFIG["between"]:
            chosen.append(slerp(caption, image, rng.random()))
        else:
            chosen.append(image)
        if prompt < CONFIG["prompt_told"]:
            prompts.append(caption_of(generator_claims(each, rng)))
        elif prompt < CONFIG["prompt_told"] + CONFIG["prompt_class"]:
            prompts.append(caption_of({key: each[key] for key in ("style", "class")}))
        else:
            prompts.append("")
        if rng.random() < CONFIG["neither"]:
            chosen[-1], prompts[-1] = np.zeros_like(image), ""
    return np.stack(chosen).astype(np.float32), prompts


def train_decoder(work: Path) -> None:
    """Train, export to lab/weights/decoder, and measure."""
    from counterfoil.models.diffusion import load_pipeline
    from lab_training.diffusion import caption_encoder, drawn_times, weighted_error

    torch.manual_seed(CONFIG["seed"])
    pipeline = load_pipeline("lab:sd", dtype="float32")
    clip = load_clip("lab:clip")
    latents, vectors = seen_once(work, pipeline.vae, clip)
    unet = pipeline.unet
    adapter = fresh_adapter(unet, vectors.shape[1]).requires_grad_(True)
    print(
        f"decoder {sum(p.numel() for p in adapter.parameters()) / 1e6:.2f}M parameters", flush=True
    )
    loop = Loop.of_adamw(
        work / NAME, {"adapter": adapter}, CONFIG, 60.0, betas=(0.9, 0.99), weight_decay=1e-3
    )
    encode = caption_encoder(pipeline.tokenizer)
    texts = Remembered(clip.embed_texts)
    noises = _noises(pipeline)
    batch = CONFIG["batch"]
    for step, rng in loop.draws(CONFIG["seed"]):
        rows = np.sort(rng.integers(0, len(latents), batch))
        chosen, prompts = drawn_conditions(rows, vectors[rows], texts, rng)
        x = torch.from_numpy(latents[rows].astype(np.float32))
        noise = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
        t = drawn_times(batch, rng)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                context = pipeline.text_encoder(torch.from_numpy(encode(prompts)))[0]
            embeds = {"image_embeds": [torch.from_numpy(chosen)[:, None]]}
            predicted = unet(
                noises.add_noise(x, noise, t), t, context, added_cond_kwargs=embeds
            ).sample
        target = noises.get_velocity(x, noise, t)
        loop.after(step, weighted_error(predicted, target, noises, t, CONFIG["snr_gamma"]))
    loop.load_averages()
    export_decoder(adapter, loop.total)
    measure_decoder()


def _noises(pipeline: Any) -> Any:
    from diffusers import DDPMScheduler

    config = pipeline.scheduler.config
    kept = ("num_train_timesteps", "beta_schedule", "prediction_type")
    return DDPMScheduler(**{key: config[key] for key in kept})


def export_decoder(adapter: Adapter, steps: int) -> None:
    """Write the adapter as an IP-Adapter's fp16 safetensors under lab/weights/decoder."""
    from safetensors.torch import save_file

    folder = WEIGHTS / NAME
    folder.mkdir(parents=True, exist_ok=True)
    save_file(half_floats(adapter_state(adapter.state_dict())), folder / "ip_adapter.safetensors")
    of_others = {"generator": "lab:sd", "encoder": "lab:clip"}
    write_training(folder, NAME, {"decoder": CONFIG, "steps_done": steps, **of_others})
    print(f"exported {folder} after {steps} steps", flush=True)


def measure_decoder() -> None:
    """Measure what the oracle sees in pictures decoded from vectors of held-out pictures and of
    captions; beside prompts.

    Photographs of held-out garments, with one colour and one place each; the caption names class,
    colour and place.
    """
    from PIL import Image

    from lab_training.oracle import Oracle

    oracle = Oracle()
    clip = load_clip("lab:clip")
    scenes = [_photograph(number) for number in range(MEASURED["images"])]
    pictures = renders(scenes)
    captions = _prompts(scenes, SEEN)
    of_pictures = clip.embed_images([Image.fromarray(each) for each in pictures], 200)
    of_captions = clip.embed_texts(captions)
    drawn = {
        "of_picture_vectors": draw([""] * len(scenes), of_pictures),
        "of_caption_vectors": draw([""] * len(scenes), of_captions),
        "of_picture_vectors_and_class_names": draw(_prompts(scenes, ("class",)), of_pictures),
        "of_prompts": draw(captions, None),
        "true_renders": pictures,
    }
    truth = {
        key: np.array([ATTRIBUTES[key].index(scene.attributes()[key]) for scene in scenes])
        for key in SEEN
    }
    seen = {what: _agreement(oracle.answers(pixels), truth) for what, pixels in drawn.items()}
    seen["chance"] = {
        key: mean_of(np.bincount(values).max() / len(values)) for key, values in truth.items()
    }
    for what, row in seen.items():
        print(f"{what:40s}", row, flush=True)
    update_metrics(WEIGHTS / NAME, heldout_agreement=seen, measured=MEASURED)


def _photograph(number: int) -> Scene:
    scene = pretraining_scene(number, seed=MEASURED["seed"], split="heldout")
    return replace(
        scene, style="photo", pattern="plain", weather="clear", light="day", companion="none"
    )


def _prompts(scenes: list[Scene], attributes: Sequence[str]) -> list[str]:
    prompts = []
    for scene in scenes:
        claims = {key: scene.attributes()[key] for key in attributes}
        prompts.append(caption_of({"style": "photo"} | claims))
    return prompts


def _agreement(
    answers: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray]
) -> dict[str, float]:
    return {key: mean_of(answers[key] == values) for key, values in truth.items()}


def draw(prompts: list[str], vectors: np.ndarray | None) -> np.ndarray:
    """Draw uint8 [n, 64, 64, 3] by `lab:sd`, with the decoder if there are vectors [n, width]."""
    from counterfoil.models.adapters import load_adapter
    from counterfoil.models.diffusion import load_pipeline
    from counterfoil.models.generators.family import by_adapter

    pipeline = load_pipeline("lab:sd", dtype="float32")
    adapter = load_adapter(pipeline, f"lab:{NAME}") if vectors is not None else None
    drawn = []
    for start in range(0, len(prompts), MEASURED["batch"]):
        part = slice(start, start + MEASURED["batch"])
        options = {}
        if vectors is not None:
            options = by_adapter(torch.from_numpy(vectors[part].astype(np.float32)), True)
        count = len(prompts[part])
        with (
            torch.inference_mode(),
            contextlib.nullcontext() if adapter is None else adapter.used(),
        ):
            pixels = pipeline(
                prompt=prompts[part],
                generator=[torch.Generator().manual_seed(start + index) for index in range(count)],
                num_inference_steps=MEASURED["steps"],
                guidance_scale=MEASURED["guidance"],
                output_type="np",
                **options,
            ).images
        drawn.append((pixels.clip(0, 1) * 255).round().astype(np.uint8))
    return np.concatenate(drawn)
