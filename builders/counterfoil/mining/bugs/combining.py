"""The description of a cluster: pieces of its captions, combined greedily by their likelihood under the captioner.

Wiles 2022, section 3, "Failure case captioning": each step adds the sentence that makes the whole caption most likely
for the cluster's images. A longer caption is less likely whatever it says, so likelihoods are per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from counterfoil.mining.bugs.descriptions import Description, Piece

_Score = Callable[[Sequence[Description]], ArrayLike]


@dataclass(frozen=True, slots=True)
class CombiningStep:
    """A description on the way: likelihood is its mean over the images of log-likelihood per token."""

    description: Description
    likelihood: float


@dataclass(frozen=True, slots=True)
class Combined:
    """The last description of the trace; the base alone, with an empty trace, where there was no piece."""

    description: Description
    trace: tuple[CombiningStep, ...]


def combine(pieces: Sequence[Piece], score: _Score, most: int) -> Combined:
    """At most `most` of the pieces, each step the one that makes the description most likely for the images.

    score: called once a step, with k descriptions; gives (k, images), the log-likelihood under the captioner of each
    one's prompt for each image: the sum over its tokens, the end's included, divided by their number. A word or a
    phrase is tried in every place among those of its kind, since captioners have an order ("red striped"); a sentence
    comes last. It ends where no piece raises the mean over the images; the first piece is added in any case. Of equal
    ones the first is taken; pieces that contradict each other may both be there, the likelihood decides. ValueError
    where `most` is below 1, and where scores are not numbers, or not of that shape.
    """
    if most < 1:
        raise ValueError("expected 1 piece or more")
    reached, trace = Description(()), []
    for _ in range(most):
        tried = list(dict.fromkeys(longer for piece in pieces for longer in _with(reached, piece)))
        if not tried:
            break
        likelihoods = np.asarray(score(tried), dtype=np.float64)
        if likelihoods.ndim != 2 or len(likelihoods) != len(tried) or likelihoods.shape[1] == 0:
            raise ValueError(f"expected likelihoods of {len(tried)} descriptions, found the shape {likelihoods.shape}")
        if np.isnan(likelihoods).any() or (likelihoods == np.inf).any():
            raise ValueError("likelihoods are not all numbers")
        means = likelihoods.mean(axis=1)
        best = int(means.argmax())
        if trace and not means[best] > trace[-1].likelihood:
            break
        reached = tried[best]
        trace.append(CombiningStep(reached, float(means[best])))
    return Combined(reached, tuple(trace))


def _with(description: Description, piece: Piece) -> Iterator[Description]:
    """The description with one piece more, in every order that differs; none where its place is taken."""
    pieces = description.pieces
    if piece in pieces or (piece.rank < 2 and any(other.rank == piece.rank for other in pieces)):
        return
    places = [at for at in range(len(pieces) + 1) if not piece.sentence or at == len(pieces)]
    for at in places:
        yield Description((*pieces[:at], piece, *pieces[at:]))
