"""Which head is taken, recomputed from discover rows: λ of an arm, and the arm that is left as a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterfoil.mending.arms import Arm, Context
from counterfoil.mending.fitting import KeptHeads, Lesson
from counterfoil.mending.judging import (
    FEWEST_ROWS,
    MOST_LOSS,
    JudgedRows,
    JudgingRows,
    RightAnswers,
    answers_of,
    best_arm,
    chosen_on_discover,
)
from counterfoil.mending.one_model import ContextRows, _best, _fit, _Fitted
from counterfoil.models.classifiers.head import LinearHead

GRID = (0.0, 0.25, 1.0, 4.0)
CONTEXTS = tuple(Context(name, label, name, name) for name, label in (("a", 0), ("b", 0), ("c", 1), ("d", 0)))
CLASSES, WIDTH, ROWS = 3, 6, 300
ARMS = {"first": (0, 1), "second": (2, 3)}


def rows_of(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and what each row truly shows (a context, or -1), which moves it towards another class."""
    labels = rng.integers(0, CLASSES, n)
    shown = np.asarray([rng.choice([-1, *(p for p, one in enumerate(CONTEXTS) if one.label == y)]) for y in labels])
    features = rng.normal(0, 0.7, (n, WIDTH))
    features[np.arange(n), labels] += 1.5
    features[shown >= 0, (labels[shown >= 0] + 1) % CLASSES] += 1.6
    features[shown >= 0, 3 + shown[shown >= 0] % 3] += 1.5
    return features.astype(np.float32), labels.astype(np.int64), shown


class World:
    """Audited rows in two halves, a test, a head, and arms with drawn images of their contexts."""

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
        self.head = LinearHead(np.eye(CLASSES, WIDTH, dtype=np.float32), np.zeros(CLASSES, dtype=np.float32))
        drawn = rows_of(rng, 400)
        self.lessons = {
            name: Lesson(drawn[0][np.isin(drawn[2], places)], drawn[1][np.isin(drawn[2], places)])
            for name, places in ARMS.items()
        }
        test, test_labels, _ = rows_of(rng, 80)
        halves = rng.permutation(ROWS)
        self.kept = KeptHeads(folder, self.head, "lbfgs")
        audited = JudgedRows(features, labels, np.arange(ROWS))
        tested = JudgedRows(test, test_labels, np.arange(80))
        allowed = np.eye(CLASSES, dtype=bool)
        before = answers_of(self.head, audited, tested, allowed)
        self.judges = JudgingRows(
            audited, np.sort(halves[::2]), np.sort(halves[1::2]), ~before.audited,
            self.dealt.among(range(len(CONTEXTS))), self.dealt.among, CONTEXTS, list("xyz"), tested, allowed, before, 0,
        )  # fmt: skip

    def fitted(self, judges: JudgingRows, names: Sequence[str] = tuple(ARMS)) -> list[_Fitted]:
        nothing = np.zeros(60, dtype=np.int64)
        return [
            _fit(Arm(name, "mended"), self.lessons[name], self.train, nothing, self.kept, GRID, judges, ARMS[name])
            for name in names
        ]


@pytest.fixture(params=range(4))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


def accuracy(world: World, one: _Fitted, place: int, rows: Sequence[int]) -> float:
    """By plain loops over rows."""
    head, audited = one.heads[place].head, world.judges.audited
    answers = [int(np.argmax(head.weight @ audited.features[row] + head.bias)) for row in rows]
    return float(np.mean([answer == audited.labels[row] for answer, row in zip(answers, rows, strict=True)]))


def context_of(world: World, row: int, places: Sequence[int]) -> int:
    """The place whose vector a row is nearest to, of its class; -1 for the class alone."""
    label = int(world.dealt.labels[row])
    own = [place for place in places if CONTEXTS[place].label == label]
    scores = {-1: world.dealt.features[row, len(CONTEXTS) + label]} | {p: world.dealt.features[row, p] for p in own}
    return max(scores, key=lambda place: scores[place])


def by_context(world: World, one: _Fitted, place: int, contexts: Sequence[int]) -> list[float]:
    discover = world.judges.discover.tolist()
    rows = {c: [row for row in discover if context_of(world, row, contexts) == c] for c in contexts}
    return [accuracy(world, one, place, own) for own in rows.values() if len(own) >= FEWEST_ROWS]


