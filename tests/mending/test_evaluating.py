"""Heads judged: gains beside references and truth, the chosen λ and variant, and the words about
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import UserError
from counterfoil.mending.document import (
    CONFIRM,
    FEWEST_LISTED,
    HEADLINES,
    HELDOUT,
    HELPS,
    IN_CONTEXTS,
    SAME_LAMBDA,
    TEST,
    TEST_FAILED,
    GainDifference,
    ModelMended,
    SetMeasured,
    VariantResult,
)
from counterfoil.mending.evaluating import (
    BY_TEST,
    FEWEST_ROWS,
    GRID,
    MOST_LOSS,
    EvaluationRows,
    HeadEvaluation,
    choose_lambda,
    chosen_on_discover,
    compare_heads,
    difference_of_gains,
    judge_gains,
    judge_variant,
    lambda_grid,
    measure_set,
    missing_controls,
    right_answers_of,
)
from counterfoil.mending.fitting import KeptHeads, Lesson
from counterfoil.mending.one_model import ContextRows, FittedVariant, HeadFitting, best_variant
from counterfoil.mending.variants import (
    CLASS_NAME,
    RANDOM,
    RETRAINED,
    UNCHANGED,
    Context,
    DebugImages,
    Variant,
)
from counterfoil.models.classifiers.head import LinearHead
from counterfoil.stats import Estimate, sign_test
from support.estimates import interval_of

VALUES = (0.0, 0.5, 1.0, 2.0)
LAMBDAS = (0.0, 0.25, 1.0, 4.0)
CONTEXTS = tuple(
    Context(name, label, name, name) for name, label in (("a", 0), ("b", 0), ("c", 1), ("d", 0))
)
CLASSES = 3
WIDTH = 6
ROWS = 300
ARMS = {"first": (0, 1), "second": (2, 3)}
NONE = np.zeros(0, dtype=np.int64)
NO_IMAGE = LabelledImages("made", "0" * 64, (), NONE, NONE, ("made",), lambda wanted: iter(()))
NOT_KNOWN = (
    "The only control is the head retrained alone. Whether as many other images would do"
    " the same is not known."
)
NO_CHANGE = SetMeasured(TEST, 100, 100, 0.8, 0.8, 0.0, -0.02, 0.02, 1, 1, 1.0)
ARM = VariantResult("a", "mended", None, None, 9, 9, 0.5, True, True, (NO_CHANGE,))


ALIKE = [0.8] * 4
RISING = [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]]
NO_HELP = [[0.0, 0.2], [0.0, 0.5], [0.0, 0.7], [0.0, 0.7]]
# Accuracy in each context and overall by λ, accuracy before, rows of the contexts, the chosen λ.
CHOICES: dict[str, tuple[list[list[float]], list[float], float, list[int], int]] = {
    "the worst": ([[0.2, 0.3], [0.1, 0.99], [0.4, 0.35], [0.3, 0.3]], ALIKE, 0.8, [10, 10], 2),
    "half a point lost": (RISING, [0.8, 0.8, 0.795, 0.794], 0.8, [10, 10], 2),
    "more lost": (RISING, [0.8, 0.7949, 0.7949, 0.7949], 0.8, [10, 10], 0),
    "against λ = 0": (RISING, [0.9, 0.89, 0.894, 0.8951], 0.8, [10, 10], 3),
    "against the model": (RISING, [0.7, 0.78, 0.796, 0.7], 0.8, [10, 10], 2),
    "the others where the worst gains nothing": (NO_HELP, ALIKE, 0.8, [10, 10], 2),
    "the others within the bound": (NO_HELP, [0.8, 0.8, 0.7, 0.7], 0.8, [10, 10], 1),
    "no small context among the others": (
        [[0.0, 0.2], [0.0, 0.1], [0.0, 0.9], [0.0, 0.9]], ALIKE, 0.8, [10, 2], 0,
    ),
    "the smallest of equals": ([[0.1], [0.4], [0.4], [0.4]], ALIKE, 0.8, [10], 1),
    "none of equals": ([[0.4]] * 4, ALIKE, 0.8, [10], 0),
    "no context of a row": ([[0.3, 0.0], [0.5, 0.0], [0.4, 1.0], [0.4, 1.0]], ALIKE, 0.8, [20, 1], 1),
    # Where all are so small, their rows count together: (3·.4 + 4·1) / 7 is the most.
    "small ones together": ([[0.3, 0.0], [0.5, 0.0], [0.4, 1.0], [0.4, 1.0]], ALIKE, 0.8, [3, 4], 2),
    "overall without contexts": ([[]] * 4, [0.8, 0.82, 0.81, 0.8], 0.8, [], 1),
    "overall without rows": ([[np.nan]] * 4, [0.8, 0.82, 0.81, 0.8], 0.8, [0], 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_the_best_worst_context_within_the_bound_is_chosen(case: str) -> None:
    contexts, overall, before, rows, index = CHOICES[case]
    choice = choose_lambda(
        VALUES,
        np.array(contexts, float),
        np.array(overall),
        context_rows=np.array(rows, int),
        before=before,
    )
    assert choice.index == index


@pytest.mark.parametrize(
    ("untouched", "before", "index"),
    [
        ([0.9, 0.9, 0.8, 0.7], 0.9, 1),  # what is gained elsewhere does not hide it
        ([0.92, 0.9, 0.896, 0.894], 0.9, 2),  # against the model as it was, not against λ = 0
    ],
)
def test_what_the_base_loses_is_bounded_by_itself(
    untouched: list[float], before: float, index: int
) -> None:
    choice = choose_lambda(
        VALUES,
        np.empty((4, 0)),
        np.array([0.5, 0.6, 0.7, 0.8]),
        context_rows=np.empty(0, int),
        before=0.5,
        untouched=(np.array(untouched), before),
    )
    assert choice.index == index


def test_where_all_lose_the_least_loss_is_chosen_and_said() -> None:
    choice = choose_lambda(
        VALUES,
        np.array([[0.1], [0.2], [0.3], [0.4]]),
        np.array([0.7, 0.72, 0.71, 0.6]),
        context_rows=np.array([10]),
        before=0.8,
    )
    assert choice.index == 1 and not choice.allowed.any()


def test_a_grid_is_sorted_and_holds_the_control() -> None:
    assert lambda_grid([2, 0.5, 0.5]) == (0.0, 0.5, 2.0)
    assert lambda_grid(GRID) == GRID
    assert str(lambda_grid([-0.0])) == "(0.0,)"


@pytest.mark.parametrize("values", [[], [-1.0, 0.5], [float("nan")], [float("inf")], [1e30]])
def test_a_grid_of_something_else_is_refused(values: list[float]) -> None:
    with pytest.raises(UserError, match="expected numbers from 0"):
        lambda_grid(values)


def rows(n: int, seed: int, per_unit: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return before, after and units of n rows; rows of one unit answer alike."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(n // per_unit), per_unit)
    before, after = (rng.random(n // per_unit)[units] < share for share in (0.4, 0.6))
    return before, after, units


def width(estimate: Estimate | SetMeasured) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


def test_a_gain_is_the_difference_of_the_two_accuracies() -> None:
    before, after, units = rows(200, 1)
    result = measure_set("test", before, after, units, seed=0)
    assert (result.rows, result.units) == (200, 200)
    assert result.gain is not None and result.before is not None and result.after is not None
    assert (
        result.gain
        == pytest.approx(result.after - result.before)
        == pytest.approx(after.mean() - before.mean())
    )
    assert (result.gained - result.lost) / 200 == pytest.approx(result.gain)


def test_p_is_mcnemars() -> None:
    before, after, units = rows(150, 2)
    table = [[int((before & after).sum()), int((before & ~after).sum())],
             [int((~before & after).sum()), int((~before & ~after).sum())]]  # fmt: skip
    measured = measure_set("p", before, after, units, seed=0)
    reference: Any = mcnemar(table, exact=True)
    assert measured.p == pytest.approx(reference.pvalue)
    assert measure_set("p", before, before, units, seed=0).p == 1


def test_the_interval_is_scipys_bootstrap_of_units() -> None:
    before, after, units = rows(240, 3)
    measured = measure_set("interval", before, after, units, seed=0)
    assert measured.low is not None
    assert measured.high is not None
    difference = after.astype(float) - before
    reference = stats.bootstrap(
        (difference,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert measured.low == pytest.approx(reference.low, abs=0.02)
    assert measured.high == pytest.approx(reference.high, abs=0.02)


def test_units_of_unlike_sizes_are_drawn_as_often() -> None:
    rng = np.random.default_rng(7)
    units = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    after = rng.random(len(units)) < 0.6
    before = rng.random(len(units)) < 0.4
    measured = measure_set("sizes", before, after, units, seed=0)
    sums = np.bincount(units, after.astype(float) - before)
    sizes = np.bincount(units)
    drawn = rng.integers(0, 60, (4000, 60))
    low, high = np.quantile(sums[drawn].sum(1) / sizes[drawn].sum(1), [0.025, 0.975])
    assert (measured.low, measured.high) == (
        pytest.approx(low, abs=0.02),
        pytest.approx(high, abs=0.02),
    )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        before, after, units = rows(300, seed, per_unit=3)
        estimate = difference_of_gains(after, before, units, seed=seed, salt="coverage")
        low, _, high = interval_of(estimate)
        covered += low <= 0.2 <= high
    assert 0.90 <= covered / 200 <= 0.99


@pytest.mark.parametrize(("share", "value"), [(1.0, 1.0), (0.0, 0.0)])
def test_where_all_rows_agree_the_interval_is_that_of_a_share_of_units(
    share: float, value: float
) -> None:
    wrong = np.zeros(40, dtype=bool)
    units = np.repeat(np.arange(20), 2)
    measured = measure_set("all", wrong, np.full(40, share, dtype=bool), units, seed=0)
    assert measured.low is not None and measured.high is not None
    assert measured.gain == value and measured.low <= value <= measured.high
    assert 0.1 < measured.high - measured.low < 0.4  # 20 units: 0.16 on one side
    fewer = measure_set("all", wrong[:8], np.full(8, share, dtype=bool), units[:8], seed=0)
    assert width(fewer) > width(measured)


def test_of_one_unit_that_changed_in_part_there_is_no_interval() -> None:
    estimate = difference_of_gains(
        np.array([True, False]), np.zeros(2, bool), np.zeros(2, np.int64), seed=0, salt=""
    )
    assert estimate == Estimate(0.5)


def test_the_same_rows_and_seed_draw_the_same_and_no_row_has_no_gain() -> None:
    before, after, units = rows(90, 4)
    first, again, other = (measure_set("x", before, after, units, seed=seed) for seed in (1, 1, 2))
    assert first == again and first.low != other.low
    none = measure_set("", before[:0], after[:0], units[:0], seed=0)
    assert none.rows == 0 and none.gain is None and none.p is None


def test_a_difference_of_gains_is_that_of_the_two_gains() -> None:
    before, a, units = rows(100, 5)
    _, b, _ = rows(100, 6)
    gains = [measure_set("s", before, after, units, seed=0).gain for after in (a, b)]
    assert gains[0] is not None and gains[1] is not None
    difference = difference_of_gains(a, b, units, seed=0, salt="s")
    assert difference.value == pytest.approx(gains[0] - gains[1])
    opposite = difference_of_gains(b, a, units, seed=0, salt="s")
    assert opposite.value == pytest.approx(-difference.value)


def compared(
    value: float, low: float | None, high: float | None, ahead: int, behind: int
) -> GainDifference:
    return GainDifference(
        "",
        "",
        100,
        value,
        low,
        high,
        None,
        ahead,
        behind,
        sign_test(ahead, behind),
    )


BETTER = compared(0.1, 0.05, 0.15, 10, 0)
SAME = compared(0.01, -0.04, 0.06, 6, 5)
WORSE = compared(-0.1, -0.15, -0.05, 0, 10)


@pytest.mark.parametrize(
    ("against", "says", "says_not"),
    [
        ({"λ = 0": BETTER, "class names": BETTER}, "It helps: ", "No difference"),
        (
            {"λ = 0": BETTER, "class names": BETTER, "others": SAME},
            "It helps in part: ",
            "less than",
        ),
        ({"λ = 0": BETTER, "class names": SAME}, "It is not shown to help: ", "It helps"),
        (
            {"λ = 0": BETTER},
            "not shown to help: on held-out failures it gains more than λ = 0",
            "It helps",
        ),
        (
            {"λ = 0": SAME, "class names": BETTER},
            "but not more than the head retrained alone",
            "It helps",
        ),
        (
            {"λ = 0": SAME, "class names": WORSE},
            "It gains less than class names (−10.0, −15.0 to −5.0)",
            "It helps",
        ),
        ({"λ = 0": compared(0.5, None, None, 1, 0)}, "not shown to help", "It helps:"),
        (
            {"λ = 0": compared(0.1, 0.01, 0.2, 7, 2)},
            "from λ = 0 (+10.0, 1.0 to 20.0; sign test of 9",
            "It h",
        ),
        ({}, "no control", "It helps"),
    ],
)
def test_a_verdict_claims_no_more_than_the_intervals(
    against: dict[str, GainDifference], says: str, says_not: str
) -> None:
    _, words = judge_gains(against, None, controls=[[name] for name in against if name != "λ = 0"])
    assert says in words and says_not not in words
    assert all(name in words for name in against)


@pytest.mark.parametrize("units", [1, 5])
def test_a_few_units_of_one_mind_are_too_few(units: int) -> None:
    """Each unit's three rows all become right: the bootstrap and Wilson's bound are above 0, a sign
    test is not."""
    three = np.repeat(np.arange(units), 3)
    gain = compare_heads("", "", np.ones(3 * units, bool), np.zeros(3 * units, bool), three, seed=0)
    assert gain.low is not None and gain.low > 0
    assert (gain.ahead, gain.behind, gain.side) == (units, 0, 0) and gain.p == pytest.approx(
        2 / 2**units
    )
    _, words = judge_gains({"λ = 0": gain}, None)
    assert (
        words.startswith("It is not shown to help")
        and "Too few held-out failures have different answers" in words
    )
    # Four of a hundred become right and none wrong, though few draws hold none of the four.
    four = compare_heads("", "", np.arange(100) < 4, np.zeros(100, bool), np.arange(100), seed=0)
    assert four.low is not None and four.low > 0 and four.p == pytest.approx(0.125)
    assert "It is not shown to help" in judge_gains({"λ = 0": four}, None)[1]
    six = compare_heads("", "", np.ones(6, bool), np.zeros(6, bool), np.arange(6), seed=0)
    assert six.side == 1 and judge_gains({"names": six}, None, controls=[["names"]])[0] == HELPS


@pytest.mark.parametrize("units", [3, 20])
def test_heads_that_are_alike_are_seldom_told_apart(units: int) -> None:
    """Two heads that are right as often, unit by unit, seem to differ in at most 5 %, to help in at
    most 2.5 %."""
    runs = 400
    rng = np.random.default_rng(units)
    sides = np.empty(runs)
    for run in range(runs):
        a, b = rng.random((2, units)) < 0.5
        of_row = np.repeat(np.arange(units), rng.integers(1, 4, units))
        sides[run] = compare_heads("null", "", a[of_row], b[of_row], of_row, seed=run).side
    assert (sides != 0).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert (sides > 0).mean() <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / runs)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (Estimate(-0.02, -0.03, -0.01), "It loses elsewhere"),
        (Estimate(-0.02, -0.05, 0.01), "falls by more than 0.5 points: −2.0 points"),
        (
            Estimate(-0.002, -0.01, 0.006),
            "No change of test accuracy is shown: −0.2 points, −1.0 to 0.6.",
        ),
        (
            Estimate(0.0, -0.2, 0.2),
            "No change of test accuracy is shown: 0.0 points, −20.0 to 20.0.",
        ),
        (Estimate(0.0), "No change of test accuracy is shown: 0.0 points."),
        (
            Estimate(-0.001, -0.004, 0.002),
            "Test accuracy does not fall by more than 0.5 points: −0.1 points",
        ),
        (Estimate(0.02, 0.01, 0.03), "Test accuracy rises"),
    ],
)
def test_a_verdict_says_what_becomes_of_test(test: Estimate, says: str) -> None:
    outcome, words = judge_gains({"names": BETTER}, test, controls=[["names"]])
    assert says in words and (outcome == HELPS) == ("It loses elsewhere" not in says)


@pytest.mark.parametrize("value", [-0.1, 0.0, 0.1])
def test_where_there_is_no_test_the_words_say_none(value: float) -> None:
    half_width = 0.05
    change = Estimate(value, value - half_width, value + half_width)
    _, words = judge_gains({"λ = 0": BETTER}, change, test_is="accuracy on the confirm half")
    assert "Test " not in words and "test accuracy" not in words and "confirm half" in words


def rows_of(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and the true context of each row, or -1; a context moves it towards
    another class."""
    labels = rng.integers(0, CLASSES, n)
    shown = np.asarray(
        [
            rng.choice([-1, *(p for p, context in enumerate(CONTEXTS) if context.label == y)])
            for y in labels
        ]
    )
    features = rng.normal(0, 0.7, (n, WIDTH))
    features[np.arange(n), labels] += 1.5
    features[shown >= 0, (labels[shown >= 0] + 1) % CLASSES] += 1.6
    features[shown >= 0, 3 + shown[shown >= 0] % 3] += 1.5
    return features.astype(np.float32), labels.astype(np.int64), shown


