"""Check a shard's files and images, and compare its rows with plan, thresholds and receipt. Files
are read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from counterfoil.dataset.reading import StandingDataset
from counterfoil.dataset.verification.problems import ProblemsFound
from counterfoil.documents import parse_json
from counterfoil.errors import CounterfoilError, ProblemLine, some_of
from counterfoil.generate.screen.thresholds import Thresholds
from counterfoil.parquet_pages import read_chunks
from counterfoil.plan.layout import Cell, Plan, Shard
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.keep.cells import ACCEPTED, FAILED, decide_cell, keeps_image, quota_draws
from counterfoil.recipe.keep.misclassified import (
    ANSWER,
    ANY_PARENT,
    CONFIDENCE,
    PARENT,
    RIGHT,
    TOP1,
    answered_class,
)
from counterfoil.recipe.keep.misclassified import FAILED as JUDGE_FAILED
from counterfoil.recipe.keep.rule import CLIP_SCORES, AskingRule
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import judge_column
from counterfoil.registry import part_named
from counterfoil.regular_files import open_regular
from counterfoil.store.decoding import FORMATS, UnreadableImage, load_image, open_image
from counterfoil.store.layout import What, receipt_path, shard_path
from counterfoil.store.messages import message
from counterfoil.store.reading import read_file, unreadable
from counterfoil.store.receipts import Receipt, StoredFile, filled_of, reasons_of
from counterfoil.store.rows import (
    LAST_COLUMNS,
    PLANNED,
    TableForm,
    arrow_schema,
    table_columns,
    unique_names,
    verdict_of,
)

Row = Mapping[str, Any]
# Maps a judge's name without folders to its pin in the lock.
JudgePins = Mapping[str, Mapping[str, Any]]

_SCORES = tuple(f"{name}_score" for name in CLIP_SCORES)


def check_candidates(
    rows: Sequence[Row],
    shard: Shard,
    plan: Plan,
    dataset: StandingDataset,
) -> RowFaults:
    """Check that rows of `candidates` are as planned, complete, in order, not repeated, and decided
    by the rules."""
    faults = RowFaults()
    planned_names = _planned_names(dataset)
    cells = defaultdict[tuple[str, int], dict[int, Row]](dict)
    samples = list(shard.samples(plan))
    positions = {sample.key: position for position, sample in enumerate(samples)}
    order = KeyOrder(positions, faults)
    for row in rows:
        key = row["key"]
        position, repeated = order.next(key, "sample")
        if position is None or repeated:
            continue
        sample = samples[position]
        shift = plan.shift(sample.shift)
        planned = {name: getattr(sample, name) for name in planned_names}
        planned |= sample.of_pool
        planned |= plan.recipe.given(shift)
        for name, expected in planned.items():
            if row[name] != expected:
                faults.differs(name, row, expected)
        cells[sample.shift, sample.label][sample.index] = row
    for cell in shard.cells:
        of_cell = cells.get((cell.shift, cell.label), {})
        in_order = list(of_cell.values())
        check_judged(in_order, cell.shift, plan, dataset.judges, faults)
        check_measured(in_order, cell.shift, plan, faults)
        _check_asked(in_order, cell.shift, plan, faults)
        _check_cell(of_cell, shard, cell, plan, dataset.read_thresholds, faults)
    return faults


def _planned_names(dataset: StandingDataset) -> list[str]:
    """Return the planned columns whose values are known."""
    return [name for name in PLANNED if dataset.prompts_known or name != "prompt"]


class KeyOrder:
    """Checks that keys are in order and not repeated."""

    def __init__(self, positions: Mapping[str, int], faults: RowFaults) -> None:
        """Take the position of every valid key."""
        self.positions = positions
        self.seen: set[str] = set()
        self._last = -1
        self._faults = faults

    def next(self, key: str, unknown: str) -> tuple[int | None, bool]:
        """Return the position of the next key, or None for an unknown key, and whether the key is
        repeated. unknown: what says so."""
        position = self.positions.get(key)
        repeated = key in self.seen
        if position is None:
            self._faults.add("key", key, f"wrong-row.{unknown}")
            return None, False
        if repeated:
            self._faults.add("repeated", key, "wrong-row.repeated")
        elif position < self._last:
            self._faults.add("order", key, "wrong-row.order")
        self._last = max(position, self._last)
        self.seen.add(key)
        return position, repeated


def _check_cell(
    of_cell: Mapping[int, Row],
    shard: Shard,
    cell: Cell,
    plan: Plan,
    thresholds: Thresholds | None,
    faults: RowFaults,
) -> None:
    """Check that a cell's rows are complete, with the right scores and thresholds, and decided by
    the rules."""
    class_id = plan.class_of(cell.label).id
    planned_shift = plan.shift(cell.shift)
    last = max(of_cell, default=-1)
    absent = False
    for sample in plan.samples(cell):
        if cell.accepted is not None and sample.index > last:
            break
        if sample.index not in of_cell:
            absent = True
            faults.add("missing", sample.key, "wrong-row.missing")
    rows = [of_cell[index] for index in sorted(of_cell)]
    for row in rows:
        for name in _SCORES:
            score = row[name]
            if score is not None and not math.isfinite(score):
                faults.add(
                    name,
                    row["key"],
                    "wrong-row.number",
                    score,
                    column=name,
                )
        screened = planned_shift.caption is not None and row["object_score"] is not None
        if screened and row["shift_score"] is None:
            faults.wrong("shift_score", row, "a number")
        if not screened and row["shift_score"] is not None:
            faults.wrong("shift_score", row, "none")
    if thresholds is None:
        return
    given = thresholds.of(cell.shift, class_id)
    for row in rows:
        for score, expected in given.items():
            name = f"{score}_threshold"
            if row[name] != expected:
                faults.differs(name, row, expected)
    if absent:
        return  # a cell is decided only with all its candidates
    is_open = thresholds.is_open(cell.shift)
    columns = plan.recipe.added_columns
    verdicts = [verdict_of(row, given, columns, open=is_open) for row in rows]
    rules = planned_shift.keep
    if cell.accepted is not None:
        batches = map(len, plan.batches(cell))
        rendered = quota_draws(rules, verdicts, batches, cell.accepted)
        if rendered != len(rows):
            key = f"{cell.shift}_{class_id}"
            faults.add(
                "quota",
                key,
                "wrong-row.quota",
                len(rows),
                rendered,
            )
    reasons = decide_cell(rules, verdicts, cell.accepted)
    for row, reason in zip(rows, reasons, strict=True):
        if row["reason"] != reason:
            faults.differs("reason", row, reason)


class RowFaults:
    """The faults in the rows of one file. Each kind is kept once, with its first row and its number
    of rows."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[str, ProblemLine]] = {}
        self._rows: Counter[str] = Counter()

    def add(self, alike: str, key: Any, name: str, *values: object, **others: object) -> None:
        """Add the fault that a sentence states. alike: the kind of the fault, such as a column's
        name."""
        self._rows[alike] += 1
        if alike not in self._first:
            # Anything except a plain key is quoted, because the file is not trusted.
            plain = isinstance(key, str) and key.replace("_", "").replace("-", "").isalnum()
            shown_key = key if plain else shown_value(key)
            self._first[alike] = (
                shown_key,
                message(
                    name,
                    None,
                    *values,
                    **others,
                ),
            )

    def wrong(self, column: str, row: Row, expected: str) -> None:
        """Add a fault of a column in a row. expected: what is right, in words."""
        value = shown_value(row[column])
        self.add(
            column,
            row["key"],
            "wrong-row.value",
            value,
            expected,
            column=column,
        )

    def differs(self, column: str, row: Row, expected: Any) -> None:
        self.wrong(column, row, shown_value(expected))

    def contradicted(self, column: str, row: Row) -> None:
        """Add a fault of a column that the judge's answer in the same row contradicts."""
        value = shown_value(row[column])
        self.add(
            column,
            row["key"],
            "wrong-row.contradicted",
            value,
            column=column,
        )

    def lines(self) -> Iterator[ProblemLine]:
        for alike, (key, problem) in self._first.items():
            more = self._rows[alike] - 1
            line = ProblemLine(f"is wrong in {key}: {problem}", problem.code)
            if more:
                line = line.with_end(f" (and {more:,} more such {'rows' if more > 1 else 'row'})")
            yield line

    def __bool__(self) -> bool:
        return bool(self._first)


