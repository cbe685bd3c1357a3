"""Method `slices`: find groups of images that fail, without words. Images are grouped by class and
answer, by measures, by shifts, and by looks. A group over all classes takes the same share of each
class, so that it does not select among classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from counterfoil.arrays import Floats32
from counterfoil.mining.findings_layer import unique_slugs
from counterfoil.mining.hypotheses import ClassNote, DiscoverHalf, Found, Hypothesis, choose_cutoffs
from counterfoil.mining.method import FindMethod
from counterfoil.progress import track
from counterfoil.recipe.schema_mine import Mine, SlicesSettings
from counterfoil.report.words import format_share
from counterfoil.stats import score_test

# A group is tested if its p-value on the discover half is at most this. The value was chosen on
# twelve planted worlds of seeds 0 to 3. A value of .02 lost planted groups that .1 confirmed. A
# value of .3 tested 2.5 times as many groups and confirmed no more of them.
PROMISING_P = 0.1
_MOST_EVIDENCE = 50
_ANY = "any class"
# A cut-off below every cosine, so that a set includes every row.
_NO_CUTOFF = -2.0
# The shares that a group takes of its classes differ by at most this. A class in which a larger
# share of the images has one value is left out, because no cut-off takes a given share of these
# images.
_TOLERATED = 0.05
_STARTS = 4  # starts per clustering; the best one is used


def find_slices(
    half: DiscoverHalf,
    mine: Mine,
    settings: SlicesSettings,
    workers: int | None,
) -> Found:
    """Return groups that promise to fail more often than the rest. For each class, and for all
    classes together, return at most `settings.most` groups of each kind.
    """
    classes = len(half.class_names)
    failures = np.bincount(half.labels[half.failed], minlength=classes)
    searched = np.flatnonzero(failures >= settings.fewest_errors).tolist()
    label_sets = [(label,) for label in searched]
    every = tuple(np.unique(half.labels).tolist())
    if len(every) > 1 and failures.sum() >= settings.fewest_errors:
        label_sets.append(every)
    best: list[Hypothesis] = []
    for labels in track(label_sets, "cutting slices"):
        kinds = [
            _by_measures(half, labels, mine),
            _by_shifts(half, labels),
        ]
        if len(labels) == 1:
            (label,) = labels
            kinds.append(_by_answers(half, label))
            kinds.append(_by_looks(half, label, mine, settings))
        for kind in kinds:
            promising = []
            for hypothesis in kind:
                p = score_test(*hypothesis.count(half), mine.margin)
                if p <= PROMISING_P:
                    promising.append((p, hypothesis))
            promising.sort(key=lambda scored: scored[0])
            for _, hypothesis in promising[: settings.most]:
                best.append(hypothesis)
    hypotheses = []
    names = unique_slugs([hypothesis.name for hypothesis in best])
    for hypothesis, name in zip(best, names, strict=True):
        of_classes = half.of_classes(hypothesis.labels)
        features = half.features[of_classes]
        members = hypothesis.members(features, half.labels[of_classes])
        rows = of_classes[members]
        closeness = hypothesis.closeness(half.features[rows])
        # Rows that count as failing come first. Among them and among the others, rows that are most
        # clearly in the set come first.
        counted = hypothesis.counted(half.failed[rows], half.taken_for[rows])
        order = np.lexsort((-closeness, ~counted))[:_MOST_EVIDENCE]
        evidence = rows[order]
        scores = closeness[order].astype(np.float64)
        named = replace(hypothesis, name=name, evidence=evidence, scores=scores)
        hypotheses.append(named)
    reason = f"fewer than {settings.fewest_errors} failures on the discover half"
    notes = [ClassNote(reason=reason)] * classes
    for label in searched:
        notes[label] = ClassNote()
    return Found(tuple(hypotheses), tuple(notes))


SLICES = FindMethod(SlicesSettings, find_slices)


def _by_answers(half: DiscoverHalf, label: int) -> Iterator[Hypothesis]:
    """Yield hypotheses that compare a class with all other classes: it fails more often, or it is
    taken for another class more often.
    """
    name = half.class_names[label]
    is_class = half.labels == label
    others = np.unique(half.labels[~is_class])
    no_column = np.zeros(half.features.shape[1], dtype=np.float32)
    whole = _hypothesis((label,), f"{name}, the whole class", no_column, _NO_CUTOFF)
    if len(others):
        yield replace(whole, against=tuple(others.tolist()))
    answers = half.taken_for[is_class & half.failed]
    answers = answers[(answers >= 0) & (answers != label)]
    for answered in np.unique(answers).tolist():
        against = others[others != answered]
        if len(against):
            words = f"{name} answered {half.class_names[answered]}"
            of_answer = _hypothesis((label,), words, no_column, _NO_CUTOFF)
            labels = tuple(against.tolist())
            yield replace(of_answer, against=labels, answered=answered)


def _by_measures(
    half: DiscoverHalf,
    labels: tuple[int, ...],
    mine: Mine,
) -> Iterator[Hypothesis]:
    """Yield the sets of images with the least and with the most of each measure. A set takes the
    same share of each class.
    """
    several = len(labels) > 1
    for column, measure in enumerate(half.columns.measures):
        values = half.features[:, column]
        classes = labels
        if several:
            # If too many images of a class have the same value, no cut-off takes a given share of
            # the class.
            varied = []
            for label in labels:
                of_class = values[half.labels == label]
                _, counts = np.unique(of_class, return_counts=True)
                most = max(1, _TOLERATED * len(of_class))
                if counts.max() <= most:
                    varied.append(label)
            if len(varied) < 2:
                continue
            classes = tuple(varied)
        rows = half.of_classes(classes)
        chosen = half.chosen(rows)
        values = values[rows]
        if np.ptp(values) == 0:
            continue
        for role in ("far_from", "hard"):
            cutoffs, members, _ = choose_cutoffs(chosen, values, classes, role, mine.margin)
            limits = measure.words(*cutoffs)
            look = measure.low
            rule = f"{measure.name} at most {limits}"
            if role == "hard":
                look = measure.high
                rule = f"{measure.name} at least {limits}"
            if several:
                share = format_share(float(members.mean()))
                rule = f"{share} of each class: {rule}"
            name = f"{_called(half, labels)}, {look}"
            vector = _column(half, column)
            hypothesis = _hypothesis(classes, name, vector, 0.0, rule)
            yield replace(hypothesis, role=role, cutoffs=cutoffs)


def _by_shifts(half: DiscoverHalf, labels: tuple[int, ...]) -> Iterator[Hypothesis]:
    columns = half.columns
    called = _called(half, labels)
    for column, shift in enumerate(columns.shifts, len(columns.measures)):
        inside = half.features[:, column] > 0
        shares = []
        for label in labels:
            of_class = inside[half.labels == label]
            shares.append(float(of_class.mean()))
        usual = sorted(shares)[len(shares) // 2]
        classes = []
        for label, share in zip(labels, shares, strict=True):
            if abs(share - usual) <= _TOLERATED:
                classes.append(label)
        vector = _column(half, column)
        yield _hypothesis(tuple(classes), f"{called}, {shift}", vector, 0.5)


def _by_looks(
    half: DiscoverHalf,
    label: int,
    mine: Mine,
    settings: SlicesSettings,
) -> Iterator[Hypothesis]:
    """Yield clusters of a class's images. The images are clustered by the classifier's own
    features."""
    width = half.columns.width
    rows = np.flatnonzero(half.labels == label)
    clusters = min(settings.clusters, len(rows) // 2)
    if not width or clusters < 2:
        return
    from sklearn.cluster import KMeans

    features = half.features[rows, -width:]
    seed = mine.seed % 2**32
    means = KMeans(clusters, n_init=_STARTS, random_state=seed)
    means.fit(features.astype(np.float64))
    centres = means.cluster_centers_
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    shape = (clusters, half.features.shape[1])
    vectors = np.zeros(shape, dtype=np.float32)
    vectors[:, -width:] = centres / np.maximum(lengths, 1e-12)
    name = half.class_names[label]
    rule = "images that look alike in the classifier's own features; see the pictures"
    for index, vector in enumerate(vectors):
        title = f"{name}, look-alikes {index + 1} of {clusters}"
        hypothesis = _hypothesis((label,), title, vector, _NO_CUTOFF, rule)
        others = np.delete(vectors, index, axis=0)
        yield replace(hypothesis, words=title, alternatives=others)


def _called(half: DiscoverHalf, labels: Sequence[int]) -> str:
    if len(labels) > 1:
        return _ANY
    return half.class_names[labels[0]]


def _column(half: DiscoverHalf, column: int) -> Floats32:
    vector = np.zeros(half.features.shape[1], dtype=np.float32)
    vector[column] = 1
    return vector


def _hypothesis(
    labels: tuple[int, ...],
    name: str,
    vector: Floats32,
    cutoff: float,
    rule: str | None = None,
) -> Hypothesis:
    words = caption = name
    if rule is not None:
        words = f"{name} ({rule})"
        caption = rule
    cutoffs = (cutoff,) * len(labels)
    return Hypothesis(name, labels, "hard", words, caption, vector, cutoffs)
