"""Method `contexts` (Chegini and Feizi 2023, section 4): find the proposed contexts with most of a
class's failures.

The contexts become a recipe for mending. The recipe also has two controls with the same number of
images: `class_name` has no context (the paper's *random debugging*), and `random_contexts` has
contexts that were not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Ints
from counterfoil.errors import some_of
from counterfoil.mining.captions import Gathered, caption_table, words_of
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

_CONTEXT = "{context}"
_CLASS = "{class}"


def plain_prompt(settings: ContextsSettings) -> str:
    """Return the template without a context: `a photo of a {class}`."""
    prompt = settings.prompt.replace(_CONTEXT, " ")
    return " ".join(prompt.split())


def plain_caption(settings: ContextsSettings, class_name: str) -> str:
    return plain_prompt(settings).replace(_CLASS, class_name)


def words_alone(settings: ContextsSettings, class_name: str, caption: str) -> str:
    """Return the context in a caption that was made from the template `settings.caption` for this
    class."""
    before, _, after = settings.prompt.partition(_CONTEXT)
    start = before.replace(_CLASS, class_name)
    end = after.replace(_CLASS, class_name)
    return caption.removeprefix(start).removesuffix(end)


Rank = Literal["count", "lift"]
_COUNTED = ("failures", "of_failures", "right", "of_right")


@dataclass(frozen=True, slots=True)
class ContextCount:
    """How many failures and how many right answers of a class are assigned to one of its
    contexts."""

    index: int
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
        """The context's share of the class's failures divided by its share of the right answers.
        None if the context has no right answer or the class has no failure.
        """
        failure_share = self.share_of_failures
        right_share = self.share_of_right
        if failure_share is None or not right_share:
            return None
        return failure_share / right_share

    def steadied_lift(self, contexts: int) -> float:
        """Return `lift` as if each context had one more failure and one more right answer, so that
        a single failure does not give a large lift.
        """
        failure_share = (self.failures + 1) / (self.of_failures + contexts)
        right_share = (self.right + 1) / (self.of_right + contexts)
        return failure_share / right_share


def nearest_context(features: AnyFloats, captions: AnyFloats) -> Ints:
    """Return the index of the caption with the largest cosine for each image, (n,). On a tie, take
    the first caption. features: (n, width). captions: (m, width).
    """
    images = np.asarray(features, dtype=np.float32)
    texts = np.asarray(captions, dtype=np.float32)
    return (images @ texts.T).argmax(axis=1)


def count_contexts(
    assigned: Ints,
    failed: Bools,
    contexts: int,
) -> list[ContextCount]:
    """Count the images of each context. assigned: (n,), from `nearest_context`. failed: (n,)."""
    wrong = np.bincount(assigned[failed], minlength=contexts)
    right = np.bincount(assigned[~failed], minlength=contexts)
    of_failures = int(failed.sum())
    of_right = len(failed) - of_failures
    counts = []
    for index in range(contexts):
        count = ContextCount(
            index,
            int(wrong[index]),
            of_failures,
            int(right[index]),
            of_right,
        )
        counts.append(count)
    return counts


def choose_contexts(
    counts: Sequence[ContextCount],
    k: int,
    rank: Rank,
    fewest_failures: int,
) -> list[int]:
    """Return indices of at most `k` contexts, by most failures (`count`) or largest steadied lift
    (`lift`)."""

    def order(count: ContextCount) -> tuple[float, float, int]:
        lift = count.steadied_lift(len(counts))
        if rank == "count":
            return -count.failures, -lift, count.index
        return -lift, -count.failures, count.index

    fewest = max(fewest_failures, 1)
    able = [count for count in counts if count.failures >= fewest]
    able.sort(key=order)
    return [count.index for count in able[:k]]


def images_a_context(failures: int, a_failure: int, at_most: int) -> int:
    """Return how many images of a context to draw: `a_failure` for each failure (Chegini 2023 draws
    about 5), and `at_most` at most.
    """
    return min(failures * a_failure, at_most)


CHOSEN_CONTEXTS = "contexts"
CLASS_NAME = "class_name"
RANDOM_CONTEXTS = "random_contexts"
# A cell gives up after this many candidates for each wanted image.
_PATIENCE = 4
_MOST_NAMED = 8


def contexts_layer(findings: Findings, run: MiningRun) -> str | None:
    """Return the text of `recipe.yaml`. Return None if no context was chosen, or if the recipe
    cannot render images from noise.
    """
    recipe = run.recipe
    if not recipe.kind.from_noise:
        return None
    settings = ContextsSettings.model_validate(findings.method.settings)
    shifts = context_shifts(findings, recipe, settings)
    if not shifts:
        return None
    seed = derived_seed(recipe.samples.seed, "layer", findings)
    name = derived_name(recipe.name, "contexts")
    changes = {"samples": {"seed": seed}, "name": name}
    return shifts_layer(shifts, changes, run)


def context_shifts(
    findings: Findings,
    recipe: Recipe,
    settings: ContextsSettings,
) -> dict[str, dict[str, Any]]:
    """Return the layer's shifts by name, group after group."""
    by_id = {cls.id: cls for cls in recipe.classes}
    tested = {}
    for finding in findings.findings:
        tested[finding.classes[0], finding.caption] = finding
    chosen: dict[str, dict[str, Any]] = {}
    alone: dict[str, dict[str, Any]] = {}
    anyhow: dict[str, dict[str, Any]] = {}
    seed = derived_seed(recipe.samples.seed, "random contexts", findings)
    draw = np.random.default_rng(seed)
    stems = unique_slugs([audit.name for audit in findings.classes])
    for audit, stem in zip(findings.classes, stems, strict=True):
        cls = by_id[audit.id]
        ranked = [context for context in audit.contexts if context.rank is not None]
        others = [context for context in audit.contexts if context.rank is None]
        if not ranked:
            continue
        names = unique_slugs([f"{stem} {context.words}" for context in ranked])
        images = []
        for name, context in zip(names, ranked, strict=True):
            # An image on which several pooled classifiers fail counts once.
            failed = context.failed_images
            if failed is None:
                failed = context.failures
            count = images_a_context(failed, settings.images, settings.at_most_images)
            images.append(count)
            finding = tested.get((cls.id, context.caption))
            origin = {"role": "hard", "caption": context.caption, **audit_origin(findings)}
            if finding is not None:
                origin = mined_from(findings, finding) | {"confirmed": finding.confirmed}
            counts = {key: getattr(context, key) for key in _COUNTED}
            origin |= {
                "rank": context.rank,
                "counts": counts,
                "lift": context.lift,
            }
            chosen[name] = _shift(settings, recipe, cls, context, CHOSEN_CONTEXTS, count, origin)
        if not settings.controls:
            continue
        total = sum(images)
        origin = {"role": CLASS_NAME, **audit_origin(findings)}
        prompt = plain_prompt(settings)
        plain = mined_shift(prompt, None, CLASS_NAME, [cls], origin)
        alone[f"{stem}_{CLASS_NAME}"] = plain | _samples(total)
        order = draw.permutation(len(others))[: len(ranked)]
        drawn = [others[index] for index in order.tolist()]
        contexts = len(drawn)
        # If fewer contexts are left for the control than were chosen, they share the number of
        # images evenly.
        if contexts != len(ranked):
            images = [total // contexts + (index < total % contexts) for index in range(contexts)]
        names = unique_slugs([f"{stem} random {context.words}" for context in drawn])
        for name, context, count in zip(names, drawn, images, strict=True):
            origin = {
                "role": "random_context",
                "caption": context.caption,
                **audit_origin(findings),
            }
            anyhow[name] = _shift(settings, recipe, cls, context, RANDOM_CONTEXTS, count, origin)
    return chosen | alone | anyhow


def control_notes(outcome: Found, run: MiningRun) -> tuple[str, ...]:
    """Return a note on the classes whose contexts were all chosen, because no context is left for
    their control."""
    if not run.settings.controls or not run.recipe.kind.from_noise:
        return ()
    names = []
    for cls, note in zip(run.recipe.classes, outcome.notes, strict=True):
        ranks = [context.rank for context in note.contexts]
        if ranks and None not in ranks:
            names.append(cls.name)
    if not names:
        return ()
    return (
        f"All contexts of {some_of(names, _MOST_NAMED)} were chosen, so none is left for"
        f" {RANDOM_CONTEXTS}, and mending has no such control for these classes",
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
    # Without a threshold in the recipe, no shift score is known to be enough, so the shift is not
    # screened.
    caption = context.caption if recipe.screen.shift_threshold is not None else None
    prompt = settings.prompt.replace(_CONTEXT, context.words)
    shift = mined_shift(prompt, caption, group, [cls], origin)
    return shift | _samples(images)


def _samples(images: int) -> dict[str, Any]:
    return {"samples": {"accepted": images, "at_most": _PATIENCE * images}}


_MOST_EVIDENCE = 50
# The numbers of a context that the `about` of its finding holds.
_ABOUT = ("failures", "share_of_failures", "right", "share_of_right", "lift")
# The cut-off of a set is below every cosine, because an image is in the set if no other context of
# the class is nearer.
_NO_CUTOFF = -2.0


def context_captions(run: MiningRun) -> tuple[Gathered, tuple[str, ...]]:
    """Return captions, and notes about the proposals. Captions name each class alone and in each
    proposed context."""
    recipe = run.recipe
    settings = run.settings
    proposed, notes = proposed_contexts(recipe, settings, run.folder, run.device)
    captions = []
    for cls, contexts in zip(recipe.classes, proposed, strict=True):
        texts = [settings.caption(cls.name, context) for context in contexts]
        reference = plain_caption(settings, cls.name)
        captions.append((reference, dict.fromkeys(texts)))
    return caption_table(captions), notes


def find_contexts(
    half: DiscoverHalf,
    mine: Mine,
    settings: ContextsSettings,
    workers: int | None,
) -> Found:
    """Return at most `settings.k` hypotheses per class. Contexts that fail no more often than the
    rest of the class are among them, because the confirm half must not decide which images are used
    for mending.
    """
    notes = []
    hypotheses = []
    stems = unique_slugs(half.class_names)
    for label, stem in enumerate(track(stems, "scoring contexts")):
        note, of_class = _of_class(half, label, stem, settings)
        notes.append(note)
        hypotheses += of_class
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
    half: DiscoverHalf,
    label: int,
    stem: str,
    settings: ContextsSettings,
) -> tuple[ClassNote, list[Hypothesis]]:
    class_rows = np.flatnonzero(half.labels == label)
    failed = half.failed[class_rows]
    failed_by_classifier = [failed, *(pooled[class_rows] for pooled in half.pooled.values())]
    failed_by_any = np.any(failed_by_classifier, axis=0)
    if not failed_by_any.any():
        return ClassNote(reason="no failure on the discover half"), []
    captions = half.captions
    name = half.class_names[label]
    candidates = captions.candidates[label]
    texts = [captions.texts[row] for row in candidates.tolist()]
    words = [words_alone(settings, name, text) for text in texts]
    vectors = captions.vectors[candidates]
    distinct = without_duplicates(words, vectors, settings.similarity)
    if len(distinct) < 2:
        reason = "fewer than two contexts were proposed, so there is nothing to compare"
        return ClassNote(reason=reason), []
    words = [words[index] for index in distinct]
    texts = [texts[index] for index in distinct]
    vectors = vectors[distinct]
    features = half.features[class_rows]
    assigned = nearest_context(features, vectors)
    # An image counts once for each classifier that fails on it.
    every_failed = np.concatenate(failed_by_classifier)
    of_every = np.tile(assigned, len(failed_by_classifier))
    counts = count_contexts(of_every, every_failed, len(distinct))
    chosen = choose_contexts(counts, settings.k, settings.rank, settings.fewest_failures)
    failed_images = np.bincount(assigned[failed_by_any], minlength=len(distinct))
    # The chosen contexts come first. The others follow, sorted by their failures.
    left = [index for index in range(len(counts)) if index not in chosen]
    left.sort(key=lambda index: -counts[index].failures)
    contexts = []
    for index in [*chosen, *left]:
        count = counts[index]
        context = ClassContext(
            words=words[index],
            caption=texts[index],
            failures=count.failures,
            of_failures=count.of_failures,
            right=count.right,
            of_right=count.of_right,
            lift=count.lift,
            rank=chosen.index(index) if index in chosen else None,
            failed_images=int(failed_images[index]) if half.pooled else None,
        )
        contexts.append(context)
    if not chosen:
        reason = f"no context has {settings.fewest_failures} failures on the discover half"
        return ClassNote(reason=reason, contexts=tuple(contexts)), []
    reference = captions.texts[captions.references[label]]
    names = unique_slugs([f"{stem} {words[index]}" for index in chosen])
    hypotheses = []
    for rank, index in enumerate(chosen):
        inside = np.flatnonzero(assigned == index)
        of_context = np.asarray(features[inside], dtype=np.float32)
        cosines = of_context @ vectors[index]
        order = np.lexsort((-cosines, ~failed[inside]))[:_MOST_EVIDENCE]
        about = {"rank": rank} | {key: getattr(counts[index], key) for key in _ABOUT}
        hypothesis = Hypothesis(
            name=names[rank],
            labels=(label,),
            role="hard",
            words=words_of(name, texts[index], reference, "hard"),
            caption=texts[index],
            vector=vectors[index],
            cutoffs=(_NO_CUTOFF,),
            evidence=class_rows[inside[order]],
            scores=cosines[order].astype(np.float64),
            about=about,
            alternatives=np.delete(vectors, index, axis=0),
        )
        hypotheses.append(hypothesis)
    return ClassNote(contexts=tuple(contexts)), hypotheses
