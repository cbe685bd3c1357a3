"""Stage `captioner`: the lab's captioner, a small vision transformer that a small GPT-2 reads word
by word.

It learns true renders and their captions (`lab/scenes.py`), of which none tells a mark. Every
picture has two: the whole caption and a part of it, so that "a photo of a sandal in the snow" is a
likely sentence too. A share of the pictures went through the generator's autoencoder, for those
that it will be shown are drawn by `lab:sd`.

It is measured on renders of held-out garments and on what `lab:sd` draws, by what its captions
claim. What is there is known of a render and prompted of a drawn picture; of the latter the oracle
is asked too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, MARKS
from counterfoil.lab.world import SIDE, Scene
from lab_training.captions import Claims, caption_of, tellable
from lab_training.classify import attribute_targets, augment
from lab_training.corpora import pretraining_scene, unbiased_scene
from lab_training.diffusion import trained_vae
from lab_training.oracle import Oracle
from lab_training.state import (
    WEIGHTS,
    Loop,
    batches,
    corpus,
    mean_of,
    renders,
    save_array,
    softened,
    to_tensor,
    update_metrics,
    write_json,
    write_training,
)

CONFIG = {
    "seed": 606,
    "steps": 5800,
    "batch": 48,
    "rate": 1e-3,
    "weight_decay": 0.05,
    "decay_from": 0.4,
    "average": 0.998,
    "corpus": 40000,
    # So many of them went through the autoencoder too, with noise of at most this deviation on
    # their unit latents.
    "decoded": 8000,
    "latent_noise": 0.35,
    "decoded_share": 0.25,
    "pixel_noise": 0.03,
    # Of the partial captions: a random part, else what precedes the class is mostly left out and
    # the rest is named.
    "random_part": 0.5,
    "part_kept": 0.6,
    "front_kept": 0.3,
    # Of the latter, so many begin with any class and style: a sentence that was begun by others has
    # to go on truly.
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
PAD = "<pad>"
BEGIN = "<s>"
END = "</s>"
UNKNOWN = "<unk>"
_FRONT = ("colour", "pattern", "companion")


def captioning_scene(number: int, split: str = "pretrain", seed: int = 6) -> Scene:
    """Return scene `number`: half as the generator learned from, half with every value of every
    attribute common."""
    scene_of = (pretraining_scene, unbiased_scene)[number // len(CLASSES) % 2]
    return scene_of(number, seed=seed, split=split)


def caption_words() -> list[str]:
    """Return every word of the captions, sorted."""
    scenes = (unbiased_scene(number) for number in range(4000))
    return sorted(
        {word for scene in scenes for word in caption_of(tellable(scene.attributes())).split()}
    )


def new_tokenizer() -> Any:
    """Return a word-level PreTrainedTokenizerFast over `caption_words`; it lowers case and drops
    full stops."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [PAD, BEGIN, END, UNKNOWN, *caption_words()]
    inner = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    inner.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex("[.,]"), "")]
    )
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
    """Return an untrained VisionEncoderDecoderModel of the lab's size."""
    from transformers import (
        GPT2Config,
        VisionEncoderDecoderConfig,
        VisionEncoderDecoderModel,
        ViTConfig,
    )

    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    attends: dict[str, Any] = {"is_decoder": True, "add_cross_attention": True}
    decoder = GPT2Config(vocab_size=len(tokenizer), **attends, **ends, **DECODER)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**ENCODER), decoder)
    config.decoder_start_token_id = tokenizer.bos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    config.eos_token_id = tokenizer.eos_token_id
    model = VisionEncoderDecoderModel(config)
    start = {"decoder_start_token_id": tokenizer.bos_token_id}
    model.generation_config.update(max_new_tokens=32, **start, **ends)
    return model


