"""The bundled recipes and their class lists are whole, and say what the papers say."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter

import pytest

from counterfoil.data.open_source import open_source
from counterfoil.evaluation.tasks.classes.computed import computed_groups
from counterfoil.evaluation.tasks.classes.measures.corruption_error import _ALEXNET_ERRORS
from counterfoil.lab.boxes import MASK_CLASSES
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
# imagenet-star with another generator → its model, steps and guidance, as the model's card has
# them.
DRAWN = {
    "flux-schnell": ("black-forest-labs/FLUX.1-schnell", 4, 0),
    "sd35-medium": ("stabilityai/stable-diffusion-3.5-medium", 40, 4.5),
    "z-image": ("Tongyi-MAI/Z-Image-Turbo", 9, 0),
}
# Layers over these, which say how they are mined.
MINED = {
    "imagenet-bugs": "imagenet-star",
    "wardrobe-bugs": "wardrobe-star",
    "wardrobe-contexts": "wardrobe-star",
}
# A layer that draws nothing.
RETRIEVED = {"wardrobe-retrieved": "wardrobe-mini"}
# Layers that edit real images.
EDITED = {"wardrobe-edited": "wardrobe-mini", "wardrobe-lance": "wardrobe-edited"}
# A layer whose pairs share more than noise.
PAIRS = "wardrobe-pairs"
# Known changes of real images.
CORRUPTED = "wardrobe-corrupt"
CORRUPTED_BY_DEGREES = "wardrobe-corrupt-severity"
# The same, computed while models answer.
COMPUTED = "imagenet-c-5k"
# The same, for detectors.
BOXES = "wardrobe-boxes"
# And for segmenters.
MASKS = "wardrobe-masks"
# Layers whose shifts come by degrees.
GRADED = {"wardrobe-severity": "wardrobe-mini", "imagenet-severity": "imagenet-star"}

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


def table_1() -> dict[str, tuple[str, str, float]]:
    """Return shift → (its name in the table, prompt, threshold)."""
    rows = [[part.strip() for part in line.split("|")] for line in TABLE_1.strip().splitlines()]
    return {
        name.replace(" ", "_"): (name, prompt.replace("<class>", "{class}"), float(value))
        for name, prompt, value in rows
    }


def test_these_recipes_are_bundled() -> None:
    layers = [*DRAWN, *MINED, *RETRIEVED, *EDITED, *GRADED]
    corrupted = [CORRUPTED, CORRUPTED_BY_DEGREES, COMPUTED, BOXES, MASKS]
    names = [*NAMES, *LARGE, *layers, PAIRS, *corrupted, *NEWER_SCREENS]
    assert sorted(bundled_recipes()) == sorted(names)


def test_imagenet_c_5k_has_five_images_a_class_and_the_published_kinds() -> None:
    recipe = load_recipe(COMPUTED)
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

    recipe = load_recipe(name)
    assert recipe.plan_hash == load_recipe("pets-star").plan_hash
    assert (recipe.screen.model, recipe.screen.weights) in open_clip.list_pretrained()
    for shift in recipe.all_shifts()[1:]:
        assert shift.threshold is not None and shift.threshold.percentile is not None


def test_the_retrieved_one_asks_for_the_same_images_by_class_name() -> None:
    retrieved = load_recipe("wardrobe-retrieved")
    drawn = load_recipe("wardrobe-mini", ["tokens=null"])
    assert not retrieved.kind.draws and retrieved.generator.get("split") == "audit"
    assert retrieved.all_shifts() == drawn.all_shifts() and retrieved.classes == drawn.classes
    assert retrieved.screen_hash == drawn.screen_hash


def test_the_one_of_pairs_is_the_small_one_but_for_what_pairs_share() -> None:
    pairs = load_recipe(PAIRS)
    mini = load_recipe("wardrobe-mini")
    assert pairs.samples == mini.samples.model_copy(update={"pairs": "attention"})
    assert (pairs.generator, pairs.screen_hash) == (mini.generator, mini.screen_hash)
    assert pairs.all_shifts() == mini.all_shifts()


@pytest.mark.parametrize(("name", "levels"), [("wardrobe-severity", 4), ("imagenet-severity", 5)])
def test_graded_ones_have_even_levels_of_every_shift_up_to_the_whole(
    name: str, levels: int
) -> None:
    recipe = load_recipe(name)
    base, *shifts = recipe.all_shifts()
    names = list(dict.fromkeys(shift.of for shift in shifts))
    even = [round(step / levels, 2) for step in range(1, levels + 1)]
    assert [(shift.of, shift.level) for shift in shifts] == [
        (graded, level) for graded in names for level in even
    ]
    assert {shift.by for shift in shifts} == {"prompt"} and not any(
        shift.realised for shift in shifts
    )
    assert (
        base
        == load_recipe(
            GRADED[name], [f"samples.candidates={recipe.samples.candidates}"]
        ).all_shifts()[0]
    )


def test_levels_of_corruptions_are_the_five_severities_and_are_called_by_them() -> None:
    base, *shifts = load_recipe(CORRUPTED_BY_DEGREES).all_shifts()
    assert base.name == "base" and {shift.by for shift in shifts} == {"corruption"}
    names = {
        corruption: [shift.name for shift in shifts if shift.corruption == corruption]
        for corruption in ("fog", "darker")
    }
    assert names == {name: [f"{name}_{step}" for step in range(1, 5)] + [name] for name in names}
    assert [shift.severity for shift in shifts if shift.corruption == "fog"] == [1, 2, 3, 4, 5]


def test_graded_shifts_of_the_lab_are_its_own_and_those_of_cns_bench_are_said_behind_the_base() -> (
    None
):
    worlds = {
        shift.name: (shift.prompt, shift.caption)
        for shift in load_recipe("wardrobe-star").all_shifts()
    }
    drawn = load_recipe("wardrobe-severity").all_shifts()[1:]
    assert len(drawn) == 6 * 4 and all(
        worlds[shift.of] == (shift.prompt, shift.caption) for shift in drawn
    )
    plan = make_plan(load_recipe("imagenet-severity"))
    base, *shifts = plan.recipe.all_shifts()
    assert Counter(shift.kind for shift in shifts if shift.top) == {"style": 8, "weather": 6}
    assert all(
        f"{base.prompt}, in {(shift.caption or '')[11:]}" == shift.prompt for shift in shifts
    )
    assert plan.n_samples == 50 * 1000 * (1 + 14 * 5)


def test_the_one_of_boxes_names_the_labs_categories_and_corrupts_scenes_that_no_model_has_seen() -> (
    None
):
    recipe = load_recipe(BOXES)
    assert tuple(recipe.source.categories or ()) == open_source(recipe.source).rows(
        "audit", labelled=False
    ).class_names("objects")
    assert (recipe.source.dataset, recipe.generator.get("split")) == ("lab:wardrobe-boxes", "audit")
    corruptions = {shift.name: shift.corruption for shift in load_recipe(CORRUPTED).all_shifts()}
    shifts = {shift.name: shift.corruption for shift in recipe.all_shifts()}
    assert shifts.items() <= corruptions.items() and not {"rotation", "occlusion"} & set(shifts)


def test_the_one_of_masks_changes_the_scenes_of_boxes_as_that_of_boxes_does() -> None:
    masks = load_recipe(MASKS)
    boxes = load_recipe(BOXES)
    assert masks.source.dataset == "lab:wardrobe-masks"
    assert tuple(masks.task.names(masks.source)) == MASK_CLASSES
    assert masks.all_shifts() == boxes.all_shifts()
    assert (masks.generator, masks.samples) == (boxes.generator, boxes.samples)


@pytest.mark.parametrize(
    "name", [PAIRS, BOXES, MASKS, *RETRIEVED, *EDITED, *GRADED, *NAMES, *LARGE, *DRAWN]
)
def test_a_bundled_recipe_names_its_schema_and_itself(name: str) -> None:
    text = bundled_recipes()[name].read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=./recipe.schema.json"
    assert load_recipe(name).name == name


@pytest.mark.parametrize("name", [*NAMES, *LARGE, *DRAWN, BOXES, MASKS])
def test_a_resolved_recipe_loads_back_equal(name: str) -> None:
    changes = ["description='on: 5e-4'", "evaluate.models=[lab:a]"]
    if name in DRAWN:  # imagenet-star has the same thousand classes
        changes.append("source.classes=[{id: '00', name: t-shirt, source_label: 0}]")
    recipe = load_recipe(name, changes)
    text = dump_recipe(recipe)
    loaded = load_recipe_text(text)
    assert loaded == recipe
    assert dump_recipe(loaded) == text


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_the_labs(name: str) -> None:
    classes = load_recipe(name).classes
    assert tuple(cls.name for cls in classes) == CLASSES
    assert [cls.id for cls in classes] == [f"{label:02d}" for label in range(10)]
    assert (
        [cls.source_label for cls in classes] == [cls.label for cls in classes] == list(range(10))
    )


def test_star_has_the_shifts_of_table_1_in_its_order() -> None:
    base, *shifts = load_recipe("wardrobe-star").all_shifts()
    assert base.name == base.group == "base"
    assert [(s.name, s.kind) for s in shifts] == [(s.name, s.kind) for s in SHIFTS]


def test_mini_is_a_part_of_star() -> None:
    star = {shift.name: shift for shift in load_recipe("wardrobe-star").all_shifts()}
    mini = load_recipe("wardrobe-mini").all_shifts()
    assert len(mini) == 6
    for shift in mini:
        twin = star[shift.name]
        assert (shift.prompt, shift.caption, shift.style) == (twin.prompt, twin.caption, twin.style)


def test_prompts_and_captions_are_what_the_labs_models_were_taught() -> None:
    recipe = load_recipe("wardrobe-star")
    worlds = {shift.name: shift for shift in SHIFTS}
    for shift in recipe.all_shifts()[1:]:
        world = worlds[shift.name]
        claims = {"style": "photo", world.attribute: world.value}
        assert shift.caption == caption_of(claims)
        for cls in recipe.classes:
            assert prompt_for(shift, cls) == caption_of(claims | {"class": cls.name})
        assert shift.style == (world.attribute == "style")


def test_sizes_are_as_promised() -> None:
    mini, star = (load_recipe(name) for name in NAMES)
    assert (mini.samples.candidates, star.samples.candidates) == (20, 50)
    for recipe in (mini, star):
        assert recipe.output.rows_per_shard % recipe.generator.batch_size == 0, "no batch is padded"


def test_imagenet_star_is_table_1() -> None:
    recipe = load_recipe("imagenet-star")
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


def test_captions_of_the_table_come_from_its_shift_names() -> None:
    for shift in load_recipe("imagenet-star").all_shifts()[1:]:
        name, _, _ = table_1()[shift.name]
        if shift.style:
            assert shift.caption in (f"a {name}", f"an {name}")
            assert shift.object_caption == "a {class}"
        else:
            assert shift.caption == f"a photo {name}"
            assert shift.object_caption == "a photo of a {class}"
        assert shift.style == (shift.kind == "style")


@pytest.mark.parametrize("name", ["pets-star", "aircraft-star"])
def test_shifts_that_other_recipes_take_from_the_table_keep_its_words_and_thresholds(
    name: str,
) -> None:
    taken = {shift.name: shift for shift in load_recipe("imagenet-star").all_shifts()}
    shifts = load_recipe(name).all_shifts()
    added = [shift for shift in shifts if shift.name not in taken]
    assert {"pets-star": "sleeping", "aircraft-star": "through_the_clouds"}[name] in {
        shift.name for shift in added
    }
    assert all(shift.threshold and shift.threshold.value is None for shift in added), (
        "no value was ever published"
    )
    for shift in shifts:
        if shift.name in taken:
            twin = taken[shift.name]
            assert (shift.prompt, shift.caption, shift.kind) == (
                twin.prompt,
                twin.caption,
                twin.kind,
            )
            assert shift.threshold == twin.threshold


def test_imagenet_classes_are_timms_in_order() -> None:
    from timm.data import ImageNetInfo

    classes = load_recipe("imagenet-star").classes
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
    classes = load_recipe(name).classes
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
    tokens = load_recipe(name).tokens
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
    recipe: Recipe = load_recipe(name)
    generator = recipe.drawing
    screen = recipe.screen
    assert (generator.scheduler, generator.steps, generator.guidance) == ("EulerDiscrete", 50, 7.5)
    assert (screen.model, screen.weights) == ("ViT-H-14", "laion2b_s32b_b79k")
    assert all(shift.object_threshold.percentile is not None for shift in recipe.all_shifts())
    assert recipe.output.rows_per_shard % generator.batch_size == 0, "no batch is padded"


@pytest.mark.parametrize(
    ("name", "cells"),
    [("imagenet-star", 24 * 1000), ("pets-star", 14 * 37), ("aircraft-star", 15 * 100)],
)
def test_plan_and_estimate_of_the_large_recipes(name: str, cells: int) -> None:
    plan = make_plan(load_recipe(name))
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


@pytest.mark.parametrize("name", DRAWN)
def test_another_generator_changes_nothing_but_how_images_are_drawn(name: str) -> None:
    recipe = load_recipe(name)
    star = load_recipe("imagenet-star")
    generator = recipe.drawing
    assert (generator.model, generator.steps, generator.guidance) == DRAWN[name]
    assert (generator.scheduler, generator.size, generator.dtype) == (None, 1024, "bfloat16")
    assert recipe.tokens is None, "no tokens were learned for it"
    assert recipe.screen_hash == star.screen_hash
    assert (recipe.source, recipe.prompts, recipe.samples) == (
        star.source,
        star.prompts,
        star.samples,
    )
    assert recipe.output.rows_per_shard % generator.batch_size == 0, "no batch is padded"
    assert "1024 x 1024" in estimate(make_plan(recipe)).assumptions[0]


@pytest.mark.parametrize("name", DRAWN)
def test_one_s_own_recipe_sits_on_another_generator(name: str) -> None:
    recipe = load_recipe_text(
        f"extends: {name}\nname: mine\nsamples: {{candidates: 5}}\ngenerator: {{options: null}}"
    )
    assert recipe.drawing.model == DRAWN[name][0]
    assert recipe.drawing.options == {}


def test_large_recipes_are_checked_without_heavy_libraries() -> None:
    heavy = (
        "torch",
        "diffusers",
        "transformers",
        "open_clip",
        "timm",
        "datasets",
        "pyarrow",
        "numpy",
    )
    code = (
        "import sys; from counterfoil.recipe import load_recipe; from counterfoil.plan.estimate"
        " import estimate; "
        "from counterfoil.plan.layout import make_plan\n"
        f"for name in {(*LARGE, *DRAWN)}: estimate(make_plan(load_recipe(name)))\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


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
    classes = load_recipe("imagenet-star").classes

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


def test_a_prompt_can_say_what_a_class_is_a_kind_of() -> None:
    # Wiles 2022: "a realistic photograph of a {label} ({WordNet parent})."
    recipe = load_recipe(
        "imagenet-star", ["prompts.base.prompt=a realistic photograph of a {class} ({parent})."]
    )
    base = recipe.all_shifts()[0]
    assert base.prompt is not None
    assert (
        recipe.classes[207].text(base.prompt)
        == "a realistic photograph of a golden retriever (sporting dog)."
    )
