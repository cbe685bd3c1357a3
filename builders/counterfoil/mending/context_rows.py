"""Which audited rows are in which context: CLIP chooses among what the shifts say of a class, and the class alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.debug_images import Context
from counterfoil.recipe import Recipe


@dataclass(frozen=True, eq=False)
class ContextRows:
    """Rows that can be dealt among any of the contexts: an arm's among its own, whatever other arms there are.

    features: (n, width), labels: (n,), vectors: (m, width) of each context and of each class alone, whose place `alone`
    has by label. Unit vectors.
    """

    contexts: Sequence[Context]
    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    vectors: NDArray[np.float32]
    alone: Mapping[int, int]

    def among(self, places: Sequence[int]) -> NDArray[np.int64]:
        """(n,) of these places the context that CLIP finds most like each row, -1 where the class alone is.

        A row is compared with the contexts of its own class.
        """
        found = np.full(len(self.labels), -1, dtype=np.int64)
        for label in sorted({self.contexts[place].label for place in places}):
            # The class alone comes first: what is no more like a context is in none.
            own = [place for place in places if self.contexts[place].label == label]
            rows = np.flatnonzero(self.labels == label)
            best = np.argmax(self.features[rows] @ self.vectors[[self.alone[label], *own]].T, axis=1)
            found[rows] = np.asarray([-1, *own], dtype=np.int64)[best]
        return found


def context_rows(
    contexts: Sequence[Context],
    recipe: Recipe,
    features: NDArray[np.floating],
    labels: NDArray[np.int64],
    embed_texts: Callable[[Sequence[str]], NDArray[np.floating]],
) -> ContextRows:
    """Rows and contexts as CLIP sees them. features: (n, width), unit vectors, labels: (n,)."""
    used = sorted({context.label for context in contexts})
    if not used:
        return ContextRows(contexts, features, labels, np.empty((0, features.shape[1]), dtype=np.float32), {})
    texts = [context.caption for context in contexts]
    texts += [recipe.classes[label].text(recipe.screen.object_caption) for label in used]
    vectors = np.asarray(embed_texts(texts), dtype=np.float32)
    return ContextRows(
        contexts, features, labels, vectors, dict(zip(used, range(len(contexts), len(texts)), strict=True))
    )
