"""Shorter descriptions of the same failures, and which is kept (Wiles 2022, section 3, "Caption refinement")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from counterfoil.mining.bugs.descriptions import Description, Piece
from counterfoil.mining.bugs.phrases import DETERMINERS, JOINING, article_for, grouped, listed, openings
from counterfoil.stats import wilson_interval

# Behind these, words belong to another phrase.
_ENDS = listed("of to that which who is are was were has have it")


class FailingPairs(Protocol):
    """What counts of pairs say of one description: how many there are, and the share that fails."""

    @property
    def pairs(self) -> int: ...
    @property
    def rate(self) -> float: ...


def shorter(description: Description) -> tuple[Description, ...]:
    """What may say enough with fewer words, shortest first, each once; none for the base and for a single word.

    Every single piece; the description without each piece; without each adjective, without all of a piece, and without
    all. Adjectives are the words between a determiner and the last word of its phrase, "black and white" as one.
    """
    pieces = description.pieces
    found = [(piece,) for piece in pieces] + [(*pieces[:at], *pieces[at + 1 :]) for at in range(len(pieces))]
    for at, piece in enumerate(pieces):
        found += [(*pieces[:at], one, *pieces[at + 1 :]) for one in (*_one_less(piece), _plainest(piece))]
    found.append(tuple(_plainest(piece) for piece in pieces))
    described = dict.fromkeys(Description(tuple(dict.fromkeys(one))) for one in found if one)
    return tuple(sorted((one for one in described if one != description), key=lambda one: one.length))


def shortest_kept(candidates: Sequence[tuple[Description, FailingPairs]], whole: FailingPairs) -> int | None:
    """The place of the shortest candidate that fails no less often than the whole description, or None.

    That is: its rate is not below the lower bound of the whole one's 95 % Wilson interval. Of equally short ones the
    one with the higher rate, then the first. Without pairs of its own none is kept, nor where the whole has none.
    """
    kept = [at for at, (_, count) in enumerate(candidates) if keeps_up(count, whole)]
    return min(kept, key=lambda at: (candidates[at][0].length, -candidates[at][1].rate, at), default=None)


def keeps_up(count: FailingPairs, whole: FailingPairs) -> bool:
    """Whether a description fails no less often than another: not below the lower bound of that one's Wilson interval.

    Without pairs on either side nothing is known, and it does not.
    """
    if min(whole.pairs, count.pairs) < 1:
        return False
    return count.rate >= wilson_interval(round(whole.rate * whole.pairs), whole.pairs)[0]


def _one_less(piece: Piece) -> Iterator[Piece]:
    """The piece without each of its adjectives; of what stands before the class, none has one that is told apart."""
    if piece.place != "after":
        return
    words = piece.words.removesuffix(".").split()
    for low, high in _adjectives(words):
        left = [*words[:low], *words[high:]]
        # "an old wall" becomes "a wall"; a captioner that writes "a old wall" mends nothing.
        if words[low - 1] in ("a", "an") and words[low - 1] == article_for(words[low]):
            left[low - 1] = article_for(left[low])
        yield replace(piece, words=" ".join(left) + "." * piece.sentence)


def _plainest(piece: Piece) -> Piece:
    while (plainer := next(_one_less(piece), None)) is not None:
        piece = plainer
    return piece


def _adjectives(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """From and to where each adjective stands: between a determiner and the last word of its phrase."""
    ends = {at for at in range(len(words)) if _ends(words, at)} | set(openings(words)) | {len(words)}
    for determiner in (at for at, word in enumerate(words) if word in DETERMINERS):
        at = determiner + 1
        last = min(end for end in ends if end >= at) - 1
        for group in grouped(words[at:last]):
            while words[at] != group[0]:
                at += 1
            if group[-1] not in JOINING and group[-1] != "of":
                yield at, at + len(group)
            at += len(group)


def _ends(words: Sequence[str], at: int) -> bool:
    """Whether the phrase before this word is over."""
    word, after = words[at], words[at + 1] if at + 1 < len(words) else None
    if word in JOINING:
        return after is None or after in DETERMINERS
    return word in _ENDS or word in DETERMINERS or (at > 0 and words[at - 1].endswith(","))
