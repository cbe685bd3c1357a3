"""The method `contexts`: the contexts that it chooses, and their recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.mining.findings import (
    ClassAudit,
    ClassContext,
    Findings,
    MethodUsed,
    MinedRecipe,
    Target,
)
from counterfoil.mining.hypotheses import (
    CandidateCaptions,
    ClassNote,
    DiscoverHalf,
    Found,
    MiningRun,
)
from counterfoil.mining.methods.contexts import (
    CHOSEN_CONTEXTS,
    CLASS_NAME,
    RANDOM_CONTEXTS,
    ContextCount,
    choose_contexts,
    contexts_layer,
    control_notes,
    count_contexts,
    find_contexts,
    images_a_context,
    nearest_context,
    plain_caption,
    words_alone,
)
from counterfoil.mining.mine_recipe import mine
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import ContextsSettings, Mine


def test_an_image_is_in_the_context_of_the_largest_cosine_of_equal_ones_the_first() -> None:
    captions = np.eye(3, dtype=np.float32)
    features = np.asarray(
        [[0.1, 0.9, 0.2], [0.8, 0.1, 0.3], [0.5, 0.5, 0.1], [0, 0, 1]], dtype=np.float32
    )
    assert nearest_context(features, captions).tolist() == [1, 0, 0, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=60))
def test_counts_add_up_to_the_failures_and_the_right_answers(rows: list[tuple[int, bool]]) -> None:
    assigned = np.asarray([index for index, _ in rows], dtype=np.int64)
    failed = np.asarray([wrong for _, wrong in rows])
    counts = count_contexts(assigned, failed, 5)
    assert sum(count.failures for count in counts) == failed.sum() == counts[0].of_failures
    assert sum(count.right for count in counts) == (~failed).sum() == counts[0].of_right
    assert count_contexts(assigned[::-1], failed[::-1], 5) == counts


def test_the_most_frequent_is_first_by_count_and_the_most_telling_by_lift() -> None:
    # The first holds most failures because it holds most images; the second holds failures alone.
    counts = [
        ContextCount(0, 20, 30, 60, 70),
        ContextCount(1, 10, 30, 1, 70),
        ContextCount(2, 0, 30, 9, 70),
    ]
    assert choose_contexts(counts, 3, "count", 2) == [0, 1]
    assert choose_contexts(counts, 3, "lift", 2) == [1, 0]
    assert counts[1].lift == pytest.approx((10 / 30) / (1 / 70))


def test_few_failures_make_no_context_and_no_more_than_k_are_chosen() -> None:
    counts = [
        ContextCount(index, failures, 20, 5, 40) for index, failures in enumerate((1, 4, 2, 6))
    ]
    assert choose_contexts(counts, 5, "count", 2) == [3, 1, 2]
    assert choose_contexts(counts, 1, "count", 2) == [3]
    assert choose_contexts(counts, 5, "count", 7) == []
    assert choose_contexts([ContextCount(0, 0, 0, 5, 5)], 5, "lift", 1) == []


def test_one_failure_without_a_right_answer_is_not_more_telling_than_many_failures() -> None:
    alone = ContextCount(0, 1, 31, 0, 200)
    many = ContextCount(1, 30, 31, 10, 200)
    assert alone.lift is None  # no ratio: nothing to divide by
    assert choose_contexts([alone, many], 2, "lift", 1) == [1, 0]


def test_so_many_images_a_failure_up_to_a_limit() -> None:
    assert [images_a_context(failures, 5, 20) for failures in (1, 3, 4, 90)] == [5, 15, 20, 20]


def test_lift_orders_by_the_steadied_ratio_and_not_by_the_one_that_is_shown() -> None:
    few = ContextCount(0, 2, 30, 1, 70)
    many = ContextCount(1, 20, 30, 12, 70)
    assert few.lift is not None and many.lift is not None and few.lift > many.lift
    assert few.steadied_lift(2) < many.steadied_lift(2)
    assert choose_contexts([few, many], 2, "lift", 1) == [1, 0]


WIDTH = 16
ROWS = 300
SETTINGS = ContextsSettings(contexts="wardrobe")
CONTEXTS = ("in the snow", "at night", "on the beach", "in a cave")
SHARES = (0.1, 0.5, 0.3, 0.1)


def made(
    failing: dict[int, float], doubles: bool = False, **settings: object
) -> tuple[DiscoverHalf, Found]:
    """Return one class whose images are in known contexts. `failing`: failure rates by context, by
    default 0."""
    rng = np.random.default_rng(3)
    context = rng.choice(len(CONTEXTS), size=ROWS, p=SHARES)
    axes = np.eye(WIDTH)
    features = 3 * axes[0] + axes[1 + context] + 0.05 * rng.normal(size=(ROWS, WIDTH))
    failed = (
        rng.random(ROWS)
        < np.asarray([failing.get(index, 0.0) for index in range(len(CONTEXTS))])[context]
    )
    texts = [
        plain_caption(SETTINGS, "thing"),
        *(SETTINGS.caption("thing", words) for words in CONTEXTS),
    ]
    vectors = np.stack(
        [axes[0], *(3 * axes[0] + axes[1 + index] for index in range(len(CONTEXTS)))]
    )
    if doubles:
        texts.append(SETTINGS.caption("thing", "on snow"))
        vectors = np.concatenate([vectors, vectors[1:2] + 0.001 * axes[9]])
    half = DiscoverHalf(
        features=unit(features).astype(np.float32),
        labels=np.zeros(ROWS, np.int64),
        failed=failed,
        taken_for=np.zeros(ROWS, np.int64),
        units=np.arange(ROWS),
        centre=np.zeros(WIDTH),
        deviation=np.ones(WIDTH),
        captions=CandidateCaptions(
            tuple(texts), unit(vectors).astype(np.float32), (0,), (np.arange(1, len(texts)),)
        ),
        class_names=("thing",),
        categories=(None,),
    )
    given = ContextsSettings.model_validate(
        {"contexts": "wardrobe", "similarity": 0.995, **settings}
    )
    return half, find_contexts(half, Mine(), given, 1)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_sets_of_all_contexts_are_a_partition_of_the_class() -> None:
    half, result = made(dict.fromkeys(range(4), 0.5), k=4)
    members = np.stack(
        [hypothesis.members(half.features, half.labels) for hypothesis in result.hypotheses]
    )
    assert len(members) == 4 and (members.sum(axis=0) == 1).all()


def test_count_takes_what_is_frequent_and_lift_what_fails() -> None:
    failing = {0: 0.9, 1: 0.25, 2: 0.1}
    by_count = made(failing, rank="count")[1].hypotheses
    by_lift = made(failing, rank="lift")[1].hypotheses
    assert by_count[0].words == "thing at night" and by_lift[0].words == "thing in the snow"
    assert by_lift[0].about["lift"] > 5 and by_lift[0].about["rank"] == 0
    assert all(
        chosen.caption == SETTINGS.caption("thing", chosen.words.removeprefix("thing "))
        for chosen in by_lift
    )


def test_evidence_are_rows_of_the_set_the_failures_first() -> None:
    half, result = made({0: 0.6})
    (hypothesis,) = result.hypotheses
    assert hypothesis.members(half.features, half.labels)[hypothesis.evidence].all()
    wrong = half.failed[hypothesis.evidence]
    assert wrong.any() and not wrong.all() and (np.diff(wrong.astype(int)) <= 0).all()


def test_all_contexts_are_told_with_both_shares_the_chosen_ones_first() -> None:
    half, result = made({0: 0.9, 1: 0.25}, k=1, rank="lift")
    contexts = result.notes[0].contexts
    assert [context.rank for context in contexts] == [0, None, None, None]
    assert sum(context.failures for context in contexts) == half.failed.sum()
    assert sum(context.right for context in contexts) == (~half.failed).sum()


def test_failures_of_further_classifiers_choose_too_each_counted_for_itself() -> None:
    half, alone = made({0: 0.9}, k=1, rank="lift")
    # Another classifier fails in the third context.
    at_beach = nearest_context(half.features, half.captions.vectors[1:]) == 2
    settings = ContextsSettings(contexts="wardrobe", k=2, similarity=0.995)
    both = find_contexts(replace(half, pooled={"other": at_beach}), Mine(), settings, 1)
    assert [hypothesis.words for hypothesis in both.hypotheses] == [
        "thing on the beach",
        "thing in the snow",
    ]
    by_words = {context.words: context for context in both.notes[0].contexts}
    assert (
        by_words["on the beach"].failures == at_beach.sum()
        and by_words["on the beach"].right >= at_beach.sum()
    )
    # Both classifiers count an image that both fail on, but it is drawn for once.
    more = (
        find_contexts(replace(half, pooled={"same": half.failed}), Mine(), settings, 1)
        .notes[0]
        .contexts
    )
    assert [context.failures for context in more] == [
        2 * (context.failed_images or 0) for context in more
    ]
    assert more[0].failures > 0
    assert {context.failed_images for context in alone.notes[0].contexts} == {None}
    assert by_words["in the snow"].failures == alone.notes[0].contexts[0].failures


def test_a_pooled_classifier_that_there_is_not_is_told_of_the_setting_that_names_it(
    tmp_path: Path,
) -> None:
    sets = ["mine.settings.pooled=[lab:resnet99]"]
    with pytest.raises(UserError, match="lab:resnet99") as error:
        mine("wardrobe-contexts", tmp_path, overrides=sets, target="lab:resnet10t", device="cpu")
    assert "mine.settings.pooled" in str(error.value.hint) and "mine.others" not in str(
        error.value.hint
    )


def test_a_double_is_dropped_before_anything_is_counted() -> None:
    _, result = made({0: 0.9}, doubles=True)
    assert [context.words for context in result.notes[0].contexts].count("on snow") == 0
    assert len(result.notes[0].contexts) == 4


def test_a_class_without_failures_or_with_one_says_so() -> None:
    _, none = made({})
    assert not none.hypotheses and none.notes[0].reason == "no failure on the discover half"
    half, _ = made({})
    half.failed[3] = True
    single = find_contexts(
        half, Mine(), ContextsSettings.model_validate({"contexts": "wardrobe"}), 1
    )
    assert (
        not single.hypotheses
        and "2 failures" in (single.notes[0].reason or "")
        and single.notes[0].contexts
    )


def test_a_context_comes_out_of_its_caption_again() -> None:
    for prompt in (
        "a photo of a {class} {context}",
        "a photo of a {context} {class}",
        "a {class} {context} somewhere",
    ):
        settings = ContextsSettings(contexts="wardrobe", prompt=prompt)
        assert (
            words_alone(settings, "ankle boot", settings.caption("ankle boot", "in the snow"))
            == "in the snow"
        )
    colours = ContextsSettings(contexts="wardrobe-colours", axis="colour")
    assert (
        plain_caption(colours, "bag") == "a photo of a bag"
        and colours.caption("bag", "red") == "a photo of a red bag"
    )


WORDS = ("in the snow", "at night", "on the road", "in the forest", "on the rocks")


def document_of(failures: tuple[int, ...], chosen: int, seed: int = 0, **settings: Any) -> Findings:
    """Return the document of a run in which sandals failed in contexts. The first `chosen` ones
    were chosen."""
    given = ContextsSettings.model_validate(
        {"contexts": "wardrobe", "at_most_images": 30, **settings}
    )
    contexts = tuple(
        ClassContext(
            words,
            given.caption("sandal", words),
            count,
            sum(failures),
            3,
            40,
            1.0,
            at if at < chosen else None,
        )
        for at, (words, count) in enumerate(zip(WORDS, failures, strict=False))
    )
    recipe = load_recipe("wardrobe-star")
    classes = tuple(
        ClassAudit(
            cls.id,
            cls.name,
            100,
            sum(failures),
            0.1,
            contexts=contexts if cls.name == "sandal" else (),
        )
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


def noted(findings: Findings, run: MiningRun) -> tuple[str, ...]:
    """Return the notes of a run that found the contexts of a document."""
    return control_notes(
        Found((), tuple(ClassNote(contexts=cls.contexts) for cls in findings.classes)), run
    )


def run_in(folder: Path, **settings: Any) -> MiningRun:
    recipe = load_recipe("wardrobe-star")
    return MiningRun(
        recipe,
        Mine(),
        ContextsSettings(contexts="wardrobe", **settings),
        "wardrobe-star",
        (),
        folder,
    )


def layered(findings: Findings, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    text = contexts_layer(findings, run_in(folder))
    assert text is not None
    (folder / "recipe.yaml").write_text(text)
    return load_recipe(folder / "recipe.yaml")


def test_three_groups_of_equal_numbers(tmp_path: Path) -> None:
    recipe = layered(document_of((8, 3, 1, 1, 0), 2), tmp_path)
    images: dict[str, int] = {}
    for shift in recipe.prompts.shifts.values():
        assert (
            shift.kind == "mined"
            and shift.classes == ("05",)
            and shift.samples.at_most >= shift.samples.accepted
        )
        images[shift.group] = images.get(shift.group, 0) + shift.samples.accepted
    # Five images a failure, up to thirty.
    assert images == {CHOSEN_CONTEXTS: 30 + 15, CLASS_NAME: 45, RANDOM_CONTEXTS: 45}


def test_the_prompts_are_the_papers_and_random_contexts_are_none_of_the_chosen(
    tmp_path: Path,
) -> None:
    shifts = layered(document_of((8, 3, 1, 1, 0), 2), tmp_path).prompts.shifts
    prompts = {
        group: {shift.prompt for shift in shifts.values() if shift.group == group}
        for group in (CHOSEN_CONTEXTS, CLASS_NAME)
    }
    assert prompts[CHOSEN_CONTEXTS] == {
        "a photo of a {class} in the snow",
        "a photo of a {class} at night",
    }
    assert prompts[CLASS_NAME] == {"a photo of a {class}"}
    anyhow = {shift.prompt for shift in shifts.values() if shift.group == RANDOM_CONTEXTS}
    assert len(anyhow) == 2 and anyhow <= {f"a photo of a {{class}} {words}" for words in WORDS[2:]}


def test_a_context_is_screened_by_its_own_words_and_tells_what_it_came_from(tmp_path: Path) -> None:
    shifts = layered(document_of((8, 3, 1, 1, 0), 1), tmp_path).prompts.shifts
    (shift,) = [shift for shift in shifts.values() if shift.group == CHOSEN_CONTEXTS]
    assert shift.caption == "a photo in the snow"
    result = shift.mined_from
    assert (
        result["rank"] == 0 and result["counts"]["failures"] == 8 and result["method"] == "contexts"
    )


def test_an_image_that_several_classifiers_fail_on_is_drawn_for_once(tmp_path: Path) -> None:
    findings = document_of((8, 4, 1, 1, 0), 2)
    (sandal,) = [cls for cls in findings.classes if cls.contexts]
    contexts = tuple(
        replace(context, failed_images=context.failures // 2) for context in sandal.contexts
    )
    pooled = replace(
        findings,
        classes=tuple(
            replace(cls, contexts=contexts if cls is sandal else ()) for cls in findings.classes
        ),
    )
    shifts = layered(pooled, tmp_path).prompts.shifts.values()
    assert [shift.samples.accepted for shift in shifts if shift.group == CHOSEN_CONTEXTS] == [
        5 * 4,
        5 * 2,
    ]


@pytest.mark.parametrize("chosen", [3, 4])
def test_where_fewer_contexts_are_left_they_have_the_images_of_all_that_were_chosen(
    tmp_path: Path, chosen: int
) -> None:
    findings = document_of((8, 3, 1, 1, 1), chosen)
    shifts = layered(findings, tmp_path).prompts.shifts.values()
    of_chosen, of_random = (
        [s.samples.accepted for s in shifts if s.group == group]
        for group in (CHOSEN_CONTEXTS, RANDOM_CONTEXTS)
    )
    assert (
        len(of_random) == 5 - chosen
        and sum(of_random) == sum(of_chosen)
        and max(of_random) - min(of_random) <= 1
    )
    assert not noted(findings, run_in(tmp_path))


def test_where_no_context_is_left_the_control_has_none_of_the_class_and_that_is_told(
    tmp_path: Path,
) -> None:
    findings = document_of((8, 3, 1, 1, 1), 5)
    assert not [
        shift
        for shift in layered(findings, tmp_path).prompts.shifts.values()
        if shift.group == RANDOM_CONTEXTS
    ]
    (note,) = noted(findings, run_in(tmp_path))
    assert "All contexts of sandal were chosen" in note
    assert not noted(findings, run_in(tmp_path, controls=False))


@pytest.mark.parametrize("other", [{"seed": 1}, {"failures": (4, 3, 1, 1, 0)}])
def test_another_run_draws_from_other_noise_and_equal_runs_leave_equal_recipes(
    tmp_path: Path, other: Any
) -> None:
    first = layered(document_of((8, 3, 1, 1, 0), 2), tmp_path / "a")
    again = layered(document_of((8, 3, 1, 1, 0), 2), tmp_path / "b")
    assert (
        first.recipe_hash == again.recipe_hash
        and first.samples.seed != load_recipe("wardrobe-star").samples.seed
    )
    changed = layered(
        document_of(other.get("failures", (8, 3, 1, 1, 0)), 2, other.get("seed", 0)), tmp_path / "c"
    )
    assert changed.recipe_hash != first.recipe_hash
    assert (changed.samples.seed != first.samples.seed) == ("seed" in other)


def test_without_controls_there_is_one_group_and_without_contexts_no_recipe(tmp_path: Path) -> None:
    shifts = layered(document_of((8, 3, 1, 1, 0), 2, controls=False), tmp_path).prompts.shifts
    assert {shift.group for shift in shifts.values()} == {CHOSEN_CONTEXTS}
    assert contexts_layer(document_of((1, 0), 0), run_in(tmp_path)) is None
