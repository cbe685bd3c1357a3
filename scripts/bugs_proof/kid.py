"""Part *kid*: how far the failures under the findings' words are from the source's images, beside
their base's images.

On the features of the recipe's CLIP. Both sets have the same classes, since a finding's base images
are of its class.
"""

from __future__ import annotations

import numpy as np

from bugs_proof.proof import Proof
from bugs_proof.runs import Shown
from counterfoil.arrays import Floats32
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.prediction.embedding import clip_embedder, embed
from counterfoil.recipe import Recipe
from counterfoil.store.layout import user_cache
from proof_files import Facts, Results

_FEWEST = 20


def measure(proof: Proof) -> Facts:
    """Return KID and FID of both sets to the source, if a set has at least 20 images."""
    from counterfoil.feature_stats import feature_statistics, frechet_distance, kernel_distance

    audit = proof.audit
    distances = {}
    findings = proof.run("bugs").findings
    labels = sorted({finding.label for finding in findings})
    if not labels:
        return {}
    source = _source(audit.recipe, tuple(labels))
    shown = {
        "failures": [(finding.label, each) for finding in findings for each in finding.pictures],
        "base": [(finding.label, each) for finding in findings for each in finding.beside],
    }
    for name, parts in shown.items():
        features = _features(proof, parts, name == "failures")
        if len(features) >= _FEWEST:
            kid = kernel_distance(features, source)
            fid = frechet_distance(feature_statistics(features), feature_statistics(source))
            distances[name] = {
                "images": len(features),
                "kid": kid.value,
                "low": kid.low,
                "high": kid.high,
                "fid": fid,
            }
    return distances


def _features(proof: Proof, parts: list[tuple[int, Shown]], failed_only: bool) -> Floats32:
    """Return (n, width) of pictures, each once; all, or only those that the target gets wrong."""
    audit = proof.audit
    chosen = {}
    for label, shown in parts:
        failed = audit.panel.failed(audit.store, shown.cell, label, proof.target)
        features = audit.store[shown.cell].features
        for index in shown.indices:
            if failed[index] or not failed_only:
                chosen[shown.cell, index] = features[index]
    return np.stack(list(chosen.values())) if chosen else np.zeros((0, 1), np.float32)


def _source(recipe: Recipe, labels: tuple[int, ...]) -> Floats32:
    """Return (n, width) of the source's validation images of some classes."""
    images = labelled_split(
        recipe.source, recipe.source.validation_split, recipe.classes, None, units=False
    )
    clip = clip_embedder(
        load_clip(recipe.screen.clip, recipe.screen.weights), pin_clip(recipe.screen.clip, None)
    )
    features = embed(images, clip, user_cache() / "embeddings", precision="float32")
    return np.asarray(features, np.float32)[np.isin(images.labels, labels)]


def table(results: Results) -> list[str]:
    """Return Markdown: a line a target; KID in thousandths."""
    lines = [
        "KID in thousandths (95 %), FID behind it, to the source's validation images of the same"
        " classes.",
        "",
        "| classifier | images that fail | KID | FID | base images | KID | FID |",
        "| -- | --: | --: | --: | --: | --: | --: |",
    ]
    for target, distances in results.items():
        if {"failures", "base"} <= distances.keys():
            cells = [
                f"{each['images']} | {1000 * each['kid']:.1f} ({1000 * each['low']:.1f} to"
                f" {1000 * each['high']:.1f})"
                f" | {each['fid']:.2f}"
                for each in (distances["failures"], distances["base"])
            ]
            lines.append(f"| {target} | {' | '.join(cells)} |")
    return lines
