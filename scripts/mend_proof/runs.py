"""One run: halves of the mined rows, contexts chosen on the discover half, and what of all rows a
head gets right.

Everything is the package's own: halves, zero-shot contexts, counting and choosing, λ. Nothing of
the confirm half or of the measured rows decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import Halves, deal_halves
from counterfoil.mending.evaluating import choose_lambda
from counterfoil.mending.fitting import FittedHead, Lesson, fit_head
from counterfoil.mending.variants import choose_train_rows
from counterfoil.mining.methods.contexts import (
    ContextCount,
    choose_contexts,
    count_contexts,
    images_a_context,
    nearest_context,
)
from counterfoil.models.classifiers.head import LinearHead, head_of
from counterfoil.recipe import load_recipe
from mend_proof.pictures import Context, Pictures, contexts_of, plain_prompt, without_class
from mend_proof.plan import Rank, Settings
from mend_proof.targets import Rows, Target, text_vectors
from proof_files import Facts

_DRAW = 2
_OTHERS = 3
# As `wardrobe-star` screens, and so every recipe that is laid over it.
_SCREEN = load_recipe("wardrobe-star").screen
assert _SCREEN.object_threshold.percentile is not None
assert _SCREEN.shift_threshold is not None and _SCREEN.shift_threshold.value is not None
_PERCENTILE = _SCREEN.object_threshold.percentile
_SHIFT_THRESHOLD = _SCREEN.shift_threshold.value
# Training images a class of the wardrobe's classifiers: their features are ten times as wide.
WIDE = 400


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many pictures of a prompt for a class."""

    label: int
    prompt: str
    count: int


@dataclass(frozen=True)
class Scored:
    """What a head gets right: accuracies by set of rows, and of each discover context (c,) that λ
    is chosen by."""

    accuracy: Mapping[str, float]
    discover: float
    contexts: Floats


class Audit:
    """A target with its rows and pictures, shared by its runs."""

    def __init__(self, target: Target, pictures: Pictures) -> None:
        self.target = target
        self.pictures = pictures
        self._features: dict[str, Floats32] = {}

    @cached_property
    def head(self) -> LinearHead:
        return head_of(self.target.classifier)

    @cached_property
    def train(self) -> Rows:
        return self.target.rows("train", clip=True)

    @cached_property
    def mined(self) -> Rows:
        return self.target.rows(self.target.mined, clip=True)

    @cached_property
    def measured(self) -> Rows:
        return self.target.rows(self.target.measured)

    @cached_property
    def truth(self) -> Rows:
        return self.target.rows(self.target.truth)

    @cached_property
    def failed(self) -> Bools:
        """(n,) of the mined rows."""
        return answers(self.head, self.mined) != self.mined.labels

    @cached_property
    def contexts(self) -> list[list[Context]]:
        return [contexts_of(self.target, label) for label in range(len(self.target.class_names))]

    @cached_property
    def assigned(self) -> Ints:
        """(n,) for each mined row the place of its context among those of its label."""
        nearest = np.zeros(len(self.mined), np.int64)
        for label, contexts in enumerate(self.contexts):
            of_class = self.mined.labels == label
            nearest[of_class] = nearest_context(
                self.mined.vectors[of_class],
                text_vectors([context.caption for context in contexts]),
            )
        return nearest

    def features(self, prompt: str, count: int) -> Floats32:
        """Return (count, d) of the first pictures of a prompt, by the target."""
        known = self._features.get(prompt)
        if known is None or len(known) < count:
            known = self.target.features(self.pictures.of(prompt, count))
            self._features[prompt] = known
        return known[:count]

    def accepted(self, prompt: str, label: int, count: int, screen: str) -> Ints:
        """Return which of the first pictures of a prompt show its class, by CLIP."""
        if screen == "all":
            return np.arange(count)
        vectors = self.pictures.vectors(prompt, count)
        likeness = _likeness(vectors, self.target.kinds[label])
        if screen == "class":
            others = [kinds for other, kinds in enumerate(self.target.kinds) if other != label]
            return np.flatnonzero(
                likeness > np.max([_likeness(vectors, kinds) for kinds in others], axis=0)
            )
        shown = likeness >= self.thresholds[label]
        alone = without_class(prompt)
        if alone is not None:
            shown &= vectors @ text_vectors([alone])[0] >= _SHIFT_THRESHOLD
        return np.flatnonzero(shown)

    @cached_property
    def thresholds(self) -> list[float]:
        """By label, the likeness that all but a few percent of its training images reach, as the
        recipe asks."""
        train = self.train
        return [
            float(
                np.percentile(_likeness(train.vectors[train.labels == label], kinds), _PERCENTILE)
            )
            for label, kinds in enumerate(self.target.kinds)
        ]


