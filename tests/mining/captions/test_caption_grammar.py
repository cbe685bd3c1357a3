"""Caption grammars and lists: what they expand to, and what is told of every mistake."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.mining.captions import CaptionGrammar, load_captions
from counterfoil.mining.captions.grammar import MOST_CAPTIONS
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.recipe.strict_yaml import dump_yaml

DOG = RecipeClass("d", "dog", 0, 0, (), parent="domestic animal", category="canine")
TEMPLATE = "a photo of a {adjective} {noun} {preposition}"

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(text: str, name: str = "own.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_combination_is_a_caption_and_an_empty_part_leaves_no_space(written: Written) -> None:
    path = written(f"""
templates: ["{TEMPLATE}", "{{noun}} and a flower"]
adjectives: [null, white]
prepositions: [null, outside]
by_name:
  canine: {{prepositions: [in the snow]}}
  dog: {{adjectives: [happy], captions: ["a dog of the kind {{category}} ({{parent}})"]}}
  cat: {{adjectives: [sly]}}
""")
    found = load_captions(path).of(DOG, "class")
    assert found.reference == "a photo of a dog"
    expected = {
        " ".join(word for word in ("a photo of a", adjective, "dog", place) if word)
        for adjective, place in product((None, "white", "happy"), (None, "outside", "in the snow"))
    }
    expected |= {"dog and a flower", "a dog of the kind canine (domestic animal)"}
    assert set(found.texts) == expected - {found.reference}
    assert len(found.texts) == len(set(found.texts))


def test_the_noun_is_the_name_the_category_or_each_hyponym(written: Written) -> None:
    text = "captions: ['a {noun} outside', '{class}: {noun}']\nhyponyms: {dog: [dog, red setter]}\n"
    grammar = load_captions(written(text))
    found = {noun: grammar.of(DOG, noun) for noun in ("class", "category", "hyponyms")}
    assert found["class"].texts == ("a dog outside", "dog: dog")
    assert found["category"].texts == ("a canine outside", "dog: canine")
    assert found["hyponyms"].texts == ("a dog outside", "a red setter outside", "dog: dog", "dog: red setter")
    assert {noun: captions.reference for noun, captions in found.items()} == {
        "class": "a photo of a dog",
        "category": "a photo of a canine",
        "hyponyms": "a photo of a dog",
    }


def test_other_hyponyms_can_be_given_in_python(written: Written) -> None:
    grammar = load_captions(written("captions: ['a {noun} outside']"))
    assert grammar.with_hyponyms({"dog": ["pug"]}).of(DOG, "hyponyms").texts == ("a pug outside",)
    assert not grammar.hyponyms
    with pytest.raises(ValueError, match="expected plain words"):
        grammar.with_hyponyms({"dog": ["{adjective}"]})


def test_a_name_is_never_read_as_a_template(written: Written) -> None:
    odd = RecipeClass("o", "{noun} {x}", 0, 0, ())
    assert load_captions(written("captions: ['a {noun} outside']")).of(odd, "class").texts == ("a {noun} {x} outside",)


def test_what_is_said_of_a_name_goes_before_what_is_said_of_a_category(written: Written) -> None:
    path = written("""
captions: [outside]
by_name:
  dog: {reference: a hound}
  canine: {reference: a beast}
