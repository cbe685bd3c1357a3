"""What chosen contexts leave as a recipe: three groups of equal numbers, drawn from noise of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.mining.contexts.layer import CLASS_NAME, CONTEXTS, RANDOM_CONTEXTS, contexts_layer, control_notes
from counterfoil.mining.findings import ClassAudit, ClassContext, Findings, MethodUsed, MinedRecipe, Target
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import ContextsSettings

WORDS = ("in the snow", "at night", "on the road", "in the forest", "on the rocks")


def found(failures: tuple[int, ...], chosen: int, seed: int = 0, **settings: Any) -> Findings:
    """The document of a run in which sandals failed in contexts, of which the first ones were chosen."""
    given = ContextsSettings.model_validate({"contexts": "wardrobe", "at_most_images": 30, **settings})
    contexts = tuple(
        ClassContext(
            words, given.caption("sandal", words), count, sum(failures), 3, 40, 1.0, at if at < chosen else None
        )
        for at, (words, count) in enumerate(zip(WORDS, failures, strict=False))
    )
    recipe = load_recipe("wardrobe-star")
    classes = tuple(
        ClassAudit(cls.id, cls.name, 100, sum(failures), 0.1, contexts=contexts if cls.name == "sandal" else ())
        for cls in recipe.classes
    )
    return Findings(
        recipe=MinedRecipe("wardrobe-star", recipe.recipe_hash),
        method=MethodUsed("contexts", given.model_dump(mode="json")),
        target=Target("lab:resnet10t", "0" * 64),
        on=(),
        failure="top1",
        halves=None,
        margin=0.05,
        fdr=0.1,
        tested=0,
        smallest_difference=None,
        classes=classes,
        findings=(),
        seed=seed,
    )


def layered(findings: Findings, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    text = contexts_layer(findings, load_recipe("wardrobe-star"), "wardrobe-star", (), folder)
    assert text is not None
    (folder / "recipe.yaml").write_text(text)
    return load_recipe(folder / "recipe.yaml")


def test_three_groups_of_equal_numbers(tmp_path: Path) -> None:
    recipe = layered(found((8, 3, 1, 1, 0), 2), tmp_path)
    images: dict[str, int] = {}
    for shift in recipe.prompts.shifts.values():
        assert shift.kind == "mined" and shift.classes == ("05",) and shift.samples.at_most >= shift.samples.accepted
        images[shift.group] = images.get(shift.group, 0) + shift.samples.accepted
    # Five images a failure, up to thirty.
    assert images == {CONTEXTS: 30 + 15, CLASS_NAME: 45, RANDOM_CONTEXTS: 45}


def test_the_prompts_are_the_papers_and_random_contexts_are_none_of_the_chosen(tmp_path: Path) -> None:
    shifts = layered(found((8, 3, 1, 1, 0), 2), tmp_path).prompts.shifts
    prompts = {group: {one.prompt for one in shifts.values() if one.group == group} for group in (CONTEXTS, CLASS_NAME)}
    assert prompts[CONTEXTS] == {"a photo of a {class} in the snow", "a photo of a {class} at night"}
    assert prompts[CLASS_NAME] == {"a photo of a {class}"}
    anyhow = {one.prompt for one in shifts.values() if one.group == RANDOM_CONTEXTS}
    assert len(anyhow) == 2 and anyhow <= {f"a photo of a {{class}} {words}" for words in WORDS[2:]}


def test_a_context_is_screened_by_its_own_words_and_tells_what_it_came_from(tmp_path: Path) -> None:
    shifts = layered(found((8, 3, 1, 1, 0), 1), tmp_path).prompts.shifts
    (one,) = [shift for shift in shifts.values() if shift.group == CONTEXTS]
    assert one.caption == "a photo in the snow"
    told = one.mined_from
    assert told["rank"] == 0 and told["counts"]["failures"] == 8 and told["method"] == "contexts"


def test_an_image_that_several_classifiers_fail_on_is_drawn_for_once(tmp_path: Path) -> None:
    findings = found((8, 4, 1, 1, 0), 2)
    (sandal,) = [one for one in findings.classes if one.contexts]
    contexts = tuple(replace(one, failed_images=one.failures // 2) for one in sandal.contexts)
    pooled = replace(
        findings, classes=tuple(replace(one, contexts=contexts if one is sandal else ()) for one in findings.classes)
    )
    shifts = layered(pooled, tmp_path).prompts.shifts.values()
    assert [one.samples.accepted for one in shifts if one.group == CONTEXTS] == [5 * 4, 5 * 2]


@pytest.mark.parametrize("chosen", [3, 4])
def test_where_fewer_contexts_are_left_they_have_the_images_of_all_that_were_chosen(
    tmp_path: Path, chosen: int
) -> None:
    findings = found((8, 3, 1, 1, 1), chosen)
    shifts = layered(findings, tmp_path).prompts.shifts.values()
    own, anyhow = ([s.samples.accepted for s in shifts if s.group == group] for group in (CONTEXTS, RANDOM_CONTEXTS))
    assert len(anyhow) == 5 - chosen and sum(anyhow) == sum(own) and max(anyhow) - min(anyhow) <= 1
    assert not control_notes(findings, load_recipe("wardrobe-star"), ContextsSettings(contexts="wardrobe"))


def test_where_no_context_is_left_the_control_has_none_of_the_class_and_that_is_told(tmp_path: Path) -> None:
    findings, recipe = found((8, 3, 1, 1, 1), 5), load_recipe("wardrobe-star")
    assert not [one for one in layered(findings, tmp_path).prompts.shifts.values() if one.group == RANDOM_CONTEXTS]
    (note,) = control_notes(findings, recipe, ContextsSettings(contexts="wardrobe"))
    assert "All contexts of sandal were chosen" in note
    assert not control_notes(findings, recipe, ContextsSettings(contexts="wardrobe", controls=False))


@pytest.mark.parametrize("other", [{"seed": 1}, {"failures": (4, 3, 1, 1, 0)}])
def test_another_run_draws_from_other_noise_and_equal_runs_leave_equal_recipes(tmp_path: Path, other: Any) -> None:
    first, again = (
        layered(found((8, 3, 1, 1, 0), 2), tmp_path / "a"),
        layered(found((8, 3, 1, 1, 0), 2), tmp_path / "b"),
    )
    assert first.recipe_hash == again.recipe_hash and first.samples.seed != load_recipe("wardrobe-star").samples.seed
    changed = layered(found(other.get("failures", (8, 3, 1, 1, 0)), 2, other.get("seed", 0)), tmp_path / "c")
    assert changed.recipe_hash != first.recipe_hash
    assert (changed.samples.seed != first.samples.seed) == ("seed" in other)


def test_without_controls_there_is_one_group_and_without_contexts_no_recipe(tmp_path: Path) -> None:
    shifts = layered(found((8, 3, 1, 1, 0), 2, controls=False), tmp_path).prompts.shifts
    assert {one.group for one in shifts.values()} == {CONTEXTS}
    assert contexts_layer(found((1, 0), 0), load_recipe("wardrobe-star"), "wardrobe-star", (), tmp_path) is None