class World:
    """Audited rows in two halves, a test, a head, and variants with drawn images of their
    contexts."""

    def __init__(self, folder: Path, seed: int) -> None:
        rng = np.random.default_rng(seed)
        features, labels, shown = rows_of(rng, ROWS)
        # What CLIP sees of a row: its context, a little of others, or the class alone.
        clip = rng.random((ROWS, len(CONTEXTS) + CLASSES)) * 0.5
        clip[np.arange(ROWS), np.where(shown >= 0, shown, len(CONTEXTS) + labels)] += 1
        vectors = np.eye(len(CONTEXTS) + CLASSES, dtype=np.float32)
        alone = {label: len(CONTEXTS) + label for label in range(CLASSES)}
        self.dealt = ContextRows(CONTEXTS, clip, labels, vectors, alone)
        train, train_labels, _ = rows_of(rng, 60)
        self.train = Lesson(train, train_labels)
        self.head = LinearHead(
            np.eye(CLASSES, WIDTH, dtype=np.float32), np.zeros(CLASSES, dtype=np.float32)
        )
        drawn = rows_of(rng, 400)
        self.lessons = {
            name: Lesson(
                drawn[0][np.isin(drawn[2], contexts)], drawn[1][np.isin(drawn[2], contexts)]
            )
            for name, contexts in ARMS.items()
        }
        test, test_labels, _ = rows_of(rng, 80)
        halves = rng.permutation(ROWS)
        self.kept = KeptHeads(folder, self.head, "lbfgs")
        audited = EvaluationRows(features, labels, np.arange(ROWS))
        tested = EvaluationRows(test, test_labels, np.arange(80))
        allowed = np.eye(CLASSES, dtype=bool)
        before = right_answers_of(self.head, audited, tested, allowed)
        self.evaluation = HeadEvaluation(
            audited, np.sort(halves[::2]), np.sort(halves[1::2]), ~before[:ROWS], np.ones(ROWS, dtype=bool),
            self.dealt.among(range(len(CONTEXTS))), self.dealt.among, CONTEXTS, list("xyz"), tested, allowed, before, 0,
        )  # fmt: skip

    def fitted(
        self, evaluation: HeadEvaluation, names: Sequence[str] = tuple(ARMS)
    ) -> list[FittedVariant]:
        nothing = np.zeros(60, dtype=np.int64)
        fitting = HeadFitting(self.train, nothing, self.kept, LAMBDAS, evaluation)
        return [
            fitting.fit(Variant(name, "mended"), self.lessons[name], ARMS[name]) for name in names
        ]


