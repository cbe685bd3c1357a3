"""Method `contexts` (Chegini and Feizi 2023, section 4): what a class's failures have around them, of a few proposals.

A list or a chat model proposes contexts of each class; CLIP says in which of them each image is; the k that hold most
of the class's failures are the hypotheses. No cut-off bounds a set: an image is in the one context it is most like.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.captions import Gathered, words_of
from counterfoil.mining.contexts.choosing import ContextCount, choose_contexts, count_contexts, nearest_context
from counterfoil.mining.contexts.doubles import without_doubles
from counterfoil.mining.contexts.layer import contexts_layer, control_notes
from counterfoil.mining.contexts.proposing import proposed_contexts
from counterfoil.mining.contexts.templates import plain_caption, words_alone
from counterfoil.mining.findings import ClassContext
from counterfoil.mining.method import ClassNote, DiscoverHalf, Found, Hypothesis, Method
from counterfoil.mining.shift_names import slugs
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import ContextsSettings, Mine

_MOST_EVIDENCE = 50
# Below every cosine: what an image is compared with are the class's other contexts.
_NO_CUTOFF = -2.0


def context_captions(
    recipe: Recipe, settings: ContextsSettings, folder: Path, device: str
) -> tuple[Gathered, tuple[str, ...]]:
    """The caption of each class alone, and of each class in each context that is proposed for it."""
    proposed = proposed_contexts(recipe, settings, folder, device)
    rows: dict[str, int] = {}
    references, candidates = [], []
    for cls, contexts in zip(recipe.classes, proposed.by_label, strict=True):
        references.append(rows.setdefault(plain_caption(settings, cls.name), len(rows)))
        texts = dict.fromkeys(settings.caption(cls.name, context) for context in contexts)
        candidates.append(np.asarray([rows.setdefault(text, len(rows)) for text in texts], dtype=np.int64))
    return (tuple(rows), tuple(references), tuple(candidates)), proposed.notes


def find_contexts(half: DiscoverHalf, mine: Mine, settings: ContextsSettings, workers: int | None) -> Found:
    """At most `settings.k` hypotheses a class: the contexts that its failures are in, most frequent first.

    All that are chosen are carried, whether or not they fail more than the rest on the discover half: the confirm half
    says so of each, and what is drawn to mend a classifier may not be chosen by it.
    """
    notes, hypotheses = [], []
    stems = slugs(half.class_names)
    for label, name in enumerate(track(half.class_names, "contexts")):
        note, found = _of_class(half, label, name, stems[label], settings)
        notes.append(note)
        hypotheses += found
    return Found(tuple(hypotheses), tuple(notes))


def _pooled(settings: ContextsSettings) -> tuple[str, ...]:
    return settings.pooled


CONTEXTS = Method(
    ContextsSettings,
    find_contexts,
    captions=context_captions,
    layer=contexts_layer,
    notes=control_notes,
    pooled=_pooled,
)


def _of_class(
    half: DiscoverHalf, label: int, name: str, stem: str, settings: ContextsSettings
) -> tuple[ClassNote, list[Hypothesis]]:
    own = np.flatnonzero(half.labels == label)
    failed = half.failed[own]
    every = [failed, *(theirs[own] for theirs in half.pooled.values())]
    if not np.any(every):
        return ClassNote(reason="no failure on the discover half"), []
    candidates = half.captions.candidates[label]
    words = [words_alone(settings, name, half.captions.texts[row]) for row in candidates.tolist()]
    kept = without_doubles(words, half.captions.vectors[candidates], settings.similarity).kept
    candidates, words = candidates[list(kept)], [words[place] for place in kept]
    if len(candidates) < 2:
        return ClassNote(reason="fewer than two contexts are proposed: an image is in one of them, or in another"), []
    vectors = half.captions.vectors[candidates]
    features = half.features[own]
    assigned = nearest_context(features, vectors)
    # An image counts once for each classifier.
    counts = count_contexts(np.tile(assigned, len(every)), np.concatenate(every), len(candidates))
    chosen = choose_contexts(counts, settings.k, settings.rank, settings.fewest_failures)
    failed_images = np.bincount(assigned[np.any(every, axis=0)], minlength=len(candidates)) if half.pooled else None
    contexts = _noted(half, candidates, words, counts, chosen, failed_images)
    if not chosen:
        reason = f"no context holds {settings.fewest_failures} failures of the discover half"
        return ClassNote(reason=reason, contexts=contexts), []
    reference = half.captions.texts[half.captions.references[label]]
    names = slugs([f"{stem} {words[place]}" for place in chosen])
    hypotheses = []
    for rank, place in enumerate(chosen):
        inside = np.flatnonzero(assigned == place)
        cosines = np.asarray(features[inside], dtype=np.float32) @ vectors[place]
        order = np.lexsort((-cosines, ~failed[inside]))[:_MOST_EVIDENCE]
        caption = half.captions.texts[int(candidates[place])]
        hypotheses.append(
            Hypothesis(
                name=names[rank],
                labels=(label,),
                role="hard",
                words=words_of(name, caption, reference, "hard"),
                caption=caption,
                vector=vectors[place],
                cutoffs=(_NO_CUTOFF,),
                evidence=own[inside[order]],
                scores=cosines[order].astype(np.float64),
                about={"rank": rank, **_told(counts[place])},
                rivals=np.delete(vectors, place, axis=0),
            )
        )
    return ClassNote(contexts=contexts), hypotheses


def _told(count: ContextCount) -> dict[str, float | int | None]:
    return {
        "failures": count.failures,
        "share_of_failures": count.share_of_failures,
        "right": count.right,
        "share_of_right": count.share_of_right,
        "lift": count.lift,
    }


def _noted(
    half: DiscoverHalf,
    candidates: NDArray[np.int64],
    words: list[str],
    counts: list[ContextCount],
    chosen: list[int],
    failed_images: NDArray[np.int64] | None,
) -> tuple[ClassContext, ...]:
    """All contexts of a class, those that were chosen first, the others by their failures."""
    left = sorted(set(range(len(counts))) - set(chosen), key=lambda place: (-counts[place].failures, place))
    return tuple(
        ClassContext(
            words=words[place],
            caption=half.captions.texts[int(candidates[place])],
            failures=counts[place].failures,
            of_failures=counts[place].of_failures,
            right=counts[place].right,
            of_right=counts[place].of_right,
            lift=counts[place].lift,
            rank=chosen.index(place) if place in chosen else None,
            failed_images=None if failed_images is None else int(failed_images[place]),
        )
        for place in [*chosen, *left]
    )
