"""Test hypotheses on pairs with new base images, in rounds, until each is decided or the budget ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.errors import UserError
from counterfoil.mining.findings import Purpose
from counterfoil.mining.findings_layer import seed_for, shifts_layer
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.descriptions import Description
from counterfoil.mining.rounds import LAYER, answered_round
from counterfoil.paired_stats import PairCount, count_pairs, decide, log_e_value, most_pairs_to_decide
from counterfoil.progress import report
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.names import derived_name
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.stats import e_bh

TRIED = "tries"


@dataclass(frozen=True, slots=True)
class BugHypothesis:
    """A class and a description with which the target may fail more often. evidence: keys of the described failures.
    parent: the description that it shortens. about: facts to report, as JSON.
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
    """A round of `candidates` images for each cell (by hypothesis name) and for the base of each of `labels`."""

    number: int
    purpose: Purpose
    candidates: int
    cells: Mapping[str, BugHypothesis]
    labels: tuple[int, ...]
    base_candidates: int | None = None

    @property
    def name(self) -> str:
        """Its folder. Rounds of hypotheses tried by hand are numbered apart, beside a search that may continue."""
        return f"{TRIED if self.purpose in ('try', 'try_estimate') else 'rounds'}/{self.number:02d}"

    @property
    def of_base(self) -> int:
        return self.candidates if self.base_candidates is None else self.base_candidates

    @property
    def images(self) -> int:
        return self.candidates * len(self.cells) + self.of_base * len(self.labels)


@dataclass(frozen=True)
class DrawnRound:
    """The n images of a round that were accepted and answered; arrays (n,). shift_names: the base first. keys: unique
    in the run; `images` uses their last parts.
    """

    asked: RoundAsked
    seed: int
    shift_names: tuple[str, ...]
    shifts: NDArray[np.int64]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    failed: NDArray[np.bool_]
    answers: NDArray[np.int64]
    keys: tuple[str, ...]
    images: LabelledImages

    def of(self, label: int, name: str | None = None) -> NDArray[np.int64]:
        """Return rows of a class on the base, or of a cell, in drawing order."""
        shift = 0 if name is None else self.shift_names.index(name)
        rows = np.flatnonzero((self.shifts == shift) & (self.labels == label))
        return rows[np.argsort(self.indices[rows], kind="stable")]

    def pairs(self, name: str) -> Pairs:
        """Return the cell's images whose base image of the same noise was accepted too."""
        label = self.asked.cells[name].label
        described, base = self.of(label, name), self.of(label)
        indices = (self.indices[described], self.indices[base])
        _, described_at, base_at = np.intersect1d(*indices, assume_unique=True, return_indices=True)
        return Pairs(self, described[described_at], base[base_at])


@dataclass(frozen=True)
class Pairs:
    """n pairs of a round: rows with the description and on the base (n,), in drawing order."""

    drawn: DrawnRound
    described: NDArray[np.int64]
    base: NDArray[np.int64]

    @property
    def count(self) -> PairCount:
        return count_pairs(self.drawn.failed[self.described], self.drawn.failed[self.base])


Draw = Callable[[RoundAsked], DrawnRound]
GROUP = "descriptions"
# A worker takes whole shards; this size gives several workers shards in rounds of a few hundred images.
_ROWS_PER_SHARD = 64


@dataclass(frozen=True)
class RoundDrawer:
    """Draws rounds for a run and collects the target's answers (a `Draw`). past_others: if another round has the
    number, take the next one; by default that is an error.
    """

    run: MiningRun
    past_others: bool = False

    def __call__(self, round_asked: RoundAsked) -> DrawnRound:
        folder, seed = self.run.folder / round_asked.name, self.seed(round_asked)
        layer = self.layer(round_asked, seed)
        if self.past_others and (folder / LAYER).exists() and (folder / LAYER).read_bytes() != layer.encode():
            return self(replace(round_asked, number=round_asked.number + 1))
        answered = answered_round(self.run, round_asked.name, layer)
        if answered is None:
            return nothing_drawn(round_asked, seed)
        opened, rows = answered.opened, np.flatnonzero(answered.predictions.readable)
        return DrawnRound(
            asked=round_asked,
            seed=seed,
            shift_names=tuple(shift.name for shift in opened.recipe.all_shifts()),
            shifts=opened.shifts[rows],
            labels=opened.labels[rows],
            indices=opened.indices[rows],
            failed=answered.failed[rows],
            answers=answered.predictions.prediction[rows].astype(np.int64),
            keys=tuple(f"{round_asked.name}/{opened.keys[row]}" for row in rows.tolist()),
            images=answered.images,
        )

    def seed(self, round_asked: RoundAsked) -> int:
        """Return the round's noise seed. It does not depend on the target: two targets get the same noise."""
        purpose = f"bugs {round_asked.purpose} {round_asked.number}"
        return seed_for(self.run.recipe.samples.seed, purpose, self.run.mine.method, "", self.run.mine.seed)

    def layer(self, round_asked: RoundAsked, seed: int) -> str:
        """Return the round's recipe: all candidates are rendered, and only the screen's thresholds reject images."""
        ids = [self.run.recipe.classes[label].id for label in round_asked.labels]
        base: dict[str, Any] = {"classes": ids}
        if self.run.settings.base is not None:
            base["prompt"] = self.run.settings.base
        changes = {
            "name": derived_name(self.run.recipe.name, f"{round_asked.purpose}-{round_asked.number}"),
            "prompts": {"base": base},
            "samples": {
                "seed": seed, "candidates": round_asked.of_base, "noise": "paired", "accepted": None, "at_most": None,
            },
            "screen": {"keep": ["thresholds"]},
            "output": {"rows_per_shard": _ROWS_PER_SHARD},
        }  # fmt: skip
        samples: dict[str, Any] = {}
        if round_asked.of_base != round_asked.candidates:
            samples = {"samples": {"candidates": round_asked.candidates}}
        shifts = {name: self.shift(cell) | samples for name, cell in round_asked.cells.items()}
        return shifts_layer(shifts, changes, self.run.in_round(self.run.folder / round_asked.name))

    def shift(self, cell: BugHypothesis) -> dict[str, Any]:
        """Return a description as a shift. Only its object is screened: a captioner's words have no threshold."""
        cls = self.run.recipe.classes[cell.label]
        # An oil painting is screened by the caption of styles: it is no photo of its object.
        screened: dict[str, Any] = {"object_caption": self.run.recipe.all_shifts()[0].object_caption}
        if cell.description.styled:
            screened = {"style": True}
        return {
            "kind": "mined",
            "group": GROUP,
            "classes": [cls.id],
            "prompt": cell.description.prompt(base_prompt(self.run.recipe, self.run.settings)),
            **screened,
        }


