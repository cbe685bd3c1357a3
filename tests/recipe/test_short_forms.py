"""Plain texts in recipes: a class by its name, a prompt by itself; and what a recipe that leaves labels open can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import dump_recipe, layer_text, load_own_recipe, load_recipe, load_recipe_text
from counterfoil.recipe.layering import class_slug
from counterfoil.recipe.loader import with_classes

HEAD = "recipe: 1\nname: things\n"
REST = """
generator: {model: "lab:sd"}
screen: {model: "lab:clip", object_threshold: 0.2, shift_threshold: 0.3}
samples: {candidates: 2}
"""
BASE = '\nprompts: {base: "a photo of a {class}"}'


def recipe_text(classes: str = "[mug, star]", prompts: str = BASE) -> str:
    return f'{HEAD}source: {{dataset: "lab:wardrobe", classes: {classes}}}{prompts}{REST}'


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("mug", "mug"),
        ("Ankle Boot", "ankle-boot"),
        ("coffee_mug", "coffee_mug"),
        ("  Café (au lait) ", "cafe-au-lait"),
        ("v1.5", "v1-5"),
        ("杯", ""),
    ],
)
def test_an_id_is_made_of_the_name(name: str, slug: str) -> None:
    assert class_slug(name) == slug


def test_a_plain_text_is_the_name_of_a_class_beside_mappings_of_any_keys() -> None:
    recipe = load_recipe_text(recipe_text('[mug, {name: Red Star}, {id: "07", name: ladder, source_label: 2}]'))
    found = [(entry.id, entry.name, entry.source_label) for entry in recipe.source.classes or ()]
    assert found == [("mug", "mug", None), ("red-star", "Red Star", None), ("07", "ladder", 2)]


def test_a_plain_text_is_the_prompt_of_the_base_and_of_a_shift() -> None:
    prompts = '\nprompts: {base: "a photo of a {class}", shifts: {snow: "a photo of a {class} in the snow"}}'
    recipe = load_recipe_text(recipe_text(prompts=prompts))
    snow = recipe.prompts.shifts["snow"]
    assert recipe.prompts.base.prompt == "a photo of a {class}"
    assert (snow.prompt, snow.caption) == ("a photo of a {class} in the snow", None)


def test_a_plain_prompt_over_a_whole_shift_changes_its_prompt_alone() -> None:
    below = load_recipe("wardrobe-mini")
    recipe = load_recipe("wardrobe-mini", ["prompts.shifts.red=a bright red {class}", "prompts.base=one {class}"])
    assert recipe.prompts.shifts["red"].prompt == "a bright red {class}"
    assert recipe.prompts.shifts["red"].caption == below.prompts.shifts["red"].caption
    assert recipe.prompts.base.prompt == "one {class}"


def test_the_short_forms_mean_what_the_long_ones_do() -> None:
    short = load_recipe_text(recipe_text("[{name: mug, source_label: 0}, {name: star, source_label: 1}]"))
    long = load_recipe_text(
        recipe_text(
            "[{id: mug, name: mug, source_label: 0}, {id: star, name: star, source_label: 1}]",
            '\nprompts: {base: {prompt: "a photo of a {class}"}}',
        )
    )
    assert short == long
    assert short.recipe_hash == long.recipe_hash


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            recipe_text("[mug, 3]"),
            r"classes\[1\].*found the number 3, expected a class: a name, or a mapping with name",
        ),
        (recipe_text("[Mug, mug]"), r"found 'mug' again.*the name 'mug', and the first is 'Mug': write an id for one"),
        (recipe_text("[mug, 杯]"), r"classes\[1\]\.id.*missing, expected text: Unique slug"),
        (recipe_text("[]"), r"source\.classes.*expected at least one item"),
        (recipe_text(prompts="\nprompts: {base: 3}"), r"base.*found the number 3, expected a prompt, or a mapping"),
        (recipe_text(prompts="\nprompts: {base: a photo}"), r"prompts\.base\.prompt.*expected '\{class\}'"),
    ],
)
def test_what_is_no_class_and_no_prompt_is_told(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        load_recipe_text(text)


def test_a_recipe_whose_labels_are_open_says_so_and_dumps_as_it_was_written() -> None:
    for classes in ("null", "[mug, star]"):
        recipe = load_recipe_text(recipe_text(classes))
        assert not recipe.names_every_label
        for asked in ("classes", "plan_hash", "screen_hash", "recipe_hash"):
            with pytest.raises(UserError, match="the labels of its classes are those of lab:wardrobe") as refused:
                getattr(recipe, asked)
            assert "counterfoil.resolve_classes(recipe)" in (refused.value.hint or "")
        assert load_recipe_text(dump_recipe(recipe)) == recipe


def test_a_dataset_s_own_recipe_leaves_no_label_open(tmp_path: Path) -> None:
    for classes in ("null", "[mug, star]"):
        with pytest.raises(UserError, match="each with its source_label"):
            load_own_recipe(tmp_path, text=recipe_text(classes))


def _found(text: str) -> str:
    """The recipe in a text, with the labels that its source would tell."""
    return text.replace("mug,", "{id: mug, name: mug, source_label: 4},").replace(
        "star]", "{id: star, name: star, source_label: 7}]"
    )


def test_a_layer_holds_the_classes_that_were_found_and_knows_when_they_were_others(tmp_path: Path) -> None:
    """The seal is over the recipe with its labels, whoever tells them."""
    below = tmp_path / "below.yaml"
    below.write_text(recipe_text())
    whole = load_recipe_text(_found(recipe_text()))
    classes = [entry.model_dump(mode="json", exclude_defaults=True) for entry in whole.source.classes or ()]
    text = layer_text({"source": {"classes": classes}, "name": "other"}, whole, "./below.yaml")
    layer = tmp_path / "layer.yaml"
    layer.write_text(text)
    loaded = load_recipe(layer)
    assert loaded.names_every_label
    assert loaded.classes == whole.classes
    below.write_text(recipe_text("null"))
    assert load_recipe(layer) == loaded
    for changed in (recipe_text("[mug, sun]"), recipe_text("[mug, star, ladder]"), recipe_text() + "license: mit\n"):
        below.write_text(changed)
        if "license" in changed:  # no image and no row depends on it
            assert load_recipe(layer).classes == whole.classes
        else:
            with pytest.raises(UserError, match="has other classes than were found for it when this layer was written"):
                load_recipe(layer)
    below.write_text(recipe_text().replace("candidates: 2", "candidates: 3"))
    with pytest.raises(UserError, match="has changed since this layer was written"):
        load_recipe(layer)


def test_classes_that_are_filled_in_are_checked_as_written_ones_are() -> None:
    """What could not be told before the classes were known: shifts of classes that there are not."""
    prompts = '\nprompts: {base: "a {class}", shifts: {snow: {prompt: "a {class} in snow", classes: [sun]}}}'
    open_recipe = load_recipe_text(recipe_text("null", prompts))
    whole = load_recipe_text(_found(recipe_text()))
    with pytest.raises(UserError, match="found 'sun', expected the id of a class"):
        with_classes(open_recipe, whole.source.classes or ())
