"""Captioners and chat models of transformers: their files judged before anything is built, then loaded; templates.

The rules are those of classifiers (`config_files`): nothing leads away from these files, numbers are bounded. What the
kinds load alike is here too: weights, tokenizer, image processor, and which tokens end a text.

A chat template is a program of a stranger's. transformers renders templates in jinja2's sandbox, which keeps them from
files and code, and lets them take all memory and run for ever. Here a child with bounds renders (`rendering.py`), with
transformers' own words for what templates ask for, and transformers is given the text.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.config_files import (
    CONFIG,
    MOST_JSON_BYTES,
    PROCESSORS,
    Foreign,
    checked_processor,
    declared,
    expected,
    followed_problems,
    is_integer,
    number_problems,
    read_config,
    refuse_problems,
    shown,
    without_places,
)
from counterfoil.models.loading_errors import one_line, while_loading
from counterfoil.models.transformers_files import (
    ModelFiles,
    as_configuration,
    quiet,
    trained_module,
)
from counterfoil.models.weights_files import weights_sha256
from counterfoil.regular_files import read_regular

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# The tokenizers of today's chat models, with 150,000 to 262,000 words, take 7 to 33 MB.
_MOST_TOKENIZER_BYTES = 1 << 26
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
class TextModelConfig:
    """A checked captioner or chat model. `document` and `files` hold what transformers is given.

    `files` are the tokenizer's and the processor's, by name, without what would lead elsewhere; `special` are ids of
    tokens. `processor` is empty for a chat model.
    """

    model_type: str
    architecture: str
    document: dict[str, Any]
    files: dict[str, bytes]
    special: dict[str, Any]
    processor: dict[str, Any]

    def text(self) -> str:
        """What decides captions beside the weights, as canonical text."""
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return json.dumps([self.document, hashes, self.special], sort_keys=True)


def checked_captioner(model: str, place: ModelFiles, kinds: Collection[str]) -> TextModelConfig:
    """The configuration of a captioner; models of other than the `kinds` need a chat template.

    UserError with all that is wrong with it.
    """
    document = read_config(place.folder / CONFIG, model, MOST_JSON_BYTES)
    problems = [*_kind_problems(document, known_captioners(), "captioner")]
    model_type = document.get("model_type")
    if model_type == "vision-encoder-decoder":
        problems += declared(TwoHalves, document)[1]
    refuse_problems(model, [f"{CONFIG}: {problem}" for problem in problems])
    needed = (
        None
        if model_type in kinds
        else f"a {model_type} model is used as a chat model, but it has no chat template; "
        f"others are {', '.join(sorted(kinds))}"
    )
    config = _checked(model, place, document, known_captioners(), needed)
    processor = checked_processor(model, place.folder, frozenset() if model_type in kinds else _PIXEL_COUNTS)
    return replace(config, processor=processor)


def checked_chat(model: str, place: ModelFiles) -> TextModelConfig:
    """The configuration of a chat model, without an image processor. UserError with all that is wrong with it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    known = {str(kind): one if isinstance(one, str) else one[0] for kind, one in NAMES.items()}
    document = read_config(place.folder / CONFIG, model, MOST_JSON_BYTES)
    refuse_problems(model, [f"{CONFIG}: {problem}" for problem in _kind_problems(document, known, "text model")])
    return _checked(model, place, document, known, "it has no chat template, so it cannot be used as a chat model")


def _checked(
    model: str,
    place: ModelFiles,
    document: Mapping[str, Any],
    known: Mapping[str, str],
    without_template: str | None,
) -> TextModelConfig:
    """Return the configuration with the files beside it. Raise UserError with all that is wrong with these."""
    files, template, wrong = _tokenizer_files(model, place)
    if not template and without_template is not None:
        wrong.insert(0, without_template)
    special: dict[str, Any] = {}
    if place.file(GENERATION) is not None:
        # Of the settings of generation nothing but ids of tokens is followed.
        found = read_config(place.folder / GENERATION, model, MOST_JSON_BYTES)
        wrong += [f"{GENERATION}: {problem}" for problem in followed_problems(found)]
        special = {key: value for key, value in found.items() if key.endswith("_token_id") and all_ids(value)}
    refuse_problems(model, wrong)
    model_type = document["model_type"]
    return TextModelConfig(model_type, known[model_type], without_places(document), files, special, {})


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


