"""How near each edit still is to the row that it was made of, where a keep rule of its shift asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.keep import SOURCE_SIMILARITY, similarity

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Plan, Sample
    from counterfoil.screen import Scorer


def asks_similarity(plan: Plan, sample: Sample) -> bool:
    """Whether the shift of a sample has a rule that compares its image with its row."""
    return any(SOURCE_SIMILARITY in rule.measures for rule in plan.shift(sample.shift).keep)


def similarities(
    scorer: Scorer | None, embeddings: Mapping[int, np.ndarray], sources: Sequence[Image.Image | None]
) -> list[dict[str, float]]:
    """The similarity of each image by column; nothing where there is no image, or no source to compare it with.

    `embeddings` are those of the images that were drawn, by their place in the batch; `sources` has the batch's length.
    """
    there = [place for place in sorted(embeddings) if sources[place] is not None]
    if scorer is None or not there:
        return [{} for _ in sources]
    rows = scorer.embed([source for place in there if (source := sources[place]) is not None])
    found = {place: similarity(embeddings[place], row) for place, row in zip(there, rows, strict=True)}
    # Where CLIP's own numbers are none, there is nothing to tell.
    return [
        {SOURCE_SIMILARITY: found[place]} if place in found and np.isfinite(found[place]) else {}
        for place in range(len(sources))
    ]
