"""What the parts of the proof share for one target: its runs by arm, the truth, and fresh pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from bugs_proof.arms import progress_printed, run_of_arm
from bugs_proof.audits import Audit
from bugs_proof.pictures import PictureCell
from bugs_proof.plan import ARMS, PANELS, Arm, Asked, Group
from bugs_proof.runs import Carried, Run
from bugs_proof.truth import Claims, TrueRate, Truth, truth_of
from bugs_proof.words import named, renderable
from counterfoil.arrays import Bools
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.methods.bugs.descriptions import Description
from counterfoil.mining.methods.bugs.trials import BugHypothesis, RoundAsked
from counterfoil.models.captioners import Captioner, load_captioner
from counterfoil.models.names import local_folder
from counterfoil.paired_stats import PairCount, count_pairs

# No search has so many rounds: what is drawn to judge findings is noise that no test saw.
_FRESH_ROUND = 90
# Images of which the oracle agrees that they show what is named; of fewer no rate is reported.
FEWEST_SEEN = 8


@dataclass(frozen=True, slots=True)
class FreshPairs:
    """What a finding's words draw on noise that chose and confirmed nothing.

    count: its pairs. failed, shows: (n,) of its accepted images, and whether the oracle sees class
    and attributes.
    base_failed, base_shows: (m,) of the base's, and whether it sees the class.
    """

    count: PairCount
    failed: Bools
    shows: Bools
    base_failed: Bools
    base_shows: Bools

    @property
    def seen_difference(self) -> float | None:
        """The difference of failure rates of images that show what is named; None if too few do."""
        if min(self.shows.sum(), self.base_shows.sum()) < FEWEST_SEEN:
            return None
        return float(self.failed[self.shows].mean() - self.base_failed[self.base_shows].mean())

    @property
    def agreement(self) -> float | None:
        """The share of its images that show what is named."""
        return float(self.shows.mean()) if len(self.shows) else None


@dataclass(frozen=True)
class Proof:
    """A target's part of the proof. captioner: of the lab, or a folder that stands for it; arms:
    those that are compared."""

    target: str
    asked: Asked
    kept: Path
    captioner: str
    arms: Sequence[Arm] = tuple(ARMS)

    @cached_property
    def audit(self) -> Audit:
        return Audit(self.target, self.asked, self.kept)

    def run(self, arm: Arm) -> Run:
        """Return an arm's run, kept or made now."""
        folder = local_folder(self.captioner)
        assert folder is not None
        return run_of_arm(self.audit, arm, captioner_of(self.captioner), folder)

    @cached_property
    def truth(self) -> Truth:
        return _truth(self.audit.group, self.asked, self.kept)

    def true_rate(self, label: int, claims: Claims) -> TrueRate | None:
        """Return the true rate of a class with some claims; None if no scene can have them."""
        if not renderable(claims):
            return None
        return self.truth.rate(self.target, label, claims)

    def fresh(self, findings: Sequence[Carried]) -> list[FreshPairs]:
        """Return fresh pairs of some findings, in their order; findings of equal words share their
        pairs."""
        audit = self.audit
        wanted = {
            (finding.label, finding.description): f"fresh_{index:03d}"
            for index, finding in enumerate(findings)
        }
        if not wanted:
            return []
        drawer = audit.drawer("fresh")
        cells = {
            name: BugHypothesis(name, label, description)
            for (label, description), name in wanted.items()
        }
        labels = tuple(sorted({label for label, _ in wanted}))
        with progress_printed(f"{self.target} fresh"):
            drawn = drawer(RoundAsked(_FRESH_ROUND, "again", self.asked.fresh, cells, labels))
        shows = {(cell.shift, cell.label): cell for cell in drawer.cells[f"{drawn.asked.name}/"]}
        fresh_pairs: dict[tuple[int, Description], FreshPairs] = {}
        for (label, description), name in wanted.items():
            pairs = drawn.pairs(name)
            described = shows[name, label]
            base = shows[drawn.shift_names[0], label]
            fresh_pairs[label, description] = FreshPairs(
                count_pairs(drawn.failed[pairs.described], drawn.failed[pairs.base]),
                drawn.failed[drawn.of(label, name)],
                seen_with(audit, described.cell, label, named(description))[described.indices],
                drawn.failed[drawn.of(label)],
                seen_with(audit, base.cell, label, ())[base.indices],
            )
        return [fresh_pairs[finding.label, finding.description] for finding in findings]


def seen_with(audit: Audit, cell: PictureCell, label: int, claims: Claims) -> Bools:
    """Return (n,) in which of a cell's pictures the oracle sees the class and all claims."""
    seen = audit.panel.seen(audit.store, cell)
    agrees = seen["class"] == label
    for attribute, value in claims:
        agrees = agrees & (seen[attribute] == ATTRIBUTES[attribute].index(value))
    return agrees


@cache
def _truth(group: Group, run: Asked, kept: Path) -> Truth:
    return truth_of(Audit(PANELS[group][0], run, kept))


@cache
def captioner_of(name: str) -> Captioner:
    """Return the captioner of a proof, loaded once."""
    return load_captioner(name)