def shown_value(value: Any) -> str:
    text = json.dumps(value, default=str)
    if len(text) > 80:
        text = f"{text[:79]}…"
    return text


def check_judged(
    rows: Sequence[Row],
    shift: str,
    plan: Plan,
    pins: JudgePins,
    faults: RowFaults,
) -> None:
    """Check that rows have the judges' answers that rules and screen need, and that they agree with
    the pins."""
    classes = plan.recipe.classes
    for name in plan.recipe.judges:
        rule = plan.recipe.failure_asked(plan.shift(shift), name)
        # The right outputs of each label, or None if the lock does not have them.
        pin = pins.get(without_folders(name))
        pinned = pin.get("targets") if isinstance(pin, Mapping) else None
        sound = isinstance(pinned, list) and len(pinned) == len(classes)
        if not sound or not all(isinstance(targets, list) for targets in pinned):
            pinned = None
        whats = (ANSWER, CONFIDENCE, RIGHT, JUDGE_FAILED)
        columns = [judge_column(name, what) for what in whats]
        answer, confidence, right, failed = columns
        if rule in (None, TOP1):
            columns.remove(failed)
        for row in rows:
            label = row["label"]
            values = [row[column] for column in columns]
            # An unknown label is reported elsewhere.
            targets = pinned if label in range(len(classes)) else None
            if failed not in columns and row.get(failed) is not None:
                faults.wrong(failed, row, "none")
            # An image with invalid scores may still have the judge's answer.
            if all(value is None for value in values):
                if rule is not None and row["object_score"] is not None:
                    faults.add(
                        answer,
                        row["key"],
                        "wrong-row.no-answer",
                        column=answer,
                    )
            elif rule is None:
                faults.wrong(answer, row, "none")
            elif None in values or not 0 < row[confidence] <= 1:
                faults.wrong(confidence, row, "a probability")
            elif targets is not None and row[right] != (row[answer] in targets[label]):
                faults.contradicted(right, row)
            elif targets is not None and failed in columns:
                by_first = _fails_by_first(rule, row[answer], label, classes, targets)
                if by_first is not None and row[failed] != by_first:
                    faults.contradicted(failed, row)