@pytest.fixture(params=range(3))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


def accuracy(world: World, fit: FittedVariant, index: int, rows: Sequence[int]) -> float:
    """Return the accuracy by plain loops over rows."""
    head = fit.heads[index].head
    audited = world.evaluation.audited
    answers = [int(np.argmax(head.weight @ audited.features[row] + head.bias)) for row in rows]
    return float(
        np.mean([answer == audited.labels[row] for answer, row in zip(answers, rows, strict=True)])
    )


def context_of(world: World, row: int, contexts: Sequence[int]) -> int:
    """Return the context of its class whose vector a row is nearest to; -1 for the class alone."""
    label = int(world.dealt.labels[row])
    of_class = [index for index in contexts if CONTEXTS[index].label == label]
    scores = {-1: world.dealt.features[row, len(CONTEXTS) + label]} | {
        index: world.dealt.features[row, index] for index in of_class
    }
    return max(scores, key=lambda index: scores[index])


def by_context(
    world: World, fit: FittedVariant, index: int, contexts: Sequence[int]
) -> list[float]:
    discover = world.evaluation.discover.tolist()
    rows = {c: [row for row in discover if context_of(world, row, contexts) == c] for c in contexts}
    return [
        accuracy(world, fit, index, of_context)
        for of_context in rows.values()
        if len(of_context) >= FEWEST_ROWS
    ]


