"""How often images were selected, how sure that is, and whether people agree: pure functions of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterfoil.report.labels import CheckedShare
from counterfoil.stats import clustered_interval, fleiss_kappa


def mean_frequency(answers: Sequence[tuple[int, int]]) -> CheckedShare | None:
    """The mean of images' selection frequencies with its 95 % interval over images; None for no image.

    answers: of each image, how many raters selected it, of how many asked. The interval is that of rows that share
    units (`clustered_interval`), an image's answers being its rows: of one rater it is Wilson's of the images.
    """
    import numpy as np

    if not answers:
        return None
    selected, asked = np.asarray(answers, np.float64).T
    low, high = clustered_interval(selected, asked)
    share = float(np.mean(selected / asked))
    return CheckedShare(share, min(low, share), max(high, share))


def agreement(answers: Mapping[str, Mapping[int, bool]]) -> tuple[float | None, int]:
    """Fleiss' kappa of answers (image → rater → selected), and over how many images it is.

    It is over the images that all raters saw who saw any. Where there are none, images are grouped by how many raters
    saw them, and it is the groups' mean, weighted by images. None where it is undefined: of fewer than two raters, or
    where all answers are one.
    """
    raters = {rater for own in answers.values() for rater in own}
    if len(raters) < 2:
        return None, 0
    shared = [own for own in answers.values() if len(own) == len(raters)]
    groups: dict[int, list[tuple[int, int]]] = {}
    for own in shared or answers.values():
        if len(own) > 1:
            groups.setdefault(len(own), []).append((sum(own.values()), len(own) - sum(own.values())))
    kappas = [(kappa, len(counts)) for counts in groups.values() if (kappa := fleiss_kappa(counts)) is not None]
    images = sum(count for _, count in kappas)
    if not images:
        return None, 0
    return sum(kappa * count for kappa, count in kappas) / images, images
