"""Captioners of any kind, loaded by name. A kind is a loader and one line in `CAPTIONER_KINDS`.

    captioner = load_captioner("lab:captioner")
    captioner.captions(image, prefix="a photo of a", number=5)
    sums, tokens = captioner.log_likelihoods(image, ["a photo of a sandal in the snow"])

A name is `lab:NAME`, `local-dir:PATH`, or one of the Hub, `user/name[@revision]`. Configurations are judged before
weights are fetched; weights are safetensors, and no code of an author runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from counterfoil.errors import UserError
from counterfoil.models.captioners import of_chat, of_decoders
from counterfoil.models.captioners.captioner import Captioner, CaptionerAbout, CaptionExample
from counterfoil.models.text_models import CAPTIONER_FILES, TextModelConfig, checked_captioner
from counterfoil.models.transformers_files import ModelFiles, found_files

__all__ = ["CAPTIONER_KINDS", "CaptionExample", "Captioner", "CaptionerAbout", "describe_captioner", "load_captioner"]

# A model's type, as its configuration tells it → what loads it. Any other that transformers makes text of images with
# is taken as a chat model, where it has a chat template: it alone takes examples.
CAPTIONER_KINDS: Mapping[str, Callable[[str, ModelFiles, TextModelConfig, str], Captioner]] = {
    "vision-encoder-decoder": of_decoders.load_of_two,
    "git": of_decoders.load_git,
    "blip": of_decoders.load_blip,
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
        takes_examples=config.model_type not in CAPTIONER_KINDS,
        revision=None if place.repository is None else place.folder.name,
    )


def load_captioner(name: str, device: str = "cpu") -> Captioner:
    """The trained captioner called `name` on `device`, in eval mode, its parameters without gradients, in float32.

    Raises UserError for a name or folder that cannot be a captioner, RunFailure when it cannot be fetched or its
    weights cannot be read.
    """
    place, config = _configured(name)
    return CAPTIONER_KINDS.get(config.model_type, of_chat.load)(name, place, config, device)


def _configured(name: str) -> tuple[ModelFiles, TextModelConfig]:
    if not name.strip():
        raise UserError("a captioner has no name", "Name lab:captioner, local-dir:PATH, or one of the Hub.")
    place = found_files(name, name, CAPTIONER_FILES)
    return place, checked_captioner(name, place, CAPTIONER_KINDS)
