"""Parts *mending* and *others*: what of the failures held out, and of the true slice, a mended head
gets right.

A heldout of failures starts at zero, so any retraining gains: everything stands beside λ = 0, the
same head retrained on the same training images alone. *gain* is an arm's heldout accuracy less that
of λ = 0, of the same run.

Arms with drawn pictures have equal numbers of each class, after CLIP's screen. Where an arm is no
whole method of its own it says so:

* *hard captions*: the same captions of contexts, ranked by each class's direction
  (`mining.directions`) in place of counting failures. With the whole grammar more would have to be
  drawn than all else together.
* *fails when drawn*: the contexts whose first pictures the classifier gets wrong most often. It
  stands for confirmed bugs, which the method `bugs` finds by the same look at drawn pictures, with
  rounds and tests around it.
* *filter* adds real rows of a pool that are hardest by the direction; *upweight* doubles training
  rows that are.
* *DFR* fits the head again on rows of the discover half alone, as many of each class and group: by
  truth, or by CLIP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.errors import UserError
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mending.fitting import Lesson, balanced_lesson
from counterfoil.mending.variants import equal_numbers
from counterfoil.mining.methods.directions import caption_scores
from counterfoil.mining.methods.svm import Direction, fit_direction, whiten
from counterfoil.mining.pools import hard_weights, hardest_rows
from directions_proof.intervals import ANY, Estimate, mean_of, mean_percent
from mend_proof.pictures import kind_prompt
from mend_proof.plan import RunResults, groups_of
from mend_proof.runs import Run, Wanted
from mend_proof.targets import Rows, text_vectors
from proof_files import Facts

# Pictures of a context by which *fails when drawn* judges it.
_LOOKED_AT = 10
CONTROLS = ("lambda 0", "class names", "random contexts")
MAIN = "contexts by count"
COMPARED = (*CONTROLS, MAIN, "contexts by lift", "garments in turn")
ARMS = (
    *COMPARED, "hard captions", "fails when drawn", "filter", "upweight",
    "DFR by CLIP", "DFR by truth",
)  # fmt: skip
# Of a target's runs: directions and twice as many heads are fitted there.
_OTHERS_IN = 2
_LIFT = "contexts by lift"
_BEFORE = "before"
_NOTHING = "lambda 0"
_NAMES = "class names"
_HEADING = (
    "| targets | arm | seed | heldout | gain | slice | slice gain | rest | test | λ | pictures |",
    "| -- | -- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
)


def measured_arms(run: Run, arms: tuple[str, ...] = ARMS) -> Facts:
    """Return the result of `Run.mended` by arm, beside the classifier as it was.

    The chosen contexts and their controls are cut to equal numbers a class; what other methods
    find, to these numbers.
    """
    lessons = _Lessons(run)
    drawn = {arm: run.drawn(wanted()) for arm, wanted in lessons.drawn().items() if arm in arms}
    alike = _cut({arm: lesson for arm, lesson in drawn.items() if arm in COMPARED}, run.seed)
    for arm in drawn.keys() - alike.keys():
        alike[arm] = _cut({MAIN: alike[MAIN], arm: drawn[arm]}, run.seed)[arm]
    measured: Facts = {"before": {"accuracy": dict(run.before.accuracy)}}
    for arm in arms:
        if arm in alike:
            measured[arm] = run.mended(alike[arm])
        elif arm in lessons.others():
            measured[arm] = lessons.others()[arm]()
    return measured


def _cut(lessons: dict[str, Lesson], seed: int) -> dict[str, Lesson]:
    rows = equal_numbers(
        {arm: lesson.targets.astype(np.int64) for arm, lesson in lessons.items()}, seed
    )
    return {
        arm: Lesson(lesson.features[rows[arm]], lesson.targets[rows[arm]])
        for arm, lesson in lessons.items()
    }


class _Lessons:
    """The arms of one run; what directions tell is computed when it is first asked for."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def drawn(self) -> dict[str, Callable[[], list[Wanted]]]:
        """Return by arm of the target what it draws."""
        run = self.run
        arms: dict[str, Callable[[], list[Wanted]]] = {
            MAIN: lambda: run.wanted("count"),
            "contexts by lift": lambda: self._equal(lambda label: run.chosen(label, "lift")),
            "class names": run.class_names,
            "random contexts": run.random_contexts,
            "hard captions": lambda: self._equal(self._hardest_captions),
            "fails when drawn": lambda: self._equal(self._failing_drawn),
        }
        if any(len(kinds) > 1 for kinds in run.target.kinds):
            arms["garments in turn"] = self._in_turn
        return arms

    def others(self) -> dict[str, Callable[[], Facts]]:
        """Return the arms of real rows."""
        return {
            "lambda 0": lambda: self.run.mended(None),
            "filter": lambda: self.run.mended(self._filtered()),
            "upweight": lambda: self.run.mended(None, self._upweighted()),
            "DFR by CLIP": lambda: self._balanced(self.run.audit.assigned),
            "DFR by truth": lambda: self._balanced(self._true_groups()),
        }

    def _equal(self, places: Callable[[int], list[int]]) -> list[Wanted]:
        """Return as many pictures a class as by count, from other contexts: the first gets as many
        as the first."""
        run = self.run
        wanted = []
        for label, contexts in enumerate(run.audit.contexts):
            numbers = [count for _, count in run.numbers(label)]
            chosen = places(label)[: len(numbers)]
            wanted += [
                Wanted(label, contexts[index].prompt, count)
                for index, count in zip(chosen, numbers, strict=False)
            ]
        return wanted

    def _in_turn(self) -> list[Wanted]:
        """Return pictures by a class's name, its garments in turn: no mined context has a part in
        it."""
        wanted = []
        for pictures in self.run.class_names():
            kinds = self.run.target.kinds[pictures.label]
            share, more = divmod(pictures.count, len(kinds))
            for index, kind in enumerate(kinds):
                count = share + (index < more)
                if count:
                    wanted.append(Wanted(pictures.label, kind_prompt(kind), count))
        return wanted

    def _failing_drawn(self, label: int) -> list[int]:
        audit = self.run.audit
        rates = []
        for context in audit.contexts[label]:
            answers = audit.head.logits(audit.features(context.prompt, _LOOKED_AT)).argmax(axis=1)
            rates.append(float((answers != label).mean()))
        return np.argsort(-np.asarray(rates), kind="stable").tolist()

    def _hardest_captions(self, label: int) -> list[int]:
        run = self.run
        direction = self.directions.get(label)
        contexts = run.audit.contexts[label]
        if direction is None:
            return list(range(len(contexts)))
        reference = f"a photo of a {run.target.class_names[label]}".replace(" or ", " and a ")
        scores = caption_scores(
            direction,
            text_vectors([reference])[0],
            text_vectors([context.caption for context in contexts]),
            *self.whitening,
        )
        return np.argsort(scores, kind="stable").tolist()

    @cached_property
    def whitening(self) -> tuple[Floats, Floats]:
        vectors = self.run.audit.train.vectors.astype(np.float64)
        return vectors.mean(axis=0), vectors.std(axis=0, ddof=1)

    @cached_property
    def directions(self) -> dict[int, Direction]:
        """By label, fitted on the discover half; a class with too few errors is absent."""
        run = self.run
        directions = {}
        rows = run.halves.discover
        mined = run.audit.mined.of(rows)
        failed = run.audit.failed[rows]
        points = whiten(mined.vectors, *self.whitening)
        for label in range(len(run.target.class_names)):
            of_class = mined.labels == label
            fitted = fit_direction(
                points[of_class],
                ~failed[of_class],
                mined.units[of_class],
                seed=run.seed,
                permutations=0,
            )
            if isinstance(fitted, Direction):
                directions[label] = fitted
        return directions

    def _decisions(self, rows: Rows) -> Floats:
        """Return (n,) by each row's class; NaN if it has no direction."""
        points = whiten(rows.vectors, *self.whitening)
        decisions = np.full(len(rows), np.nan)
        for label, direction in self.directions.items():
            of_class = rows.labels == label
            decisions[of_class] = direction.decision(points[of_class])
        return decisions

    def _filtered(self) -> Lesson:
        run = self.run
        pool = run.target.rows(run.target.pool, clip=True)
        if run.target.pool == "train":
            pool = pool.of(np.setdiff1d(np.arange(len(pool)), run.train_rows))
        numbers = {wanted.label: wanted.count for wanted in run.class_names()}
        most = max(numbers.values())
        hardest = hardest_rows(self._decisions(pool), pool.labels, most).rows
        rows = np.concatenate(
            [hardest[label][:count] for label, count in numbers.items() if label in hardest]
        )
        return Lesson(pool.features[rows], pool.labels[rows])

    def _upweighted(self) -> Lesson:
        run = self.run
        rows = run.audit.train.of(run.train_rows)
        weights = hard_weights(self._decisions(rows))
        return Lesson(rows.features, rows.labels, weights)

    def _balanced(self, groups: Ints) -> Facts:
        run = self.run
        rows = self.run.halves.discover
        mined = run.audit.mined
        try:
            lesson = balanced_lesson(
                mined.features[rows],
                mined.labels[rows],
                mined.labels[rows],
                groups[rows],
                seed=run.seed,
            )
        except UserError:
            return run.mended(None)
        return run.mended(None, lesson) | {"rows": len(lesson)}

    def _true_groups(self) -> Ints:
        """Return (n,) which mined rows have the planted value; of the wardrobe, the index of each
        row's background."""
        audit = self.run.audit
        world = self.run.target.world
        if world is None:
            return audit.mined.attributes[:, list(ATTRIBUTES).index("background")].astype(np.int64)
        return audit.mined.has(str(world.attribute), str(world.value)).astype(np.int64)


