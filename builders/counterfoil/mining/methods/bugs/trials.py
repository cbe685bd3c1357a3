"""Test hypotheses on pairs with new base images, in rounds, until each is decided or the budget
ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any, Literal

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import UserError
from counterfoil.mining.findings import Purpose
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.descriptions import Description
from counterfoil.paired_stats import (
    PairCount,
    count_pairs,
    decide_test,
    log_e_value,
    most_pairs_to_decide,
)
from counterfoil.progress import report_progress
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import Mine
from counterfoil.sequential_stats import e_bh

TRIED = "tries"


@dataclass(frozen=True, slots=True)
class BugHypothesis:
    """A class and a description with which the target may fail more often. evidence: keys of the
    failures that were described. parent: name of the hypothesis whose description this one
    shortens. about: facts to report, as JSON.
    """

    name: str
    label: int
    description: Description
    origin: Literal["found", "shortened", "tried"] = "found"
    parent: str | None = None
    evidence: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundAsked:
    """A round to draw: `candidates` images for each cell, and base images for each class in
    `labels`. cells: by name of the hypothesis.
    """

    number: int
    purpose: Purpose
    candidates: int
    cells: Mapping[str, BugHypothesis]
    labels: tuple[int, ...]
    base_candidates: int | None = None

    @property
    def name(self) -> str:
        """The folder of the round. Hypotheses that a person tried have a folder of rounds with
        their own numbers, because the search may still continue with its next round.
        """
        return f"{TRIED if self.purpose in ('try', 'try_estimate') else 'rounds'}/{self.number:02d}"

    @property
    def of_base(self) -> int:
        return self.candidates if self.base_candidates is None else self.base_candidates

    @property
    def images(self) -> int:
        return self.candidates * len(self.cells) + self.of_base * len(self.labels)


@dataclass(frozen=True)
class DrawnRound:
    """The n images of a round that the screen accepted and the target answered. Arrays are (n,)."""

    asked: RoundAsked
    seed: int
    shift_names: tuple[str, ...]
    """The base's name comes first."""
    shifts: Ints
    labels: Ints
    indices: Ints
    failed: Bools
    answers: Ints
    keys: tuple[str, ...]
    """Unique in the run; the dataset `images` has only the last part of each key."""
    images: LabelledImages

    def of(self, label: int, name: str | None = None) -> Ints:
        """Return the rows of a class in drawing order: its base images, or the images of the cell
        `name`."""
        shift = 0 if name is None else self.shift_names.index(name)
        rows = np.flatnonzero((self.shifts == shift) & (self.labels == label))
        return rows[np.argsort(self.indices[rows], kind="stable")]

    def pairs(self, name: str) -> Pairs:
        """Return the cell's pairs: its images for which the base image with the same noise was
        accepted too."""
        label = self.asked.cells[name].label
        described = self.of(label, name)
        base = self.of(label)
        indices = (self.indices[described], self.indices[base])
        _, described_at, base_at = np.intersect1d(*indices, assume_unique=True, return_indices=True)
        return Pairs(self, described[described_at], base[base_at])


@dataclass(frozen=True)
class Pairs:
    """n pairs of a round in drawing order: the rows of the described images and the rows of the
    base images, (n,)."""

    drawn: DrawnRound
    described: Ints
    base: Ints

    @property
    def count(self) -> PairCount:
        failed = self.drawn.failed
        return count_pairs(failed[self.described], failed[self.base])


Draw = Callable[[RoundAsked], DrawnRound]


def base_prompt(run: MiningRun) -> str:
    """Return the prompt to which descriptions are added."""
    prompt = run.recipe.prompts.base.prompt if run.settings.base is None else run.settings.base
    assert prompt is not None  # `wordless_problems` refuses a base without one
    return prompt


def nothing_drawn(round_asked: RoundAsked, seed: int) -> DrawnRound:
    """Return a round that has no accepted image."""
    no_rows = np.zeros(0, dtype=np.int64)
    images = LabelledImages(
        round_asked.name, "", (), no_rows, no_rows, (BASE,), lambda keys: iter(())
    )
    names = (BASE, *round_asked.cells)
    return DrawnRound(
        round_asked,
        seed,
        names,
        shifts=no_rows,
        labels=no_rows,
        indices=no_rows,
        failed=no_rows.astype(bool),
        answers=no_rows,
        keys=(),
        images=images,
    )


def filled_base(run: MiningRun, cls: RecipeClass) -> str:
    """Return the base prompt of one class, with all placeholders filled except `{class}`, to
    compare captions with."""
    return cls.text(base_prompt(run), "{class}")


# A round with fewer pairs per cell is not worth its cost.
FEWEST = 4
State = Literal["confirmed", "futile", "open"]


