"""Read and check a model's configuration, which is not trusted, before anything is built from it.

Subclasses of `Foreign` declare the keys that Counterfoil uses. Their types are strict, and each
type has a message that says which value it expects. The numbers under all other keys are checked
too, because a library may use them as sizes. Other keys are also searched for names of code and of
other files.
"""

from __future__ import annotations

import json
import math
import reprlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from counterfoil.errors import UserError, first_of
from counterfoil.models.messages import message, refusal
from counterfoil.models.weights_files import shard_problems
from counterfoil.regular_files import UnfitFile, irregularity, read_regular

CONFIG = "config.json"
# The files with an image processor's settings. transformers introduced the first one later than the
# second.
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
# Only class names make a configuration long: 21,841 names take 0.3 MB.
MOST_CONFIG_BYTES = 1_000_000
# A configuration of transformers lists the class names twice, which takes 2 MB for the largest
# models.
MOST_JSON_BYTES = 8_000_000
MOST_CLASSES = 1_000_000
# In the models that timm, open_clip and diffusers list, the largest number is a vocabulary of
# 901,629 words.
LARGEST_NUMBER = 1_000_000
# The deepest published vision and text models have some 100 layers.
MOST_LAYERS = 256
LONGEST_TEXT = 200
LONGEST_LABEL = 1_000
# Four times the largest input side of a model in timm 1.0.31 (1,024 pixels). An image of this side
# takes 201 MB as float32.
LARGEST_SIDE = 4096
# Before the crop, an image is resized to the input side divided by crop_pct. timm's models use
# 0.875 to 1.15.
LEAST_CROP = 0.1
MOST_CROP = 2.0
# An RGB image of so many pixels takes 400 MB. Without this limit, an image that is one pixel high
# could become arbitrarily wide when it is resized by its shorter side.
MOST_RESIZED_PIXELS = 1 << 27
# Vocabularies may contain any word, so they are not searched.
LISTS_OF_WORDS = ("tokenizer.json", "vocab.json")
_MOST_FILES = 1_000
_MOST_PROBLEMS = 20
# The value of such a key names code, a kernel, a quantiser, or weights or a model outside the
# folder.
_NOT_FOLLOWED = (
    "auto_map", "attn_implementation", "_attn_implementation", "experts_implementation", "quantization_config",
    "compression_config", "transformers_weights", "backbone", "backbone_kwargs", "use_pretrained_backbone",
    "use_timm_backbone",
)  # fmt: skip
# These values select code that is part of transformers.
_HARMLESS = ("eager", "sdpa")
# These keys describe how the configuration was written. They do not describe the model.
_NOT_THE_MODELS = (
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
    "_commit_hash",
)

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlist = _brief.maxdict = 6
_brief.maxlevel = 3


class Foreign(BaseModel):
    """The base class of declared documents. Undeclared keys are ignored, and no value is converted
    to another type."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


AnyForeign = TypeVar("AnyForeign", bound=Foreign)


def expected_words(words: str, before: str = "expected ") -> WrapValidator:
    """Return a validator that replaces pydantic's message by `words`, for the preceding type in an
    `Annotated`."""

    def checked(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValueError as error:
            problems = error.errors(include_url=False) if isinstance(error, ValidationError) else []
            if problems and all(
                problem["loc"] and problem["type"] == "expected" for problem in problems
            ):
                raise  # a part of the value has a message of its own
            raise PydanticCustomError("expected", "{words}", {"words": before + words}) from None

    return WrapValidator(checked)


def declared_values(
    kind: type[AnyForeign], document: Mapping[str, Any], prefix: str = ""
) -> tuple[AnyForeign | None, list[str]]:
    """Check the declared keys of a document. Return their values, or None and a line for each wrong
    or missing key.

    Each line begins with `prefix`.
    """
    try:
        return kind.model_validate(document), []
    except ValidationError as error:
        problems = error.errors(include_url=False)
    lines = []
    for problem in problems:
        key = f"{prefix}{'.'.join(map(str, problem['loc']))}"
        if problem["type"] == "missing":
            lines.append(f"{key} is missing")
        else:
            words = "expected a mapping" if problem["type"] == "model_type" else problem["msg"]
            lines.append(f"{key}: found {shown_setting(problem['input'])}, {words}")
    return None, lines


def fulfils(check: Callable[[Any], bool]) -> AfterValidator:
    def checked(value: Any) -> Any:
        if not check(value):
            raise ValueError
        return value

    return AfterValidator(checked)


def known_to_timm(architecture: str) -> bool:
    import timm

    return timm.is_model(architecture)


Label = Annotated[str, fulfils(lambda text: is_text(text, LONGEST_LABEL))]
Crop = Annotated[
    float | None,
    Field(ge=LEAST_CROP, le=MOST_CROP),
    expected_words(f"a number from {LEAST_CROP} to {MOST_CROP:g}"),
]
_ClassName = Annotated[
    Annotated[str, fulfils(str.isidentifier)] | None,
    expected_words("a class of transformers"),
]


def shown_setting(value: Any) -> str:
    """Format a JSON value for a message, shortened."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _brief.repr(value)


def read_config(file: Path, model: str, most_bytes: int = MOST_CONFIG_BYTES) -> dict[str, Any]:
    """Read a JSON file of a model. UserError if the file cannot be read or does not contain a
    mapping."""
    where = f"model {model!r}: {file}"
    try:
        document = json.loads(read_regular(file, most_bytes).decode("utf-8"))
    except UnfitFile as error:
        raise refusal("unreadable-model.file", where, error) from error
    except OSError as error:
        raise refusal("unreadable-model.read", where, error) from error
    except RecursionError as error:
        raise refusal("unreadable-model.json", where, "it is nested too deeply") from error
    except ValueError as error:
        raise refusal("unreadable-model.json", where, error) from error
    if not isinstance(document, dict):
        raise refusal("unreadable-model.mapping", where, shown_setting(document))
    return document


