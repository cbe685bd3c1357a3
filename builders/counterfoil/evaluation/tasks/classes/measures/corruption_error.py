"""The errors of corruption benchmarks: mPC, rPC, mCE, relative mCE, and effective robustness over
all kinds of corruption.

They are measured on built datasets of corrupted photographs. Every kind counts once: its error is
the mean over its severities. mCE divides it by the error of a reference: AlexNet's published one if
the dataset has all of ImageNet-C, and the second model of `--compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from counterfoil.accuracy_stats import effective_robustness
from counterfoil.arrays import Bools, Floats
from counterfoil.corrupting.corruptions import SEVERITIES
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Measure
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels
from counterfoil.evaluation.tasks.classes.resampling import drawn_averages
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.report.words import format_count
from counterfoil.resampled_stats import Drawn, resampled_ratio
from counterfoil.stats import Estimate, percentile_interval

MPC = "mPC"
RPC = "rPC"
MCE = "mCE"
RELATIVE_MCE = "relative_mCE"
ROBUSTNESS = "mean_effective_robustness"
ALEXNET = "AlexNet (published)"
# AlexNet's error by kind, a mean over the five severities (github.com/hendrycks/robustness).
_ALEXNET_ERRORS = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
# AlexNet's error on unchanged images (Hendrycks and Dietterich 2019, Table 1).
_ALEXNET_CLEAN = 0.435
_IMAGENET_CLASSES = 1000
_NOT = "not comparable with published mCE"
_NO_ERRORS = "because the reference has no error, or loses nothing, under some kind"
# A share of images that is smaller is rounding.
_NOTHING = 1e-9
# The least share of resamples with a ratio that an interval is made of.
_FEWEST_WITH_RATIO = 0.975
_COMPARABLE = "comparable with published mCE if the images are ImageNet's validation set"
COMPARABLE = f"{_COMPARABLE} at 224 px"


@dataclass(frozen=True)
class _CorruptedAnswers:
    """Accuracies of m models, averaged over classes: on the base and under k kinds, each a mean
    over severities."""

    kinds: tuple[str, ...]
    graded: Bools
    """(k,), whether a kind has all severities."""
    computed: int
    """How many kinds are computed at each model's own size."""
    base: Floats
    """(m,)."""
    accuracy: Floats
    """(m, k)."""
    base_drawn: Floats
    """(R, m), in resamples that all groups share."""
    drawn: Floats
    """(R, m, k)."""
    images: int
    """The number of base images, or of their units."""
    shifted_images: int
    """The number of corrupted images."""
    by_units: bool
    """Whether images share units."""
    able: Bools
    """(m,), which models answered every kind."""

    def on_base(self, model: int) -> Drawn:
        return self._share(self.base[model], self.base_drawn[:, model])

    def over_kinds(self, model: int) -> Drawn:
        """Return mPC."""
        mean = self.accuracy[model].mean()
        drawn = self.drawn[:, model].mean(axis=1)
        return self._share(mean, drawn)

    def _share(self, value: float, drawn: Floats) -> Drawn:
        return Drawn(
            float(value),
            drawn,
            0.0,
            (0.0, 0.0),
            self.images,
            by_units=self.by_units,
        )


@dataclass(frozen=True)
class _Reference:
    """The errors of a reference: (k,) by kind and on the base, also in resamples."""

    name: str
    kinds: Bools
    """(all kinds,), which kinds it has."""
    clean: Floats
    errors: Floats
    clean_drawn: Floats
    """(R,) or a number."""
    drawn: Floats
    """(R, k) or (k,)."""
    note: str


def corrupted_groups(answered: AllAnswers) -> dict[str, dict[int, int]]:
    """Return the group of each severity of each kind of corruption, in the order of groups.

    A kind is wholly stored or wholly computed: what has more severities. Ties go to stored images,
    which every model answers.
    """
    subject = answered.subject
    stored: dict[str, dict[int, int]] = {}
    computed: dict[str, dict[int, int]] = {}
    if not subject.base:
        return {}
    for index, group in enumerate(subject.groups):
        described = group if group.change is None else group.change
        of_origin = computed
        if group.change is None:
            of_origin = stored
        if described.corruption and len(answered.rows(index)):
            severities = of_origin.setdefault(described.corruption, {})
            severities[described.severity] = index
    groups = dict(stored)
    for kind, severities in computed.items():
        of_stored = stored.get(kind, {})
        if len(severities) > len(of_stored):
            groups[kind] = severities
    return groups


def _measured(answered: AllAnswers) -> _CorruptedAnswers | None:
    return answered.once(("corrupted answers",), lambda: _measure(answered))


