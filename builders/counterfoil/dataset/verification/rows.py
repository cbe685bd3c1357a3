"""What the rows of a shard must be: the plan's samples, screened by the thresholds. Pure functions on rows as dicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.generate.screen import Thresholds
from counterfoil.plan import Cell, Plan, Sample, Shard, sample_key
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.keep import ACCEPTED, CLIP_SCORES, FAILED, decide_cell, drawn, keeps_image
from counterfoil.recipe.keep.misclassified import ANSWER, CONFIDENCE, PARENT, RIGHT, TOP1, answered_class, judge_column
from counterfoil.recipe.keep.misclassified import FAILED as JUDGE_FAILED
from counterfoil.recipe.layering import without_folders
from counterfoil.store.layout import What
from counterfoil.store.rows import verdict_of

Row = Mapping[str, Any]
# By a judge's name without folders, as the lock has it.
JudgePins = Mapping[str, Mapping[str, Any]]
NOBODY: JudgePins = {}

_SCORES = tuple(f"{name}_score" for name in CLIP_SCORES)
_THRESHOLDS = tuple(f"{name}_threshold" for name in CLIP_SCORES)
_OF_SAMPLE = ("label", "shift", "class_id", "index", "pair", "prompt", "seed")
_SHARED = ("key", *_OF_SAMPLE, *_SCORES, *_THRESHOLDS)


def shared_columns(plan: Plan) -> tuple[str, ...]:
    """What `data` and `rejected` share with `candidates`."""
    return (*_SHARED, *plan.recipe.added_columns)


def check_candidates(
    rows: Sequence[Row],
    shard: Shard,
    plan: Plan,
    thresholds: Thresholds | None,
    prompts_known: bool,
    judges: JudgePins = NOBODY,
) -> RowFaults:
    """Rows of `candidates` against the plan: complete, in order, each once, as planned, and decided by the rules.

    `judges` are the pins of the classifiers that the rules ask; what they answered is taken on trust, and not whether
    that was right.
    """
    faults = RowFaults()
    cells: dict[tuple[str, int], dict[int, Row]] = {}
    for sample, row in _matched(rows, list(shard.samples(plan)), faults):
        _check_sample(row, sample, plan, prompts_known, faults)
        cells.setdefault((sample.shift, sample.label), {})[sample.index] = row
    for cell in shard.cells:
        found = cells.get((cell.shift, cell.label), {})
        check_judged(list(found.values()), plan, judges, faults)
        check_measured(list(found.values()), plan, faults)
        _check_cell(found, shard, cell, plan, thresholds, faults)
    return faults


def expected_rows(candidates: Sequence[Row], what: What, keep_rejected: bool) -> tuple[list[Row], set[str]]:
    """Rows that `data` or `rejected` must hold by the reasons of the candidates, and the keys that it may lack.

    A candidate that failed has an image only where its scores, and not its rendering, did.
    """
    if what == "data":
        return [row for row in candidates if row["reason"] == ACCEPTED], set()
    kept = [row for row in candidates if keeps_image(row["reason"], keep_rejected)]
    return kept, {row["key"] for row in kept if row["reason"] == FAILED}


def planned_rows(shard: Shard, plan: Plan, prompts_known: bool) -> tuple[list[Row], set[str]]:
    """As `expected_rows` where the candidates cannot be read: what the plan says of any row that may be there."""
    names = [name for name in ("key", *_OF_SAMPLE) if prompts_known or name != "prompt"]
    rows: list[Row] = [{name: getattr(sample, name) for name in names} for sample in shard.samples(plan)]
    return rows, {row["key"] for row in rows}


class TableCheck:
    """The rows of `data` or `rejected`, batch by batch, against those that it must hold."""

    def __init__(self, expected: Sequence[Row], optional: set[str], faults: RowFaults, columns: Sequence[str]) -> None:
        self._columns = (*columns, "reason")
        self._places = {row["key"]: (place, row) for place, row in enumerate(expected)}
        self._optional = optional
        self._seen: set[str] = set()
        self._last = -1
        self._faults = faults

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            key = row["key"]
            if key not in self._places:
                self._faults.add("key", key, "no candidate that belongs here has this key")
                continue
            place, candidate = self._places[key]
            self._last = _check_order(key, key in self._seen, place, self._last, self._faults)
            self._seen.add(key)
            for name in self._columns:
                if name in row and name in candidate and row[name] != candidate[name]:
                    found, expected = shown_value(row[name]), shown_value(candidate[name])
                    self._faults.add(name, key, f"{name} is {found}, expected {expected}")

    def end(self) -> None:
        for key in self._places:
            if key not in self._seen and key not in self._optional:
                self._faults.add("missing", key, "the row is missing")


def _matched(rows: Sequence[Row], samples: Sequence[Sample], faults: RowFaults) -> Iterator[tuple[Sample, Row]]:
    """Each row with its sample; rows without one, repeated or out of order are faults."""
    places = {sample.key: place for place, sample in enumerate(samples)}
    seen: set[str] = set()
    last = -1
    for row in rows:
        key = row["key"]
        place = places.get(key)
        if place is None:
            faults.add("key", key, "the plan has no sample of this key in this shard")
            continue
        repeated = key in seen
        last = _check_order(key, repeated, place, last, faults)
        seen.add(key)
        if not repeated:
            yield samples[place], row


def _check_order(key: str, repeated: bool, place: int, last: int, faults: RowFaults) -> int:
    if repeated:
        faults.add("repeated", key, "the key is there more than once")
    elif place < last:
        faults.add("order", key, "the row is out of order")
    return max(place, last)


def _check_sample(row: Row, sample: Sample, plan: Plan, prompts_known: bool, faults: RowFaults) -> None:
    for name in _OF_SAMPLE:
        expected = getattr(sample, name)
        if row[name] != expected and (prompts_known or name != "prompt"):
            faults.add(name, sample.key, f"{name} is {shown_value(row[name])}, expected {shown_value(expected)}")
    told = {**sample.of_pool, **plan.recipe.pairing(plan.shift(sample.shift))}
    for name, expected in told.items():
        if row[name] != expected:
            faults.add(name, sample.key, f"{name} is {shown_value(row[name])}, expected {shown_value(expected)}")


def _check_cell(
    found: Mapping[int, Row],
    shard: Shard,
    cell: Cell,
    plan: Plan,
    thresholds: Thresholds | None,
    faults: RowFaults,
) -> None:
    """A cell's rows by index: 0, 1, 2 … without a gap, and each with the reason that the whole cell gives it."""
    most = max(found, default=-1) + 1 if cell.accepted is not None else cell.candidates
    class_id = plan.class_of(cell.label).id
    absent = [index for index in range(most) if index not in found]
    for index in absent:
        faults.add("missing", sample_key(cell.shift, class_id, index), "the row is missing")
    rows = [found[index] for index in sorted(found)]
    _check_scores(rows, plan.shift(cell.shift).caption is not None, faults)
    if thresholds is None:
        return
    given = thresholds.of(cell.shift, class_id)
    for row in rows:
        for score, expected in given.items():
            name = f"{score}_threshold"
            if row[name] != expected:
                faults.add(name, row["key"], f"{name} is {shown_value(row[name])}, expected {shown_value(expected)}")
    if absent:
        return  # what became of a cell is decided over all its candidates
    is_open = thresholds.is_open(cell.shift)
    verdicts = [verdict_of(row, given, plan.recipe.added_columns, open=is_open) for row in rows]
    rules = plan.shift(cell.shift).keep
    if cell.accepted is not None:
        rendered = drawn(rules, verdicts, map(len, plan.batches(shard, cell)), cell.accepted)
        if rendered != len(rows):
            faults.add("quota", f"{cell.shift}_{class_id}", f"{len(rows)} candidates, expected {rendered}")
    for row, reason in zip(rows, decide_cell(rules, verdicts, cell.accepted), strict=True):
        if row["reason"] != reason:
            faults.add("reason", row["key"], f"reason is {shown_value(row['reason'])}, expected {shown_value(reason)}")


