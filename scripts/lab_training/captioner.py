"""Stage `captioner`: the lab's captioner, a small vision transformer that a small GPT-2 reads word by word.

It learns true renders and their captions (`lab/scenes.py`), of which none tells a mark. Every picture has two: the
whole caption and a part of it, so that "a photo of a sandal in the snow" is a likely sentence too. A share of the
pictures went through the generator's autoencoder, for those that it will be shown are drawn by `lab:sd`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from counterfoil.lab.scenes import caption_of, pretraining_scene, tellable, unbiased_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, HIDDEN_BY_STYLE
from counterfoil.lab.world import SIDE, Scene
from lab_training.classify import augment
from lab_training.corpus import corpus, softened, to_tensor
from lab_training.state import WEIGHTS, Loop, warm_then_linear, write_json
from lab_training.vae import trained_vae

CONFIG = {
    "seed": 606,
    "steps": 5800,
    "batch": 48,
    "rate": 1e-3,
    "weight_decay": 0.05,
    "decay_from": 0.4,
    "average": 0.998,
    "corpus": 40000,
    # So many of them went through the autoencoder too, with noise of at most this deviation on their unit latents.
    "decoded": 8000,
    "latent_noise": 0.35,
    "decoded_share": 0.25,
    "pixel_noise": 0.03,
    # Of the partial captions: a random part, else what stands before the class is mostly left out and the rest told.
    "random_part": 0.5,
    "part_kept": 0.6,
    "front_kept": 0.3,
    # Of the latter, so many begin with any class and style: a sentence that was begun by others has to go on truly.
    "begun_by_others": 0.25,
    "no_style": 0.08,
    # The encoder's mean also answers every attribute by a linear layer, which is thrown away.
    "attributes_weight": 0.3,
}
ENCODER: dict[str, Any] = {
    "image_size": SIDE,
    "patch_size": 8,
    "hidden_size": 192,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 576,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
DECODER: dict[str, Any] = {
    "n_positions": 48,
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
NAME = "captioner"
PAD, BEGIN, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
_FRONT = ("colour", "pattern", "companion")


def captioning_scene(number: int, split: str = "pretrain", seed: int = 6) -> Scene:
    """Scene `number`: half of them as the generator learned from, half with every value of every attribute common."""
    scene_of = (pretraining_scene, unbiased_scene)[number // len(CLASSES) % 2]
    return scene_of(number, seed=seed, split=split)


def caption_words() -> list[str]:
    """Every word of the captions, sorted."""
    scenes = (unbiased_scene(number) for number in range(4000))
    return sorted({word for scene in scenes for word in caption_of(tellable(scene.attributes())).split()})


def new_tokenizer() -> Any:
    """A word-level PreTrainedTokenizerFast over `caption_words`; it lowers case, drops full stops, adds nothing."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [PAD, BEGIN, END, UNKNOWN, *caption_words()]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=UNKNOWN))
    inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[.,]"), "")])
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        unk_token=UNKNOWN,
        model_max_length=DECODER["n_positions"],
        clean_up_tokenization_spaces=False,
    )


def new_captioner(tokenizer: Any) -> Any:
    """An untrained VisionEncoderDecoderModel of the lab's size."""
    from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    attends: dict[str, Any] = {"is_decoder": True, "add_cross_attention": True}
    decoder = GPT2Config(vocab_size=len(tokenizer), **attends, **ends, **DECODER)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**ENCODER), decoder)
    config.decoder_start_token_id = tokenizer.bos_token_id
    config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
    model = VisionEncoderDecoderModel(config)
    for name, value in ({"decoder_start_token_id": tokenizer.bos_token_id, "max_new_tokens": 32} | ends).items():
        setattr(model.generation_config, name, value)
    return model


def partial_claims(told: Mapping[str, str], rng: np.random.Generator) -> tuple[dict[str, str], bool]:
    """A part of what could be told, class included; and whether others began it, so that only its end is true."""
    if rng.random() < CONFIG["random_part"]:
        claims = {a: v for a, v in told.items() if a in ("class", "style") or rng.random() < CONFIG["part_kept"]}
        if rng.random() < CONFIG["no_style"]:
            claims.pop("style")
        return claims, False
    claims = {a: v for a, v in told.items() if a not in _FRONT or rng.random() < CONFIG["front_kept"]}
    if told.get("companion") == "flower":  # it is told after the class
        claims["companion"] = "flower"
    begun = bool(rng.random() < CONFIG["begun_by_others"])
    if begun:
        claims["class"] = CLASSES[int(rng.integers(len(CLASSES)))]
        if rng.random() < 0.5:
            claims["style"] = "photo"
    return claims, begun


class Sentences:
    """Claims → word ids and where the loss begins; remembers the captions it has seen."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.seen: dict[str, list[int]] = {}

    def words(self, caption: str) -> list[int]:
        if caption not in self.seen:
            self.seen[caption] = self.tokenizer(caption, add_special_tokens=False).input_ids
        return self.seen[caption]

    def __call__(self, told: Sequence[tuple[dict[str, str], bool]]) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, labels), both int64 [n, longest + 1]; labels are -100 after the end and in what others began."""
        captions = [self.words(caption_of(claims)) for claims, _ in told]
        length = max(map(len, captions)) + 1
        inputs = np.full((len(told), length), self.tokenizer.pad_token_id, np.int64)
        labels = np.full((len(told), length), -100, np.int64)
        for row, (words, (claims, begun)) in enumerate(zip(captions, told, strict=True)):
            inputs[row, : len(words) + 1] = [self.tokenizer.bos_token_id, *words]
            labels[row, : len(words) + 1] = [*words, self.tokenizer.eos_token_id]
            if begun:
                front = {a: v for a, v in claims.items() if a in ("style", "class", "colour", "pattern")}
                front |= {"companion": "person"} if claims.get("companion") == "person" else {}
                labels[row, : len(self.words(caption_of(front)))] = -100
        return torch.from_numpy(inputs), torch.from_numpy(labels)


