"""Part *captions*: do the captions that a direction picks name what was planted?

In correlation worlds the easy caption should name the planted context, for what fails is its
absence; in rare worlds the hard caption should name the subtype; in noisy ones the context whose
labels were flipped. A caption is right when the planted words stand in it, whatever else it says:
how often chance would pick one stands beside it. Both ways to score a caption are measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np

from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.lab.planted import PlantedWorld
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.captions import CaptionGrammar, gather_captions
from counterfoil.mining.hypotheses import CandidateCaptions
from counterfoil.mining.methods.directions import caption_scores
from counterfoil.mining.methods.svm import Direction
from directions_proof.intervals import SHARE, mean_of, mean_percent, percent_of
from directions_proof.plan import SIDE, kind_of
from directions_proof.ranking import WORTH_FINDING, gap_of
from directions_proof.worlds import AuditedWorld, clip
from lab_training.captions import caption_of
from proof_files import Facts, Results, Values

How = Literal["difference", "shifted"]
HOW: tuple[How, ...] = ("difference", "shifted")
_MOST_TOLD = 3


GRAMMAR = "wardrobe"


@cache
def vector_of(text: str) -> Floats32:
    """Return the (width,) vector of a text by the lab's CLIP."""
    return clip().embed_texts([text])[0]


def captions_of(audited: AuditedWorld) -> CandidateCaptions:
    """Return the bundled grammar's captions, each encoded once; a merged class is called by the
    names it merges."""
    world = audited.world
    merged = any(len(subtypes) > 1 for subtypes in world.subtypes)
    grammar = CaptionGrammar.load(GRAMMAR)
    if merged:
        grammar = grammar.model_copy(
            update={"hyponyms": dict(zip(world.class_names, world.subtypes, strict=True))}
        )
    texts, references, candidates = gather_captions(
        grammar, audited.classes, "hyponyms" if merged else "class"
    )
    return CandidateCaptions(
        texts, np.stack([vector_of(text) for text in texts]), references, candidates
    )


def scores_of(
    audited: AuditedWorld,
    captions: CandidateCaptions,
    direction: Direction,
    label: int,
    how: How = "difference",
) -> Floats:
    """Return (m,) the scores of a class's candidate captions along a direction."""
    return caption_scores(
        direction,
        captions.vectors[captions.references[label]],
        captions.vectors[captions.candidates[label]],
        *audited.whitening,
        how,
    )


def says(caption: str, words: str) -> bool:
    """Return whether a caption has the words as whole words: `shirt` is not in `a photo of a
    t-shirt`."""
    return f" {words} " in f" {caption} "


def says_context(world: PlantedWorld, caption: str) -> bool:
    """Return whether a caption names the planted context, or the planted subtype."""
    words = (
        caption_of({"background": str(world.value)})
        if world.attribute == "background"
        else world.value
    )
    return words is not None and says(caption, words)


@cache
def _phrases() -> tuple[tuple[str, str, str], ...]:
    """Return (attribute, value, words) of all that a caption can claim beside the class."""
    phrases: list[tuple[str, str, str]] = []
    for attribute in ("background", "weather", "light"):
        values = (value for value in ATTRIBUTES[attribute] if value not in ("clear", "day"))
        phrases += [(attribute, value, caption_of({attribute: value})) for value in values]
    phrases += [
        (name, value, value)
        for name in ("colour", "pattern")
        for value in ATTRIBUTES[name]
        if value != "plain"
    ]
    return (
        *phrases,
        ("companion", "person", "person and a"),
        ("companion", "flower", "and a flower"),
    )


def claims_of(world: PlantedWorld, label: int, caption: str) -> Values:
    """Return attribute → value of what a caption claims of a picture of a class; `class` where it
    names the subtype."""
    claims = {attribute: value for attribute, value, words in _phrases() if says(caption, words)}
    subtypes = world.subtypes[label]
    named = [name for name in subtypes if says(caption, name)]
    return claims | ({"class": named[0]} if len(subtypes) > 1 and named else {})


