"""Tokens are drawn from the smallest set that has nine tenths of the probability, by shares, from one generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import TopPLogitsWarper

from counterfoil.models.captioners.captioner import TOP_P, chosen_token

SCORES = torch.tensor([1.0, 3.0, 0.5, 2.5, -4.0, 2.5, -9.0])


def test_without_chance_it_is_the_likeliest() -> None:
    assert chosen_token(SCORES, None) == 1
    assert chosen_token(torch.zeros(5), None) == 0


@pytest.mark.parametrize("scores", [SCORES, torch.zeros(8), torch.tensor([9.0, 0.0, 0.0]), torch.tensor([1.0])])
def test_shares_are_those_of_transformers_own_nucleus(scores: torch.Tensor) -> None:
    none: Any = torch.empty(1, 0, dtype=torch.long)
    kept = torch.softmax(TopPLogitsWarper(TOP_P)(none, scores[None].double())[0], -1).numpy()
    chance = torch.Generator().manual_seed(0)
    drawn = np.bincount([chosen_token(scores, chance) for _ in range(4000)], minlength=len(scores))
    assert not drawn[kept == 0].any()
    some = kept > 0
    if some.sum() > 1:
        assert stats.chisquare(drawn[some], 4000 * kept[some] / kept[some].sum()).pvalue > 1e-4


def test_what_has_no_share_is_never_drawn() -> None:
    scores = SCORES.clone()
    scores[[1, 3, 5]] = -torch.inf
    chance = torch.Generator().manual_seed(1)
    assert {chosen_token(scores, chance) for _ in range(300)} <= {0, 2}


def test_the_same_chance_draws_the_same() -> None:
    chances = [torch.Generator().manual_seed(seed) for seed in (7, 7, 8)]
    runs = [[chosen_token(SCORES, chance) for _ in range(50)] for chance in chances]
    assert runs[0] == runs[1] != runs[2]
