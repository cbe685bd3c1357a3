"""Which audited rows are in which context: CLIP chooses among what the shifts say of a class, and the class alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.debug_images import Context
from counterfoil.recipe import Recipe


def context_of_rows(
    contexts: Sequence[Context],
    recipe: Recipe,
    features: NDArray[np.floating],
    labels: NDArray[np.int64],
    embed_texts: Callable[[Sequence[str]], NDArray[np.floating]],
) -> NDArray[np.int64]:
    """(n,) the context that CLIP finds most similar to each row's image, -1 where the class alone is.

    features: (n, width), unit vectors, labels: (n,). A row is compared with the contexts of its own class.
    """
    texts = [context.caption for context in contexts]
    used = sorted({context.label for context in contexts})
    if not used:
        return np.full(len(labels), -1, dtype=np.int64)
    texts += [recipe.classes[label].text(recipe.screen.object_caption) for label in used]
    vectors = np.asarray(embed_texts(texts), dtype=np.float32)
    alone = dict(zip(used, range(len(contexts), len(texts)), strict=True))
    found = np.full(len(labels), -1, dtype=np.int64)
    for label in used:
        # The class alone comes first: what is no more like a context is in none.
        places = [alone[label], *(place for place, one in enumerate(contexts) if one.label == label)]
        rows = np.flatnonzero(labels == label)
        best = np.argmax(features[rows] @ vectors[places].T, axis=1)
        found[rows] = np.asarray([-1, *places[1:]], dtype=np.int64)[best]
    return found
