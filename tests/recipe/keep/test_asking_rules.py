"""Rules that ask models: what they ask, what their answers decide, and what a recipe may say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.plan.estimate import asked_budgets, host_of
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.detected import AREAS, CONFIDENCES, DetectedRule
from counterfoil.recipe.keep.question import SHIFT_YES, YES, QuestionRule
from counterfoil.recipe.keep.rule import AskingRule, Verdict, as_stored

VLM = "transformers:user/vlm"
OWL = "transformers:google/owlv2-base-patch16-ensemble"
shares = st.floats(0, 1, width=32)


@given(
    st.lists(st.tuples(st.none() | shares, st.none() | shares)),
    st.none() | st.floats(0, 1),
    st.none() | st.floats(0, 1),
)
def test_a_yes_passes_from_its_limit_on(
    answers: list[tuple[float | None, float | None]], least: float | None, of_shift: float | None
) -> None:
    rule = QuestionRule(
        model=VLM, yes_at_least=least, ask_shift="Is it {shift}?", shift_yes_at_least=of_shift
    )
    expected: list[str | None] = []
    for yes, shift_yes in answers:
        if yes is not None and least is not None and yes < as_stored(least):
            expected.append("answered_no")
        elif shift_yes is not None and of_shift is not None and shift_yes < as_stored(of_shift):
            expected.append("shift_answered_no")
        else:
            expected.append(None)
    verdicts = [Verdict({YES: yes, SHIFT_YES: shift_yes}, {}) for yes, shift_yes in answers]
    assert rule.dropped(verdicts) == expected
    levels = rule.of_level().dropped(verdicts)
    assert "shift_answered_no" not in levels
    assert levels.count("answered_no") == expected.count("answered_no")


boxes = st.lists(st.tuples(st.floats(0.0625, 1, width=32), shares), max_size=20)


@given(
    boxes,
    st.none() | st.floats(0.05, 1),
    st.integers(1, 4),
    st.none() | st.integers(0, 4),
    st.none() | st.floats(0.01, 1),
)
def test_objects_are_counted_and_measured_from_a_confidence_on(
    objects: list[tuple[float, float]],
    confidence: float | None,
    least: int,
    more: int | None,
    area: float | None,
) -> None:
    limits: dict[str, Any] = {}
    if confidence is not None:
        most = None if more is None else least + more
        limits = {"count_at_least": least, "count_at_most": most, "area_at_least": area}
    rule = DetectedRule.model_validate({"model": OWL, "confidence_at_least": confidence, **limits})
    objects.sort(reverse=True)
    verdict = Verdict({CONFIDENCES: [c for c, _ in objects], AREAS: [a for _, a in objects]}, {})
    expected = None
    if confidence is not None:
        counted = [a for c, a in objects if c >= as_stored(confidence)]
        if len(counted) < least:
            expected = "not_detected"
        elif more is not None and len(counted) > least + more:
            expected = "too_many"
        elif area is not None and all(a < as_stored(area) for a in counted):
            expected = "too_small"
    assert rule.dropped([verdict]) == [expected]
    assert rule.dropped([Verdict({}, {})]) == [None]


FAULTS: dict[str, tuple[list[float] | None, list[float] | None, list[str]]] = {
    "none": (None, None, []),
    "nothing found": ([], [], []),
    "two": ([0.9, 0.05], [0, 1], []),
    "half of it": ([0.9], None, [AREAS]),
    "other lengths": ([0.9, 0.8], [0.5], [AREAS]),
    "order": ([0.8, 0.9], [0.5, 0.5], [CONFIDENCES]),
    "too low": ([0.01], [0.5], [CONFIDENCES]),
    "no number": ([float("nan")], [0.5], [CONFIDENCES]),
    "too large": ([0.5], [1.5], [AREAS]),
    "too many": ([0.5] * 21, [0.5] * 21, [CONFIDENCES, AREAS]),
}


@pytest.mark.parametrize("case", FAULTS)
def test_detections_that_no_detector_gives_are_faults(case: str) -> None:
    confidences, areas, columns = FAULTS[case]
    faults = DetectedRule(model=OWL).faults({CONFIDENCES: confidences, AREAS: areas})
    assert [column for column, _ in faults] == columns


def with_rules(*rules: str, more: tuple[str, ...] = ()) -> Recipe:
    return load_recipe("wardrobe-mini", [f"screen.keep=[thresholds, {', '.join(rules)}]", *more])


def test_the_shift_is_asked_about_by_its_caption_and_never_of_the_base() -> None:
    recipe = with_rules(f"{{question: {{model: '{VLM}', ask_shift: 'Is this {{shift}}?'}}}}")
    for shift in recipe.all_shifts():
        (rule,) = [rule for rule in shift.keep if isinstance(rule, AskingRule)]
        questions = {YES: "Is there a {class} in this picture?"}
        if shift.name != "base":
            questions[SHIFT_YES] = f"Is this {shift.caption}?"
        assert rule.asks(shift) == questions


def test_levels_have_no_limit_on_the_shift() -> None:
    recipe = load_recipe("wardrobe-severity", [
        f"screen.keep=[thresholds, {{question: {{model: '{VLM}', ask_shift: 'Is this {{shift}}?',"
        " yes_at_least: 0.5, shift_yes_at_least: 0.5}}]",
    ])  # fmt: skip
    levels = [shift for shift in recipe.all_shifts() if shift.level is not None]
    assert levels
    for shift in levels:
        (rule,) = [rule for rule in shift.keep if isinstance(rule, QuestionRule)]
        assert (rule.yes_at_least, rule.shift_yes_at_least) == (0.5, None)
        assert SHIFT_YES in rule.asks(shift)


REFUSED: dict[str, tuple[str, str, str]] = {
    "no class": ("question: {model: %s, ask: 'Is it?'}", "ask", "expected it to contain '{class}'"),
    "another word": ("question: {model: %s, ask_shift: 'Is it {shfit}?'}", "ask_shift",
        "expected '{class}' or '{shift}'; did you mean '{shift}'"),
    "the shift of the object": ("detected: {model: %s, text: 'a {class} {shift}'}", "text", "the only one"),
    "no address": ("question: {model: user/vlm}", "question", "base_url is missing"),
    "two places": ("question: {model: %s, base_url: 'http://localhost/v1'}", "question", "expected one of them"),
    "a key": ("question: {model: a, base_url: 'http://me:s3cret@host/v1'}", "base_url", "OPENAI_API_KEY"),
    "no address of the web": ("question: {model: a, base_url: 'file:///etc'}", "base_url", "http://localhost:8000/v1"),
    "no detector": ("detected: {model: user/owl}", "model", "expected a detector of transformers"),
    "no confidence": ("detected: {model: %s, count_at_most: 1}", "detected", "which count_at_most needs"),
    "counts": ("detected: {model: %s, confidence_at_least: .3, count_at_least: 2, count_at_most: 1}", "detected",
        "expected at least count_at_least (2)"),
    "above 1": ("question: {model: %s, yes_at_least: 70}", "yes_at_least", "1"),
    "twice": ("question: {model: %s}}, {question: {model: %s}", "keep", "expected each rule once"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_recipe_may_not_say(case: str) -> None:
    rule, key, says = REFUSED[case]
    with pytest.raises(UserError) as refused:
        with_rules(f"{{{rule.replace('%s', repr(VLM))}}}")
    problem = refused.value.problems[0]
    assert key in problem and says in problem


def test_an_address_and_a_folder_leave_no_trace_but_their_last_part() -> None:
    first = with_rules(
        "{question: {model: a, base_url: 'http://host.of.mine:80/v1'}}",
        "{detected: {model: 'transformers:/home/me/owl'}}",
    )
    other = with_rules(
        "{question: {model: a, base_url: 'http://elsewhere/v1'}}",
        "{detected: {model: 'transformers:/srv/owl'}}",
    )
    assert first.screen_hash == other.screen_hash
    portable = first.portable_yaml
    assert "elsewhere:http://server" in portable and "transformers:./owl" in portable
    assert "host.of.mine" not in portable and "/home/me" not in portable
    again = first.portable
    assert again.screen_hash == first.screen_hash
    assert [rule.address for rule in again.asking_rules] == ["elsewhere:http://server", None]


def test_questions_are_counted_and_the_host_is_named_without_a_path() -> None:
    recipe = with_rules(
        "{question: {model: a, base_url: 'http://host:80/v1', ask_shift: 'Is this {shift}?'}}",
        f"{{detected: {{model: '{OWL}'}}}}",
    )
    plan = make_plan(recipe)
    shifts = recipe.all_shifts()[1:]
    images = plan.n_samples
    served, local = asked_budgets(plan)
    assert (served.model, served.address, served.images) == ("a", "http://host:80", images)
    assert served.questions == images + sum(map(plan.n_samples_of, shifts))
    assert (local.model, local.address, local.questions) == (OWL, None, images)
    assert host_of("https://me:secret@host/v1?key=1") == "https://host"