@dataclass(frozen=True)
class Trial:
    """A hypothesis with the pairs that were drawn for it. looks: the number of pairs and the log
    e-value after each round.
    """

    hypothesis: BugHypothesis
    pairs: tuple[Pairs, ...] = ()
    looks: tuple[tuple[int, float], ...] = ()
    state: State = "open"

    @property
    def count(self) -> PairCount:
        return sum((pair.count for pair in self.pairs), PairCount(0, 0, 0, 0))

    @property
    def drawn(self) -> int:
        """The number of pairs that were rendered, including those that the screen rejected."""
        return sum(pair.drawn.asked.candidates for pair in self.pairs)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value; 0 before any pair."""
        return self.looks[-1][1] if self.looks else 0.0


# Trials in the order of their hypotheses, and the rounds that were drawn for them.
Trials = tuple[tuple[Trial, ...], tuple[DrawnRound, ...]]


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of images left to render, and the number of the next round."""

    images: int
    number: int

    def after(self, drawn: RoundAsked) -> Budget:
        return Budget(self.images - drawn.images, drawn.number + 1)


def refuse_small_budget(hypotheses: int, run: MiningRun) -> None:
    """Raise UserError if the settings allow too few pairs to confirm any of so many hypotheses,
    even if the description fails and the base is right in every pair.
    """
    needed = most_pairs_to_decide(max(hypotheses, 1), run.mine.fdr)
    if run.settings.pairs < needed:
        raise UserError(
            f"mine.settings.pairs: {run.settings.pairs} pairs cannot confirm any of {hypotheses}"
            " hypotheses: it"
            f" takes at least {needed}, even if the description fails and the base is right in"
            " every pair",
            f"Set mine.settings.pairs to {2 * needed} or more.",
        )


def carry_to_test(
    hypotheses: Sequence[BugHypothesis],
    draw: Draw,
    budget: Budget,
    run: MiningRun,
    *,
    family: int,
    purpose: Purpose = "test",
) -> Trials:
    """Test hypotheses in rounds. Each round doubles the pairs of a hypothesis, from
    `settings.batch` to `settings.pairs`. The test of a hypothesis ends when it is futile. It also
    ends when the hypothesis is confirmed and no results of the others can undo this. family: the
    number of hypotheses in the family.
    """
    mine = run.mine
    settings = run.settings
    threshold = log(max(family, 1) / mine.fdr)
    tested = {hypothesis.name: Trial(hypothesis) for hypothesis in hypotheses}
    rounds: list[DrawnRound] = []
    drawn_pairs = 0
    while drawn_pairs < settings.pairs:
        open_trials = [trial for trial in tested.values() if trial.state == "open"]
        if not open_trials:
            break
        pairs = min(max(drawn_pairs, settings.batch), settings.pairs - drawn_pairs)
        cells = {trial.hypothesis.name: trial.hypothesis for trial in open_trials}
        labels = tuple(sorted({cell.label for cell in cells.values()}))
        pairs = min(pairs, budget.images // (len(cells) + len(labels)))
        if pairs < FEWEST:
            break
        round_asked = RoundAsked(budget.number, purpose, pairs, cells, labels)
        drawn = draw(round_asked)
        # The drawn round can have a later number than the round that was asked for. Continue after
        # the drawn number, because a round that is drawn twice would count twice.
        budget = budget.after(drawn.asked)
        drawn_pairs += round_asked.candidates
        rounds.append(drawn)
        for trial in open_trials:
            name = trial.hypothesis.name
            more = replace(trial, pairs=(*trial.pairs, drawn.pairs(name)))
            count = more.count
            log_e = log_e_value(count.failing, count.discordant)
            state = decide_test(count, log_e, threshold, mine.margin) if count.pairs else "open"
            looks = (*trial.looks, (count.pairs, log_e))
            tested[name] = replace(more, looks=looks, state=state)
        decided = sum(trial.state != "open" for trial in tested.values())
        report_progress(f"{purpose}: hypotheses decided", decided, len(tested))
    return tuple(tested.values()), tuple(rounds)


def confirmed_among(tested: Sequence[Trial], mine: Mine) -> list[bool]:
    """Check for each trial whether e-BH over all trials confirms it. A futile trial is never
    confirmed. A trial whose difference is below the margin is not confirmed either, because with
    enough pairs an e-value is large for a negligible difference too.
    """
    rejected = e_bh([trial.log_e for trial in tested], mine.fdr)
    confirmed = []
    for trial, is_rejected in zip(tested, rejected, strict=True):
        confirmed.append(
            is_rejected and trial.state != "futile" and trial.count.difference >= mine.margin
        )
    return confirmed
