"""Pieces combined greedily by likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from counterfoil.mining.bugs.combining import combine
from counterfoil.mining.bugs.descriptions import Description, Piece

LAB = "a photo of a {class}"
RED, STRIPED = Piece("red", "before"), Piece("striped", "before")
PERSON = Piece("person and a", "before")
SNOW, NIGHT = Piece("in the snow", "after"), Piece("at night", "after")
WORDS = ["a", "photo", "of", "person", "and", "red", "striped", "sandal", "in", "the", "snow", "at", "night"]


class Teller:
    """A captioner that says one caption: the log-likelihood per token of others falls with what differs."""

    def __init__(self, *captions: str) -> None:
        self.captions, self.asked = captions, []

    def __call__(self, descriptions: Sequence[Description]) -> np.ndarray:
        self.asked.append(len(descriptions))
        texts = [one.prompt(LAB, "sandal") for one in descriptions]
        return np.array([[self._one(text, caption) for caption in self.captions] for text in texts])

    @staticmethod
    def _one(text: str, caption: str) -> float:
        said, true = [*text.split(), "."], [*caption.split(), "."]
        known = next(
            (at for at, (a, b) in enumerate(zip(said, true, strict=False)) if a != b), min(len(said), len(true))
        )
        return (known * np.log(0.9) + (len(said) - known) * np.log(0.01)) / len(said)


def test_the_caption_of_the_images_is_put_together_from_pieces_in_any_order() -> None:
    caption = "a photo of a person and a red striped sandal in the snow at night"
    for pieces in ([NIGHT, STRIPED, SNOW, RED, PERSON], [RED, PERSON, NIGHT, SNOW, STRIPED]):
        teller = Teller(caption)
        combined = combine(pieces, teller, 5)
        assert combined.description.prompt(LAB, "sandal") == caption
        assert combined.trace[-1].description == combined.description
        likelihoods = [step.likelihood for step in combined.trace]
        assert likelihoods == sorted(likelihoods) and len(teller.asked) == 5
        assert [len(step.description.pieces) for step in combined.trace] == [1, 2, 3, 4, 5]


def test_it_ends_where_no_piece_makes_the_images_more_likely() -> None:
    teller = Teller("a photo of a sandal in the snow")
    combined = combine([RED, NIGHT, SNOW], teller, 3)
    assert combined.description.pieces == (SNOW,) and len(teller.asked) == 2


def test_no_more_pieces_than_asked_for() -> None:
    combined = combine([SNOW, NIGHT, RED], Teller("a photo of a red sandal in the snow at night"), 2)
    assert len(combined.description.pieces) == 2


def test_the_mean_over_the_images_decides() -> None:
    snow, night = "a photo of a sandal in the snow", "a photo of a sandal at night"
    assert combine([NIGHT, SNOW], Teller(snow, snow, night), 1).description.pieces == (SNOW,)
    assert combine([NIGHT, SNOW], Teller(snow, night, night), 1).description.pieces == (NIGHT,)


def test_every_order_of_phrases_is_tried_and_sentences_come_last_as_they_are_found() -> None:
    seen: list[Description] = []

    def score(descriptions: Sequence[Description]) -> list[list[float]]:
        seen.extend(descriptions)
        return [[one.length / 100 - at / 1e6] for at, one in enumerate(descriptions)]

    dark, wet = Piece("it is dark and late.", "after"), Piece("it is wet.", "after")
    combine([SNOW, NIGHT], score, 2)
    assert {one.pieces for one in seen} == {(SNOW,), (NIGHT,), (SNOW, NIGHT), (NIGHT, SNOW)}
    seen.clear()
    combine([wet, dark], score, 2)
    assert {one.pieces for one in seen} == {(wet,), (dark,), (dark, wet)}


def test_pieces_of_one_place_are_not_both_said_and_contradictions_may_be() -> None:
    woman, day = Piece("woman wearing a", "before"), Piece("at day", "after")
    combined = combine([PERSON, woman, day, NIGHT, NIGHT], lambda many: [[float(one.length)] for one in many], 9)
    assert set(combined.description.pieces) == {woman, day, NIGHT} or set(combined.description.pieces) == {
        PERSON,
        day,
        NIGHT,
    }


def test_without_a_piece_the_base_is_left_and_nothing_is_asked() -> None:
    teller = Teller("a photo of a sandal")
    combined = combine([], teller, 3)
    assert combined.description == Description(()) and combined.trace == () and not teller.asked


@pytest.mark.parametrize("scores", [[[1.0], [2.0]], [1.0], [[float("nan")]], [[float("inf")]], [[]]])
def test_likelihoods_that_are_none_are_refused(scores) -> None:
    with pytest.raises(ValueError, match="likelihoods"):
        combine([SNOW], lambda many: scores, 1)


def test_a_caption_that_cannot_be_said_is_never_chosen() -> None:
    scores = {"in the snow": -np.inf, "at night": -50.0}
    combined = combine([SNOW, NIGHT], lambda many: [[scores.get(one.words("x")[2:], -np.inf)] for one in many], 2)
    assert combined.description.pieces == (NIGHT,)
    with pytest.raises(ValueError, match="1 piece"):
        combine([SNOW], Teller(""), 0)