def _fails_by_first(
    rule: str,
    answer: int,
    label: int,
    classes: Sequence[RecipeClass],
    targets: Sequence[Sequence[int]],
) -> bool | None:
    """Return whether a judge fails, or None if its first answer, the only stored one, does not
    decide it."""
    answered = answered_class(rule)
    if answered is not None:
        for cls in classes:
            if cls.id == answered:
                return label != cls.label and answer in targets[cls.label]
        return None
    if rule == ANY_PARENT:
        return None
    right_labels = [label]
    if rule == PARENT:
        right_labels = [cls.label for cls in classes if cls.under_parent_of(classes[label])]
    if any(answer in targets[right] for right in right_labels):
        return False
    return None


def check_measured(
    rows: Sequence[Row],
    shift: str,
    plan: Plan,
    faults: RowFaults,
) -> None:
    """Check that a cell's rows have the required measures within their bounds. The values are not
    measured again."""
    measures = set()
    for other in plan.recipe.all_shifts():
        for rule in other.keep:
            measures.update(rule.measures)
    required: dict[str, Any] = {}
    may_lack = set()
    for rule in plan.shift(shift).keep:
        required |= rule.measures
        may_lack.update(rule.may_lack)
    for row in rows:
        for name in sorted(measures):
            value = row[name]
            if name not in required:
                if value is not None:
                    faults.wrong(name, row, "none")
                continue
            low, high = required[name]
            # An image with invalid scores may still have measures.
            wrong = row["object_score"] is not None and name not in may_lack
            if value is not None:
                wrong = not low <= value <= high
            if wrong:
                faults.wrong(name, row, f"from {low} to {high}")