""")
    assert load_captions(path).of(DOG, "class").reference == "a hound"


def test_lists_in_yaml_and_text_are_captions_of_all_classes(written: Written) -> None:
    in_yaml = load_captions(written("- a {noun} in the snow\n- a  picture of nothing\n"))
    in_text = load_captions(written("# mine\n\na {noun} in the snow\r\n  a picture of  nothing \n", "own.txt"))
    for grammar in (in_yaml, in_text):
        assert grammar.of(DOG, "class").texts == ("a dog in the snow", "a picture of nothing")
    assert load_captions(str(written("- a {noun} in the snow\n"))).of(DOG, "class").texts == ("a dog in the snow",)


MISTAKES = {
    "adjectivs: [red]\ncaptions: ['a {noun}']": "adjectivs (own.yaml:1): unknown key; did you mean 'adjectives'?",
    "captions: ['a {noun}']\nby_name: {dog: {adjectifs: [a]}}": "by_name.dog.adjectifs (own.yaml:2): unknown key",
    "templates: [a photo]": "templates[0] (own.yaml:1): found 'a photo', expected '{noun}' or '{class}' somewhere",
    "templates:\n- a {noun}\n- a {nuon}": "templates[1] (own.yaml:3): unknown placeholder '{nuon}'",
    "captions:\n- a {noun}\n- a {adjective} {noun}": "captions[1] (own.yaml:3): unknown placeholder '{adjective}'",
    "captions:\n- a {noun": "a lone brace in 'a {noun'",
    "captions: ['a {noun}']\nreference: a {thing}": "reference (own.yaml:2): unknown placeholder '{thing}'",
    "captions: ['']": "captions[0] (own.yaml:1): found empty text",
    "captions: [5]": "captions[0] (own.yaml:1): found the number 5, expected text; put it in quotes",
    "captions: [null]": "captions[0] (own.yaml:1): found null, expected text",
    "captions: a dog": "captions (own.yaml:1): found 'a dog', expected a list",
    'captions: ["a \\0 {noun}"]': "expected text that can be printed",
    f"captions: [{'long ' * 101}]": "characters, expected at most 500",
    "templates: ['{adjective} {noun}']\nadjectives: [red, red]": "adjectives[1] (own.yaml:2): found 'red' again",
    "templates: ['{adjective} {noun}']\nadjectives: ['{noun}']": "adjectives[0] (own.yaml:2): unknown placeholder",
    "templates: ['{noun}']\nadjectives: [red]": "adjectives (own.yaml:2): no template has '{adjective}'",
    "templates: ['{noun}']\nby_name:\n  dog: {prepositions: [up]}": "by_name.dog.prepositions (own.yaml:3): no",
    "captions: ['a {noun}']\ncovers: [dog]\nby_name: {dgo: {captions: [x]}}": "expected a name of `covers`; did you",
    "captions: ['a {noun}']\nhyponyms: {dog: []}": "hyponyms.dog (own.yaml:2): found an empty list",
    "about: nothing": "found no captions, expected `templates` or `captions`",
    "5": "own.yaml: found neither keys nor a list, expected a caption grammar or a list of captions",
    "captions: [": "not valid YAML",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place(text: str, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(text).parent)
    with pytest.raises(UserError) as caught:
        load_captions("./own.yaml")
    assert MISTAKES[text] in str(caught.value)


def test_mistakes_are_told_together_in_the_order_of_their_lines(written: Written) -> None:
    path = written("colors: [red]\ntemplates: [a photo]\ncaptions: [5]\nreference: ''\n")
    with pytest.raises(UserError) as caught:
        load_captions(path)
    lines = [int(re.findall(r"own\.yaml:(\d+)", problem)[0]) for problem in caught.value.problems]
    assert lines == [1, 2, 3, 4]


def test_in_a_text_file_too_the_line_is_told(written: Written) -> None:
    with pytest.raises(UserError, match=r"captions\[1\] \(.*own\.txt:4\): unknown placeholder '\{nuon\}'.*mean 'noun'"):
        load_captions(written("# one\na {noun}\n\na {nuon}\n", "own.txt"))
    with pytest.raises(UserError, match="found no captions"):
        load_captions(written("# nothing\n", "own.txt"))


def test_names_and_files_that_there_are_not(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="no bundled captions are called 'imagenett'; did you mean 'imagenet'"
    ) as caught:
        load_captions("imagenett")
    assert caught.value.hint == (
        "Bundled captions: any, cifar, imagenet, wardrobe. A file is named by its path, as in ./imagenett.yaml."
    )
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load_captions(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="is a folder"):
        load_captions(tmp_path)


def test_what_a_class_lacks_is_told_with_what_to_do(written: Written) -> None:
    bare = RecipeClass("b", "bear", 0, 0, ())
    grammar = load_captions(written("captions: ['a {noun}, a {parent}']\nhyponyms: {beer: [ale]}"))
    with pytest.raises(UserError) as caught:
        grammar.of(bare, "hyponyms")
    assert caught.value.problems == (
        "captions: class 'bear' has no hyponyms; did you mean 'beer'?",
        "captions: class 'bear' has no parent",
    )
    assert caught.value.hint is not None and "{parent}" in caught.value.hint
    with pytest.raises(UserError, match="class 'bear' has no category"):
        load_captions("imagenet").of(bare, "category")


def test_a_class_with_its_reference_alone_has_no_captions(written: Written) -> None:
    grammar = load_captions(written("captions: ['a photo of a {noun}']"))
    with pytest.raises(UserError, match="class 'dog' has no caption beside its reference 'a photo of a dog'"):
        grammar.of(DOG, "class")


def test_too_many_captions_of_a_class_are_refused_before_they_are_made(written: Written) -> None:
    words = ", ".join(f"w{number}" for number in range(1000))
    grammar = load_captions(written(f"templates: ['{TEMPLATE}']\nadjectives: [{words}]\nprepositions: [{words}]"))
    with pytest.raises(UserError, match=f"class 'dog' has 1,000,000 captions, expected at most {MOST_CAPTIONS:,}"):
        grammar.of(DOG, "class")


WORDS = st.lists(st.sampled_from([None, "red", "far  away", " in a\ttank", "x"]), min_size=1, max_size=4, unique=True)
TEMPLATES = st.permutations(["{adjective}", "{noun}", "{preposition}", " ", "of", "\t"]).map(" ".join)


@given(WORDS, WORDS, st.lists(TEMPLATES, min_size=1, max_size=3))
def test_no_caption_is_empty_or_has_a_space_too_many(adjectives: list, prepositions: list, templates: list) -> None:
    raw = {"templates": tuple(templates), "adjectives": tuple(adjectives), "prepositions": tuple(prepositions)}
    grammar = CaptionGrammar.model_validate({**raw, "reference": "{class}"}, strict=True)
    found = grammar.of(RecipeClass("0", " red  fox ", 0, 0, ()), "class")
    for text in (found.reference, *found.texts):
        assert text
        assert text == " ".join(text.split())
        assert "red fox" in text
    distinct = len({" ".join(word.split()) if word else None for word in adjectives})
    assert len(found.texts) == len(set(found.texts)) >= distinct - 1


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a {noun}", "{", "{adjective}", "red"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["dog", "captions"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*CaptionGrammar.model_fields, "colours"]), ODD, max_size=4))
def test_nothing_odd_ends_in_anything_but_a_grammar_or_words(raw: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "odd.yaml"
        path.write_text(dump_yaml(raw), encoding="utf-8")
        try:
            found = load_captions(path).of(DOG, "class")
        except UserError as error:
            assert all(error.problems)
        else:
            assert found.texts
