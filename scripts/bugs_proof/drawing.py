"""A round as the search asks for it, from the kept pictures: the rows, noise, screen and bytes of
one that is built.

The recipe of a round is `RoundDrawer.layer`'s and its samples are the plan's, so that nothing here
decides what is drawn. What is left out are the dataset's files and a second loading of the models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from bugs_proof.answering import Panel
from bugs_proof.pictures import PictureCell, Pictures, PictureStore
from counterfoil.arrays import Floats32, Ints
from counterfoil.building.inputs import thresholds_of
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.open_source import open_source
from counterfoil.generate.pictures import encode_image
from counterfoil.generate.screen.scores import shift_scores
from counterfoil.generate.screen.thresholds import (
    Measured,
    ThresholdEntry,
    Thresholds,
    needs_validation,
    resolve_thresholds,
)
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.drawing import RoundDrawer
from counterfoil.mining.methods.bugs.trials import DrawnRound, RoundAsked, nothing_drawn
from counterfoil.models.clip import pin_clip
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe, load_recipe, object_caption_for
from counterfoil.recipe.keep.cells import ACCEPTED, decide_cell
from counterfoil.recipe.keep.rule import OBJECT, SHIFT, Verdict
from proof_files import saved, text_digest

_MEASURED: dict[Path, dict[Measured, ThresholdEntry]] = {}


@dataclass(frozen=True)
class DrawnCell:
    """Accepted pictures of one shift and class of a round, in drawing order. indices: (n,)."""

    shift: str
    label: int
    cell: PictureCell
    indices: Ints
    samples: tuple[Sample, ...]


@dataclass
class ProofDrawer:
    """Draws rounds for one target from pictures that are kept, and lets it answer them. It is a
    `Draw`.

    drawer: as `mine` would draw them, with a folder of its own for the recipes of rounds. cells,
    images: what was drawn, by the start of the keys of a round.
    """

    drawer: RoundDrawer
    store: PictureStore
    panel: Panel
    cells: dict[str, tuple[DrawnCell, ...]] = field(default_factory=dict)
    images: dict[str, LabelledImages] = field(default_factory=dict)

    def __call__(self, request: RoundAsked) -> DrawnRound:
        seed = self.drawer.seed(request)
        recipe = self._recipe(request, seed)
        plan = make_plan(
            recipe, None if self.store.tokens is None else self.store.tokens.placeholders
        )
        planned = list(_planned(plan))
        for done, total in self.store.of([(cell, samples) for _, cell, samples in planned]):
            report_progress(f"{request.name}: images", done, total)
        thresholds = self._thresholds(recipe)
        drawn = tuple(self._screened(plan, thresholds, *cell) for cell in planned)
        self.cells[f"{request.name}/"] = drawn
        base = plan.recipe.all_shifts()[0].name
        if not any(len(cell.indices) for cell in drawn if cell.shift == base):
            return nothing_drawn(request, seed)
        result = self._round(request, seed, recipe, drawn)
        self.images[f"{request.name}/"] = result.images
        return result

    def pictures(self, drawn_cell: DrawnCell) -> Pictures:
        """Return the accepted pictures of a cell."""
        known = self.store[drawn_cell.cell]
        return Pictures(known.pixels[drawn_cell.indices], known.features[drawn_cell.indices])

    def look(self, keys: Sequence[str]) -> Floats32:
        """Return the features (`Features`) with which the screen judged these pictures."""
        report_progress("features", len(keys), len(keys))
        features_by_key: dict[str, Floats32] = {}
        for start, drawn in self.cells.items():
            for cell in drawn if any(key.startswith(start) for key in keys) else ():
                features = self.pictures(cell).features
                named = (f"{start}{sample.key}" for sample in cell.samples)
                features_by_key |= dict(zip(named, features, strict=True))
        return np.stack([features_by_key[key] for key in keys])

    def _recipe(self, request: RoundAsked, seed: int) -> Recipe:
        folder = self.drawer.run.folder / request.name
        layer = self.drawer.layer(request, seed)
        # Beside each other, since another run of the proof may ask for other cells in a round of
        # this number.
        path = folder / f"{text_digest(layer)[:12]}.yaml"
        saved(path, lambda to: to.write(layer.encode()))
        return load_recipe(path)

    def _screened(
        self,
        plan: Plan,
        thresholds: Thresholds,
        shift_name: str,
        cell: PictureCell,
        samples: Sequence[Sample],
    ) -> DrawnCell:
        shift = plan.shift(shift_name)
        label = samples[0].label
        text = self.store.embed_text(object_caption_for(shift, plan.class_of(label)))
        features = self.store[cell].features[: len(samples)]
        scores = shift_scores(features, np.stack([text] * len(samples)), [None] * len(samples))
        limits = thresholds.of(shift_name, samples[0].class_id)
        verdicts = [Verdict({OBJECT: seen, SHIFT: None}, limits) for seen, _ in scores]
        reasons = decide_cell(shift.keep, verdicts, None)
        kept = [index for index, reason in enumerate(reasons) if reason == ACCEPTED]
        return DrawnCell(
            shift_name,
            label,
            cell,
            np.asarray(kept, np.int64),
            tuple(samples[index] for index in kept),
        )

    def _round(
        self, request: RoundAsked, seed: int, recipe: Recipe, drawn: Sequence[DrawnCell]
    ) -> DrawnRound:
        names = tuple(shift.name for shift in recipe.all_shifts())
        target = self.drawer.run.mine.target or ""
        answers = [
            self.panel.answers(self.store, cell.cell, target)[cell.indices] for cell in drawn
        ]
        right = self.panel.right_of(target)
        failed = [
            ~np.isin(answer, right[cell.label]) for answer, cell in zip(answers, drawn, strict=True)
        ]
        counts = [len(cell.indices) for cell in drawn]
        labels = np.repeat([cell.label for cell in drawn], counts).astype(np.int64)
        shifts = np.repeat([names.index(cell.shift) for cell in drawn], counts).astype(np.int64)
        keys = tuple(sample.key for cell in drawn for sample in cell.samples)
        decides = [self.store.folder.name, *(cell.cell.name for cell in drawn), *keys]
        content = hashlib.sha256("\0".join(decides).encode()).hexdigest()

        def read(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
            for cell in drawn:
                pixels = self.store[cell.cell].pixels
                for sample, index in zip(cell.samples, cell.indices.tolist(), strict=True):
                    if wanted is None or sample.key in wanted:
                        yield sample.key, encode_image(Image.fromarray(pixels[index]), recipe)

        return DrawnRound(
            asked=request,
            seed=seed,
            shift_names=names,
            shifts=shifts,
            labels=labels,
            indices=np.concatenate([cell.indices for cell in drawn]).astype(np.int64),
            failed=np.concatenate(failed),
            answers=np.concatenate(answers).astype(np.int64),
            keys=tuple(f"{request.name}/{key}" for key in keys),
            images=LabelledImages(request.name, content, keys, labels, shifts, names, read),
        )

    def _thresholds(self, recipe: Recipe) -> Thresholds:
        """Return the thresholds of a round; a painting has a caption of its own, which the mined
        recipe lacks."""
        known = _measured(self.drawer.run.recipe, self.store.folder)
        if needs_validation(recipe, known):
            known |= _captioned(recipe, _thresholds_of(recipe, known))
        return resolve_thresholds(recipe, None, known)


def round_drawer(
    recipe: Recipe, source: str, overrides: Sequence[str], folder: Path
) -> RoundDrawer:
    """Return the drawer that `mine --method bugs` would use."""
    from counterfoil.recipe.schema_mine import BugsSettings

    assert recipe.mine is not None
    settings = BugsSettings.model_validate(recipe.mine.settings)
    return RoundDrawer(MiningRun(recipe, recipe.mine, settings, source, overrides, folder))


def _measured(recipe: Recipe, folder: Path) -> dict[Measured, ThresholdEntry]:
    """Return known percentiles, those of the mined recipe first, and keep what this process
    measured in the folder."""
    path = folder / f"thresholds-{recipe.screen_hash[:12]}.json"
    if not path.exists():
        thresholds = _thresholds_of(recipe, {})
        saved(path, lambda to: to.write(thresholds.content()))
    if path not in _MEASURED:
        _MEASURED[path] = _captioned(recipe, Thresholds.read(path.read_bytes()))
    return _MEASURED[path]


def _captioned(recipe: Recipe, thresholds: Thresholds) -> dict[Measured, ThresholdEntry]:
    return dict(
        thresholds.measured({shift.name: shift.object_caption for shift in recipe.all_shifts()})
    )


def _thresholds_of(recipe: Recipe, known: Mapping[Measured, ThresholdEntry]) -> Thresholds:
    screen = pin_clip(recipe.screen.clip, recipe.screen.weights)
    return thresholds_of(recipe, known, "cpu", screen, open_source(recipe.source).pin)


def _planned(plan: Plan) -> Iterator[tuple[str, PictureCell, list[Sample]]]:
    """Yield (shift, picture cell, samples) of every cell of a round."""
    for cell in plan.cells():
        samples = list(plan.samples(cell))
        if samples:
            yield (
                cell.shift,
                PictureCell(samples[0].prompt or "", samples[0].class_id, plan.recipe.samples.seed),
                samples,
            )