def measure(run: Run) -> Facts:
    """Return accuracies by arm; of the other methods only in the first runs of worlds."""
    if run.target.world is None:
        return measured_arms(run, (*CONTROLS, MAIN))
    return measured_arms(run, ARMS if run.seed % 100 < _OTHERS_IN else COMPARED)


def measure_ranks(run: Run) -> Facts:
    """Return accuracies by the two ranks of contexts."""
    return measured_arms(run, (_NOTHING, _NAMES, MAIN, _LIFT))


def table_ranks(results: RunResults) -> list[str]:
    """Return Markdown: by count and by lift, and how much more lift gains."""
    lines = [
        "The wardrobe's classifiers, one run: a class that learned a place has most of its rows"
        " there, and by count"
        " that place is chosen for its few failures too.",
        "",
        *_table(groups_of(results), (_BEFORE, _NOTHING, _NAMES, MAIN, _LIFT)),
    ]
    more = {
        which: _over(results, _LIFT, MAIN, which).points() for which in ("heldout", "slice", "test")
    }
    text = "; ".join(f"{which} {points}" for which, points in more.items())
    return [*lines, "", f"- by lift less by count, in points: {text}"]


def table(results: RunResults) -> list[str]:
    """Return Markdown: by kind and arm, and whether the aims are met."""
    groups = groups_of(results)
    lines = [
        "*heldout*: failures of the confirm half. *slice*, *rest*: of the planted class on true"
        " renders of garments"
        " that nobody saw. *test*: change of accuracy in points. *gain*: heldout, less λ = 0 of the"
        " same run, in"
        " points; *slice gain* likewise. *pictures*: drawn ones that the head learned from.",
        "",
        *_table(groups, (_BEFORE, *COMPARED)),
        "",
        *(f"- {_aims(title, group)}" for title, group in groups.items()),
    ]
    return [*lines, "", *_same_lambda(groups)]