def worst(world: World, fit: FittedVariant, index: int, contexts: Sequence[int]) -> float:
    return min(by_context(world, fit, index, contexts))


def test_lambda_and_the_arm_that_is_left_are_the_best_of_the_discover_rows(world: World) -> None:
    evaluation = world.evaluation
    discover = world.evaluation.discover.tolist()
    fitted = world.fitted(evaluation)
    for fit in fitted:
        overall = [accuracy(world, fit, index, discover) for index in range(len(LAMBDAS))]
        before = float(np.mean(evaluation.before[evaluation.discover]))
        floor = max(before, overall[0]) - MOST_LOSS - 1e-9
        if not any(value >= floor for value in overall):
            floor = overall[0] - MOST_LOSS - 1e-9  # then against λ = 0 alone
        scores = {
            index: worst(world, fit, index, ARMS[fit.variant.name])
            for index, value in enumerate(overall)
            if value >= floor
        }
        means = {
            score: float(np.mean(by_context(world, fit, score, ARMS[fit.variant.name])))
            for score in scores
        }
        best = min(
            scores, key=lambda index: (-round(scores[index], 9), -round(means[index], 9), index)
        )
        assert fit.index == best
    every = sorted(context for contexts in ARMS.values() for context in contexts)
    shares = {
        fit.variant.name: (fit.result.within_bound, worst(world, fit, fit.index, every))
        for fit in fitted
    }
    best = max(shares.values())
    assert shares[best_variant(fitted, evaluation) or ""] == pytest.approx(best)