def base_prompt(recipe: Recipe, settings: BugsSettings) -> str:
    """Return the prompt that descriptions are added to."""
    prompt = settings.base if settings.base is not None else recipe.prompts.base.prompt
    assert prompt is not None  # `wordless_problems` refuses a base without one
    return prompt


def nothing_drawn(round_asked: RoundAsked, seed: int) -> DrawnRound:
    """Return a round without an accepted image."""
    no_rows = np.zeros(0, dtype=np.int64)
    images = LabelledImages(round_asked.name, "", (), no_rows, no_rows, (BASE,), lambda keys: iter(()))
    names = (BASE, *round_asked.cells)
    return DrawnRound(round_asked, seed, names, no_rows, no_rows, no_rows, no_rows.astype(bool), no_rows, (), images)


def filled_base(base: str, cls: RecipeClass) -> str:
    """Return the base prompt of one class with all placeholders filled but `{class}`, for comparison with captions."""
    return cls.text(base, "{class}")


# A round with fewer pairs per cell is not worth its cost.
FEWEST = 4
State = Literal["confirmed", "futile", "open"]


@dataclass(frozen=True)
class Trial:
    """A hypothesis with the pairs that were drawn for it. looks: (pairs, log e-value) after each round."""

    hypothesis: BugHypothesis
    pairs: tuple[Pairs, ...] = ()
    looks: tuple[tuple[int, float], ...] = ()
    state: State = "open"

    @property
    def count(self) -> PairCount:
        return reduce(lambda total, other: total + other, (pair.count for pair in self.pairs), PairCount(0, 0, 0, 0))

    @property
    def drawn(self) -> int:
        """Pairs that were drawn, rejected ones included."""
        return sum(pair.drawn.asked.candidates for pair in self.pairs)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value; 0 before any pair."""
        return self.looks[-1][1] if self.looks else 0.0


@dataclass(frozen=True)
class Trials:
    """Trials of hypotheses, in their order, and the rounds drawn for them."""

    tested: tuple[Trial, ...]
    rounds: tuple[DrawnRound, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """The number of images left to render, and the number of the next round."""

    images: int
    number: int

    def after(self, drawn: RoundAsked) -> Budget:
        return Budget(self.images - drawn.images, drawn.number + 1)


def refuse_small_budget(hypotheses: int, mine: Mine, settings: BugsSettings) -> None:
    """Raise UserError if not even pairs that all disagree could confirm one of so many hypotheses."""
    needed = most_pairs_to_decide(max(hypotheses, 1), mine.fdr)
    if settings.pairs < needed:
        raise UserError(
            f"mine.settings.pairs: {settings.pairs} pairs cannot confirm any of {hypotheses} hypotheses: it"
            f" takes at least {needed}, even if the description fails and the base is right in every pair",
            f"Set mine.settings.pairs to {2 * needed} or more.",
        )


def carry_to_test(
    hypotheses: Sequence[BugHypothesis],
    draw: Draw,
    budget: Budget,
    mine: Mine,
    settings: BugsSettings,
    *,
    family: int,
    purpose: Purpose = "test",
) -> Trials:
    """Test hypotheses in rounds that double the pairs, from `settings.batch` to `settings.pairs`. A hypothesis ends
    when it is futile, or when no results of others in a `family` of that size can undo its confirmation.
    """
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
        # The drawn round may have a later number. Continue after it, because a round drawn twice would count twice.
        budget, drawn_pairs = budget.after(drawn.asked), drawn_pairs + round_asked.candidates
        rounds.append(drawn)
        for trial in open_trials:
            name = trial.hypothesis.name
            more = replace(trial, pairs=(*trial.pairs, drawn.pairs(name)))
            count = more.count
            log_e = log_e_value(count.failing, count.discordant)
            state = decide(count, log_e, threshold, mine.margin) if count.pairs else "open"
            tested[name] = replace(more, looks=(*trial.looks, (count.pairs, log_e)), state=state)
        decided = sum(trial.state != "open" for trial in tested.values())
        report(f"{purpose}: hypotheses decided", decided, len(tested))
    return Trials(tuple(tested.values()), tuple(rounds))


def confirmed_among(tested: Sequence[Trial], mine: Mine) -> list[bool]:
    """Check for each trial whether e-BH over all confirms it. Futile ones and those below the margin never are: with
    enough pairs, the e-value shows negligible differences.
    """
    rejected = e_bh([trial.log_e for trial in tested], mine.fdr)
    confirmed = []
    for trial, is_rejected in zip(tested, rejected, strict=True):
        confirmed.append(is_rejected and trial.state != "futile" and trial.count.difference >= mine.margin)
    return confirmed