def _same_lambda(groups: Mapping[str, RunResults]) -> list[str]:
    """Compare chosen contexts with class names at one λ for both: the choice of λ is no part of the
    difference."""
    lines = [
        "At the same λ for both: chosen contexts less class names, in points.",
        "",
        "| targets | λ | heldout | slice | test | test, less before |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    for title, results in groups.items():
        first = next(iter(results.values()))[0]
        for index, lam in enumerate(lam for lam in first[MAIN]["curve"] if lam != "0"):
            cells = [
                _less(results, lam, _NAMES, which).points()
                for which in ("heldout", "slice", "test")
            ]
            cells.append(_less(results, lam, _BEFORE, "test").points())
            lines.append(f"| {title if index == 0 else ''} | {lam} | {' | '.join(cells)} |")
    return lines


def _less(results: RunResults, lam: str, other: str, which: str) -> Estimate:
    """Return by how much the chosen contexts are better at one λ than class names, or than the
    classifier as it was."""

    def at(arm: str) -> list[float]:
        if arm == _BEFORE:
            return _by_target(results, lambda run: _at(run, arm, which))
        return _by_target(results, lambda run: run[arm]["curve"][lam][which])

    return mean_of([chosen - less for chosen, less in zip(at(MAIN), at(other), strict=True)])


def table_others(results: RunResults) -> list[str]:
    """Return Markdown: by kind and arm."""
    having = {name: [run for run in runs if "filter" in run] for name, runs in results.items()}
    return [
        "Of the first two runs of each world. *hard captions*: the same contexts, ranked by the"
        " class's direction."
        " *fails when drawn*: those whose first pictures fail most often, in place of confirmed"
        " bugs. *filter*: real"
        " rows of a pool, hardest by the direction. *upweight*: training rows that are hard count"
        " twice. *DFR*: fitted"
        " on the discover half alone, as many of each class and group; by truth it is a bound.",
        "",
        *_table(
            groups_of({name: runs for name, runs in having.items() if runs}),
            (_BEFORE, _NOTHING, _NAMES, MAIN, *(arm for arm in ARMS if arm not in COMPARED)),
        ),
    ]


def _table(groups: Mapping[str, RunResults], arms: Sequence[str]) -> list[str]:
    lines = list(_HEADING)
    for title, results in groups.items():
        lines += _lines(title, results, arms)
    return lines


def _lines(title: str, results: RunResults, arms: Sequence[str]) -> list[str]:
    lines = []
    for arm in arms:
        having = {name: runs for name, runs in results.items() if arm in runs[0]}
        if not having:
            continue
        mark = "" if len(having) == len(results) else f" ({len(having)})"
        cells = [_share(having, arm, "seed")]
        for which in ("heldout", "slice"):
            gain = ""
            if arm not in (_BEFORE, _NOTHING):
                gain = _over(having, arm, _NOTHING, which).points()
            cells += [_share(having, arm, which), gain]
        cells.append(_share(having, arm, "rest"))
        if arm == _BEFORE:
            cells += ["", "", ""]
        else:
            cells += [
                _over(having, arm, _BEFORE, "test").points(),
                f"{_mean(having, arm, 'lambda'):.2f}",
                f"{_mean(having, arm, 'pictures'):.0f}",
            ]
        lines.append(
            f"| {title if arm == _BEFORE else ''} | {arm.replace('lambda', 'λ =')}{mark} |"
            f" {' | '.join(cells)} |"
        )
    return lines


def _aims(title: str, results: RunResults) -> str:
    def compared(which: str) -> str:
        chosen, names = (_over(results, arm, _NOTHING, which) for arm in (MAIN, _NAMES))
        ratio = (
            f"{chosen.value / names.value:.1f} times"
            if names.value > 0
            else "where class names gain nothing"
        )
        more = _over(results, MAIN, _NAMES, which)
        beyond = [
            float(np.mean([_beyond_twice(run, which) for run in runs])) for runs in results.values()
        ]
        twice = mean_of(beyond, ANY)
        return (
            f"{ratio}, {more.points()} points more; less twice that of class names {twice.points()}"
        )

    test = _over(results, MAIN, _BEFORE, "test")
    heldout = compared("heldout")
    inside = compared("slice")
    return (
        f"{title}: gain on heldout {heldout}. On the slice {inside}. Test {test.points()} points."
    )


def _beyond_twice(run: Facts, which: str) -> float:
    """Return the gain of the chosen contexts over λ = 0, less twice that of class names."""
    chosen, names, nothing = (_at(run, arm, which) for arm in (MAIN, _NAMES, _NOTHING))
    return chosen - nothing - 2 * (names - nothing)


def _share(results: RunResults, arm: str, which: str) -> str:
    return mean_percent(_by_target(results, lambda run: _at(run, arm, which)))


def _by_target(results: RunResults, value: Callable[[Facts], float]) -> list[float]:
    """Return the mean of a value over the runs of each target."""
    return [float(np.nanmean([value(run) for run in runs])) for runs in results.values()]


def _mean(results: RunResults, arm: str, which: str) -> float:
    return float(np.mean([run[arm][which] for runs in results.values() for run in runs]))


def _over(results: RunResults, arm: str, other: str, which: str) -> Estimate:
    return mean_of(_by_target(results, lambda run: _at(run, arm, which) - _at(run, other, which)))


def _at(run: Facts, arm: str, which: str) -> float:
    return run[arm]["accuracy"][which]
