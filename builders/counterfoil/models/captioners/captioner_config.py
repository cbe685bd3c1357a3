"""What a captioner's files say of it, judged before anything is built: model, image processor, tokenizer, template.

The rules are those of classifiers (`transformers_config`): nothing leads away from these files, numbers are bounded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import is_integer, number_problems, read_config, shown
from counterfoil.models.transformers_config import (
    CONFIG,
    NOT_THE_MODELS,
    PROCESSORS,
    followed_problems,
    processor_problems,
    processor_settings,
    refuse_problems,
)
from counterfoil.models.transformers_files import ModelFiles
from counterfoil.regular_files import read_regular

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# The tokenizers of today's chat models, with 150,000 to 262,000 words, take 7 to 33 MB.
_MOST_TOKENIZER_BYTES = 1 << 26
_MOST_JSON_BYTES = 1 << 23
_MOST_TEMPLATE_BYTES = 200_000
_MOST_GROWTH = 64  # published tokenizers replace a letter by one, or by three
_TEMPLATE = "chat_template.jinja"
_JSON_FILES = (
    TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json", "chat_template.json",
    "video_preprocessor_config.json", *PROCESSORS,
)  # fmt: skip
# All that is looked at beside configuration and weights.
CAPTIONER_FILES = (TOKENIZER, *_JSON_FILES, _TEMPLATE, GENERATION)
# Vision models without a text head, and without another library's: those that published captioners look with.
_ENCODERS = frozenset(
    {"beit", "clip_vision_model", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "donut-swin",
     "siglip_vision_model", "swin", "swinv2", "vit", "vit_mae"}
)  # fmt: skip
# Some processors give sizes as numbers of pixels, not as sides.
_PIXEL_COUNTS = frozenset({"min_pixels", "max_pixels", "shortest_edge", "longest_edge"})
# Bases of rotary positions are no sizes; they are written as whole numbers too.
_NO_SIZES = frozenset({"rope_theta", "rope_local_base_freq", "global_rope_theta"})


@dataclass(frozen=True)
class CaptionerConfig:
    """A checked captioner. `document` and `files` hold what transformers is given; `special` are ids of tokens.

    `files` are the tokenizer's and the processor's, by name, without what would lead elsewhere. `template` says
    whether there is a chat template among them.
    """

    model_type: str
    architecture: str
    document: dict[str, Any]
    files: dict[str, bytes]
    special: dict[str, Any]
    processor: dict[str, Any]
    template: bool

    def text(self) -> str:
        """What decides captions beside the weights, as canonical text."""
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return json.dumps([self.document, hashes, self.special], sort_keys=True)


def checked_captioner(model: str, place: ModelFiles, kinds: Mapping[str, Any]) -> CaptionerConfig:
    """The configuration of a captioner; models of other than the `kinds` need a chat template.

    UserError with all that is wrong with it.
    """
    document = read_config(place.folder / CONFIG, model, _MOST_JSON_BYTES)
    refuse_problems(model, [f"{CONFIG}: {problem}" for problem in _model_problems(document)])
    files, template, problems = tokenizer_files(model, place)
    model_type = document["model_type"]
    if model_type not in kinds and not template:
        problems.insert(
            0,
            f"a {model_type} model is taken as a chat model, and it has no chat template; "
            f"others are {', '.join(sorted(kinds))}",
        )
    where, processor = processor_settings(model, place.folder)
    pixels = frozenset() if model_type in kinds else _PIXEL_COUNTS
    problems += [f"{where}: {problem}" for problem in processor_problems(processor, pixels)]
    special = special_ids(model, place, problems)
    refuse_problems(model, problems)
    return CaptionerConfig(
        model_type=model_type,
        architecture=known_captioners()[model_type],
        document={key: value for key, value in document.items() if key not in NOT_THE_MODELS},
        files=files,
        special=special,
        processor={k: v for k, v in processor.items() if not k.startswith("_") and k != "processor_class"},
        template=template,
    )


def known_captioners() -> dict[str, str]:
    """transformers' models that make text of images, by type, and the class of each."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    return {str(kind): one if isinstance(one, str) else one[0] for kind, one in NAMES.items()}


def first_id(*places: Any) -> int | None:
    """The first of these that is the id of a token."""
    return next((one for one in places if is_integer(one, 0, 1 << 31)), None)


def all_ids(*places: Any) -> tuple[int, ...]:
    """The ids of the first of these that is one, or a list of some."""
    for one in places:
        ids = one if isinstance(one, list | tuple) else [one]
        if ids and all(is_integer(each, 0, 1 << 31) for each in ids):
            return tuple(dict.fromkeys(ids))
    return ()


def _model_problems(document: Mapping[str, Any]) -> Iterator[str]:
    yield from kind_problems(document, known_captioners(), "captioner")
    if document.get("model_type") == "vision-encoder-decoder":
        yield from _halves_problems(document)


