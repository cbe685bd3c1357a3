"""What a search for bugs draws from and leaves behind: its images by key, and the files of its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.documents import read_document
from counterfoil.embedding import Embedder, clip_embedder
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mining.audited import features_of
from counterfoil.mining.bugs.adversarial import adversarial_layer
from counterfoil.mining.bugs.drawing import Draw, DrawnRound, RoundAsked
from counterfoil.mining.bugs.family import tried_of
from counterfoil.mining.bugs.rounds import base_prompt
from counterfoil.mining.bugs.search import Features
from counterfoil.mining.findings import Findings, RoundDrawn, findings_json
from counterfoil.mining.findings_layer import layer_of
from counterfoil.mining.mined_files import ADVERSARIAL, LAYER, RELABEL, MineResult, leave, write_files
from counterfoil.mining.report import pictures_wanted, thumbnails
from counterfoil.mining.round_dataset import DATASET, round_doubts
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sources import LabelledImages, rows_of
from counterfoil.store.decoding import readable_image

ASKED, TRIES = "mine.yaml", "tries.json"
_PREDICTIONS = "predictions:"


def refuse_undrawn(recipe: Recipe, mine: Mine, settings: BugsSettings) -> None:
    """UserError, before anything is computed, where nothing can be drawn or answered."""
    problems = []
    if mine.target is None:
        raise UserError("no classifier to audit: mine.target is not set", "Name one: --target lab:resnet10t")
    if mine.target.startswith(_PREDICTIONS):
        problems.append(f"mine.target: the method 'bugs' asks the target about new images, and {mine.target} has none")
    if recipe.generator.takes_rows:
        problems.append(
            f"mine.method: 'bugs' draws images, and generator.kind is '{recipe.generator.kind}': it draws none of noise"
            " alone"
        )
    if recipe.source.conditions is not None:
        problems.append("mine.method: 'bugs' draws images of one class each, and rows here have conditions")
    problems += _wordless(recipe, settings)
    if problems:
        raise UserError(problems)


def refuse_wordless(recipe: Recipe, settings: BugsSettings) -> None:
    """UserError where a recipe has no base prompt to add words to, or its classes none of the words that it uses."""
    problems = _wordless(recipe, settings)
    if problems:
        raise UserError(problems)


def _wordless(recipe: Recipe, settings: BugsSettings) -> list[str]:
    if settings.base is None and recipe.prompts.base.prompt is None:
        return ["mine.settings.base: the recipe's base is drawn from no prompt, so that no words can be added"]
    base = base_prompt(recipe, settings)
    return [
        f"mine.settings.base: the class '{cls.name}' has no words for '{base}'"
        for cls in recipe.classes
        if not cls.has_words_for(base)
    ][:5]


def written(
    findings: Findings,
    images_of: Callable[[frozenset[str]], Mapping[str, bytes]],
    recipe: Recipe,
    settings: BugsSettings,
    source: str | Path,
    overrides: Sequence[str],
    folder: Path,
    asked: str | None = None,
    relabel: str | None = None,
) -> MineResult:
    """Write the findings, their table, page and recipes in `folder`; asked: what was asked, where that is new; relabel:
    the table of rows to relabel."""
    if findings.halves is None and findings.rounds:
        # The first round shows every class.
        findings = findings.doubted(round_doubts(folder / findings.rounds[0].name))
    pictures = thumbnails(images_of(frozenset(pictures_wanted(findings))), readable_image)
    files = {name: text.encode() for name, text in ((ASKED, asked), (RELABEL, relabel)) if text is not None}
    # Of images that exist there is nothing to draw again.
    layer = None if findings.halves is not None else layer_of(findings, recipe, source, overrides, folder)
    tried, more = tried_of(findings), []
    if tried.rounds:
        # Beside the findings, which every run writes anew: what was tried by hand nobody else can find again.
        write_files(folder, {TRIES: findings_json(tried).encode()})
    if layer is not None:
        files[LAYER] = layer.encode()
        if settings.adversarial:
            more.append(partial(_write_adversarial, folder, findings, files[LAYER], settings))
    return leave(folder, findings, pictures, files, more)


def _write_adversarial(folder: Path, findings: Findings, layer: bytes, settings: BugsSettings) -> None:
    """The recipe of a benchmark. It is over the findings' own, which has to lie there."""
    write_files(folder, {LAYER: layer})
    text = adversarial_layer(
        folder / LAYER,
        [findings.target.name],
        folder,
        accepted=settings.adversarial,
        at_most=settings.at_most,
        method=findings.method.name,
        seed=findings.run_seed,
        failure=findings.failure,
    )
    write_files(folder, {ADVERSARIAL: text.encode()})


