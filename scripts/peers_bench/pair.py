"""Two ways to one result, ours and a peer's, measured by turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benches.processes import processor_seconds

# Seconds of each round, ours and the peer's.
Rounds = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Agreement:
    """Whether two results are the same, and how near they are in words."""

    same: bool
    words: str


@dataclass(frozen=True)
class Pair:
    """Two ways to one result, as functions without arguments."""

    what: str
    """What both do, and to how much."""
    peer: str
    """The package that does it too."""
    way: str
    """How the package is used."""
    ours: Callable[[], Any]
    peers: Callable[[], Any]
    agreement: Callable[[Any, Any], Agreement]
    """Compares our result with theirs."""
    most_rounds: int = 7
    """The most rounds that are run; fewer of what is slow."""


@dataclass(frozen=True)
class Measured:
    """The seconds of both ways of a pair in each round, as the processor and the clock count."""

    pair: tuple[str, str, str]
    """What, peer and way."""
    agreement: Agreement
    processor: Rounds
    """Ours and theirs."""
    clock: Rounds

    @property
    def ratios(self) -> list[float]:
        """Return the peer's processor time over ours in each round, sorted."""
        return sorted(peers / ours for ours, peers in zip(*self.processor, strict=True))

    @property
    def slower(self) -> bool:
        """Return whether Counterfoil takes longer in the median round."""
        return median(self.ratios) < 1

    def row(self) -> list[str]:
        what, peer, way = self.pair
        ours, peers = (shown_seconds(median(seconds)) for seconds in self.processor)
        ratios = self.ratios
        by_clock = [peer_seconds / our for our, peer_seconds in zip(*self.clock, strict=True)]
        answer = "yes" if self.agreement.same else "**no**"
        return [
            what,
            f"{peer}: {way}",
            f"{answer}: {self.agreement.words}",
            ours,
            peers,
            f"{median(ratios):.2f}",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f} ({len(ratios)})",
            f"{median(by_clock):.2f}",
        ]


def measured(pair: Pair, rounds: int) -> Measured:
    """Run both ways once, compare their results, and then measure them by turns."""
    agreement = pair.agreement(pair.ours(), pair.peers())
    processor: Rounds = ([], [])
    clock: Rounds = ([], [])
    for _ in range(min(rounds, pair.most_rounds)):
        for side, way in enumerate((pair.ours, pair.peers)):
            used = processor_seconds()
            started = time.perf_counter()
            way()
            clock[side].append(time.perf_counter() - started)
            processor[side].append(processor_seconds() - used)
    return Measured((pair.what, pair.peer, pair.way), agreement, processor, clock)


def shown_seconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def within(what: str, tolerance: float) -> Callable[[Any, Any], Agreement]:
    """Return a comparison of numbers that are the same if none differs by more than this."""

    def compare(ours: Any, peers: Any) -> Agreement:
        difference = float(np.max(np.abs(np.asarray(ours) - np.asarray(peers))))
        return Agreement(difference <= tolerance, f"{what} differ by {difference:.1g} at most")

    return compare
