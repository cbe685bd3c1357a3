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

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.documents import parse_document
from counterfoil.mining.findings import Findings
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.describing import Described, FailureCluster
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.drawing import RoundDrawer
from counterfoil.mining.methods.bugs.trials import DrawnRound, RoundAsked
from counterfoil.mining.mine_recipe import mine
from counterfoil.mining.mined_files import MineResult
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.store.layout import INDEX

PLACES = ("in the snow", "on the road", "in the grass", "by a wall")
COLOURS = ("red", "blue", "white")
SANDAL_CLASS, COAT_CLASS = (
    RecipeClass(name, name, label, label, ()) for label, name in enumerate(("sandal", "coat"))
)
Rate = Callable[[int, str, str], float]


def place(words: str) -> Piece:
    return Piece(words, "after")


def colour(words: str) -> Piece:
    return Piece(words, "before")


@dataclass
class World:
    """rate: the failure rate of a label's images, by place and colour. accepted: the share that the
    screen accepts.

    say: the captioner's description of a cluster. By default, the place and colour that most images
    have.
    """

    rate: Rate
    seed: int = 0
    accepted: float = 1.0
    say: Callable[[Sequence[tuple[str, str]]], Description | None] | None = None
    rounds: list[RoundAsked] = field(default_factory=list)
    seen: dict[str, tuple[str, str]] = field(default_factory=dict)

    def draw(self, request: RoundAsked) -> DrawnRound:
        self.rounds.append(request)
        report_progress(request.name, 0, 1)
        rows = []
        cells = [(0, "base", label, Description(())) for label in request.labels]
        cells += [
            (at, name, cell.label, cell.description)
            for at, (name, cell) in enumerate(request.cells.items(), 1)
        ]
        for shift, name, label, description in cells:
            for index in range(request.candidates if shift else request.of_base):
                # Images of a class and index share noise in all cells, as a pair. Each image fails
                # by noise of its own.
                noise = np.random.default_rng([self.seed, request.number, label, index])
                drawn_place = str(noise.choice(PLACES))
                drawn_colour = str(noise.choice(COLOURS))
                image_noise = np.random.default_rng(
                    [self.seed, request.number, label, index, shift]
                )
                kept = image_noise.random() < self.accepted
                threshold = image_noise.random()
                for piece in description.pieces:
                    drawn_place = piece.words if piece.words in PLACES else drawn_place
                    drawn_colour = piece.words if piece.words in COLOURS else drawn_colour
                key = f"{request.name}/{name}_{label}_{index:06d}"
                self.seen[key] = (drawn_place, drawn_colour)
                if kept:
                    rows.append(
                        (
                            shift,
                            label,
                            index,
                            threshold < self.rate(label, drawn_place, drawn_colour),
                            key,
                        )
                    )
        return self._round(request, rows)

    def look(self, keys: Sequence[str]) -> NDArray[np.float32]:
        report_progress("features", 0, len(keys))
        features = np.zeros((len(keys), len(PLACES) + len(COLOURS)), dtype=np.float32)
        for row, key in enumerate(keys):
            features[row, PLACES.index(self.seen[key][0])] = 2.0
            features[row, len(PLACES) + COLOURS.index(self.seen[key][1])] = 1.0
        return features / np.linalg.norm(features, axis=1, keepdims=True)

    def describe(self, clusters: Sequence[FailureCluster]) -> Sequence[Described]:
        report_progress("describe", 0, len(clusters))
        results = []
        for cluster in clusters:
            seen = [self.seen[key] for key in cluster.keys]
            answer = usual(seen) if self.say is None else self.say(seen)
            results.append(
                Described(answer)
                if answer is not None
                else Described(None, "says nothing of these images")
            )
        return results

    def _round(
        self, request: RoundAsked, rows: Sequence[tuple[int, int, int, bool, str]]
    ) -> DrawnRound:
        columns: Mapping[str, NDArray[np.int64]] = {
            name: np.asarray([row[at] for row in rows], dtype=np.int64)
            for at, name in enumerate(("shifts", "labels", "indices", "failed"))
        }
        keys = tuple(row[4] for row in rows)
        names = ("base", *request.cells)
        labels = columns["labels"]
        shifts = columns["shifts"]
        images = LabelledImages(
            request.name,
            "",
            keys,
            labels,
            shifts,
            names,
            lambda wanted: iter(()),
        )
        failed = columns["failed"].astype(bool)
        # A wrong answer is the next class.
        answers = np.where(failed, labels + 1, labels)
        indices = columns["indices"]
        return DrawnRound(
            request,
            request.number,
            names,
            shifts,
            labels,
            indices,
            failed,
            answers,
            keys,
            images,
        )


def usual(seen: Sequence[tuple[str, str]]) -> Description:
    """Return the place and the colour that most images have."""
    places = [words for words, _ in seen]
    colours = [words for _, words in seen]
    return Description(
        (colour(max(COLOURS, key=colours.count)), place(max(PLACES, key=places.count)))
    )


RECIPE = "wardrobe-bugs"
TARGET = "lab:resnet10t"

T_SHIRT = "00"
SANDAL = "05"
# Two steps draw no sandals. A search with fdr 0.9 goes through every stage with eight pairs.
DRAWN = (
    "generator.steps=3",
    "generator.batch_size=8",
    "screen.object_threshold=0.2",
    "samples.seed=0",
)
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
WRITTEN = (
    "findings.json", "findings.csv", "report.html", "recipe.yaml", "adversarial.yaml", "mine.yaml", "descriptions.csv",
)  # fmt: skip


def searched(out: Path, *sets: str, target: str = TARGET, **more: Any) -> MineResult:
    overrides = [*DRAWN, *SEARCHED, *sets]
    return mine(
        RECIPE,
        out,
        overrides=overrides,
        target=target,
        device="cpu",
        workers=1,
        **more,
    )


def run_of(fdr: float = 0.1, **settings: Any) -> MiningRun:
    """Return a run of the method with other `settings` than its defaults."""
    chosen = BugsSettings.model_validate({"captioner": "lab:captioner"} | settings)
    return MiningRun(
        load_recipe(RECIPE),
        Mine(method="bugs", fdr=fdr),
        chosen,
        RECIPE,
        (),
        Path(),
    )


def findings_of(folder: Path) -> Findings:
    return parse_document(Findings, (folder / "findings.json").read_bytes(), str(folder))


def files_of(folder: Path) -> dict[str, bytes]:
    """Return files of a mining folder by name, without the rounds and without the page that names
    the folder."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and path.name != INDEX
    }


def round_recipes(folder: Path) -> Mapping[str, Recipe]:
    paths = [
        path
        for kind in ("rounds", "tries")
        for path in sorted(folder.glob(f"{kind}/*/recipe.yaml"))
    ]
    return {f"{path.parents[1].name}/{path.parent.name}": load_recipe(path) for path in paths}


@contextmanager
def described_images(*, fail: bool) -> Iterator[None]:
    """Make the target right on every base image, and wrong (`fail`) or right on every described
    image."""
    real = RoundDrawer.__call__

    def drawn_so(self: RoundDrawer, request: RoundAsked) -> DrawnRound:
        drawn = real(self, request)
        failed = (drawn.shifts > 0) & fail
        return replace(
            drawn, failed=failed, answers=np.where(failed, (drawn.labels + 1) % 10, drawn.labels)
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundDrawer, "__call__", drawn_so)
        yield