def _check_scores(rows: Sequence[Row], screened: bool, faults: RowFaults) -> None:
    for row in rows:
        seen, shift = row["object_score"], row["shift_score"]
        for name in _SCORES:
            if row[name] is not None and not math.isfinite(row[name]):
                faults.add(name, row["key"], f"{name} is {row[name]}, expected a number or none")
        if (shift is not None) != (screened and seen is not None):
            expected = "a number" if screened and seen is not None else "none"
            faults.add("shift_score", row["key"], f"shift_score is {shown_value(shift)}, expected {expected}")


class RowFaults:
    """What is wrong with the rows of one file: each kind of fault once, with its first row and the number of rows."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._rows: dict[str, int] = {}

    def add(self, alike: str, key: Any, text: str) -> None:
        """`alike` says which faults are alike, such as the name of a column."""
        self._first.setdefault(alike, f"is wrong in {_plain(key)}: {text}")
        self._rows[alike] = self._rows.get(alike, 0) + 1

    def lines(self) -> Iterator[str]:
        for alike, first in self._first.items():
            more = self._rows[alike] - 1
            yield first + (f" (and {more} more row{'s' if more > 1 else ''} like it)" if more else "")

    def __bool__(self) -> bool:
        return bool(self._first)


def _plain(key: Any) -> str:
    """A key as it is written; what is none is quoted, since a stranger's file may hold anything."""
    return key if isinstance(key, str) and key.replace("_", "").replace("-", "").isalnum() else shown_value(key)


