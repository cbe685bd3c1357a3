"""The scores of a dataset's candidates as arrays, by shift and by class, and the effect of each
step of a slider."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.screen.thresholds import percentile_of
from counterfoil.recipe.keep.cells import ACCEPTED, keeps_image
from counterfoil.recipe.keep.rule import AskingRule, Verdict
from counterfoil.recipe.keep.same_image import SOURCE_SIMILARITY
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import object_caption_for
from counterfoil.store.manifest import VERIFY
from counterfoil.store.reading import read_shard
from counterfoil.store.rows import TableForm

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe, RecipeClass, Shift
    from counterfoil.store.receipts import Receipt

_COLUMNS = ("shift", "label", "index", "object_score", "shift_score", "object_threshold", "reason")
_MEASURED = ("contrast", "black", "white", SOURCE_SIMILARITY)
# Arrays of `ShiftScores`.
_ARRAYS = {
    "scores": np.float32,
    "object_scores": np.float32,
    "object_thresholds": np.float32,
    "has_image": bool,
    "labels": np.int64,
    "indices": np.int64,
    "shards": np.int64,
    "contrast": np.float32,
    "visible": bool,
}
# Round steps, so that thresholds read like those of Vendrow 2023, Table 1, and at most as many as a
# slider can show.
_STEPS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01)
MOST_STEPS = 300
DECIMALS = 4
# A page has at most this many sliders of objects, so that each slider can have pictures.
MOST_OBJECTS = 100


@dataclass(frozen=True, slots=True)
class ShiftScores:
    """All scored candidates of a shift or of the base, by ascending shift score. Arrays are
    (n,)."""

    shift: Shift
    scores: np.ndarray
    """Infinite if the shift is not screened."""
    object_scores: np.ndarray
    object_thresholds: np.ndarray
    has_image: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    shards: np.ndarray
    """The index of each candidate's receipt."""
    contrast: np.ndarray | None
    visible: np.ndarray
    """Whether a candidate passes the keep rules on black, on white, on an edit's similarity and on
    the answers of models."""
    answers: Mapping[str, np.ndarray]
    """The answers of models that keep rules ask, from 0 to 1, by column. NaN: not asked."""
    failed: int
    """The number of candidates that have no score. They are in no array."""

    @property
    def candidates(self) -> int:
        return int(self.scores.size) + self.failed

    @property
    def is_open(self) -> bool:
        return self.shift.threshold is not None and self.shift.threshold.percentile is not None

    @property
    def least_contrast(self) -> float | None:
        """The contrast that a keep rule of the shift requires."""
        return _limit(self.shift, "contrast")

    @property
    def others_pass(self) -> np.ndarray:
        """Whether everything but the shift's own threshold passes under the current recipe."""
        passes = (self.object_scores >= self.object_thresholds) & self.visible
        if self.contrast is None or self.least_contrast is None:
            return passes
        return passes & (self.contrast >= np.float32(self.least_contrast))

    @property
    def threshold(self) -> float | None:
        """The recipe's threshold, or the value of its percentile over all candidates, or None. The
        number has the fewest digits that give the same float32.
        """
        spec = self.shift.threshold
        if spec is None:
            return None
        if spec.percentile is None:
            return spec.value
        return self.at_percentile(spec.percentile)

    def at_percentile(self, percentile: float) -> float | None:
        if not self.scores.size:
            return None
        return shortest(percentile_of(self.scores, percentile))

    def accepted_at(self, threshold: float) -> int:
        """Return the number of candidates that a threshold accepts."""
        reaches = self.scores >= np.float32(threshold)
        return int((self.others_pass & reaches).sum())


def shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same in float32: 0.163, not
    0.16300000250339508."""
    return float(str(np.float32(value)))


def has_threshold(shift: Shift) -> bool:
    """Check whether a shift's score can decide: levels have scores but no threshold."""
    return shift.caption is not None and shift.level is None


def refuse_other_shifts(
    requested: Sequence[str],
    known: Sequence[str],
    kind: str = "shift",
) -> None:
    """Raise UserError if a requested shift is not a known one of its kind."""
    problems = []
    for name in requested:
        if name not in known:
            near = did_you_mean(name, known)
            problems.append(f"found '{name[:80]}', expected a {kind}{near}")
    shown = ", ".join(known[:20])
    if len(known) > 20:
        shown += " …"
    if problems:
        raise UserError(problems, f"The {kind}s: {shown}")


