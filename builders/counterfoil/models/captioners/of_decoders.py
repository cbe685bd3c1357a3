"""Write captions with BLIP, GIT and vision encoder-decoder models. Captions follow a start
token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.captioners.captioner import Captioner, CaptionExample, SeenImage
from counterfoil.models.text_models import (
    TextModelConfig,
    ends_of,
    never_of,
    start_of,
)
from counterfoil.models.transformers_files import (
    image_processor_of,
    input_key_of,
    prepared_by,
)

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

# Model types whose position tables begin after the row of the padding token.
_OFFSET_POSITIONS = frozenset(
    {"camembert", "roberta", "xlm-roberta", "xlm-roberta-xl", "data2vec-text"}
)


@dataclass(frozen=True, kw_only=True)
class DecoderCaptioner(Captioner):
    """A decoder that attends to an encoder's states of an image. Captions follow the token
    `start`."""

    processor: Any
    start: int

    def _pixels(self, image: Image) -> torch.Tensor:
        prepare = prepared_by(self.name, self.processor)
        pixels = prepare(image.convert("RGB"))
        return pixels.unsqueeze(0).to(self.device)

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        states = self._encoded(self._pixels(image))
        start = torch.tensor([[self.start]], device=self.device)
        out = self._decoded(start, states, None)
        return SeenImage(out.logits[0, -1], out.past_key_values, states)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        return self._decoded(ids, seen.more.expand(len(ids), -1, -1), cache).logits

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the encoder's last hidden state of an image [1, C, H, W]."""
        raise NotImplementedError

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        """Return the decoder's output for ids [rows, width], with scores and cache."""
        raise NotImplementedError


def _captioner(
    kind: type[DecoderCaptioner],
    parts: dict[str, Any],
    config: TextModelConfig,
    settings: Any,
    start: Sequence[Any],
    ends: Sequence[Any],
    encoder: Any = None,
) -> DecoderCaptioner:
    """Make a captioner. parts: from `load_text_model`. settings: those of its decoder. start, ends:
    the settings that may hold their tokens' ids. encoder: its configuration, if it is a model of
    its own."""
    name = parts["name"]
    of_model = parts["module"].config if encoder is None else encoder
    first = start_of(name, *start)
    last = ends_of(name, *ends)
    longest = getattr(settings, "max_position_embeddings", None)
    if longest is not None and settings.model_type in _OFFSET_POSITIONS:
        longest -= (settings.pad_token_id or 0) + 1
    processor = image_processor_of(name, config, of_model)
    return kind(
        **parts,
        ends=last,
        longest=longest,
        never=never_of(parts["tokenizer"], last, settings.vocab_size, first),
        input_key=input_key_of(processor),
        processor=processor,
        start=first,
    )


class BlipCaptioner(DecoderCaptioner):
    """BLIP: a vision transformer, and a BERT decoder that attends to its states (Li 2022)."""

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.module.vision_model(pixel_values=pixels).last_hidden_state

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        return self.module.text_decoder(
            input_ids=ids,
            encoder_hidden_states=states,
            past_key_values=cache,
            use_cache=True,
            is_decoder=True,
        )


def load_blip(parts: dict[str, Any], config: TextModelConfig) -> DecoderCaptioner:
    settings = parts["module"].config.text_config
    # The start and end tokens of BLIP's own `generate`.
    return _captioner(
        BlipCaptioner, parts, config, settings, [settings.bos_token_id], [settings.sep_token_id]
    )


class GitCaptioner(DecoderCaptioner):
    """GIT: one decoder that reads an image's patches like words before a caption (Wang 2022)."""

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        start = torch.tensor([[self.start]], device=self.device)
        out = self.module(input_ids=start, pixel_values=self._pixels(image), use_cache=True)
        return SeenImage(out.logits[0, -1], out.past_key_values)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        import torch

        # Positions count words only; by default the model would count the patches in the cache too.
        positions = torch.arange(1 + done, 1 + done + ids.shape[1], device=self.device)[None]
        return self.module(
            input_ids=ids, past_key_values=cache, position_ids=positions, use_cache=True
        ).logits


def load_git(parts: dict[str, Any], config: TextModelConfig) -> DecoderCaptioner:
    settings = parts["module"].config
    tokenizer = parts["tokenizer"]
    special = config.special
    start = [tokenizer.cls_token_id, special.get("bos_token_id"), settings.bos_token_id]
    ends = [tokenizer.sep_token_id, special.get("eos_token_id"), settings.eos_token_id]
    return _captioner(GitCaptioner, parts, config, settings, start, ends)


class VisionEncoderDecoderCaptioner(DecoderCaptioner):
    """A vision encoder, and a language model that attends to its states, as in TrOCR and in the
    lab's captioner."""

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.module.encoder(pixel_values=pixels, return_dict=True).last_hidden_state

    def _decoded(self, ids: torch.Tensor, states: torch.Tensor, cache: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return self.module(
            decoder_input_ids=ids,
            # The annotation in transformers 5.20 is too narrow.
            encoder_outputs=BaseModelOutput(last_hidden_state=states),  # pyrefly: ignore[bad-argument-type]
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
        )

    def _tokens(self, text: str) -> list[int]:
        """Tokenize as in training: with the tokenizer's special tokens, except the start and the
        ends."""
        if not text:
            return []
        ids = list(self.tokenizer(text, split_special_tokens=True)["input_ids"])
        if ids and ids[0] == self.start:
            ids = ids[1:]
        while ids and ids[-1] in self.ends:
            ids.pop()
        return ids


def load_of_two(parts: dict[str, Any], config: TextModelConfig) -> DecoderCaptioner:
    document = config.document
    decoder = document["decoder"]
    tokenizer = parts["tokenizer"]
    special = config.special
    of_model = parts["module"].config
    start = [
        special.get("decoder_start_token_id"),
        document.get("decoder_start_token_id"),
        decoder.get("decoder_start_token_id"),
        special.get("bos_token_id"),
        decoder.get("bos_token_id"),
        tokenizer.bos_token_id,
        tokenizer.cls_token_id,
    ]
    ends = [ids.get("eos_token_id") for ids in (special, document, decoder)]
    ends.append(tokenizer.eos_token_id)
    return _captioner(
        VisionEncoderDecoderCaptioner,
        parts,
        config,
        of_model.decoder,
        start,
        ends,
        of_model.encoder,
    )
