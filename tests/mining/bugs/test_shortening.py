"""Shorter descriptions, and the one that is kept."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from counterfoil.mining.bugs.descriptions import Description, Piece, pieces_of
from counterfoil.mining.bugs.shortening import shorter, shortest_kept

LAB = "a photo of a {class}"
WILES = "a realistic photograph of a {class} (insect)."


@dataclass(frozen=True)
class Counted:
    pairs: int
    rate: float


def described(caption: str, base: str = LAB, class_name: str = "sandal") -> Description:
    pieces = pieces_of(caption, base, class_name)
    assert pieces is not None
    return Description(pieces)


def prompts(caption: str, base: str = LAB, class_name: str = "sandal") -> list[str]:
    head = base.removesuffix(".").replace("{class}", class_name)
    found = [one.prompt(base, class_name) for one in shorter(described(caption, base, class_name))]
    return [prompt.removeprefix(head).removeprefix(".").strip() for prompt in found]


def test_the_example_of_the_paper() -> None:
    caption = "a realistic photograph of a fly (insect). the fly is in focus. it is on a yellow flower."
    assert prompts(caption, WILES, "fly") == [
        "the fly is in focus.",
        "it is on a yellow flower.",
        "the fly is in focus. it is on a flower.",
    ]
    alone = "a realistic photograph of a fly (insect). it is on a yellow flower."
    assert prompts(alone, WILES, "fly") == ["it is on a flower."]


def test_single_pieces_and_each_piece_dropped() -> None:
    found = [one.prompt(LAB, "sandal") for one in shorter(described("a photo of a red sandal in the snow at night"))]
    assert set(found) == {
        "a photo of a red sandal", "a photo of a sandal in the snow", "a photo of a sandal at night",
        "a photo of a red sandal in the snow", "a photo of a red sandal at night",
        "a photo of a sandal in the snow at night",
    }  # fmt: skip


@pytest.mark.parametrize(
    "phrase, plainer",
    [
        ("on a wooden floor", ["on a floor"]),
        ("by an old brick wall", ["by a wall", "by a brick wall", "by an old wall"]),
        ("against a black and white wall", ["against a wall"]),
        ("with a big dog and a small cat", []),  # two pieces
        ("on the red side of the big road", ["on the side of the road", "on the side of the big road",
                                             "on the red side of the road"]),
        ("by a old wall", ["by a wall"]),
        ("with a wall and fence", []),
        ("in bright sunlight", []),
        ("at night", []),
    ],
)  # fmt: skip
def test_adjectives_stand_between_a_determiner_and_the_last_word_of_its_phrase(phrase, plainer) -> None:
    pieces = pieces_of(f"a photo of a sandal {phrase}", LAB, "sandal")
    assert pieces is not None
    if len(pieces) == 1:
        assert sorted(prompts(f"a photo of a sandal {phrase}")) == sorted(plainer)
    else:
        plain = [one.words("sandal") for one in shorter(Description(pieces))]
        assert "sandal with a dog and a cat" in plain and "sandal with a dog and a small cat" in plain


@pytest.mark.parametrize(
    "caption",
    [
        "an oil painting of a person and a red striped sandal on a wooden floor, blue sky at night. it is a red mat.",
        "a red sandal on a red floor and a big dog on a floor",
        "a photo of a sandal with the big, old, green dog",
    ],
)
def test_what_is_shorter_is_a_description_that_is_read_again_shortest_first(caption: str) -> None:
    whole = described(caption)
    found = shorter(whole)
    lengths = [one.length for one in found]
    assert found and lengths == sorted(lengths) and len(set(found)) == len(found)
    assert all(0 < one.length < whole.length for one in found)
    assert all(pieces_of(one.prompt(LAB, "sandal"), LAB, "sandal") == one.pieces for one in found)
    assert {Description((piece,)) for piece in whole.pieces} <= set(found)


def test_the_base_and_a_single_word_have_nothing_shorter() -> None:
    assert shorter(Description(())) == ()
    assert shorter(Description((Piece("red", "before"),))) == ()


def test_the_shortest_that_fails_no_less_often_is_kept() -> None:
    long, middle, short = (described(f"a sandal {words}") for words in ("in the deep snow", "in the snow", "outside"))
    # 20 of 40: Wilson's interval is .352 to .648
    whole = Counted(40, 0.5)
    assert (
        shortest_kept([(long, Counted(40, 0.9)), (middle, Counted(40, 0.36)), (short, Counted(40, 0.35))], whole) == 1
    )
    assert shortest_kept([(long, Counted(40, 0.5)), (short, Counted(40, 0.4))], whole) == 1
    assert shortest_kept([(short, Counted(40, 0.4)), (described("a red sandal"), Counted(40, 0.6))], whole) == 1
    assert shortest_kept([(middle, Counted(40, 0.2))], whole) is None
    assert shortest_kept([], whole) is None


def test_nothing_is_kept_without_pairs() -> None:
    one = described("a sandal outside")
    assert shortest_kept([(one, Counted(0, float("nan")))], Counted(40, 0.5)) is None
    assert shortest_kept([(one, Counted(40, 0.5))], Counted(0, float("nan"))) is None
    # Of a whole description that never fails, the lower bound is 0.
    assert shortest_kept([(one, Counted(40, 0.0))], Counted(40, 0.0)) == 0
