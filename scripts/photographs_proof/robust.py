"""Part *robust*: an adversarially trained network beside its twin of the same author and
architecture."""

from __future__ import annotations

import numpy as np

from counterfoil.accuracy_stats import ClassUnits, drops_of_classes, effective_robustness_intervals
from counterfoil.arrays import Floats
from counterfoil.stats import simultaneous_reach
from photographs_proof.networks import CLASSES
from photographs_proof.published import drawn_means
from photographs_proof.scored import NETWORKS, PUBLISHED, SEED, SEVERITIES, PhotographProof

TWIN = "resnet20-ehanw"
ROBUST = "resnet20-ehanw-adversarial"
# Severities for which effective robustness is reported.
TOLD = (1, 3, 5)


def robust_table(proof: PhotographProof) -> list[str]:
    """Return accuracies of both at each severity, their differences with simultaneous intervals,
    and effective robustness."""
    (twin_base, twin), (robust_base, robust) = (
        proof.hits_by_severity(network) for network in (TWIN, ROBUST)
    )
    low, high = difference_ends(robust.astype(np.float64) - twin)
    accuracies = [100 * hits.mean(axis=(2, 3)) for hits in (twin, robust)]
    lines = [
        "### An adversarially trained network beside its twin",
        "",
        f"Accuracy in % at each severity on {10 * proof.levels:,} photographs: {TWIN}, then"
        f" {ROBUST}. In bold where the"
        f" 95 % interval of the difference excludes 0; the intervals hold for all {low.size}"
        " differences at once"
        " (photographs drawn together for all).",
        "",
        f"| corruption | {' | '.join(map(str, SEVERITIES))} |",
        "| :-- |" + " --: |" * len(SEVERITIES),
        f"| none | {100 * twin_base.mean():.1f}, {100 * robust_base.mean():.1f} |"
        + " |" * (len(SEVERITIES) - 1),
    ]
    for index, name in enumerate(PUBLISHED):
        cells = []
        for step in range(len(SEVERITIES)):
            cell = f"{accuracies[0][index, step]:.1f}, {accuracies[1][index, step]:.1f}"
            cells.append(f"**{cell}**" if low[index, step] > 0 or high[index, step] < 0 else cell)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    reach = 100 * (high - low) / 2
    means = [accuracy.mean() for accuracy in accuracies]
    return [
        *lines,
        "",
        f"Surely better: {(low > 0).sum()} of {low.size}; surely worse: {(high < 0).sum()}. The"
        " intervals reach"
        f" {reach.min():.1f} to {reach.max():.1f} points to each side. Mean over corruptions and"
        " severities:"
        f" {means[0]:.1f} and {means[1]:.1f} %.",
        "",
        *_effective(proof),
    ]


def difference_ends(
    differences: Floats,
) -> tuple[Floats, Floats]:
    """Return low and high ends of intervals of mean differences that hold for all at once.

    differences: [corruptions, severities, classes, photographs], each 1, 0 or -1; the same
    photographs everywhere. Photographs are drawn within their classes.
    """
    replicates = drawn_means(differences, "twins")
    # A difference of one photograph: where all agree, that much is still open.
    values = differences.mean(axis=(2, 3))
    least_error = 1 / differences[0, 0].size
    errors = np.maximum(replicates.std(axis=0), least_error)
    reach = simultaneous_reach(values, replicates, least_error) * errors
    return values - reach, values + reach


def _effective(proof: PhotographProof) -> list[str]:
    """Return the effective robustness of the robust network, by the line through the five
    others."""
    scored = [proof.hits_by_severity(network) for network in NETWORKS]
    base = np.stack([on_base for on_base, _ in scored], axis=-1)  # [classes, photographs, networks]
    # [15, 5, classes, photographs, networks]
    corrupted = np.stack([on_shifts for _, on_shifts in scored], axis=-1)
    images = base[..., 0].size
    present = np.ones(base.shape[1], dtype=bool)
    accuracy = 100 * np.delete(base.mean(axis=(0, 1)), NETWORKS.index(ROBUST))
    rows = []
    others = []
    for index, name in enumerate(PUBLISHED):
        cells = []
        for severity in TOLD:
            units = [
                ClassUnits(
                    class_name, present, base[label], present, corrupted[index, severity - 1, label]
                )
                for label, class_name in enumerate(CLASSES)
            ]
            class_drops = drops_of_classes(units, paired=True, seed=SEED, salt=f"{name}_{severity}")
            values = effective_robustness_intervals(class_drops, (images, images))
            robust = values.pop(NETWORKS.index(ROBUST))
            assert robust.low is not None and robust.high is not None
            cells.append(
                f"{100 * robust.value:+.1f} ({100 * robust.low:+.1f} to {100 * robust.high:+.1f})"
            )
            others += [100 * value.value for value in values.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return [
        f"Effective robustness of {ROBUST} in points, with 95 % intervals over photographs:"
        " accuracy less what the line"
        " through the five other networks expects at its accuracy without corruption, on the probit"
        " scale (Taori"
        f" 2020), as `evaluate` reports it. Five networks of {accuracy.min():.1f} to"
        f" {accuracy.max():.1f} % are few and"
        " near each other, and intervals do not cover the choice of networks. For the five"
        " themselves, whose lines go"
        f" through the robust one, it is {min(others):+.0f} to {max(others):+.0f} points and says"
        " nothing.",
        "",
        f"| corruption | {' | '.join(f'severity {severity}' for severity in TOLD)} |",
        "| :-- |" + " --: |" * len(TOLD),
        *rows,
    ]
