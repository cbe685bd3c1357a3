"""Captioners that show a decoder one image: BLIP, GIT, and models that are made of two.

What a caption begins behind is a token of no text; an image is encoded once, whatever is asked about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.models.captioners.captioner import Captioner, CaptionExample, SeenImage
from counterfoil.models.text_models import (
    TextModelConfig,
    ends_of,
    loaded,
    never_of,
    start_of,
)
from counterfoil.models.transformers_files import ModelFiles, image_processor_of, input_key_of, prepared_by

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# Their position tables begin behind the padding's row.
_OFFSET_POSITIONS = frozenset({"camembert", "roberta", "xlm-roberta", "xlm-roberta-xl", "data2vec-text"})


@dataclass(frozen=True, kw_only=True)
class DecoderCaptioner(Captioner):
    """A decoder that attends to the encoder's states of an image, computed once; captions begin behind `start`.

    `processor` is transformers' image processor.
    """

    processor: Any
    start: int

    def _pixels(self, image: Image) -> torch.Tensor:
        """One image as float [1, C, H, W]. UserError for an image that the processor cannot take."""
        return prepared_by(self.name, self.processor)(image.convert("RGB")).unsqueeze(0).to(self.device)

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        states = self._encoded(self._pixels(image))
        out = self._decoded(torch.tensor([[self.start]], device=self.device), states, None)
        return SeenImage(out.logits[0, -1], out.past_key_values, states)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        return self._decoded(ids, seen.more.expand(len(ids), -1, -1), cache).logits

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        """What the encoder makes of an image [1, C, H, W]: its last hidden state."""
        raise NotImplementedError

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        """What the decoder makes of ids [rows, width], with its scores and its cache."""
        raise NotImplementedError


Kind = TypeVar("Kind", bound=DecoderCaptioner)


def _captioner(
    kind: type[Kind],
    parts: dict[str, Any],
    config: TextModelConfig,
    *,
    of_model: Any,
    start: int,
    ends: tuple[int, ...],
    longest: int | None,
    words: int,
) -> Kind:
    """A captioner of what `loaded` gives. of_model: the encoder's configuration; words: how many tokens it knows."""
    processor = image_processor_of(parts["name"], config.processor, of_model)
    return kind(
        **parts,
        ends=ends,
        longest=longest,
        never=never_of(parts["tokenizer"], ends, words, start),
        input_key=input_key_of(processor),
        processor=processor,
        start=start,
    )


class BlipCaptioner(DecoderCaptioner):
    """BLIP: a vision transformer, and a BERT that attends to what it saw and is read as a decoder (Li 2022)."""

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.module.vision_model(pixel_values=pixels).last_hidden_state

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        return self.module.text_decoder(
            input_ids=ids, encoder_hidden_states=states, past_key_values=cache, use_cache=True, is_decoder=True
        )


def load_blip(name: str, files: ModelFiles, config: TextModelConfig, device: str) -> BlipCaptioner:
    """The captioner on `device`. Raises as `text_models.loaded`."""
    parts = loaded(name, files, config, device)
    of_model = parts["module"].config
    settings = of_model.text_config
    return _captioner(
        BlipCaptioner,
        parts,
        config,
        of_model=of_model,
        # As BLIP itself generates: its own token before a caption, and BERT's separator behind it.
        start=start_of(name, settings.bos_token_id),
        ends=ends_of(name, settings.sep_token_id),
        longest=settings.max_position_embeddings,
        words=settings.vocab_size,
    )


class GitCaptioner(DecoderCaptioner):
    """GIT: one decoder that reads an image's patches as if they were the words before a caption (Wang 2022)."""

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        begun = torch.tensor([[self.start]], device=self.device)
        out = self.module(input_ids=begun, pixel_values=self._pixels(image), use_cache=True)
        return SeenImage(out.logits[0, -1], out.past_key_values)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        import torch

        # Places are counted among the words; the model itself would count the patches too.
        places = torch.arange(1 + done, 1 + done + ids.shape[1], device=self.device)[None]
        return self.module(input_ids=ids, past_key_values=cache, position_ids=places, use_cache=True).logits


def load_git(name: str, files: ModelFiles, config: TextModelConfig, device: str) -> GitCaptioner:
    """The captioner on `device`. Raises as `text_models.loaded`."""
    parts = loaded(name, files, config, device)
    settings, tokenizer, special = parts["module"].config, parts["tokenizer"], config.special
    return _captioner(
        GitCaptioner,
        parts,
        config,
        of_model=settings,
        start=start_of(name, tokenizer.cls_token_id, special.get("bos_token_id"), settings.bos_token_id),
        ends=ends_of(name, tokenizer.sep_token_id, special.get("eos_token_id"), settings.eos_token_id),
        longest=settings.max_position_embeddings,
        words=settings.vocab_size,
    )


class VisionEncoderDecoderCaptioner(DecoderCaptioner):
    """A vision encoder, and a language model that attends to what it saw (TrOCR's form): the smallest kind to train.

    The lab's captioner is one.
    """

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.module.encoder(pixel_values=pixels, return_dict=True).last_hidden_state

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return self.module(
            decoder_input_ids=ids,
            # What transformers 5.20 annotates is narrower.
            encoder_outputs=BaseModelOutput(last_hidden_state=states),  # pyrefly: ignore[bad-argument-type]
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
        )

    def _tokens(self, text: str) -> list[int]:
        """With what the tokenizer puts around a text, which such models are trained to say, but for start and ends."""
        if not text:
            return []
        ids = list(self.tokenizer(text, split_special_tokens=True)["input_ids"])
        if ids and ids[0] == self.start:
            ids = ids[1:]
        while ids and ids[-1] in self.ends:
            ids.pop()
        return ids


def load_of_two(name: str, files: ModelFiles, config: TextModelConfig, device: str) -> VisionEncoderDecoderCaptioner:
    """The captioner on `device`. Raises as `text_models.loaded`."""
    parts = loaded(name, files, config, device)
    document, decoder = config.document, config.document["decoder"]
    tokenizer, special, of_model = parts["tokenizer"], config.special, parts["module"].config
    settings = of_model.decoder
    positions = getattr(settings, "max_position_embeddings", None)
    if positions is not None and settings.model_type in _OFFSET_POSITIONS:
        positions -= (settings.pad_token_id or 0) + 1
    return _captioner(
        VisionEncoderDecoderCaptioner,
        parts,
        config,
        of_model=of_model.encoder,
        start=start_of(
            name,
            special.get("decoder_start_token_id"),
            document.get("decoder_start_token_id"),
            decoder.get("decoder_start_token_id"),
            special.get("bos_token_id"),
            decoder.get("bos_token_id"),
            tokenizer.bos_token_id,
            tokenizer.cls_token_id,
        ),
        ends=ends_of(
            name,
            special.get("eos_token_id"),
            document.get("eos_token_id"),
            decoder.get("eos_token_id"),
            tokenizer.eos_token_id,
        ),
        longest=positions,
        words=settings.vocab_size,
    )
