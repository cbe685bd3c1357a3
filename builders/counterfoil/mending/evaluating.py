"""Evaluate heads: choose λ on the discover half, compare variants with controls on the confirm half
and on test.

A variant's λ is chosen with discover rows assigned to the variant's own contexts, so it does not
depend on other variants. Tables assign confirm rows among the contexts of all variants, because
heads in one table need the same rows. Rows of one unit (a garment, a patient) are resampled
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from counterfoil.arrays import Bools, Floats, Floats32, Ints
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
    control_words,
)
from counterfoil.mending.network import Network
from counterfoil.mending.variants import (
    ANY,
    CLASS_NAME,
    CONTEXTS,
    CONTROL_WORDS,
    RANDOM,
    RETRAINED,
    UNCHANGED,
    Context,
    Variant,
)
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.models.mended import LARGEST_LAMBDA
from counterfoil.report.words import (
    capitalised,
    format_count,
    format_interval,
    format_list,
    format_points,
)
from counterfoil.stats import Estimate, mean_over_units, seeded_generator, sign_test

# The default values of λ. Chegini 2023 reports results for 0.5, and its Figure 5 shows values
# around 0.5.
GRID = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
# The accepted loss of accuracy: half a point.
MOST_LOSS = 0.005
# The fewest rows of a context that count: with fewer rows, a single row decides the accuracy.
FEWEST_ROWS = 5
_ROUNDING = 1e-9
# The sets on which variants are compared with controls. The verdict uses held-out failures and
# test.
COMPARED = (
    HELDOUT,
    IN_CONTEXTS,
    CONFIRM,
    TEST,
    TEST_FAILED,
)
BY_TEST = (
    "The confirm half confirmed the failures in these images, so it cannot judge them; test"
    " failures judge them."
)


@dataclass(frozen=True, eq=False)
class ChosenLambda:
    """The chosen λ, given by its index in a grid of g values.

    worst: (g,) accuracies in the worst context. allowed: (g,) bool, whether the loss is within the
    bound. If no λ is within the bound, `index` is the index of the λ with the smallest loss.
    """

    index: int
    worst: Floats
    allowed: Bools


def lambda_grid(values: Iterable[float]) -> tuple[float, ...]:
    """Return the distinct values of λ in order, with 0 for the control. Raise UserError for no or
    an unusable value."""
    given = list(values)
    wrong = [f"{value:g}" for value in given if not 0 <= value <= LARGEST_LAMBDA]
    if wrong or not given:
        such_as = ", ".join(f"{value:g}" for value in GRID)
        expected = f"expected numbers from 0 to {LARGEST_LAMBDA:g}, such as {such_as}"
        raise UserError(f"λ: found {', '.join(wrong) or 'nothing'}, {expected}")
    return tuple(sorted({0.0, *(abs(float(value)) for value in given)}))


def choose_lambda(
    grid: tuple[float, ...],
    context_accuracy: Floats,
    overall: Floats,
    *,
    context_rows: Ints,
    before: float,
    untouched: tuple[Floats, float] | None = None,
    most_loss: float = MOST_LOSS,
    fewest: int = FEWEST_ROWS,
) -> ChosenLambda:
    """Choose the λ with the best worst-context accuracy, among those that lose at most `most_loss`
    overall.

    All arrays describe the discover half, for g values of λ and c contexts. context_accuracy: (g,
    c). overall: (g,). context_rows: (c,) row counts. before: accuracy of the original model. The
    loss is measured against `before` and against λ = 0. untouched: the same as `overall` and
    `before`, on the base of a built dataset; the bound holds there too. Ties go to the λ with the
    largest mean over the contexts that `worst_accuracy` uses, because perhaps no λ improves the
    worst context. Further ties go to the smallest λ.
    """
    worst = worst_accuracy(context_accuracy, overall, context_rows, fewest)
    minimum = max(before, float(overall[grid.index(0.0)])) - most_loss
    allowed = overall >= minimum - _ROUNDING
    if untouched is not None:
        of_base, before_of_base = untouched
        allowed &= of_base >= before_of_base - most_loss - _ROUNDING
    compared = overall
    if allowed.any():
        compared = np.where(allowed, worst, -np.inf)
    best = np.flatnonzero(compared >= compared.max() - _ROUNDING)
    enough_rows = context_rows >= fewest
    if enough_rows.any():
        mean = context_accuracy[:, enough_rows].mean(axis=1)[best]
        best = best[mean >= mean.max() - _ROUNDING]
    smallest = np.asarray(grid)[best].argmin()
    return ChosenLambda(int(best[smallest]), worst, allowed)


def worst_accuracy(
    context_accuracy: Floats,
    overall: Floats,
    context_rows: Ints,
    fewest: int = FEWEST_ROWS,
) -> Floats:
    """Return the accuracy of each head in its worst context, (g,). The arrays are those of
    `choose_lambda`.

    Contexts with fewer than `fewest` rows are left out. If every context has fewer rows, the rows
    of all contexts are pooled. If there is no row at all, the result is the overall accuracy.
    """
    enough_rows = context_rows >= fewest
    if enough_rows.any():
        return context_accuracy[:, enough_rows].min(axis=1)
    if context_rows.sum() > 0:
        some = context_rows > 0
        return context_accuracy[:, some] @ context_rows[some] / context_rows.sum()
    return overall.astype(np.float64)


def measure_set(name: str, before: Bools, after: Bools, units: Ints, *, seed: int) -> SetMeasured:
    """Measure a head on n rows. `name` is part of the seed.

    before, after: (n,) bool, whether the old and the new head are right. units: (n,).
    """
    if not len(before):
        return SetMeasured(name, 0, 0, None, None, None, None, None, 0, 0, None)
    gained = int((after & ~before).sum())
    lost = int((before & ~after).sum())
    gain = difference_of_gains(after, before, units, seed=seed, salt=name)
    return SetMeasured(
        set=name,
        rows=len(before),
        units=len(np.unique(units)),
        before=float(before.mean()),
        after=float(after.mean()),
        gain=gain.value,
        low=gain.low,
        high=gain.high,
        gained=gained,
        lost=lost,
        p=sign_test(gained, lost),
    )


def difference_of_gains(
    right_a: Bools,
    right_b: Bools,
    units: Ints,
    *,
    seed: int,
    salt: str,
) -> Estimate:
    """Return the gain of head a minus that of head b, both heads of one model, on the same n rows.

    right_a, right_b: (n,) right answers. Rows of a unit are resampled together.
    """
    more = right_a - right_b.astype(np.float64)
    return mean_over_units(more, units, seeded_generator(seed, salt))


def compare_heads(
    against: str,
    name: str,
    right_a: Bools,
    right_b: Bools,
    units: Ints,
    *,
    seed: int,
    lam: float | None = None,
) -> GainDifference:
    """Return `difference_of_gains` against a control, with the counts of units ahead and behind."""
    more = right_a - right_b.astype(np.float64)
    difference = mean_over_units(more, units, seeded_generator(seed, f"{name} {against}"))
    _, of_unit = np.unique(units, return_inverse=True)
    by_unit = np.round(np.bincount(of_unit.ravel(), more), 9)
    ahead = int((by_unit > 0).sum())
    behind = int((by_unit < 0).sum())
    return GainDifference(
        against=against,
        set=name,
        rows=len(units),
        difference=difference.value,
        low=difference.low,
        high=difference.high,
        lam=lam,
        ahead=ahead,
        behind=behind,
        p=sign_test(ahead, behind),
    )


def judge_gains(
    against: Mapping[str, GainDifference],
    test: Estimate | None,
    *,
    controls: Sequence[Collection[str]] = (),
    everywhere: GainDifference | None = None,
    test_is: str = "test accuracy",
    notes: Sequence[str] = (),
    rows_are: tuple[str, str] = ("held-out failures", "the confirm half"),
    losses: str = "",
) -> tuple[Helped, str]:
    """Return the verdict on mending: an outcome, and one or more sentences.

    against: control, in words → the difference of gains on held-out failures. controls: for each
    control with the same number of images as the variant, its names in `against`, one name per λ.
    All other names in `against` are heads that are retrained alone. The original model is wrong on
    all held-out failures, so a head can only gain there, and a larger change of the head gains
    more. A variant therefore "helps in part" only if it gains more than the retrained heads and
    more than one control at all of this control's λ. test: the change of the accuracy that
    `test_is` names. everywhere: the difference from the head retrained alone, on all rows.
    rows_are: the words for the failures and for all rows. losses: a sentence on classes that lose,
    or "".
    """
    failures, every = rows_are
    behind = []
    few = []
    many = []
    for name, difference in against.items():
        if difference.side < 0:
            behind.append(name)
        elif difference.side == 0 and difference.too_few:
            few.append(name)
        elif difference.side == 0:
            many.append(name)

    loses = everywhere is not None and everywhere.side < 0
    elsewhere = ""
    if loses:
        elsewhere = f" on {failures} and loses elsewhere"
    elif losses:
        elsewhere = f" on {failures} and loses in places"
    outcome, sentence = _compared_with_controls(against, controls, failures, elsewhere)
    sentences = [sentence]
    if everywhere is not None and loses:
        sentences.append(
            f"On all rows of {every} it is right less often than the head retrained alone:"
            f" {_difference(everywhere)}."
        )
    if losses:
        sentences.append(capitalised(losses))
    if behind:
        sentences.append(f"It gains less than {_named_differences(behind, against)}.")
    if many:
        sentences.append(f"No difference is shown from {_named_differences(many, against)}.")
    if few:
        sentences.append(
            f"Too few {failures} have different answers (fewer than {FEWEST_UNITS}) to compare it"
            f" with {_named_differences(few, against)}."
        )
    sentences += notes
    if test is not None:
        sentences.append(_test_sentence(test, test_is))
        loses = loses or (test.high is not None and test.high < 0)
    if loses and outcome in (HELPS, "helps in part"):
        outcome = "loses elsewhere"
    return outcome, " ".join(sentences)


def _compared_with_controls(
    against: Mapping[str, GainDifference],
    controls: Sequence[Collection[str]],
    failures: str,
    elsewhere: str,
) -> tuple[Helped, str]:
    """Return the outcome by controls alone, and its sentence. elsewhere: the words for a loss."""
    if not against:
        return (
            "not known",
            "It is not known whether this helped: there is no control to compare with.",
        )
    beaten = [name for name, difference in against.items() if difference.side > 0]
    if not beaten:
        return (
            "not shown to help",
            f"It is not shown to help: on {failures} it gains more than no control.",
        )
    equal = set().union(*controls)
    beats_retrained = (against.keys() - equal).issubset(beaten)
    gains = f"on {failures} it gains more than {_named_differences(beaten, against)}"
    if len(beaten) == len(against) and equal:
        return HELPS, f"It helps{elsewhere}: {gains}."
    if beats_retrained and any(set(names).issubset(beaten) for names in controls):
        return "helps in part", f"It helps in part{elsewhere}: {gains}."
    but = "not more than the head retrained alone"
    if beats_retrained and equal:
        but = "not more than as many other images at the same λ"
    elif beats_retrained:
        but = "so does any head that changes more"
    return "not shown to help", f"It is not shown to help: {gains}, but {but}."


def _named_differences(names: Sequence[str], against: Mapping[str, GainDifference]) -> str:
    texts = [f"{name} ({_difference(against[name])})" for name in names]
    return format_list(texts, len(texts))


def _difference(gain: GainDifference) -> str:
    """Return the difference and its interval; add the sign test if it contradicts an interval that
    excludes 0."""
    words = f"{format_points(gain.difference, signed=True)}{_interval(gain.low, gain.high)}"
    if gain.side or gain.low is None or gain.high is None or gain.low <= 0 <= gain.high:
        return words
    return (
        f"{words}; sign test of {format_count(gain.ahead + gain.behind, 'unit')}: p = {gain.p:.2g}"
    )


def _test_sentence(test: Estimate, test_is: str) -> str:
    change = f"{format_points(test.value, signed=True)} points{_interval(test.low, test.high)}"
    if test.high is not None and test.high < 0:
        return f"It loses elsewhere: {test_is} changes by {change}."
    subject = capitalised(test_is)
    if test.value < -MOST_LOSS:
        return f"{subject} falls by more than {format_points(MOST_LOSS)} points: {change}."
    if test.low is not None and test.low > 0:
        return f"{subject} rises: {change}."
    if test.low is not None and test.low > -MOST_LOSS:
        return f"{subject} does not fall by more than {format_points(MOST_LOSS)} points: {change}."
    return f"No change of {test_is} is shown: {change}."


def _interval(low: float | None, high: float | None) -> str:
    text = format_interval(Estimate(0.0, low, high))
    return f", {text}" if text else ""


@dataclass(frozen=True)
class EvaluationRows:
    """n rows to evaluate heads on. features: (n, d) float32. labels, units: (n,)."""

    features: Floats32
    labels: Ints
    units: Ints


@dataclass(frozen=True)
class HeadEvaluation:
    """The rows on which the heads of one model are evaluated: n audited rows, then m test rows, if
    there is a test.

    Right answers are (n + m,) bool. Rows are indices into them.
    """

    audited: EvaluationRows
    discover: Ints
    confirm: Ints
    failed: Bools
    """(n,) bool, whether the model failed on each audited row."""
    untouched: Bools
    """(n,) bool, whether each audited row is of a base, or of photographs."""
    context: Ints
    """(n,) the context of each audited row, among the contexts of all variants; -1 for no
    context."""
    among: Callable[[Sequence[int]], Ints]
    """Assigns the audited rows to the given contexts only; it serves to choose the λ of a
    variant."""
    contexts: Sequence[Context]
    class_ids: Sequence[str]
    test: EvaluationRows | None
    allowed: Bools
    before: Bools
    """The right answers of the original model."""
    seed: int

    def answers(self, head: LinearHead | Network) -> Bools:
        return right_answers_of(head, self.audited, self.test, self.allowed)

    def sets(self, judged_by: str = CONFIRM) -> Iterator[tuple[str, Ints]]:
        """Yield (name, rows) of each set in table order; no confirm half if the test split
        judges."""
        confirm = self.confirm
        if self.test is None:
            yield TEST, confirm
        else:
            test = np.arange(len(self.audited.labels), len(self.before))
            yield TEST, test
            yield TEST_FAILED, test[~self.before[test]]
        yield SEED, self.discover[self.failed[self.discover]]
        if judged_by == TEST:
            return
        yield HELDOUT, confirm[self.failed[confirm]]
        yield CONFIRM, confirm
        yield IN_CONTEXTS, confirm[self.context[confirm] >= 0]
        contexts = self.context[confirm]
        for index, context in enumerate(self.contexts):
            yield f"{CONTEXT}{context.name}", confirm[contexts == index]
        labels = self.audited.labels[confirm]
        for label, class_id in enumerate(self.class_ids):
            yield f"{CLASS}{class_id}", confirm[labels == label]

    def measured(self, after: Bools, judged_by: str) -> tuple[SetMeasured, ...]:
        """Measure a head on each set."""
        units = self.units
        return tuple(
            measure_set(name, self.before[rows], after[rows], units[rows], seed=self.seed)
            for name, rows in self.sets(judged_by)
        )

    def accuracies(self, right: Bools, judged_by: str) -> dict[str, float | None]:
        shares: dict[str, float | None] = {}
        for name, rows in self.sets(judged_by):
            shares[name] = float(right[rows].mean()) if len(rows) else None
        return shares

    @property
    def units(self) -> Ints:
        if self.test is None:
            return self.audited.units
        return np.concatenate([self.audited.units, self.test.units])


def right_answers_of(
    head: LinearHead | Network, audited: EvaluationRows, test: EvaluationRows | None, allowed: Bools
) -> Bools:
    """Return which rows a head answers rightly, (n + m,). allowed: (classes, outputs) bool, right
    outputs by class."""
    parts = [audited] if test is None else [audited, test]
    right = []
    for rows in parts:
        answers = head.logits(rows.features).argmax(axis=1)
        right.append(allowed[rows.labels, answers])
    return np.concatenate(right)


def chosen_on_discover(
    grid: tuple[float, ...],
    answers: Sequence[Bools],
    evaluation: HeadEvaluation,
    context_indices: Sequence[int],
) -> ChosenLambda:
    """Choose the λ of a variant by the contexts `context_indices`. answers: one item for each λ.

    If no λ is within the bound, retraining itself loses too much. λ is then chosen by its loss
    against λ = 0 alone, and the result says that no λ is within the bound.
    """
    rows = evaluation.discover
    accuracy, overall, counts = accuracy_by_context(answers, evaluation, context_indices)
    before = float(evaluation.before[rows].mean())
    untouched = None
    base = rows[evaluation.untouched[rows]]
    if 0 < len(base) < len(rows):
        shares = np.asarray([right[base].mean() for right in answers])
        untouched = shares, float(evaluation.before[base].mean())
    choose = partial(choose_lambda, grid, accuracy, overall, context_rows=counts)
    chosen = choose(before=before, untouched=untouched)
    if chosen.allowed.any():
        return chosen
    none = grid.index(0.0)
    if untouched is not None:
        untouched = untouched[0], min(untouched[1], float(untouched[0][none]))
    against_none = choose(before=float(overall[none]), untouched=untouched)
    return replace(against_none, allowed=chosen.allowed)


def accuracy_by_context(
    answers: Sequence[Bools], evaluation: HeadEvaluation, context_indices: Sequence[int]
) -> tuple[Floats, Floats, Ints]:
    """Return, for g heads on the discover half, accuracy by context (g, c), overall (g,), and row
    counts (c,)."""
    rows = evaluation.discover
    context = evaluation.among(context_indices)[rows]
    counts = np.zeros(len(context_indices), dtype=np.int64)
    accuracy = np.ones((len(answers), len(counts)))
    for column, index in enumerate(context_indices):
        inside = rows[context == index]
        counts[column] = len(inside)
        if len(inside):
            accuracy[:, column] = [right[inside].mean() for right in answers]
    overall = np.asarray([right[rows].mean() for right in answers])
    return accuracy, overall, counts


def lambda_curve(
    grid: tuple[float, ...],
    answers: Sequence[Bools],
    chosen: ChosenLambda,
    evaluation: HeadEvaluation,
    judged_by: str,
) -> tuple[LambdaPoint, ...]:
    """Return each λ with its accuracies on the discover half and on the other sets. Only the former
    choose λ."""
    points = []
    for at, right in enumerate(answers):
        shares = evaluation.accuracies(right, judged_by)
        points.append(
            LambdaPoint(
                value=grid[at],
                worst_context=float(chosen.worst[at]),
                discover=float(right[evaluation.discover].mean()),
                heldout=shares.get(HELDOUT),
                in_contexts=shares.get(IN_CONTEXTS),
                confirm=shares.get(CONFIRM),
                test=shares.get(TEST),
                allowed=bool(chosen.allowed[at]),
            )
        )
    return tuple(points)


def compared_with(
    after: Bools,
    controls: Mapping[str, tuple[float | None, Bools]],
    evaluation: HeadEvaluation,
    judged_by: str = CONFIRM,
) -> tuple[GainDifference, ...]:
    """Return the gain of a head minus that of each control on the same rows, by control, then by
    set."""
    units = evaluation.units
    sets = [
        (name, rows) for name, rows in evaluation.sets(judged_by) if name in COMPARED and len(rows)
    ]
    return tuple(
        compare_heads(
            against, name, after[rows], right[rows], units[rows], seed=evaluation.seed, lam=lam
        )
        for against, (lam, right) in controls.items()
        for name, rows in sets
    )


def judge_variant(
    comparisons: Sequence[GainDifference],
    variant: VariantResult,
    *,
    has_test: bool,
    missing: str = "",
    classes: Mapping[str, str] | None = None,
) -> tuple[Helped, str]:
    """Return the verdict on a variant: from held-out failures, compared with controls, all confirm
    rows, and test.

    If the images of the variant were chosen with the confirm half, the verdict rests on the test
    split instead. A control with λ = 0 is the head retrained alone and counts once. missing: the
    result of `missing_controls`. classes: id → name.
    """
    by_test = variant.judged_by == TEST
    failures = HELDOUT
    every = CONFIRM
    rows_are = ("held-out failures", "the confirm half")
    no_failure = "The confirm half holds no failure"
    notes = []
    if by_test:
        failures = TEST_FAILED
        every = TEST
        rows_are = ("test failures", "the test split")
        no_failure = "The model fails on no test image"
        notes.append(BY_TEST)
    heldout = [comparison for comparison in comparisons if comparison.set == failures]
    if not heldout:
        return "not known", f"{no_failure}, so it is not known whether this helped."
    at_zero = [comparison.against for comparison in heldout if comparison.lam == 0]
    against = {}
    controls: dict[str, list[str]] = {}
    for gain in heldout:
        if gain.lam != 0:
            words = control_words(gain.against, gain.lam)
            against[words] = gain
            if gain.against != RETRAINED:
                kind = gain.against.removesuffix(SAME_LAMBDA)
                controls.setdefault(kind, []).append(words)
    of_every = [comparison for comparison in comparisons if comparison.set == every]
    everywhere = next((gain for gain in of_every if gain.against == RETRAINED), None)
    if at_zero:
        they = "their own λ these controls are"
        if len(at_zero) == 1:
            they = "its own λ this control is"
        notes.append(
            f"λ = 0 was chosen for {' and for '.join(map(control_words, at_zero))}. At {they} the"
            " head retrained alone, so there is no second comparison."
        )
    if missing:
        notes.append(missing)
    test = variant.of_set(TEST)
    on_test = None
    if test is not None and test.gain is not None:
        on_test = Estimate(test.gain, test.low, test.high)
    test_is = "test accuracy"
    if not has_test:
        test_is = "accuracy on the confirm half (there is no test split)"
    return judge_gains(
        against,
        on_test,
        controls=list(controls.values()),
        everywhere=everywhere,
        test_is=test_is,
        notes=notes,
        rows_are=rows_are,
        losses=variant.losses(classes or {}),
    )


def missing_controls(variant: Variant, kinds: Collection[str]) -> str:
    """Return a sentence about missing controls, or "". Such a control has the same number of images
    as the variant.

    kinds: the kinds of the controls that exist.
    """
    alone = "The only control is the head retrained alone. Whether"
    if variant.weights is not None:
        return f"{alone} weighing as many other training rows would do the same is not known."
    if variant.debug is None:
        return f"{alone} as many other rows or other groups would do the same is not known."
    if not kinds:
        return f"{alone} as many other images would do the same is not known."
    if ANY in kinds:
        return ""
    lacking = []
    if CLASS_NAME not in kinds and UNCHANGED not in kinds:
        lacking.append(CONTROL_WORDS[CLASS_NAME])
    if RANDOM not in kinds and variant.debug.group == CONTEXTS:
        lacking.append(CONTROL_WORDS[RANDOM])
    if not lacking:
        return ""
    return (
        f"Whether {' or '.join(lacking)} would do the same is not known: there is no such control."
    )