def kept_tries(folder: Path, recipe: Recipe, mine: Mine, settings: BugsSettings) -> Findings | None:
    """What was tried by hand in a folder, if anything was.

    UserError where that was of another recipe, target, base or failure rule: its answers mean something else.
    """
    path = folder / TRIES
    if not path.exists():
        return None
    tried = Findings.from_json(read_document(path), str(path))
    theirs = (tried.recipe.sha256, tried.target.name, tried.failure, tried.method.settings.get("base"))
    if theirs != (recipe.recipe_hash, mine.target, mine.failure, settings.base):
        raise UserError(
            f"{path} holds what was tried by hand of another recipe, target, base or failure rule",
            "Name another folder with --out, or remove that file.",
        )
    return tried


def images_of_rounds(folder: Path, rounds: Sequence[RoundDrawn]) -> dict[str, LabelledImages]:
    """The images of a folder's rounds, by where their keys begin, of those that are there."""
    found = {}
    for one in rounds:
        place = folder / one.name / DATASET
        if one.accepted and place.is_dir():
            found[f"{one.name}/"] = open_dataset(place).labelled()
    return found


@dataclass
class KeptImages:
    """What was drawn, by where keys begin, so that it can be looked at again."""

    drawer: Draw
    images: dict[str, LabelledImages] = field(default_factory=dict)

    def draw(self, asked: RoundAsked) -> DrawnRound:
        """A `Draw` that remembers."""
        drawn = self.drawer(asked)
        self.images[f"{drawn.asked.name}/"] = drawn.images
        return drawn

    def look(self, recipe: Recipe, device: str) -> Features:
        """By the recipe's CLIP, which is loaded when first asked."""
        loaded: list[Embedder] = []

        def features(keys: Sequence[str]) -> NDArray[np.float32]:
            if not loaded:
                pin = pin_clip(recipe.screen.clip, recipe.screen.weights)
                clip = load_clip(recipe.screen.clip, recipe.screen.weights, device, revision=pin.revision)
                loaded.append(clip_embedder(clip, pin))
            found: dict[str, NDArray[np.float32]] = {}
            for start, images in self.images.items():
                own = frozenset(key.removeprefix(start) for key in keys if key.startswith(start))
                if own:
                    rows = np.flatnonzero([key in own for key in images.keys])
                    chosen = replace(rows_of(images, rows), units=None)
                    vectors = features_of(chosen, loaded[0])
                    rows_found = zip(chosen.keys, np.asarray(vectors, dtype=np.float32), strict=True)
                    found |= {f"{start}{key}": vector for key, vector in rows_found}
            return np.stack([found[key] for key in keys])

        return features


def images_by_key(images: Mapping[str, LabelledImages], keys: frozenset[str]) -> dict[str, bytes]:
    """The encoded images of some keys, by where they begin."""
    found: dict[str, bytes] = {}
    for start, part in images.items():
        own = frozenset(key.removeprefix(start) for key in keys if key.startswith(start))
        if own:
            found |= {f"{start}{key}": image for key, image in part.images(own) if image is not None}
    return found
