"""Method `contexts` (Chegini and Feizi 2023, section 4): the contexts of a class's failures, among a few proposals.

A list or a chat model proposes contexts of each class; CLIP assigns each image to the one whose caption is most like
it; the k that hold most of the class's failures are the hypotheses. No cut-off bounds a set. A context that is as
frequent among right answers is no reason to fail, so both shares are counted, and contexts can be ranked by their
ratio.

What is chosen, on the discover half alone and confirmed or not, becomes a recipe that a classifier can learn from, with
two controls of as many images. Group `contexts` has a shift a class and context with the paper's prompt; `class_name`
draws each class without any context (the paper's *random debugging*), and `random_contexts` as many other contexts.
Samples of one class and index begin with the same noise in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import some_of
from counterfoil.mining.captions import Gathered, words_of
from counterfoil.mining.findings import ClassContext, Findings
from counterfoil.mining.findings_layer import (
    audit_origin,
    derived_seed,
    mined_from,
    mined_shift,
    shifts_layer,
    unique_slugs,
)
from counterfoil.mining.hypotheses import ClassNote, DiscoverHalf, Found, Hypothesis, MiningRun
from counterfoil.mining.method import FindMethod
from counterfoil.mining.methods.context_proposals import proposed_contexts, without_duplicates
from counterfoil.progress import track
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.names import derived_name
from counterfoil.recipe.schema_mine import ContextsSettings, Mine

_CONTEXT, _CLASS = "{context}", "{class}"


def prompt_in(settings: ContextsSettings, context: str) -> str:
    return settings.prompt.replace(_CONTEXT, context)


def plain_prompt(settings: ContextsSettings) -> str:
    """Return the template without a context: `a photo of a {class}`."""
    return " ".join(settings.prompt.replace(_CONTEXT, " ").split())


def plain_caption(settings: ContextsSettings, class_name: str) -> str:
    return plain_prompt(settings).replace(_CLASS, class_name)


def words_alone(settings: ContextsSettings, class_name: str, caption: str) -> str:
    """Return the context of a caption that `settings.caption` made of this class."""
    before, _, after = settings.prompt.partition(_CONTEXT)
    return caption.removeprefix(before.replace(_CLASS, class_name)).removesuffix(after.replace(_CLASS, class_name))


Rank = Literal["count", "lift"]


@dataclass(frozen=True, slots=True)
class ContextCount:
    """A context of a class in one half: `place` among the class's contexts, and the images assigned to it.

    failures of `of_failures`, and right ones of `of_right`, were assigned to it.
    """

    place: int
    failures: int
    of_failures: int
    right: int
    of_right: int

    @property
    def share_of_failures(self) -> float | None:
        return self.failures / self.of_failures if self.of_failures else None

    @property
    def share_of_right(self) -> float | None:
        return self.right / self.of_right if self.of_right else None

    @property
    def lift(self) -> float | None:
        """How many times as frequent it is among failures as among right answers; None if in none of these."""
        failure_share, elsewhere = self.share_of_failures, self.share_of_right
        return failure_share / elsewhere if failure_share is not None and elsewhere else None

    def steadied_lift(self, contexts: int) -> float:
        """Return `lift` with an image more of both kinds in each of so many contexts: one failure alone is no proof."""
        failure_share = (self.failures + 1) / (self.of_failures + contexts)
        elsewhere = (self.right + 1) / (self.of_right + contexts)
        return failure_share / elsewhere


def nearest_context(features: NDArray[np.floating], captions: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return (n,) the caption of the largest cosine, of equal ones the first.

    features: (n, width), captions: (m, width), unit vectors, at least one caption.
    """
    cosines = np.asarray(features, dtype=np.float32) @ np.asarray(captions, dtype=np.float32).T
    return cosines.argmax(axis=1).astype(np.int64)


def count_contexts(assigned: NDArray[np.int64], failed: NDArray[np.bool_], contexts: int) -> list[ContextCount]:
    """Count each of so many contexts. assigned: (n,) from `nearest_context`; failed: (n,)."""
    wrong = np.bincount(assigned[failed], minlength=contexts)
    right = np.bincount(assigned[~failed], minlength=contexts)
    of_failures, of_right = int(failed.sum()), int((~failed).sum())
    return [
        ContextCount(index, int(wrong[index]), of_failures, int(right[index]), of_right) for index in range(contexts)
    ]


def choose_contexts(counts: Sequence[ContextCount], k: int, rank: Rank, fewest_failures: int) -> list[int]:
    """Return indices of the at most `k` contexts with most failures (`count`), or the largest steadied lift (`lift`).

    Of equal ones the first. A context with fewer failures than `fewest_failures` is not chosen.
    """
    able = [count for count in counts if count.failures >= max(fewest_failures, 1)]
    if rank == "count":
        able.sort(key=lambda count: (-count.failures, -count.steadied_lift(len(counts)), count.place))
    else:
        able.sort(key=lambda count: (-count.steadied_lift(len(counts)), -count.failures, count.place))
    return [count.place for count in able[:k]]


