"""All captions of all classes: each text once, and each class finds its own again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.mining.captions import CaptionGrammar, gather, gathering
from counterfoil.mining.captions.grammar import CaptionNoun
from counterfoil.recipe.prompts import RecipeClass

NAMES = st.sampled_from(["dog", "puppy", "cat", "crane", "red fox"])
CLASSES = st.lists(st.tuples(NAMES, st.sampled_from(["canine", "bird"])), min_size=1, max_size=8)


def grammar_of(**keys: object) -> CaptionGrammar:
    return CaptionGrammar.model_validate(keys, strict=True)


def classes_of(*about: tuple[str, str | None]) -> list[RecipeClass]:
    return [RecipeClass(str(n), name, n, n, (), category=category) for n, (name, category) in enumerate(about)]


@given(CLASSES, st.sampled_from(["class", "category", "hyponyms"]))
def test_each_text_stands_once_and_each_class_has_its_own(about: list, noun: CaptionNoun) -> None:
    # "puppy" is a class of its own and a hyponym of another: reference of one, candidate of the other.
    grammar = grammar_of(
        templates=("a photo of a {adjective} {noun}",),
        adjectives=(None, "white"),
        captions=("a photo of snow",),
        covers=("canine",),
        by_name={"canine": {"captions": ("{noun} outside",)}},
        hyponyms={name: (name, "puppy", "kit") if name == "dog" else (name, "kit") for name, _ in about},
    )
    classes = classes_of(*about)
    texts, references, candidates = gather(grammar, classes, noun)
    assert len(set(texts)) == len(texts)
    assert {*references, *(int(row) for own in candidates for row in own)} == set(range(len(texts)))
    for cls, reference, own in zip(classes, references, candidates, strict=True):
        alone = grammar.of(cls, noun)
        assert texts[reference] == alone.reference
        assert own.dtype.name == "int64"
        assert tuple(texts[row] for row in own) == alone.texts


def test_classes_that_lack_the_same_are_told_in_one_line() -> None:
    grammar = grammar_of(captions=("a {noun} outside",))
    classes = classes_of(*((f"class {number}", None) for number in range(7)), ("dog", "canine"))
    with pytest.raises(UserError) as caught:
        gather(grammar, classes, "category")
    named = ", ".join(f"'class {number}'" for number in range(5))
    assert caught.value.problems == (f"captions: each of 7 classes ({named}, … and 2 more) has no category",)
    assert caught.value.hint == "Give it a `category` in the recipe, or say noun: class."


def test_every_name_that_is_of_no_class_is_told() -> None:
    grammar = grammar_of(captions=("a {noun} outside",), by_name={"dgo": {}, "canine": {}, "cta": {}})
    with pytest.raises(UserError) as caught:
        gather(grammar, classes_of(("dog", "canine"), ("cat", None)), "category")
    assert caught.value.problems == (
        "captions: by_name.dgo: expected the name or the category of a class of the recipe; did you mean 'dog'?",
        "captions: by_name.cta: expected the name or the category of a class of the recipe; did you mean 'cat'?",
        "captions: class 'cat' has no category",
    )


def test_a_grammar_for_more_classes_than_a_recipe_has_says_so() -> None:
    keys = {"captions": ("a {noun} outside",), "by_name": {"cat": {"captions": ("a tabby",)}}}
    with pytest.raises(UserError, match=r"by_name\.cat"):
        gather(grammar_of(**keys), classes_of(("dog", None)), "class")
    texts, _, _ = gather(grammar_of(**keys, covers=("dog", "cat")), classes_of(("dog", None)), "class")
    assert texts == ("a photo of a dog", "a dog outside")


def test_many_problems_are_cut_with_their_number() -> None:
    grammar = grammar_of(captions=("a {noun}",), by_name={f"none {number}": {} for number in range(25)})
    with pytest.raises(UserError) as caught:
        gather(grammar, classes_of(("dog", None)), "class")
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == "… and 5 more"


def test_more_captions_in_all_than_can_be_encoded_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_TEXTS", 10)
    grammar = grammar_of(templates=("a {adjective} {noun}",), adjectives=("red", "blue", "green"))
    assert len(gather(grammar, classes_of(("dog", None), ("cat", None)), "class")[0]) == 8
    with pytest.raises(UserError, match="more than 10 in all by class 'hen', 3 of 4"):
        gather(grammar, classes_of(("dog", None), ("cat", None), ("hen", None), ("cow", None)), "class")
