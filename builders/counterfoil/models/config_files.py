"""A model's configuration, which a stranger may have written: read, declared, and bounded before anything is built.

Any JSON value may stand in any place. What of a document is relied on is declared (`Foreign`): types
that take no value for another (true is no number, 2**40 no count) and say in words what they expect. Numbers and names
anywhere in a document are searched too: they may become sizes of something, or lead to code and files of elsewhere.
"""

from __future__ import annotations

import json
import math
import reprlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from counterfoil.errors import UserError
from counterfoil.models.weights_files import shard_problems
from counterfoil.regular_files import UnfitFile, irregularity, read_regular

CONFIG = "config.json"
# Where an image processor's settings stand; the first is transformers' newer place for them.
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
# The names of 21,841 classes take 0.3 MB; nothing else in a configuration is long.
MOST_CONFIG_BYTES = 1_000_000
# transformers' hold these names twice, and a few words about each: 2 MB.
MOST_JSON_BYTES = 8_000_000
MOST_CLASSES = 1_000_000
# No width or count of any model that timm, open_clip or diffusers knows is larger; one vocabulary has 901,629 words.
LARGEST_NUMBER = 1_000_000
# The deepest published vision and text models have some 100 layers; each more takes time before any weight is read.
MOST_LAYERS = 256
LONGEST_TEXT = 200
LONGEST_LABEL = 1_000
# Four times the longest side of any model that timm 1.0.31 knows (1,024); one such image takes 201 MB as float32.
LARGEST_SIDE = 4096
# An image is resized to its side divided by crop_pct first; timm's own are 0.875 to 1.15.
LEAST_CROP, MOST_CROP = 0.1, 2.0
# RGB of 400 MB. An image of one row resized by its shorter side would become wider without end.
MOST_RESIZED_PIXELS = 1 << 27
# They may hold any word.
LISTS_OF_WORDS = ("tokenizer.json", "vocab.json")
_MOST_FILES = 1_000
_MOST_PROBLEMS = 20
# They name code, kernels, quantisers, or weights and models that lie elsewhere.
_NOT_FOLLOWED = (
    "auto_map", "attn_implementation", "_attn_implementation", "experts_implementation", "quantization_config",
    "compression_config", "transformers_weights", "backbone", "backbone_kwargs", "use_pretrained_backbone",
    "use_timm_backbone",
)  # fmt: skip
# Two of them choose among transformers' own code.
_HARMLESS = ("eager", "sdpa")
# They say where a configuration was written, not what the model is.
_NOT_THE_MODELS = ("architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "_commit_hash")

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlist = _brief.maxdict = 6
_brief.maxlevel = 3


class Foreign(BaseModel):
    """What is declared of a stranger's document: other keys are left aside, and nothing is converted."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


AnyForeign = TypeVar("AnyForeign", bound=Foreign)


def expected(words: str, before: str = "expected ") -> WrapValidator:
    """What the type before it in an `Annotated` expects, for a person; said in place of all that is wrong inside it."""

    def checked(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValueError as error:
            inside = error.errors(include_url=False) if isinstance(error, ValidationError) else []
            if inside and all(one["loc"] and one["type"] == "expected" for one in inside):
                raise  # which part of it, and what is expected there
            raise PydanticCustomError("expected", "{words}", {"words": before + words}) from None

    return WrapValidator(checked)


def declared(
    kind: type[AnyForeign], document: Mapping[str, Any], place: str = ""
) -> tuple[AnyForeign | None, list[str]]:
    """A stranger's mapping as what is declared of it, or a line for each key that is not of its type.

    place: what stands before a key in a line.
    """
    try:
        return kind.model_validate(document), []
    except ValidationError as error:
        problems = error.errors(include_url=False)
    lines = []
    for one in problems:
        where = f"{place}{'.'.join(map(str, one['loc']))}"
        words = "expected a mapping" if one["type"] == "model_type" else one["msg"]
        lines.append(
            f"{where} is missing" if one["type"] == "missing" else f"{where}: found {shown(one['input'])}, {words}"
        )
    return None, lines


def _printable(text: str) -> str:
    if not is_text(text, LONGEST_LABEL):
        raise ValueError
    return text


def known_to_timm(architecture: str) -> str:
    """An architecture of timm. ValueError for any other text."""
    import timm

    if not timm.is_model(architecture):
        raise ValueError
    return architecture


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise ValueError
    return text


Label = Annotated[str, AfterValidator(_printable)]
Crop = Annotated[
    float | None,
    Field(ge=LEAST_CROP, le=MOST_CROP),
    expected(f"a number from {LEAST_CROP} to {MOST_CROP:g}"),
]
_ClassName = Annotated[
    Annotated[str, AfterValidator(_identifier)] | None,
    expected("a class of transformers"),
]


def shown(value: Any) -> str:
    """A value in a message, as it stands in JSON, shortened, whatever its depth."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _brief.repr(value)


def read_config(file: Path, model: str, most_bytes: int = MOST_CONFIG_BYTES) -> dict[str, Any]:
    """Return the mapping of a JSON file of the model called `model`. Raise UserError where it is none."""
    try:
        document = json.loads(read_regular(file, most_bytes).decode("utf-8"))
    except OSError as error:
        # "is a pipe, expected a regular file", or "cannot be read: Permission denied".
        words = error.strerror or str(error)
        reason = words if words.startswith(("is ", "has ")) else f"cannot be read: {words}"
        raise UserError(f"model {model!r}: {file} {reason}") from error
    except RecursionError as error:
        raise UserError(f"model {model!r}: {file} is not readable JSON: it is nested too deeply") from error
    except ValueError as error:
        raise UserError(f"model {model!r}: {file} is not readable JSON: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"model {model!r}: {file} should hold a JSON mapping, not {shown(document)}")
    return document


def is_integer(value: Any, least: int, most: int) -> bool:
    """Whether a value is a whole number from `least` to `most`; true and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_text(value: Any, longest: int = LONGEST_TEXT) -> bool:
    """Whether a value is text of one line that any terminal and file can hold."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def shown_key(key: str) -> str:
    """A key of a mapping in a message."""
    return key if is_text(key, 60) else shown(key)


def number_problems(config: Any, place: str) -> Iterator[str]:
    """A line for each number anywhere in a configuration that no model has, of whatever kind the model is."""
    waiting: list[tuple[str, str, Any]] = [(place, "", config)]
    while waiting:
        where, key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{where}.{shown_key(name)}", name, inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(where, key, inner) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where} is {value}, expected a finite number"
        elif type(value) is int and abs(value) > (most := MOST_LAYERS if "layers" in key else LARGEST_NUMBER):
            yield f"{where} is {shown(value)}, expected at most {most:,}"


def refuse_problems(model: str, problems: Sequence[str]) -> None:
    """UserError with the first of the problems of the model called `model`, where there are any."""
    if problems:
        raise UserError([f"model {model!r}: {problem}" for problem in problems[:_MOST_PROBLEMS]], "It is not loaded.")


def without_places(document: Mapping[str, Any]) -> dict[str, Any]:
    """A checked configuration of transformers without where and how it was written."""
    return {key: value for key, value in document.items() if key not in _NOT_THE_MODELS}


def checked_processor(model: str, folder: Path, pixels: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The settings of an image processor, as transformers is given them. UserError with all that is wrong with them.

    `pixels` are keys whose numbers may count pixels, not a side's.
    """
    for place in PROCESSORS:
        if not (folder / place).exists():
            continue
        found = read_config(folder / place, model)
        processor = found if place == PROCESSORS[1] else found.get("image_processor")
        if isinstance(processor, dict):
            refuse_problems(model, [f"{place}: {problem}" for problem in _processor_problems(processor, pixels)])
            return {k: v for k, v in processor.items() if not k.startswith("_") and k != "processor_class"}
    raise UserError(
        f"model {model!r}: {folder} has no {PROCESSORS[1]}, so it does not say how images are prepared",
        "Save the image processor into the same folder: processor.save_pretrained(FOLDER)",
    )


def followed_problems(document: Any, keys: Sequence[str] = _NOT_FOLLOWED) -> Iterator[str]:
    """A line for each of the keys, in any mapping of a JSON document, that would lead away from these files."""
    waiting: list[Any] = [document]
    while waiting:
        values = waiting.pop()
        if isinstance(values, Mapping):
            for key in keys:
                if values.get(key) and values[key] not in _HARMLESS:
                    what = "names code of its author, which is never run" if key == "auto_map" else "is not followed"
                    yield f"{key} {what}"
            waiting += values.values()
        elif isinstance(values, list):
            waiting += values


def folder_problems(folder: Path, keys: Sequence[str] = _NOT_FOLLOWED) -> Iterator[str]:
    """A line for what in a folder's files would lead away from them: code, other files, what is no regular file.

    Every JSON is searched but for lists of words; folders inside are not opened by anybody.
    """
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if len(files) > _MOST_FILES:
        yield f"{len(files):,} files, expected at most {_MOST_FILES:,}"
        return
    for file in files:
        try:
            mode = file.stat().st_mode
        except OSError:  # a link to nothing, or in a circle: nothing reads it
            continue
        place = shown_key(file.name)
        if not stat.S_ISDIR(mode) and (odd := irregularity(mode)) is not None:
            yield f"{place} {odd}, expected a regular file"
        elif file.suffix == ".json" and file.name not in LISTS_OF_WORDS:
            try:
                found = json.loads(read_regular(file, MOST_JSON_BYTES))
            except UnfitFile as error:
                yield f"{place} {error.strerror}"
            except RecursionError:
                yield f"{place} is nested too deeply"
            except ValueError:  # no JSON: whoever needs it says so, and whoever does not may have it
                continue
            else:
                shards = shard_problems(found) if isinstance(found, dict) else ()
                yield from (f"{place}: {problem}" for problem in (*followed_problems(found, keys), *shards))


class _ProcessorForm(Foreign):
    """What every image processor's settings may say, beside numbers of pixels."""

    crop_pct: Crop = None
    image_processor_type: _ClassName = None
    feature_extractor_type: _ClassName = None


def _processor_problems(processor: Mapping[str, Any], pixels: frozenset[str] = frozenset()) -> Iterator[str]:
    """A line for each setting that no image processor has, or that leads away from these files."""
    yield from followed_problems(processor)
    waiting: list[tuple[str, Any]] = list(processor.items())
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{key}.{name}", inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(key, inner) for inner in value[: LARGEST_SIDE + 1]]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{shown_key(key)} is {value}, expected a finite number"
        elif type(value) is int:
            most = MOST_RESIZED_PIXELS if key.rpartition(".")[2] in pixels else LARGEST_SIDE
            if abs(value) > most:
                yield f"{shown_key(key)} is {shown(value)}, expected at most {most:,}"
    yield from declared(_ProcessorForm, processor)[1]


def refuse_unlike_sides(model: str, image: tuple[int, int], sides: tuple[int, int], mode: str = "center") -> None:
    """UserError for an image (width, height) with which resizing to `sides` (height, width) would take memory or fail.

    Where the shorter side is made to fit, an image of one row grows without end; where the longer one is, it vanishes.
    """
    if mode == "squash":
        return
    width, height = image
    ratios = sides[1] / width, sides[0] / height
    scale = min(ratios) if mode == "border" else max(ratios)
    resized = round(width * scale), round(height * scale)
    if min(resized) < 1 or resized[0] * resized[1] > MOST_RESIZED_PIXELS:
        raise UserError(
            f"an image of {width:,} x {height:,} pixels would be resized to {resized[0]:,} x {resized[1]:,} "
            f"for model {model!r}",
            "Remove this image: nothing can be seen in it.",
        )
