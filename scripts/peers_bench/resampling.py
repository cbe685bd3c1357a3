"""The interval of a drop of accuracy by 2,000 bootstrap resamples, and of mAP over labels: beside
scikit-learn's `resample`, scipy's `bootstrap` and torchmetrics' `BootStrapper`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from counterfoil.accuracy_stats import ClassUnits, drops_of_classes
from counterfoil.multilabel_stats import LabelTruth, label_precision
from counterfoil.resampled_stats import Units
from counterfoil.stats import REPLICATES
from peers_bench.pair import Agreement, Pair

NEEDS = ("scikit-learn", "scipy", "torchmetrics")
CLASSES = 10
OF_CLASS = 200
# Of the ends of an interval, each side drawing for itself: 0.3 points.
ENDS = 0.003
IMAGES = 2000
LABELS = 10
LABEL_RESAMPLES = 200
# A value and its ends.
Interval = tuple[float, float, float]


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield drops beside the two plain bootstraps, and mAP beside torchmetrics'."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), OF_CLASS)
    on_base = rng.random(len(labels)) < 0.85
    on_shift = on_base & (rng.random(len(labels)) < 0.8)

    def ours() -> Interval:
        every = np.ones(OF_CLASS, dtype=bool)
        classes = []
        for number in range(CLASSES):
            of_class = labels == number
            right = on_base[of_class][:, None]
            right_shifted = on_shift[of_class][:, None]
            classes.append(ClassUnits(str(number), every, right, every, right_shifted))
        drops = drops_of_classes(classes, paired=True, seed=0, salt="fog")
        estimate = drops.interval(0)
        assert estimate.low is not None and estimate.high is not None
        return estimate.value, estimate.low, estimate.high

    def scikit_learn() -> Interval:
        from sklearn.utils import resample

        change = on_base.astype(float) - on_shift
        draws = []
        for seed in range(REPLICATES):
            drawn: Any = resample(change, stratify=labels, random_state=seed)
            draws.append(np.mean(drawn))
        low, high = np.quantile(draws, [0.025, 0.975])
        return float(change.mean()), float(low), float(high)

    def scipy() -> Interval:
        from scipy.stats import bootstrap

        change = on_base.astype(float) - on_shift
        ends = bootstrap(
            (change,), np.mean, n_resamples=REPLICATES, method="percentile", rng=0, batch=100
        ).confidence_interval
        return float(change.mean()), float(ends.low), float(ends.high)

    size = f"drop over {CLASSES} classes of {OF_CLASS} pairs, {REPLICATES:,} resamples"
    for package, way, peers in (
        ("scikit-learn", "`resample` by class, in a loop", scikit_learn),
        ("scipy", "`bootstrap`, percentiles, classes not kept", scipy),
    ):
        if package in present:
            yield Pair(size, package, way, ours, peers, same_interval)
    if "torchmetrics" in present:
        yield labels_pair(rng)


def same_interval(ours: Interval, peers: Interval) -> Agreement:
    """Each side draws for itself: values are the same, and ends are near."""
    exact = abs(ours[0] - peers[0])
    ends = max(abs(ours[1] - peers[1]), abs(ours[2] - peers[2]))
    words = f"drop differs by {exact:.0e}, ends by {100 * ends:.2f} points (own draws)"
    return Agreement(exact <= 1e-9 and ends <= ENDS, words)


def labels_pair(rng: np.random.Generator) -> Pair:
    """Return mAP with its spread over resamples, beside torchmetrics' wrapper."""
    import torch
    from torchmetrics.classification import MultilabelAveragePrecision
    from torchmetrics.wrappers import BootStrapper

    present = rng.random((IMAGES, LABELS)) < 0.3
    scores = (present + rng.normal(0, 0.7, present.shape)).astype(np.float32)
    truth = LabelTruth(present, np.ones_like(present))

    def ours() -> tuple[float, float]:
        whole = label_precision(scores, truth, np.ones((IMAGES, 1), np.int32)).mean()
        weights = Units.of_images(IMAGES).drawn(LABEL_RESAMPLES, np.random.default_rng(0))
        draws = label_precision(scores, truth, weights.T.copy()).mean(axis=0)
        return float(whole), float(draws.std(ddof=1))

    given = torch.from_numpy(scores).sigmoid()
    true = torch.from_numpy(present).long()

    def peers() -> tuple[float, float]:
        torch.manual_seed(0)
        metric = MultilabelAveragePrecision(num_labels=LABELS, validate_args=False)
        whole = float(metric(given, true))
        metric.reset()
        wrapped = BootStrapper(metric, LABEL_RESAMPLES, sampling_strategy="multinomial")
        wrapped.update(given, true)
        return whole, float(wrapped.compute()["std"])

    def same(ours: tuple[float, float], peers: tuple[float, float]) -> Agreement:
        difference = abs(ours[0] - peers[0])
        spread = ours[1] / peers[1]
        words = f"mAP differs by {difference:.0e}; spread {spread:.2f} times theirs (own draws)"
        return Agreement(difference <= 1e-6 and 0.8 < spread < 1.25, words)

    what = f"mAP over {LABELS} labels of {IMAGES:,} images, {LABEL_RESAMPLES} resamples"
    way = "`BootStrapper(MultilabelAveragePrecision)`"
    return Pair(what, "torchmetrics", way, ours, peers, same)
