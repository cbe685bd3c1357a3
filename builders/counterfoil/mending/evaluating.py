"""Heads evaluated: λ chosen on the discover half, variants beside controls on the confirm half and on test, a verdict.

Accuracies before and after are of the same rows, their differences paired; rows of one unit (a garment, a patient) are
drawn together. All but the rows themselves are pure functions on arrays.

A variant's λ is chosen with the discover rows dealt among its own contexts, so that it is the same whatever else is
mended with. Tables deal confirm rows among the contexts of all variants, for heads side by side need the same rows; so
do `dfr:clip`, weights of training rows, and `best`. One head is said to gain more than another if the interval and an
exact sign test of units both say so: a bootstrap of three units that agree excludes 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.document import (
    CLASS,
    CONFIRM,
    CONTEXT,
    FEWEST_UNITS,
    HELDOUT,
    HELPS,
    IN_CONTEXTS,
    SAME_LAMBDA,
    SEED,
    TEST,
    TEST_FAILED,
    GainDifference,
    Helped,
    LambdaPoint,
    SetMeasured,
    VariantResult,
)
from counterfoil.mending.variants import CLASS_NAME, CONTEXTS, CONTROL_WORDS, RANDOM, RETRAINED, Context, Variant
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.models.mended import LARGEST_LAMBDA
from counterfoil.report.words import between, counted, listed, opening, points
from counterfoil.stats import Estimate, mean_over_units, seeded, sign_test

# Chegini 2023 reports .5 and shows values around it in Figure 5.
GRID = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
# Half a point of accuracy.
MOST_LOSS = 0.005
# The accuracy of fewer rows is one row's chance.
FEWEST_ROWS = 5
_ROUNDING = 1e-9
# What controls are compared on; the verdict is about held-out failures and about test.
COMPARED = (HELDOUT, IN_CONTEXTS, CONFIRM, TEST, TEST_FAILED)
BY_TEST = "The confirm half confirmed the failures in these images, so it cannot judge them; test failures judge them."


@dataclass(frozen=True, eq=False)
class ChosenLambda:
    """The index in the grid that was chosen. worst: (g,), what was compared. allowed: (g,) bool, within the bound.

    Where no λ is within the bound, it is that of the least loss.
    """

    place: int
    worst: NDArray[np.float64]
    allowed: NDArray[np.bool_]


def lambda_grid(values: Iterable[float]) -> tuple[float, ...]:
    """Return the values in order, each once, with 0, which is the control. UserError for one out of range, and for
    none.
    """
    given = list(values)
    wrong = [value for value in given if not 0 <= value <= LARGEST_LAMBDA]
    if wrong or not given:
        found = ", ".join(f"{value:g}" for value in wrong) or "nothing"
        such_as = ", ".join(f"{value:g}" for value in GRID)
        raise UserError(f"λ: found {found}, expected numbers from 0 to {LARGEST_LAMBDA:g}, such as {such_as}")
    return tuple(sorted({0.0, *(abs(float(value)) for value in given)}))


def choose_lambda(
    grid: tuple[float, ...],
    context_accuracy: NDArray[np.float64],
    overall: NDArray[np.float64],
    *,
    context_rows: NDArray[np.int64],
    before: float,
    untouched: tuple[NDArray[np.float64], float] | None = None,
    most_loss: float = MOST_LOSS,
    fewest: int = FEWEST_ROWS,
) -> ChosenLambda:
    """Choose the λ with the largest accuracy of its worst context, among those that lose little overall.

    All on the discover half: context_accuracy (g, c) and overall (g,) for each of g values, context_rows (c,) of each
    context, `before` the accuracy of the model as it was. Little is `most_loss`, against `before` and against λ = 0,
    which `grid` holds. untouched: where the audited rows are a built dataset, `overall` (g,) and `before` of its base
    alone: it may lose no more against the model as it was, whatever shifts gain. Of equals that of the largest mean
    over the same contexts (`worst_accuracy`), for a worst one that no λ helps decides nothing; then the smallest λ.
    """
    values = np.asarray(grid)
    if 0.0 not in grid or context_accuracy.shape != (len(grid), len(context_rows)) or overall.shape != values.shape:
        raise ValueError("a grid with 0, and accuracies for each of its values")
    worst = worst_accuracy(context_accuracy, overall, context_rows, fewest)
    minimum = max(before, float(overall[grid.index(0.0)])) - most_loss
    allowed = overall >= minimum - _ROUNDING
    if untouched is not None:
        allowed &= untouched[0] >= untouched[1] - most_loss - _ROUNDING
    compared = np.where(allowed, worst, -np.inf) if allowed.any() else overall
    best = np.flatnonzero(compared >= compared.max() - _ROUNDING)
    many = context_rows >= fewest
    if many.any():
        mean = context_accuracy[:, many].mean(axis=1)[best]
        best = best[mean >= mean.max() - _ROUNDING]
    return ChosenLambda(int(best[np.argmin(values[best])]), worst, allowed)


def worst_accuracy(
    context_accuracy: NDArray[np.float64],
    overall: NDArray[np.float64],
    context_rows: NDArray[np.int64],
    fewest: int = FEWEST_ROWS,
) -> NDArray[np.float64]:
    """Return (g,) the accuracy of each of g heads in its worst context; arrays as `choose_lambda` takes them.

    Contexts of fewer than `fewest` rows are left out; where all are so few, their rows are counted together, and
    without any row it is the overall accuracy.
    """
    many = context_rows >= fewest
    if many.any():
        return context_accuracy[:, many].min(axis=1)
    if context_rows.sum() > 0:
        some = context_rows > 0
        return context_accuracy[:, some] @ context_rows[some] / context_rows.sum()
    return overall.astype(np.float64)


def measure_set(
    name: str, before: NDArray[np.bool_], after: NDArray[np.bool_], units: NDArray[np.int64], *, seed: int
) -> SetMeasured:
    """Measure a set of n rows that were answered rightly `before` (n,) and `after` (n,), of units (n,).

    The draws depend on `seed`, the name of the set and the rows.
    """
    if not len(before):
        return SetMeasured(name, 0, 0, None, None, None, None, None, 0, 0, None)
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    gain = difference_of_gains(after, before, units, seed=seed, salt=name)
    return SetMeasured(
        set=name, rows=len(before), units=len(np.unique(units)), before=float(before.mean()), after=float(after.mean()),
        gain=gain.value, low=gain.low, high=gain.high, gained=gained, lost=lost, p=sign_test(gained, lost),
    )  # fmt: skip


def difference_of_gains(
    right_a: NDArray[np.bool_ | np.floating],
    right_b: NDArray[np.bool_ | np.floating],
    units: NDArray[np.int64],
    *,
    seed: int,
    salt: str,
) -> Estimate:
    """Return how much more one head gains than another on the same n rows, from the same model.

    right_a, right_b: (n,) right answers, or shares in [0, 1], of several heads of one kind. Units are drawn together
    (`mean_over_units`). ValueError of no rows.
    """
    if not len(units):
        raise ValueError("a gain of no row has no value")
    return mean_over_units(right_a.astype(np.float64) - right_b.astype(np.float64), units, seeded(seed, salt))


def compare_heads(
    against: str,
    name: str,
    right_a: NDArray[np.bool_ | np.floating],
    right_b: NDArray[np.bool_ | np.floating],
    units: NDArray[np.int64],
    *,
    seed: int,
    lam: float | None = None,
) -> GainDifference:
    """Return `difference_of_gains` on the set `name` against a control, with the units that are decided differently."""
    found = difference_of_gains(right_a, right_b, units, seed=seed, salt=f"{name} {against}")
    of_unit = np.unique(units, return_inverse=True)[1].ravel()
    net = np.round(np.bincount(of_unit, right_a.astype(np.float64) - right_b.astype(np.float64)), 9)
    ahead, behind = int((net > 0).sum()), int((net < 0).sum())
    return GainDifference(
        against=against, set=name, rows=len(units), difference=found.value, low=found.low, high=found.high, lam=lam,
        ahead=ahead, behind=behind, p=sign_test(ahead, behind),
    )  # fmt: skip


def judge_gains(
    against: Mapping[str, GainDifference],
    test: Estimate | None,
    *,
    controls: Sequence[Collection[str]] = (),
    everywhere: GainDifference | None = None,
    test_is: str = "test accuracy",
    notes: Sequence[str] = (),
    rows_are: tuple[str, str] = ("held-out failures", "the confirm half"),
) -> tuple[Helped, str]:
    """Return whether mending helped: in a word, and in one or more plain sentences.

    against: on held-out failures, the difference of gains to each control by its name in words. controls: of each
    control of as many images, its names at each λ; the others are heads retrained alone. On failures, which are all
    wrong, a head can only gain, and what moves it further gains more: so it helps in part only where it gains more than
    the retrained heads and than some control at every λ of that one. test: the change of accuracy on test, None without
    such a row; test_is: the name of that accuracy. everywhere: the difference to the head retrained alone on all rows.
    notes: sentences before that of test. rows_are: what failures and all rows are.
    """
    failures, every = rows_are
    equal = {name for names in controls for name in names}
    beaten = [name for name, one in against.items() if one.side > 0]
    behind = [name for name, one in against.items() if one.side < 0]
    few = [name for name, one in against.items() if not one.side and one.too_few]
    open_ones = [name for name, one in against.items() if not one.side and not one.too_few]
    sentences = []

    def each(names: Sequence[str]) -> str:
        return listed([f"{name} ({_difference(against[name])})" for name in names], len(names))

    loses = everywhere is not None and everywhere.side < 0
    elsewhere = f" on {failures} and loses elsewhere" if loses else ""
    retrained = all(name in beaten for name in against if name not in equal)
    outcome: Helped = "not shown to help"
    if not against:
        outcome = "not known"
        sentences.append("It is not known whether this helped: there is no control to compare with.")
    elif len(beaten) == len(against) and equal:
        outcome = HELPS
        sentences.append(f"It helps{elsewhere}: on {failures} it gains more than {each(beaten)}.")
    elif retrained and any(all(name in beaten for name in names) for names in controls if names):
        outcome = "helps in part"
        sentences.append(f"It helps in part{elsewhere}: on {failures} it gains more than {each(beaten)}.")
    elif beaten:
        but = "but not more than the head retrained alone"
        if retrained:
            but = (
                "but not more than as many other images at the same λ"
                if equal
                else "but so does any head that changes more"
            )
        sentences.append(f"It is not shown to help: on {failures} it gains more than {each(beaten)}, {but}.")
    else:
        sentences.append(f"It is not shown to help: on {failures} it gains more than no control.")
    if loses:
        assert everywhere is not None
        sentences.append(
            f"On all rows of {every} it is right less often than the head retrained alone: {_difference(everywhere)}."
        )
    if behind:
        sentences.append(f"It gains less than {each(behind)}.")
    if open_ones:
        sentences.append(f"No difference is shown from {each(open_ones)}.")
    if few:
        sentences.append(
            f"Too few {failures} have different answers (fewer than {FEWEST_UNITS}) to compare it with {each(few)}."
        )
    lost = test is not None and test.high is not None and test.high < 0
    if outcome in (HELPS, "helps in part") and (loses or lost):
        outcome = "loses elsewhere"
    return outcome, " ".join([*sentences, *notes, *_of_test(test, test_is)])


def _difference(gain_difference: GainDifference) -> str:
    """Return the difference with its interval, and with the sign test if that forbids to believe the interval."""
    words = f"{points(gain_difference.difference, signed=True)}{_interval(gain_difference.low, gain_difference.high)}"
    excluded = (
        gain_difference.low is not None
        and gain_difference.high is not None
        and not gain_difference.low <= 0 <= gain_difference.high
    )
    if gain_difference.side or not excluded:
        return words
    units = counted(gain_difference.ahead + gain_difference.behind, "unit")
    return f"{words}; sign test of {units}: p = {gain_difference.p:.2g}"


def _of_test(test: Estimate | None, test_is: str) -> list[str]:
    if test is None:
        return []
    change = f"{points(test.value, signed=True)} points{_interval(test.low, test.high)}"
    name = opening(test_is)
    if test.high is not None and test.high < 0:
        return [f"It loses elsewhere: {test_is} changes by {change}."]
    if test.value < -MOST_LOSS:
        return [f"{name} falls by more than {points(MOST_LOSS)} points: {change}."]
    if test.low is not None and test.low > 0:
        return [f"{name} rises: {change}."]
    if test.low is not None and test.low > -MOST_LOSS:
        return [f"{name} does not fall by more than {points(MOST_LOSS)} points: {change}."]
    return [f"No change of {test_is} is shown: {change}."]


def _interval(low: float | None, high: float | None) -> str:
    text = between(Estimate(0.0, low, high))
    return f", {text}" if text else ""


@dataclass(frozen=True)
class EvaluationRows:
    """n rows to evaluate heads on. features: (n, d) float32. labels, units: (n,)."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    units: NDArray[np.int64]