def test_what_is_judged_chooses_nothing(world: World) -> None:
    """Change the labels of all confirm rows and of test, so that every answer there is another."""
    evaluation = world.evaluation
    assert evaluation.test is not None
    labels = evaluation.audited.labels.copy()
    test_labels = (evaluation.test.labels + 1) % CLASSES
    labels[evaluation.confirm] = (labels[evaluation.confirm] + 1) % CLASSES
    audited = replace(evaluation.audited, labels=labels)
    test = replace(evaluation.test, labels=test_labels)
    before = right_answers_of(world.head, audited, test, evaluation.allowed)
    flipped = replace(evaluation, audited=audited, test=test, before=before, failed=~before[:ROWS])
    fits = world.fitted(evaluation)
    flipped_fits = world.fitted(flipped)
    assert [fit.result.measured for fit in fits] != [fit.result.measured for fit in flipped_fits]
    assert [fit.result.lam for fit in fits] == [fit.result.lam for fit in flipped_fits]
    assert [point.worst_context for fit in fits for point in fit.result.curve] == [
        point.worst_context for fit in flipped_fits for point in fit.result.curve
    ]
    assert best_variant(fits, evaluation) == best_variant(flipped_fits, flipped)


def test_an_arms_lambda_does_not_depend_on_what_else_is_mended_with(world: World) -> None:
    """Contexts of another variant take rows from the tables of this one's, and none from its
    choice."""
    alone = replace(
        world.evaluation, context=world.dealt.among(ARMS["first"]), contexts=CONTEXTS[:2]
    )
    together = world.evaluation
    assert ((alone.context >= 0) & (together.context >= 2)).any()
    (by_itself,), (beside, _) = world.fitted(alone, ["first"]), world.fitted(together)
    curves = [
        [(point.worst_context, point.allowed) for point in fit.result.curve]
        for fit in (by_itself, beside)
    ]
    assert curves[0] == curves[1] and by_itself.result.lam == beside.result.lam


