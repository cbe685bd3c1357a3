"""What a family of pipelines says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Pipelines of diffusers that are driven alike.

    name: as people call them. pipelines: their classes, as model_index.json names them. embeddings: what their
    `encode_prompt` returns, in order, by the names under which a call takes it.
    """

    name: str
    pipelines: tuple[str, ...]
    embeddings: tuple[str, ...]
