"""Part *decoded*: does a direction itself, decoded into pictures, show what was planted (Jain 2023,
A.7 and figure 8)?

The way runs from the class's reference caption towards the side that should show it: the easy side
where the absence of a context fails, else the hard one. The oracle judges; at α = 0 it sees how
often the reference alone shows it, which is chance, and the other side should show it less.
"""

from __future__ import annotations

from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.methods.directions import decoded_vectors
from directions_proof.captions import captions_of, direction_of, worlds_with_a_gap
from directions_proof.intervals import SHARE, mean_of
from directions_proof.painting import painted
from directions_proof.plan import SIDE
from directions_proof.ranking import gap_of
from directions_proof.worlds import AuditedWorld
from lab_training.oracle import Oracle
from proof_files import Facts, Results

ALPHAS = (0.0, 0.1, 0.2, 0.3)
PICTURES = 50
_FARTHEST = max(ALPHAS)
_USUAL_LENGTH = 1.0  # lab:clip's vectors, as the decoder was taught them


def measure(audited: AuditedWorld) -> Facts:
    """Return by α in what share of pictures the oracle sees what was planted; and on the other
    side, farthest out."""
    world = audited.world
    direction = direction_of(audited)
    if direction is None or world.planted is None or world.attribute is None or world.value is None:
        return {}
    captions = captions_of(audited)
    reference = captions.references[world.planted]
    attribute = world.attribute
    wanted = ATTRIBUTES[attribute].index(world.value)
    oracle = Oracle()

    def seen(alpha: float, side: int) -> float:
        vectors = decoded_vectors(
            captions.vectors[reference],
            direction.weights,
            alpha,
            _USUAL_LENGTH,
            audited.whitening[1],
        )
        pixels = painted("", PICTURES, world.seed, vectors[side])
        return float((oracle.answers(pixels)[attribute] == wanted).mean())

    planted, other = (1, 0) if SIDE[world.kind] == "easy" else (0, 1)
    return {
        "gap": gap_of(audited),
        "seen": {str(alpha): seen(alpha, planted) for alpha in ALPHAS},
        "other": seen(_FARTHEST, other),
    }


def table(results: Results) -> list[str]:
    """Return Markdown: worlds whose slice fails by 20 points or more."""
    lines = [
        f"Share of {PICTURES} pictures in which the oracle sees what was planted; worlds whose"
        " slice fails by 20 points"
        " or more.",
        "",
        f"| worlds | {' | '.join(f'α = {alpha:g}' for alpha in ALPHAS)} | other side, α ="
        f" {_FARTHEST:g} |",
        f"| -- | {'--: | ' * len(ALPHAS)}--: |",
    ]
    for kind, worlds in worlds_with_a_gap(results):
        cells = [
            mean_of([world["seen"][str(alpha)] for world in worlds], SHARE).text()
            for alpha in ALPHAS
        ]
        cells.append(mean_of([world["other"] for world in worlds], SHARE).text())
        lines.append(f"| {kind} ({len(worlds)}) | {' | '.join(cells)} |")
    return lines