def worst(world: World, one: _Fitted, place: int, contexts: Sequence[int]) -> float:
    return min(by_context(world, one, place, contexts))


def test_lambda_and_the_arm_that_is_left_are_the_best_of_the_discover_rows(world: World) -> None:
    judges, discover = world.judges, world.judges.discover.tolist()
    fitted = world.fitted(judges)
    for one in fitted:
        overall = [accuracy(world, one, place, discover) for place in range(len(GRID))]
        before = float(np.mean(judges.before.audited[judges.discover]))
        floor = max(before, overall[0]) - MOST_LOSS - 1e-9
        if not any(value >= floor for value in overall):
            floor = overall[0] - MOST_LOSS - 1e-9  # then against λ = 0 alone
        scores = {
            place: worst(world, one, place, ARMS[one.arm.name]) for place, value in enumerate(overall) if value >= floor
        }
        means = {place: float(np.mean(by_context(world, one, place, ARMS[one.arm.name]))) for place in scores}
        best = min(scores, key=lambda place: (-round(scores[place], 9), -round(means[place], 9), place))
        assert one.place == best
    every = sorted(place for places in ARMS.values() for place in places)
    shares = {one.arm.name: (one.result.within_bound, worst(world, one, one.place, every)) for one in fitted}
    best = max(shares.values())
    assert shares[_best(fitted, judges) or ""] == pytest.approx(best)


def test_what_is_judged_chooses_nothing(world: World) -> None:
    """Other labels of all confirm rows and of test, so that every answer there is another."""
    judges = world.judges
    assert judges.test is not None
    labels, test_labels = judges.audited.labels.copy(), (judges.test.labels + 1) % CLASSES
    labels[judges.confirm] = (labels[judges.confirm] + 1) % CLASSES
    audited, test = replace(judges.audited, labels=labels), replace(judges.test, labels=test_labels)
    before = answers_of(world.head, audited, test, judges.allowed)
    flipped = replace(judges, audited=audited, test=test, before=before, failed=~before.audited)
    here, there = world.fitted(judges), world.fitted(flipped)
    assert [one.result.measured for one in here] != [one.result.measured for one in there]
    assert [one.result.lam for one in here] == [one.result.lam for one in there]
    assert [point.worst_context for one in here for point in one.result.curve] == [
        point.worst_context for one in there for point in one.result.curve
    ]
    assert _best(here, judges) == _best(there, flipped)


def test_an_arms_lambda_does_not_depend_on_what_else_is_mended_with(world: World) -> None:
    """Contexts of another arm take rows from the tables of this one's, and none from its choice."""
    alone = replace(world.judges, context=world.dealt.among(ARMS["first"]), contexts=CONTEXTS[:2])
    both = world.judges
    assert ((alone.context >= 0) & (both.context >= 2)).any()
    (by_itself,), (beside, _) = world.fitted(alone, ["first"]), world.fitted(both)
    told = [[(point.worst_context, point.allowed) for point in one.result.curve] for one in (by_itself, beside)]
    assert told[0] == told[1] and by_itself.result.lam == beside.result.lam


def test_arms_are_compared_in_each_others_contexts(world: World) -> None:
    """One serves its own easy context perfectly and the other's not at all; the other serves both by half."""
    context = world.judges.among([0, 2])
    half = np.arange(ROWS) % 2 == 0
    easy = RightAnswers(context != 2, None)
    hard = RightAnswers((context == -1) | half, None)
    candidates = [("easy", True, easy, [0]), ("hard", True, hard, [2])]
    assert best_arm(candidates, world.judges) == "hard"
    # Beside itself alone each would be told 1 and about a half.
    for (_, _, answers, own), score in zip(candidates, (1.0, 0.5), strict=True):
        found = chosen_on_discover((0.0,), [answers], world.judges, own)
        assert found.worst[0] == pytest.approx(score, abs=0.2)
    outside = [candidates[0], ("hard", False, hard, [2])]
    assert best_arm(outside, world.judges) == "easy" and best_arm([], world.judges) is None
