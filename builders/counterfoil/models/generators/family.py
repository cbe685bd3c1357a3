"""What a family of pipelines says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

# What a call of a pipeline takes for image embeddings [batch, width], and whether guidance also draws without them.
Conditioned = Callable[["torch.Tensor", bool], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """Pipelines of diffusers that are driven alike.

    name: as people call them. pipelines: their classes, as model_index.json names them. embeddings: what their
    `encode_prompt` returns, in order, by the names under which a call takes it; none where there is no prompt.
    takes: how image embeddings come in: by an `adapter`, or by the model, which then needs one for `every` sample; None
    where they do not. conditioned: what a call takes for them. width: the embedding's width by the UNet's
    configuration, where the model takes it. output: what a call is asked for.
    """

    name: str
    pipelines: tuple[str, ...]
    embeddings: tuple[str, ...]
    takes: Literal["adapter", "every"] | None = None
    conditioned: Conditioned | None = None
    width: Callable[[Mapping[str, Any]], Any] | None = None
    output: Literal["pt", "np"] = "pt"

    @property
    def prompted(self) -> bool:
        """Whether a prompt says anything to these pipelines."""
        return bool(self.embeddings)


def by_adapter(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    """What pipelines with an IP-Adapter take: one embedding an image, after zeros for what guidance leads away from."""
    import torch

    each = vectors[:, None]
    return {"ip_adapter_image_embeds": [torch.cat([torch.zeros_like(each), each]) if guided else each]}
