"""Ids of tokens against the tables that they are looked up in, before they are.

A tokenizer and a text encoder of one folder need not belong together: a tokenizer may give an id that the encoder's
table has no row for. On a CPU that is an error of the look-up. On a GPU it is an assertion that leaves the device
useless for the rest of the process, so it is asked first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from counterfoil.errors import RunFailure


def refuse_unknown_ids(model: str, ids: torch.Tensor, rows: int) -> None:
    """RunFailure for an id of `ids` (any shape, whole numbers) that a table with so many rows does not have."""
    if not ids.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low < 0 or high >= rows:
        raise RunFailure(
            f"model '{model}': its tokenizer gives the id {low if low < 0 else high}, and its text encoder has"
            f" {rows:,} embeddings",
            "Tokenizer and text encoder are not of one model: correct its folder, or name another model.",
        )


@contextlib.contextmanager
def ids_in_bounds(model: str, *modules: Any) -> Iterator[None]:
    """While this is open, every embedding table in the modules refuses ids that it does not have, as above."""

    def look(table: torch.nn.Embedding, arguments: tuple[Any, ...]) -> None:
        if arguments and isinstance(arguments[0], torch.Tensor):
            refuse_unknown_ids(model, arguments[0], table.num_embeddings)

    tables = {each for module in modules for each in module.modules() if isinstance(each, torch.nn.Embedding)}
    hooks = [table.register_forward_pre_hook(look) for table in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
