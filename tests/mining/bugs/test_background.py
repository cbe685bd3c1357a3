"""Which words are the background, as one; what its tests on new noise say; and that they are drawn where parts are."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from synthetic_world import World, colour, place

from counterfoil.lab.scenes import caption_of
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.bugs.background import (
    BackgroundCounts,
    background_of,
    parts_of,
    told_background,
    tried_shorter,
)
from counterfoil.mining.bugs.descriptions import Description, pieces_of
from counterfoil.mining.bugs.search import BugSearch, search_bugs
from counterfoil.mining.bugs.shortening import shorter
from counterfoil.paired_stats import PairCount
from counterfoil.recipe.schema_mine import BugsSettings, Mine

LAB = "a photo of a {class}"
WILES = "a realistic photograph of a {class} (insect)."


def described(caption: str, base: str = LAB, class_name: str = "sandal") -> Description:
    pieces = pieces_of(caption, base, class_name)
    assert pieces is not None
    return Description(pieces)


def background(caption: str, base: str = LAB, class_name: str = "sandal") -> list[str]:
    return [piece.words for piece in background_of(described(caption, base, class_name))]


@pytest.mark.parametrize("attribute", [name for name in ATTRIBUTES if name != "class"])
def test_of_what_the_lab_tells_exactly_the_backgrounds_are(attribute: str) -> None:
    whole = {"class": "sandal", "style": "photo"}
    for value in ATTRIBUTES[attribute]:
        if (attribute, value) in {("weather", "clear"), ("light", "day"), ("companion", "none"), ("style", "photo")}:
            continue  # captions never tell these
        description = described(caption_of(whole | {attribute: value}))
        found = background_of(description)
        assert found == (description.pieces if attribute == "background" else ()), value


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        ("lying on the red side of the road", ["lying on the red side of the road"]),
        ("that is sitting on a floor at night", ["that is sitting on a floor"]),
        ("in front of a wall, next to a fence", ["in front of a wall", "next to a fence"]),
        ("surrounded by snow", ["surrounded by snow"]),
        ("outdoors", ["outdoors"]),
        ("outside", ["outside"]),
        ("in a garden with a dog", ["in a garden"]),
        ("in the style of a master", []),
        ("in the early morning", []),
        ("on a person", []),
        ("with a dog and a cat", []),
        ("looking at the camera", []),
        ("sitting", []),
        ("on", []),
    ],
)
def test_a_phrase_is_where_a_preposition_of_place_has_a_noun(phrase: str, words: list[str]) -> None:
    assert background(f"a photo of a sandal {phrase}") == words


@pytest.mark.parametrize(
    ("sentence", "place"),
    [
        ("the background is blurred.", True),
        ("background is green.", True),
        ("in the background there is a forest.", True),
        ("it is on a yellow flower.", True),
        ("it is walking in the snow.", True),
        ("the fly is in focus on a leaf.", True),
        ("the fly is in focus.", False),
        ("it is night.", False),
        ("the fly is facing the camera.", False),
        ("there is a lemon on the side of the fly.", False),
        ("it has two wings.", False),
    ],
)
def test_sentences_as_the_paper_has_them(sentence: str, place: bool) -> None:
    found = background(f"a realistic photograph of a fly (insect). {sentence}", WILES, "fly")
    assert found == ([sentence] if place else [])


def test_all_pieces_of_the_background_are_one_unit_and_are_tried_whatever_else_is() -> None:
    whole = described("a photo of a red striped sandal on a big old wooden floor, in a garden at night")
    parts = parts_of(whole)
    assert parts is not None and [part.words("sandal") for part in parts] == [
        "sandal on a big old wooden floor in a garden",
        "red striped sandal at night",
    ]
    assert parts[0] not in shorter(whole) and parts[1] not in shorter(whole)
    found = tried_shorter(whole, 6)
    assert len(found) == 6 and set(parts) <= set(found)
    assert [one.length for one in found] == sorted(one.length for one in found)
    # What single pieces say is tried already: nothing is added to a description of two.
    for caption in ("a photo of a red sandal in the snow", "a photo of a sandal at night", "a red sandal at night"):
        assert tried_shorter(described(caption), 6) == shorter(described(caption))
    assert parts_of(described("a sandal in a garden, on a floor")) is None is parts_of(described("a red sandal"))


def counted(pairs: int, failing: int) -> PairCount:
    return PairCount(pairs, 0, failing, 0)


@pytest.mark.parametrize(
    ("alone", "rest", "explains"),
    [(25, 4, "background"), (4, 25, "rest"), (25, 25, "either"), (4, 4, "both"), (None, 4, None)],
)
def test_what_explains_a_failure(alone: int | None, rest: int, explains: str | None) -> None:
    # 24 of 40: Wilson's interval begins at .446
    drawn = None if alone is None else counted(40, alone)
    counts = BackgroundCounts(counted(40, 24), drawn, counted(40, rest))
    assert counts.explains == explains
    told = told_background(described("a red sandal in the snow"), counts)["background"]
    assert (told["words"], told["all"], told.get("explains")) == (["in the snow"], False, explains)
    assert told["rest"] == {"pairs": 40, "rate": rest / 40, "base_rate": 0}


def test_words_that_are_no_background_tell_nothing_and_those_that_all_are_say_so() -> None:
    assert told_background(described("a red sandal at night")) == {}
    assert told_background(described("a sandal in the snow")) == {"background": {"words": ["in the snow"], "all": True}}


def found(world: World) -> BugSearch:
    settings = BugsSettings(captioner="lab:captioner")
    return search_bugs([0], ["sandal"], world.draw, world.look, world.describe, Mine(method="bugs"), settings)


def failing_where(places: Mapping[str, float], colours: Mapping[str, float]) -> World:
    """Failures of a place and a colour; the captioner always says both."""
    said = Description((colour("red"), place("in the snow")))
    return World(lambda _, where, which: places.get(where, 0.05) * colours.get(which, 1.0), say=lambda seen: said)


@pytest.mark.parametrize(
    ("world", "explains"),
    [
        (failing_where({"in the snow": 0.6}, {}), "background"),
        (failing_where({}, {"red": 12}), "rest"),
        (failing_where({"in the snow": 0.1}, {"red": 8}), "both"),
    ],
    ids=["place", "colour", "both"],
)
def test_a_search_says_whether_the_place_alone_makes_it_fail(world: World, explains: str) -> None:
    search = found(world)
    [whole] = [one for one in search.tested if len(one.hypothesis.description.pieces) == 2]
    counts = search.backgrounds[whole.hypothesis.name]
    assert counts.explains == explains
    assert search.backgrounds.keys() == {whole.hypothesis.name}
    # On new noise, all three: what was found in the test of the whole flatters it.
    rounds = [one for one in search.rounds if one.asked.purpose == "shorten"]
    assert counts.whole == search.drawn_again[whole.hypothesis.name]
    assert counts.whole.pairs <= sum(one.asked.candidates for one in rounds)
