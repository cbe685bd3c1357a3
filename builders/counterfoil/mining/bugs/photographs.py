"""Findings of a search tested once more on images that exist: those of each class that CLIP finds nearest to the words.

Wiles 2022, section 4.1, looks for photographs by the words. Here they are rows of labelled images: the set of a
description is cut off on the discover half, and tested on the other, as any method's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from counterfoil.mining.audited import Audited, audit_target, clip_doubts
from counterfoil.mining.bugs.rounds import base_prompt, spoken_base
from counterfoil.mining.bugs.trials import BugHypothesis
from counterfoil.mining.collected import collect_findings
from counterfoil.mining.cutoffs import choose_cutoffs
from counterfoil.mining.findings import Findings
from counterfoil.mining.method import CandidateCaptions, ClassNote, Found, Hypothesis
from counterfoil.mining.relabelling import with_checked_labels
from counterfoil.models.clip import ClipModel
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine

_FEWEST_TRAIN_ROWS = 2


def find_on_photographs(
    hypotheses: Sequence[BugHypothesis], recipe: Recipe, mine: Mine, settings: BugsSettings, device: str
) -> tuple[Findings, Audited, str | None]:
    """The hypotheses on the images that `mine.on` names: findings, what was audited, and the table to relabel, if any.

    Raises as `audit_target`.
    """
    # No direction is looked for, so that rows of the train split, which whiten features, are looked at for nothing.
    unwhitened = mine.model_copy(update={"train_rows": _FEWEST_TRAIN_ROWS})
    (audited, *_), clip, _ = audit_target(recipe, unwhitened, device)
    captions = _captions(hypotheses, recipe, settings, clip)
    found = Found(
        tuple(_on_rows(one, audited, captions, recipe, settings, mine.margin) for one in hypotheses),
        tuple(ClassNote(reason="not looked for: these were found in what was drawn") for _ in recipe.classes),
    )
    findings = collect_findings(recipe, mine, settings, [audited], captions, found, {}, device)
    doubts = clip_doubts(recipe, clip, [audited], "words")
    findings = replace(findings.doubted(doubts), whitened_by=None)
    findings, relabel = with_checked_labels(findings, recipe, clip, [audited], found.hypotheses, doubts)
    return findings, audited, relabel


def _captions(
    hypotheses: Sequence[BugHypothesis], recipe: Recipe, settings: BugsSettings, clip: ClipModel
) -> CandidateCaptions:
    """Every class's base, and what the hypotheses say of it."""
    base = base_prompt(recipe, settings)
    rows: dict[str, int] = {}
    references = tuple(rows.setdefault(cls.text(base), len(rows)) for cls in recipe.classes)
    candidates = tuple(
        np.asarray(
            [rows.setdefault(_said(one, recipe, settings), len(rows)) for one in hypotheses if one.label == cls.label],
            dtype=np.int64,
        )
        for cls in recipe.classes
    )
    return CandidateCaptions(tuple(rows), np.asarray(clip.embed_texts(list(rows)), np.float32), references, candidates)


def _on_rows(
    one: BugHypothesis,
    audited: Audited,
    captions: CandidateCaptions,
    recipe: Recipe,
    settings: BugsSettings,
    margin: float,
) -> Hypothesis:
    """The set of a description among rows of its class, cut off on the discover half."""
    rows = audited.halves.discover
    rows = rows[audited.labels[rows] == one.label]
    caption = _said(one, recipe, settings)
    vector = captions.vectors[captions.texts.index(caption)]
    cosines = np.asarray(audited.features[rows], dtype=np.float32) @ vector
    cutoffs: tuple[float, ...] = (float("inf"),)
    order = np.zeros(0, dtype=np.int64)
    if len(rows):
        cutoffs, members, _ = choose_cutoffs(
            cosines, audited.labels[rows], audited.failed[rows], audited.units[rows], (one.label,), "hard", margin
        )
        inside = np.flatnonzero(members)
        order = inside[np.argsort(-cosines[inside], kind="stable")]
    # Evidence is by places in the discover half.
    places = np.searchsorted(audited.halves.discover, rows[order])
    return Hypothesis(
        name=one.name,
        labels=(one.label,),
        role="hard",
        words=one.description.words(recipe.classes[one.label].name),
        caption=caption,
        vector=vector,
        cutoffs=cutoffs,
        evidence=places,
        scores=cosines[order].astype(np.float64),
    )


def _said(one: BugHypothesis, recipe: Recipe, settings: BugsSettings) -> str:
    cls = recipe.classes[one.label]
    return one.description.prompt(spoken_base(base_prompt(recipe, settings), cls), cls.name)
