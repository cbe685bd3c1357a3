"""Prompts as a family's pipelines take them: encoded one at a time, by names, and joined to batches."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.models.generators.family import RESERVED, Encoded, Family


def encode_prompt(
    family: Family, pipeline: Any, prompt: str, negative: str | None, *, guided: bool, options: Mapping[str, Any]
) -> dict[str, Any]:
    """What a call of the pipeline takes for one prompt, and for its negative one where `guided`, by the call's names.

    `options` are the recipe's; those that the pipeline's own call would hand to its encoder go there.
    RunFailure where the encoder gives another number of outputs than the family names.
    """
    settings = _settings(pipeline, options)
    if negative is None:
        negative = family.blank if family.blank is not None else _default(type(pipeline).__call__, "negative_prompt")
    given = {"negative_prompt": negative, "do_classifier_free_guidance": guided and not family.apart}
    parts = _outputs(family, pipeline, settings | given | {"prompt": prompt})
    if guided and family.apart:
        led = _outputs(family, pipeline, settings | {"prompt": negative or ""})
        parts |= {f"negative_{name}": value for name, value in led.items()}
    return parts


def joined(encoded: Sequence[Encoded]) -> dict[str, Any]:
    """Encoded prompts as one batch: tensors one below the other, lists one after the other."""
    import torch

    return {
        name: [one for each in encoded for one in each[name]]
        if isinstance(value, list)
        else torch.cat([each[name] for each in encoded])
        for name, value in encoded[0].items()
    }


def company(family: Family, encoded: Encoded) -> Hashable:
    """Prompts with the same answer may share a batch: none of them changes how far another one is padded."""
    if family.company is not None:
        return family.company(encoded)
    return tuple((name, *(tuple(one.shape) for one in _each(value))) for name, value in encoded.items())


def bytes_of(encoded: Encoded) -> int:
    """What an encoded prompt takes in memory."""
    return sum(one.numel() * one.element_size() for value in encoded.values() for one in _each(value))


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _outputs(family: Family, pipeline: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of one call of the encoder by their names, without those that are absent or that no call takes."""
    always = {"device": pipeline._execution_device, "num_images_per_prompt": 1}
    known = inspect.signature(pipeline.encode_prompt).parameters
    arguments: dict[str, Any] = {
        name: None for name, one in known.items() if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    }
    arguments |= {name: value for name, value in (always | dict(given)).items() if name in known}
    values = pipeline.encode_prompt(**arguments)
    if len(values) != len(family.outputs):
        raise RunFailure(
            f"{type(pipeline).__name__}.encode_prompt gives {len(values)} outputs, expected {len(family.outputs)}:"
            f" {', '.join(name or 'one that is not used' for name in family.outputs)}",
            "This version of diffusers is not known: install one that pyproject.toml allows.",
        )
    named = zip(family.outputs, values, strict=True)
    # An empty list is how Z-Image says that there is none.
    parts = {name: value for name, value in named if name and value is not None and not _is_empty(value)}
    return dict(parts if family.settled is None else family.settled(parts))


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def _settings(pipeline: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the pipeline's own call would hand to its encoder: its defaults, or the recipe's options."""
    call = inspect.signature(type(pipeline).__call__).parameters
    shared = [name for name in inspect.signature(pipeline.encode_prompt).parameters if name in call]
    return {name: options.get(name, call[name].default) for name in shared if name not in RESERVED}


def _default(function: Any, name: str) -> Any:
    found = inspect.signature(function).parameters.get(name)
    return None if found is None or found.default is found.empty else found.default