def kind_problems(document: Mapping[str, Any], known: Mapping[str, str], what: str) -> Iterator[str]:
    """What keeps a configuration from being of a kind that transformers has. known: its class by model type."""
    found = document.get("model_type")
    if not isinstance(found, str) or found not in known:
        yield f"model_type is {shown(found)}, and transformers has no {what} of that kind"
        return
    yield from number_problems(sizes_alone(document), "config")
    yield from followed_problems(document)
    asked = document.get("architectures")
    if isinstance(asked, list) and asked and known[found] not in asked:
        yield f"architectures are {shown(asked)}, expected {known[found]}: it was trained for something else"
    yield from nested_problems(document)


def nested_problems(document: Mapping[str, Any]) -> Iterator[str]:
    """A line for each model inside the model that transformers does not build by itself."""
    from transformers import CONFIG_MAPPING

    waiting: list[Any] = list(document.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            inner = value.get("model_type")
            odd = not isinstance(inner, str) or inner not in CONFIG_MAPPING or inner.startswith("timm")
            if inner is not None and odd:
                yield f"it has a model inside whose model_type is {shown(inner)}, which is not built"
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _halves_problems(document: Mapping[str, Any]) -> Iterator[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for half, known in (("encoder", _ENCODERS), ("decoder", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)):
        own = document.get(half)
        if not isinstance(own, Mapping):
            yield f"{half} is {shown(own)}, expected a mapping"
        elif own.get("model_type") not in known:
            yield f"{half}.model_type is {shown(own.get('model_type'))}, which is not known to be one of a captioner"
        elif half == "encoder" and own.get("num_channels", 3) != 3:
            yield f"encoder.num_channels: found {shown(own['num_channels'])}, expected 3: a dataset's images are RGB"
        elif half == "decoder" and own.get("add_cross_attention") is False:
            yield "decoder.add_cross_attention is false, so it would not look at the image"


def sizes_alone(value: Any) -> Any:
    """The same without whole numbers that are no sizes."""
    if isinstance(value, Mapping):
        return {key: sizes_alone(inner) for key, inner in value.items() if key not in _NO_SIZES}
    return [sizes_alone(one) for one in value] if isinstance(value, list) else value


def tokenizer_files(model: str, place: ModelFiles) -> tuple[dict[str, bytes], bool, list[str]]:
    """The files that tokenizer and processor are made of, whether a chat template is in them, and what is wrong."""
    problems: list[str] = []
    if place.file(TOKENIZER) is None:
        raise UserError(
            f"model {model!r}: {place.folder} has no {TOKENIZER}",
            "Save its tokenizer beside it in the form of today: tokenizer.save_pretrained(FOLDER)",
        )
    files = {TOKENIZER: _read(model, place, TOKENIZER, _MOST_TOKENIZER_BYTES)}
    problems += [f"{TOKENIZER}: {problem}" for problem in _growth_problems(files[TOKENIZER])]
    template = False
    for name in _JSON_FILES:
        if place.file(name) is None:
            continue
        found = read_config(place.folder / name, model, _MOST_JSON_BYTES)
        problems += [f"{name}: {problem}" for problem in followed_problems(found)]
        template = template or bool(found.get("chat_template"))
        # Files that a tokenizer names by itself would be opened wherever they lie.
        kept = {k: v for k, v in found.items() if not k.endswith("_file") and k != "name_or_path"}
        files[name] = json.dumps(kept, sort_keys=True).encode()
    if place.file(_TEMPLATE) is not None:
        files[_TEMPLATE] = _read(model, place, _TEMPLATE, _MOST_TEMPLATE_BYTES)
        template = True
    return files, template, problems


def _growth_problems(content: bytes) -> Iterator[str]:
    """What of a tokenizer would make a text many times as long: a few replacements do, one after the other."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return  # whoever makes a tokenizer of it says so
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth, waiting = 1, [document.get(part) if isinstance(document, dict) else None]
        while waiting and growth <= _MOST_GROWTH:
            value = waiting.pop()
            if isinstance(value, dict) and value.get("type") == "Replace" and isinstance(value.get("content"), str):
                growth *= max(1, len(value["content"]))
            waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if growth > _MOST_GROWTH:
            yield f"its {part} makes a text more than {_MOST_GROWTH} times as long"


def _read(model: str, place: ModelFiles, name: str, most: int) -> bytes:
    try:
        return read_regular(place.folder / name, most)
    except (OSError, ValueError) as error:
        raise UserError(f"model {model!r}: {name} cannot be read: {error}") from error


def special_ids(model: str, place: ModelFiles, problems: list[str]) -> dict[str, Any]:
    """Ids of tokens in the settings of generation, of which nothing else is followed."""
    if place.file(GENERATION) is None:
        return {}
    found = read_config(place.folder / GENERATION, model, _MOST_JSON_BYTES)
    problems += [f"{GENERATION}: {problem}" for problem in followed_problems(found)]
    return {key: value for key, value in found.items() if key.endswith("_token_id") and all_ids(value)}
