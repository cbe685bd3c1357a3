"""GIT: one decoder that reads an image's patches as if they were the words before a caption (Wang 2022)."""

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
class GitCaptioner(Captioner):
    """Captions begin behind `start`; patches and start are read once an image."""

    preparation: ImagePreparation
    start: int

    def _seen(self, image: Image, examples: Sequence[CaptionExample]) -> SeenImage:
        import torch

        begun = torch.tensor([[self.start]], device=self.device)
        out = self.module(input_ids=begun, pixel_values=self.preparation.pixels(image), use_cache=True)
        return SeenImage(out.logits[0, -1], out.past_key_values)

    def _went_on(self, seen: SeenImage, cache: Any, ids: torch.Tensor, done: int) -> torch.Tensor:
        import torch

        # Places are counted among the words; the model itself would count the patches too.
        places = torch.arange(1 + done, 1 + done + ids.shape[1], device=self.device)[None]
        return self.module(input_ids=ids, past_key_values=cache, position_ids=places, use_cache=True).logits


def load(name: str, files: ModelFiles, config: CaptionerConfig, device: str) -> GitCaptioner:
    """The captioner on `device`. Raises as `loading.loaded`."""
    parts = loaded(name, files, config, device)
    settings, tokenizer = parts.module.config, parts.tokenizer
    start = start_of(name, tokenizer.cls_token_id, config.special.get("bos_token_id"), settings.bos_token_id)
    ends = ends_of(name, tokenizer.sep_token_id, config.special.get("eos_token_id"), settings.eos_token_id)
    preparation = preparation_of(name, config, settings, device)
    return GitCaptioner(
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
