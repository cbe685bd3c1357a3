"""Hypotheses drawn in pairs with fresh base images, round after round, until each is decided or the budget ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import log
from typing import Any, Literal

from counterfoil.errors import UserError
from counterfoil.mining.bugs.descriptions import Description
from counterfoil.mining.bugs.drawing import DescribedCell, Draw, DrawnRound, Pairs, Purpose, RoundAsked
from counterfoil.paired_stats import PairCount, decide, log_e_value, most_pairs_to_decide
from counterfoil.progress import report
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.stats import e_bh

# Fewer pairs of a cell are not worth the round.
FEWEST = 4
State = Literal["confirmed", "futile", "open"]


@dataclass(frozen=True, slots=True)
class BugHypothesis:
    """A class and a description of which is asked whether it makes the target fail more often than the base.

    name: a shift's. origin: whether a cluster was described so, that was shortened (from `parent`), or a person wrote
    it. evidence: keys of the failures that were described. about: what is told of it, as JSON takes it.
    """

    name: str
    label: int
    description: Description
    origin: Literal["found", "shortened", "tried"] = "found"
    parent: str | None = None
    evidence: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A hypothesis with what was drawn for it. looks: (pairs, log e-value) after each round."""

    hypothesis: BugHypothesis
    pairs: tuple[Pairs, ...] = ()
    looks: tuple[tuple[int, float], ...] = ()
    state: State = "open"

    @property
    def count(self) -> PairCount:
        return reduce(lambda one, other: one + other, (each.count for each in self.pairs), PairCount(0, 0, 0, 0))

    @property
    def drawn(self) -> int:
        """Pairs that were drawn, those that the screen rejected included."""
        return sum(each.drawn.asked.candidates for each in self.pairs)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value; 0 before any pair."""
        return self.looks[-1][1] if self.looks else 0.0


@dataclass(frozen=True)
class Trials:
    """What became of some hypotheses, in their order, and the rounds that were drawn for them."""

    tested: tuple[Trial, ...]
    rounds: tuple[DrawnRound, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """How many images may still be drawn, and the number of the next round."""

    images: int
    number: int

    def after(self, drawn: RoundAsked) -> Budget:
        return Budget(self.images - drawn.images, drawn.number + 1)


def refuse_small_budget(hypotheses: int, mine: Mine, settings: BugsSettings) -> None:
    """UserError where not even pairs that all disagree would confirm one of so many hypotheses."""
    needed = most_pairs_to_decide(max(hypotheses, 1), mine.fdr)
    if settings.pairs < needed:
        raise UserError(
            f"mine.settings.pairs: {settings.pairs} pairs cannot confirm one of {hypotheses} hypotheses: {needed} at"
            " the least, if the description failed and the base was right in every one",
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
    """Draw each hypothesis beside the base of its class, and look at all of them after each round.

    Rounds double the pairs, from `settings.batch` to `settings.pairs`. A hypothesis leaves when it is futile, or when
    no other of a `family` of so many could take its confirmation away. Its words were fixed before any image of these
    rounds was drawn, and hypotheses of one class share the base images beside them. What the images of the budget do
    not reach stays open.
    """
    threshold = log(max(family, 1) / mine.fdr)
    tested = {one.name: Trial(one) for one in hypotheses}
    rounds: list[DrawnRound] = []
    drawn_pairs = 0
    while drawn_pairs < settings.pairs:
        left = [one for one in tested.values() if one.state == "open"]
        if not left:
            break
        asked = _next_round(left, budget, min(max(drawn_pairs, settings.batch), settings.pairs - drawn_pairs), purpose)
        if asked is None:
            break
        drawn = draw(asked)
        # Drawn may be one of a later number, past rounds of others: what is drawn twice would count twice.
        budget, drawn_pairs = budget.after(drawn.asked), drawn_pairs + asked.candidates
        rounds.append(drawn)
        for one in left:
            name = one.hypothesis.name
            tested[name] = looked_at(one, drawn.pairs(name), threshold, mine)
        decided = sum(one.state != "open" for one in tested.values())
        report(f"{purpose}: hypotheses decided", decided, len(tested))
    return Trials(tuple(tested.values()), tuple(rounds))


def looked_at(one: Trial, pairs: Pairs, threshold: float, mine: Mine) -> Trial:
    """The hypothesis with some more pairs, and where it stands now."""
    more = replace(one, pairs=(*one.pairs, pairs))
    count = more.count
    found = log_e_value(count.failing, count.discordant)
    state = decide(count, found, threshold, mine.margin) if count.pairs else "open"
    return replace(more, looks=(*one.looks, (count.pairs, found)), state=state)


def confirmed_among(tested: Sequence[Trial], mine: Mine) -> list[bool]:
    """Which are confirmed by e-BH over all of them.

    What was given up as futile is none, whatever its e-value, nor what fails by less than the margin above the base:
    the e-value is against no difference at all, and with pairs enough it shows differences of no account.
    """
    rejected = e_bh([one.log_e for one in tested], mine.fdr)
    return [
        found and one.state != "futile" and one.count.difference >= mine.margin
        for one, found in zip(tested, rejected, strict=True)
    ]


def _next_round(left: Sequence[Trial], budget: Budget, pairs: int, purpose: Purpose) -> RoundAsked | None:
    """The round that gives each hypothesis `pairs` more, or as many as the budget still has; None where that is few."""
    cells = {one.hypothesis.name: DescribedCell(one.hypothesis.label, one.hypothesis.description) for one in left}
    labels = tuple(sorted({cell.label for cell in cells.values()}))
    pairs = min(pairs, budget.images // (len(cells) + len(labels)))
    return RoundAsked(budget.number, purpose, pairs, cells, labels) if pairs >= FEWEST else None