def _check_asked(
    rows: Sequence[Row],
    shift: str,
    plan: Plan,
    faults: RowFaults,
) -> None:
    """Check that a cell's rows have the answers of the models that its rules ask, and no others.
    Nothing is asked again."""
    columns = {}
    for rule in plan.recipe.asking_rules:
        columns |= dict.fromkeys(rule.columns())
    required = {}
    asking = []
    for rule in plan.shift(shift).keep:
        if isinstance(rule, AskingRule):
            asking.append(rule)
            required |= rule.asks(plan.shift(shift))
    for row in rows:
        # An image with invalid scores may still have answers.
        has_scores = row["object_score"] is not None
        for name in columns:
            answered = row[name] is not None
            if answered and name not in required:
                faults.wrong(name, row, "none")
            if not answered and name in required and has_scores:
                faults.wrong(name, row, "the model's answer")
        for rule in asking:
            for name, expected in rule.faults(row):
                faults.wrong(name, row, expected.removeprefix("expected "))


_MOST_PLANNED = 100_000
_FEATURES = b"huggingface"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Look:
    """The format, size and mode of an encoded image."""

    format: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    fault: str | None = None
    """Why the image does not decode, or None."""


def look_at(encoded: Any, size: tuple[int, int] | None = None) -> Look:
    """Decode an image completely. An image of another `size` is a fault anyway, so only its header
    is read."""
    try:
        with open_image(encoded) as picture:
            look = Look(picture.format or "", picture.size, picture.mode)
            if size is None or picture.size == size:
                load_image(picture)
            return look
    except UnreadableImage as error:
        return Look(fault=str(error))