def shown_value(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"


def check_judged(rows: Sequence[Row], plan: Plan, pins: JudgePins, faults: RowFaults) -> None:
    """Rows of one cell: an answer where its shift's rules or the screen ask for one, and right as the pin says."""
    for name in plan.recipe.judges if rows else ():
        rule = plan.recipe.failure_asked(plan.shift(rows[0]["shift"]), name)
        pinned = _targets(pins.get(without_folders(name)), len(plan.recipe.classes))
        answer, confidence, right, failed = (
            judge_column(name, what) for what in (ANSWER, CONFIDENCE, RIGHT, JUDGE_FAILED)
        )
        told = [answer, confidence, right] + ([] if rule in (None, TOP1) else [failed])
        for row in rows:
            found = [row[column] for column in told]
            # A label of no class is told elsewhere.
            targets = pinned if row["label"] in range(len(plan.recipe.classes)) else None
            if failed not in told and row.get(failed) is not None:
                faults.add(failed, row["key"], f"{failed} is {shown_value(row[failed])}, expected none")
            # An image whose scores are no numbers may still have been looked at.
            if all(value is None for value in found):
                if rule is not None and row["object_score"] is not None:
                    faults.add(answer, row["key"], f"{answer} is none, expected the judge's answer")
            elif rule is None:
                faults.add(answer, row["key"], f"{answer} is {shown_value(row[answer])}, expected none")
            elif None in found or not 0 < row[confidence] <= 1:
                faults.add(
                    confidence, row["key"], f"{confidence} is {shown_value(row[confidence])}, expected a probability"
                )
            elif targets is not None and row[right] != (row[answer] in targets[row["label"]]):
                faults.add(right, row["key"], f"{right} is {shown_value(row[right])}, which the answer contradicts")
            elif targets is not None and failed in told:
                told_by_first = _told_by_first(rule or TOP1, row[answer], row["label"], plan.recipe.classes, targets)
                if told_by_first is not None and row[failed] != told_by_first:
                    faults.add(
                        failed, row["key"], f"{failed} is {shown_value(row[failed])}, which the answer contradicts"
                    )


def _told_by_first(
    rule: str, answer: int, label: int, classes: Sequence[RecipeClass], targets: Sequence[Sequence[int]]
) -> bool | None:
    """Whether a judge fails, where its first answer decides it, which alone is recorded; None where it does not."""
    asked = answered_class(rule)
    if asked is not None:
        given = next((one.label for one in classes if one.id == asked), None)
        return None if given is None else label != given and answer in targets[given]
    kin = [one.label for one in classes if one.parent == classes[label].parent] if rule == PARENT else [label]
    return False if any(answer in targets[one] for one in kin) else None


def _targets(pin: Mapping[str, Any] | None, classes: int) -> Sequence[Sequence[int]] | None:
    """The right answers by label; None where the lock does not tell them."""
    targets = pin.get("targets") if isinstance(pin, Mapping) else None
    sound = isinstance(targets, list) and len(targets) == classes and all(isinstance(own, list) for own in targets)
    return targets if sound else None


def check_measured(rows: Sequence[Row], plan: Plan, faults: RowFaults) -> None:
    """Rows of one cell. The numbers themselves are taken on trust, as scores and judges' answers are."""
    known = {name for shift in plan.recipe.all_shifts() for rule in shift.keep for name in rule.measures}
    for row in rows if known else ():
        asked = {name: ends for rule in plan.shift(row["shift"]).keep for name, ends in rule.measures.items()}
        for name in sorted(known):
            value = row[name]
            if value is None:
                # An image whose scores are no numbers may still have been measured.
                wrong = name in asked and row["object_score"] is not None
            else:
                wrong = name not in asked or not asked[name][0] <= value <= asked[name][1]
            if wrong:
                expected = f"from {asked[name][0]} to {asked[name][1]}" if name in asked else "none"
                faults.add(name, row["key"], f"{name} is {shown_value(value)}, expected {expected}")
