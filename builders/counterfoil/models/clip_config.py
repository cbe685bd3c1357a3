"""What an open_clip model says of itself, judged before its weights load: its own files, and sizes they can hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import number_problems, read_config
from counterfoil.models.transformers_config import folder_problems
from counterfoil.recipe.names import is_local

CONFIG = "open_clip_config.json"
# What open_clip's own models ask of their tokenizers. Others would go to transformers as they are, and
# `trust_remote_code`, `gguf_file` or `bpe_path` among them would run the author's code or read this machine's files.
_TOKENIZER_SETTINGS = ("clean", "strip_sep_token", "language")
LONGEST_CONTEXT = 8192  # a table of its square is allocated
_WEIGHTS = ("*.safetensors", "*.bin", "*.pth")  # what open_clip looks for
LARGEST_IMAGE = 1024  # published CLIP models look at 224 to 512 pixels a side
# Weights may be stored in half precision and are loaded in float32; adapters and embeddings beside what is counted.
_UNFOLDS = 4
_SLACK = 64 << 20


def refuse_odd_clip(model: str, folder: Path) -> None:
    """UserError, with every problem, for a folder whose configuration reads other folders or asks for absurd sizes."""
    config = read_config(folder / CONFIG, model)
    problems = [f"{CONFIG}: {problem}" for problem in _problems(config, folder)]
    problems += folder_problems(model, folder, ("auto_map",))
    if problems:
        raise UserError([f"model '{model}': {problem}" for problem in problems[:20]], "It is not loaded.")


def weights_in(folder: Path) -> list[Path]:
    """The files that open_clip may take weights from."""
    return sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern) if file.is_file())


def _problems(config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    model = config.get("model_cfg", config)
    if not isinstance(model, Mapping):
        yield f"model_cfg is {model!r:.80}, expected a mapping"
        return
    towers = {name: model.get(name, {}) for name in ("vision_cfg", "text_cfg")}
    for name, tower in towers.items():
        if not isinstance(tower, Mapping):
            yield f"{name} is {tower!r:.80}, expected a mapping"
            return
    odd = list(number_problems(config, "model"))
    yield from odd
    yield from _names(towers["vision_cfg"], towers["text_cfg"])
    asked_of_tokenizer = towers["text_cfg"].get("tokenizer_kwargs") or {}
    if not isinstance(asked_of_tokenizer, Mapping) or set(asked_of_tokenizer) - set(_TOKENIZER_SETTINGS):
        yield f"tokenizer_kwargs is {asked_of_tokenizer!r:.80}, expected only {', '.join(_TOKENIZER_SETTINGS)}"
    length = towers["text_cfg"].get("context_length")
    if length is not None and not (type(length) is int and 1 <= length <= LONGEST_CONTEXT):
        yield f"context_length is {length!r:.80}, expected 1 to {LONGEST_CONTEXT}"
    if not weights_in(folder):
        yield "there are no weights beside it, and open_clip would make them up"
    yield from _prepared(config.get("preprocess_cfg") or {})
    size = towers["vision_cfg"].get("image_size")
    for side in size if isinstance(size, list) else [size]:
        if side is not None and not (type(side) is int and 1 <= side <= LARGEST_IMAGE):
            yield f"image_size is {side!r:.80}, expected 1 to {LARGEST_IMAGE}"
    if not odd:
        asked = 4 * sum(_parameters(tower) for tower in towers.values())
        held = sum(file.stat().st_size for file in weights_in(folder))
        if asked > held * _UNFOLDS + _SLACK:
            yield f"its sizes ask for {asked / 1e9:.1f} GB of weights, and its files hold {held / 1e9:.3f} GB"


def _names(vision: Mapping[str, Any], text: Mapping[str, Any]) -> Iterator[str]:
    """Names by which a tower would be built from somewhere else."""
    import timm

    tower = vision.get("timm_model_name")
    if tower is not None and not (isinstance(tower, str) and timm.is_model(tower)):
        yield f"timm_model_name is {tower!r:.80}, expected an architecture of timm"
    for key in ("hf_model_name", "hf_tokenizer_name"):
        name = text.get(key)
        if name is not None and not isinstance(name, str):
            yield f"{key} is {name!r:.80}, expected a name"
        elif name and (is_local(name) or (key == "hf_model_name" and Path(name).exists())):
            yield f"{key} is {name!r:.80}, a folder of this machine"


def _prepared(config: Any) -> Iterator[str]:
    if not isinstance(config, Mapping):
        yield f"preprocess_cfg is {config!r:.80}, expected a mapping"
        return
    for key, least in (("mean", -math.inf), ("std", 0.0)):
        values = config.get(key)
        if values is None:
            continue
        numbers = isinstance(values, list) and len(values) == 3 and all(type(v) in (int, float) for v in values)
        if not numbers or not all(math.isfinite(value) and value > least for value in values):
            yield f"{key} is {values!r:.80}, expected three numbers" + (" above 0" if key == "std" else "")


def _parameters(tower: Mapping[str, Any]) -> float:
    """About how many weights a transformer tower has; one of convolutions counts by its blocks, which is little."""
    width, words, layers = (tower.get(key, 0) for key in ("width", "vocab_size", "layers"))
    depth = layers if isinstance(layers, list) else [layers]
    if not all(type(number) in (int, float) for number in (width, words, *depth)):
        return 0.0
    return 12.0 * sum(depth) * float(width) ** 2 + float(words) * float(width)