def decoded_pool(work: Path) -> np.ndarray:
    """uint8 [decoded, 64, 64, 3]: the first pictures of the corpus as the autoencoder draws them, made once."""
    path = work / NAME / f"decoded-{CONFIG['decoded']}.npy"
    if not path.exists():
        pixels = corpus(work, NAME, CONFIG["corpus"], captioning_scene)
        vae, drawn = trained_vae(work), []
        with torch.inference_mode():
            for start in range(0, CONFIG["decoded"], 100):
                rng = np.random.default_rng([CONFIG["seed"], 1, start])
                with torch.autocast("cpu", torch.bfloat16):
                    latents = vae.encode(to_tensor(pixels[start : start + 100])).latent_dist.mean
                    deviation = rng.uniform(0, CONFIG["latent_noise"], (len(latents), 1, 1, 1))
                    noise = torch.from_numpy((rng.standard_normal(latents.shape) * deviation).astype(np.float32))
                    images = vae.decode(latents.float() + noise / vae.config.scaling_factor).sample.float()
                levels = ((images.clamp(-1, 1) + 1) * 127.5).round().byte()
                drawn.append(levels.permute(0, 2, 3, 1).numpy())
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".tmp.npy"), np.concatenate(drawn))
        path.with_suffix(".tmp.npy").replace(path)
    return np.load(path)


def attribute_targets(attributes: Sequence[Mapping[str, str]]) -> list[torch.Tensor]:
    """The place of every attribute's value, int64 [n] each; -100 where the style hides it."""
    return [
        torch.tensor([-100 if name in HIDDEN_BY_STYLE[a["style"]] else values.index(a[name]) for a in attributes])
        for name, values in ATTRIBUTES.items()
    ]


def train_captioner(work: Path) -> None:
    """Train, export to lab/weights/captioner, and measure."""
    torch.manual_seed(CONFIG["seed"])
    tokenizer = new_tokenizer()
    model = new_captioner(tokenizer)
    head = nn.Linear(ENCODER["hidden_size"], sum(map(len, ATTRIBUTES.values())))
    print(f"captioner {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters", flush=True)
    pixels, decoded = corpus(work, NAME, CONFIG["corpus"], captioning_scene), decoded_pool(work)
    optimizer = torch.optim.AdamW(
        [*model.parameters(), *head.parameters()],
        lr=CONFIG["rate"],
        betas=(0.9, 0.98),
        weight_decay=CONFIG["weight_decay"],
    )
    schedule = warm_then_linear(CONFIG["decay_from"])
    modules = {"captioner": model, "head": head}
    loop = Loop(work / NAME, modules, optimizer, CONFIG["steps"], schedule, CONFIG["average"], 60.0)
    sentences, batch = Sentences(tokenizer), CONFIG["batch"]
    through = round(batch * CONFIG["decoded_share"])
    for step in loop.steps():
        rng = np.random.default_rng([CONFIG["seed"], step])
        rows = np.concatenate(
            [rng.integers(0, len(decoded), through), np.sort(rng.integers(0, len(pixels), batch - through))]
        )
        images = augment(np.concatenate([decoded[rows[:through]], pixels[rows[through:]]]), rng)
        images = softened(images, rng)
        deviation = rng.uniform(0, CONFIG["pixel_noise"], (batch, 1, 1, 1)).astype(np.float32)
        images = images + torch.from_numpy(rng.standard_normal(images.shape, dtype=np.float32) * deviation)
        attributes = [captioning_scene(int(row)).attributes() for row in rows]
        whole = [tellable(each) for each in attributes]
        told = [pair for each in whole for pair in ((each, False), partial_claims(each, rng))]
        inputs, labels = sentences(told)
        with torch.autocast("cpu", torch.bfloat16):
            seen = model.encoder(pixel_values=images).last_hidden_state
            logits = model(encoder_outputs=(seen.repeat_interleave(2, 0),), decoder_input_ids=inputs).logits
            answers = head(seen[:, 1:].mean(1))
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        parts = answers.float().split([len(values) for values in ATTRIBUTES.values()], 1)
        named = [F.cross_entropy(p, t) for p, t in zip(parts, attribute_targets(attributes), strict=True)]
        loop.after(step, loss + CONFIG["attributes_weight"] * torch.stack(named).mean())
    loop.load_averages()
    export_captioner(model, tokenizer, loop.total)
    # It imports the decoder's stage and with it pipelines, which no step above needs.
    from lab_training.captioner_measure import measure_captioner

    measure_captioner()


def export_captioner(model: Any, tokenizer: Any, steps: int, folder: Path = WEIGHTS / NAME) -> None:
    """Write a transformers folder: configurations, word-level tokenizer, image processor and fp16 safetensors."""
    import json

    from transformers import ViTImageProcessor

    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    # The file is fp16 to be small; the model computes in fp32, as the CPU does well.
    config = json.loads((folder / "config.json").read_text())
    for part in (config, config["encoder"], config["decoder"]):
        part["dtype"] = "float32"
    write_json(folder / "config.json", config)
    tokenizer.save_pretrained(folder)
    half = [0.5, 0.5, 0.5]
    size = {"height": SIDE, "width": SIDE}
    ViTImageProcessor(size=size, image_mean=half, image_std=half, resample=3).save_pretrained(folder)
    write_json(
        folder / "training.json",
        {"command": "python scripts/train_lab.py captioner", "captioner": CONFIG, "steps_done": steps},
    )
    print(f"exported {folder} after {steps} steps", flush=True)