def is_integer(value: Any, least: int, most: int) -> bool:
    """Return whether a value is a whole number from `least` to `most`; true and 1.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_text(value: Any, longest: int = LONGEST_TEXT) -> bool:
    """Return whether a value is printable text of one line."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def shown_key(key: str) -> str:
    return key if is_text(key, 60) else shown_setting(key)


def _most_of(key: str) -> int:
    return MOST_LAYERS if "layers" in key else LARGEST_NUMBER


def number_problems(
    config: Any, path: str, most_of: Callable[[str], int] = _most_of
) -> Iterator[str]:
    """Yield a line for each number that is too large for any model. `most_of` returns the largest
    number for a key."""
    waiting: list[tuple[str, str, Any]] = [(path, "", config)]
    while waiting:
        path, key, value = waiting.pop()
        if isinstance(value, Mapping):
            prefix = f"{path}." if path else ""
            waiting += [
                (f"{prefix}{shown_key(name)}", name, inner) for name, inner in value.items()
            ]
        elif isinstance(value, list):
            waiting += [(path, key, inner) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{path} is {value}, expected a finite number"
        elif type(value) is int and abs(value) > most_of(key):
            yield f"{path} is {shown_setting(value)}, expected at most {most_of(key):,}"


def refuse_problems(model: str, problems: Sequence[str], file: str | None = None) -> None:
    """Raise UserError with the problems of a model, or of one of its files."""
    if problems:
        where = f"model {model!r}" if file is None else f"model {model!r}: {file}"
        lines = [message("invalid-config", where, problem) for problem in problems]
        raise UserError(first_of(lines, _MOST_PROBLEMS))


def without_places(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of transformers without the keys that describe how the configuration
    was written."""
    return {key: value for key, value in document.items() if key not in _NOT_THE_MODELS}


def checked_processor(
    model: str, folder: Path, pixels: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Read and check the settings of an image processor. `pixels` are the keys whose value is a
    number of pixels."""
    for name in PROCESSORS:
        if not (folder / name).exists():
            continue
        document = read_config(folder / name, model)
        processor = document if name == PROCESSORS[1] else document.get("image_processor")
        if isinstance(processor, dict):
            problems = list(followed_problems(processor))
            problems += number_problems(
                processor, "", lambda key: MOST_RESIZED_PIXELS if key in pixels else LARGEST_SIDE
            )
            _, form_problems = declared_values(_ProcessorForm, processor)
            refuse_problems(model, [*problems, *form_problems], name)
            return {
                key: value
                for key, value in processor.items()
                if not key.startswith("_") and key != "processor_class"
            }
    where = f"model {model!r}"
    raise refusal("missing-model-file.processor", where, folder, PROCESSORS[1])


def followed_problems(document: Any, keys: Sequence[str] = _NOT_FOLLOWED) -> Iterator[str]:
    """Search a JSON document and its nested values. Yield a line for each of `keys` that names code
    or other files."""
    for values in mappings_in(document):
        for key in keys:
            if values.get(key) and values[key] not in _HARMLESS:
                what = (
                    "names code of its author, which is never run"
                    if key == "auto_map"
                    else "is not followed"
                )
                yield f"{key} {what}"


def mappings_in(document: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping of a JSON document, the document itself first if it is one."""
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def folder_problems(folder: Path, keys: Sequence[str]) -> Iterator[str]:
    """Check the files of a folder. Yield a line for each irregular file and for JSON that names
    code or other files."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if len(files) > _MOST_FILES:
        yield f"{len(files):,} files, expected at most {_MOST_FILES:,}"
        return
    for file in files:
        try:
            mode = file.stat().st_mode
        except OSError:  # a dangling or circular link, which cannot be read
            continue
        name = shown_key(file.name)
        if not stat.S_ISDIR(mode) and (odd := irregularity(mode)) is not None:
            yield f"{name} {odd}, expected a regular file"
        elif file.suffix == ".json" and file.name not in LISTS_OF_WORDS:
            try:
                document = json.loads(read_regular(file, MOST_JSON_BYTES))
            except UnfitFile as error:
                yield f"{name} {error.strerror}"
            except RecursionError:
                yield f"{name} is nested too deeply"
            except ValueError:  # not JSON: the reader that needs the file refuses it
                continue
            else:
                shards = shard_problems(document) if isinstance(document, dict) else ()
                for problem in (*followed_problems(document, keys), *shards):
                    yield f"{name}: {problem}"


class _ProcessorForm(Foreign):
    crop_pct: Crop = None
    image_processor_type: _ClassName = None
    feature_extractor_type: _ClassName = None


def refuse_unlike_sides(
    model: str, image: tuple[int, int], sides: tuple[int, int], mode: str = "center"
) -> None:
    """Raise UserError if an image (width, height), resized to `sides` (height, width), would be
    huge or empty."""
    if mode == "squash":
        return
    width, height = image
    ratios = sides[1] / width, sides[0] / height
    scale = min(ratios) if mode == "border" else max(ratios)
    resized = round(width * scale), round(height * scale)
    if min(resized) < 1 or resized[0] * resized[1] > MOST_RESIZED_PIXELS:
        where = f"model {model!r}"
        raise refusal(
            "unfit-input.resized", where, resized[0], resized[1], width=width, height=height
        )