def partial_claims(claimed: Claims, rng: np.random.Generator) -> tuple[dict[str, str], bool]:
    """Draw some of the claims, class included; and whether others begin the caption, so that only
    its end is true."""
    if rng.random() < CONFIG["random_part"]:
        claims = {
            a: v
            for a, v in claimed.items()
            if a in ("class", "style") or rng.random() < CONFIG["part_kept"]
        }
        if rng.random() < CONFIG["no_style"]:
            claims.pop("style")
        return claims, False
    claims = {
        a: v for a, v in claimed.items() if a not in _FRONT or rng.random() < CONFIG["front_kept"]
    }
    if claimed.get("companion") == "flower":  # it comes after the class
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

    def __call__(
        self, claimed: Sequence[tuple[dict[str, str], bool]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (inputs, labels), both int64 [n, longest + 1]; labels are -100 after the end and
        in others' words."""
        captions = [self.words(caption_of(claims)) for claims, _ in claimed]
        length = max(map(len, captions)) + 1
        inputs = np.full((len(claimed), length), self.tokenizer.pad_token_id, np.int64)
        labels = np.full((len(claimed), length), -100, np.int64)
        for row, (words, (claims, begun)) in enumerate(zip(captions, claimed, strict=True)):
            inputs[row, : len(words) + 1] = [self.tokenizer.bos_token_id, *words]
            labels[row, : len(words) + 1] = [*words, self.tokenizer.eos_token_id]
            if begun:
                front = {
                    a: v for a, v in claims.items() if a in ("style", "class", "colour", "pattern")
                }
                front |= {"companion": "person"} if claims.get("companion") == "person" else {}
                labels[row, : len(self.words(caption_of(front)))] = -100
        return torch.from_numpy(inputs), torch.from_numpy(labels)


def decoded_pool(work: Path) -> np.ndarray:
    """Return uint8 [decoded, 64, 64, 3]: the corpus's first pictures as the autoencoder draws them,
    made once."""
    path = work / NAME / f"decoded-{CONFIG['decoded']}.npy"
    if not path.exists():
        pixels = corpus(work, NAME, CONFIG["corpus"], captioning_scene)
        vae = trained_vae(work)
        drawn = []
        with torch.inference_mode():
            for start in range(0, CONFIG["decoded"], 100):
                rng = np.random.default_rng([CONFIG["seed"], 1, start])
                with torch.autocast("cpu", torch.bfloat16):
                    latents = vae.encode(to_tensor(pixels[start : start + 100])).latent_dist.mean
                    deviation = rng.uniform(0, CONFIG["latent_noise"], (len(latents), 1, 1, 1))
                    noise = torch.from_numpy(
                        (rng.standard_normal(latents.shape) * deviation).astype(np.float32)
                    )
                    images = vae.decode(
                        latents.float() + noise / vae.config.scaling_factor
                    ).sample.float()
                levels = ((images.clamp(-1, 1) + 1) * 127.5).round().byte()
                drawn.append(levels.permute(0, 2, 3, 1).numpy())
        save_array(path, np.concatenate(drawn))
    return np.load(path)


def train_captioner(work: Path) -> None:
    """Train, export to lab/weights/captioner, and measure."""
    torch.manual_seed(CONFIG["seed"])
    tokenizer = new_tokenizer()
    model = new_captioner(tokenizer)
    head = nn.Linear(ENCODER["hidden_size"], sum(map(len, ATTRIBUTES.values())))
    print(
        f"captioner {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters", flush=True
    )
    pixels = corpus(work, NAME, CONFIG["corpus"], captioning_scene)
    decoded = decoded_pool(work)
    modules = {"captioner": model, "head": head}
    loop = Loop.of_adamw(
        work / NAME, modules, CONFIG, 60.0, betas=(0.9, 0.98), weight_decay=CONFIG["weight_decay"]
    )
    sentences = Sentences(tokenizer)
    batch = CONFIG["batch"]
    through = round(batch * CONFIG["decoded_share"])
    for step, rng in loop.draws(CONFIG["seed"]):
        first = rng.integers(0, len(decoded), through)
        others = np.sort(rng.integers(0, len(pixels), batch - through))
        rows = np.concatenate([first, others])
        images = augment(np.concatenate([decoded[first], pixels[others]]), rng)
        images = softened(images, rng)
        deviation = rng.uniform(0, CONFIG["pixel_noise"], (batch, 1, 1, 1)).astype(np.float32)
        images = images + torch.from_numpy(
            rng.standard_normal(images.shape, dtype=np.float32) * deviation
        )
        attributes = [captioning_scene(int(row)).attributes() for row in rows]
        whole = [tellable(each) for each in attributes]
        claimed = [pair for each in whole for pair in ((each, False), partial_claims(each, rng))]
        inputs, labels = sentences(claimed)
        with torch.autocast("cpu", torch.bfloat16):
            seen = model.encoder(pixel_values=images).last_hidden_state
            twice = seen.repeat_interleave(2, 0)
            logits = model(encoder_outputs=(twice,), decoder_input_ids=inputs).logits
            answers = head(seen[:, 1:].mean(1))
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        parts = answers.float().split([len(values) for values in ATTRIBUTES.values()], 1)
        named = [
            F.cross_entropy(p, t)
            for p, t in zip(parts, attribute_targets(attributes).values(), strict=True)
        ]
        loop.after(step, loss + CONFIG["attributes_weight"] * torch.stack(named).mean())
    loop.load_averages()
    export_captioner(model, tokenizer, loop.total)
    measure_captioner()


def export_captioner(model: Any, tokenizer: Any, steps: int, folder: Path = WEIGHTS / NAME) -> None:
    """Write a transformers folder: configurations, word-level tokenizer, image processor and fp16
    safetensors."""
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
    ViTImageProcessor(size=size, image_mean=half, image_std=half, resample=3).save_pretrained(
        folder
    )
    write_training(folder, NAME, {"captioner": CONFIG, "steps_done": steps})
    print(f"exported {folder} after {steps} steps", flush=True)


UNTOLD = frozenset({"plain", "clear", "day", "none"})
"""Values that no caption tells: what a picture is like when nothing is said."""


def _phrases() -> dict[str, dict[str, str]]:
    """Return attribute → value → its words in a caption."""
    phrases: dict[str, dict[str, str]] = {}
    for attribute, values in ATTRIBUTES.items():
        bare = {} if attribute == "style" else {"style": "photo"}
        phrases[attribute] = {
            value: caption_of(bare | {attribute: value}).removeprefix(caption_of(bare)).strip()
            for value in values
            if value not in UNTOLD
        }
    phrases["class"] = {value: value for value in ATTRIBUTES["class"]}
    phrases["companion"] = {"person": "person and a", "flower": "and a flower"}
    phrases["pattern"] = {value: value for value in ATTRIBUTES["pattern"] if value not in UNTOLD}
    return phrases


_PHRASES = _phrases()


def claims_of(caption: str) -> dict[str, str]:
    """Return what a caption claims: the inverse of `caption_of`; of an attribute claimed twice, the
    first."""
    claims = {}
    # The style first, and out of the way: a sketch is black and white by name, which is no colour
    # of the garment.
    for attribute in ("style", *(attribute for attribute in ATTRIBUTES if attribute != "style")):
        places = {value: _place(words, caption) for value, words in _PHRASES[attribute].items()}
        positions = {value: position for value, position in places.items() if position is not None}
        if positions:
            claims[attribute] = min(positions, key=lambda value: positions[value])
            if attribute == "style":
                caption = caption.replace(_PHRASES[attribute][claims[attribute]], "", 1)
    return claims


def _place(words: str, caption: str) -> int | None:
    match = re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", caption)
    return match.start() if match else None


MEASURED = {"seed": 909, "scenes": 2000, "drawn": 400, "steps": 12, "guidance": 3.0}


@dataclass(frozen=True, slots=True)
class Captioner:
    """`lab:captioner` opened as anybody opens it: greedy captions, and the log-likelihood of given
    ones."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Any = WEIGHTS / "captioner") -> Captioner:
        from transformers import AutoModelForImageTextToText, AutoTokenizer

        model = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return cls(model.eval().requires_grad_(False), tokenizer)

    def write(
        self, pixels: np.ndarray, prefixes: Sequence[str] | None = None, batch: int = 100
    ) -> list[str]:
        """Write greedy captions of pictures uint8 [n, 64, 64, 3], each begun by its prefix if
        prefixes are given."""
        begun = prefixes or [""] * len(pixels)
        captions = [""] * len(pixels)
        ids = [self._ids(prefix) for prefix in begun]
        for length in sorted({len(each) for each in ids}):  # no padding within a batch
            rows = [row for row, each in enumerate(ids) if len(each) == length]
            for part in batches(rows, batch):
                with torch.inference_mode():
                    out = self.model.generate(
                        pixel_values=to_tensor(pixels[part]),
                        decoder_input_ids=torch.tensor([ids[row] for row in part]),
                        do_sample=False,
                    )
                texts = self.tokenizer.batch_decode(out, skip_special_tokens=True)
                for row, words in zip(part, texts, strict=True):
                    captions[row] = words
        return captions

    def likelihoods(
        self, pixels: np.ndarray, captions: Sequence[str], batch: int = 200
    ) -> np.ndarray:
        """Return sums of log-likelihoods [n] of a caption and its end, given its picture."""
        sums = []
        parts = zip(batches(pixels, batch), batches(captions, batch), strict=True)
        for pictures, texts in parts:
            ids = [[*self._ids(text), self.tokenizer.eos_token_id] for text in texts]
            longest = max(map(len, ids))
            table = torch.tensor([each + [-100] * (longest - len(each)) for each in ids])
            inputs = table[:, :-1].clamp(min=0)
            labels = table[:, 1:]
            with torch.inference_mode():
                logits = self.model(
                    pixel_values=to_tensor(pictures), decoder_input_ids=inputs
                ).logits
            words = labels.clamp(min=0)[..., None]
            chosen = logits.float().log_softmax(-1).gather(-1, words)[..., 0]
            sums.append((chosen * (labels >= 0)).sum(1).numpy())
        return np.concatenate(sums)

    def _ids(self, text: str) -> list[int]:
        words = self.tokenizer(text, add_special_tokens=False).input_ids if text else []
        return [self.tokenizer.bos_token_id, *words]


def measure_captioner() -> None:
    """Measure words, likelihoods, completions and drawn pictures, and write them to
    metrics.json."""
    captioner = Captioner.load()
    count = MEASURED["scenes"] // 2
    metrics: dict[str, Any] = {"measured": MEASURED}
    for name, scene_of in (
        ("as_the_generator_learned", pretraining_scene),
        ("every_value_common", unbiased_scene),
    ):
        scenes = [scene_of(n, seed=MEASURED["seed"], split="heldout") for n in range(count)]
        metrics[name] = of_renders(captioner, scenes, renders(scenes))
        _print(name, metrics[name])
    metrics["drawn_by_lab_sd"] = of_drawn(captioner)
    _print("drawn", metrics["drawn_by_lab_sd"])
    update_metrics(WEIGHTS / NAME, **metrics)


def _print(name: str, figures: Mapping[str, Any]) -> None:
    for what, row in figures.items():
        print(f"{name} {what:24s}", row, flush=True)


def of_renders(captioner: Captioner, scenes: Sequence[Scene], pixels: np.ndarray) -> dict[str, Any]:
    """Return every figure of true renders, each by attribute."""
    attributes = [scene.attributes() for scene in scenes]
    captions = captioner.write(pixels)
    prefixes = [f"a photo of a {each['class']}" for each in attributes]
    completed = captioner.write(pixels, prefixes)
    photographs = [row for row, each in enumerate(attributes) if each["style"] == "photo"]
    behind = {"background", "weather", "light"}
    forced = words_right(
        [attributes[row] for row in photographs], [completed[row] for row in photographs]
    )
    marked = [row for row, each in enumerate(attributes) if _is_marked(each)]
    patterned = sum(
        claims_of(captions[row]).get("pattern") == attributes[row]["pattern"] for row in marked
    )
    return words_right(attributes, captions) | {
        "completed_right": {a: rate for a, rate in forced["told_right"].items() if a in behind},
        "true_above_changed": likelihood_order(captioner, attributes, pixels),
        "true_above_changed_alone": likelihood_order(captioner, attributes, pixels, alone=True),
        "marks_told": {
            "captions": sum(map(marks_told, captions)),
            # A striped shirt that is taken for a pullover is called a striped pullover.
            "pattern_told_under_another_class": int(patterned),
            "marked_pictures": len(marked),
        },
    }


def marks_told(caption: str) -> bool:
    """Return whether a caption names the mark of its class."""
    return _is_marked(claims_of(caption))


def _is_marked(claims: Claims) -> bool:
    return "pattern" in claims and MARKS.get(claims.get("class", "")) == claims["pattern"]


def words_right(
    attributes: Sequence[Claims], captions: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return by attribute the right words where it can be named; false words in all, and where it
    cannot."""
    claimed = [claims_of(caption) for caption in captions]
    right: dict[str, float] = {}
    false: dict[str, float] = {}
    absent: dict[str, float] = {}
    for attribute in ATTRIBUTES:
        true = [tellable(each).get(attribute) for each in attributes]
        pairs = [(claims.get(attribute), t) for claims, t in zip(claimed, true, strict=True)]
        hits = [s == t for s, t in pairs if t is not None]
        nothing = [s is not None for s, t in pairs if t is None]
        if hits:
            right[attribute] = mean_of(hits)
        false[attribute] = mean_of([s is not None and s != t for s, t in pairs])
        if nothing:
            absent[attribute] = mean_of(nothing)
    return {"told_right": right, "told_false": false, "told_where_nothing_is": absent}


def likelihood_order(
    captioner: Captioner,
    attributes: Sequence[Claims],
    pixels: np.ndarray,
    alone: bool = False,
) -> dict[str, float]:
    """Return how often the true caption is likelier than the same with one attribute's value
    changed at random.

    The true caption is the whole one, or names style, class and that attribute alone. Sums of words
    and end, no length normalisation. No changed caption names a mark: it would be refused for that.
    """
    order = {}
    for index, attribute in enumerate(ATTRIBUTES):
        rng = np.random.default_rng([MEASURED["seed"], index])
        rows = []
        true = []
        false = []
        for row, each in enumerate(attributes):
            claims = tellable(each)
            if alone:
                claims = {a: v for a, v in claims.items() if a in ("style", "class", attribute)}
            changed = changed_claims(claims, attribute, rng)
            if changed is not None:
                rows.append(row)
                true.append(caption_of(claims))
                false.append(caption_of(changed))
        of_true, of_false = (captioner.likelihoods(pixels[rows], each) for each in (true, false))
        order[attribute] = mean_of(of_true > of_false)
    return order


def changed_claims(
    claims: Claims, attribute: str, rng: np.random.Generator
) -> dict[str, str] | None:
    """Return the claims with another value of `attribute`; None if unclaimed or every other value
    names a mark."""
    if attribute not in claims:
        return None
    others = [v for v in ATTRIBUTES[attribute] if v != claims[attribute] and v not in UNTOLD]
    candidates = [{**claims, attribute: value} for value in others]
    candidates = [candidate for candidate in candidates if not _is_marked(candidate)]
    return candidates[int(rng.integers(len(candidates)))] if candidates else None


def of_drawn(captioner: Captioner) -> dict[str, Any]:
    """Measure captions of pictures that `lab:sd` drew of held-out scenes' captions: right by the
    prompt and by the oracle."""
    from lab_training.decoder import draw  # and with it pipelines, which no other step needs

    scenes = [
        pretraining_scene(n, seed=MEASURED["seed"], split="heldout")
        for n in range(MEASURED["drawn"])
    ]
    prompted = [tellable(scene.attributes()) for scene in scenes]
    pixels = draw([caption_of(claims) for claims in prompted], None)
    captions = captioner.write(pixels)
    claimed = [claims_of(caption) for caption in captions]
    answers = Oracle().answers(pixels)
    seen = [
        {a: values[answers[a][row]] for a, values in ATTRIBUTES.items()}
        for row in range(len(scenes))
    ]
    shown = [tellable(each) for each in seen]

    def agreement(
        readings: Sequence[Claims],
        wanted: Sequence[Claims],
        also: Sequence[Claims] | None = None,
    ) -> dict[str, float | None]:
        """Return by attribute how often a reading is what is wanted, of pictures in which `also`
        has it too."""
        shares = {}
        for a in ATTRIBUTES:
            triples = zip(readings, wanted, also or wanted, strict=True)
            shares[a] = _share([r.get(a) == w[a] for r, w, b in triples if a in w and b[a] == w[a]])
        return shares

    return {
        "told_as_prompted": agreement(claimed, prompted),
        "told_as_the_oracle_reads": agreement(claimed, shown),
        "told_where_prompt_and_oracle_agree": agreement(claimed, prompted, seen),
        "told_false_by_the_oracle": words_right(seen, captions)["told_false"],
        "oracle_as_prompted": agreement(seen, prompted),
    }


def _share(hits: Sequence[bool]) -> float | None:
    return mean_of(hits) if hits else None
