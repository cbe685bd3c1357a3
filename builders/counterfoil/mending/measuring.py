"""Heads judged: λ chosen on the discover half, and every arm beside the controls on the confirm half and on test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.arms import RETRAINED, Arm
from counterfoil.mending.choosing import ChosenLambda, choose_lambda, worst_accuracy
from counterfoil.mending.debug_images import Context
from counterfoil.mending.document import (
    CLASS,
    CONFIRM,
    CONTEXT,
    HELDOUT,
    IN_CONTEXTS,
    SEED,
    TEST,
    TEST_FAILED,
    GainDifference,
    LambdaPoint,
    SetMeasured,
)
from counterfoil.mending.gains import compare_heads, measure
from counterfoil.mending.seen import JudgedRows
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.stats import Estimate

# What controls are compared on; the verdict is about held-out failures and about test.
COMPARED = (HELDOUT, IN_CONTEXTS, CONFIRM, TEST, TEST_FAILED)


@dataclass(frozen=True)
class JudgingRows:
    """The rows that judge heads of one model. audited (n,), with `discover` and `confirm` rows, which `failed` and in
    which `context` each is (-1: in none); test (m,), None where the confirm half has to do. right answers: `allowed`.

    context: dealt among the contexts of all arms, so that tables are of the same rows. among: dealt among those of some
    places alone, by which an arm's λ is chosen, whatever other arms there are.
    """

    audited: JudgedRows
    discover: NDArray[np.int64]
    confirm: NDArray[np.int64]
    failed: NDArray[np.bool_]
    context: NDArray[np.int64]
    among: Callable[[Sequence[int]], NDArray[np.int64]]
    contexts: Sequence[Context]
    class_ids: Sequence[str]
    test: JudgedRows | None
    allowed: NDArray[np.bool_]
    before: RightAnswers
    seed: int

    def answers(self, head: LinearHead) -> RightAnswers:
        """What a head gets right of all rows."""
        return answers_of(head, self.audited, self.test, self.allowed)

    def sets(self, judged_by: str = CONFIRM) -> Iterator[tuple[str, bool, NDArray[np.int64]]]:
        """(name, whether of test, rows) of each set, as tables have them; judged by test, without the confirm half."""
        confirm, failed = self.confirm, self.failed
        yield TEST, self.test is not None, confirm if self.test is None else np.arange(len(self.test.labels))
        if self.test is not None and self.before.test is not None:
            yield TEST_FAILED, True, np.flatnonzero(~self.before.test)
        yield SEED, False, self.discover[failed[self.discover]]
        if judged_by == TEST:
            return
        yield HELDOUT, False, confirm[failed[confirm]]
        yield CONFIRM, False, confirm
        yield IN_CONTEXTS, False, confirm[self.context[confirm] >= 0]
        for place, context in enumerate(self.contexts):
            yield f"{CONTEXT}{context.name}", False, confirm[self.context[confirm] == place]
        for label, class_id in enumerate(self.class_ids):
            yield f"{CLASS}{class_id}", False, confirm[self.audited.labels[confirm] == label]


@dataclass(frozen=True)
class RightAnswers:
    """Which rows a head gets right: audited (n,), test (m,) or None."""

    audited: NDArray[np.bool_]
    test: NDArray[np.bool_] | None

    def of(self, on_test: bool, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of some rows."""
        if not on_test:
            return self.audited[rows]
        assert self.test is not None
        return self.test[rows]


def answers_of(
    head: LinearHead, audited: JudgedRows, test: JudgedRows | None, allowed: NDArray[np.bool_]
) -> RightAnswers:
    """What a head gets right; allowed: (classes, outputs)."""

    def right(rows: JudgedRows) -> NDArray[np.bool_]:
        return allowed[rows.labels, head.logits(rows.features).argmax(axis=1)]

    return RightAnswers(right(audited), None if test is None else right(test))


def chosen_on_discover(
    grid: tuple[float, ...], answers: Sequence[RightAnswers], judges: JudgingRows, own: Sequence[int]
) -> ChosenLambda:
    """The λ of an arm; answers: one each of the grid. own: places of the contexts that it is chosen by.

    Where retraining alone loses more than the bound, that loss is not λ's: it is chosen against λ = 0 alone, and none
    is told to be within the bound.
    """
    rows = judges.discover
    accuracy, overall, counts = _by_context(answers, judges, own)
    before = float(judges.before.audited[rows].mean())
    chosen = choose_lambda(grid, accuracy, overall, context_rows=counts, before=before)
    if chosen.allowed.any():
        return chosen
    against_none = choose_lambda(grid, accuracy, overall, context_rows=counts, before=float(overall[grid.index(0.0)]))
    return ChosenLambda(against_none.place, against_none.worst, chosen.allowed)


