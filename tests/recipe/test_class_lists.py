"""ImageNet's class list: what each class is a kind of, with the numbers of classes that the paper prints."""

from __future__ import annotations

from collections import Counter

from counterfoil.recipe import load_recipe
from counterfoil.recipe.layering import bundled_folder

# Jain 2023, C.2: "the set of ancestors and the number of ImageNet classes associated to each".
JAIN = {
    "fish": 16, "bird": 59, "amphibian": 9, "reptile": 36, "invertebrate": 61, "mammal": 30, "marsupial": 3,
    "aquatic mammal": 4, "canine": 130, "feline": 13, "rodent": 6, "swine": 3, "bovid": 9, "primate": 20, "device": 124,
    "entity": 59, "vehicle": 7, "aircraft": 4, "structure": 57, "wheeled vehicle": 40, "container": 32, "equipment": 37,
    "implement": 36, "covering": 43, "furniture": 21, "vessel": 32, "fabric": 6, "train": 1, "instrumentality": 12,
    "appliance": 12, "bus": 3, "food": 38, "fruit": 16, "geological formation": 9, "person": 3, "flower": 2,
    "fungus": 7,
}  # fmt: skip


def test_each_category_has_the_papers_number_of_classes() -> None:
    classes = load_recipe("imagenet-star").classes
    assert Counter(cls.category for cls in classes) == JAIN
    assert sum(JAIN.values()) == len(classes) == 1000


def test_every_class_has_a_parent_in_words() -> None:
    classes = load_recipe("imagenet-star").classes
    by_id = {cls.id: cls for cls in classes}
    assert all(cls.parent and "_" not in cls.parent for cls in classes)
    parents = {"n01440764": "cyprinid", "n02099601": "retriever", "n03599486": "cart", "n02892767": "undergarment"}
    assert {class_id: by_id[class_id].parent for class_id in parents} == parents
    # Ids are keys, for names repeat: one crane wades, the other lifts.
    cranes = [cls for cls in classes if cls.name == "crane"]
    assert [(cls.parent, cls.category) for cls in cranes] == [("wading bird", "bird"), ("lifting device", "device")]


def test_wordnets_notice_goes_along_with_its_words() -> None:
    text = (bundled_folder() / "classes" / "imagenet.yaml").read_text(encoding="utf-8")
    assert "# WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.\n" in text
    assert 'PROVIDED "AS IS"' in text


def test_a_prompt_can_say_what_a_class_is_a_kind_of() -> None:
    # Wiles 2022: "a realistic photograph of a {label} ({WordNet parent})."
    recipe = load_recipe("imagenet-star", ["prompts.base.prompt=a realistic photograph of a {class} ({parent})."])
    base = recipe.all_shifts()[0]
    assert base.prompt is not None
    assert recipe.classes[207].text(base.prompt) == "a realistic photograph of a golden retriever (retriever)."