def test_arms_are_compared_in_each_others_contexts(world: World) -> None:
    """One serves its own easy context perfectly and the other's not at all; the other serves both
    by half."""
    context = world.evaluation.among([0, 2])
    half = np.arange(ROWS) % 2 == 0
    easy = context != 2
    hard = (context == -1) | half
    (fit,) = world.fitted(world.evaluation, ["first"])

    def answering(
        name: str, right: np.ndarray, contexts: Sequence[int], within_bound: bool = True
    ) -> FittedVariant:
        result = replace(fit.result, within_bound=within_bound)
        variant = Variant(name, "mended")
        return replace(
            fit, variant=variant, answers=(right,), index=0, contexts=contexts, result=result
        )

    candidates = [answering("easy", easy, [0]), answering("hard", hard, [2])]
    assert best_variant(candidates, world.evaluation) == "hard"
    # Beside itself alone they would get 1 and about a half.
    for candidate, score in zip(candidates, (1.0, 0.5), strict=True):
        choice = chosen_on_discover((0.0,), candidate.answers, world.evaluation, candidate.contexts)
        assert choice.worst[0] == pytest.approx(score, abs=0.2)
    outside = [candidates[0], answering("hard", hard, [2], within_bound=False)]
    assert (
        best_variant(outside, world.evaluation) == "easy"
        and best_variant([], world.evaluation) is None
    )


def images_of(group: str) -> Variant:
    debug = DebugImages("a", "a", group, NO_IMAGE, (), NONE, frozenset(), (), "0", "a", 0)
    return Variant("a", "mended", debug=debug)


def difference(
    against: str, side: int, on: str = HELDOUT, lam: float | None = None
) -> GainDifference:
    """Return a difference of twelve units that all go one way, or half each way."""
    ahead, behind = {1: (12, 0), 0: (6, 6), -1: (0, 12)}[side]
    value = 0.1 * side
    p = 2 / 2**12 if side else 1.0
    return GainDifference(
        against,
        on,
        100,
        value,
        value - 0.05,
        value + 0.05,
        lam,
        ahead,
        behind,
        p,
    )


@pytest.mark.parametrize(
    ("variant", "kinds", "says"),
    [
        (images_of("contexts"), [], NOT_KNOWN),
        (images_of("hard"), [], NOT_KNOWN),
        (images_of("contexts"), [CLASS_NAME, RANDOM], ""),
        (images_of("hard"), [CLASS_NAME], ""),
        (images_of("all shifts"), [UNCHANGED], ""),
        (
            images_of("contexts"),
            [RANDOM],
            "Whether as many images of class names would do the same is not known",
        ),
        (
            images_of("contexts"),
            [CLASS_NAME],
            "Whether as many images of random contexts would do the same is not known",
        ),
        (
            Variant("w", "upweighted", weights=np.ones(3)),
            [],
            "Whether weighing as many other training rows would do the same",
        ),
        (
            Variant("dfr:clip", "rival", groups=NONE),
            [],
            "The only control is the head retrained alone",
        ),
    ],
)
def test_the_control_that_is_missing_is_named(
    variant: Variant, kinds: list[str], says: str
) -> None:
    sentence = missing_controls(variant, kinds)
    assert sentence.startswith(says) or says in sentence
    assert bool(sentence) == bool(says)


