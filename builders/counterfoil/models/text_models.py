"""Check and load captioners and chat models of transformers, and render chat templates.

As for classifiers (`config_files`), a model's configuration cannot make a library read other files,
and its numbers have limits. A chat template is a program that is not trusted. jinja2's sandbox
keeps a template from reading files and running code. The sandbox does not stop a template that uses
all memory or never ends. So a child process with limits on memory and time renders the template
(`rendering.py`).
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

from counterfoil.documents import parse_json
from counterfoil.models.config_files import (
    CONFIG,
    MOST_JSON_BYTES,
    PROCESSORS,
    Foreign,
    checked_processor,
    declared_values,
    expected_words,
    followed_problems,
    fulfils,
    is_integer,
    mappings_in,
    number_problems,
    read_config,
    refuse_problems,
    shown_setting,
    without_places,
)
from counterfoil.models.loading_errors import error_line, while_loading
from counterfoil.models.messages import failure, refusal
from counterfoil.models.transformers_files import (
    CheckedConfig,
    ModelFiles,
    quiet_transformers,
    trained_module,
)
from counterfoil.models.weights_files import weights_sha256
from counterfoil.regular_files import read_regular

GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# The tokenizer of a chat model has 150,000 to 262,000 words and takes 7 to 33 MB.
_MOST_TOKENIZER_BYTES = 1 << 26
_MOST_TEMPLATE_BYTES = 200_000
_MOST_GROWTH = 64  # published tokenizers replace a letter by up to three
_TEMPLATE = "chat_template.jinja"
_JSON_FILES = (
    TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json", "chat_template.json",
    "video_preprocessor_config.json", *PROCESSORS,
)  # fmt: skip
# All files of a captioner besides its configuration and its weights.
CAPTIONER_FILES = (TOKENIZER, *_JSON_FILES, _TEMPLATE, GENERATION)
# The tokenizer of CLIP in the older format, which published detectors by OWL still have.
_OLDER_TOKENIZER = ("vocab.json", "merges.txt")
# All files of an open-vocabulary detector besides its configuration and its weights.
TEXT_DETECTOR_FILES = (TOKENIZER, *_OLDER_TOKENIZER, *_JSON_FILES)
# The vision models of published captioners that have no text head and need no other library.
_ENCODERS = frozenset(
    {"beit", "clip_vision_model", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "donut-swin",
     "siglip_vision_model", "swin", "swinv2", "vit", "vit_mae"}
)  # fmt: skip
# Under these keys, some processors give the number of pixels of a whole image. Others give the
# length of a side.
_PIXEL_COUNTS = frozenset({"min_pixels", "max_pixels", "shortest_edge", "longest_edge"})
# The values of these keys are the bases of rotary positions. They are whole numbers but not sizes.
_NO_SIZES = frozenset({"rope_theta", "rope_local_base_freq", "global_rope_theta"})


@dataclass(frozen=True)
class TextModelConfig(CheckedConfig):
    """The checked configuration of a captioner or chat model. transformers reads only `document`
    and `files`."""

    files: dict[str, bytes]
    """The files of the tokenizer and the processor, by name. Keys that name other files are
    removed."""
    special: dict[str, Any]
    """Ids of tokens, by key."""

    def text(self) -> str:
        """Return everything besides the weights that decides captions, as canonical JSON text."""
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return json.dumps([self.document, hashes, self.special], sort_keys=True)


def checked_captioner(
    model: str, model_files: ModelFiles, kinds: Collection[str]
) -> TextModelConfig:
    """Check and return a captioner's configuration.

    A model whose type is not in `kinds` needs a chat template. UserError with all problems.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES,
    )

    sound = _sound_config(model, model_files, NAMES, "captioner")
    without_template = None
    pixels = frozenset()
    if sound.model_type not in kinds:
        pixels = _PIXEL_COUNTS
        without_template = (
            f"a {sound.model_type} model is used as a chat model, but it has no chat template; "
            f"others are {', '.join(sorted(kinds))}"
        )
    config = _checked(model, model_files, sound, without_template)
    return replace(config, processor=checked_processor(model, model_files.folder, pixels))


