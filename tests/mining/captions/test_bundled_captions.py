"""The captions that are shipped: the papers' words and numbers, and the wardrobe's own grammar."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from counterfoil.lab.scenes import caption_of
from counterfoil.lab.vocabulary import BACKGROUNDS, CLASSES, COLOURS, COMPANIONS, LIGHTS, PATTERNS, WEATHERS
from counterfoil.mining.captions import gather, load_captions
from counterfoil.mining.methods.directions import grammar_captions
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.layering import bundled_folder, bundled_recipes
from counterfoil.recipe.loader import with_classes
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.schema_mine import DirectionsSettings

# How many prepositions of its own each category has: Jain 2023, C.2, and for the last four the public implementation.
OWN_PREPOSITIONS = {
    "reptile": 4, "amphibian": 4, "marsupial": 5, "swine": 5, "bovid": 5, "feline": 5, "canine": 5, "rodent": 5,
    "fungus": 2, "food": 4, "geological formation": 0, "train": 0, "mammal": 0, "structure": 0, "entity": 0,
    "wheeled vehicle": 2, "bus": 2, "vehicle": 2, "fruit": 5, "flower": 5, "fish": 3, "aquatic mammal": 3, "person": 2,
    "equipment": 3, "instrumentality": 3, "appliance": 3, "container": 3, "fabric": 3, "covering": 3, "device": 3,
    "implement": 3, "primate": 3, "invertebrate": 3, "bird": 6, "aircraft": 2, "furniture": 1, "vessel": 3,
}  # fmt: skip
# Jain 2023, C.1.2.
CIFAR_PREPOSITIONS = {
    "dog": 4, "cat": 4, "bird": 4, "horse": 2, "airplane": 4, "truck": 2, "automobile": 2, "deer": 4, "ship": 4,
    "frog": 2,
}  # fmt: skip


def classes_called(*names: str) -> tuple[RecipeClass, ...]:
    return tuple(RecipeClass(f"{label:02d}", name, label, label, ()) for label, name in enumerate(names))


@pytest.fixture(scope="module")
def imagenet() -> tuple[RecipeClass, ...]:
    return load_recipe("imagenet-star").classes


def test_a_thousand_imagenet_classes_share_about_five_thousand_captions(imagenet: tuple[RecipeClass, ...]) -> None:
    texts, references, candidates = gather(load_captions("imagenet"), imagenet, "category")
    # 13 adjectives, and 8 prepositions beside the category's own; the plainest of them is the reference.
    expected = {category: 13 * (8 + own) for category, own in OWN_PREPOSITIONS.items()}
    assert len(expected) == 37
    assert len(texts) == len(set(texts)) == sum(expected.values()) == 5278
    assert {texts[row] for row in references} == {f"a photo of a {category}" for category in expected}
    for cls, own in zip(imagenet, candidates, strict=True):
        assert len(own) == expected[str(cls.category)] - 1, cls
    assert "a photo of a white canine outside" in texts  # figure 10a, as those that follow
    assert "a photo of a close-up fish" in texts
    assert "a photo of a orange fish with a person" in texts
    assert not [text for text in texts if "one the" in text]  # a slip in the paper's list


def test_any_classes_have_captions_where_a_recipe_names_none(imagenet: tuple[RecipeClass, ...]) -> None:
    """Classes of a folder, whatever it calls them; and a thousand have few enough to encode."""
    odd = classes_called("IMG {x}", "Ärztin", "n01440764", "a")
    gathered, (told,) = grammar_captions(replace_classes(odd), DirectionsSettings(), Path(), "cpu")
    texts, references, candidates = gathered
    assert [texts[row] for row in references] == [f"a photo of a {one.name}" for one in odd]
    own = [{texts[row] for row in rows} for rows in candidates]
    assert len({len(one) for one in own}) == 1 and len(own[0]) > 60
    wanted = ("in the snow", "at night", "in the fog", "from above", "in a drawing")
    assert {f"a photo of a Ärztin {words}" for words in wanted} | {"a photo of a red Ärztin"} <= own[1]
    assert "grammar 'any'" in told and all(name in told for name in ("cifar", "imagenet", "wardrobe"))
    assert len(gather(load_captions("any"), imagenet, "class")[0]) < 80_000


def replace_classes(classes: tuple[RecipeClass, ...]) -> Recipe:
    entries = [ClassEntry(id=one.id, name=one.name, source_label=one.label) for one in classes]
    return with_classes(load_recipe("wardrobe-corrupt"), entries)


def test_with_its_own_name_an_imagenet_class_keeps_the_words_of_its_category(imagenet: tuple[RecipeClass, ...]) -> None:
    red_wolf = next(cls for cls in imagenet if cls.name == "red wolf")
    texts = load_captions("imagenet").of(red_wolf, "class").texts
    assert len(texts) == 13 * (8 + 5) - 1
    assert {"a photo of a red wolf in the forest", "a photo of a group of red wolf"} <= set(texts)


def test_cifar_has_the_papers_words_and_in_its_extended_form_nouns_below_each_class() -> None:
    grammar = load_captions("cifar")
    classes = classes_called(*CIFAR_PREPOSITIONS)
    for cls in classes:
        simple = 9 * (7 + CIFAR_PREPOSITIONS[cls.name])
        assert len(grammar.of(cls, "class").texts) == simple - 1
        nouns = grammar.hyponyms[cls.name]
        assert len(nouns) == len(set(nouns)) <= 160
        extended = grammar.of(cls, "hyponyms")
        assert extended.reference == f"a photo of a {cls.name}"
        # Nearly all combinations: some are the reference, and "red" and "jungle fowl" make another noun of the list.
        assert simple * len(nouns) >= len(extended.texts) > 0.99 * simple * len(nouns)
    (cat, deer) = (cls for cls in classes if cls.name in ("cat", "deer"))
    assert "a photo of a white Persian cat on the grass" in grammar.of(cat, "hyponyms").texts
    assert "a photo of a kob inside" in grammar.of(deer, "hyponyms").texts  # the paper's
    text = (bundled_folder() / "captions" / "cifar.yaml").read_text(encoding="utf-8")
    assert "# WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.\n" in text


def captions_of_the_world(name: str) -> set[str]:
    """A look, a place, weather or light, or a companion, as the world's own grammar says each."""
    looks = [{}, *({"colour": colour} for colour in COLOURS), *({"pattern": p} for p in PATTERNS if p != "plain")]
    around = [{}, *({"background": place} for place in BACKGROUNDS)]
    around += [{"weather": weather} for weather in WEATHERS if weather != "clear"]
    around += [{"light": light} for light in LIGHTS if light != "day"]
    claims = [look | place for look, place in product(looks, around)]
    claims += [{"companion": companion} for companion in COMPANIONS if companion != "none"]
    return {caption_of({"style": "photo", "class": name} | own) for own in claims}