def test_without_equal_numbers_nothing_is_shown_to_help() -> None:
    """On failures any head that is moved further gains, whatever moved it."""
    gain = difference(RETRAINED, 1)
    words = judge_variant([gain], ARM, has_test=False, missing=NOT_KNOWN)[1]
    begins = "It is not shown to help: on held-out failures it gains more than the head retrained"
    assert words.startswith(begins) and NOT_KNOWN in words and "confirm half" in words
    unchanged = [gain, difference(UNCHANGED, 1, lam=0.5)]
    words = judge_variant(unchanged, ARM, has_test=True)[1]
    assert "as many unchanged photographs at λ = 0.5" in words


def test_a_control_whose_lambda_is_0_is_no_second_comparison() -> None:
    differences = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.0)]
    same = f"{CLASS_NAME}{SAME_LAMBDA}"
    words = judge_variant([*differences, difference(same, 1, lam=0.5)], ARM, has_test=True)[1]
    assert words.startswith("It helps: ") and "class names at λ = 0" not in words
    assert "λ = 0 was chosen for as many images of class names" in words
    # At the variant's own λ that control gains as much: then it is not shown to help at all.
    words = judge_variant([*differences, difference(same, 0, lam=0.5)], ARM, has_test=True)[1]
    assert words.startswith("It is not shown to help: ")
    assert "No difference is shown from as many images of class names at the same λ" in words
    at_other_lambda = [difference(CLASS_NAME, 1, lam=2.0), difference(same, 1, lam=0.5)]
    other = judge_variant([difference(RETRAINED, 1), *at_other_lambda], ARM, has_test=True)[1]
    assert "as many images of class names at λ = 2 (" in other and "λ = 0 was chosen" not in other


@pytest.mark.parametrize(
    ("own_lambda", "same", "other", "retrained", "begins"),
    [
        (1, 1, 1, 1, "It helps: "),
        (1, 1, 0, 1, "It helps in part: "),
        (1, 0, 0, 1, "It is not shown to help: on held-out failures it gains more than the head"),
        (0, 1, 0, 1, "It is not shown to help: "),
        (1, 1, 1, 0, "It is not shown to help: on held-out failures it gains more than as many"),
        (0, 0, 0, 1, "It is not shown to help: "),
        (
            0,
            0,
            0,
            0,
            "It is not shown to help: on held-out failures it gains more than no control.",
        ),
    ],
)
def test_in_part_asks_for_a_control_at_its_own_lambda_and_at_the_same(
    own_lambda: int, same: int, other: int, retrained: int, begins: str
) -> None:
    differences = [
        difference(RETRAINED, retrained),
        difference(CLASS_NAME, own_lambda, lam=0.1),
        difference(f"{CLASS_NAME}{SAME_LAMBDA}", same, lam=0.5),
        difference(RANDOM, other, lam=0.5),  # the λ that was chosen for it is the variant's
    ]
    outcome, words = judge_variant(differences, ARM, has_test=True)
    assert words.startswith(begins) and begins.lower().startswith(
        f"it {outcome}".replace("it not", "it is not")
    )
    shown = bool(retrained) and begins.startswith("It is not")
    assert ("but not more than as many other images at the same λ" in words) == shown


def test_what_the_confirm_half_chose_is_judged_by_the_test() -> None:
    differences = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.5)]
    variant = replace(ARM, judged_by=TEST)
    on_test = [replace(gain, set=TEST_FAILED) for gain in differences]
    words = judge_variant(on_test, variant, has_test=True)[1]
    assert (
        words.startswith("It helps: on test failures it gains more than")
        and "held-out" not in words
    )
    assert BY_TEST in words and BY_TEST not in judge_variant(differences, ARM, has_test=True)[1]
    assert judge_variant(differences, variant, has_test=True)[1].startswith(
        "The model fails on no test image"
    )
    loses = difference(RETRAINED, -1, on=TEST)
    words = judge_variant([*on_test, loses], variant, has_test=True)[1]
    assert (
        "It helps on test failures and loses elsewhere" in words
        and "On all rows of the test split it" in words
    )


@pytest.mark.parametrize(("side", "loses"), [(1, False), (0, False), (-1, True)])
@pytest.mark.parametrize("helps", [1, 0])
def test_what_loses_on_all_confirm_rows_is_not_simply_said_to_help(
    side: int, loses: bool, helps: int
) -> None:
    differences = [
        difference(RETRAINED, helps),
        difference(CLASS_NAME, helps, lam=0.5),
        difference(RETRAINED, side, on=CONFIRM),
    ]
    outcome, words = judge_variant(differences, ARM, has_test=True)
    assert words.startswith("It helps") == bool(helps) and (outcome == HELPS) == (
        bool(helps) and not loses
    )
    assert ("keep your model" in HEADLINES[outcome]) == (outcome != HELPS)
    if helps:
        assert words.startswith("It helps on held-out failures and loses elsewhere: ") == loses
    assert ("it is right less often than the head retrained alone" in words) == loses