def _measure(answered: AllAnswers) -> _CorruptedAnswers | None:
    groups = corrupted_groups(answered)
    if not groups:
        return None
    labels = answered.subject.labels
    correct = answered.answers.correct.astype(np.float64)
    models = len(answered.models)
    indices = [0]
    for severities in groups.values():
        indices += severities.values()
    sides = []
    values = []
    for index in indices:
        rows = answered.rows(index)
        of_rows = labels[rows]
        for model in range(models):
            right = correct[:, model]
            sides.append((rows, right))
            of_classes = []
            for label in np.unique(of_rows):
                of_class = rows[of_rows == label]
                of_classes.append(right[of_class].mean())
            values.append(np.mean(of_classes))
    shape = len(indices), models
    drawn = drawn_averages(answered, sides).reshape(-1, *shape)
    accuracy = np.array(values).reshape(shape)
    means = []
    drawn_means = []
    start = 1
    every = set(range(1, SEVERITIES + 1))
    computed = 0
    graded = []
    for severities in groups.values():
        stop = start + len(severities)
        of_kind = accuracy[start:stop]
        drawn_of_kind = drawn[:, start:stop]
        means.append(of_kind.mean(axis=0))
        drawn_means.append(drawn_of_kind.mean(axis=1))
        computed += answered.group(indices[start]).change is not None
        graded.append(every <= severities.keys())
        start = stop
    able = np.ones(models, bool)
    shifted = 0
    for index in indices[1:]:
        able &= answered.able(index)
        shifted += len(answered.rows(index))
    base_rows = answered.rows(0)
    units = answered.unit_count(base_rows)
    return _CorruptedAnswers(
        kinds=tuple(groups),
        graded=np.array(graded),
        computed=computed,
        base=accuracy[0],
        accuracy=np.stack(means, axis=1),
        base_drawn=drawn[:, 0],
        drawn=np.stack(drawn_means, axis=2),
        images=len(base_rows) if units is None else units,
        shifted_images=shifted,
        by_units=units is not None,
        able=able,
    )


def missing_of_imagenet_c(answered: AllAnswers, measured: _CorruptedAnswers) -> str:
    """Return what a dataset lacks of ImageNet-C, in words; empty if it lacks nothing."""
    missing = []
    every = len(_ALEXNET_ERRORS)
    absent = every
    partial = 0
    for kind, graded in zip(measured.kinds, measured.graded, strict=True):
        if kind in _ALEXNET_ERRORS:
            absent -= 1
            partial += not graded
    classes = sum(bool(cls.imagenet) for cls in answered.subject.classes)
    if absent:
        missing.append(f"{absent} of {every} kinds are missing")
    if partial:
        kinds = format_count(partial, "kind")
        missing.append(f"{kinds} without all {SEVERITIES} severities")
    if classes != _IMAGENET_CLASSES:
        missing.append(f"not the {_IMAGENET_CLASSES:,} classes of ImageNet")
    return "; ".join(missing)


def _note(measured: _CorruptedAnswers, missing: str) -> str:
    """Return whether published mCE can be compared, and how many kinds are computed."""
    computed = measured.computed
    note = COMPARABLE
    if missing:
        note = f"{_NOT}: {missing}"
    if not computed:
        return note
    if not missing:
        note = f"{_COMPARABLE} and the model's input has 224 px"
    return f"{note}; {computed} of {len(measured.kinds)} kinds at each model's own size"


def _references(answered: AllAnswers, measured: _CorruptedAnswers) -> Iterator[_Reference]:
    missing = missing_of_imagenet_c(answered, measured)
    if not missing:
        errors = np.array([_ALEXNET_ERRORS.get(kind, np.nan) for kind in measured.kinds])
        of_imagenet_c = np.isfinite(errors)
        known = errors[of_imagenet_c]
        clean = np.array(_ALEXNET_CLEAN)
        yield _Reference(
            ALEXNET,
            of_imagenet_c,
            clean,
            known,
            clean,
            known,
            _note(measured, ""),
        )
    compared = answered.request(ComparedModels)
    if compared is None:
        return
    name = compared.original
    model = answered.models.index(name)
    if measured.able[model]:
        note = _note(measured, missing or "the reference is not AlexNet")
        every = np.ones(len(measured.kinds), np.bool_)
        clean = 1 - measured.base[model]
        errors = 1 - measured.accuracy[model]
        clean_drawn = 1 - measured.base_drawn[:, model]
        drawn = 1 - measured.drawn[:, model]
        yield _Reference(
            name,
            every,
            clean,
            errors,
            clean_drawn,
            drawn,
            note,
        )


def _mpc(answered: AllAnswers) -> Iterator[ResultRow]:
    measured = _measured(answered)
    if measured is None:
        return
    missing = missing_of_imagenet_c(answered, measured)
    note = _note(measured, missing)
    kinds = str(len(measured.kinds))
    images = measured.shifted_images
    for model, name in enumerate(answered.models):
        if measured.able[model]:
            interval = measured.over_kinds(model).interval()
            yield estimate_row(
                MPC,
                interval,
                model=name,
                at=kinds,
                n=images,
                note=note,
            )


