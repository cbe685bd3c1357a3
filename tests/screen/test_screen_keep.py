"""The keep rule: every candidate has exactly one reason, and stricter thresholds never keep more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from counterfoil.screen import KEEP_RULES, Verdict, decide_cell

REASONS = {"accepted", "low_object", "low_shift", "low_both", "surplus", "failed"}
cosines = st.floats(-1, 1, width=32)
scores = st.lists(st.one_of(st.none(), st.tuples(cosines, st.one_of(st.none(), cosines))), max_size=30)
thresholds = st.tuples(cosines, st.one_of(st.none(), cosines))


def _cell(
    scores: list[tuple[float, float | None] | None], at: tuple[float, float | None], accepted: int | None = None
) -> list[str]:
    verdicts = [Verdict(*(score or (None, None)), *at) for score in scores]
    return decide_cell("thresholds", verdicts, accepted)


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
    passing = [place for place, reason in enumerate(free) if reason == "accepted"]
    assert [place for place, reason in enumerate(limited) if reason == "accepted"] == passing[:quota]
    assert [place for place, reason in enumerate(limited) if reason == "surplus"] == passing[quota:]
    others = [(a, b) for a, b in zip(free, limited, strict=True) if a != "accepted"]
    assert all(a == b for a, b in others)


@given(scores, thresholds, st.integers(1, 5), st.integers(0, 30))
def test_later_candidates_change_nothing_of_what_a_quota_kept(scores, at, quota: int, cut: int) -> None:
    assert _cell(scores[:cut], at, quota) == _cell(scores, at, quota)[:cut]


def test_a_score_on_the_threshold_passes() -> None:
    assert KEEP_RULES["thresholds"](Verdict(0.25, 0.5, 0.25, 0.5)) == "accepted"
    assert KEEP_RULES["thresholds"](Verdict(0.25, None, 0.25, None)) == "accepted"


@given(scores, thresholds)
def test_nothing_is_decided_where_the_threshold_is_open(scores, at) -> None:
    pairs = [score or (None, None) for score in scores]
    verdicts = [Verdict(one, other, at[0], None, open=True) for one, other in pairs]
    expected = ["failed" if score is None else "open" for score in scores]
    assert decide_cell("thresholds", verdicts, None) == expected
