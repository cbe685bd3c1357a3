"""Descriptions: cut from captions, put together to prompts, made shorter, and their background."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_search import SANDAL_CLASS, World, colour, place, run_of

from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES, SHIFTS
from counterfoil.mining.methods.bugs.descriptions import (
    BackgroundCounts,
    Description,
    Piece,
    background_facts,
    background_of,
    parts_of,
    pieces_of,
    shorter,
    shortest_kept,
    tried_shorter,
)
from counterfoil.mining.methods.bugs.search import BugSearch, search_bugs
from counterfoil.paired_stats import PairCount
from counterfoil.recipe.prompts import template_problem
from lab_training.captions import caption_of, tellable

LAB = "a photo of a {class}"
WILES = "a realistic photograph of a {class} (insect)."
BASES = (
    LAB,
    WILES,
    "{class}",
    "A photo of an {class}",
    "a {class} ({parent}), high quality.",
    "An image of a {class}!",
)


def said_by(caption: str, base: str = LAB, class_name: str = "sandal") -> list[str]:
    pieces = pieces_of(caption, base, class_name)
    assert pieces is not None
    return [f"{piece.place}: {piece.words}" for piece in pieces]


def test_every_caption_of_the_lab_is_the_prompt_of_its_pieces() -> None:
    rng = np.random.default_rng(0)
    captions = set()
    for _ in range(1500):
        claims = tellable({name: str(rng.choice(values)) for name, values in ATTRIBUTES.items()})
        captions.add((caption_of(claims), claims["class"]))
    assert len(captions) > 1000
    for caption, class_name in captions:
        pieces = pieces_of(caption, LAB, class_name)
        assert pieces is not None and Description(pieces).prompt(LAB, class_name) == caption


def test_each_word_of_the_lab_is_a_piece_of_its_own() -> None:
    claims = {
        "style": "photo",
        "companion": "person",
        "colour": "red",
        "pattern": "striped",
        "class": "sandal",
    }
    claims |= {"background": "wood", "weather": "rain", "light": "studio"}
    assert said_by(caption_of(claims)) == [
        "before: person and a", "before: red", "before: striped",
        "after: on a wooden floor", "after: in the rain", "after: in studio lighting",
    ]  # fmt: skip
    flower = caption_of(claims | {"companion": "flower", "style": "oil"})
    assert said_by(flower)[:3] == ["lead: oil painting of", "before: red", "before: striped"]
    assert said_by(flower)[3:5] == ["after: and a flower", "after: on a wooden floor"]


@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: shift.name)
def test_a_shift_of_the_lab_is_captioned_as_its_recipe_does(shift) -> None:
    claims = {"style": "photo", shift.attribute: shift.value}
    pieces = pieces_of(caption_of(claims | {"class": "sandal"}), LAB, "sandal")
    assert pieces is not None and len(pieces) == 1
    assert Description(pieces).caption == caption_of(claims)


def test_several_shifts_are_captioned_in_the_labs_order() -> None:
    claims = {
        "style": "photo",
        "colour": "red",
        "companion": "flower",
        "background": "snow",
        "light": "night",
    }
    pieces = pieces_of(caption_of(claims | {"class": "sandal"}), LAB, "sandal")
    assert pieces is not None and Description(pieces).caption == caption_of(claims)


def test_sentences_behind_a_base_are_whole_pieces() -> None:
    caption = (
        "a realistic photograph of a fly (insect). the background is blurred. it is on a"
        " yellow flower."
    )
    assert said_by(caption, WILES, "fly") == [
        "after: the background is blurred.",
        "after: it is on a yellow flower.",
    ]
    pieces = pieces_of(caption, WILES, "fly")
    assert pieces is not None
    assert Description(pieces).prompt(WILES, "fly") == caption
    assert Description(pieces[1:]).prompt(WILES) == f"{WILES} it is on a yellow flower."
    assert Description(pieces[1:]).words("fly") == "fly: it is on a yellow flower"
    assert Description(pieces[1:]).caption == "it is on a yellow flower."
    template = Description(pieces).prompt("a realistic photograph of a {class} ({parent}).")
    assert template.startswith("a realistic photograph of a {class} ({parent}). the background")


def test_a_phrase_goes_before_the_full_stop_of_a_base_and_sentences_end_one_without() -> None:
    caption = "a close up of a red fly on a yellow flower. it is night."
    pieces = pieces_of(caption, WILES, "fly")
    assert pieces is not None
    assert said_by(caption, WILES, "fly") == [
        "lead: close up of", "before: red", "after: on a yellow flower", "after: it is night.",
    ]  # fmt: skip
    rest = Description(pieces[1:])
    assert rest.prompt(WILES, "fly") == (
        "a realistic photograph of a red fly (insect) on a yellow flower. it is night."
    )
    assert rest.prompt(LAB, "fly") == "a photo of a red fly on a yellow flower. it is night."


@pytest.mark.parametrize(
    "caption, pieces",
    [
        ("a close up of a red sandal on a wooden floor next to a dog",
         ["lead: close up of", "before: red", "after: on a wooden floor", "after: next to a dog"]),
        ("there is a black and white sandal that is sitting on a table",
         ["before: black and white", "after: that is sitting on a table"]),
        ("A woman wearing a red sandal, blue sky", ["before: woman wearing a", "before: red", "after: blue sky"]),
        ("a picture of an Orange  SANDAL\n surrounded by flowers, in front of a house with a person"
            " and a dog.",
         ["before: orange", "after: surrounded by flowers", "after: in front of a house", "after: with a person",
          "after: and a dog"]),
        ("a sandal between a wall and a fence and a dog", ["after: between a wall and a fence", "after: and a dog"]),
        ("a sandal in the running water outside", ["after: in the running water", "after: outside"]),
        ("a black and white photo of a pair of sandal", ["lead: black and white photo of", "before: pair of"]),
        ("the image shows a photo of a red sandal", ["before: red"]),
        ("a photo of a sandal", []),
        ("a photo of a sandal in the snow in the snow in the snow", ["after: in the snow"]),
        ("a red red red sandal sandal sandal and a", ["before: red"]),
    ],
)  # fmt: skip
def test_the_captions_of_blip_are_cut_where_phrases_open(caption: str, pieces: list[str]) -> None:
    assert said_by(caption) == pieces


@pytest.mark.parametrize(
    "caption", ["", "a photo of a t-shirt", "a shirtless man", "a coat on a shirt's sleeve", "{}"]
)
def test_a_caption_that_does_not_name_the_class_has_no_pieces(caption: str) -> None:
    assert pieces_of(caption, LAB, "shirt") is None


def test_braces_special_tokens_and_words_without_end_are_left_out() -> None:
    caption = (
        "a {red} <s>blue sandal in the {class} snow at night with a " + "x" * 50 + " by a wall"
    )
    assert said_by(caption) == ["after: at night", "after: by a wall"]
    assert said_by("a photo of a sandal. it is {class}. it is\x00 night.\u200b") == [
        "after: it is night."
    ]


@pytest.mark.parametrize(
    "words", ["", "in {class}", "in the}", "two\nlines", " in the snow", "a\u200bb", "x" * 401]
)
def test_a_piece_refuses_what_no_template_takes(words: str) -> None:
    with pytest.raises(ValueError):
        Piece(words, "after")


def test_pieces_for_one_place_make_no_description() -> None:
    opening = Piece("person and a", "before")
    lead = Piece("sketch of", "lead")
    for pieces in (
        (opening, opening),
        (opening, Piece("woman wearing a", "before")),
        (lead, Piece("oil painting of", "lead")),
    ):
        with pytest.raises(ValueError, match="no description"):
            Description(pieces)


def test_pieces_come_in_the_order_of_a_prompt() -> None:
    pieces = (Piece("it is night.", "after"), Piece("in the snow", "after"), Piece("red", "before"))
    pieces += (
        Piece("person and a", "before"),
        Piece("sketch of", "lead"),
        Piece("striped", "before"),
    )
    description = Description(pieces)
    assert (
        description.prompt(LAB)
        == "a sketch of a person and a red striped {class} in the snow. it is night."
    )
    assert description == Description((*pieces[3:5], pieces[2], pieces[5], *pieces[:2]))
    assert description.length == 3 + 3 + 1 + 3 + 1 + 2


@pytest.mark.parametrize(
    "caption, words",
    [
        ("a photo of a sandal", "sandal"),
        ("a photo of a red sandal in the snow", "red sandal in the snow"),
        ("a photo of a person and a sandal at night", "sandal with a person at night"),
        ("a photo of a sandal and a flower", "sandal with a flower"),
        ("an oil painting of a orange sandal", "oil painting of an orange sandal"),
        ("a sandal on the beach, blue sky", "sandal on the beach, blue sky"),
    ],
)
def test_words_are_for_people(caption: str, words: str) -> None:
    pieces = pieces_of(caption, LAB, "sandal")
    assert pieces is not None and Description(pieces).words("sandal") == words


def test_a_base_without_the_class_is_refused() -> None:
    with pytest.raises(ValueError, match="class"):
        pieces_of("a sandal", "a photo", "sandal")
    with pytest.raises(ValueError, match="class"):
        Description(()).prompt("a photo")


VOCABULARY = """
a an the red orange black and or white of in on at next to with between person wall running wearing sitting that is it
there shows image surrounded by outside two sandal sandals photo oil painting close up dog's t-shirt it's
, . ! ; : ( ) - { } {class} <s>
[SEP] é ß İ Σ 火 " ' _ …
""".split()  # noqa: SIM905

VOCABULARY += ["\n", "\u0308", "\u200b", "\ud800"]
CAPTIONS = st.one_of(
    st.lists(st.sampled_from(VOCABULARY), max_size=30).map(" ".join),
    st.lists(st.sampled_from(VOCABULARY), max_size=30).map("".join),
    st.text(max_size=60),
)


@given(
    before=CAPTIONS,
    behind=CAPTIONS,
    base=st.sampled_from(BASES),
    class_name=st.sampled_from(["sandal", "ankle boot"]),
)
@example(before="", behind="; sandal running", base=LAB, class_name="sandal")
@example(before="", behind="SANDAL_", base=LAB, class_name="sandal")
@example(before="", behind="_sandal, 'sandal .sandal running", base=LAB, class_name="sandal")
def test_what_a_prompt_says_is_read_from_it_again(
    before: str, behind: str, base: str, class_name: str
) -> None:
    pieces = pieces_of(f"{before} {class_name} {behind}", base, class_name)
    assert pieces is not None
    description = Description(pieces)
    assert description.pieces == pieces
    for mended in (False, True):
        prompt = description.prompt(base, mended=mended)
        assert template_problem(prompt, with_class=True, about_class=True) is None
        assert pieces_of(prompt, base, class_name) == pieces
        assert (
            pieces_of(description.prompt(base, class_name, mended=mended), base, class_name)
            == pieces
        )
    assert description.caption.isprintable() and description.words(class_name).isprintable()


@pytest.mark.parametrize(
    "caption", ["sandal " * 3000, "a b" * 5000, "a red sandal " + "in a b. " * 2000, "{" * 10_000]
)
def test_a_captioner_that_does_not_end_is_cut(caption: str) -> None:
    pieces = pieces_of(caption, LAB, "sandal")
    assert sum(len(piece.words) for piece in pieces or ()) <= 1000
    assert len(Description(pieces or ()).prompt(LAB)) < 2000


SEVERAL = [
    "red",
    "black and white",
    "pair of",
    "in the snow",
    "blue sky",
    "between two walls",
    "and a dog",
]

SEVERAL += ["outside", "sitting on a floor", "at night"]


@given(st.permutations(SEVERAL), st.integers(0, len(SEVERAL)))
def test_pieces_of_several_captions_stay_apart_in_any_order(words: list[str], number: int) -> None:
    before = {"red", "black and white", "pair of"}
    pieces = tuple(Piece(word, "before" if word in before else "after") for word in words[:number])
    description = Description(pieces)
    assert pieces_of(description.prompt(LAB, "sandal"), LAB, "sandal") == description.pieces


def test_the_class_is_a_word_of_its_own() -> None:
    for class_name in CLASSES:
        others = [name for name in CLASSES if name != class_name]
        assert pieces_of(f"a photo of a red {class_name}", LAB, class_name) == (
            Piece("red", "before"),
        )
        assert not [
            name
            for name in others
            if pieces_of(f"a photo of a red {class_name}", LAB, name) is not None
        ]


def test_articles_stay_as_the_lab_has_them_unless_they_are_mended() -> None:
    orange = Description((Piece("orange", "before"),))
    assert orange.prompt(LAB) == "a photo of a orange {class}"
    assert orange.prompt(LAB, mended=True) == "a photo of an orange {class}"
    assert orange.prompt("an {class}") == "an orange {class}"
    assert Description((Piece("red", "before"),)).prompt("An {class}") == "A red {class}"
    beside = Description((Piece("person and a", "before"), Piece("orange", "before")))
    assert beside.prompt(LAB, mended=True) == "a photo of a person and an orange {class}"


def fails(failing: int, pairs: int = 40) -> PairCount:
    return PairCount(pairs, 0, failing, 0)


def described(caption: str, base: str = LAB, class_name: str = "sandal") -> Description:
    pieces = pieces_of(caption, base, class_name)
    assert pieces is not None
    return Description(pieces)


def prompts(caption: str, base: str = LAB, class_name: str = "sandal") -> list[str]:
    head = base.removesuffix(".").replace("{class}", class_name)
    texts = [cut.prompt(base, class_name) for cut in shorter(described(caption, base, class_name))]
    return [prompt.removeprefix(head).removeprefix(".").strip() for prompt in texts]


def test_the_example_of_the_paper() -> None:
    caption = (
        "a realistic photograph of a fly (insect). the fly is in focus. it is on a yellow flower."
    )
    assert prompts(caption, WILES, "fly") == [
        "the fly is in focus.",
        "it is on a yellow flower.",
        "the fly is in focus. it is on a flower.",
    ]
    alone = "a realistic photograph of a fly (insect). it is on a yellow flower."
    assert prompts(alone, WILES, "fly") == ["it is on a flower."]


def test_single_pieces_and_each_piece_dropped() -> None:
    texts = [
        cut.prompt(LAB, "sandal")
        for cut in shorter(described("a photo of a red sandal in the snow at night"))
    ]
    assert set(texts) == {
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
        ("on the red side of the big road", ["on the side of the road", "on the side of the big"
            " road",
                                             "on the red side of the road"]),
        ("by a old wall", ["by a wall"]),
        ("with a wall and fence", []),
        ("in bright sunlight", []),
        ("at night", []),
    ],
)  # fmt: skip
def test_adjectives_stand_between_a_determiner_and_the_last_word_of_its_phrase(
    phrase, plainer
) -> None:
    pieces = pieces_of(f"a photo of a sandal {phrase}", LAB, "sandal")
    assert pieces is not None
    if len(pieces) == 1:
        assert sorted(prompts(f"a photo of a sandal {phrase}")) == sorted(plainer)
    else:
        plain = [description.words("sandal") for description in shorter(Description(pieces))]
        assert (
            "sandal with a dog and a cat" in plain and "sandal with a dog and a small cat" in plain
        )


@pytest.mark.parametrize(
    "caption",
    [
        "an oil painting of a person and a red striped sandal on a wooden floor, blue sky at night."
        " it is a red mat.",
        "a red sandal on a red floor and a big dog on a floor",
        "a photo of a sandal with the big, old, green dog",
    ],
)
def test_what_is_shorter_is_a_description_that_is_read_again_shortest_first(caption: str) -> None:
    whole = described(caption)
    shortened = shorter(whole)
    lengths = [cut.length for cut in shortened]
    assert shortened and lengths == sorted(lengths) and len(set(shortened)) == len(shortened)
    assert all(0 < cut.length < whole.length for cut in shortened)
    assert all(
        pieces_of(cut.prompt(LAB, "sandal"), LAB, "sandal") == cut.pieces for cut in shortened
    )
    assert {Description((piece,)) for piece in whole.pieces} <= set(shortened)


def test_the_base_and_a_single_word_have_nothing_shorter() -> None:
    assert shorter(Description(())) == ()
    assert shorter(Description((Piece("red", "before"),))) == ()


def test_the_shortest_that_fails_no_less_often_is_kept() -> None:
    long, middle, short = (
        described(f"a sandal {words}") for words in ("in the deep snow", "in the snow", "outside")
    )
    # 20 of 40: Wilson's interval is .352 to .648
    whole = fails(20)
    assert (
        shortest_kept([(long, fails(36)), (middle, fails(36, 100)), (short, fails(14))], whole) == 1
    )
    assert shortest_kept([(long, fails(20)), (short, fails(16))], whole) == 1
    assert shortest_kept([(short, fails(16)), (described("a red sandal"), fails(24))], whole) == 1
    assert shortest_kept([(middle, fails(8))], whole) is None
    assert shortest_kept([], whole) is None


def test_nothing_is_kept_without_pairs() -> None:
    description = described("a sandal outside")
    assert shortest_kept([(description, fails(0, 0))], fails(20)) is None
    assert shortest_kept([(description, fails(20))], fails(0, 0)) is None
    # If the whole description never fails, the lower bound is 0.
    assert shortest_kept([(description, fails(0))], fails(0)) == 0


def background(caption: str, base: str = LAB, class_name: str = "sandal") -> list[str]:
    return [piece.words for piece in background_of(described(caption, base, class_name))]


@pytest.mark.parametrize("attribute", [name for name in ATTRIBUTES if name != "class"])
def test_of_what_the_lab_tells_exactly_the_backgrounds_are(attribute: str) -> None:
    whole = {"class": "sandal", "style": "photo"}
    for value in ATTRIBUTES[attribute]:
        if (attribute, value) in {
            ("weather", "clear"),
            ("light", "day"),
            ("companion", "none"),
            ("style", "photo"),
        }:
            continue  # captions never mention these
        description = described(caption_of(whole | {attribute: value}))
        pieces = background_of(description)
        assert pieces == (description.pieces if attribute == "background" else ()), value


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
    ("sentence", "in_background"),
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
def test_sentences_as_the_paper_has_them(sentence: str, in_background: bool) -> None:
    words = background(f"a realistic photograph of a fly (insect). {sentence}", WILES, "fly")
    assert words == ([sentence] if in_background else [])


def test_all_pieces_of_the_background_are_one_unit_and_are_tried_whatever_else_is() -> None:
    whole = described(
        "a photo of a red striped sandal on a big old wooden floor, in a garden at night"
    )
    parts = parts_of(whole)
    assert parts is not None and [part.words("sandal") for part in parts] == [
        "sandal on a big old wooden floor in a garden",
        "red striped sandal at night",
    ]
    assert parts[0] not in shorter(whole) and parts[1] not in shorter(whole)
    shortened = tried_shorter(whole, 6)
    assert len(shortened) == 6 and set(parts) <= set(shortened)
    assert [cut.length for cut in shortened] == sorted(cut.length for cut in shortened)
    # Single pieces are tried already: a description of two pieces gets no further ones.
    for caption in (
        "a photo of a red sandal in the snow",
        "a photo of a sandal at night",
        "a red sandal at night",
    ):
        assert tried_shorter(described(caption), 6) == shorter(described(caption))
    assert (
        parts_of(described("a sandal in a garden, on a floor"))
        is None
        is parts_of(described("a red sandal"))
    )


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
    facts = background_facts(described("a red sandal in the snow"), counts)["background"]
    assert (facts["words"], facts["all"], facts.get("explains")) == (
        ["in the snow"],
        False,
        explains,
    )
    assert facts["rest"] == {"pairs": 40, "rate": rest / 40, "base_rate": 0}


def test_words_that_are_no_background_tell_nothing_and_those_that_all_are_say_so() -> None:
    assert background_facts(described("a red sandal at night")) == {}
    assert background_facts(described("a sandal in the snow")) == {
        "background": {"words": ["in the snow"], "all": True}
    }


def search_in(world: World) -> BugSearch:
    return search_bugs(
        [SANDAL_CLASS],
        world.draw,
        world.look,
        world.describe,
        run_of(),
    )


def failing_where(places: Mapping[str, float], colours: Mapping[str, float]) -> World:
    """Return a world with failures by place and colour. The captioner always says both."""
    both = Description((colour("red"), place("in the snow")))
    return World(
        lambda _, where, which: places.get(where, 0.05) * colours.get(which, 1.0),
        say=lambda seen: both,
    )


def test_a_search_says_that_the_place_alone_makes_it_fail() -> None:
    search = search_in(failing_where({"in the snow": 0.6}, {}))
    [whole] = [trial for trial in search.tested if len(trial.hypothesis.description.pieces) == 2]
    counts = search.backgrounds[whole.hypothesis.name]
    assert counts.explains == "background"
    assert search.backgrounds.keys() == {whole.hypothesis.name}
    # All three are counted on new noise, because the test of the whole overestimates its failures.
    rounds = [drawn for drawn in search.rounds if drawn.asked.purpose == "shorten"]
    name = f"{whole.hypothesis.name}_again"
    assert counts.whole == sum(
        (drawn.pairs(name).count for drawn in rounds if name in drawn.asked.cells), fails(0, 0)
    )
    assert counts.whole.pairs <= sum(drawn.asked.candidates for drawn in rounds)
