"""The text side of a pipeline with a few places for new tokens: from template to what the UNet is told, with gradients.

The places are rows behind the frozen embedding table, added once; the table itself is never resized or copied.
Works for one text encoder (Stable Diffusion 1.x, 2.x) and for two (XL).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from counterfoil.models.trials import refuse_unknown_ids
from counterfoil.recipe.prompts import fill


class _RowsBehind(nn.Module):
    """An embedding table with rows of our own behind its ids; only the rows carry a gradient."""

    def __init__(self, table: nn.Module, first_id: int) -> None:
        super().__init__()
        self.table: Any = table
        self.first_id = first_id
        self.rows: torch.Tensor | None = None

    @property
    def weight(self) -> torch.Tensor:
        return self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        new = ids >= self.first_id
        known = self.table(ids.masked_fill(new, 0))
        if self.rows is None:
            return known
        behind = F.embedding((ids - self.first_id).clamp(min=0), self.rows).to(known.dtype)
        return torch.where(new.unsqueeze(-1), behind, known)


class TextSide:
    """One or two tokenizers and text encoders of a pipeline, with `slots` × `vectors` places for class tokens."""

    def __init__(self, pipeline: Any, slots: int, vectors: int) -> None:
        self.slots, self.vectors = slots, vectors
        self._model = str(getattr(pipeline, "name_or_path", None) or type(pipeline).__name__)
        self.parts: list[tuple[Any, Any]] = []
        self.tables: list[_RowsBehind] = []
        for suffix in ("", "_2"):
            encoder = getattr(pipeline, f"text_encoder{suffix}", None)
            if encoder is not None:
                self._add(getattr(pipeline, f"tokenizer{suffix}"), encoder)
        self.pooled = len(self.parts) == 2
        self._ids: dict[str, list[torch.Tensor]] = {}

    def _add(self, tokenizer: Any, encoder: Any) -> None:
        places = [f"<place-{number}>" for number in range(self.slots * self.vectors)]
        tokenizer.add_tokens(places)
        ids = tokenizer.convert_tokens_to_ids(places)
        if ids != list(range(ids[0], ids[0] + len(ids))):
            raise ValueError("the tokenizer did not give new tokens consecutive ids")
        table = _RowsBehind(encoder.get_input_embeddings(), ids[0])
        encoder.set_input_embeddings(table)
        self.parts.append((tokenizer, encoder))
        self.tables.append(table)

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each encoder's embeddings."""
        return tuple(table.weight.shape[1] for table in self.tables)

    def mean_of_words(self, words: str) -> list[torch.Tensor]:
        """For each encoder the mean embedding [width] of the words' sub-tokens. ValueError where there is none.

        RunFailure, here and for templates, for a sub-token that the encoder has no embedding of.
        """
        means = []
        for (tokenizer, _), table in zip(self.parts, self.tables, strict=True):
            ids = tokenizer(words, add_special_tokens=False)["input_ids"]
            if not ids:
                raise ValueError(f"'{words}' tokenises to nothing")
            refuse_unknown_ids(self._model, torch.tensor(ids), len(table.weight))
            means.append(table.weight[torch.tensor(ids, device=table.weight.device)].detach().float().mean(0))
        return means

    def ids_of(self, template: str, slot: int) -> list[torch.Tensor]:
        """Token ids [length] of a template with the tokens of a slot in its gap, for each encoder."""
        if template not in self._ids:
            text = fill(template, " ".join(f"<place-{number}>" for number in range(self.vectors)))
            found = [self._tokenise(tokenizer, text) for tokenizer, _ in self.parts]
            for ids, table in zip(found, self.tables, strict=True):
                refuse_unknown_ids(self._model, ids[ids < table.first_id], len(table.weight))
            self._ids[template] = found
        moved = []
        for ids, table in zip(self._ids[template], self.tables, strict=True):
            moved.append(torch.where(ids >= table.first_id, ids + slot * self.vectors, ids))
        return moved

    @staticmethod
    def _tokenise(tokenizer: Any, text: str) -> torch.Tensor:
        length = tokenizer.model_max_length
        out = tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        return out.input_ids[0]

    def encode(
        self, ids: Sequence[torch.Tensor], rows: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the UNet is told: states [n, length, width] and, for two encoders, the pooled text [n, width].

        `ids`: for each encoder [n, length]; `rows`: for each encoder [slots · vectors, width], with gradient.
        The layers read are those of diffusers' own `encode_prompt`.
        """
        states, pooled = [], None
        for (_, encoder), table, numbers, own in zip(self.parts, self.tables, ids, rows, strict=True):
            table.rows = own
            if self.pooled:
                out = encoder(numbers, output_hidden_states=True)
                states.append(out.hidden_states[-2])
                pooled = out[0]
            else:
                states.append(encoder(numbers)[0])
            table.rows = None
        return torch.cat(states, -1), pooled
