"""Part *published*: corruptions beside the accuracies that RobustBench lists for 23 models on
CIFAR-10-C.

The table has no accuracy on clean images. So what a model loses is told from brightness at severity
1, where published models are the most accurate or nearly so, for ours and for theirs alike. One of
the 23 models, `Standard`, was trained without any aim at robustness, as were our networks but for
the last.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from counterfoil.accuracy_stats import probits
from counterfoil.arrays import Bools, Floats
from counterfoil.stats import REPLICATES, bootstrap_weights, seeded_generator
from photographs_proof.networks import CLASSES
from photographs_proof.scored import NETWORKS, PUBLISHED, SEED, SEVERITIES, PhotographProof

STANDARD = "Standard"
MILDEST = PUBLISHED.index("brightness")
PUBLISHED_IMAGES = 10_000


def published_accuracies(file: Path) -> tuple[list[str], Floats]:
    """Return the names of the published models, and their accuracies: [models, 15 corruptions, 5
    severities]."""
    with file.open(encoding="utf-8", newline="") as stream:
        names, severities, *rows = csv.reader(stream)
    accuracies = np.empty((len(rows), len(PUBLISHED), len(SEVERITIES)))
    for index, name in enumerate(PUBLISHED):
        columns = [names.index(name) + severity - 1 for severity in SEVERITIES]
        assert [severities[column] for column in columns] == [
            str(severity) for severity in SEVERITIES
        ]
        accuracies[:, index] = [[float(row[column]) for column in columns] for row in rows]
    return [row[0] for row in rows], accuracies


def published_table(proof: PhotographProof) -> list[str]:
    """Return accuracies by corruption beside those of the published models, and the points outside
    their range."""
    models, published = published_accuracies(proof.data / "robustbench_cifar10c.csv")
    hits = {network: proof.hits_by_severity(network) for network in NETWORKS}
    # Rounded, so that equal means are ties whatever order they were summed in.
    published_percents = np.round(100 * published.mean(axis=2), 6)  # [models, corruptions]
    ours = {
        network: 100 * corrupted.mean(axis=(1, 2, 3)) for network, (_, corrupted) in hits.items()
    }
    lines = [
        "### Against the published table",
        "",
        f"Accuracy in % over severities 1 to 5 on {10 * proof.levels:,} photographs; published: the"
        " lowest, the median"
        f" and the highest of {len(models)} models on CIFAR-10-C (RobustBench), and `{STANDARD}`,"
        " the only one of them"
        " that was not made robust. Of ours only the last was. The photographs are JPEG files of"
        " quality 75 here.",
        "",
        f"| corruption | {' | '.join(NETWORKS)} | published: lowest, median, highest | `{STANDARD}`"
        " |",
        "| :-- |" + " --: |" * (len(NETWORKS) + 2),
        f"| none | {' | '.join(f'{100 * base.mean():.1f}' for base, _ in hits.values())} | | |",
    ]
    for index, name in enumerate(PUBLISHED):
        cells = [f"{accuracies[index]:.1f}" for accuracies in ours.values()]
        spread = ", ".join(
            f"{value:.1f}" for value in np.quantile(published_percents[:, index], (0, 0.5, 1))
        )
        lines.append(
            f"| {name} | {' | '.join(cells)} | {spread} |"
            f" {published_percents[models.index(STANDARD), index]:.1f} |"
        )
    return [*lines, "", *_ranks(ours, published_percents), "", *_outside(hits, models, published)]


def _ranks(ours: Mapping[str, Floats], published: Floats) -> list[str]:
    """Return rank correlations over the corruptions. ours: accuracies by network; published:
    [models, corruptions]."""
    median = np.median(published, axis=0)
    lines = [
        "Rank correlation (Spearman) of a network's accuracies over the fifteen corruptions with"
        " the median published"
        " ones, and with the single published model that is nearest in rank; and published models"
        " among themselves"
        " (5th, 50th and 95th percentile of all pairs).",
        "",
        "| network | with the median | with the nearest |",
        "| :-- | --: | --: |",
    ]
    for network, accuracies in ours.items():
        each = [spearmanr(accuracies, percents).statistic for percents in published]
        lines.append(
            f"| {network} | {spearmanr(accuracies, median).statistic:.2f} | {max(each):.2f} |"
        )
    pairs = [
        spearmanr(published[index], published[other]).statistic
        for index in range(len(published))
        for other in range(index)
    ]
    spread = ", ".join(f"{value:.2f}" for value in np.quantile(pairs, (0.05, 0.5, 0.95)))
    return [*lines, f"| published pairs | {spread} | |"]


def _outside(
    hits: Mapping[str, tuple[Bools, Bools]],
    models: list[str],
    published: Floats,
) -> list[str]:
    """Count the points outside of what the published models span, by accuracy and by what is lost.

    hits: by network on the base and [15, 5, 10, photographs]; published: [models, 15, 5].
    """
    points = len(PUBLISHED) * len(SEVERITIES)
    lines = [
        f"Of the {points} points (15 corruptions, 5 severities) of a network, how many lie outside"
        " of what the"
        " published models span; in brackets those whose 95 % interval lies outside (photographs"
        " drawn with"
        " replacement). *Lost*: from brightness at severity 1, the mildest point of all, as the"
        " table has no accuracy"
        " without corruption; in points of accuracy, and on the probit scale, where 80 to 68 % is"
        " as much as 95 to 90.",
        "",
        "| network | accuracy below all | above all | points lost, more than all | more than"
        f" `{STANDARD}` |"
        f" probits lost, more than all | more than `{STANDARD}` | probits lost, less than all |",
        "| :-- |" + " --: |" * 7,
    ]
    sides = (published, lost(published), lost(probits(published, PUBLISHED_IMAGES)))
    beyond = np.zeros((len(PUBLISHED), len(NETWORKS)), dtype=int)
    for number, (network, (_, corrupted)) in enumerate(hits.items()):
        images = corrupted[0, 0].size
        drawn = drawn_means(corrupted.astype(np.float64), "published")
        accuracy = np.concatenate([corrupted.mean(axis=(2, 3))[None], drawn])
        measures = (accuracy, lost(accuracy), lost(probits(accuracy, images)))
        values = [measure[0] for measure in measures]
        low, high = zip(
            *[np.quantile(measure[1:], (0.025, 0.975), axis=0) for measure in measures], strict=True
        )
        standard = [side[models.index(STANDARD)] for side in sides]
        least = [side.min(axis=0) for side in sides]
        most = [side.max(axis=0) for side in sides]
        cells = [
            _counted(values[0] < least[0], high[0] < least[0]),
            _counted(values[0] > most[0], low[0] > most[0]),
            *(
                _counted(values[scale] > reference[scale], low[scale] > reference[scale])
                for scale in (1, 2)
                for reference in (most, standard)
            ),
            _counted(values[2] < least[2], high[2] < least[2]),
        ]
        beyond[:, number] = (low[2] > standard[2]).sum(axis=1)
        lines.append(f"| {network} | {' | '.join(cells)} |")
    named = [
        f"{name} {', '.join(map(str, counts))}"
        for name, counts in zip(PUBLISHED, beyond, strict=True)
        if counts.any()
    ]
    return [
        *lines,
        "",
        f"At how many severities more probits are lost than by `{STANDARD}`, with the interval, in"
        " the order of the"
        f" networks: {'; '.join(named)}.",
    ]


def lost(accuracy: Floats) -> Floats:
    """Return what is lost from the mildest point, of [..., corruptions, severities]."""
    return accuracy[..., MILDEST, None, None, 0] - accuracy


def drawn_means(values: Floats, salt: str) -> Floats:
    """Return means of photographs drawn within their classes, [replicates, corruptions,
    severities], of values [corruptions, severities, classes, photographs]."""
    classes, photographs = values.shape[2:]
    drawn = np.zeros((REPLICATES, *values.shape[:2]))
    for label in range(classes):
        rng = seeded_generator(SEED, salt, CLASSES[label])
        weights = bootstrap_weights(photographs, REPLICATES, rng)
        drawn += np.tensordot(weights, values[:, :, label], axes=(1, 2))
    return drawn / (classes * photographs)


def _counted(outside: Bools, surely: Bools) -> str:
    return f"{int(outside.sum())} ({int(surely.sum())})"
