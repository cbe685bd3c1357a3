"""Cells decide: every candidate has one reason, stricter rules never keep more, and whoever asks hears the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clip_verdicts import clip_verdict
from counterfoil.keep import (
    KEEP_RULES,
    MisclassifiedRule,
    ThresholdsRule,
    TopRule,
    Verdict,
    before_judges,
    decide_cell,
    drawn,
    filled_at,
    keeps_image,
    passing,
)

BOTH = (ThresholdsRule(),)
REASONS = {"accepted", "low_object", "low_shift", "low_both", "surplus", "failed"}
cosines = st.floats(-1, 1, width=32)
scores = st.lists(st.one_of(st.none(), st.tuples(cosines, st.one_of(st.none(), cosines))), max_size=30)
thresholds = st.tuples(cosines, st.one_of(st.none(), cosines))


def _cell(
    scores: list[tuple[float, float | None] | None], at: tuple[float, float | None], accepted: int | None = None
) -> list[str]:
    return decide_cell(BOTH, _verdicts(scores, at), accepted)


def _verdicts(scores: list[tuple[float, float | None] | None], at: tuple[float, float | None]) -> list[Verdict]:
    return [clip_verdict(score or (None, None), at) for score in scores]


@given(scores, thresholds)
def test_each_candidate_has_the_reason_that_its_scores_say(scores, at) -> None:
    for score, reason in zip(scores, _cell(scores, at), strict=True):
        if score is None:
            assert reason == "failed"
            continue
        low_object = score[0] < at[0]
        low_shift = at[1] is not None and score[1] is not None and score[1] < at[1]
        expected = {(0, 0): "accepted", (1, 0): "low_object", (0, 1): "low_shift", (1, 1): "low_both"}
        assert reason == expected[int(low_object), int(low_shift)]


@given(scores, thresholds, thresholds)
def test_raising_a_threshold_never_raises_the_yield(scores, one, other) -> None:
    both = one[1] is not None and other[1] is not None
    low = (min(one[0], other[0]), min(one[1], other[1]) if both else None)
    high = (max(one[0], other[0]), max(one[1], other[1]) if both else None)
    loose, strict = _cell(scores, low), _cell(scores, high)
    for kept, stricter in zip(loose, strict, strict=True):
        assert kept == "accepted" or stricter != "accepted"
    dropped_shift = _cell(scores, (low[0], None))
    assert dropped_shift.count("accepted") >= loose.count("accepted")


@given(scores, thresholds, st.integers(1, 12))
def test_a_quota_keeps_the_first_that_pass(scores, at, quota: int) -> None:
    free, limited = _cell(scores, at), _cell(scores, at, quota)
    assert set(limited) <= REASONS
    passed = [place for place, reason in enumerate(free) if reason == "accepted"]
    assert [place for place, reason in enumerate(limited) if reason == "accepted"] == passed[:quota]
    assert [place for place, reason in enumerate(limited) if reason == "surplus"] == passed[quota:]
    others = [(a, b) for a, b in zip(free, limited, strict=True) if a != "accepted"]
    assert all(a == b for a, b in others)


@given(scores, thresholds, st.integers(1, 5), st.integers(0, 30))
def test_later_candidates_change_nothing_of_what_a_quota_kept(scores, at, quota: int, cut: int) -> None:
    assert _cell(scores[:cut], at, quota) == _cell(scores, at, quota)[:cut]


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
    before, after = decide_cell(BOTH, verdicts, None), decide_cell((*BOTH, TopRule(k=k, by=by)), verdicts, None)
    passed = [place for place, reason in enumerate(before) if reason == "accepted"]
    kept = [place for place, reason in enumerate(after) if reason == "accepted"]
    assert len(kept) == min(k, len(passed)) and set(kept) <= set(passed)
    assert {after[place] for place in set(passed) - set(kept)} <= {"below_top"}
    assert all(a == b for a, b in zip(before, after, strict=True) if a != "accepted")

    def score(place: int) -> float:
        found = verdicts[place].scores[by]
        return -2.0 if found is None else found

    for left_out in set(passed) - set(kept):
        # None that was left out is better, and of equal ones the earlier is kept.
        assert all(score(one) > score(left_out) or (score(one) == score(left_out) and one < left_out) for one in kept)


@given(scores, thresholds, st.integers(1, 8))
def test_order_of_rules_is_order_of_application(scores, at, k: int) -> None:
    verdicts = _verdicts(scores, at)
    first = decide_cell((TopRule(k=k, by="object"), *BOTH), verdicts, None)
    there = [verdict for verdict in verdicts if not verdict.failed]
    assert first.count("below_top") == max(0, len(there) - k)
    assert first.count("accepted") <= decide_cell((*BOTH, TopRule(k=k, by="object")), verdicts, None).count("accepted")


@given(scores, thresholds, st.integers(1, 6), st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_a_quota_draws_whole_batches_until_enough_pass(scores, at, accepted: int, batches: list[int]) -> None:
    verdicts = _verdicts(scores, at)
    count = drawn(BOTH, verdicts, batches, accepted)
    ends = [sum(batches[: place + 1]) for place in range(len(batches))]
    assert count in ends
    # As a build does, batch after batch: not enough before the last one, enough after it or nothing more to draw.
    before = [end for end in ends if end < count]
    assert all(passing(BOTH, verdicts[:end]) < accepted for end in before)
    assert passing(BOTH, verdicts[:count]) >= accepted or count == ends[-1]


def test_which_table_keeps_an_image() -> None:
    assert [keeps_image("accepted", keep) for keep in (False, True)] == [False, False]
    assert [keeps_image("open", keep) for keep in (False, True)] == [True, True]
    for reason in ("low_object", "surplus", "failed", "below_top", "anything else"):
        assert [keeps_image(reason, keep) for keep in (False, True)] == [False, True]


NEEDED = {"top": {"k": 1}, "misclassified": {"models": ["lab:resnet10t"]}}


def test_every_rule_says_what_it_reads() -> None:
    for name, rule in KEEP_RULES.items():
        made = rule.model_validate(NEEDED.get(name, {}))
        assert made.scores() and set(made.scores()) <= {"object", "shift", *made.columns()}
        assert rule.__doc__


@given(st.lists(st.sampled_from(["accepted", "low_object"]), max_size=20), st.integers(1, 5))
def test_a_cell_is_filled_at_its_last_wanted_candidate(reasons: list[str], accepted: int) -> None:
    at = filled_at(reasons, accepted)
    if at is None:
        assert reasons.count("accepted") < accepted
    else:
        assert reasons[at - 1] == "accepted" and reasons[:at].count("accepted") == accepted


ORDERS = (
    (ThresholdsRule(), MisclassifiedRule(models=("lab:judge",))),
    (ThresholdsRule(), TopRule(k=3), MisclassifiedRule(models=("lab:judge",))),
    (ThresholdsRule(), MisclassifiedRule(models=("lab:judge",)), TopRule(k=3)),
    (ThresholdsRule(), TopRule(k=3)),
    (ThresholdsRule(),),
)
said = st.lists(st.tuples(st.none() | st.tuples(cosines, cosines), st.booleans()), max_size=20)


@given(said, thresholds, st.sampled_from(ORDERS), st.none() | st.integers(1, 5))
def test_a_reason_tells_whether_a_candidate_came_before_a_judge(cell, at, rules, quota) -> None:
    verdicts = []
    for score, right in cell:
        clip = clip_verdict(score or (None, None), at)
        verdicts.append(Verdict({**clip.scores, "judge_right": float(right)}, clip.thresholds))
    first = next((place for place, rule in enumerate(rules) if rule.judges()), len(rules))
    screened = decide_cell(rules[:first], verdicts, None)
    for reason, before in zip(decide_cell(rules, verdicts, quota), screened, strict=True):
        assert before_judges(rules, reason) == (before == "accepted")


@given(said, thresholds, st.sampled_from(sorted(KEEP_RULES)))
def test_a_rule_gives_the_reasons_that_it_lists(cell, at, name) -> None:
    settings = {"misclassified": {"models": ["lab:judge"]}, "top": {"k": 2}}
    rule = KEEP_RULES[name](**settings.get(name, {}))
    verdicts = []
    for score, right in cell:
        clip = clip_verdict(score or (0.0, 0.0), at)
        verdicts.append(Verdict({**clip.scores, "judge_right": float(right)}, clip.thresholds))
    assert {why for why in rule.dropped(verdicts) if why is not None} <= set(rule.reasons)


def test_no_two_rules_give_the_same_reason() -> None:
    reasons = [why for rule in KEEP_RULES.values() for why in rule.reasons]
    assert len(reasons) == len(set(reasons))
    assert all(rule.reasons for rule in KEEP_RULES.values())
