"""A small search: in a world that answers by rule, and a real one in the lab."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.mining.findings import Findings
from counterfoil.mining.methods.bugs.describing import Described, FailureCluster
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.trials import DrawnRound, RoundAsked, RoundDrawer
from counterfoil.mining.mine_recipe import mine
from counterfoil.mining.mined_files import MineResult
from counterfoil.progress import report
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.store.layout import INDEX

PLACES = ("in the snow", "on the road", "in the grass", "by a wall")
COLOURS = ("red", "blue", "white")
SANDAL_CLASS, COAT_CLASS = (RecipeClass(name, name, label, label, ()) for label, name in enumerate(("sandal", "coat")))
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


RECIPE, TARGET = "wardrobe-bugs", "lab:resnet10t"

T_SHIRT, SANDAL = "00", "05"
# Two steps draw no sandals. One that may report nearly everything goes through every stage with eight pairs.
DRAWN = ("generator.steps=3", "generator.batch_size=8", "screen.object_threshold=0.2", "samples.seed=0")
SEARCHED = (
    f'mine.settings.classes=["{T_SHIRT}", "{SANDAL}"]',
    "mine.settings.baseline=12",
    "mine.settings.fewest_failures=1",
    "mine.settings.clusters=1",
    "mine.settings.captions=2",
    "mine.settings.described=2",
    "mine.settings.batch=4",
    "mine.settings.pairs=8",
    "mine.settings.estimate_pairs=8",
    "mine.settings.adversarial=4",
    "mine.fdr=0.9",
    "mine.margin=0",
)
WRITTEN = ("findings.json", "findings.csv", "report.html", "recipe.yaml", "adversarial.yaml", "mine.yaml")


def searched(out: Path, *sets: str, target: str = TARGET, **more: Any) -> MineResult:
    """`mine` with the small settings, and with `sets` over them."""
    overrides = [*DRAWN, *SEARCHED, *sets]
    return mine(RECIPE, out, overrides=overrides, target=target, device="cpu", workers=1, **more)


def findings_of(folder: Path) -> Findings:
    return Findings.from_json((folder / "findings.json").read_bytes(), str(folder))


def files_of(folder: Path) -> dict[str, bytes]:
    """What mining wrote in its folder, by name, beside the rounds, and beside the page that names the folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != INDEX}


def round_recipes(folder: Path) -> Mapping[str, Recipe]:
    """The recipe of each round, by the round's name."""
    found = [path for kind in ("rounds", "tries") for path in sorted(folder.glob(f"{kind}/*/recipe.yaml"))]
    return {f"{path.parents[1].name}/{path.parent.name}": load_recipe(path) for path in found}


@contextmanager
def described_images(*, fail: bool) -> Iterator[None]:
    """Rounds are drawn as they are; the target is right about every base, and about every described image or none."""
    real = RoundDrawer.__call__

    def drawn_so(self: RoundDrawer, asked: RoundAsked) -> DrawnRound:
        drawn = real(self, asked)
        failed = (drawn.shifts > 0) & fail
        return replace(drawn, failed=failed, answers=np.where(failed, (drawn.labels + 1) % 10, drawn.labels))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundDrawer, "__call__", drawn_so)
        yield
