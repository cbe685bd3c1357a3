"""The bundled recipes and their class lists are whole, and say what the papers say.

`test_pinned_hashes.py` holds what each draws and keeps as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cache

import pytest

from counterfoil.data.open_source import open_source
from counterfoil.evaluation.tasks.classes.computed import computed_groups
from counterfoil.evaluation.tasks.classes.measures.corruption_error import _ALEXNET_ERRORS
from counterfoil.lab.vocabulary import CLASSES, SHIFTS
from counterfoil.plan.estimate import estimate
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import (
    Recipe,
    bundled_recipes,
    dump_recipe,
    load_recipe,
    load_recipe_text,
    prompt_for,
)
from counterfoil.recipe.layering import bundled_folder
from lab_training.captions import caption_of

NAMES = ["wardrobe-mini", "wardrobe-star"]
NEWER_SCREENS = ["pets-siglip2", "pets-pe-core"]
LARGE = ["aircraft-star", "imagenet-star", "pets-star"]
DRAWN = ["flux-schnell", "sd35-medium", "z-image"]  # with the classes of imagenet-star
# Known changes of real images.
CORRUPTED = "wardrobe-corrupt"
# The same, computed while models answer.
COMPUTED = "imagenet-c-5k"
# The same, for detectors.
BOXES = "wardrobe-boxes"
# And for segmenters.
MASKS = "wardrobe-masks"

# Vendrow 2023, Table 1, row by row: shift name, prompt with its lost spaces, CLIP threshold.
TABLE_1 = """
in the grass | A photo of a <class> in the grass | 0.127
in the beach | A photo of a <class> in the beach | 0.175
in the forest | A photo of a <class> in the forest | 0.153
in the water | A photo of a <class> in the water | 0.163
on the road | A photo of a <class> in the road | 0.154
on the rocks | A photo of a <class> in the rocks | 0.124
in the snow | A photo of a <class> in the snow | 0.160
in the rain | A photo of a <class> in the rain | 0.173
in the fog | A photo of a <class> in the fog | 0.152
in bright sunlight | A photo of a <class> in bright sunlight | 0.124
at dusk | A photo of a <class> at dusk | 0.158
at night | A photo of a <class> at night | 0.147
studio lighting | A photo of a <class> in studio lighting | 0.140
blue | A photo of a blue <class> | 0.163
green | A photo of a green <class> | 0.190
red | A photo of a red <class> | 0.167
yellow | A photo of a yellow <class> | 0.212
orange | A photo of a orange <class> | 0.216
person and a | A photo of a person and a <class> | 0.181
and a flower | A photo of a <class> and a flower | 0.148
oil painting | An oil panting of a <class> | 0.214
pencil sketch | A black and white pencil sketch of a <class> | 0.223
embroidery | An embroidery of a <class> | 0.259
"""


loaded = cache(load_recipe)  # recipes are frozen


def table_1() -> dict[str, tuple[str, str, float]]:
    """Return shift → (its name in the table, prompt, threshold)."""
    rows = [[part.strip() for part in line.split("|")] for line in TABLE_1.strip().splitlines()]
    return {
        name.replace(" ", "_"): (name, prompt.replace("<class>", "{class}"), float(value))
        for name, prompt, value in rows
    }


def test_imagenet_c_5k_has_five_images_a_class_and_the_published_kinds() -> None:
    recipe = loaded(COMPUTED)
    plan = make_plan(recipe)
    assert sum(shard.candidates for shard in plan.shards) == 5000
    assert len(recipe.all_shifts()) == 1
    computed = computed_groups(recipe, None)
    kinds = {group.change.corruption for group in computed if group.change}
    assert kinds == set(_ALEXNET_ERRORS) and len(computed) == 75
    assert recipe.generator.get("size") is None


@pytest.mark.parametrize("name", NEWER_SCREENS)
def test_a_newer_screen_draws_the_same_images_and_leaves_thresholds_open(name: str) -> None:
    import open_clip

    recipe = loaded(name)
    assert recipe.plan_hash == loaded("pets-star").plan_hash
    assert (recipe.screen.model, recipe.screen.weights) in open_clip.list_pretrained()
    for shift in recipe.all_shifts()[1:]:
        assert shift.threshold is not None and shift.threshold.percentile is not None


def test_the_one_of_boxes_names_the_labs_categories_and_corrupts_scenes_that_no_model_has_seen() -> (
    None
):
    recipe = loaded(BOXES)
    assert tuple(recipe.source.categories or ()) == open_source(recipe.source).rows(
        "audit", labelled=False
    ).class_names("objects")
    assert (recipe.source.dataset, recipe.generator.get("split")) == ("lab:wardrobe-boxes", "audit")
    corruptions = {shift.name: shift.corruption for shift in loaded(CORRUPTED).all_shifts()}
    shifts = {shift.name: shift.corruption for shift in recipe.all_shifts()}
    assert shifts.items() <= corruptions.items() and not {"rotation", "occlusion"} & set(shifts)


@pytest.mark.parametrize("name", bundled_recipes())
def test_a_bundled_recipe_names_its_schema_and_itself(name: str) -> None:
    text = bundled_recipes()[name].read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=./recipe.schema.json"
    recipe = loaded(name)
    assert recipe.name == name
    if recipe.kind.draws:
        batch = recipe.generator.get("batch_size")
        assert recipe.output.rows_per_shard % batch == 0, "no batch is padded"


@pytest.mark.parametrize("name", ["wardrobe-star", "pets-star", *DRAWN, BOXES, MASKS])
def test_a_resolved_recipe_loads_back_equal(name: str) -> None:
    changes = ["description='on: 5e-4'", "evaluate.models=[lab:a]"]
    if name in DRAWN:  # their thousand classes take seconds
        changes.append("source.classes=[{id: '00', name: t-shirt, source_label: 0}]")
    recipe = load_recipe(name, changes)
    text = dump_recipe(recipe)
    again = load_recipe_text(text)
    assert again == recipe
    assert dump_recipe(again) == text


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_the_labs(name: str) -> None:
    classes = loaded(name).classes
    assert tuple(cls.name for cls in classes) == CLASSES
    assert [cls.id for cls in classes] == [f"{label:02d}" for label in range(10)]
    assert (
        [cls.source_label for cls in classes] == [cls.label for cls in classes] == list(range(10))
    )


def test_prompts_and_captions_are_what_the_labs_models_were_taught() -> None:
    recipe = loaded("wardrobe-star")
    worlds = {shift.name: shift for shift in SHIFTS}
    for shift in recipe.all_shifts()[1:]:
        world = worlds[shift.name]
        claims = {"style": "photo", world.attribute: world.value}
        assert shift.caption == caption_of(claims)
        for cls in recipe.classes:
            assert prompt_for(shift, cls) == caption_of(claims | {"class": cls.name})
        assert shift.style == (world.attribute == "style")


def test_imagenet_star_is_table_1() -> None:
    recipe = loaded("imagenet-star")
    base, *shifts = recipe.all_shifts()
    assert base.prompt == "A photo of a {class}"
    assert (base.caption, base.threshold) == (None, None)
    prompts = {
        shift.name: (shift.prompt, shift.threshold and shift.threshold.value) for shift in shifts
    }
    assert list(prompts.items()) == [
        (name, (prompt, value)) for name, (_, prompt, value) in table_1().items()
    ]
    kinds = {shift.name: shift.kind for shift in SHIFTS}
    assert {shift.name: shift.kind for shift in shifts} == kinds


def test_imagenet_classes_are_timms_in_order() -> None:
    from timm.data import ImageNetInfo

    classes = loaded("imagenet-star").classes
    info = ImageNetInfo()
    assert [cls.id for cls in classes] == info.label_names()
    for index, (cls, names) in enumerate(zip(classes, info.label_descriptions(), strict=True)):
        assert names == cls.name or names.startswith(f"{cls.name}, ")
        assert (cls.label, cls.source_label, cls.imagenet) == (index, index, (index,))
    repeated = {cls.name for cls in classes if sum(other.name == cls.name for other in classes) > 1}
    assert repeated == {"crane", "maillot"}


@pytest.mark.parametrize(("name", "count", "ends"), [
    ("pets-star", 37, ("Abyssinian", "Yorkshire terrier")), ("aircraft-star", 100, ("707-320", "Yak-42")),
])  # fmt: skip
def test_other_classes_are_in_the_alphabetical_order_that_their_datasets_have(
    name: str, count: int, ends: tuple[str, str]
) -> None:
    classes = loaded(name).classes
    assert len(classes) == len({cls.name for cls in classes}) == count
    assert (classes[0].name, classes[-1].name) == ends
    assert (
        [cls.source_label for cls in classes]
        == [int(cls.id) for cls in classes]
        == list(range(count))
    )
    names = [cls.name for cls in classes]
    assert names == sorted(names, key=str.casefold if name == "pets-star" else None)
    assert not any(cls.imagenet for cls in classes)


@pytest.mark.parametrize(
    ("name", "word"), [("imagenet-star", None), ("pets-star", "pet"), ("aircraft-star", "airplane")]
)
def test_tokens_are_learned_as_the_paper_learned_them(name: str, word: str | None) -> None:
    tokens = loaded(name).tokens
    assert tokens is not None and tokens.learn is not None
    assert tokens.learn.initial_word == word  # Appendix D
    assert (tokens.learn.steps, tokens.learn.learning_rate, tokens.learn.batch_size) == (
        3000,
        5e-4,
        1,
    )
    # `imagenet_templates_small` of MadryLab/dataset-interfaces at e4824f7d: 27 lines.
    templates = "\n".join(template.replace("{class}", "{}") for template in tokens.learn.templates)
    assert hashlib.sha256(templates.encode()).hexdigest()[:16] == "371f97a75395160f"


@pytest.mark.parametrize("name", LARGE)
def test_the_models_are_the_papers(name: str) -> None:
    recipe: Recipe = loaded(name)
    generator = recipe.drawing
    screen = recipe.screen
    assert (generator.scheduler, generator.steps, generator.guidance) == ("EulerDiscrete", 50, 7.5)
    assert (screen.model, screen.weights) == ("ViT-H-14", "laion2b_s32b_b79k")
    assert all(shift.object_threshold.percentile is not None for shift in recipe.all_shifts())


@pytest.mark.parametrize(
    ("name", "cells"),
    [("imagenet-star", 24 * 1000), ("pets-star", 14 * 37), ("aircraft-star", 15 * 100)],
)
def test_plan_and_estimate_of_the_large_recipes(name: str, cells: int) -> None:
    plan = make_plan(loaded(name))
    assert (plan.n_cells, plan.n_samples) == (cells, 50 * cells)
    # 1000 rows hold 20 cells of 50
    assert plan.n_shards == len(plan.groups) * -(-len(plan.recipe.classes) // 20)
    cost = estimate(plan)
    assert cost.seconds == pytest.approx(5 * plan.n_samples)
    assert "768 x 768" in cost.assumptions[0]
    # The Hub takes 100,000 files a repository and 10,000 a folder; receipts lie in one folder.
    assert cost.files < 10_000
    first = next(plan.samples(next(plan.cells())))
    assert first.prompt == f"A photo of a <{first.class_id}>"


# Jain 2023, C.2: "the set of ancestors and the number of ImageNet classes associated to each".
JAIN = """
fish: 16, bird: 59, amphibian: 9, reptile: 36, invertebrate: 61, mammal: 30, marsupial: 3,
aquatic mammal: 4, canine: 130, feline: 13, rodent: 6, swine: 3, bovid: 9, primate: 20,
device: 124, entity: 59, vehicle: 7, aircraft: 4, structure: 57, wheeled vehicle: 40,
container: 32, equipment: 37, implement: 36, covering: 43, furniture: 21, vessel: 32,
fabric: 6, train: 1, instrumentality: 12, appliance: 12, bus: 3, food: 38, fruit: 16,
geological formation: 9, person: 3, flower: 2, fungus: 7
"""


def test_each_category_has_the_papers_number_of_classes() -> None:
    classes = loaded("imagenet-star").classes
    numbers = {name: int(number) for name, number in re.findall(r"(\w[a-z ]+): (\d+)", JAIN)}
    assert Counter(cls.category for cls in classes) == numbers
    assert sum(numbers.values()) == len(classes) == 1000


def test_every_class_has_a_parent_in_words() -> None:
    classes = loaded("imagenet-star").classes
    by_id = {cls.id: cls for cls in classes}
    assert all(cls.parent and "_" not in cls.parent for cls in classes)
    parents = {
        "n02190166": "insect", "n02123394": "domestic animal", "n01985128": "crustacean", "n04131690": "container",
        "n02165456": "insect",
    }  # fmt: skip
    assert {class_id: by_id[class_id].parent for class_id in parents} == parents, (
        "as Wiles 2022 prints them"
    )
    # Ids are keys, for names repeat: one crane wades, the other lifts.
    cranes = [cls for cls in classes if cls.name == "crane"]
    assert [(cls.parent, cls.category) for cls in cranes] == [
        ("aquatic bird", "bird"),
        ("device", "device"),
    ]


def test_what_lies_under_a_parent_is_what_wordnet_puts_there() -> None:
    classes = loaded("imagenet-star").classes

    def under_parent_of(name: str) -> list[str]:
        (cls,) = (cls for cls in classes if cls.name == name)
        return [other.name for other in classes if other.under_parent_of(cls)]

    counted_right = {"crayfish", "spiny lobster", "American lobster", "Dungeness crab", "king crab"}
    assert counted_right <= set(under_parent_of("crayfish")), "Wiles 2022, section 4.1"
    assert {"lynx", "snow leopard"}.isdisjoint(under_parent_of("Persian cat")), "its failures there"
    assert {"chainlink fence", "honeycomb", "window screen", "spider web"}.isdisjoint(
        under_parent_of("crayfish")
    )
    sizes = {"crayfish": 9, "fly": 27, "ladybug": 27, "Persian cat": 123, "saltshaker": 100}
    assert {name: len(under_parent_of(name)) for name in sizes} == sizes
    by_parent = {cls.kinds[0]: cls.parent for cls in classes}
    assert len(by_parent) == 302 and len(set(by_parent.values())) == 296, (
        "a dish, a vessel, a plate are two things each"
    )


def test_wordnets_notice_goes_along_with_its_words() -> None:
    text = (bundled_folder() / "classes" / "imagenet.yaml").read_text(encoding="utf-8")
    assert "# WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved.\n" in text
    assert 'PROVIDED "AS IS"' in text