def checked_text_detector(
    model: str, model_files: ModelFiles, kinds: Collection[str]
) -> TextModelConfig:
    """Check and return the configuration of an open-vocabulary detector whose type is in `kinds`.

    UserError with all problems.
    """
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES as NAMES,
    )

    names = {kind: classes for kind, classes in NAMES.items() if kind in kinds}
    sound = _sound_config(model, model_files, names, "open-vocabulary detector")
    config = _checked(model, model_files, sound, None)
    return replace(config, processor=checked_processor(model, model_files.folder))


def checked_chat(model: str, model_files: ModelFiles) -> TextModelConfig:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    sound = _sound_config(model, model_files, NAMES, "text model")
    without_template = "it has no chat template, so it cannot be used as a chat model"
    return _checked(model, model_files, sound, without_template)


def _sound_config(
    model: str,
    model_files: ModelFiles,
    names: Mapping[str, Any],
    what: str,
) -> CheckedConfig:
    """Read a config.json. UserError with all problems if it is not one of a model of the kind
    `what`.

    names: transformers' mapping from model types of that kind to their classes.
    """
    document = read_config(model_files.folder / CONFIG, model, MOST_JSON_BYTES)
    problems = list(_kind_problems(document, names, what))
    refuse_problems(model, problems, CONFIG)
    model_type = document["model_type"]
    return CheckedConfig(model_type, _first_class(names[model_type]), document, {})


def _checked(
    model: str,
    model_files: ModelFiles,
    config: CheckedConfig,
    without_template: str | None,
) -> TextModelConfig:
    """Check the other files of a model, and return them with its configuration. UserError with all
    problems.

    without_template: the problem of a model that has no chat template, if it needs one.
    """
    files, template, problems = _tokenizer_files(model, model_files)
    if not template and without_template is not None:
        problems.insert(0, without_template)
    special: dict[str, Any] = {}
    if model_files.file(GENERATION) is not None:
        # Of these settings, only the ids of tokens are used.
        settings = read_config(model_files.folder / GENERATION, model, MOST_JSON_BYTES)
        problems += [f"{GENERATION}: {problem}" for problem in followed_problems(settings)]
        for key, value in settings.items():
            if key.endswith("_token_id") and all_ids(value):
                special[key] = value
    refuse_problems(model, problems)
    document = without_places(config.document)
    return TextModelConfig(config.model_type, config.architecture, document, {}, files, special)


def _first_class(classes: Any) -> str:
    return classes if isinstance(classes, str) else classes[0]


def all_ids(*places: Any) -> tuple[int, ...]:
    """Return the ids of the first setting that is an id or a list of ids, or () if there is no such
    setting."""
    for setting in places:
        ids = setting if isinstance(setting, list | tuple) else [setting]
        if ids and all(is_integer(number, 0, 1 << 31) for number in ids):
            return tuple(dict.fromkeys(ids))
    return ()


def _kind_problems(
    document: Mapping[str, Any], names: Mapping[str, Any], what: str
) -> Iterator[str]:
    """Yield why a configuration is not one of a model of the kind `what`."""
    from transformers import CONFIG_MAPPING

    model_type = document.get("model_type")
    if not isinstance(model_type, str) or model_type not in names:
        yield f"model_type is {shown_setting(model_type)}, and transformers has no {what} of that kind"
        return
    yield from number_problems(_sizes_alone(document), "config")
    yield from followed_problems(document)
    saved = document.get("architectures")
    expected_class = _first_class(names[model_type])
    if isinstance(saved, list) and saved and expected_class not in saved:
        yield (
            f"architectures are {shown_setting(saved)}, expected {expected_class}: it was trained for"
            " something else"
        )
    # A model inside the model must be one that transformers itself builds. Another library would
    # build timm's models.
    for value in mappings_in(list(document.values())):
        inner = value.get("model_type")
        odd = not isinstance(inner, str) or inner not in CONFIG_MAPPING or inner.startswith("timm")
        if inner is not None and odd:
            yield f"it has a model inside whose model_type is {shown_setting(inner)}, which is not built"
    if model_type == "vision-encoder-decoder":
        _, of_halves = declared_values(TwoHalves, document)
        yield from of_halves


