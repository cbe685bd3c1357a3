"""What a transformers classifier says of itself, judged before anything is built from it: its model, labels and input.

transformers takes a configuration at its word: it may name code of its author (`auto_map`), kernels, another backbone,
another file of weights, or timm models with files of this machine. None of that is followed, and numbers are bounded
before they become sizes of anything.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.classifier_config import MOST_CLASSES
from counterfoil.models.config_files import (
    is_integer,
    is_number,
    is_text,
    number_problems,
    read_config,
    shown,
    shown_key,
)
from counterfoil.models.input_form import LARGEST_SIDE, LEAST_CROP, MOST_CROP, MOST_RESIZED_PIXELS
from counterfoil.models.weights_files import shard_problems
from counterfoil.regular_files import UnfitFile, irregularity, read_regular

CONFIG = "config.json"
# Where an image processor's settings stand; the first is transformers' newer place for them.
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
# The names of 21,841 classes, each twice, take 2 MB.
_MOST_BYTES = 8_000_000
# They may hold any word.
LISTS_OF_WORDS = ("tokenizer.json", "vocab.json")
_MOST_FILES = 1_000
_LONGEST_LABEL = 1_000
_MOST_TOLD = 20
_LABELS = ("id2label", "label2id")
# They name code, kernels, quantisers, or weights and models that lie elsewhere.
_NOT_FOLLOWED = (
    "auto_map", "attn_implementation", "_attn_implementation", "experts_implementation", "quantization_config",
    "compression_config", "transformers_weights", "backbone", "backbone_kwargs", "use_pretrained_backbone",
    "use_timm_backbone",
)  # fmt: skip
# Two of them choose among transformers' own code.
_HARMLESS = ("eager", "sdpa")
# They say where a configuration was written, not what the model is.
NOT_THE_MODELS = ("architectures", "dtype", "torch_dtype", "transformers_version", "_name_or_path", "_commit_hash")


@dataclass(frozen=True)
class TransformersConfig:
    """A checked configuration. `document` and `processor` hold plain values and go to transformers as they are."""

    model_type: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...]
    document: dict[str, Any]
    processor: dict[str, Any]

    def text(self) -> str:
        """What decides the answers beside the weights, as canonical JSON; names of outputs do not."""
        return json.dumps({key: self.document[key] for key in self.document if key not in _LABELS}, sort_keys=True)


def checked_transformers(model: str, folder: Path) -> TransformersConfig:
    """The configuration of the classifier whose files lie in `folder`. UserError with all that is wrong with it."""
    document = read_config(folder / CONFIG, model, _MOST_BYTES)
    problems = [f"{CONFIG}: {problem}" for problem in _model_problems(document)]
    labels = _labels(document, problems)
    refuse_problems(model, problems)
    place, processor = processor_settings(model, folder)
    refuse_problems(model, [f"{place}: {problem}" for problem in processor_problems(processor)])
    model_type = document["model_type"]
    return TransformersConfig(
        model_type=model_type,
        architecture=_architecture(model_type, document.get("architectures")),
        num_classes=len(labels),
        label_names=labels,
        document={key: value for key, value in document.items() if key not in NOT_THE_MODELS},
        processor={k: v for k, v in processor.items() if not k.startswith("_") and k != "processor_class"},
    )


def refuse_problems(model: str, problems: Sequence[str]) -> None:
    """UserError with the first of the problems of the model called `model`, where there are any."""
    if problems:
        raise UserError([f"model {model!r}: {problem}" for problem in problems[:_MOST_TOLD]], "It is not loaded.")


def processor_settings(model: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The file and the mapping of an image processor's settings."""
    for name in PROCESSORS:
        if (folder / name).exists():
            found = read_config(folder / name, model)
            if name == PROCESSORS[1]:
                return name, found
            if isinstance(found.get("image_processor"), dict):
                return name, found["image_processor"]
    raise UserError(
        f"model {model!r}: {folder} has no {PROCESSORS[1]}, so it does not say how images are prepared",
        "Save the image processor into the same folder: processor.save_pretrained(FOLDER)",
    )


