"""Cells decide: every candidate has one reason, and all callers get the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from clip_verdicts import clip_verdict
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.cells import (
    before_judges,
    decide_cell,
    filled_at,
    keeps_image,
    quota_draws,
    quota_passes,
)
from counterfoil.recipe.keep.misclassified import MisclassifiedRule
from counterfoil.recipe.keep.rule import OBJECT, Verdict
from counterfoil.recipe.keep.same_image import SOURCE_SIMILARITY, SameImageRule, similarity
from counterfoil.recipe.keep.thresholds import ThresholdsRule
from counterfoil.recipe.keep.top import TopRule
from counterfoil.recipe.keep.visible import VisibleRule, visibility
from counterfoil.recipe.names import judge_column

BOTH = (ThresholdsRule(),)
REASONS = {"accepted", "low_object", "low_shift", "low_both", "surplus", "failed"}
cosines = st.floats(-1, 1, width=32)
scores = st.lists(
    st.one_of(st.none(), st.tuples(cosines, st.one_of(st.none(), cosines))), max_size=30
)
thresholds = st.tuples(cosines, st.one_of(st.none(), cosines))


def _cell(
    scores: list[tuple[float, float | None] | None],
    at: tuple[float, float | None],
    accepted: int | None = None,
) -> list[str]:
    return decide_cell(BOTH, _verdicts(scores, at), accepted)


def _verdicts(
    scores: list[tuple[float, float | None] | None], at: tuple[float, float | None]
) -> list[Verdict]:
    return [clip_verdict(score or (None, None), at) for score in scores]


@given(scores, thresholds)
def test_each_candidate_has_the_reason_that_its_scores_say(scores, at) -> None:
    for score, reason in zip(scores, _cell(scores, at), strict=True):
        if score is None:
            assert reason == "failed"
            continue
        low_object = score[0] < at[0]
        low_shift = at[1] is not None and score[1] is not None and score[1] < at[1]
        expected = {
            (0, 0): "accepted",
            (1, 0): "low_object",
            (0, 1): "low_shift",
            (1, 1): "low_both",
        }
        assert reason == expected[int(low_object), int(low_shift)]


@given(scores, thresholds, st.integers(1, 12))
def test_a_quota_keeps_the_first_that_pass(scores, at, quota: int) -> None:
    free = _cell(scores, at)
    limited = _cell(scores, at, quota)
    assert set(limited) <= REASONS
    passed = [index for index, reason in enumerate(free) if reason == "accepted"]
    assert [index for index, reason in enumerate(limited) if reason == "accepted"] == passed[:quota]
    assert [index for index, reason in enumerate(limited) if reason == "surplus"] == passed[quota:]
    others = [(a, b) for a, b in zip(free, limited, strict=True) if a != "accepted"]
    assert all(a == b for a, b in others)


def test_a_score_on_the_threshold_passes() -> None:
    assert decide_cell(BOTH, [clip_verdict((0.25, 0.5), (0.25, 0.5))], None) == ["accepted"]
    assert decide_cell(BOTH, [clip_verdict((0.25, None), (0.25, None))], None) == ["accepted"]


@given(scores, thresholds)
def test_nothing_is_decided_where_the_threshold_is_open(scores, at) -> None:
    verdicts = [clip_verdict(score or (None, None), (at[0], None), open=True) for score in scores]
    expected = ["failed" if score is None else "open" for score in scores]
    for rules in (BOTH, (), (*BOTH, TopRule(k=1))):
        assert decide_cell(rules, verdicts, None) == expected


@given(scores, thresholds, st.integers(1, 8), st.sampled_from(["object", "shift"]))
def test_top_keeps_the_best_of_what_passes_and_no_more(scores, at, k: int, by) -> None:
    verdicts = _verdicts(scores, at)
    before = decide_cell(BOTH, verdicts, None)
    after = decide_cell((*BOTH, TopRule(k=k, by=by)), verdicts, None)
    passed = [index for index, reason in enumerate(before) if reason == "accepted"]
    kept = [index for index, reason in enumerate(after) if reason == "accepted"]
    assert len(kept) == min(k, len(passed)) and set(kept) <= set(passed)
    assert {after[index] for index in set(passed) - set(kept)} <= {"below_top"}
    assert all(a == b for a, b in zip(before, after, strict=True) if a != "accepted")

    def score(index: int) -> float:
        cosine = verdicts[index].scores[by]
        return -2.0 if cosine is None else cosine

    for left_out in set(passed) - set(kept):
        # Every kept candidate is better than one left out, or equal and earlier.
        assert all(
            score(row) > score(left_out) or (score(row) == score(left_out) and row < left_out)
            for row in kept
        )


@given(scores, thresholds, st.integers(1, 8))
def test_order_of_rules_is_order_of_application(scores, at, k: int) -> None:
    verdicts = _verdicts(scores, at)
    first = decide_cell((TopRule(k=k, by="object"), *BOTH), verdicts, None)
    drawn = [verdict for verdict in verdicts if not verdict.failed]
    assert first.count("below_top") == max(0, len(drawn) - k)
    assert first.count("accepted") <= decide_cell(
        (*BOTH, TopRule(k=k, by="object")), verdicts, None
    ).count("accepted")


@given(scores, thresholds, st.integers(1, 6), st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_a_quota_draws_whole_batches_until_enough_pass(
    scores, at, accepted: int, batches: list[int]
) -> None:
    verdicts = _verdicts(scores, at)
    count = quota_draws(BOTH, verdicts, batches, accepted)
    ends = [sum(batches[: index + 1]) for index in range(len(batches))]
    assert count in ends
    # As a build does, batch after batch: not enough before the last one, enough after it or nothing
    # more to draw.
    before = [end for end in ends if end < count]
    assert all(quota_passes(BOTH, verdicts[:end]) < accepted for end in before)
    assert quota_passes(BOTH, verdicts[:count]) >= accepted or count == ends[-1]


def test_which_table_keeps_an_image() -> None:
    assert [keeps_image("accepted", keep) for keep in (False, True)] == [False, False]
    assert [keeps_image("open", keep) for keep in (False, True)] == [True, True]
    for reason in ("low_object", "surplus", "failed", "below_top", "anything else"):
        assert [keeps_image(reason, keep) for keep in (False, True)] == [False, True]


NEEDED = {
    "top": {"k": 1},
    "misclassified": {"models": ["lab:resnet10t"]},
    "question": {"model": "transformers:user/vlm"},
    "detected": {"model": "transformers:user/owl"},
}


def test_every_rule_says_what_it_reads() -> None:
    for name, rule in KEEP_RULES.items():
        built = rule.model_validate(NEEDED.get(name, {}))
        assert built.scores() and set(built.scores()) <= {"object", "shift", *built.columns()}
        assert rule.__doc__


@given(st.lists(st.sampled_from(["accepted", "low_object"]), max_size=20), st.integers(1, 5))
def test_a_cell_is_filled_at_its_last_wanted_candidate(reasons: list[str], accepted: int) -> None:
    count = filled_at(reasons, accepted)
    if count is None:
        assert reasons.count("accepted") < accepted
    else:
        assert reasons[count - 1] == "accepted" and reasons[:count].count("accepted") == accepted


ORDERS = (
    (ThresholdsRule(), MisclassifiedRule(models=("lab:judge",))),
    (ThresholdsRule(), TopRule(k=3), MisclassifiedRule(models=("lab:judge",))),
    (ThresholdsRule(), MisclassifiedRule(models=("lab:judge",)), TopRule(k=3)),
    (ThresholdsRule(), TopRule(k=3)),
    (ThresholdsRule(),),
)
judged_scores = st.lists(
    st.tuples(st.none() | st.tuples(cosines, cosines), st.booleans()), max_size=20
)


@given(judged_scores, thresholds, st.sampled_from(ORDERS), st.none() | st.integers(1, 5))
def test_a_reason_tells_whether_a_candidate_came_before_a_judge(cell, at, rules, quota) -> None:
    verdicts = []
    for score, right in cell:
        clip = clip_verdict(score or (None, None), at)
        verdicts.append(Verdict({**clip.scores, "judge_right": float(right)}, clip.thresholds))
    first = next((index for index, rule in enumerate(rules) if rule.judges()), len(rules))
    screened = decide_cell(rules[:first], verdicts, None)
    for reason, before in zip(decide_cell(rules, verdicts, quota), screened, strict=True):
        assert before_judges(rules, reason) == (before == "accepted")


@given(judged_scores, thresholds, st.sampled_from(sorted(KEEP_RULES)))
def test_a_rule_gives_the_reasons_that_it_lists(cell, at, name) -> None:
    settings = {**NEEDED, "misclassified": {"models": ["lab:judge"]}, "top": {"k": 2}}
    rule = KEEP_RULES[name].model_validate(settings.get(name, {}))
    verdicts = []
    for score, right in cell:
        clip = clip_verdict(score or (0.0, 0.0), at)
        verdicts.append(Verdict({**clip.scores, "judge_right": float(right)}, clip.thresholds))
    assert {why for why in rule.dropped(verdicts) if why is not None} <= set(rule.reasons)


def test_no_two_rules_give_the_same_reason() -> None:
    reasons = [why for rule in KEEP_RULES.values() for why in rule.reasons]
    assert len(reasons) == len(set(reasons))
    assert all(rule.reasons for rule in KEEP_RULES.values())


# What judges get wrong is kept, by as many as are asked for; and each judge has columns of its own.


JUDGES = ("lab:resnet10t", "hf-hub:timm/resnet50.a1_in1k", "local-dir:/some where/My-Model")
COLUMNS = ("resnet10t", "resnet50_a1_in1k", "my_model")
answers = st.lists(st.sampled_from([None, 0.0, 1.0]), min_size=3, max_size=3)


def judged(right: list[float | None], object_score: float = 1.0) -> Verdict:
    scores = {f"{name}_right": value for name, value in zip(COLUMNS, right, strict=True)}
    clip = clip_verdict((object_score, None), (0.5, None))
    return Verdict({**clip.scores, **scores}, clip.thresholds)


@given(st.lists(answers, max_size=12), st.integers(1, 3))
def test_kept_is_what_enough_judges_answer_wrongly(
    cell: list[list[float | None]], at_least: int
) -> None:
    rule = MisclassifiedRule(models=JUDGES, at_least=at_least)
    reasons = rule.dropped([judged(right) for right in cell])
    assert [why is None for why in reasons] == [
        sum(value == 0 for value in right) >= at_least for right in cell
    ]


@pytest.mark.parametrize("failure", ["top3", "parent", "answered:05"])
@given(st.lists(answers, max_size=12), st.integers(1, 3))
def test_by_another_failure_rule_its_own_record_decides(
    failure: str, cell: list[list[float | None]], at_least: int
) -> None:
    rule = MisclassifiedRule(models=JUDGES, at_least=at_least, failure=failure)
    failed = [
        # That the first answer is wrong is not enough.
        Verdict(
            {f"{name}_failed": value for name, value in zip(COLUMNS, row, strict=True)}
            | {"resnet10t_right": 0},
            {},
        )
        for row in cell
    ]
    assert [why is None for why in rule.dropped(failed)] == [
        sum(value == 1 for value in row) >= at_least for row in cell
    ]
    assert set(rule.columns()) - set(MisclassifiedRule(models=JUDGES).columns()) == set(
        rule.scores()
    )


@given(st.lists(st.tuples(answers, st.floats(-1, 1, width=32)), max_size=12))
def test_the_generators_faults_are_not_collected(
    cell: list[tuple[list[float | None], float]],
) -> None:
    rules = (ThresholdsRule(), MisclassifiedRule(models=JUDGES))
    reasons = decide_cell(rules, [judged(right, score) for right, score in cell], None)
    for (_, score), reason in zip(cell, reasons, strict=True):
        assert (reason == "low_object") == (score < 0.5)


def test_columns_are_named_after_the_judge() -> None:
    assert [judge_column(judge, "answer") for judge in JUDGES] == [
        f"{name}_answer" for name in COLUMNS
    ]
    columns = MisclassifiedRule(models=JUDGES[:1]).columns()
    assert {name: column.type for name, column in columns.items()} == {
        "resnet10t_answer": "int32",
        "resnet10t_confidence": "float32",
        "resnet10t_right": "bool",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": []}, "at least 1 item"),
        ({"models": ["a", "a"]}, "found 'a' again"),
        ({"models": ["a"], "at_least": 2}, "at_least is 2, expected at most the number of judges"),
        ({"models": ["///"]}, "expected the name of a classifier"),
        (
            {"models": ["a"], "failure": "top5"},
            "found 'top5', expected top1, top3, parent, parent_any or answered:CLASS_ID",
        ),
        ({"models": ["a"], "failure": "answered:"}, "found 'answered:', expected top1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MisclassifiedRule.model_validate(settings)


# An edit that is no longer like its row is dropped; the number is float32, and is only compared
# where it is there.


def similar(value: float | None) -> Verdict:
    return Verdict({"object": 0.3, SOURCE_SIMILARITY: value}, {})


@given(st.lists(cosines, max_size=10), cosines)
def test_an_edit_that_is_less_alike_than_the_setting_is_dropped(
    similarities: list[float], least: float
) -> None:
    reasons = SameImageRule(similarity=least).dropped([similar(value) for value in similarities])
    assert reasons == [None if value >= least else "other_image" for value in similarities]


def test_without_a_setting_or_a_number_nothing_is_dropped() -> None:
    assert SameImageRule().dropped([similar(-1.0), similar(None)]) == [None, None]
    assert SameImageRule(similarity=0.9).dropped([similar(None), Verdict({}, {})]) == [None, None]


def test_a_number_that_is_exactly_the_setting_passes() -> None:
    for value in (0.1, 0.7, 0.9):
        assert SameImageRule(similarity=value).dropped([similar(float(np.float32(value)))]) == [
            None
        ]


def test_the_cosine_of_an_image_with_itself_is_in_bounds() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for vector in vectors:
        assert 0.99999 < similarity(vector, vector) <= 1
        assert similarity(vector, -vector) >= -1
        assert np.float32(similarity(vector, vectors[0])) == similarity(vector, vectors[0])


@pytest.mark.parametrize("key", ["screen.keep", "prompts.shifts.red.keep"])
def test_only_edits_have_a_row_to_be_compared_with(key: str) -> None:
    with pytest.raises(UserError, match=f"(?s){key}.*same_image.*generator.kind edit"):
        load_recipe("wardrobe-mini", [f"{key}=[same_image, thresholds]"])


# What is visible: measured of pixels, compared as it is stored, and decided by settings that are
# null by default.


SIDE = 40


def picture(value: int = 0) -> np.ndarray:
    return np.full((SIDE, SIDE, 3), value, np.uint8)


def measured(**scores: float | None) -> Verdict:
    return Verdict({OBJECT: 0.5, **scores}, {})


@given(st.integers(0, 2**32 - 1), st.integers(1, 255))
def test_it_is_what_pillow_and_numpy_say(seed: int, most: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, most + 1, (7, 11, 3)).astype(np.uint8)
    measures = visibility(pixels)
    luma = np.asarray(Image.fromarray(pixels).convert("L"))
    assert measures["black"] == np.float32((luma <= 8).mean())
    assert measures["white"] == np.float32((luma >= 247).mean())
    channels = pixels.reshape(-1, 3)
    ends = [np.percentile(channels, tail, axis=0, method="inverted_cdf") for tail in (5, 95)]
    # 77 pixels: a twentieth of them is no whole number, so that every definition of a percentile of
    # levels agrees.
    assert measures["contrast"] == (ends[1].astype(int) - ends[0].astype(int)).max()


def test_a_lamp_in_the_dark_is_no_contrast() -> None:
    dark = picture(3)
    dark[:8, :8] = 255  # 4 % of the pixels, whose standard deviation is 49
    assert visibility(dark)["contrast"] == 0
    dark[:10, :10] = 255  # 6 %
    assert visibility(dark)["contrast"] == 252
    assert visibility(picture(3)) == {"contrast": 0.0, "black": 1.0, "white": 0.0}
    assert visibility(picture(250)) == {"contrast": 0.0, "black": 0.0, "white": 1.0}


def test_what_differs_by_colour_alone_is_visible() -> None:
    """Red and green have the same luma here: in grey, the image would be uniform."""
    red_and_green = picture()
    red_and_green[:, : SIDE // 2] = (100, 0, 0)
    red_and_green[:, SIDE // 2 :] = (0, 51, 0)
    assert len(np.unique(np.asarray(Image.fromarray(red_and_green).convert("L")))) == 1
    assert visibility(red_and_green)["contrast"] == 100


def test_it_measures_only_where_nothing_is_set() -> None:
    black = measured(contrast=0.0, black=1.0, white=0.0)
    assert VisibleRule().dropped([black]) == [None]
    assert (
        set(VisibleRule().columns())
        == set(VisibleRule().measures)
        == {"contrast", "black", "white"}
    )


def test_each_setting_has_its_reason_and_what_is_not_there_misses_nothing() -> None:
    rule = VisibleRule(contrast=5, black=0.9, white=0.8)
    rows = [
        (measured(contrast=4.0, black=1.0, white=0.0), "low_contrast"),
        (measured(contrast=5.0, black=0.95, white=0.0), "too_black"),
        (measured(contrast=5.0, black=0.0, white=0.85), "too_white"),
        (measured(contrast=5.0, black=0.5, white=0.5), None),
        (measured(contrast=None, black=None, white=None), None),
        (measured(), None),
    ]
    assert rule.dropped([verdict for verdict, _ in rows]) == [why for _, why in rows]
    assert set(rule.reasons) == {why for _, why in rows if why}


@pytest.mark.parametrize("parts", [1, 2, 6, 7, 14, 19])
def test_a_share_that_is_exactly_the_setting_passes(parts: int) -> None:
    """Measures are float32, whose 0.1 is more than the 0.1 of a recipe."""
    pixels = picture(255)
    pixels[: 2 * parts] = 0
    measures = visibility(pixels)
    assert VisibleRule(black=parts / 20).dropped([measured(**measures)]) == [None]
    assert VisibleRule(black=parts / 20 - 1e-4).dropped([measured(**measures)]) == ["too_black"]
    assert np.float32(measures["black"]) == measures["black"]


def test_it_stands_before_thresholds_and_fills_quotas() -> None:
    recipe = load_recipe(
        "wardrobe-mini",
        [
            "screen.keep=[{visible: {contrast: 5}}, thresholds]",
            "samples={candidates: null, accepted: 2, at_most: 4}",
        ],
    )
    # the base's too
    assert all(isinstance(shift.keep[0], VisibleRule) for shift in recipe.all_shifts())
    shown = measured(contrast=80.0)
    dark = measured(contrast=1.0)
    rules = [VisibleRule(contrast=5)]
    assert decide_cell(rules, [shown, dark, shown, shown], 2) == [
        "accepted",
        "low_contrast",
        "accepted",
        "surplus",
    ]
    assert quota_passes(rules, [shown, dark, shown]) == 2


def test_its_columns_are_in_every_table() -> None:
    visible = load_recipe("wardrobe-mini", ["screen.keep=[{visible: {}}, thresholds]"])
    assert [visible.added_columns[name].type for name in ("contrast", "black", "white")] == [
        "float32"
    ] * 3
    assert Recipe.model_validate(visible.model_dump(mode="json")).screen_hash == visible.screen_hash


@pytest.mark.parametrize(
    "settings", [{"contrast": 256}, {"black": 1.1}, {"white": -0.1}, {"dark": 1}]
)
def test_what_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        VisibleRule.model_validate(settings)
    with pytest.raises(UserError):
        load_recipe(
            "wardrobe-mini", [f"screen.keep=[{{visible: {settings}}}, thresholds]".replace("'", "")]
        )
