"""The next token of a caption: the likeliest, or one drawn from the few that share most of the probability."""

from __future__ import annotations

import torch

# Holtzman 2020, section 3.1: the smallest set of tokens that has this share of the probability.
TOP_P = 0.9


def chosen_token(scores: torch.Tensor, chance: torch.Generator | None) -> int:
    """A token by its scores [vocabulary] on the CPU: the likeliest, or with a generator a drawn one."""
    if chance is None:
        return int(scores.argmax())
    shares, tokens = torch.softmax(scores.double(), dim=-1).sort(descending=True, stable=True)
    reached = shares.cumsum(0)
    # The token by which the share is reached is among them.
    kept = int((reached < TOP_P).sum()) + 1
    drawn = torch.rand((), generator=chance, dtype=torch.float64) * reached[min(kept, len(reached)) - 1]
    return int(tokens[min(int(torch.searchsorted(reached, drawn, right=True)), kept - 1)])
