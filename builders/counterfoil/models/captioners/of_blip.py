"""BLIP: a vision transformer, and a BERT that attends to what it saw and is read as a decoder (Li 2022)."""

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


@dataclass(frozen=True, kw_only=True)
class BlipCaptioner(Captioner):
    """Captions begin behind `start`, no token of the tokenizer's; the vision transformer runs once an image."""

    preparation: ImagePreparation
    start: int

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        told = self.module.vision_model(pixel_values=self.preparation.pixels(image)).last_hidden_state
        out = self._decoded(torch.tensor([[self.start]], device=self.device), told, None)
        return SeenImage(out.logits[0, -1], out.past_key_values, told)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        return self._decoded(ids, seen.more.expand(len(ids), -1, -1), cache).logits

    def _decoded(self, ids: torch.Tensor, told: torch.Tensor, cache: Any) -> Any:
        return self.module.text_decoder(
            input_ids=ids, encoder_hidden_states=told, past_key_values=cache, use_cache=True, is_decoder=True
        )


def load(name: str, files: ModelFiles, config: CaptionerConfig, device: str) -> BlipCaptioner:
    """The captioner on `device`. Raises as `loading.loaded`."""
    parts = loaded(name, files, config, device)
    settings, tokenizer = parts.module.config.text_config, parts.tokenizer
    # As BLIP itself generates: its own token before a caption, and BERT's separator behind it.
    start = start_of(name, settings.bos_token_id)
    ends = ends_of(name, settings.sep_token_id)
    preparation = preparation_of(name, config, parts.module.config, device)
    return BlipCaptioner(
        **parts.facts,
        module=parts.module,
        tokenizer=tokenizer,
        ends=ends,
        longest=settings.max_position_embeddings,
        never=never_of(tokenizer, ends, settings.vocab_size, start),
        input_key=preparation.key,
        preparation=preparation,
        start=start,
    )