def _by_context(
    answers: Sequence[RightAnswers], judges: JudgingRows, own: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """On the discover half, of each of g heads: accuracy in each of c contexts (g, c) and overall (g,); rows (c,)."""
    rows = judges.discover
    context = judges.among(own)[rows]
    places = [rows[context == place] for place in own]
    accuracy = np.zeros((len(answers), len(places)))
    for at, one in enumerate(answers):
        accuracy[at] = [one.audited[inside].mean() if len(inside) else 1.0 for inside in places]
    overall = np.asarray([one.audited[rows].mean() for one in answers])
    return accuracy, overall, np.asarray([len(inside) for inside in places], dtype=np.int64)


@dataclass(frozen=True)
class HeadToLeave:
    """An arm whose head may be left: whether its λ is within the bound, and the places of its contexts."""

    name: str
    within_bound: bool
    answers: RightAnswers
    own: Sequence[int]


def best_arm(candidates: Sequence[HeadToLeave], judges: JudgingRows) -> str | None:
    """The arm of the best worst context on the discover half, those within the bound first; of equals the first.

    All are compared in the contexts of all of them: the worst of a few easy ones is no better than that of many.
    """
    if not candidates:
        return None
    union = sorted({place for one in candidates for place in one.own})
    accuracy, overall, counts = _by_context([one.answers for one in candidates], judges, union)
    worst = worst_accuracy(accuracy, overall, counts)
    scores = [(one.within_bound, round(float(value), 9)) for one, value in zip(candidates, worst, strict=True)]
    return candidates[scores.index(max(scores))].name


def curve_of(
    grid: tuple[float, ...],
    answers: Sequence[RightAnswers],
    chosen: ChosenLambda,
    judges: JudgingRows,
    judged_by: str = CONFIRM,
) -> tuple[LambdaPoint, ...]:
    """Each λ with what it does, on the half that chooses and on those that do not."""
    rows = {name: (on_test, own) for name, on_test, own in judges.sets(judged_by)}

    def share(one: RightAnswers, name: str) -> float | None:
        if name not in rows:
            return None
        on_test, own = rows[name]
        return float(one.of(on_test, own).mean()) if len(own) else None

    return tuple(
        LambdaPoint(
            value=value,
            worst_context=float(chosen.worst[at]),
            discover=float(one.audited[judges.discover].mean()),
            heldout=share(one, HELDOUT),
            in_contexts=share(one, IN_CONTEXTS),
            confirm=share(one, CONFIRM),
            test=share(one, TEST),
            allowed=bool(chosen.allowed[at]),
        )
        for at, (value, one) in enumerate(zip(grid, answers, strict=True))
    )


def measured_sets(after: RightAnswers, judges: JudgingRows, judged_by: str = CONFIRM) -> tuple[SetMeasured, ...]:
    """Every set of rows, before and after; of one that is empty there are counts alone."""
    found = []
    for name, on_test, rows in judges.sets(judged_by):
        units = judges.test.units if on_test and judges.test is not None else judges.audited.units
        one = measure(
            judges.before.of(on_test, rows), after.of(on_test, rows), units[rows], seed=judges.seed, salt=name
        )
        gain = one.gain or Estimate(0.0)
        told = one.gain is not None
        found.append(
            SetMeasured(
                set=name, rows=one.rows, units=one.units, before=one.before, after=one.after,
                gain=gain.value if told else None, low=gain.low, high=gain.high, gained=one.changed[0],
                lost=one.changed[1], p=one.p,
            )
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True)
class Control:
    """A head that an arm is compared with: its λ, None of one without, and what it gets right."""

    lam: float | None
    answers: RightAnswers


def compared_with(
    after: RightAnswers, controls: Mapping[str, Control], judges: JudgingRows, judged_by: str = CONFIRM
) -> tuple[GainDifference, ...]:
    """How much more a head gains than each control, on the same rows: by control, then set."""
    found = []
    for against, other in controls.items():
        for name, on_test, rows in judges.sets(judged_by):
            if name not in COMPARED or not len(rows):
                continue
            units = judges.test.units if on_test and judges.test is not None else judges.audited.units
            one = compare_heads(
                after.of(on_test, rows),
                other.answers.of(on_test, rows),
                units[rows],
                seed=judges.seed,
                salt=f"{name} {against}",
            )
            told = one.difference
            found.append(
                GainDifference(
                    against=against, set=name, rows=len(rows), difference=told.value, low=told.low, high=told.high,
                    lam=other.lam, ahead=one.ahead, behind=one.behind, p=one.p,
                )
            )  # fmt: skip
    return tuple(found)


def controls_of(arm: Arm, arms: Sequence[Arm]) -> dict[str, str]:
    """What an arm is compared with: kind of control → name of its arm."""
    own = {one.what or "": one.name for one in arms if one.of == arm.name}
    return {RETRAINED: RETRAINED} | own
