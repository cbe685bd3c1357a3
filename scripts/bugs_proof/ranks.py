"""Part *ranks*: the same clusters of failures on the base, described by each rule of
`mine.settings.rank`.

Nothing is drawn and tested: a description is right if the attributes that it names have a true drop
above the margin, in renders of the world. The paper's rule is `product`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bugs_proof.arms import progress_printed
from bugs_proof.plan import MARGIN
from bugs_proof.proof import Proof, captioner_of
from bugs_proof.words import named
from counterfoil.mining.methods.bugs.describing import ClusterDescriber, Described, FailureCluster
from counterfoil.mining.methods.bugs.search import search_bugs
from directions_proof.intervals import share_percent
from proof_files import Facts, Results

RANKS = ("contrast", "likelihood", "product")


def measure(proof: Proof) -> Facts:
    """Return by rank [right, judged] descriptions, their pieces and true drops, and those that
    `contrast` says too."""
    audit = proof.audit
    drawer = audit.drawer("ranks")
    run = drawer.drawer.run
    clusters: list[FailureCluster] = []

    def collect(of_failures: Sequence[FailureCluster]) -> list[Described]:
        clusters.extend(of_failures)
        return [Described(None, "not described here")] * len(of_failures)

    search_bugs(audit.recipe.classes, drawer, drawer.look, collect, run)
    measured: Facts = {"clusters": len(clusters), "ranks": {}}
    first: list[Described] = []
    for rank in RANKS:
        ranked = replace(run, settings=run.settings.model_copy(update={"rank": rank}))
        with progress_printed(f"{audit.target} {rank}"):
            described = ClusterDescriber(ranked, captioner_of(proof.captioner), (), drawer.images)(
                clusters
            )
        first = first or described
        drops = []
        for cluster, answer in zip(clusters, described, strict=True):
            claims = () if answer.description is None else named(answer.description)
            rate = proof.true_rate(cluster.label, claims)
            if rate is not None:
                drops.append(rate.drop)
        descriptions = [
            answer.description for answer in described if answer.description is not None
        ]
        measured["ranks"][rank] = {
            "right": [sum(drop > MARGIN for drop in drops), len(drops)],
            "described": len(descriptions),
            "pieces": sum(len(description.pieces) for description in descriptions),
            "drop": float(np.mean(drops)) if drops else None,
            "same": sum(
                answer.description == contrast.description
                for answer, contrast in zip(described, first, strict=True)
            ),
        }
    return measured


def table(results: Results) -> list[str]:
    """Return Markdown: a line a rank."""
    lines = [
        "Right: of descriptions whose attributes a scene can have, those with a true drop above 5"
        " points.",
        "",
        "| rank | clusters | described | as `contrast` describes them | pieces | right | mean true"
        " drop |",
        "| -- | --: | --: | --: | --: | --: | --: |",
    ]
    for rank in RANKS:
        ranked = [result["ranks"][rank] for result in results.values()]
        clusters = sum(result["clusters"] for result in results.values())
        described = sum(row["described"] for row in ranked)
        judged = [row for row in ranked if row["right"][1]]
        right = share_percent([row["right"] for row in judged])
        pieces = drop = "–"
        if described:
            pieces = f"{sum(row['pieces'] for row in ranked) / described:.1f}"
        if judged:
            drop = f"{100 * np.mean([row['drop'] for row in judged]):.0f} points"
        lines.append(
            f"| `{rank}` | {clusters} | {described} | {sum(row['same'] for row in ranked)} |"
            f" {pieces} | {right} of {sum(row['right'][1] for row in judged)} | {drop} |"
        )
    return lines
