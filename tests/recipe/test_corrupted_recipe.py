"""generator.kind corrupt: what a recipe may say of it, and what it is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.generate.corruptions import CORRUPTIONS
from counterfoil.recipe import dump_recipe, load_recipe
from counterfoil.recipe.prompts import KIND_OF

CORRUPT = "wardrobe-corrupt"


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        (CORRUPT, ["prompts.shifts.fog.corruption=fogg"], "prompts.shifts.fog.corruption (--set"),
        (CORRUPT, ["prompts.shifts.fog.corruption=fogg"], "did you mean 'fog'?"),
        (CORRUPT, ["prompts.shifts.fog.severity=6"], "severity"),
        (CORRUPT, ["prompts.shifts.fog={severity: 2, corruption: null}"], "missing, expected what is done to the rows"),
        (CORRUPT, ["prompts.shifts.fog.prompt=a {class} in fog"], "are not drawn, expected null"),
        (CORRUPT, ["prompts.base=a photo of a {class}"], "prompts.base.prompt"),
        (CORRUPT, ["tokens={path: 'lab:tokens'}"], "tokens (--set"),
        (CORRUPT, ["generator.split=train"], "which classifiers learn from"),
        (CORRUPT, ["samples.noise=independent"], "expected paired"),
        (CORRUPT, ["samples.pairs=attention"], "see no base beside them"),
        (CORRUPT, ["generator.model=lab:sd"], "found model, expected none with kind corrupt"),
        (CORRUPT, ["screen.shift_threshold=0.2"], "without screen.model nothing is screened"),
        (CORRUPT, ["screen.object_threshold={percentile: 5}"], "without screen.model nothing is screened"),
        (CORRUPT, ["prompts.shifts.fog.caption=fog"], "without screen.model nothing is screened"),
        (CORRUPT, ["prompts.shifts.fog.object_threshold={percentile: 5}"], "shifts.fog.object_threshold"),
        (CORRUPT, ["prompts.base={object_threshold: 0.2}"], "prompts.base.object_threshold"),
        (CORRUPT, ["screen.keep=[{top: {k: 2, by: object}}]"], "expected one that screens"),
        (CORRUPT, ["screen.store_embeddings=true"], "no embedding to store"),
        ("wardrobe-mini", ["prompts.shifts.red.corruption=fog"], "by generator.kind corrupt alone"),
        ("wardrobe-mini", ["prompts.shifts.red.severity=2"], "by generator.kind corrupt alone"),
        ("wardrobe-mini", ["screen.model=null"], "missing, expected the CLIP that screens"),
        ("wardrobe-mini", ["screen.object_threshold=null"], "missing object_threshold"),
        ("wardrobe-mini", ["screen=null"], "screen.model"),
        ("wardrobe-mini", ["prompts.base=null"], "missing, expected a prompt with"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(name: str, changes: list[str], told: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(name, changes)
    assert told in "\n".join(error.value.problems)


def test_it_takes_rows_draws_nothing_and_needs_no_screen(tmp_path: Path) -> None:
    recipe = load_recipe(CORRUPT, ["prompts.shifts.fog.severity=5"])
    assert recipe.generator.takes_rows and recipe.generator.alters_rows and not recipe.generator.draws
    assert list(recipe.added_columns) == ["source_row", "license", "severity"]
    shifts = {shift.name: shift for shift in recipe.all_shifts()}
    assert [shifts[name].severity for name in ("base", "fog", "snow")] == [0, 5, 3]
    assert (shifts["fog"].kind, shifts["snow"].kind, shifts["darker"].kind) == ("weather", "weather", "camera")
    again = tmp_path / "again.yaml"
    again.write_text(dump_recipe(recipe))
    assert load_recipe(again) == recipe
    assert load_recipe(CORRUPT).plan_hash != recipe.plan_hash
    assert "severity" not in load_recipe("wardrobe-edited").added_columns


def test_a_split_of_its_own_may_be_the_only_one() -> None:
    """Photographs in a folder without splits: the recipe says that training and validation are one."""
    alone = ["generator.split=train", "source.validation_split=train"]
    assert load_recipe(CORRUPT, alone).generator.split == "train"


def test_a_recipe_names_every_corruption_that_there_is() -> None:
    assert CORRUPTIONS.keys() == KIND_OF.keys()