def _sides(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


@dataclass(slots=True)
class ShardCheck:
    """Checks shards one after the other. Damaged files are not in `present`, and are not read
    again."""

    plan: Plan
    dataset: StandingDataset
    present: Collection[str]
    findings: ProblemsFound
    pool: Executor
    candidates: int = 0
    images: int = 0
    # Map a size and a file to the number of such images, and to the key and the shard of the first.
    _sizes: Counter[tuple[tuple[int, int], str]] = field(default_factory=Counter)
    _first: dict[tuple[tuple[int, int], str], tuple[str, Shard]] = field(default_factory=dict)
    # Map a column of pictures and a pair to the first row's key and its picture's hash.
    _pairs: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)

    @property
    def _columns(self) -> tuple[str, ...]:
        """Return the columns that `data` and `rejected` share with `candidates`."""
        shared = table_columns("candidates", self._form)
        return tuple(name for name in shared if name not in LAST_COLUMNS)

    @property
    def _pictures(self) -> tuple[str, ...]:
        """Return the columns of pictures that the task stores beside the image, such as masks."""
        added = self._form.added
        return tuple(name for name, column in added.items() if column.type == "Image")

    @property
    def _form(self) -> TableForm:
        return TableForm.of(self.plan.recipe)

    def check(self, shard: Shard, receipt: Receipt | None) -> Iterator[int]:
        """Check every file of a shard, with its receipt if sound. Yield the number of images
        decoded so far."""
        candidates = self._check_candidates(shard, receipt)
        yield from self._check_images(shard, receipt, "data", candidates)
        yield from self._check_images(shard, receipt, "rejected", candidates)

    def finish(self) -> None:
        """Add a problem for images that do not have the usual size, if the recipe leaves the size
        to the generator."""
        totals: Counter[tuple[int, int]] = Counter()
        for (size, _), count in self._sizes.items():
            totals[size] += count
        usual = max(totals, key=lambda size: (totals[size], size), default=(0, 0))
        for (size, path), count in self._sizes.items():
            if size != usual:
                key, shard = self._first[size, path]
                faults = RowFaults()
                for _ in range(count):
                    faults.add(
                        "size",
                        key,
                        "wrong-image.size",
                        _sides(size),
                        _sides(usual),
                    )
                self._report(path, shard, faults)

    def _check_candidates(self, shard: Shard, receipt: Receipt | None) -> list[Row] | None:
        path = self._path(shard, "candidates")
        rows: list[Row] = []
        if not self._is_readable(path):
            return None
        with self._reported(path, shard):
            self._check_form(path, shard, "candidates")
            columns = [*self._columns, "reason"]
            file = self.dataset.directory / path
            for batch in read_file(file, "candidates", columns, form=self._form):
                rows += batch
        if self.findings.is_damaged(path):
            return None
        self.candidates += len(rows)
        has_quota = shard.cells[0].accepted is not None
        most_planned = max(_MOST_PLANNED, 10 * len(rows))
        if not has_quota and shard.candidates > most_planned:
            # A plan may have a million rows per cell, so missing rows are not listed one by one.
            problem = message(
                "wrong-table.plan",
                None,
                len(rows),
                shard.candidates,
            )
            self._add(path, shard, problem)
            return None
        faults = check_candidates(rows, shard, self.plan, self.dataset)
        self._report(path, shard, faults)
        if receipt is None or faults:
            return rows
        counts = reasons_of(shard, rows)
        if counts != receipt.counts:
            recorded = json.dumps(receipt.counts, sort_keys=True)
            expected = json.dumps(counts, sort_keys=True)
            problem = message(
                "wrong-receipt.counts",
                None,
                recorded,
                expected,
            )
            self._add(receipt.path, shard, problem)
        elif receipt.filled is not None and receipt.filled != filled_of(shard, rows):
            self._add(receipt.path, shard, message("wrong-receipt.filled"))
        return rows

    def _check_images(
        self,
        shard: Shard,
        receipt: Receipt | None,
        what: What,
        candidates: Sequence[Row] | None,
    ) -> Iterator[int]:
        path = self._path(shard, what)
        readable = self._is_readable(path)
        optional = set()
        if candidates is None:
            if not readable:
                return  # it is unknown whether the file should exist
            # The planned columns of every row that may exist.
            names = _planned_names(self.dataset)
            expected = []
            for sample in shard.samples(self.plan):
                expected.append({name: getattr(sample, name) for name in names})
            optional = {row["key"] for row in expected}
        elif what == "data":
            expected = [row for row in candidates if row["reason"] == ACCEPTED]
        else:
            keep_rejected = self.plan.recipe.screen.keep_rejected
            expected = [row for row in candidates if keeps_image(row["reason"], keep_rejected)]
            # A failed candidate has an image only if its rendering succeeded and its scores failed.
            optional = {row["key"] for row in expected if row["reason"] == FAILED}
        if not readable:
            if len(expected) > len(optional) and not self.findings.is_damaged(path):
                self._add(path, shard, message("missing-file.candidates"))
            return
        faults = RowFaults()
        count = 0
        positions = {row["key"]: position for position, row in enumerate(expected)}
        order = KeyOrder(positions, faults)
        columns = [*self._columns, "image", *self._pictures]
        if what == "rejected":
            columns.append("reason")
        with self._reported(path, shard):
            self._check_form(path, shard, what)
            file = self.dataset.directory / path
            for rows in read_file(file, what, columns, form=self._form):
                count += len(rows)
                self._look(rows, path, shard, faults)
                yield self.images
                for row in rows:
                    position, _ = order.next(row["key"], "candidate")
                    if position is None:
                        continue
                    candidate = expected[position]
                    for name in (*self._columns, "reason"):
                        if name in row and name in candidate and row[name] != candidate[name]:
                            faults.differs(name, row, candidate[name])
            for key in order.positions:
                if key not in order.seen and key not in optional:
                    faults.add("missing", key, "wrong-row.missing")
        self._report(path, shard, faults)
        if receipt is None or self.findings.is_damaged(path):
            return
        listed = receipt.rows[what]
        if listed != count:
            problem = message(
                "wrong-receipt.table",
                None,
                listed,
                count,
                table=path,
            )
            self._add(receipt.path, shard, problem)

    def _look(
        self,
        rows: Sequence[Row],
        path: str,
        shard: Shard,
        faults: RowFaults,
    ) -> None:
        recipe = self.plan.recipe
        image_format = recipe.output.image.format
        expected_format = FORMATS[image_format]
        generator = recipe.generator
        # Images that are not drawn keep their shape. For corrupted rows, `size` is the limit of the
        # shorter side.
        side = generator.saved_size
        if recipe.kind.draws:
            side = side or generator.get("size")
        size = None if side is None else (side, side)
        encoded = map(_encoded, rows)
        looks = list(self.pool.map(look_at, encoded, repeat(size)))
        for row, look in zip(rows, looks, strict=True):
            key = row["key"]
            image = row["image"] or {}
            named = image.get("path")
            expected = f"{key}.{image_format}"
            if named != expected:
                faults.add(
                    "path",
                    key,
                    "wrong-image.name",
                    json.dumps(named),
                    expected,
                )
            if look.fault is not None:
                faults.add(
                    "image",
                    key,
                    "wrong-image.decode",
                    look.fault,
                )
            elif (look.format, look.mode) != (expected_format, "RGB"):
                values = (look.format, expected_format)
                faults.add(
                    "format",
                    key,
                    "wrong-image.format",
                    *values,
                    mode=look.mode,
                )
            elif size is None:
                if recipe.kind.draws:  # images of a pool have their own sizes
                    self._sizes[look.size, path] += 1
                    self._first.setdefault((look.size, path), (str(key), shard))
            elif look.size != size:
                faults.add(
                    "size",
                    key,
                    "wrong-image.size",
                    _sides(look.size),
                    _sides(size),
                )
        if recipe.task.row_fault is not None:
            row_fault = part_named(recipe.task.row_fault)
            self._look_at_truth(rows, looks, row_fault, faults)
        self.images += len(rows)

    def _look_at_truth(
        self,
        rows: Sequence[Row],
        looks: Sequence[Look],
        row_fault: Callable[[Any, Row, tuple[int, int]], str | None],
        faults: RowFaults,
    ) -> None:
        """Check what the task stores of images that decode, and that no shift changes a picture of
        it."""
        decoded = []
        sizes = []
        for row, look in zip(rows, looks, strict=True):
            if look.fault is None:
                decoded.append(row)
                sizes.append(look.size)
        source = repeat(self.plan.recipe.source)
        truth_faults = self.pool.map(row_fault, source, decoded, sizes)
        for row, fault in zip(decoded, truth_faults, strict=True):
            if fault is not None:
                faults.add(
                    "truth",
                    row["key"],
                    "wrong-image.truth",
                    fault,
                )
        for name in self._pictures:
            for row in rows:
                key = row["key"]
                cell = row[name] or {}
                encoded = cell.get("bytes") or b""
                digest = hashlib.sha256(encoded).digest()
                pair = name, row["pair"]
                first_key, first = self._pairs.setdefault(pair, (key, digest))
                if digest != first:
                    other = shown_value(first_key)
                    faults.add(
                        name,
                        key,
                        "wrong-image.picture",
                        expected=other,
                        column=name,
                    )

    @contextlib.contextmanager
    def _reported(self, path: str, shard: Shard) -> Iterator[None]:
        """Add a problem if the reader of a file raises any error."""
        try:
            yield
        except Exception as error:
            self._add(path, shard, _not_read(self.dataset.directory / path, error))

    def _check_form(self, path: str, shard: Shard, what: What) -> None:
        fault_of = _tar_fault if path.endswith(".tar") else _parquet_fault
        fault = fault_of(self.dataset.directory / path, what, self.plan.recipe)
        if fault is not None:
            self._add(path, shard, fault)

    def _is_readable(self, path: str) -> bool:
        return path in self.present and not self.findings.is_damaged(path)

    def _path(self, shard: Shard, what: What) -> str:
        output = self.plan.recipe.output
        return shard_path(what, shard.group, output.split, shard.number, shard.of, output.format)

    def _report(self, path: str, shard: Shard, faults: RowFaults) -> None:
        for problem in faults.lines():
            self._add(path, shard, problem)

    def _add(self, path: str, shard: Shard, problem: ProblemLine) -> None:
        receipt = receipt_path(shard.group, shard.number)
        repair = self.findings.repairs.of_shard(receipt)
        self.findings.add(path, problem, repair)


