"""What the kinds of captioners load alike: weights, tokenizer, image processor, and which tokens end a caption."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.captioners.captioner_config import CaptionerConfig, all_ids, first_id
from counterfoil.models.error_text import one_line
from counterfoil.models.loading_errors import told_in_words
from counterfoil.models.transformers_config import CONFIG
from counterfoil.models.transformers_files import (
    ModelFiles,
    as_configuration,
    image_processor_of,
    prepared_by,
    quiet,
    trained_module,
)
from counterfoil.models.weights_files import weights_sha256

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


@dataclass(frozen=True)
class LoadedParts:
    """A captioner's parts: the module in eval mode on its device, and what a `Captioner` of any kind is made of."""

    module: Any
    tokenizer: Any
    facts: dict[str, Any]


def loaded(name: str, place: ModelFiles, config: CaptionerConfig, device: str, what: str = "captioner") -> LoadedParts:
    """Module and tokenizer. UserError for files that are of no `what`, RunFailure where they cannot be read."""
    import transformers

    def read() -> Any:
        with quiet():
            described = as_configuration(name, config.model_type, config.document)
        hint = f"Name a {what} whose weights are whole, or correct its configuration."
        return trained_module(name, place, getattr(transformers, config.architecture), described, hint=hint)

    module: Any = told_in_words(name, read)
    module.eval().requires_grad_(False)
    tokenizer = tokenizer_of(name, config)
    facts = {
        "name": name,
        "model_type": config.model_type,
        "architecture": config.architecture,
        "sha256": weights_sha256(f"{config.architecture}\n{config.text()}", module.state_dict()),
        "device": device,
    }
    return LoadedParts(told_in_words(name, lambda: module.to(device)), tokenizer, facts)


def tokenizer_of(name: str, config: CaptionerConfig) -> Any:
    """The tokenizer of the checked files. UserError where none can be made of them."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    with files_alone(config) as folder, quiet():
        try:
            # A model that is made of two has no tokenizer of its own: the file says all.
            if "tokenizer_class" not in json.loads(config.files.get("tokenizer_config.json", b"{}")):
                return PreTrainedTokenizerFast.from_pretrained(folder)
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # whatever files of any content make it raise
            raise UserError(f"model {name!r}: no tokenizer can be made of its files: {one_line(error)}") from error


@contextlib.contextmanager
def files_alone(config: CaptionerConfig) -> Iterator[Path]:
    """A folder with the checked files and nothing else, for as long as transformers reads them."""
    with tempfile.TemporaryDirectory() as folder:
        for file, content in config.files.items():
            (Path(folder) / file).write_bytes(content)
        document = config.document | {"model_type": config.model_type}
        (Path(folder) / CONFIG).write_text(json.dumps(document), encoding="utf-8")
        yield Path(folder)


@dataclass(frozen=True)
class ImagePreparation:
    """A captioner's image processor. Equal keys mean equal tensors."""

    name: str
    processor: Any
    device: str

    @property
    def key(self) -> str:
        return form_key({"processor": type(self.processor).__name__, **self.processor.to_dict()})

    def pixels(self, image: Image) -> torch.Tensor:
        """One image as float [1, C, H, W]. UserError for an image that the processor cannot take."""
        return prepared_by(self.name, self.processor)(image.convert("RGB")).unsqueeze(0).to(self.device)


def preparation_of(name: str, config: CaptionerConfig, of_model: Any, device: str) -> ImagePreparation:
    """The image processor of the folder's own settings. UserError where none can be made of them."""
    return ImagePreparation(name, image_processor_of(name, config.processor, of_model), device)


def form_key(form: Any) -> str:
    """What settings say, with the version of what reads them."""
    return f"transformers {version('transformers')} {json.dumps(form, sort_keys=True, default=str)}"


def ends_of(name: str, *places: Any) -> tuple[int, ...]:
    """The tokens that end a caption: of the first place that tells any. UserError where none does."""
    found = all_ids(*places)
    if not found:
        raise UserError(
            f"model {name!r}: nothing says which token ends a caption",
            "Give its eos_token_id in config.json or generation_config.json.",
        )
    return found


def start_of(name: str, *places: Any) -> int:
    """The token before the first of a caption. UserError where no place tells it."""
    found = first_id(*places)
    if found is None:
        raise UserError(
            f"model {name!r}: nothing says which token stands before a caption",
            "Give its decoder_start_token_id or bos_token_id in config.json.",
        )
    return found


def never_of(tokenizer: Any, ends: tuple[int, ...], words: int, *more: int | None) -> tuple[int, ...]:
    """Special tokens that are no ends, and `more`: a caption that draws one says what cannot be read."""
    added = (one for one, token in tokenizer.added_tokens_decoder.items() if token.special)
    special = {one for one in (*tokenizer.all_special_ids, *added, *more) if one is not None and 0 <= one < words}
    return tuple(sorted(special - set(ends)))
