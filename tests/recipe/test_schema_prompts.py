"""Prompts and words of classes in a recipe, thresholds, keep rules, a second judge."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.dataset.card.tables import threshold_rows
from counterfoil.errors import UserError
from counterfoil.generate.screen.thresholds import Thresholds, needs_validation, resolve_thresholds
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import (
    Recipe,
    dump_recipe,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
    object_caption_for,
    prompt_for,
)
from counterfoil.recipe.keep.thresholds import ThresholdsRule
from counterfoil.recipe.keep.top import TopRule
from counterfoil.recipe.loader import load_cut
from support.recipes import assert_refused, mini, says
from support.recipes import problems as refused_for
from support.refusals import problems_of, succeed

TEXT = """
extends: wardrobe-mini
source:
  classes:
    - {id: n01, name: crane, source_label: 134, imagenet: [134]}
    - {id: n02, name: crane, source_label: 517, imagenet: [517]}
screen: {shift_threshold: 0.2}
prompts:
  base: {object_threshold: 0.4}
  shifts:
    in_the_snow: {group: cold, classes: [n02]}
    at_night: {threshold: {percentile: 30}, group: cold}
    red: {caption: null}
    pencil_sketch: {object_caption: "a drawn {class}"}
    oil: {style: true, prompt: "an oil painting of a {class}", caption: oil}
