"""What a head is mended with: the chosen contexts, the controls, what the other methods find, and real rows in groups.

Arms with drawn pictures have equal numbers of each class, after CLIP's screen. Where an arm is no whole method of its
own it says so:

* *hard captions*: the same captions of contexts, ranked by each class's direction (`mining.directions`) in place of
  counting failures. With the whole grammar more would have to be drawn than all else together.
* *fails when drawn*: the contexts whose first pictures the classifier gets wrong most often. It stands for confirmed
  bugs, which the method `bugs` finds by the same look at drawn pictures, with rounds and tests around it.
* *filter* adds real rows of a pool that are hardest by the direction; *upweight* doubles training rows that are.
* *DFR* fits the head again on rows of the discover half alone, as many of each class and group: by truth, or by CLIP.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mending.arms import equal_numbers
from counterfoil.mending.fitting import Lesson, balanced_lesson
from counterfoil.mining.captions import caption_scores
from counterfoil.mining.directions.fitting import Direction, fit_direction, whiten
from counterfoil.mining.interventions import hard_weights, hardest_rows
from mend_proof.contexts import kind_prompt
from mend_proof.runs import Run, Wanted
from mend_proof.targets import Rows, text_vectors

# Pictures of a context by which *fails when drawn* judges it.
_LOOKED_AT = 10
CONTROLS = ("lambda 0", "class names", "random contexts")
MAIN = "contexts by count"
COMPARED = (*CONTROLS, MAIN, "contexts by lift", "garments in turn")
ARMS = (
    *COMPARED, "hard captions", "fails when drawn", "filter", "upweight",
    "DFR by CLIP", "DFR by truth",
)  # fmt: skip


def measured_arms(run: Run, arms: tuple[str, ...] = ARMS) -> dict[str, Any]:
    """By arm what `Run.mended` tells, beside the classifier as it was.

    The chosen contexts and their controls are cut to equal numbers a class; what other methods find, to these numbers.
    """
    lessons = _Lessons(run)
    drawn = {arm: run.drawn(wanted()) for arm, wanted in lessons.drawn().items() if arm in arms}
    alike = _cut({arm: lesson for arm, lesson in drawn.items() if arm in COMPARED}, run.seed)
    for arm in drawn.keys() - alike.keys():
        alike[arm] = _cut({MAIN: alike[MAIN], arm: drawn[arm]}, run.seed)[arm]
    found: dict[str, Any] = {"before": {"accuracy": dict(run.before.accuracy)}}
    for arm in arms:
        if arm in alike:
            found[arm] = run.mended(alike[arm])
        elif arm in lessons.others():
            found[arm] = lessons.others()[arm]()
    return found


def _cut(lessons: dict[str, Lesson], seed: int) -> dict[str, Lesson]:
    rows = equal_numbers({arm: lesson.targets.astype(np.int64) for arm, lesson in lessons.items()}, seed)
    return {arm: Lesson(one.features[rows[arm]], one.targets[rows[arm]]) for arm, one in lessons.items()}


class _Lessons:
    """The arms of one run; what directions tell is computed when it is first asked for."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def drawn(self) -> dict[str, Callable[[], list[Wanted]]]:
        """What is drawn of each arm that a target has."""
        run = self.run
        found: dict[str, Callable[[], list[Wanted]]] = {
            MAIN: lambda: run.wanted("count"),
            "contexts by lift": lambda: self._equal(lambda label: run.chosen(label, "lift")),
            "class names": run.class_names,
            "random contexts": run.random_contexts,
            "hard captions": lambda: self._equal(self._hardest_captions),
            "fails when drawn": lambda: self._equal(self._failing_drawn),
        }
        if any(len(kinds) > 1 for kinds in run.target.kinds):
            found["garments in turn"] = self._in_turn
        return found

    def others(self) -> dict[str, Callable[[], dict[str, Any]]]:
        """Arms of real rows."""
        return {
            "lambda 0": lambda: self.run.mended(None),
            "filter": lambda: self.run.mended(self._filtered()),
            "upweight": lambda: self.run.mended(None, self._upweighted()),
            "DFR by CLIP": lambda: self._balanced(self.run.audit.assigned),
            "DFR by truth": lambda: self._balanced(self._true_groups()),
        }

    def _equal(self, places: Callable[[int], list[int]]) -> list[Wanted]:
        """As many pictures of each class as by count, of other places, the first one as many as the first."""
        run, found = self.run, []
        for label, contexts in enumerate(run.audit.contexts):
            numbers = [count for _, count in run.numbers(label)]
            own = places(label)[: len(numbers)]
            found += [Wanted(label, contexts[place].prompt, count) for place, count in zip(own, numbers, strict=False)]
        return found

    def _in_turn(self) -> list[Wanted]:
        """Pictures by a class's name, its garments in turn: no mined context has a part in it."""
        found = []
        for one in self.run.class_names():
            kinds = self.run.target.kinds[one.label]
            share, more = divmod(one.count, len(kinds))
            for place, kind in enumerate(kinds):
                if share + (place < more):
                    found.append(Wanted(one.label, kind_prompt(kind), share + (place < more)))
        return found

    def _failing_drawn(self, label: int) -> list[int]:
        audit = self.run.audit
        rates = []
        for one in audit.contexts[label]:
            said = audit.head.logits(audit.features(one.prompt, _LOOKED_AT)).argmax(axis=1)
            rates.append(float((said != label).mean()))
        return np.argsort(-np.asarray(rates), kind="stable").tolist()

    def _hardest_captions(self, label: int) -> list[int]:
        run, direction = self.run, self.directions.get(label)
        contexts = run.audit.contexts[label]
        if direction is None:
            return list(range(len(contexts)))
        reference = f"a photo of a {run.target.class_names[label]}".replace(" or ", " and a ")
        scores = caption_scores(
            direction, text_vectors([reference])[0], text_vectors([one.caption for one in contexts]), *self.whitening
        )
        return np.argsort(scores, kind="stable").tolist()

    @cached_property
    def whitening(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        vectors = self.run.audit.train.vectors.astype(np.float64)
        return vectors.mean(axis=0), vectors.std(axis=0, ddof=1)

    @cached_property
    def directions(self) -> dict[int, Direction]:
        """By label, fitted on the discover half; none where a class has too few errors."""
        run, found = self.run, {}
        rows = run.halves.discover
        mined = run.audit.mined.of(rows)
        failed = run.audit.failed[rows]
        points = whiten(mined.vectors, *self.whitening)
        for label in range(len(run.target.class_names)):
            own = mined.labels == label
            one = fit_direction(points[own], ~failed[own], mined.units[own], seed=run.seed, permutations=0)
            if isinstance(one, Direction):
                found[label] = one
        return found

    def _decisions(self, rows: Rows) -> NDArray[np.float64]:
        """(n,) by each row's class; NaN where it has no direction."""
        points, found = whiten(rows.vectors, *self.whitening), np.full(len(rows), np.nan)
        for label, direction in self.directions.items():
            own = rows.labels == label
            found[own] = direction.decision(points[own])
        return found

    def _filtered(self) -> Lesson:
        run = self.run
        pool = run.target.rows(run.target.pool, clip=True)
        if run.target.pool == "train":
            pool = pool.of(np.setdiff1d(np.arange(len(pool)), run.train_rows))
        hardest = hardest_rows(self._decisions(pool), pool.labels, max(one.count for one in run.class_names()))
        numbers = {one.label: one.count for one in run.class_names()}
        rows = np.concatenate(
            [hardest.rows[label][:count] for label, count in numbers.items() if label in hardest.rows]
        )
        return Lesson(pool.features[rows], pool.labels[rows])

    def _upweighted(self) -> Lesson:
        run = self.run
        rows = run.audit.train.of(run.train_rows)
        weights = hard_weights(self._decisions(rows))
        return Lesson(rows.features, rows.labels, weights)

    def _balanced(self, groups: NDArray[np.int64]) -> dict[str, Any]:
        run, rows = self.run, self.run.halves.discover
        mined = run.audit.mined
        try:
            lesson = balanced_lesson(
                mined.features[rows], mined.labels[rows], mined.labels[rows], groups[rows], seed=run.seed
            )
        except UserError:
            return run.mended(None)
        return run.mended(None, lesson) | {"rows": len(lesson)}

    def _true_groups(self) -> NDArray[np.int64]:
        """(n,) whether each mined row has the planted value; of the wardrobe's, its place."""
        audit, world = self.run.audit, self.run.target.world
        if world is None:
            return audit.mined.attributes[:, list(ATTRIBUTES).index("background")].astype(np.int64)
        return audit.mined.has(str(world.attribute), str(world.value)).astype(np.int64)