def _kind_problems(document: Mapping[str, Any], known: Mapping[str, str], what: str) -> Iterator[str]:
    """Yield what keeps a configuration from being of a kind of transformers. known: its class by model type."""
    from transformers import CONFIG_MAPPING

    found = document.get("model_type")
    if not isinstance(found, str) or found not in known:
        yield f"model_type is {shown(found)}, and transformers has no {what} of that kind"
        return
    yield from number_problems(_sizes_alone(document), "config")
    yield from followed_problems(document)
    asked = document.get("architectures")
    if isinstance(asked, list) and asked and known[found] not in asked:
        yield f"architectures are {shown(asked)}, expected {known[found]}: it was trained for something else"
    # A model inside the model is built by transformers alone.
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


def _known_encoder(model_type: str) -> str:
    if model_type not in _ENCODERS:
        raise ValueError
    return model_type


def _known_decoder(model_type: str) -> str:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError
    return model_type


_OF_NO_CAPTIONER = expected("is not known to be one of a captioner", "which ")


class _EncoderHalf(Foreign):
    model_type: Annotated[str, AfterValidator(_known_encoder), _OF_NO_CAPTIONER]
    num_channels: Annotated[Literal[3], expected("3: a dataset's images are RGB")] = 3


class _DecoderHalf(Foreign):
    model_type: Annotated[str, AfterValidator(_known_decoder), _OF_NO_CAPTIONER]
    add_cross_attention: Annotated[Literal[True] | None, expected("true: else it would not look at the image")] = None


class TwoHalves(Foreign):
    """What a captioner that is made of two says of both."""

    encoder: _EncoderHalf
    decoder: _DecoderHalf


def _sizes_alone(value: Any) -> Any:
    """The same without whole numbers that are no sizes."""
    if isinstance(value, Mapping):
        return {key: _sizes_alone(inner) for key, inner in value.items() if key not in _NO_SIZES}
    return [_sizes_alone(one) for one in value] if isinstance(value, list) else value


def _tokenizer_files(model: str, place: ModelFiles) -> tuple[dict[str, bytes], bool, list[str]]:
    """Return the files of tokenizer and processor, whether a chat template is in them, and what is wrong."""
    problems: list[str] = []
    if place.file(TOKENIZER) is None:
        raise UserError(
            f"model {model!r}: {place.folder} has no {TOKENIZER}",
            "Save its tokenizer into the same folder in the current format: tokenizer.save_pretrained(FOLDER)",
        )
    files = {TOKENIZER: _read(model, place, TOKENIZER, _MOST_TOKENIZER_BYTES)}
    try:
        tokenizer = json.loads(files[TOKENIZER])
    except (ValueError, RecursionError):
        tokenizer = {}  # whoever makes a tokenizer of it says so
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        # A few replacements, one after the other, make a text many times as long.
        growth, waiting = 1, [tokenizer.get(part) if isinstance(tokenizer, dict) else None]
        while waiting and growth <= _MOST_GROWTH:
            value = waiting.pop()
            if isinstance(value, dict) and value.get("type") == "Replace" and isinstance(value.get("content"), str):
                growth *= max(1, len(value["content"]))
            waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if growth > _MOST_GROWTH:
            problems.append(f"{TOKENIZER}: its {part} makes a text more than {_MOST_GROWTH} times as long")
    template = False
    for name in _JSON_FILES:
        if place.file(name) is None:
            continue
        found = read_config(place.folder / name, model, MOST_JSON_BYTES)
        problems += [f"{name}: {problem}" for problem in followed_problems(found)]
        template = template or bool(found.get("chat_template"))
        # Files that a tokenizer names by itself would be opened wherever they lie.
        kept = {k: v for k, v in found.items() if not k.endswith("_file") and k != "name_or_path"}
        files[name] = json.dumps(kept, sort_keys=True).encode()
    if place.file(_TEMPLATE) is not None:
        files[_TEMPLATE] = _read(model, place, _TEMPLATE, _MOST_TEMPLATE_BYTES)
        template = True
    return files, template, problems


def _read(model: str, place: ModelFiles, name: str, most: int) -> bytes:
    try:
        return read_regular(place.folder / name, most)
    except (OSError, ValueError) as error:
        raise UserError(f"model {model!r}: {name} cannot be read: {error}") from error


def loaded(
    name: str, place: ModelFiles, config: TextModelConfig, device: str, what: str = "captioner"
) -> dict[str, Any]:
    """What a `Captioner` of any kind has, by its fields: the module in eval mode on its device, the tokenizer, hashes.

    UserError for files that are of no `what`, RunFailure where they cannot be read.
    """
    import transformers

    def read() -> Any:
        with quiet():
            described = as_configuration(name, config.model_type, config.document)
        hint = f"Name a {what} with complete weights, or correct its configuration."
        return trained_module(name, place, getattr(transformers, config.architecture), described, hint=hint)

    module: Any = while_loading(name, read)
    module.eval().requires_grad_(False)
    return {
        "name": name,
        "model_type": config.model_type,
        "architecture": config.architecture,
        "sha256": weights_sha256(f"{config.architecture}\n{config.text()}", module.state_dict()),
        "device": device,
        "tokenizer": _tokenizer_of(name, config),
        "module": while_loading(name, lambda: module.to(device)),
    }