def holding(world: PlantedWorld, split: str, rows: Ints, claims: Values) -> Bools:
    """Return (n,) for which rows' scenes every claim holds."""

    def held() -> Iterator[bool]:
        for row in rows.tolist():
            attributes = world.scene(split, row).attributes()
            yield all(attributes[attribute] == value for attribute, value in claims.items())

    return np.fromiter(held(), np.bool_, len(rows))


def measure(audited: AuditedWorld) -> Facts:
    """Return by way of scoring the rank of the first caption that names what was planted, and the
    first captions."""
    world = audited.world
    direction = direction_of(audited)
    if direction is None or world.planted is None:
        return {}
    captions = captions_of(audited)
    candidates = captions.candidates[world.planted]
    texts = [captions.texts[row] for row in candidates]
    right = np.array([says_context(world, text) for text in texts])
    measured: Facts = {
        "gap": gap_of(audited),
        "chance": float(right.mean()),
        "captions": len(texts),
    }
    for how in HOW:
        scores = scores_of(audited, captions, direction, world.planted, how)
        hard = np.argsort(scores, kind="stable")
        easy = np.argsort(-scores, kind="stable")
        order = easy if SIDE[world.kind] == "easy" else hard
        measured[how] = {
            "place": int(np.flatnonzero(right[order])[0]) + 1,
            "absent": _tells_absence(audited, texts[hard[0]]),
            "hard": [texts[index] for index in hard[:_MOST_TOLD]],
            "easy": [texts[index] for index in easy[:_MOST_TOLD]],
        }
    return measured


def direction_of(audited: AuditedWorld) -> Direction | None:
    """Return the planted class's direction, fitted on all of its validation rows."""
    if audited.world.planted is None:
        return None
    return audited.direction(audited.validation.of_class(audited.world.planted))


def _tells_absence(audited: AuditedWorld, caption: str) -> bool:
    """Return whether a caption names another value of the planted attribute: `in the snow` where
    the beach is the context."""
    world = audited.world
    assert world.planted is not None
    claimed = claims_of(world, world.planted, caption).get(str(world.attribute))
    return claimed is not None and claimed != world.value


def worlds_with_a_gap(
    results: Results,
) -> Iterator[tuple[str, list[Facts]]]:
    """Yield each kind with the results of its worlds whose slice fails by 20 points or more, if it
    has such worlds."""
    for kind in SIDE:
        with_gap = [
            result
            for name, result in results.items()
            if kind_of(name) == kind and (result.get("gap") or 0) >= WORTH_FINDING
        ]
        if with_gap:
            yield kind, with_gap


def table(results: Results) -> list[str]:
    """Return Markdown: one line a kind and way of scoring; worlds whose slice fails by 20 points or
    more."""
    lines = [
        "Worlds whose slice fails by 20 points or more. *right*: the caption on the planted side"
        " names what was"
        " planted. *absence*: in correlation worlds the hard caption names another value of the"
        " planted attribute.",
        "",
        "| worlds | score | top 1 right | top 2 right | mean reciprocal rank | chance | absence |",
        "| -- | -- | --: | --: | --: | --: | --: |",
    ]
    for kind, worlds in worlds_with_a_gap(results):
        for how in HOW:
            places = [world[how]["place"] for world in worlds]
            cells = [
                mean_percent([rank == 1 for rank in places]),
                mean_percent([rank <= 2 for rank in places]),
                mean_of([1 / rank for rank in places], SHARE).text(),
                percent_of(float(np.mean([world["chance"] for world in worlds]))),
                mean_percent([world[how]["absent"] for world in worlds])
                if kind == "correlation"
                else "",
            ]
            lines.append(
                f"| {kind}: {SIDE[kind]} caption ({len(worlds)}) | {how} | {' | '.join(cells)} |"
            )
    return lines
