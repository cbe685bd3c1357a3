"""What a captioner makes of clusters: captions of their images, cut into pieces, joined by their likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.captioning import caption_images, likelihoods_of
from counterfoil.mining.bugs.combining import combine
from counterfoil.mining.bugs.descriptions import CLASS, Description, Piece, pieces_of
from counterfoil.mining.bugs.rounds import base_prompt, spoken_base
from counterfoil.mining.bugs.search import Described, FailureCluster
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.progress import report
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sources import LabelledImages
from counterfoil.user_cache import user_cache

# Pieces that the joining chooses among: those that most captions say.
_MOST_PIECES = 24


@dataclass(frozen=True)
class ClusterDescriber:
    """Describes clusters for one run. It is a `Describe`. images: those that the clusters' keys are of."""

    recipe: Recipe
    mine: Mine
    settings: BugsSettings
    captioner: Captioner
    examples: Sequence[CaptionExample]
    images: Mapping[str, LabelledImages]

    def __call__(self, clusters: Sequence[FailureCluster]) -> list[Described]:
        found = []
        for place, cluster in enumerate(clusters):
            report("clusters described", place, len(clusters))
            found.append(self._described(cluster))
        report("clusters described", len(clusters), len(clusters))
        return found

    def _described(self, cluster: FailureCluster) -> Described:
        cls = self.recipe.classes[cluster.label]
        base = spoken_base(base_prompt(self.recipe, self.settings), cls)
        keys = cluster.keys[: self.settings.described]
        # Completions of the whole base name the class, whatever the image shows; those of its beginning may also say
        # what stands before the class, and count where they come to its name.
        told: list[str] = []
        for prefix in (base.replace(CLASS, cls.name), base.partition(CLASS)[0].strip()):
            told += self._captions(keys, prefix)
        often = pieces_said(told, base, cls)
        if not often:
            said = "nothing" if not any(told) else "nothing that a prompt could say more than the base"
            return Described(
                None, f"{self.settings.captioner} says {said} of these images", tuple(sorted(set(told))[:8])
            )
        chosen = sorted(often, key=lambda piece: -often[piece])[:_MOST_PIECES]

        def score(descriptions: Sequence[Description]) -> NDArray[np.float64]:
            prompts = [one.prompt(base, cls.name) for one in descriptions]
            # What the captioner has no room for it has never said: as unlikely as can be.
            fitting = [place for place, prompt in enumerate(prompts) if self.captioner.fits(prompt)]
            likely = np.full((len(prompts), len(keys)), -np.inf)
            if not fitting:
                return likely
            asked = [prompts[place] for place in fitting]
            likely[fitting] = self._per_token(keys, asked)
            if self.settings.rank == "contrast" and cluster.right:
                likely[fitting] -= self._per_token(cluster.right, asked).mean(axis=1, keepdims=True)
            return likely

        best = combine(chosen, score, self.settings.sentences)
        said = tuple(sorted(set(told), key=lambda text: (-told.count(text), text))[:8])
        if not np.isfinite(best.trace[-1].likelihood):
            return Described(None, f"{self.settings.captioner} has no room for what it says of these images", said)
        return Described(best.description, None, said, best.trace[-1].likelihood)

    def _captions(self, keys: Sequence[str], prefix: str) -> list[str]:
        found: list[str] = []
        for images, own in self._by_images(keys):
            told = caption_images(
                images,
                self.captioner,
                user_cache() / "captions",
                keys=own,
                prefix=prefix,
                number=self.settings.captions,
                seed=self.mine.seed,
                examples=self.examples,
            )
            found += [text for texts in told.values() for text in texts or ()]
        return found

    def _per_token(self, keys: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
        """(captions, images): log-likelihoods per token, of images that can be decoded."""
        parts = []
        for images, own in self._by_images(keys):
            likely = likelihoods_of(
                images, captions, self.captioner, user_cache() / "captions", keys=own, examples=self.examples
            )
            parts.append(likely.per_token)
        return np.concatenate(parts, axis=0).T

    def _by_images(self, keys: Sequence[str]) -> list[tuple[LabelledImages, list[str]]]:
        """The keys by the images that they are of, as those name them."""
        found: list[tuple[LabelledImages, list[str]]] = []
        for start, images in self.images.items():
            own = [key.removeprefix(start) for key in keys if key.startswith(start)]
            if own:
                found.append((images, own))
        return found


def pieces_said(captions: Sequence[str], base: str, cls: RecipeClass) -> dict[Piece, int]:
    """How many of some captions say each piece, in the order in which they came."""
    found: dict[Piece, int] = {}
    for caption in captions:
        for piece in dict.fromkeys(pieces_of(caption, base, cls.name) or ()):
            found[piece] = found.get(piece, 0) + 1
    return found