def lead(
    difference: float, low: float, high: float, rows: int = 100, ahead: int = 20, p: float = 0.5
) -> Any:
    return GainDifference("class_name", HELDOUT, rows, difference, low, high, 0.5, ahead, 3, p)


@pytest.mark.parametrize(
    ("against", "says"),
    [
        (
            lead(0.2, 0.1, 0.3, p=0.001),
            "gains +20.0 points (+10.0 to +30.0) more than as many images of class names",
        ),
        # An interval narrows with the square root of the number of images: from 8 points to 4 takes
        # four times as many.
        (
            lead(0.04, -0.04, 0.12),
            "About 400 such failures would decide it: audit more photographs.",
        ),
        (
            lead(-0.01, -0.08, 0.06),
            "More photographs to judge would not change that: give it others to learn from.",
        ),
    ],
)
def test_the_headline_names_what_decides_and_what_would_decide(against: Any, says: str) -> None:
    retrained = replace(against, against="lambda 0", difference=against.difference + 0.1)
    arm = replace(
        ARM,
        images=300,
        offered=2700,
        comparisons=(retrained, against),
        verdict="v",
        outcome="not shown to help",
    )
    model = ModelMended("m", "resnet", "", 3, 4, (arm,), None, None, None, None)
    assert model.headline({}).startswith(
        "This is not shown to help: keep your model. On 100 held-out failures it gains"
    )
    assert says in model.headline({}) and "it learned from 300 of 2,700 images" in model.headline(
        {}
    )


def class_loss(name: str, gain: float, low: float, high: float, rows: int = 60) -> SetMeasured:
    return SetMeasured(f"class:{name}", rows, rows, 0.6, 0.6 + gain, gain, low, high, 0, 0, 1.0)


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ((), ""),
        ((class_loss("3", -0.1, -0.2, 0.01),), ""),  # no loss is shown
        ((class_loss("3", -0.1, -0.2, -0.01, rows=FEWEST_LISTED - 1),), ""),  # no row of a table
        (
            (class_loss("3", -0.123, -0.187, -0.063), class_loss("5", 0.1, 0.05, 0.15)),
            "cat loses 12.3 points (6.3 to 18.7); the 95 % interval is for one alone of 2 classes.",
        ),
        (
            (
                class_loss("5", -0.05, -0.09, -0.01),
                class_loss("3", -0.123, -0.187, -0.063),
                replace(class_loss("", -0.04, -0.06, -0.01), set="context:in_fog"),
            ),
            "cat loses 12.3 points (6.3 to 18.7), the most of 3 that lose; the 95 % interval is for"
            " one alone of 2 classes and 1 context.",
        ),
        (
            (replace(class_loss("", -0.04, -0.06, -0.01), set="context:in_fog"),),
            "the context in fog loses 4.0 points (1.0 to 6.0).",
        ),
    ],
)
def test_a_class_that_is_shown_to_lose_is_named(
    measured: tuple[SetMeasured, ...], says: str
) -> None:
    """State each loss whose interval excludes 0: no headline and no verdict then says that none is
    shown."""
    classes = {"3": "cat", "5": "dog"}
    differences = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.5)]
    arm = replace(ARM, measured=(NO_CHANGE, *measured))
    outcome, verdict = judge_variant(differences, arm, has_test=True, classes=classes)
    arm = replace(arm, outcome=outcome, verdict=verdict)
    headline = ModelMended("m", "resnet", "", 3, 4, (arm,), None, None, None, None).headline(
        classes
    )
    assert outcome == HELPS and arm.losses(classes) == says
    if says:
        assert (
            says in headline
            and "no loss" not in headline
            and headline.startswith("This helps where your model fails")
        )
        assert says[1:] in verdict and verdict.startswith(
            "It helps on held-out failures and loses in places: "
        )
    else:
        assert headline.startswith(HEADLINES[HELPS]) and verdict.startswith("It helps: ")


def test_a_column_without_rows_is_in_no_table() -> None:
    model = ModelMended("m", "resnet", "", 3, 4, (ARM,), None, None, None, None)
    assert IN_CONTEXTS not in model.titles and TEST in model.titles
    inside = replace(NO_CHANGE, set=IN_CONTEXTS)
    assert IN_CONTEXTS in replace(model, arms=(replace(ARM, measured=(NO_CHANGE, inside)),)).titles