"""


def shifts(recipe: Recipe) -> dict:
    return {shift.name: shift for shift in recipe.all_shifts()}


def test_defaults_are_filled_in_and_own_values_win() -> None:
    by_name = shifts(load_recipe_text(TEXT))
    assert by_name["base"].threshold is None and by_name["base"].caption is None
    assert by_name["base"].object_threshold.value == 0.4
    assert by_name["in_the_grass"].object_threshold.percentile == 5
    assert by_name["in_the_grass"].threshold.value == 0.2
    assert by_name["at_night"].threshold.percentile == 30
    assert by_name["red"].threshold is None, "a shift without a caption is not screened"
    assert by_name["in_the_grass"].group == "in_the_grass"
    assert by_name["in_the_snow"].group == by_name["at_night"].group == "cold"
    assert by_name["in_the_snow"].class_labels == (1,)
    assert by_name["at_night"].class_labels == (0, 1)


def test_prompts_take_the_placeholder_and_captions_the_name() -> None:
    recipe = load_recipe_text(TEXT)
    by_name = shifts(recipe)
    crane = recipe.classes[1]
    assert crane.label == 1 and crane.imagenet == (517,)
    assert prompt_for(by_name["red"], crane) == "a photo of a red crane"
    assert prompt_for(by_name["red"], crane, "<n02>") == "a photo of a red <n02>"
    assert object_caption_for(by_name["red"], crane) == "a photo of a crane"
    assert object_caption_for(by_name["oil"], crane) == "a crane"
    assert object_caption_for(by_name["pencil_sketch"], crane) == "a drawn crane"
    assert by_name["oil"].caption == "oil"
    assert by_name["red"].caption is None


def test_a_class_name_is_never_read_as_a_template() -> None:
    text = TEXT.replace("name: crane, source_label: 134", "name: '{class} {x}', source_label: 134")
    recipe = load_recipe_text(text)
    assert prompt_for(recipe.all_shifts()[0], recipe.classes[0]) == "a photo of a {class} {x}"


def test_a_recipe_is_frozen_and_pickles_with_what_it_has_worked_out() -> None:
    recipe = load_recipe("wardrobe-mini")
    recipe.all_shifts()
    copy = pickle.loads(pickle.dumps(recipe))
    assert copy == recipe == load_recipe("wardrobe-mini")
    assert copy.all_shifts() == recipe.all_shifts()


CLASSES: list[dict[str, Any]] = [
    {"id": "a", "name": "tench", "source_label": 0, "parent": "cyprinid", "category": "fish"},
    {"id": "b", "name": "kite", "source_label": 1, "parent": "hawk", "category": "bird"},
    {"id": "c", "name": "coot", "source_label": 2},
]
WORDS = ("parent", "category")
PROMPT = "prompts.shifts.red.prompt=a photo of a red {class} ({parent})"
CAPTION = "prompts.shifts.red.object_caption=a {class}, a {category}"
SOME = "prompts.shifts.red.classes=[a, b]"


def recipe_of(*overrides: str, **changed: dict[str, Any]) -> Recipe:
    """Return a recipe of the three classes, each with the changes under its id."""
    classes = [entry | changed.get(entry["id"], {}) for entry in CLASSES]
    return load_recipe("wardrobe-mini", [f"source.classes={json.dumps(classes)}", *overrides])


def hashes(recipe: Recipe) -> tuple[str, str]:
    return recipe.plan_hash, recipe.screen_hash


def shift_of(recipe: Recipe, name: str):
    return next(shift for shift in recipe.all_shifts() if shift.name == name)


def test_prompts_and_object_captions_are_filled_with_the_words_of_each_class() -> None:
    recipe = recipe_of(PROMPT, CAPTION, SOME)
    tench, kite, _ = recipe.classes
    red = shift_of(recipe, "red")
    assert prompt_for(red, tench) == "a photo of a red tench (cyprinid)"
    assert prompt_for(red, kite, "<kite-1>") == "a photo of a red <kite-1> (hawk)"
    assert object_caption_for(red, kite) == "a kite, a bird"
    plan = make_plan(recipe_of(PROMPT, SOME, "tokens=null"))
    prompts = {s.prompt for cell in plan.cells() if cell.shift == "red" for s in plan.samples(cell)}
    assert prompts == {"a photo of a red tench (cyprinid)", "a photo of a red kite (hawk)"}


@given(
    st.sampled_from(["{class}", "{parent}", "{category}", "{", "\\1", "x"]),
    st.sampled_from([*WORDS, "name"]),
)
def test_what_is_filled_in_is_never_read_as_a_template(text: str, word: str) -> None:
    recipe = recipe_of(PROMPT, SOME, a={word: text})
    words = {"name": "tench", "parent": "cyprinid"} | {word: text}
    expected = f"a photo of a red {words['name']} ({words['parent']})"
    assert prompt_for(shift_of(recipe, "red"), recipe.classes[0]) == expected


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("value", ["other", None])
def test_a_word_that_no_prompt_uses_enters_no_hash(word: str, value: str | None) -> None:
    changed = recipe_of(a={word: value}, c={word: "rail"})
    assert changed != recipe_of()
    assert hashes(changed) == hashes(recipe_of())


def test_a_word_enters_the_hash_of_what_uses_it_by_the_classes_that_do() -> None:
    use = (PROMPT, CAPTION, SOME)
    plan, screen = hashes(recipe_of(*use))
    assert (plan, screen) != hashes(recipe_of(SOME))
    parent = recipe_of(*use, b={"parent": "raptor"})
    category = recipe_of(*use, b={"category": "raptor"})
    assert parent.plan_hash != plan and parent.screen_hash == screen
    assert category.plan_hash == plan and category.screen_hash != screen
    elsewhere = recipe_of(*use, c={"parent": "rail", "category": "bird"})
    assert hashes(elsewhere) == (plan, screen), "the shift has no prompt of that class"


def test_a_default_caption_counts_for_every_shift_that_takes_it() -> None:
    caption = "screen.object_caption=a photo of a {class}, a {category}"
    with pytest.raises(
        UserError,
        match=r"screen\.object_caption .*'\{category\}', which 1 class \(c\) does not have",
    ):
        recipe_of(caption)
    whole = {"c": {"category": "bird"}}
    assert (
        recipe_of(caption, **whole).screen_hash
        != recipe_of(caption, c={"category": "rail"}).screen_hash
    )
    style = "screen.style_object_caption=a {class} ({parent})"
    with pytest.raises(UserError, match=r"screen\.style_object_caption"):
        recipe_of(style)
    recipe_of(style, "prompts.shifts.pencil_sketch.classes=[a, b]")


def test_hashes_stand_when_the_recipe_is_published_and_read_back(tmp_path: Path) -> None:
    recipe = recipe_of(PROMPT, CAPTION, SOME)
    text = recipe.portable_yaml
    assert hashes(load_own_recipe(tmp_path, text=text)) == hashes(recipe)
    assert dump_recipe(load_recipe_text(text)) == dump_recipe(
        load_recipe_text(recipe.portable_yaml)
    )
    assert "parent" not in dump_recipe(load_recipe("wardrobe-mini")), "an unset key is not written"


def test_classes_without_the_word_are_reported_together_and_once_for_all_prompts() -> None:
    many = [{"id": f"{n:03d}", "name": "thing", "source_label": n} for n in range(200)]
    given = [*many, {"id": "whole", "name": "kite", "source_label": 200, "parent": "hawk"}]
    problems = problems_of(
        load_recipe,
        "wardrobe-mini",
        [
            f"source.classes={json.dumps(given)}",
            "prompts.base.prompt=a {class} ({parent}, {category})",
            "prompts.shifts.red.prompt=a red {class} ({parent})",
            "prompts.shifts.at_night.prompt=a {class} ({parent}) at night",
            "prompts.shifts.at_night.classes=[whole]",
        ],
    )
    parent, category = sorted(
        problems, key=lambda line: "{category}" in line.partition(", which")[0]
    )
    for line, count, others in ((parent, 200, True), (category, 201, False)):
        assert line.startswith("prompts.base.prompt (--set")
        assert f"which {count} classes (000, 001, 002" in line
        assert f"and {count - 20} more) do not have" in line
        assert ("uses '{parent}' (as 2 texts do), which" in line) is others
        assert len(line) < 500


@pytest.mark.parametrize(
    "case",
    [
        ("prompts.shifts.red.caption invalid-text", "prompts.shifts.red.caption=a red {parent}"),
        ("prompts.shifts.red.prompt missing-class", "prompts.shifts.red.prompt=a red {parent}"),
        (
            "prompts.shifts.red.prompt unknown-placeholder {parent}",
            "prompts.shifts.red.prompt=a {class} ({parnt})",
        ),
        ("prompts.shifts.red.prompt invalid-text", "prompts.shifts.red.prompt=a {class} {"),
        (
            "tokens.learn.templates unknown-placeholder",
            "tokens={path: null, learn: {templates: ['a {class} ({parent})']}}",
        ),
        (
            "source.classes[0].parent out-of-range",
            "source.classes=[{id: a, name: b, source_label: 0, parent: ''}]",
        ),
        (
            "source.classes[0].category wrong-type",
            "source.classes=[{id: a, name: b, source_label: 0, category: 3}]",
        ),
        (
            "source.classes[0].parnt unknown-key parent",
            "source.classes=[{id: a, name: b, source_label: 0, parnt: x}]",
        ),
    ],
)
def test_what_is_wrong_with_a_word_is_reported(case: tuple[str, ...]) -> None:
    assert_refused("wardrobe-mini", *case)


SCORES = {f"{label:02}": np.linspace(0.2, 0.3, 41, dtype=np.float32) for label in range(10)}


def resolved(recipe: Recipe) -> Thresholds:
    return resolve_thresholds(recipe, lambda caption: SCORES)


def test_a_class_of_its_own_wins_and_the_others_are_as_before() -> None:
    before = resolved(mini())
    after = resolved(mini("screen.object_threshold.classes={'04': 0.21}"))
    for shift, entries in after.object.items():
        assert entries["04"] == {
            "value": float(np.float32(0.21)),
            "percentile": None,
            "n": 0,
            "source": "recipe",
        }
        others = {class_id: entry for class_id, entry in entries.items() if class_id != "04"}
        assert others == {class_id: before.object[shift][class_id] for class_id in others}
        assert {entry["source"] for entry in others.values()} == {"validation"}
    every = dict.fromkeys(SCORES, 0.2)
    assert not needs_validation(mini(f"screen.object_threshold.classes={json.dumps(every)}"))


def test_a_shift_of_its_own_classes_takes_the_rest_from_the_screen() -> None:
    recipe = mini(
        "screen.object_threshold.classes={'04': 0.21, '06': 0.22}",
        "prompts.shifts.red.object_threshold.classes={'06': 0.1}",
        "prompts.shifts.at_night.object_threshold=0.3",
        "prompts.base.object_threshold={value: 0.25, classes: {'00': 0.5}}",
    )
    values = {
        shift: {class_id: entry["value"] for class_id, entry in entries.items()}
        for shift, entries in resolved(recipe).object.items()
    }
    values_of = lambda shift: [values[shift][class_id] for class_id in ("00", "04", "06")]  # noqa: E731
    percentile = resolved(mini()).object["red"]["00"]["value"]
    assert values_of("red") == pytest.approx([percentile, 0.21, 0.1])
    assert values_of("in_the_snow") == pytest.approx([percentile, 0.21, 0.22])
    assert values_of("at_night") == pytest.approx([0.3, 0.3, 0.3])
    assert values_of("base") == pytest.approx([0.5, 0.25, 0.25])


def test_classes_of_a_threshold_are_written_in_one_order() -> None:
    recipe, other = (
        mini(f"screen.object_threshold.classes={{{classes}}}")
        for classes in ("'04': 0.21, '03': 0.2", "'03': 0.2, '04': 0.21")
    )
    assert (recipe.screen_hash, recipe.portable_yaml) == (other.screen_hash, other.portable_yaml)
    assert load_recipe_text(dump_recipe(recipe)) == recipe


def test_layers_add_classes_and_null_takes_one_out(tmp_path: Path) -> None:
    lower = tmp_path / "lower.yaml"
    upper = tmp_path / "upper.yaml"
    lower.write_text(
        "extends: wardrobe-mini\nscreen: {object_threshold: {classes: {'04': 0.21, '06': 0.2}}}\n"
    )
    upper.write_text(
        "extends: ./lower.yaml\nscreen: {object_threshold: {classes: {'06': null, '00': 0.1}}}\n"
    )
    spec = load_recipe(upper).screen.object_threshold
    assert (spec.percentile, spec.classes) == (5, {"00": 0.1, "04": 0.21})
    lower.write_text("extends: wardrobe-mini\nscreen: {object_threshold: null}\n")
    upper.write_text("extends: ./lower.yaml\nscreen: {object_threshold: 0.2}\n")
    number = load_recipe(
        upper, ["screen.object_threshold.classes={'04': 0.21}"]
    ).screen.object_threshold
    assert (number.value, number.classes) == (0.2, {"04": 0.21})


@pytest.mark.parametrize(
    "case",
    [
        (
            "screen.object_threshold.classes.4 unknown-class",
            "screen.object_threshold.classes={'4': 0.2}",
        ),
        (
            "prompts.base.object_threshold.classes.44 unknown-class",
            "prompts.base.object_threshold.classes={'44': 0.2}",
        ),
        (
            "prompts.shifts.red.object_threshold.classes.44 unknown-class",
            "prompts.shifts.red.object_threshold.classes={'44': 0.2}",
        ),
        (
            "screen.object_threshold.classes.04 out-of-range",
            "screen.object_threshold.classes={'04': 2}",
        ),
        (
            "screen.object_threshold.classes.04 out-of-range",
            "screen.object_threshold.classes={'04': .nan}",
        ),
        (
            "screen.object_threshold.classes.04 wrong-type",
            "screen.object_threshold.classes={'04': yes}",
        ),
        ("screen.object_threshold.classes wrong-type", "screen.object_threshold.classes=[0.2]"),
        (
            "screen.object_threshold invalid-value found classes alone",
            "screen.object_threshold={percentile: null, classes: {'04': 0.2}}",
        ),
        (
            "screen.shift_threshold.classes unknown-key",
            "screen.shift_threshold={value: 0.3, classes: {'04': 0.2}}",
        ),
        (
            "prompts.shifts.red.threshold.classes unknown-key",
            "prompts.shifts.red.threshold={value: 0.3, classes: {'04': 0.2}}",
        ),
        (
            "prompts.shifts.red.object_threshold.classes.04 unknown-class",
            "prompts.shifts.red={classes: ['03'], object_threshold: {classes: {'04': 0.2}}}",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(case: tuple[str, ...]) -> None:
    assert_refused("wardrobe-mini", *case)


def test_a_cut_sets_classes_and_leaves_the_percentile(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    cut = tmp_path / "cut.yaml"
    recipe.write_text(dump_recipe(mini()))
    cut.write_text(
        "screen: {object_threshold: {classes: {'04': 0.21}}}\n"
        "prompts:\n  base: {object_threshold: {classes: {'06': 0.2}}}\n"
        "  shifts: {red: {object_threshold: {classes: {'06': 0.1}}}}\n"
    )
    after = load_cut(recipe, cut)
    assert (after.screen.object_threshold.percentile, after.screen.object_threshold.classes) == (
        5,
        {"04": 0.21},
    )
    assert after.all_shifts()[0].object_threshold.classes == {"04": 0.21, "06": 0.2}
    recipe.write_text(dump_recipe(after))
    cut.write_text("screen: {object_threshold: {value: 0.2, classes: {'04': null}}}\n")
    again = load_cut(recipe, cut).screen.object_threshold
    assert (again.value, again.percentile, again.classes) == (0.2, None, None)
    cut.write_text("screen: {object_threshold: {classes: {'4': 0.2}}}")
    with pytest.raises(UserError, match=r"object_threshold\.classes\.4.*cut\.yaml:1"):
        load_cut(recipe, cut)


def test_check_and_card_say_it_in_words() -> None:
    changes = (
        "screen.object_threshold.classes={'04': 0.21}",
        "prompts.shifts.red.object_threshold.classes={'06': 0.1}",
    )
    shown = succeed("check", "wardrobe-mini", *(w for change in changes for w in ("--set", change)))
    assert "p5, 1 by class" in shown.stdout
    assert "coat (04) 0.21, shirt (06) 0.1 in red" in shown.stdout
    recipe = mini(*changes)
    rows = {
        row.shift: row.object_threshold
        for row in threshold_rows(recipe, resolved(recipe).document())
    }
    assert rows["base"] == "0.205 to 0.210 (percentile 5); chosen by class: coat 0.210"
    assert rows["red"].endswith("; chosen by class: coat 0.210, shirt 0.100")
    assert "chosen" not in {row.object_threshold for row in threshold_rows(mini(), {})}.pop()


TOP = "screen.keep=[thresholds, {top: {k: 2, by: shift}}]"
QUOTA = "samples={candidates: null, accepted: 2, at_most: 4}"


def rules(recipe: Recipe, shift: str) -> tuple:
    return next(spec.keep for spec in recipe.all_shifts() if spec.name == shift)


def test_rules_are_applied_to_every_shift_and_ranking_by_the_shift_not_to_the_base() -> None:
    recipe = load_recipe("wardrobe-mini", [TOP])
    assert rules(recipe, "red") == (ThresholdsRule(), TopRule(k=2, by="shift"))
    assert rules(recipe, "base") == (ThresholdsRule(),)
    by_object = load_recipe("wardrobe-mini", ["screen.keep=[{top: {k: 2, by: object}}]"])
    assert rules(by_object, "base") == rules(by_object, "red") == (TopRule(k=2, by="object"),)


def test_a_shift_may_have_its_own_rules() -> None:
    recipe = load_recipe("wardrobe-mini", [TOP, "prompts.shifts.red.keep=thresholds"])
    assert rules(recipe, "red") == (ThresholdsRule(),)
    assert rules(recipe, "at_night") == (ThresholdsRule(), TopRule(k=2))


@pytest.mark.parametrize(
    "changes", [[], [TOP], [TOP, "prompts.shifts.red.keep=[{top: {k: 1, by: object}}]"]]
)
def test_a_written_recipe_reads_back(changes: list[str]) -> None:
    recipe = load_recipe("wardrobe-mini", changes)
    assert load_recipe_text(dump_recipe(recipe)) == recipe


JUDGED = "[thresholds, {misclassified: {models: [a], failure: %s}}]"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[tresholds]", "screen.keep[0] unknown-name thresholds"),
        ("[{tp: {k: 2}}]", "screen.keep[0].tp unknown-key top"),
        ("[{top: {k: 0}}]", "screen.keep[0].top.k out-of-range"),
        ("[top]", "screen.keep[0] missing-key"),
        ("[{top: {k: 2, by: colour}}]", "screen.keep[0].top.by unknown-name"),
        ("[]", "screen.keep invalid-value found an empty list"),
        ("3", "screen.keep wrong-type"),
        (
            "[{top: {k: 2}, thresholds: {}}]",
            "screen.keep[0] invalid-value found thresholds and top",
        ),
        (JUDGED % "top2", "screen.keep[1].misclassified.failure unknown-name"),
        (JUDGED % "'answered:99'", "screen.keep[1].misclassified.failure unknown-class"),
        (JUDGED % "parent", "screen.keep[1].misclassified.failure missing-word"),
    ],
)
def test_what_is_no_rule_is_reported(written: str, expected: str) -> None:
    assert_refused("wardrobe-mini", expected, f"screen.keep={written}")


def test_ranking_goes_with_no_quota_and_no_open_threshold() -> None:
    of_red = "prompts.shifts.red.keep=[{top: {k: 1}}]"
    assert_refused("wardrobe-mini", "screen.keep quota-conflict 'top'", TOP, QUOTA)
    assert_refused("wardrobe-mini", "prompts.shifts.red.keep quota-conflict 'top'", of_red, QUOTA)
    is_open = "prompts.shifts.red.threshold={percentile: 5}"
    assert_refused(
        "wardrobe-mini", "prompts.shifts.red.threshold open-threshold 'top'", TOP, is_open
    )
    mini(is_open)


def test_an_empty_mapping_drops_the_inherited_shifts() -> None:
    assert [
        shift.name for shift in load_recipe("wardrobe-mini", ["prompts.shifts={}"]).all_shifts()
    ] == ["base"]
    layer = "extends: wardrobe-mini\nprompts: {shifts: {}}\n"
    assert [shift.name for shift in load_recipe_text(layer).all_shifts()] == ["base"]
    both = ["prompts.shifts={}", "prompts.shifts.own={prompt: 'a {class}'}"]
    assert [shift.name for shift in load_recipe("wardrobe-mini", both).all_shifts()] == [
        "base",
        "own",
    ]


JUDGE = "lab:resnet14t"
WRONG_JUDGES = (
    "prompts.shifts.red.keep=[thresholds, {{misclassified: {{models: ['{}'], failure: '{}'}}}}]"
)


def judged_mini(*changes: str) -> Recipe:
    return load_recipe("wardrobe-mini", ["screen.keep=thresholds", "screen.judge=null", *changes])


def asked(recipe: Recipe, judge: str) -> dict[str, str | None]:
    return {shift.name: recipe.failure_asked(shift, judge) for shift in recipe.all_shifts()}


def test_it_is_asked_about_every_shift_and_the_base_and_no_other_is() -> None:
    recipe = judged_mini(f"screen.judge={JUDGE}", WRONG_JUDGES.format("lab:resnet10t", "top1"))
    assert recipe.judges == ("lab:resnet10t", JUDGE)
    assert set(asked(recipe, JUDGE).values()) == {"top1"} and len(asked(recipe, JUDGE)) == 6
    assert {name for name, rule in asked(recipe, "lab:resnet10t").items() if rule} == {"red"}
    base, red = (
        next(shift for shift in recipe.all_shifts() if shift.name == name)
        for name in ("base", "red")
    )
    assert recipe.columns_of(base) == (
        "resnet14t_answer",
        "resnet14t_confidence",
        "resnet14t_right",
    )
    assert len(set(recipe.columns_of(red))) == 6


def test_one_that_a_keep_rule_asks_too_has_one_set_of_columns() -> None:
    recipe = judged_mini(f"screen.judge={JUDGE}", WRONG_JUDGES.format(JUDGE, "answered:00"))
    assert recipe.judges == (JUDGE,)
    assert asked(recipe, JUDGE) == dict.fromkeys(asked(recipe, JUDGE), "top1") | {
        "red": "answered:00"
    }
    assert set(recipe.added_columns) == {
        f"resnet14t_{part}" for part in ("answer", "confidence", "right", "failed")
    }


def test_no_judge_enters_no_document() -> None:
    assert "judge" not in judged_mini().screen_document
    assert judged_mini("screen.judge=null").screen_hash == judged_mini().screen_hash
    judged = judged_mini(f"screen.judge={JUDGE}")
    assert load_recipe_text(dump_recipe(judged)) == judged


@pytest.mark.parametrize(
    "name", ["predictions:answers.csv", "predictions:./answers.parquet", "lab:", "local-dir:/"]
)
def test_what_cannot_look_at_images_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"screen\.judge"):
        judged_mini(f"screen.judge={name}")


@pytest.mark.parametrize("name", ["chat:small@http://localhost:8000/v1", "chat:transformers:a/b"])
def test_a_chat_model_is_no_judge(name: str) -> None:
    for change in (f"screen.judge={name}", WRONG_JUDGES.format(name, "top1")):
        assert "a chat model" in str(refused_for(judged_mini, change))


def test_judges_that_would_share_columns_are_refused() -> None:
    judges = WRONG_JUDGES.format("transformers:someone/clip", "top1")
    lines = refused_for(judged_mini, "screen.judge=open_clip:hf-hub:another/clip", judges)
    assert says(lines, "prompts.shifts.red.keep", "name-clash", "transformers:someone/clip")


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
    lines = refused_for(judged_mini, f"screen.judge={judge}", *screen)
    assert says(lines, "screen.judge", "conflicting-keys")
    assert (
        judged_mini("screen.judge=open_clip:ViT-B-16/openai", *screen).screen.judge
        == "open_clip:ViT-B-16/openai"
    )


def test_two_folders_elsewhere_may_share_a_name(tmp_path: Path) -> None:
    """Two models stay two, although a dataset's recipe keeps only the last name of each folder."""
    (tmp_path / "lock.json").write_text("{}")
    recipe = judged_mini(
        "screen.model=local-dir:/one/clip", "screen.judge=open_clip:local-dir:/other/clip"
    )
    (tmp_path / "recipe.yaml").write_text(recipe.portable_yaml)
    assert load_own_recipe(tmp_path).screen.judge == "elsewhere:open_clip:local-dir:./clip"
