"""A world of numbers in which a search for bugs can be proved: images are attributes, failures have known rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.bugs.descriptions import Description, Piece
from counterfoil.mining.bugs.drawing import DrawnRound, RoundAsked
from counterfoil.mining.bugs.search import Described, FailureCluster
from counterfoil.progress import report
from counterfoil.sources import LabelledImages

PLACES = ("in the snow", "on the road", "in the grass", "by a wall")
COLOURS = ("red", "blue", "white")
Rate = Callable[[int, str, str], float]


def place(words: str) -> Piece:
    return Piece(words, "after")


def colour(words: str) -> Piece:
    return Piece(words, "before")


@dataclass
class World:
    """rate: the chance of a failure of a label's image, by its place and colour. accepted: the screen's share.

    `said` is what a captioner says of a cluster; the true place and colour that most images have, unless it is given.
    """

    rate: Rate
    seed: int = 0
    accepted: float = 1.0
    say: Callable[[Sequence[tuple[str, str]]], Description | None] | None = None
    rounds: list[RoundAsked] = field(default_factory=list)
    seen: dict[str, tuple[str, str]] = field(default_factory=dict)

    def draw(self, asked: RoundAsked) -> DrawnRound:
        self.rounds.append(asked)
        report(asked.name, 0, 1)
        rows = []
        cells = [(0, "base", label, Description(())) for label in asked.labels]
        cells += [(at, name, cell.label, cell.description) for at, (name, cell) in enumerate(asked.cells.items(), 1)]
        for shift, name, label, description in cells:
            for index in range(asked.candidates if shift else asked.of_base):
                # One noise for a class and an index, in every cell: a pair. What it fails by is each half's own.
                noise = np.random.default_rng([self.seed, asked.number, label, index])
                drawn_place, drawn_colour = str(noise.choice(PLACES)), str(noise.choice(COLOURS))
                own = np.random.default_rng([self.seed, asked.number, label, index, shift])
                kept, threshold = own.random() < self.accepted, own.random()
                for piece in description.pieces:
                    drawn_place = piece.words if piece.words in PLACES else drawn_place
                    drawn_colour = piece.words if piece.words in COLOURS else drawn_colour
                key = f"{asked.name}/{name}_{label}_{index:06d}"
                self.seen[key] = (drawn_place, drawn_colour)
                if kept:
                    rows.append((shift, label, index, threshold < self.rate(label, drawn_place, drawn_colour), key))
        return self._round(asked, rows)

    def look(self, keys: Sequence[str]) -> NDArray[np.float32]:
        report("features", 0, len(keys))
        found = np.zeros((len(keys), len(PLACES) + len(COLOURS)), dtype=np.float32)
        for row, key in enumerate(keys):
            found[row, PLACES.index(self.seen[key][0])] = 2.0
            found[row, len(PLACES) + COLOURS.index(self.seen[key][1])] = 1.0
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def describe(self, clusters: Sequence[FailureCluster]) -> Sequence[Described]:
        report("describe", 0, len(clusters))
        found = []
        for cluster in clusters:
            seen = [self.seen[key] for key in cluster.keys]
            said = usual(seen) if self.say is None else self.say(seen)
            found.append(Described(said) if said is not None else Described(None, "says nothing of these images"))
        return found

    def _round(self, asked: RoundAsked, rows: Sequence[tuple[int, int, int, bool, str]]) -> DrawnRound:
        columns: Mapping[str, NDArray[np.int64]] = {
            name: np.asarray([row[at] for row in rows], dtype=np.int64)
            for at, name in enumerate(("shifts", "labels", "indices", "failed"))
        }
        keys = tuple(row[4] for row in rows)
        images = LabelledImages(
            asked.name, "", keys, columns["labels"], columns["shifts"], ("base", *asked.cells), lambda wanted: iter(())
        )
        failed = columns["failed"].astype(bool)
        # A wrong answer is the next class.
        answers = np.where(failed, columns["labels"] + 1, columns["labels"])
        return DrawnRound(
            asked, asked.number, ("base", *asked.cells), columns["shifts"], columns["labels"], columns["indices"],
            failed, answers, keys, images,
        )  # fmt: skip


def usual(seen: Sequence[tuple[str, str]]) -> Description:
    """The place and the colour that most have."""
    places, colours = [one for one, _ in seen], [one for _, one in seen]
    return Description((colour(max(COLOURS, key=colours.count)), place(max(PLACES, key=places.count))))
