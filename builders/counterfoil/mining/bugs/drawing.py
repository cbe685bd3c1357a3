"""What a search asks to be drawn, what it gets, and which of it are pairs: values on arrays, whoever draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.bugs.descriptions import Description
from counterfoil.mining.findings import Purpose
from counterfoil.paired_stats import PairCount, count_pairs
from counterfoil.sources import LabelledImages

TRIED = "tries"


@dataclass(frozen=True, slots=True)
class DescribedCell:
    """One class as a description has it."""

    label: int
    description: Description


@dataclass(frozen=True, slots=True)
class RoundAsked:
    """A round: its number in the run and its purpose, `candidates` images a cell, cells by name, and the base of some
    classes beside them: as many images, or `base_candidates`."""

    number: int
    purpose: Purpose
    candidates: int
    cells: Mapping[str, DescribedCell]
    labels: tuple[int, ...]
    base_candidates: int | None = None

    @property
    def name(self) -> str:
        """Its folder. What is tried by hand has numbers of its own, so that a search may still go on beside it."""
        return f"{TRIED if self.purpose in ('try', 'try_estimate') else 'rounds'}/{self.number:02d}"

    @property
    def of_base(self) -> int:
        """Images of the base a class."""
        return self.candidates if self.base_candidates is None else self.base_candidates

    @property
    def images(self) -> int:
        """How many images it draws."""
        return self.candidates * len(self.cells) + self.of_base * len(self.labels)


@dataclass(frozen=True)
class DrawnRound:
    """The n images of a round that the screen accepted and the target answered.

    shift_names: the base first. shifts, labels, indices: (n,). failed: (n,) by the failure rule. answers: (n,) the
    target's best output. keys: one a row, unique in the run. images: the encoded ones, by the last part of their keys.
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
        """Rows of a class on the base, or of a cell, in drawing order."""
        shift = 0 if name is None else self.shift_names.index(name)
        rows = np.flatnonzero((self.shifts == shift) & (self.labels == label))
        return rows[np.argsort(self.indices[rows], kind="stable")]

    def pairs(self, name: str) -> Pairs:
        """The cell's images that the screen accepted together with the base image of their noise."""
        label = self.asked.cells[name].label
        own, base = self.of(label, name), self.of(label)
        _, there, here = np.intersect1d(self.indices[own], self.indices[base], assume_unique=True, return_indices=True)
        return Pairs(self, own[there], base[here])


@dataclass(frozen=True)
class Pairs:
    """n pairs of a round: rows of the description and of the base (n,), in drawing order."""

    drawn: DrawnRound
    own: NDArray[np.int64]
    base: NDArray[np.int64]

    @property
    def count(self) -> PairCount:
        return count_pairs(self.drawn.failed[self.own], self.drawn.failed[self.base])


Draw = Callable[[RoundAsked], DrawnRound]
