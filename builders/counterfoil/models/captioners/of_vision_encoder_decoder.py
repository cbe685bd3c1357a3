"""Captioners that are made of two: a vision encoder, and a language model that attends to what it saw (TrOCR's form).

The smallest kind to train; the lab's captioner is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.captioners.captioner import Captioner, CaptionExample, SeenImage
from counterfoil.models.captioners.captioner_config import CaptionerConfig
from counterfoil.models.captioners.loading import ImagePreparation, ends_of, loaded, never_of, preparation_of, start_of
from counterfoil.models.transformers_files import ModelFiles

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

TAKES_EXAMPLES: bool = False
# Their position tables begin behind the padding's row.
_OFFSET_POSITIONS = frozenset({"camembert", "roberta", "xlm-roberta", "xlm-roberta-xl", "data2vec-text"})


@dataclass(frozen=True, kw_only=True)
class VisionEncoderDecoderCaptioner(Captioner):
    """Captions begin behind `start`, a token of no text; the encoder runs once an image."""

    preparation: ImagePreparation
    start: int

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        told = self.module.encoder(pixel_values=self.preparation.pixels(image), return_dict=True).last_hidden_state
        begun = torch.tensor([[self.start]], device=self.device)
        out = self._decoded(begun, told, None)
        return SeenImage(out.logits[0, -1], out.past_key_values, told)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        return self._decoded(ids, seen.more.expand(len(ids), -1, -1), cache).logits

    def _decoded(self, ids: torch.Tensor, told: torch.Tensor, cache: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return self.module(
            decoder_input_ids=ids,
            # What transformers 5.20 annotates is narrower.
            encoder_outputs=BaseModelOutput(last_hidden_state=told),  # pyrefly: ignore[bad-argument-type]
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


def load(name: str, files: ModelFiles, config: CaptionerConfig, device: str) -> VisionEncoderDecoderCaptioner:
    """The captioner on `device`. Raises as `loading.loaded`."""
    parts = loaded(name, files, config, device)
    document, decoder = config.document, config.document["decoder"]
    tokenizer, special = parts.tokenizer, config.special
    start = start_of(
        name,
        special.get("decoder_start_token_id"),
        document.get("decoder_start_token_id"),
        decoder.get("decoder_start_token_id"),
        special.get("bos_token_id"),
        decoder.get("bos_token_id"),
        tokenizer.bos_token_id,
        tokenizer.cls_token_id,
    )
    ends = ends_of(
        name, special.get("eos_token_id"), document.get("eos_token_id"), decoder.get("eos_token_id"),
        tokenizer.eos_token_id,
    )  # fmt: skip
    settings = parts.module.config.decoder
    positions = getattr(settings, "max_position_embeddings", None)
    if positions is not None and settings.model_type in _OFFSET_POSITIONS:
        positions -= (settings.pad_token_id or 0) + 1
    preparation = preparation_of(name, config, parts.module.config.encoder, device)
    return VisionEncoderDecoderCaptioner(
        **parts.facts,
        module=parts.module,
        tokenizer=tokenizer,
        ends=ends,
        longest=positions,
        never=never_of(tokenizer, ends, settings.vocab_size, start),
        input_key=preparation.key,
        preparation=preparation,
        start=start,
    )