@dataclass(frozen=True)
class HeadEvaluation:
    """The rows that heads of one model are evaluated on. test (m,), None where the confirm half has to do.

    context: (n,) which context each audited row is in (-1: none), dealt among the contexts of all variants, so that
    tables are of the same rows. among: deals among some contexts alone, by which a variant's λ is chosen.
    """

    audited: EvaluationRows
    discover: NDArray[np.int64]
    confirm: NDArray[np.int64]
    failed: NDArray[np.bool_]
    untouched: NDArray[np.bool_]
    context: NDArray[np.int64]
    among: Callable[[Sequence[int]], NDArray[np.int64]]
    contexts: Sequence[Context]
    class_ids: Sequence[str]
    test: EvaluationRows | None
    allowed: NDArray[np.bool_]
    before: RightAnswers
    seed: int

    def answers(self, head: LinearHead) -> RightAnswers:
        return right_answers_of(head, self.audited, self.test, self.allowed)

    def units(self, on_test: bool) -> NDArray[np.int64]:
        """Return the unit of each row of test, or of each that was audited."""
        return self.test.units if on_test and self.test is not None else self.audited.units

    def sets(self, judged_by: str = CONFIRM) -> Iterator[tuple[str, bool, NDArray[np.int64]]]:
        """Yield (name, whether of test, rows) of each set, in the order of tables; judged by test, without the confirm
        half.
        """
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
        for index, context in enumerate(self.contexts):
            yield f"{CONTEXT}{context.name}", False, confirm[self.context[confirm] == index]
        for label, class_id in enumerate(self.class_ids):
            yield f"{CLASS}{class_id}", False, confirm[self.audited.labels[confirm] == label]