def tables_with_images(
    receipts: Iterable[Receipt],
    sound: Callable[[str], bool],
) -> Iterator[tuple[Receipt, What, StoredFile]]:
    """Yield the tables of shards that hold images, if their files are sound."""
    for receipt in receipts:
        for what in ("data", "rejected"):
            file = receipt.file(what)
            if file is not None and sound(file.path):
                yield receipt, what, file


def decode_images(
    directory: Path,
    tables: Iterable[tuple[Receipt, What, StoredFile]],
    findings: ProblemsFound,
    pool: Executor,
) -> int:
    """Check without a plan that the images of tables decode. Return the number of images."""
    images = 0
    for receipt, what, file in tables:
        path = file.path
        repair = findings.repairs.of_shard(receipt.path)
        faults = RowFaults()
        try:
            for rows in read_file(directory / path, what, ["key", "image"]):
                images += len(rows)
                looks = pool.map(look_at, map(_encoded, rows))
                for row, look in zip(rows, looks, strict=True):
                    if look.fault is not None:
                        faults.add(
                            "image",
                            row["key"],
                            "wrong-image.decode",
                            look.fault,
                        )
        except Exception as error:  # damaged files may raise anything
            findings.add(path, _not_read(directory / path, error), repair)
        for problem in faults.lines():
            findings.add(path, problem, repair)
    return images


