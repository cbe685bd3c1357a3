"""`screen.judge` in a recipe: which columns, judges and hashes follow from it, and what a dataset's own may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, dump_recipe, load_own_recipe, load_recipe, load_recipe_text

JUDGE = "lab:resnet14t"
WRONG = "prompts.shifts.red.keep=[thresholds, {{misclassified: {{models: ['{}'], failure: '{}'}}}}]"


def mini(*changes: str) -> Recipe:
    return load_recipe("wardrobe-mini", ["screen.keep=thresholds", "screen.judge=null", *changes])


def asked(recipe: Recipe, judge: str) -> dict[str, str | None]:
    return {shift.name: recipe.failure_asked(shift, judge) for shift in recipe.all_shifts()}


def test_it_is_asked_about_every_shift_and_the_base_and_no_other_is() -> None:
    recipe = mini(f"screen.judge={JUDGE}", WRONG.format("lab:resnet10t", "top1"))
    assert recipe.judges == ("lab:resnet10t", JUDGE)
    assert set(asked(recipe, JUDGE).values()) == {"top1"} and len(asked(recipe, JUDGE)) == 6
    assert {name for name, rule in asked(recipe, "lab:resnet10t").items() if rule} == {"red"}
    base, red = (next(one for one in recipe.all_shifts() if one.name == name) for name in ("base", "red"))
    assert recipe.columns_of(base) == ("resnet14t_answer", "resnet14t_confidence", "resnet14t_right")
    assert len(set(recipe.columns_of(red))) == 6


def test_one_that_a_keep_rule_asks_too_has_one_set_of_columns() -> None:
    recipe = mini(f"screen.judge={JUDGE}", WRONG.format(JUDGE, "answered:00"))
    assert recipe.judges == (JUDGE,)
    assert asked(recipe, JUDGE) == dict.fromkeys(asked(recipe, JUDGE), "top1") | {"red": "answered:00"}
    assert set(recipe.added_columns) == {f"resnet14t_{what}" for what in ("answer", "confidence", "right", "failed")}


def test_null_enters_no_hash_and_a_name_enters_the_screens() -> None:
    plain, judged, other = mini(), mini(f"screen.judge={JUDGE}"), mini("screen.judge=lab:resnet10t")
    assert "judge" not in plain.screen_document
    assert mini("screen.judge=null").screen_hash == plain.screen_hash
    assert len({one.screen_hash for one in (plain, judged, other)}) == 3
    assert plain.plan_hash == judged.plan_hash
    assert load_recipe_text(dump_recipe(judged)) == judged


def test_a_folder_is_known_by_its_name_and_opened_for_no_stranger(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "judge").mkdir(parents=True)
    here, there = (mini(f"screen.judge=local-dir:{tmp_path / place / 'judge'}") for place in ("here", "there"))
    assert here.screen_hash == there.screen_hash
    assert str(tmp_path) not in here.portable_yaml
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "lock.json").write_text("{}")
    (tmp_path / "dataset" / "recipe.yaml").write_text(here.portable_yaml)
    own = load_own_recipe(tmp_path / "dataset")
    assert own.screen.judge == "elsewhere:local-dir:./judge"
    assert own.screen_hash == here.screen_hash


@pytest.mark.parametrize("name", ["predictions:answers.csv", "predictions:./answers.parquet", "lab:", "local-dir:/"])
def test_what_cannot_look_at_images_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"screen\.judge"):
        mini(f"screen.judge={name}")


def test_judges_that_would_share_columns_are_refused() -> None:
    with pytest.raises(UserError, match="would share their columns"):
        mini("screen.judge=open_clip:hf-hub:another/clip", WRONG.format("transformers:someone/clip", "top1"))


@pytest.mark.parametrize(
    ("judge", "screen"),
    [
        ("open_clip:lab:clip", ()),
        ("open_clip:ViT-B-32/openai", ("screen.model=ViT-B-32", "screen.weights=openai")),
        ("open_clip:/photos/clip", ("screen.model=local-dir:/photos/clip",)),
        ("open_clip:hf-hub:someone/clip", ("screen.model=hf-hub:someone/clip",)),
    ],
)
def test_the_model_that_screens_is_no_second_judge(judge: str, screen: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"screen\.judge.*the model that screens"):
        mini(f"screen.judge={judge}", *screen)
    assert mini("screen.judge=open_clip:ViT-B-16/openai", *screen).screen.judge == "open_clip:ViT-B-16/openai"


def test_two_folders_elsewhere_may_share_a_name(tmp_path: Path) -> None:
    """A dataset's own recipe keeps the last name of a folder alone, which does not make two models one."""
    (tmp_path / "lock.json").write_text("{}")
    made = mini("screen.model=local-dir:/one/clip", "screen.judge=open_clip:local-dir:/other/clip")
    (tmp_path / "recipe.yaml").write_text(made.portable_yaml)
    assert load_own_recipe(tmp_path).screen.judge == "elsewhere:open_clip:local-dir:./clip"