def _tokenizer_of(name: str, config: TextModelConfig) -> Any:
    """The tokenizer of the checked files. UserError where none can be made of them."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    with files_alone(config) as folder, quiet():
        try:
            # A model that is made of two has no tokenizer of its own: the file says all.
            if "tokenizer_class" not in json.loads(config.files.get("tokenizer_config.json", b"{}")):
                return PreTrainedTokenizerFast.from_pretrained(folder)
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # whatever files of any content make it raise
            raise UserError(f"model {name!r}: no tokenizer can be made from its files: {one_line(error)}") from error


@contextlib.contextmanager
def files_alone(config: TextModelConfig) -> Iterator[Path]:
    """A folder with the checked files and nothing else, for as long as transformers reads them."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in config.files.items():
            (Path(folder) / file).write_bytes(content)
        document = config.document | {"model_type": config.model_type}
        (Path(folder) / CONFIG).write_text(json.dumps(document), encoding="utf-8")
        yield Path(folder)


def ends_of(name: str, *places: Any) -> tuple[int, ...]:
    """The tokens that end a caption: of the first place that tells any. UserError where none does."""
    found = all_ids(*places)
    if not found:
        raise UserError(
            f"model {name!r}: its configuration does not say which token ends a caption",
            "Give its eos_token_id in config.json or generation_config.json.",
        )
    return found


def start_of(name: str, *places: Any) -> int:
    """The token before the first of a caption. UserError where no place tells it."""
    found = first_id(*places)
    if found is None:
        raise UserError(
            f"model {name!r}: its configuration does not say which token begins a caption",
            "Give its decoder_start_token_id or bos_token_id in config.json.",
        )
    return found


def never_of(tokenizer: Any, ends: tuple[int, ...], words: int, *more: int | None) -> tuple[int, ...]:
    """Special tokens that are no ends, and `more`: a caption that draws one says what cannot be read."""
    added = (one for one, token in tokenizer.added_tokens_decoder.items() if token.special)
    special = {one for one in (*tokenizer.all_special_ids, *added, *more) if one is not None and 0 <= one < words}
    return tuple(sorted(special - set(ends)))


# A template that says nothing but what it is given: transformers adds what it does around a rendered text.
AS_RENDERED = "{{ rendered }}"

# Published templates take some megabytes and a hundredth of a second.
_MOST_MEMORY = 1 << 30  # bytes; where the system bounds a process
_MOST_SECONDS = 10
_MOST_CHARACTERS = 1_000_000
_CHILD = Path(__file__).with_name("rendering.py")
# What Python needs to find itself and its packages; keys of services are not among it.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "HOME", "SYSTEMROOT", "APPDATA", "USERPROFILE")


def rendered(
    model: str, holder: Any, turns: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False, **more: Any
) -> str:
    """What the template of a tokenizer or processor of transformers (`holder`) makes of a talk's turns.

    Images are told apart from texts by their keys alone; a template never sees one. `more` are further variables.
    RunFailure where it fails, or takes more than 1 GB, 10 seconds or a million letters.
    """
    templates = holder.chat_template
    template = templates.get("default") if isinstance(templates, Mapping) else templates
    if not isinstance(template, str):
        raise RunFailure(f"model {model!r} has no chat template of the name default")
    special = getattr(holder, "tokenizer", holder).special_tokens_map
    asked = {
        "template": template,
        "variables": {
            **special,
            **more,
            "messages": list(turns),
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        },
    }
    found = _rendered(json.dumps(asked, default=lambda value: f"<{type(value).__name__}>"))
    if "text" not in found:
        raise RunFailure(
            f"model {model!r}: its chat template cannot be rendered: {found['problem'][:300]}",
            "Correct the template, or name another model.",
        )
    return found["text"]


@functools.lru_cache(maxsize=16)  # every image is asked about in the same words
def _rendered(asked: str) -> dict[str, str]:
    bounds = [str(bound) for bound in (_MOST_MEMORY, _MOST_CHARACTERS)]
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_CHILD), *bounds],
            input=asked.encode(),
            capture_output=True,
            timeout=_MOST_SECONDS,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"it takes more than {_MOST_SECONDS} seconds"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"problem": f"its process ended with {done.returncode}"}