def _not_read(path: Path, error: Exception) -> ProblemLine:
    if isinstance(error, CounterfoilError):
        return error.problems[0]
    return unreadable(path, error)


def _encoded(row: Row) -> Any:
    return (row["image"] or {}).get("bytes")


def _parquet_fault(path: Path, what: What, recipe: Recipe) -> ProblemLine | None:
    """Return a fault of a Parquet file's columns or features, or None. A damaged file raises its
    reader's errors."""
    import pyarrow.parquet as pq

    expected = arrow_schema(what, unique_names(recipe.classes), TableForm.of(recipe))
    plain = expected.remove_metadata()
    with open_regular(path) as file:
        read_chunks(file)  # refuses what ends pyarrow's process
        schema = pq.read_schema(file)
    if not schema.remove_metadata().equals(plain):
        wrong = [f"{field.name} ({field.type})" for field in schema if field not in plain]
        lacking = [name for name in expected.names if name not in schema.names]
        return _other_columns(wrong, lacking)
    declared = (schema.metadata or {}).get(_FEATURES)
    planned = (expected.metadata or {})[_FEATURES]
    if declared is None or parse_json(declared) != parse_json(planned):
        return message("wrong-table.classes")
    return None


def _tar_fault(path: Path, what: What, recipe: Recipe) -> ProblemLine | None:
    from counterfoil.store.shard_files import tar_columns

    # If two members have one name, some readers take the first and others the last.
    with tarfile.open(path, "r:") as tar:
        times = Counter(member.name for member in tar)
    repeated = [name for name, count in times.items() if count > 1]
    if repeated:
        return message("wrong-table.members", None, some_of(repeated, _MOST_NAMED))
    columns = set(tar_columns(path))
    expected = set(table_columns(what, TableForm.of(recipe)))
    if columns == expected:
        return None
    wrong = sorted(columns - expected)
    return _other_columns(wrong, sorted(expected - columns))


def _other_columns(wrong: list[str], lacking: list[str]) -> ProblemLine:
    wrong_columns = some_of(wrong, _MOST_NAMED) or "none"
    missing = some_of(lacking, _MOST_NAMED) or "none"
    return message(
        "wrong-table.columns",
        None,
        wrong_columns,
        missing,
    )
