"""What captions add, in plain words."""

from __future__ import annotations

import pytest

from counterfoil.mining.captions import CaptionNoun, load_captions, words_of
from counterfoil.recipe.prompts import RecipeClass

# Class name, caption, reference: the words of the set like it, the words of the set unlike it.
SAID = [
    ("coat", "a photo of a checked coat", "a photo of a coat", "checked coat", "coat, not checked"),
    (
        "sandal", "a photo of a sandal on the beach", "a photo of a sandal",
        "sandal on the beach", "sandal not on the beach",
    ),
    (
        "sandal", "a photo of a orange sandal on the beach", "a photo of a sandal",
        "orange sandal on the beach", "sandal, not an orange one on the beach",
    ),
    (
        "sandal", "a photo of a person and a sandal", "a photo of a sandal",
        "sandal with a person", "sandal without a person",
    ),
    (
        "sandal", "a photo of a sandal and a flower", "a photo of a sandal",
        "sandal with a flower", "sandal without a flower",
    ),
    (
        "red wolf", "a photo of a white canine outside", "a photo of a canine",
        "white red wolf outside", "red wolf, not a white one outside",
    ),
    (
        "tench", "a photo of a fish with a person", "a photo of a fish",
        "tench with a person", "tench without a person",
    ),
    (
        "tench", "a photo of a group of fish in a tank", "a photo of a fish",
        "group of tench in a tank", "tench, not a group of tench in a tank",
    ),
    ("deer", "a photo of a kob", "a photo of a deer", "kob (deer)", "deer, not a kob"),
    ("cat", "a photo of a Persian cat", "a photo of a cat", "Persian cat", "cat, not Persian"),
    ("shirt", "a photo of a t-shirt", "a photo of a shirt", "t-shirt (shirt)", "shirt, not a t-shirt"),
    (
        "t-shirt or coat", "a photo of a coat", "a photo of a t-shirt and a coat",
        "coat (t-shirt or coat)", "t-shirt or coat, not a coat",
    ),
    ("coat", "a photo of a coat in snow", "a photo", "coat in snow", "coat not in snow"),
    ("coat", "a photo of a coat", "a photo of a coat", "coat", "coat"),
    ("ankle boot", "an Ankle Boot at dusk", "an ankle boot", "ankle boot at dusk", "ankle boot not at dusk"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "caption", "reference", "hard", "far_from"), SAID)
def test_sets_are_named_as_people_would(name: str, caption: str, reference: str, hard: str, far_from: str) -> None:
    assert words_of(name, caption, reference, "hard") == hard
    assert words_of(name, caption, reference, "far_from") == far_from


@pytest.mark.parametrize(("grammar", "name", "category", "noun"), [
    ("wardrobe", "coat", None, "class"), ("wardrobe", "ankle boot", None, "class"),
    ("wardrobe", "t-shirt or dress", None, "hyponyms"), ("imagenet", "red wolf", "canine", "category"),
    ("imagenet", "fire engine", "wheeled vehicle", "category"), ("cifar", "cat", None, "hyponyms"),
])  # fmt: skip
def test_two_captions_of_a_class_never_have_the_same_words(
    grammar: str, name: str, category: str | None, noun: CaptionNoun
) -> None:
    found = load_captions(grammar).of(RecipeClass("0", name, 0, 0, (), category=category), noun)
    for role in ("hard", "far_from"):
        words = [words_of(name, text, found.reference, role) for text in found.texts]
        assert len(set(words)) == len(words)
        assert name not in words
        assert all(name in said and said == " ".join(said.split()) for said in words)