@dataclass(frozen=True)
class RightAnswers:
    """Which rows a head gets right: audited (n,), test (m,) or None."""

    audited: NDArray[np.bool_]
    test: NDArray[np.bool_] | None

    def of(self, on_test: bool, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        if not on_test:
            return self.audited[rows]
        assert self.test is not None
        return self.test[rows]


def right_answers_of(
    head: LinearHead, audited: EvaluationRows, test: EvaluationRows | None, allowed: NDArray[np.bool_]
) -> RightAnswers:
    """Return what a head gets right; allowed: (classes, outputs)."""

    def right(rows: EvaluationRows) -> NDArray[np.bool_]:
        return allowed[rows.labels, head.logits(rows.features).argmax(axis=1)]

    return RightAnswers(right(audited), None if test is None else right(test))


def chosen_on_discover(
    grid: tuple[float, ...], answers: Sequence[RightAnswers], evaluation: HeadEvaluation, own: Sequence[int]
) -> ChosenLambda:
    """Choose the λ of a variant; answers: one each of the grid. own: indices of the contexts that it is chosen by.

    Where retraining alone loses more than the bound, that loss is not λ's: λ is chosen against λ = 0 alone, and none is
    said to be within the bound.
    """
    rows = evaluation.discover
    accuracy, overall, counts = _by_context(answers, evaluation, own)
    before = float(evaluation.before.audited[rows].mean())
    untouched = None
    base = rows[evaluation.untouched[rows]]
    if 0 < len(base) < len(rows):
        shares = np.asarray([answer.audited[base].mean() for answer in answers])
        untouched = shares, float(evaluation.before.audited[base].mean())
    chosen = choose_lambda(grid, accuracy, overall, context_rows=counts, before=before, untouched=untouched)
    if chosen.allowed.any():
        return chosen
    none = grid.index(0.0)
    if untouched is not None:
        untouched = untouched[0], min(untouched[1], float(untouched[0][none]))
    against_none = choose_lambda(
        grid, accuracy, overall, context_rows=counts, before=float(overall[none]), untouched=untouched
    )
    return ChosenLambda(against_none.place, against_none.worst, chosen.allowed)


def _by_context(
    answers: Sequence[RightAnswers], evaluation: HeadEvaluation, own: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return, on the discover half, of g heads: accuracy in c contexts (g, c) and overall (g,); rows (c,)."""
    rows = evaluation.discover
    context = evaluation.among(own)[rows]
    places = [rows[context == place] for place in own]
    accuracy = np.zeros((len(answers), len(places)))
    for at, one in enumerate(answers):
        accuracy[at] = [one.audited[inside].mean() if len(inside) else 1.0 for inside in places]
    overall = np.asarray([answer.audited[rows].mean() for answer in answers])
    return accuracy, overall, np.asarray([len(inside) for inside in places], dtype=np.int64)


def best_variant(
    candidates: Sequence[tuple[str, bool, RightAnswers, Sequence[int]]], evaluation: HeadEvaluation
) -> str | None:
    """Return the variant of the best worst context on the discover half, those within the bound first.

    candidates: of each its name, whether its λ is within the bound, its answers and the indices of its contexts. All
    are compared in the contexts of all of them: the worst of a few easy ones is no better than that of many.
    """
    if not candidates:
        return None
    union = sorted({place for *_, own in candidates for place in own})
    accuracy, overall, counts = _by_context([answers for _, _, answers, _ in candidates], evaluation, union)
    worst = worst_accuracy(accuracy, overall, counts)
    scores = [(within, round(float(value), 9)) for (_, within, *_), value in zip(candidates, worst, strict=True)]
    return candidates[scores.index(max(scores))][0]


def accuracy_by_set(
    answers: RightAnswers, sets: Iterable[tuple[str, bool, NDArray[np.int64]]]
) -> dict[str, float | None]:
    """Return the accuracy on each of some sets, None of an empty one."""
    return {name: float(answers.of(on_test, rows).mean()) if len(rows) else None for name, on_test, rows in sets}


def lambda_curve(
    grid: tuple[float, ...],
    answers: Sequence[RightAnswers],
    chosen: ChosenLambda,
    evaluation: HeadEvaluation,
    judged_by: str = CONFIRM,
) -> tuple[LambdaPoint, ...]:
    """Return each λ with its accuracies, on the half that chooses and on those that do not."""
    names = (HELDOUT, IN_CONTEXTS, CONFIRM, TEST)
    sets = [one for one in evaluation.sets(judged_by) if one[0] in names]
    points = []
    for at, (value, one) in enumerate(zip(grid, answers, strict=True)):
        shares = accuracy_by_set(one, sets)
        heldout, in_contexts, confirm, test = (shares.get(name) for name in names)
        worst, discover = float(chosen.worst[at]), float(one.audited[evaluation.discover].mean())
        allowed = bool(chosen.allowed[at])
        points.append(LambdaPoint(value, worst, discover, heldout, in_contexts, confirm, test, allowed))
    return tuple(points)


def measured_sets(after: RightAnswers, evaluation: HeadEvaluation, judged_by: str = CONFIRM) -> tuple[SetMeasured, ...]:
    """Return every set of rows, before and after; of an empty one counts alone."""
    return tuple(
        measure_set(
            name, evaluation.before.of(on_test, rows), after.of(on_test, rows), evaluation.units(on_test)[rows],
            seed=evaluation.seed,
        )
        for name, on_test, rows in evaluation.sets(judged_by)
    )  # fmt: skip


def compared_with(
    after: RightAnswers,
    controls: Mapping[str, tuple[float | None, RightAnswers]],
    evaluation: HeadEvaluation,
    judged_by: str = CONFIRM,
) -> tuple[GainDifference, ...]:
    """Return how much more a head gains than each control, on the same rows: by control, then set.

    controls: kind → its λ, None of one without, and what it gets right.
    """
    return tuple(
        compare_heads(
            against, name, after.of(on_test, rows), answers.of(on_test, rows), evaluation.units(on_test)[rows],
            seed=evaluation.seed, lam=lam,
        )
        for against, (lam, answers) in controls.items()
        for name, on_test, rows in evaluation.sets(judged_by)
        if name in COMPARED and len(rows)
    )  # fmt: skip


def controls_of(variant: Variant, variants: Sequence[Variant]) -> dict[str, str]:
    """Return what a variant is compared with: kind of control → name of its variant."""
    own = {one.what or "": one.name for one in variants if one.of == variant.name}
    return {RETRAINED: RETRAINED} | own


def control_words(against: str, lam: float | None = None) -> str:
    """Return a control in words, with the λ that was chosen for it where it has one."""
    what = against.removesuffix(SAME_LAMBDA)
    words = CONTROL_WORDS.get(what, what)
    if what != against:
        return f"{words}{SAME_LAMBDA}"
    return words if lam is None else f"{words} at λ = {lam:g}"


def judge_variant(
    comparisons: Sequence[GainDifference], variant: VariantResult, *, has_test: bool, missing: str = ""
) -> tuple[Helped, str]:
    """Return whether a variant helped: on held-out failures against controls, on all confirm rows, and on test.

    What the confirm half chose is judged by the failures of test, and by all its rows. A control whose λ is 0 is the
    head retrained alone, which is said and counted once. has_test: whether test is a split of its own. missing: of
    `missing_controls`.
    """
    by_test = variant.judged_by == TEST
    failures, every = (TEST_FAILED, TEST) if by_test else (HELDOUT, CONFIRM)
    heldout = [comparison for comparison in comparisons if comparison.set == failures]
    if not heldout:
        half = "The model fails on no test image" if by_test else "The confirm half holds no failure"
        return "not known", f"{half}, so it is not known whether this helped."
    nothing = [one.against for one in heldout if one.lam == 0]
    against: dict[str, GainDifference] = {}
    controls: dict[str, list[str]] = {}
    for one in heldout:
        if one.lam != 0:
            words = control_words(one.against, one.lam)
            against[words] = one
            if one.against != RETRAINED:
                controls.setdefault(one.against.removesuffix(SAME_LAMBDA), []).append(words)
    everywhere = next(
        (comparison for comparison in comparisons if (comparison.against, comparison.set) == (RETRAINED, every)), None
    )
    notes = [BY_TEST] if by_test else []
    if nothing:
        notes.append(
            f"λ = 0 was chosen for {' and for '.join(map(control_words, nothing))}. At"
            f" {'its own λ this control is' if len(nothing) == 1 else 'their own λ these controls are'} the head"
            " retrained alone, so there is no second comparison."
        )
    if missing:
        notes.append(missing)
    test = variant.of_set(TEST)
    on_test = None if test is None or test.gain is None else Estimate(test.gain, test.low, test.high)
    test_is = "test accuracy" if has_test else "accuracy on the confirm half (there is no test split)"
    return judge_gains(
        against,
        on_test,
        controls=list(controls.values()),
        everywhere=everywhere,
        test_is=test_is,
        notes=notes,
        rows_are=("test failures", "the test split") if by_test else ("held-out failures", "the confirm half"),
    )


def missing_controls(variant: Variant, kinds: Collection[str]) -> str:
    """Return a sentence about the equal-number controls that a variant lacks, or nothing; kinds: those that it has."""
    alone = "The only control is the head retrained alone. Whether"
    if variant.debug is None:
        what = (
            "weighing as many other training rows"
            if variant.weights is not None
            else "as many other rows or other groups"
        )
        return f"{alone} {what} would do the same is not known."
    wanted = [CLASS_NAME, *([RANDOM] if variant.debug.group == CONTEXTS else [])]
    lacking = [what for what in wanted if what not in kinds]
    if not kinds:
        return f"{alone} as many other images would do the same is not known."
    if not lacking:
        return ""
    return (
        f"Whether {' or '.join(CONTROL_WORDS[what] for what in lacking)} would do the same is not known: there is"
        " no such control."
    )