class Run:
    """One dealing of halves and one draw of training rows and pictures."""

    def __init__(self, audit: Audit, seed: int, settings: Settings) -> None:
        self.audit = audit
        self.seed = seed
        self.settings = settings

    @property
    def target(self) -> Target:
        return self.audit.target

    @cached_property
    def halves(self) -> Halves:
        mined = self.audit.mined
        return deal_halves(mined.labels, self.seed, [str(unit) for unit in mined.units.tolist()])

    @cached_property
    def lesson(self) -> Lesson:
        """Training rows with their own labels."""
        train = self.audit.train
        rows = self.train_rows
        return Lesson(train.features[rows], train.labels[rows])

    @cached_property
    def train_rows(self) -> Ints:
        """Which rows of train a head learns from."""
        most = self.settings.per_class
        if self.target.world is None:
            most = min(most, WIDE)
        return choose_train_rows(self.audit.train.labels, most, self.seed)

    def counts(self, label: int) -> list[ContextCount]:
        """Count a class's contexts on the discover half."""
        rows = self.halves.discover[self.audit.mined.labels[self.halves.discover] == label]
        return count_contexts(
            self.audit.assigned[rows], self.audit.failed[rows], len(self.audit.contexts[label])
        )

    def chosen(self, label: int, rank: Rank | None = None) -> list[int]:
        """Return the indices of the contexts that are chosen for a class, the first one first."""
        settings = self.settings
        return choose_contexts(
            self.counts(label),
            settings.k,
            rank or settings.rank,
            settings.fewest_failures,
        )

    def wanted(self, rank: Rank | None = None) -> list[Wanted]:
        """Return the pictures to draw of the chosen contexts of all classes."""
        return [
            Wanted(label, contexts[index].prompt, count)
            for label, contexts in enumerate(self.audit.contexts)
            for index, count in self.numbers(label, rank)
        ]

    def numbers(self, label: int, rank: Rank | None = None) -> list[tuple[int, int]]:
        """Return (index, pictures) of the chosen contexts of a class."""
        counts = self.counts(label)
        settings = self.settings
        return [
            (index, images_a_context(counts[index].failures, settings.a_failure, settings.most))
            for index in self.chosen(label, rank)
        ]

    def class_names(self) -> list[Wanted]:
        """Return as many pictures a class by its name alone."""
        pictures = []
        for label in range(len(self.audit.contexts)):
            count = sum(count for _, count in self.numbers(label))
            if count:
                pictures.append(Wanted(label, plain_prompt(self.target, label), count))
        return pictures

    def random_contexts(self) -> list[Wanted]:
        """Return as many other contexts of each class, with as many pictures each."""
        pictures = []
        for label, contexts in enumerate(self.audit.contexts):
            numbers = self.numbers(label)
            others = np.setdiff1d(np.arange(len(contexts)), [index for index, _ in numbers])
            drawn = np.random.default_rng([self.seed, _OTHERS, label]).permutation(others)
            pictures += [
                Wanted(label, contexts[index].prompt, count)
                for index, (_, count) in zip(drawn.tolist(), numbers, strict=False)
            ]
        return pictures

    def drawn(self, wanted: Sequence[Wanted]) -> Lesson:
        """Return pictures as a lesson: each prompt's are the run's own draw of its pool."""
        features = []
        targets = []
        for pictures in wanted:
            pool = self.pool_of(pictures)
            label = pictures.label
            accepted = self.audit.accepted(pictures.prompt, label, pool, self.settings.screen)
            order = np.random.default_rng([self.seed, _DRAW, label]).permutation(accepted)
            rows = order[: pictures.count]
            features.append(self.audit.features(pictures.prompt, pool)[rows])
            targets.append(np.full(len(rows), label, np.int64))
        return Lesson(np.concatenate(features), np.concatenate(targets))

    def pool_of(self, wanted: Wanted) -> int:
        """Return how many pictures of a prompt the pool has: enough for another run's draw beside
        this one's."""
        return (
            self.settings.pool if wanted.count <= self.settings.most else self.settings.pool_plain
        )

    @cached_property
    def groups(self) -> list[Ints]:
        """Rows of the discover half in each chosen context of each class."""
        mined = self.audit.mined
        rows = self.halves.discover
        return [
            rows[(mined.labels[rows] == label) & (self.audit.assigned[rows] == index)]
            for label in range(len(self.audit.contexts))
            for index in self.chosen(label)
        ]

    def scored(self, head: LinearHead) -> Scored:
        """Return the accuracies of a head."""
        mined = self.audit.mined
        discover = self.halves.discover
        confirm = self.halves.confirm
        failed = self.audit.failed
        right = answers(head, mined) == mined.labels
        measured = self.audit.measured
        truth = self.audit.truth
        on_test = answers(head, measured) == measured.labels
        on_truth = on_test if truth is measured else answers(head, truth) == truth.labels
        of_class = np.isin(truth.labels, np.unique(truth.labels[truth.members]))
        sets = {
            "test": on_test,
            "seed": right[discover[failed[discover]]],
            "heldout": right[confirm[failed[confirm]]],
            "heldout slice": right[confirm[(failed & mined.members)[confirm]]],
            "confirm": right[confirm],
            "slice": on_truth[truth.members],
            "rest": on_truth[of_class & ~truth.members],
            "truth": on_truth,
        }
        return Scored(
            {
                name: float(hits.mean()) if len(hits) else float("nan")
                for name, hits in sets.items()
            },
            float(right[discover].mean()),
            np.asarray([right[rows].mean() for rows in self.groups]),
        )

    def mended(self, debug: Lesson | None, train: Lesson | None = None) -> Facts:
        """Return accuracies of an arm with the λ that the discover half chooses, and of every λ of
        the grid."""
        train = train or self.lesson
        grid = (0.0,) if debug is None else self.settings.lambdas
        start = self.nothing.head
        scored = []
        for lam in grid:
            if lam == 0 and train is self.lesson:
                scored.append(self._retrained)
                continue
            # The objective has one minimum: where it is begun at decides only how long it takes.
            start = fit_head(start, train, debug, lam).head
            scored.append(self.scored(start))
        chosen = choose_lambda(
            grid,
            np.stack([score.contexts for score in scored]),
            np.asarray([score.discover for score in scored]),
            context_rows=np.asarray([len(rows) for rows in self.groups]),
            before=self.before.discover,
            most_loss=self.settings.most_loss,
            fewest=self.settings.fewest,
        )
        return {
            "lambda": grid[chosen.index],
            "allowed": int(chosen.allowed.sum()),
            "pictures": 0 if debug is None else len(debug),
            "accuracy": scored[chosen.index].accuracy,
            "curve": {f"{lam:g}": score.accuracy for lam, score in zip(grid, scored, strict=True)},
        }

    @cached_property
    def nothing(self) -> FittedHead:
        """Retrained on the training rows alone."""
        return fit_head(self.audit.head, self.lesson, None, 0.0)

    @cached_property
    def _retrained(self) -> Scored:
        return self.scored(self.nothing.head)

    @cached_property
    def before(self) -> Scored:
        """The classifier as it was."""
        return self.scored(self.audit.head)


def _likeness(vectors: Floats32, kinds: Sequence[str]) -> Floats32:
    """Return (n,) the largest cosine with the plain caption of any garment of a class."""
    return (vectors @ text_vectors([f"a photo of a {kind}" for kind in kinds]).T).max(axis=1)


def answers(head: LinearHead, rows: Rows) -> Ints:
    """Return the (n,) best outputs."""
    return head.logits(rows.features).argmax(axis=1).astype(np.int64)


def audit_of(name: str, classifiers: Path, kept: Path) -> Audit:
    """Return a target by name; those of the wardrobe are drawn by tokens."""
    target = Target(name, classifiers, kept)
    return Audit(target, Pictures(kept, tokens=target.world is None))
