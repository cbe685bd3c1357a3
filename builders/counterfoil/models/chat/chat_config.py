"""What a text model's files say of it, judged before anything is built: model, tokenizer, chat template.

The rules are those of captioners (`captioners/captioner_config.py`), which has what the two have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from counterfoil.models.captioners.captioner_config import (
    CaptionerConfig,
    kind_problems,
    special_ids,
    tokenizer_files,
)
from counterfoil.models.config_files import read_config
from counterfoil.models.transformers_config import CONFIG, NOT_THE_MODELS, refuse_problems
from counterfoil.models.transformers_files import ModelFiles

_MOST_BYTES = 1 << 23


def checked_chat(model: str, place: ModelFiles) -> CaptionerConfig:
    """The configuration of a chat model, in the form of a captioner's, without an image processor.

    UserError with all that is wrong with it.
    """
    document = read_config(place.folder / CONFIG, model, _MOST_BYTES)
    refuse_problems(model, [f"{CONFIG}: {problem}" for problem in _model_problems(document)])
    files, template, problems = tokenizer_files(model, place)
    if not template:
        problems.insert(0, "it has no chat template, so nobody can talk with it")
    special = special_ids(model, place, problems)
    refuse_problems(model, problems)
    model_type = document["model_type"]
    return CaptionerConfig(
        model_type=model_type,
        architecture=_known_models()[model_type],
        document={key: value for key, value in document.items() if key not in NOT_THE_MODELS},
        files=files,
        special=special,
        processor={},
        template=template,
    )


def _known_models() -> dict[str, str]:
    """transformers' models that go on with a text, by type, and the class of each."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    return {str(kind): one if isinstance(one, str) else one[0] for kind, one in NAMES.items()}


def _model_problems(document: Mapping[str, Any]) -> Iterator[str]:
    yield from kind_problems(document, _known_models(), "text model")