def _model_problems(document: Mapping[str, Any]) -> Iterator[str]:
    known = _known_models()
    found = document.get("model_type")
    if found == "timm_wrapper" or (found is None and "architecture" in document):
        yield "it is a timm model: name it hf-hub:NAME, or local-dir:FOLDER"
    elif not isinstance(found, str) or found not in known:
        yield f"model_type is {shown(found)}, and transformers has no image classifier of that kind"
    yield from number_problems({key: value for key, value in document.items() if key not in _LABELS}, "config")
    yield from followed_problems(document)
    if document.get("num_channels", 3) != 3:
        yield f"num_channels: found {shown(document['num_channels'])}, expected 3: a dataset's images are RGB"


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


def folder_problems(model: str, folder: Path, keys: Sequence[str] = _NOT_FOLLOWED) -> Iterator[str]:
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
                found = json.loads(read_regular(file, _MOST_BYTES))
            except UnfitFile as error:
                yield f"{place} {error.strerror}"
            except RecursionError:
                yield f"{place} is nested too deeply"
            except ValueError:  # no JSON: whoever needs it says so, and whoever does not may have it
                continue
            else:
                shards = shard_problems(found) if isinstance(found, dict) else ()
                yield from (f"{place}: {problem}" for problem in (*followed_problems(found, keys), *shards))


def _labels(document: Mapping[str, Any], problems: list[str]) -> tuple[str, ...]:
    """The names of the outputs, in their order."""
    found, number = document.get("id2label"), document.get("num_labels")
    if found is None and isinstance(number, int) and is_integer(number, 1, MOST_CLASSES):
        return tuple(f"LABEL_{place}" for place in range(number))
    if not isinstance(found, dict) or not is_integer(len(found), 1, MOST_CLASSES):
        problems.append(f"{CONFIG}: it has no classification head (id2label is {shown(found)})")
        return ()
    if number not in (None, len(found)):
        problems.append(f"{CONFIG}: num_labels is {shown(number)}, and id2label has {len(found)} names")
    missing = next((place for place in range(len(found)) if str(place) not in found), None)
    if missing is not None:
        problems.append(f"{CONFIG}: id2label has {len(found)} names and none for output {missing}")
        return ()
    names = tuple(found[str(place)] for place in range(len(found)))
    wrong = next((place for place, name in enumerate(names) if not is_text(name, _LONGEST_LABEL)), None)
    if wrong is not None:
        problems.append(f"{CONFIG}: id2label: found {shown(names[wrong])} for {wrong}, expected printable text")
        return ()
    return names


def processor_problems(processor: Mapping[str, Any], pixels: frozenset[str] = frozenset()) -> Iterator[str]:
    """A line for each setting that no image processor has, or that leads away from these files.

    `pixels` are keys whose numbers may count pixels, not a side's.
    """
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
    crop = processor.get("crop_pct")
    if crop is not None and not is_number(crop, LEAST_CROP, MOST_CROP):
        yield f"crop_pct: found {shown(crop)}, expected a number from {LEAST_CROP} to {MOST_CROP:g}"
    for key in ("image_processor_type", "feature_extractor_type"):
        name = processor.get(key)
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            yield f"{key}: found {shown(name)}, expected a class of transformers"


def _known_models() -> dict[str, Any]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES

    return {str(model_type): classes for model_type, classes in MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES.items()}


def _architecture(model_type: str, asked: Any) -> str:
    """The class of transformers that is built: the one that was saved, where a kind of model has several."""
    known = _known_models()[model_type]
    classes = (known,) if isinstance(known, str) else tuple(known)
    return next((one for one in classes if isinstance(asked, list) and one in asked), classes[0])