def _known_decoder(model_type: str) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


_OF_NO_CAPTIONER = expected_words("is not known to be one of a captioner", "which ")


class _EncoderHalf(Foreign):
    model_type: Annotated[str, fulfils(_ENCODERS.__contains__), _OF_NO_CAPTIONER]
    num_channels: Annotated[Literal[3], expected_words("3: a dataset's images are RGB")] = 3


class _DecoderHalf(Foreign):
    model_type: Annotated[str, fulfils(_known_decoder), _OF_NO_CAPTIONER]
    add_cross_attention: Annotated[
        Literal[True] | None, expected_words("true: else it would not look at the image")
    ] = None


class TwoHalves(Foreign):
    """The configurations of the encoder and the decoder of a vision encoder-decoder model."""

    encoder: _EncoderHalf
    decoder: _DecoderHalf


def _sizes_alone(value: Any) -> Any:
    """Return a copy of the document without the keys whose whole numbers are not sizes."""
    if isinstance(value, Mapping):
        return {key: _sizes_alone(inner) for key, inner in value.items() if key not in _NO_SIZES}
    if isinstance(value, list):
        return [_sizes_alone(item) for item in value]
    return value


def _tokenizer_files(
    model: str, model_files: ModelFiles
) -> tuple[dict[str, bytes], bool, list[str]]:
    """Return the files of the tokenizer and the processor, whether there is a chat template, and
    all problems."""
    problems: list[str] = []
    names = (TOKENIZER,)
    if model_files.file(TOKENIZER) is None:
        names = _OLDER_TOKENIZER
    if any(model_files.file(name) is None for name in names):
        where = f"model {model!r}"
        raise refusal("missing-model-file.tokenizer", where, model_files.folder, TOKENIZER)
    files = {name: _read(model, model_files, name, _MOST_TOKENIZER_BYTES) for name in names}
    try:
        tokenizer = parse_json(files.get(TOKENIZER, b"{}"))
    except ValueError:
        tokenizer = {}  # loading the tokenizer raises an error
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        # A few replacements in a row can make a text arbitrarily long.
        growth = 1
        for value in mappings_in(tokenizer.get(part) if isinstance(tokenizer, dict) else None):
            if value.get("type") == "Replace" and isinstance(value.get("content"), str):
                growth *= max(1, len(value["content"]))
            if growth > _MOST_GROWTH:
                problems.append(
                    f"{TOKENIZER}: its {part} makes a text more than {_MOST_GROWTH} times as long"
                )
                break
    template = False
    for name in _JSON_FILES:
        if model_files.file(name) is None:
            continue
        settings = read_config(model_files.folder / name, model, MOST_JSON_BYTES)
        problems += [f"{name}: {problem}" for problem in followed_problems(settings)]
        template = template or bool(settings.get("chat_template"))
        # Tokenizer settings may name files anywhere on this machine, and transformers would open
        # them.
        kept = {
            key: value
            for key, value in settings.items()
            if not key.endswith("_file") and key != "name_or_path"
        }
        files[name] = json.dumps(kept, sort_keys=True).encode()
    if model_files.file(_TEMPLATE) is not None:
        files[_TEMPLATE] = _read(model, model_files, _TEMPLATE, _MOST_TEMPLATE_BYTES)
        template = True
    return files, template, problems


def _read(model: str, model_files: ModelFiles, name: str, most: int) -> bytes:
    try:
        return read_regular(model_files.folder / name, most)
    except (OSError, ValueError) as error:
        where = f"model {model!r}: {name}"
        raise refusal("unreadable-model.read", where, error) from error