def scores_of(
    directory: Path,
    recipe: Recipe,
    receipts: Sequence[Receipt],
    names: Collection[str],
) -> tuple[ShiftScores, ...]:
    """Return the scores of the named shifts, in the recipe's order, without reading an image."""
    form = TableForm.of(recipe)
    measured = [name for name in _MEASURED if name in form.added]
    answered: dict[str, None] = {}
    for rule in recipe.asking_rules:
        measured += rule.columns()
        answered |= dict.fromkeys(rule.limits())
    needed = [*_COLUMNS, *dict.fromkeys(measured)]
    shifts = {shift.name: shift for shift in recipe.all_shifts() if shift.name in names}
    asking = {}
    limits = {}  # the most black and white, and the least similarity of an edit and its row
    columns: dict[str, dict[str, list[Any]]] = {}
    answers: dict[str, dict[str, list[float]]] = {}
    for name, shift in shifts.items():
        asking[name] = [rule for rule in shift.keep if isinstance(rule, AskingRule)]
        limits[name] = {key: _limit(shift, key) for key in ("black", "white", "similarity")}
        columns[name] = {array: [] for array in _ARRAYS}
        answers[name] = {column: [] for column in answered}
    failed = dict.fromkeys(shifts, 0)
    for shard, receipt in enumerate(receipts):
        if shifts.keys().isdisjoint(receipt.counts):
            continue
        for row in read_shard(directory, receipt, needed, "candidates", form):
            name = row["shift"]
            if name not in shifts:
                continue
            score = row["shift_score"] if has_threshold(shifts[name]) else np.inf
            if row["object_score"] is None or score is None:
                failed[name] += 1
                continue
            if not 0 <= row["label"] < len(recipe.classes) or row["index"] < 0:
                raise RunFailure(
                    f"{directory / receipt.path}: a candidate has a label that the recipe does not",
                    VERIFY,
                )
            least = row["object_threshold"]
            if least is None:
                least = -1.0
            contrast = row.get("contrast")
            if contrast is None:
                contrast = np.nan
            reason = row["reason"]
            kept = reason == ACCEPTED or keeps_image(reason, recipe.screen.keep_rejected)
            # A candidate passes the rules that ask models if none of them drops it.
            verdict = Verdict(row, {})
            confirmed = all(rule.dropped([verdict]) == [None] for rule in asking[name])
            values = {
                "scores": score,
                "object_scores": row["object_score"],
                "object_thresholds": least,
                "has_image": kept,
                "labels": row["label"],
                "indices": row["index"],
                "shards": shard,
                "contrast": contrast,
                "visible": confirmed and _is_visible(row, limits[name]),
            }
            for array, value in values.items():
                columns[name][array].append(value)
            for column, values in answers[name].items():
                values.append(_answer(row[column]))
    scores = []
    for name, shift in shifts.items():
        scores.append(_sorted_scores(shift, columns[name], answers[name], failed[name]))
    return tuple(scores)


def _sorted_scores(
    shift: Shift,
    columns: Mapping[str, Sequence[Any]],
    answers: Mapping[str, Sequence[float]],
    failed: int,
) -> ShiftScores:
    arrays = {array: np.array(columns[array], kind) for array, kind in _ARRAYS.items()}
    order = np.lexsort((arrays["indices"], arrays["labels"], arrays["scores"]))
    arrays = {array: values[order] for array, values in arrays.items()}
    contrast = arrays.pop("contrast")
    if not contrast.size or np.isnan(contrast).any():
        contrast = None
    known = {}
    for column, values in answers.items():
        known[column] = np.array(values, np.float32)[order]
    return ShiftScores(
        shift,
        **arrays,
        contrast=contrast,
        answers=known,
        failed=failed,
    )


def _is_visible(
    row: Mapping[str, Any],
    limits: Mapping[str, float | None],
) -> bool:
    for name in ("black", "white"):
        most = limits[name]
        if most is not None and not (row.get(name) or 0.0) <= np.float32(most):
            return False
    similarity = row.get(SOURCE_SIMILARITY)
    least = limits["similarity"]
    if similarity is None or least is None:
        return True
    return not similarity < np.float32(least)


def _answer(value: Any) -> float:
    """Return an answer as one number: of a list the first, 0 for an empty one."""
    if value is None:
        return np.nan
    if isinstance(value, list):
        return next(iter(value), 0.0)
    return value


def _limit(shift: Shift, name: str) -> float | None:
    """Return a setting of the shift's keep rules, or None if no rule has it."""
    for rule in shift.keep:
        value = getattr(rule, name, None)
        if value is not None:
            return value
    return None


