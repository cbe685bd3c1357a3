"""What a timm classifier's config.json may say, checked before anything is built from it.

timm takes a configuration at its word: in `pretrained_cfg` it may name another file of this machine, another repository
or a loader of its own (`file`, `url`, `hf_hub_id`, `hf_hub_filename`, `source`, `custom_load`, `state_dict`), and
`model_args` go to timm's factory as they are (`checkpoint_path`, `pretrained_strict`, …). So only the keys that say
what the model is are taken over; the weights are the folder's own, chosen in `weights_files`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import is_integer, is_text, plain_problems, shown, shown_key
from counterfoil.models.input_form import LARGEST_SIDE, input_problems

MOST_CLASSES = 1_000_000
_LONGEST_LABEL = 1_000
# Eight times the widest layer of timm's models: whoever asks for more layers or channels wants memory, not a model.
_WIDEST = 65_536
_FORM = (
    "input_size", "test_input_size", "fixed_input_size", "interpolation", "crop_pct", "test_crop_pct", "crop_mode",
    "mean", "std",
)  # fmt: skip
# Arguments that change where and how a model is made, not which one; timm's factory reads them out of the rest.
_NOT_THE_MODELS = frozenset({"pruned", "features_only", "feature_cls", "out_indices", "device", "dtype"})


@dataclass(frozen=True)
class ClassifierConfig:
    """A checked configuration. `pretrained_cfg` and `model_args` hold plain values and go to timm as they are."""

    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    pretrained_cfg: dict[str, Any]
    model_args: dict[str, Any]


def checked_config(model: str, document: Mapping[str, Any]) -> ClassifierConfig:
    """The configuration that the mapping of a config.json describes. UserError with all that is wrong with it."""
    problems: list[str] = []
    architecture = _architecture(document.get("architecture"), problems)
    pretrained = _mapping(document, "pretrained_cfg", problems) or document
    arguments = _mapping(document, "model_args", problems)
    num_classes = document.get("num_classes", pretrained.get("num_classes"))
    if not is_integer(num_classes, 1, MOST_CLASSES):
        problems.append(
            f"it has no classification head (num_classes is {shown(num_classes)}, "
            f"expected a whole number from 1 to {MOST_CLASSES:,})"
        )
    labels = _labels(document.get("label_names") or pretrained.get("label_names"), problems)
    form = {key: pretrained[key] for key in _FORM if pretrained.get(key) is not None}
    wrong = input_problems(form)
    place = "" if pretrained is document else "pretrained_cfg."
    problems += [f"{place}{problem}" for problem in wrong]
    problems += _argument_problems(arguments, num_classes)
    if problems:
        raise UserError(
            [f"model {model!r}: its config.json: {problem}" for problem in problems],
            "Correct config.json, or name another model.",
        )
    repaired = _as_the_arguments_say(form, arguments)
    return ClassifierConfig(
        architecture, num_classes, labels, {**repaired, "num_classes": num_classes}, dict(arguments)
    )


def stored_config(
    architecture: str,
    num_classes: int,
    label_names: Sequence[str] | None,
    pretrained_cfg: Mapping[str, Any],
    model_args: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of a config.json that `checked_config` reads as this model: no place, no loader, no weights file."""
    form = {key: pretrained_cfg[key] for key in _FORM if pretrained_cfg.get(key) is not None}
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in form.items()}
    document: dict[str, Any] = {
        "architecture": architecture,
        "num_classes": num_classes,
        "model_args": dict(model_args),
        "pretrained_cfg": {**plain, "custom_load": False, "num_classes": num_classes},
    }
    if label_names is not None:
        document["label_names"] = list(label_names)
    return document


def _architecture(found: Any, problems: list[str]) -> str:
    import timm

    if isinstance(found, str) and timm.is_model(found):
        return found
    problems.append(f"it names the architecture {shown(found)}, which timm {timm.__version__} does not know")
    return ""


def _mapping(document: Mapping[str, Any], key: str, problems: list[str]) -> Mapping[str, Any]:
    """A mapping of a document; empty where it is missing, null or something else, which is told."""
    found = document.get(key)
    if found is None or isinstance(found, dict):
        return found or {}
    problems.append(f"{key}: found {shown(found)}, expected a mapping")
    return {}


def _labels(found: Any, problems: list[str]) -> tuple[str, ...] | None:
    if not found:
        return None
    wrong = found if not isinstance(found, list) else next((x for x in found if not is_text(x, _LONGEST_LABEL)), None)
    if wrong is None and isinstance(found, list) and None not in found:
        return tuple(found)
    problems.append(f"label_names: found {shown(wrong)}, expected a list of printable texts")
    return None


def _argument_problems(arguments: Mapping[str, Any], num_classes: Any) -> list[str]:
    problems = plain_problems({key: x for key, x in arguments.items() if key != "num_classes"}, "model_args", _WIDEST)
    problems += [
        f"model_args.{shown_key(key)} says how a model is made here and is not taken from a configuration"
        for key in arguments
        if key in _factory_arguments()
    ]
    if arguments.get("num_classes") not in (None, num_classes):
        problems.append(
            f"model_args.num_classes is {shown(arguments['num_classes'])}, num_classes {shown(num_classes)}"
        )
    if arguments.get("in_chans", 3) not in (3, None):
        problems.append(f"model_args.in_chans: found {shown(arguments['in_chans'])}, expected 3: a dataset's are RGB")
    sides = arguments.get("img_size")
    if sides is not None and not all(is_integer(side, 1, LARGEST_SIDE) for side in _two(sides)):
        problems.append(f"model_args.img_size: found {shown(sides)}, expected sides from 1 to {LARGEST_SIDE:,}")
    return problems


def _factory_arguments() -> frozenset[str]:
    """What timm's factory takes for itself: names of files, places, devices, and whether all weights have to fit."""
    import timm

    builder = sys.modules[timm.create_model.__module__.rpartition(".")[0] + "._builder"].build_model_with_cfg
    named = {*inspect.signature(timm.create_model).parameters, *inspect.signature(builder).parameters}
    return frozenset(named - {"kwargs"}) | _NOT_THE_MODELS


def _as_the_arguments_say(form: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The input's form, where the arguments decide about it: older exports kept that of the weights they began with."""
    form = dict(form)
    if arguments.get("dynamic_img_size") or arguments.get("strict_img_size") is False or arguments.get("use_naflex"):
        form["fixed_input_size"] = False
    if arguments.get("img_size") is not None and form.get("fixed_input_size") and "input_size" in form:
        form["input_size"] = [3, *_two(arguments["img_size"])]
    return form


def _two(sides: Any) -> list[Any]:
    """Height and width of timm's `img_size`, which is one number or two."""
    if not isinstance(sides, list):
        return [sides, sides]
    return sides if len(sides) == 2 else [None]