def _rpc(answered: AllAnswers) -> Iterator[ResultRow]:
    measured = _measured(answered)
    if measured is None:
        return
    images = measured.shifted_images
    for model, name in enumerate(answered.models):
        if answered.near_chance.models[model] or not measured.able[model]:
            continue
        mean = measured.over_kinds(model)
        ratio = resampled_ratio(mean, measured.on_base(model))
        if math.isfinite(ratio.value):
            interval = ratio.interval()
            yield estimate_row(RPC, interval, model=name, n=images)


def _relative_to_references(name: str, answered: AllAnswers) -> Iterator[ResultRow]:
    """Yield mCE: the mean over kinds of the error divided by the reference's error. In relative
    mCE, both are less the error on the base."""
    measured = _measured(answered)
    if measured is None:
        return
    relative = name == RELATIVE_MCE
    near_chance = dict(zip(answered.models, answered.near_chance.models, strict=True))
    for reference in _references(answered, measured):
        # What a model near chance loses is chance, as its rPC is.
        if relative and near_chance.get(reference.name):
            continue
        for model, of_model in enumerate(answered.models):
            by_chance = relative and near_chance[of_model]
            if by_chance or not measured.able[model]:
                continue
            kinds = reference.kinds
            errors = 1 - measured.accuracy[model, kinds]
            drawn = 1 - measured.drawn[:, model, kinds]
            of_reference = reference.errors
            drawn_reference = reference.drawn
            if relative:
                errors = errors - (1 - measured.base[model])
                drawn = drawn - (1 - measured.base_drawn[:, [model]])
                of_reference = of_reference - reference.clean
                drawn_reference = drawn_reference - reference.clean_drawn[..., None]
            value = float(mean_ratio(errors, of_reference))
            note = reference.note
            interval = Estimate(value)  # a reference has no interval beside itself
            if math.isnan(value):
                what = "mCE"
                if relative:
                    what = "relative mCE"
                note += f"; no {what}, {_NO_ERRORS}"
                interval = None
            elif of_model != reference.name:
                ratios = mean_ratio(drawn, drawn_reference)
                with_ratio = np.isfinite(ratios)
                if with_ratio.mean() >= _FEWEST_WITH_RATIO:
                    # A resample without a ratio lies above all others.
                    ratios = np.where(with_ratio, ratios, np.nanmax(ratios))
                    interval = percentile_interval(value, ratios)
            yield estimate_row(
                name,
                interval,
                model=of_model,
                against=reference.name,
                n=measured.shifted_images,
                note=note,
            )


def mean_ratio(errors: Floats, reference: Floats) -> Floats:
    """Return the mean over the last axis of errors divided by the reference's; NaN if one of these
    is not above 0, but for rounding."""
    shape = np.broadcast_shapes(errors.shape, reference.shape)
    ratios = np.full(shape, np.nan)
    np.divide(errors, reference, out=ratios, where=reference > _NOTHING)
    return ratios.mean(axis=-1)


def _mean_effective_robustness(answered: AllAnswers) -> Iterator[ResultRow]:
    measured = _measured(answered)
    if measured is None:
        return
    sound = np.flatnonzero(answered.sound & measured.able)
    images = measured.shifted_images
    counts = measured.images, images
    base = measured.base[sound]
    mean = measured.accuracy[sound].mean(axis=1)
    values = effective_robustness(base, mean, counts)
    base_drawn = measured.base_drawn[:, sound]
    drawn = measured.drawn[:, sound].mean(axis=2)
    replicates = effective_robustness(base_drawn, drawn, counts)
    against = f"line of {len(sound) - 1} other models"
    for index, model in enumerate(sound.tolist()):
        value = float(values[index])
        if math.isfinite(value):
            estimate = percentile_interval(value, replicates[:, index])
            name = answered.models[model]
            yield estimate_row(
                ROBUSTNESS,
                estimate,
                model=name,
                against=against,
                n=images,
            )


MEASURES: dict[str, Measure] = {
    MPC: Measure(
        _mpc,
        "mPC",
        "percent",
        "Accuracy averaged over the `at` kinds of corruption, of each over its severities"
        " (Michaelis 2019).",
    ),
    RPC: Measure(
        _rpc,
        "rPC",
        "share",
        "mPC as a share of the accuracy on the base (Michaelis 2019).",
    ),
    MCE: Measure(
        partial(_relative_to_references, MCE),
        "mCE",
        "percent",
        "The error under each kind of corruption divided by that of `against`, averaged over kinds"
        " (Hendrycks and Dietterich 2019). `note` says whether published mCE can be compared.",
        lower_is_better=True,
    ),
    RELATIVE_MCE: Measure(
        partial(_relative_to_references, RELATIVE_MCE),
        "Relative mCE",
        "percent",
        "The same of the errors less the error on the base.",
        lower_is_better=True,
    ),
    ROBUSTNESS: Measure(
        _mean_effective_robustness,
        "Effective robustness over kinds",
        "points",
        "mPC minus what the probit line through the other models, at least five that are not near"
        " chance, expects at the model's base accuracy (Taori 2020).",
    ),
}
