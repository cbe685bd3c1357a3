"""Load captioners of any kind by name: `lab:NAME`, `local-dir:PATH`, or a model of the Hub,
`user/name[@revision]`.

captioner = load_captioner("lab:captioner")
captioner.captions(image, prefix="a photo of a", number=5)
sums, tokens = captioner.log_likelihoods(image, ["a photo of a sandal in the snow"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from counterfoil.models.captioners import of_chat, of_decoders
from counterfoil.models.captioners.captioner import Captioner, CaptionerAbout, CaptionExample
from counterfoil.models.messages import refusal
from counterfoil.models.text_models import (
    CAPTIONER_FILES,
    TextModelConfig,
    checked_captioner,
    load_text_model,
)
from counterfoil.models.transformers_files import ModelFiles, found_files

__all__ = [
    "CAPTIONER_KINDS",
    "CaptionExample",
    "Captioner",
    "CaptionerAbout",
    "describe_captioner",
    "load_captioner",
]

# Maps a configuration's model type to a loader, which gets what `load_text_model` returns. Other
# image-to-text models of transformers are loaded as chat models: they need a chat template, and
# only they take examples.
CAPTIONER_KINDS: Mapping[str, Callable[[dict[str, Any], TextModelConfig], Captioner]] = {
    "vision-encoder-decoder": of_decoders.load_of_two,
    "git": of_decoders.load_git,
    "blip": of_decoders.load_blip,
}


def describe_captioner(name: str) -> CaptionerAbout:
    """Read a captioner's facts from its configuration. Raise UserError with all problems, or
    RunFailure."""
    files, config = _configured(name)
    return CaptionerAbout(
        name=name,
        model_type=config.model_type,
        architecture=config.architecture,
        takes_examples=config.model_type not in CAPTIONER_KINDS,
        revision=None if files.repository is None else files.folder.name,
    )


def load_captioner(name: str, device: str = "cpu") -> Captioner:
    """Load a trained captioner in eval mode. Raise UserError if it is no captioner, RunFailure if
    it is unavailable."""
    files, config = _configured(name)
    parts = load_text_model(name, files, config, device)
    return CAPTIONER_KINDS.get(config.model_type, of_chat.load)(parts, config)


def _configured(name: str) -> tuple[ModelFiles, TextModelConfig]:
    if not name.strip():
        raise refusal("unknown-model.captioner")
    files = found_files(name, name, CAPTIONER_FILES)
    return files, checked_captioner(name, files, CAPTIONER_KINDS)