def images_a_context(failures: int, a_failure: int, at_most: int) -> int:
    """Return how many images of a context are drawn: so many a failure (Chegini 2023: about 5), up to `at_most`."""
    return min(failures * a_failure, at_most)


CHOSEN_CONTEXTS, CLASS_NAME, RANDOM_CONTEXTS = "contexts", "class_name", "random_contexts"
# Candidates for each image that is wanted, before a cell gives up.
_PATIENCE = 4
_MOST_NAMED = 8


def contexts_layer(findings: Findings, run: MiningRun) -> str | None:
    """Return the text of `recipe.yaml`; None if no context was chosen or the recipe is a set of rows."""
    if not run.recipe.kind.from_noise:
        return None
    shifts = context_shifts(findings, run.recipe, ContextsSettings.model_validate(findings.method.settings))
    if not shifts:
        return None
    seed = derived_seed(run.recipe.samples.seed, "layer", findings)
    changes = {"samples": {"seed": seed}, "name": derived_name(run.recipe.name, "contexts")}
    return shifts_layer(shifts, changes, run)


def context_shifts(findings: Findings, recipe: Recipe, settings: ContextsSettings) -> dict[str, dict[str, Any]]:
    """Return shift → what the recipe says of it, group after group."""
    by_id = {cls.id: cls for cls in recipe.classes}
    tested = {(finding.classes[0], finding.caption): finding for finding in findings.findings}
    chosen: dict[str, dict[str, Any]] = {}
    alone: dict[str, dict[str, Any]] = {}
    anyhow: dict[str, dict[str, Any]] = {}
    draw = np.random.default_rng(derived_seed(recipe.samples.seed, "random contexts", findings))
    stems = unique_slugs([audit.name for audit in findings.classes])
    for audit, stem in zip(findings.classes, stems, strict=True):
        cls = by_id[audit.id]
        ranked = [context for context in audit.contexts if context.rank is not None]
        others = [context for context in audit.contexts if context.rank is None]
        if not ranked:
            continue
        # An image that several pooled classifiers fail on is one.
        failed = [context.failures if context.failed_images is None else context.failed_images for context in ranked]
        images = [images_a_context(count, settings.images, settings.at_most_images) for count in failed]
        names = unique_slugs([f"{stem} {context.words}" for context in ranked])
        for name, context, count in zip(names, ranked, images, strict=True):
            finding = tested.get((cls.id, context.caption))
            origin = {"role": "hard", "caption": context.caption, **audit_origin(findings)}
            if finding is not None:
                origin = mined_from(findings, finding) | {"confirmed": finding.confirmed}
            counts = {"failures": context.failures, "of_failures": context.of_failures}
            counts |= {"right": context.right, "of_right": context.of_right}
            origin |= {"rank": context.rank, "counts": counts, "lift": context.lift}
            chosen[name] = _shift(settings, recipe, cls, context, CHOSEN_CONTEXTS, count, origin)
        if not settings.controls:
            continue
        plain = mined_shift(
            plain_prompt(settings), None, CLASS_NAME, [cls], {"role": CLASS_NAME, **audit_origin(findings)}
        )
        alone[f"{stem}_{CLASS_NAME}"] = plain | _samples(sum(images))
        order = draw.permutation(len(others))[: len(ranked)].tolist()
        # Fewer are left than were chosen: as many images all the same, or mending could not compare this class.
        numbers = images
        if len(order) != len(ranked):
            total, contexts = sum(images), len(order)
            # As evenly as they go.
            numbers = [total // contexts + (index < total % contexts) for index in range(contexts)]
        names = unique_slugs([f"{stem} random {others[at].words}" for at in order])
        for other, name, count in zip(order, names, numbers, strict=True):
            origin = {"role": "random_context", "caption": others[other].caption, **audit_origin(findings)}
            anyhow[name] = _shift(settings, recipe, cls, others[other], RANDOM_CONTEXTS, count, origin)
    return chosen | alone | anyhow


def control_notes(outcome: Found, run: MiningRun) -> tuple[str, ...]:
    """Return a note of the classes whose contexts were all chosen, so that none is left for a control."""
    if not run.settings.controls or not run.recipe.kind.from_noise:
        return ()
    every = [
        cls.name
        for cls, note in zip(run.recipe.classes, outcome.notes, strict=True)
        if note.contexts and all(context.rank is not None for context in note.contexts)
    ]
    if not every:
        return ()
    return (
        f"All contexts of {some_of(every, _MOST_NAMED)} were chosen, so none is left for {RANDOM_CONTEXTS}, and mending"
        " has no such control for these classes",
    )


def _shift(
    settings: ContextsSettings,
    recipe: Recipe,
    cls: RecipeClass,
    context: ClassContext,
    group: str,
    images: int,
    origin: Mapping[str, Any],
) -> dict[str, Any]:
    # Without a threshold of the recipe nothing says which score is enough.
    caption = context.caption if recipe.screen.shift_threshold is not None else None
    return mined_shift(prompt_in(settings, context.words), caption, group, [cls], origin) | _samples(images)


def _samples(images: int) -> dict[str, Any]:
    return {"samples": {"accepted": images, "at_most": _PATIENCE * images}}


_MOST_EVIDENCE = 50
# Numbers of its context in a finding's `about`.
_ABOUT = ("failures", "share_of_failures", "right", "share_of_right", "lift")
# Below every cosine: what an image is compared with are the class's other contexts.
_NO_CUTOFF = -2.0


def context_captions(run: MiningRun) -> tuple[Gathered, tuple[str, ...]]:
    """Return the caption of each class alone, and of each class in each context that is proposed for it."""
    recipe, settings = run.recipe, run.settings
    proposed, notes = proposed_contexts(recipe, settings, run.folder, run.device)
    rows: dict[str, int] = {}
    references, candidates = [], []
    for cls, contexts in zip(recipe.classes, proposed, strict=True):
        references.append(rows.setdefault(plain_caption(settings, cls.name), len(rows)))
        texts = dict.fromkeys(settings.caption(cls.name, context) for context in contexts)
        candidates.append(np.asarray([rows.setdefault(text, len(rows)) for text in texts], dtype=np.int64))
    return (tuple(rows), tuple(references), tuple(candidates)), notes


def find_contexts(half: DiscoverHalf, mine: Mine, settings: ContextsSettings, workers: int | None) -> Found:
    """Return at most `settings.k` hypotheses per class: the contexts of its failures, most frequent first.

    Contexts that fail no more than the rest on the discover half are included: the confirm half tests each, and images
    for mending must not be chosen by that half.
    """
    notes, hypotheses = [], []
    stems = unique_slugs(half.class_names)
    for label, name in enumerate(track(half.class_names, "scoring contexts")):
        note, hypotheses_found = _of_class(half, label, name, stems[label], settings)
        notes.append(note)
        hypotheses += hypotheses_found
    return Found(tuple(hypotheses), tuple(notes))


CONTEXTS = FindMethod(
    ContextsSettings,
    find_contexts,
    captions=context_captions,
    layer=contexts_layer,
    notes=control_notes,
    pooled=lambda settings: settings.pooled,
)


def _of_class(
    half: DiscoverHalf, label: int, name: str, stem: str, settings: ContextsSettings
) -> tuple[ClassNote, list[Hypothesis]]:
    class_rows = np.flatnonzero(half.labels == label)
    failed = half.failed[class_rows]
    every = [failed, *(failures[class_rows] for failures in half.pooled.values())]
    if not np.any(every):
        return ClassNote(reason="no failure on the discover half"), []
    candidates = half.captions.candidates[label]
    words = [words_alone(settings, name, half.captions.texts[row]) for row in candidates.tolist()]
    distinct = without_duplicates(words, half.captions.vectors[candidates], settings.similarity)
    candidates, words = candidates[distinct], [words[index] for index in distinct]
    if len(candidates) < 2:
        return ClassNote(reason="fewer than two contexts were proposed, so there is nothing to compare"), []
    vectors = half.captions.vectors[candidates]
    features = half.features[class_rows]
    assigned = nearest_context(features, vectors)
    # An image counts once for each classifier.
    counts = count_contexts(np.tile(assigned, len(every)), np.concatenate(every), len(candidates))
    chosen = choose_contexts(counts, settings.k, settings.rank, settings.fewest_failures)
    failed_images = np.bincount(assigned[np.any(every, axis=0)], minlength=len(candidates)) if half.pooled else None
    # Those that were chosen first, the others by their failures.
    left = sorted(set(range(len(counts))) - set(chosen), key=lambda index: (-counts[index].failures, index))
    contexts = tuple(
        ClassContext(
            words=words[index],
            caption=half.captions.texts[int(candidates[index])],
            failures=counts[index].failures,
            of_failures=counts[index].of_failures,
            right=counts[index].right,
            of_right=counts[index].of_right,
            lift=counts[index].lift,
            rank=chosen.index(index) if index in chosen else None,
            failed_images=None if failed_images is None else int(failed_images[index]),
        )
        for index in [*chosen, *left]
    )
    if not chosen:
        reason = f"no context has {settings.fewest_failures} failures on the discover half"
        return ClassNote(reason=reason, contexts=contexts), []
    reference = half.captions.texts[half.captions.references[label]]
    names = unique_slugs([f"{stem} {words[index]}" for index in chosen])
    hypotheses = []
    for rank, index in enumerate(chosen):
        inside = np.flatnonzero(assigned == index)
        cosines = np.asarray(features[inside], dtype=np.float32) @ vectors[index]
        order = np.lexsort((-cosines, ~failed[inside]))[:_MOST_EVIDENCE]
        caption = half.captions.texts[int(candidates[index])]
        hypotheses.append(
            Hypothesis(
                name=names[rank],
                labels=(label,),
                role="hard",
                words=words_of(name, caption, reference, "hard"),
                caption=caption,
                vector=vectors[index],
                cutoffs=(_NO_CUTOFF,),
                evidence=class_rows[inside[order]],
                scores=cosines[order].astype(np.float64),
                about={"rank": rank} | {name: getattr(counts[index], name) for name in _ABOUT},
                alternatives=np.delete(vectors, index, axis=0),
            )
        )
    return ClassNote(contexts=contexts), hypotheses