@dataclass(frozen=True, slots=True)
class ObjectScores:
    """All scored candidates of a class under one caption, by ascending object score. Arrays are
    (n,). units: the index of the `ShiftScores` that holds each candidate. ranks: the candidate's
    index in the arrays there.
    """

    cls: RecipeClass
    caption: str
    threshold: float
    units: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    has_image: np.ndarray

    @property
    def rejected(self) -> int:
        """The number of candidates whose object score is below their threshold."""
        return int((self.scores < np.float32(self.threshold)).sum())


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """Shifts whose objects are screened by the same caption and the same threshold spec. One slider
    per class can set their thresholds.
    """

    caption: str
    units: tuple[int, ...]
    objects: tuple[ObjectScores, ...]


def object_groups(
    recipe: Recipe,
    scores: Sequence[ShiftScores],
) -> tuple[ObjectGroup, ...]:
    """Return the groups in the recipe's order. The classes of a group are those with a scored
    candidate, by label."""
    members: dict[tuple[str, str], list[int]] = {}
    for unit, score in enumerate(scores):
        shift = score.shift
        spec = shift.object_threshold.model_dump(exclude_none=True)
        key = (shift.object_caption, json.dumps(spec, sort_keys=True))
        members.setdefault(key, []).append(unit)
    groups = []
    for (caption, _), units in members.items():
        of_units = [scores[unit] for unit in units]
        sizes = [each.scores.size for each in of_units]
        unit_of_row = np.repeat(units, sizes)
        ranks = np.concatenate([np.arange(size) for size in sizes])
        labels = np.concatenate([each.labels for each in of_units])
        values = np.concatenate([each.object_scores for each in of_units])
        least = np.concatenate([each.object_thresholds for each in of_units])
        kept = np.concatenate([each.has_image for each in of_units])
        objects = []
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            rows = rows[np.argsort(values[rows], kind="stable")]
            cls = recipe.classes[int(label)]
            of_class = ObjectScores(
                cls=cls,
                caption=object_caption_for(of_units[0].shift, cls),
                threshold=shortest(float(least[rows[0]])),
                units=unit_of_row[rows],
                ranks=ranks[rows],
                scores=values[rows],
                has_image=kept[rows],
            )
            objects.append(of_class)
        groups.append(ObjectGroup(caption, tuple(units), tuple(objects)))
    return tuple(groups)


def shown_groups(groups: Sequence[ObjectGroup]) -> tuple[ObjectGroup, ...]:
    """Return the groups with at most `MOST_OBJECTS` objects together. Objects that reject most
    candidates are kept."""
    every = [scores for group in groups for scores in group.objects]
    every.sort(key=lambda scores: -scores.rejected)
    chosen = set(map(id, every[:MOST_OBJECTS]))
    shown = []
    for group in groups:
        objects = [scores for scores in group.objects if id(scores) in chosen]
        shown.append(replace(group, objects=tuple(objects)))
    return tuple(shown)


def thresholds_over(scores: np.ndarray) -> tuple[float, ...]:
    """Return round thresholds at equal steps over scores [n, float32]. Every score reaches the
    first threshold, and no score reaches the last.
    """
    if scores.size == 0:
        return (0.0,)
    low = float(scores.min())
    high = float(scores.max())
    # Rounding outwards adds up to two steps, the two ends two more, and there is one threshold more
    # than steps.
    step = next((s for s in _STEPS if (high - low) / s <= MOST_STEPS - 5), _STEPS[-1])
    first = int(np.floor(low / step)) - 1
    last = int(np.ceil(high / step)) + 1
    return tuple(round(number * step, DECIMALS) for number in range(first, last + 1))


def steps_of(
    scores: np.ndarray,
    object_passes: np.ndarray,
    has_image: np.ndarray,
) -> dict[str, tuple[float, ...] | tuple[int, ...]]:
    """Return `thresholds` over scores [n, float32]. For each threshold, also count the candidates
    at or above it: all candidates, accepted ones, and those without an image.
    """
    thresholds = thresholds_over(scores)
    edges = np.array(thresholds, np.float32)
    return {
        "thresholds": thresholds,
        "atOrAbove": _at_or_above(scores, edges),
        "accepted": _at_or_above(scores[object_passes], edges),
        "missing": _at_or_above(scores[object_passes & ~has_image], edges),
    }


def _at_or_above(
    scores: np.ndarray,
    edges: np.ndarray,
) -> tuple[int, ...]:
    ordered = np.sort(scores.astype(np.float32))
    below = np.searchsorted(ordered, edges, side="left")
    return tuple((ordered.size - below).tolist())