@pytest.mark.parametrize("name", CLASSES)
def test_the_wardrobes_captions_are_the_worlds_own_to_the_word(name: str) -> None:
    (cls,) = classes_called(name)
    found = load_captions("wardrobe").of(cls, "class")
    assert found.reference == f"a photo of a {name}"
    assert {found.reference, *found.texts} == captions_of_the_world(name)
    assert len(found.texts) == 12 * 17 + 2 - 1


def test_a_merged_class_is_called_by_each_of_its_garments() -> None:
    (merged,) = classes_called("t-shirt or dress")
    found = load_captions("wardrobe").of(merged, "hyponyms")
    assert set(found.texts) == captions_of_the_world("t-shirt") | captions_of_the_world("dress")
    assert found.reference not in found.texts


def test_the_wardrobes_recipe_can_be_asked_with_the_wardrobes_captions() -> None:
    texts, references, candidates = gather(load_captions("wardrobe"), load_recipe("wardrobe-star").classes, "class")
    assert len(texts) == 10 * 206
    assert [texts[row] for row in references] == [f"a photo of a {name}" for name in CLASSES]
    assert {len(own) for own in candidates} == {205}


def test_caption_grammars_are_no_recipes() -> None:
    files = {path.stem for path in (bundled_folder() / "captions").iterdir()}
    assert files == {"any", "cifar", "imagenet", "wardrobe"}
    assert not files & set(bundled_recipes())
