"""What the rows of a shard must be: the plan's samples, screened by the thresholds. Pure functions on rows as dicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from counterfoil.keep import ACCEPTED, CLIP_SCORES, FAILED, decide_cell, drawn, keeps_image
from counterfoil.plan import Cell, Plan, Sample, Shard, sample_key
from counterfoil.screen import Thresholds
from counterfoil.store.layout import What
from counterfoil.store.rows import verdict_of
from counterfoil.verification.judged import NOBODY, JudgePins, check_judged
from counterfoil.verification.measured import check_measured
from counterfoil.verification.row_faults import Row, RowFaults, shown_value

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