def load_text_model(
    name: str, model_files: ModelFiles, config: TextModelConfig, device: str
) -> dict[str, Any]:
    """Load a model and its tokenizer on `device`. Return the fields of a `Captioner` by name."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    module, _ = while_loading(name, lambda: trained_module(name, model_files, config))
    module.eval().requires_grad_(False)
    with files_alone(config) as folder, quiet_transformers():
        try:
            # Encoder-decoder models name no tokenizer class. Their tokenizer can be built from its
            # file alone.
            if "tokenizer_class" in json.loads(config.files.get(TOKENIZER_CONFIG, b"{}")):
                tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            else:
                tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        except Exception as error:  # damaged files may raise anything
            reason = error_line(error)
            where = f"model {name!r}"
            raise refusal("invalid-config.made", where, reason, "tokenizer") from error
    return {
        "name": name,
        "model_type": config.model_type,
        "architecture": config.architecture,
        "sha256": weights_sha256(f"{config.architecture}\n{config.text()}", module.state_dict()),
        "device": device,
        "tokenizer": tokenizer,
        "module": while_loading(name, lambda: module.to(device)),
    }


@contextlib.contextmanager
def files_alone(config: TextModelConfig) -> Iterator[Path]:
    """Make a temporary folder with only the checked files, for transformers to read. Remove it
    after the block."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in config.files.items():
            (Path(folder) / file).write_bytes(content)
        document = config.document | {"model_type": config.model_type}
        (Path(folder) / CONFIG).write_text(json.dumps(document), encoding="utf-8")
        yield Path(folder)


def ends_of(name: str, *places: Any) -> tuple[int, ...]:
    """Return the ids of the tokens that end a caption, from the first setting with such ids.

    UserError if no setting has one.
    """
    ends = all_ids(*places)
    if not ends:
        where = f"model {name!r}"
        raise refusal("invalid-config.end", where)
    return ends


def start_of(name: str, *places: Any) -> int:
    """Return the id of the token that begins a caption, from the first setting with such an id.

    UserError if no setting has one.
    """
    for setting in places:
        if is_integer(setting, 0, 1 << 31):
            return setting
    where = f"model {name!r}"
    raise refusal("invalid-config.start", where)


def never_of(
    tokenizer: Any, ends: tuple[int, ...], words: int, *more: int | None
) -> tuple[int, ...]:
    """Return the ids of the tokens that a caption may not contain: special tokens and `more`,
    without `ends`."""
    added = (number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    numbers = (*tokenizer.all_special_ids, *added, *more)
    special = {number for number in numbers if number is not None and 0 <= number < words}
    return tuple(sorted(special - set(ends)))


# A template that returns its variable `rendered` unchanged. transformers gets it when the text is
# rendered already.
AS_RENDERED = "{{ rendered }}"

# Rendering a published template takes some megabytes of memory and a hundredth of a second.
_MOST_MEMORY = 1 << 30  # bytes; some systems cannot limit the memory of a process
_MOST_SECONDS = 10
_MOST_CHARACTERS = 1_000_000
_CHILD = Path(__file__).with_name("rendering.py")
# Python needs these environment variables to find itself and its packages. Other variables may
# contain secrets.
_ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "HOME",
    "SYSTEMROOT",
    "APPDATA",
    "USERPROFILE",
)


def render_chat(
    model: str,
    holder: Any,
    turns: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = False,
    **more: Any,
) -> str:
    """Render the turns of a chat with the template of `holder`, a tokenizer or a processor.

    RunFailure if the template cannot be rendered, or exceeds a limit on memory, time or length.
    """
    templates = holder.chat_template
    template = templates.get("default") if isinstance(templates, Mapping) else templates
    if not isinstance(template, str):
        where = f"model {model!r}"
        raise failure("invalid-config.template", where)
    special = getattr(holder, "tokenizer", holder).special_tokens_map
    request = {
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
    answer = _rendered(json.dumps(request, default=lambda value: f"<{type(value).__name__}>"))
    if "text" not in answer:
        where = f"model {model!r}"
        raise failure("failed-model.template", where, answer["problem"])
    return answer["text"]


@functools.lru_cache(maxsize=16)  # the question, and so the request, is the same for every image
def _rendered(request: str) -> dict[str, str]:
    bounds = [str(bound) for bound in (_MOST_MEMORY, _MOST_CHARACTERS)]
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_CHILD), *bounds],
            input=request.encode(),
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
