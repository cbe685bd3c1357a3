"""Part *captions*: do the captions that a direction picks name what was planted?

In correlation worlds the easy caption should name the planted context, for what fails is its absence; in rare worlds
the hard caption should name the subtype; in noisy ones the context whose labels were flipped. A caption is right when
the planted words stand in it, whatever else it says: how often chance would pick one stands beside it. Both ways to
score a caption are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from counterfoil.mining.methods.directions import caption_scores
from counterfoil.mining.methods.svm import Direction, fit_direction
from directions_proof.captioned import captions_of, claims_of, says_context
from directions_proof.intervals import SHARE, mean_of
from directions_proof.plan import SIDE, kind_of
from directions_proof.ranking import WORTH_FINDING, gap_of
from directions_proof.worlds import AuditedWorld

HOW: tuple[Literal["difference", "shifted"], ...] = ("difference", "shifted")
_MOST_TOLD = 3


def measure(audited: AuditedWorld) -> dict[str, Any]:
    """By way of scoring: the place of the first caption that names what was planted, and the first captions."""
    world = audited.world
    direction = direction_of(audited)
    if direction is None or world.planted is None:
        return {}
    captions = captions_of(audited)
    candidates = captions.candidates[world.planted]
    texts = [captions.texts[row] for row in candidates]
    right = np.array([says_context(world, text) for text in texts])
    found: dict[str, Any] = {"gap": gap_of(audited), "chance": float(right.mean()), "captions": len(texts)}
    for how in HOW:
        scores = caption_scores(
            direction, captions.vectors[captions.references[world.planted]], captions.vectors[candidates],
            *audited.whitening, how,
        )  # fmt: skip
        hard = np.argsort(scores, kind="stable")
        easy = np.argsort(-scores, kind="stable")
        order = easy if SIDE[world.kind] == "easy" else hard
        found[how] = {
            "place": int(np.flatnonzero(right[order])[0]) + 1,
            "absent": _tells_absence(audited, texts[hard[0]]),
            "hard": [texts[place] for place in hard[:_MOST_TOLD]],
            "easy": [texts[place] for place in easy[:_MOST_TOLD]],
        }
    return found


def direction_of(audited: AuditedWorld) -> Direction | None:
    """The planted class's direction, fitted on all of its rows of validation."""
    if audited.world.planted is None:
        return None
    rows = audited.validation.of(audited.validation.labels == audited.world.planted)
    found = fit_direction(audited.whitened(rows), ~rows.failed, rows.units, seed=0, permutations=0)
    return found if isinstance(found, Direction) else None


def _tells_absence(audited: AuditedWorld, caption: str) -> bool:
    """Whether a caption names another value of the planted attribute: `in the snow` where the beach is the context."""
    world = audited.world
    assert world.planted is not None
    claimed = claims_of(world, world.planted, caption).get(str(world.attribute))
    return claimed is not None and claimed != world.value


def table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Markdown: one line a kind and way of scoring; worlds whose slice fails by 20 points or more."""
    lines = [
        "Worlds whose slice fails by 20 points or more. *right*: the caption on the planted side names what was"
        " planted. *absence*: in correlation worlds the hard caption names another value of the planted attribute.",
        "",
        "| worlds | score | top 1 right | top 2 right | mean reciprocal rank | chance | absence |",
        "| -- | -- | --: | --: | --: | --: | --: |",
    ]
    for kind in (kind for kind in SIDE if any(kind_of(name) == kind for name in results)):
        own = [one for name, one in results.items() if kind_of(name) == kind and (one.get("gap") or 0) >= WORTH_FINDING]
        for how in HOW if own else ():
            places = [one[how]["place"] for one in own]
            cells = [
                mean_of([place == 1 for place in places], SHARE).text(percent=True),
                mean_of([place <= 2 for place in places], SHARE).text(percent=True),
                mean_of([1 / place for place in places], SHARE).text(),
                f"{np.mean([one['chance'] for one in own]):.0%}".replace("%", " %"),
                mean_of([one[how]["absent"] for one in own], SHARE).text(percent=True) if kind == "correlation" else "",
            ]
            lines.append(f"| {kind}: {SIDE[kind]} caption ({len(own)}) | {how} | {' | '.join(cells)} |")
    return lines
