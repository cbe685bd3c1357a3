"""What judges get wrong is kept, by as many as are asked for; and each judge has columns of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clip_verdicts import clip_verdict
from counterfoil.keep import MisclassifiedRule, ThresholdsRule, Verdict, decide_cell
from counterfoil.keep.misclassified import judge_column

JUDGES = ("lab:resnet10t", "hf-hub:timm/resnet50.a1_in1k", "local-dir:/some where/My-Model")
COLUMNS = ("resnet10t", "resnet50_a1_in1k", "my_model")
answers = st.lists(st.sampled_from([None, 0.0, 1.0]), min_size=3, max_size=3)


def verdict(right: list[float | None], object_score: float = 1.0) -> Verdict:
    scores = {f"{name}_right": value for name, value in zip(COLUMNS, right, strict=True)}
    clip = clip_verdict((object_score, None), (0.5, None))
    return Verdict({**clip.scores, **scores}, clip.thresholds)


@given(st.lists(answers, max_size=12), st.integers(1, 3))
def test_kept_is_what_enough_judges_answer_wrongly(cell: list[list[float | None]], at_least: int) -> None:
    rule = MisclassifiedRule(models=JUDGES, at_least=at_least)
    found = rule.dropped([verdict(right) for right in cell])
    assert [why is None for why in found] == [sum(value == 0 for value in right) >= at_least for right in cell]


@pytest.mark.parametrize("failure", ["top3", "parent", "answered:05"])
@given(st.lists(answers, max_size=12), st.integers(1, 3))
def test_by_another_failure_rule_its_own_record_decides(
    failure: str, cell: list[list[float | None]], at_least: int
) -> None:
    rule = MisclassifiedRule(models=JUDGES, at_least=at_least, failure=failure)
    failed = [
        # That the first answer is wrong is not enough.
        Verdict(
            {f"{name}_failed": value for name, value in zip(COLUMNS, row, strict=True)} | {"resnet10t_right": 0}, {}
        )
        for row in cell
    ]
    assert [why is None for why in rule.dropped(failed)] == [
        sum(value == 1 for value in row) >= at_least for row in cell
    ]
    assert set(rule.columns()) - set(MisclassifiedRule(models=JUDGES).columns()) == set(rule.scores())


@given(st.lists(st.tuples(answers, st.floats(-1, 1, width=32)), max_size=12))
def test_the_generators_faults_are_not_collected(cell: list[tuple[list[float | None], float]]) -> None:
    rules = (ThresholdsRule(), MisclassifiedRule(models=JUDGES))
    reasons = decide_cell(rules, [verdict(right, score) for right, score in cell], None)
    for (_, score), reason in zip(cell, reasons, strict=True):
        assert (reason == "low_object") == (score < 0.5)


def test_columns_are_named_after_the_judge() -> None:
    assert [judge_column(judge, "answer") for judge in JUDGES] == [f"{name}_answer" for name in COLUMNS]
    columns = MisclassifiedRule(models=JUDGES[:1]).columns()
    assert {name: column.type for name, column in columns.items()} == {
        "resnet10t_answer": "int32",
        "resnet10t_confidence": "float32",
        "resnet10t_right": "bool",
    }


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"models": []}, "at least 1 item"),
        ({"models": ["a", "a"]}, "found 'a' again"),
        ({"models": ["a"], "at_least": 2}, "at_least is 2, expected at most the number of judges"),
        ({"models": ["///"]}, "expected the name of a classifier"),
        ({"models": ["a"], "failure": "top5"}, "found 'top5', expected top1, top3, parent or answered:CLASS_ID"),
        ({"models": ["a"], "failure": "answered:"}, "found 'answered:', expected top1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MisclassifiedRule.model_validate(settings)
