"""How much of a prompt CLIP's text encoders read: what is longer, a pipeline cuts away without a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.models.config_files import read_config
from counterfoil.models.diffusion import configurations, load_tokenizers
from counterfoil.models.pipeline_config import INDEX


@dataclass(frozen=True, slots=True)
class PromptLength:
    """The tokenizers of a pipeline that reads its prompts by CLIP alone."""

    tokenizers: tuple[Any, ...]

    @property
    def most(self) -> int:
        """The most tokens, with those of the beginning and the end, that each of them leaves."""
        return min(tokenizer.model_max_length for tokenizer in self.tokenizers)

    def fits(self, prompts: Sequence[str]) -> bool:
        """Whether every prompt is read to its end."""
        return all(
            len(ids) <= tokenizer.model_max_length
            for tokenizer in self.tokenizers
            for ids in tokenizer(list(prompts), truncation=False, verbose=False)["input_ids"]
        )


def prompt_length(name: str, revision: str | None) -> PromptLength | None:
    """What a pipeline reads of a prompt, by its tokenizers and without weights; None where not CLIP alone reads it.

    Others, such as T5, read hundreds of tokens. Raises as `load_tokenizers`.
    """
    index = read_config(configurations(name, revision) / INDEX, name)
    parts = [value for part, value in index.items() if part.startswith("text_encoder") and value[1] is not None]
    if not parts or not all(str(value[1]).startswith("CLIP") for value in parts):
        return None
    return PromptLength(tuple(load_tokenizers(name, revision)))
