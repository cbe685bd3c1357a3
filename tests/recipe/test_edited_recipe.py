"""generator.kind edit: what a recipe may say of it, and what it is refused for."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import load_own_recipe, load_recipe

EDIT = "generator={kind: edit, split: validation}"
ASKS = "prompts.shifts.red.prompt='{caption}, red'"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            ["generator={kind: edit}"],
            "generator.split (--set generator={kind: edit}): found 'train', which classifiers",
        ),
        ([EDIT, "samples.noise=independent"], "expected paired"),
        ([EDIT, "generator.dataset=./photos"], "found dataset, expected none with kind edit"),
        ([EDIT, "generator.compile=true"], "found compile, expected none"),
        ([EDIT, "generator.guidance_interval=[0.2, 0.8]"], "found guidance_interval, expected none"),
        ([EDIT, "generator.model=null"], "missing model"),
        ([EDIT, ASKS], "no row has a caption, expected generator.caption_column or generator.captioner"),
        ([ASKS], "only images that are edited have one"),
        (
            [EDIT, "generator.captioner=lab:captioner"],
            "generator.captioner (--set generator.captioner=lab:captioner): no",
        ),
        ([EDIT, ASKS, "generator.captioner=lab:captioner", "generator.caption_column=text"], "expected one of them"),
        ([EDIT, "prompts.shifts.red.prompt=red"], "expected '{class}' somewhere"),
        ([EDIT, "screen.object_caption='{caption}'"], "unknown placeholder '{caption}'"),
        (["screen.keep=[thresholds, {same_image: {}}]"], "generator.kind edit"),
        (["generator={kind: retrieve, model: null, captioner: 'lab:captioner'}"], "and captioner, expected none"),
    ],
)
def test_what_cannot_be_edited_is_refused(changes: list[str], told: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe("wardrobe-mini", changes)
    assert told in "\n".join(error.value.problems)


def test_it_draws_from_rows_and_other_kinds_say_nothing_of_its_keys() -> None:
    edit, drawn = load_recipe("wardrobe-edited"), load_recipe("wardrobe-mini")
    assert edit.generator.draws and edit.generator.takes_rows and "source_row" in edit.added_columns
    assert drawn.generator.draws and not drawn.generator.takes_rows and "source_row" not in drawn.added_columns
    assert not {"captioner", "caption_column", "split"} & set(drawn.generator.model_dump())
    assert [(s.name, s.prompt, s.caption) for s in edit.all_shifts()] == [
        (s.name, s.prompt, s.caption) for s in drawn.all_shifts()
    ]
    assert edit.plan_hash != load_recipe("wardrobe-edited", ["generator.split=audit"]).plan_hash


def test_lance_has_its_five_perturbations() -> None:
    lance = load_recipe("wardrobe-lance")
    groups = list(dict.fromkeys(shift.group for shift in lance.all_shifts()))
    assert groups == ["base", "subject", "object", "background", "adjective", "domain"]
    assert lance.all_shifts()[0].prompt == "{caption}" and lance.generator.captioned


def test_a_datasets_own_recipe_names_no_folder_of_a_captioner(tmp_path) -> None:
    recipe = load_recipe("wardrobe-lance", ["generator.captioner=local-dir:/somewhere/blip"])
    assert "/somewhere" not in recipe.portable_yaml
    (tmp_path / "recipe.yaml").write_text(recipe.portable_yaml)
    own = load_own_recipe(tmp_path)
    assert own.plan_hash == recipe.plan_hash and "elsewhere" in (own.generator.captioner or "")
