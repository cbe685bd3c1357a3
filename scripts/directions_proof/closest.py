"""Part *closest*: how much of the true gap lies between the images closest to the easy and to the
hard caption?

As figures 7b and 10b of Jain 2023: images of the class by cosine with the caption, without
whitening. Where what fails is the absence of the easy caption's context, the images *least* like it
are measured too.
"""

from __future__ import annotations

import numpy as np

from directions_proof.captions import captions_of, direction_of, scores_of, worlds_with_a_gap
from directions_proof.intervals import ANY, mean_of
from directions_proof.ranking import gap_of
from directions_proof.worlds import AuditedWorld
from proof_files import Facts, Results

NEAREST = (10, 25, 50, 100)
# Of the true gap; the aim of the proof.
_AIM = 0.7


def measure(audited: AuditedWorld) -> Facts:
    """Return by K accuracies on test: of the K closest to the hard caption, to the easy one, and
    farthest from that."""
    world = audited.world
    direction = direction_of(audited)
    if direction is None or world.planted is None:
        return {}
    captions = captions_of(audited)
    candidates = captions.candidates[world.planted]
    scores = scores_of(audited, captions, direction, world.planted)
    rows = audited.test.of_class(world.planted)
    hard, easy = (
        rows.features @ captions.vectors[candidates[index]]
        for index in (scores.argmin(), scores.argmax())
    )
    orders = {"hard": np.argsort(-hard), "easy": np.argsort(-easy), "far_from": np.argsort(easy)}
    accuracies = {
        name: {str(k): float((~rows.failed[order[:k]]).mean()) for k in NEAREST}
        for name, order in orders.items()
    }
    return accuracies | {"gap": gap_of(audited)}


def table(results: Results) -> list[str]:
    """Return Markdown: shares of the true gap, in worlds whose slice fails by 20 points or more."""
    lines = [
        "Accuracy of the K closest to the easy caption less that of the K in the column, over the"
        " true gap"
        f" (aim: {_AIM}).",
        "",
        "| worlds | K | closest to the hard caption | farthest from the easy one |",
        "| -- | --: | --: | --: |",
    ]
    for kind, worlds in worlds_with_a_gap(results):
        for k in map(str, NEAREST):
            cells = [
                mean_of(
                    [(world["easy"][k] - world[which][k]) / world["gap"] for world in worlds], ANY
                ).text()
                for which in ("hard", "far_from")
            ]
            lines.append(f"| {kind} ({len(worlds)}) | {k} | {' | '.join(cells)} |")
    return lines
