"""Captioners of any kind, loaded by name. One file a kind and one line in `CAPTIONER_KINDS`.

    captioner = load_captioner("lab:captioner")
    captioner.captions(image, prefix="a photo of a", number=5)
    sums, tokens = captioner.log_likelihoods(image, ["a photo of a sandal in the snow"])

A name is `lab:NAME`, `local-dir:PATH`, or one of the Hub, `user/name[@revision]`. Configurations are judged before
weights are fetched; weights are safetensors, and no code of an author runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from counterfoil.errors import UserError
from counterfoil.models.captioners import of_blip, of_chat, of_git, of_vision_encoder_decoder
from counterfoil.models.captioners.captioner import Captioner, CaptionerAbout, CaptionExample
from counterfoil.models.captioners.captioner_config import CAPTIONER_FILES, CaptionerConfig, checked_captioner
from counterfoil.models.transformers_files import ModelFiles, found_files

__all__ = ["CAPTIONER_KINDS", "CaptionExample", "Captioner", "CaptionerAbout", "describe_captioner", "load_captioner"]


class CaptionerKind(Protocol):
    """What a kind's module offers."""

    TAKES_EXAMPLES: bool

    def load(self, name: str, files: ModelFiles, config: CaptionerConfig, device: str) -> Captioner: ...


# A model's type, as its configuration tells it → its kind. Any other that transformers makes text of images with is
# taken as a chat model, where it has a chat template.
CAPTIONER_KINDS: Mapping[str, CaptionerKind] = {
    "vision-encoder-decoder": of_vision_encoder_decoder,
    "git": of_git,
    "blip": of_blip,
}


def describe_captioner(name: str) -> CaptionerAbout:
    """What the captioner called `name` says of itself, without its weights.

    Raises UserError for a name that is none, and with all that is wrong with a configuration; RunFailure where it
    cannot be fetched.
    """
    place, config = _configured(name)
    return CaptionerAbout(
        name=name,
        model_type=config.model_type,
        architecture=config.architecture,
        takes_examples=_kind_of(config).TAKES_EXAMPLES,
        revision=None if place.repository is None else place.folder.name,
    )


def load_captioner(name: str, device: str = "cpu") -> Captioner:
    """The trained captioner called `name` on `device`, in eval mode, its parameters without gradients, in float32.

    Raises UserError for a name or folder that cannot be a captioner, RunFailure when it cannot be fetched or its
    weights cannot be read.
    """
    place, config = _configured(name)
    return _kind_of(config).load(name, place, config, device)


def _configured(name: str) -> tuple[ModelFiles, CaptionerConfig]:
    if not name.strip():
        raise UserError("a captioner has no name", "Name lab:captioner, local-dir:PATH, or one of the Hub.")
    place = found_files(name, name, CAPTIONER_FILES)
    return place, checked_captioner(name, place, CAPTIONER_KINDS)


def _kind_of(config: CaptionerConfig) -> CaptionerKind:
    return CAPTIONER_KINDS.get(config.model_type, of_chat)
