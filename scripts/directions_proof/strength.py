"""Part *strength*: does a direction's cross-validation score tell how wide the gap is (Jain 2023,
figure 4)?"""

from __future__ import annotations

from directions_proof.captions import direction_of
from directions_proof.intervals import rank_correlation
from directions_proof.ranking import gap_of
from directions_proof.worlds import AuditedWorld
from proof_files import Facts, Results


def measure(audited: AuditedWorld) -> Facts:
    """Return the planted strength, the direction's score on validation, and the gap on test."""
    direction = direction_of(audited)
    return {
        "planted": audited.world.strength,
        "strength": None if direction is None else direction.strength,
        "C": None if direction is None else direction.C,
        "gap": gap_of(audited),
    }


def table(results: Results) -> list[str]:
    """Return Markdown: the rank correlation, and the means of each planted strength."""
    fitted = [
        result
        for result in results.values()
        if result["strength"] is not None and result["gap"] is not None
    ]
    correlation = rank_correlation([(world["strength"], world["gap"]) for world in fitted])
    lines = [
        f"Spearman of the direction's score with the gap measured on test: {correlation.text()},"
        f" over {len(fitted)}"
        f" worlds of {len(results)} (the others have no direction: too few errors).",
        "",
        "| P(context \\| class) in train | worlds | score | gap |",
        "| --: | --: | --: | --: |",
    ]
    for planted in sorted({world["planted"] for world in fitted}):
        alike = [world for world in fitted if world["planted"] == planted]
        score, gap = (
            sum(world[name] for world in alike) / len(alike) for name in ("strength", "gap")
        )
        lines.append(f"| {planted:g} | {len(alike)} | {score:.2f} | {gap:+.2f} |")
    return lines
