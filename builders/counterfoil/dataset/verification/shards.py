"""The files of one shard, read once: columns, rows against plan, thresholds and receipt, and every image decoded."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.dataset.verification.problems import ProblemsFound
from counterfoil.dataset.verification.rows import (
    JudgePins,
    Row,
    RowFaults,
    TableCheck,
    check_candidates,
    expected_rows,
    planned_rows,
    shared_columns,
)
from counterfoil.errors import CounterfoilError
from counterfoil.store.decoding import FORMATS, UnreadableImage, load_image, open_image
from counterfoil.store.documents import in_one_line, told
from counterfoil.store.layout import What, receipt_path, shard_path
from counterfoil.store.reading import read_file
from counterfoil.store.receipts import filled_of
from counterfoil.store.rows import TableForm, arrow_schema, column_types, unique_names

if TYPE_CHECKING:
    from counterfoil.generate.screen import Thresholds
    from counterfoil.plan import Plan, Shard
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt


_MOST_PLANNED = 100_000


_FEATURES = b"huggingface"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What an encoded image is; `fault` says why it does not decode, and then the rest is empty."""

    format: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    fault: str | None = None


def look_at(encoded: Any, size: tuple[int, int] | None = None) -> Look:
    """Decode an image to its last pixel; one whose header says another `size` is not decoded, for that is told."""
    try:
        with open_image(encoded) as picture:
            look = Look(picture.format or "", picture.size, picture.mode)
            if size is None or picture.size == size:
                load_image(picture)
            return look
    except UnreadableImage as error:
        return Look(fault=str(error))


def look_at_all(encoded: Sequence[Any], pool: Executor, size: tuple[int, int] | None = None) -> list[Look]:
    """`look_at` for each, in order."""
    return list(pool.map(look_at, encoded, repeat(size)))


@dataclass(slots=True)
class _Seen:
    """The images of one size in one file: how many, and the first of them."""

    key: str
    count: int = 0


@dataclass(slots=True)
class Sizes:
    """The sizes of images seen: where a recipe leaves the size to the generator, all are as most of them are."""

    seen: dict[tuple[int, int], dict[str, _Seen]] = field(default_factory=dict)

    def add(self, size: tuple[int, int], path: str, key: str) -> None:
        self.seen.setdefault(size, {}).setdefault(path, _Seen(key)).count += 1

    def odd(self) -> list[tuple[str, str]]:
        """(file, what is wrong) for each file with images of another size than most."""
        if len(self.seen) < 2:
            return []
        totals = {size: sum(seen.count for seen in files.values()) for size, files in self.seen.items()}
        usual = max(totals, key=lambda size: (totals[size], size))
        return [
            (path, f"is wrong in {seen.key}: {size_fault(size, usual)}{_more(seen.count - 1)}")
            for size, files in self.seen.items()
            if size != usual
            for path, seen in files.items()
        ]


def size_fault(size: tuple[int, int], expected: tuple[int, int]) -> str:
    return f"its image is {size[0]}×{size[1]}, expected {expected[0]}×{expected[1]}"


def _more(count: int) -> str:
    return f" (and {count} more like it)" if count else ""


@dataclass(slots=True)
class ShardCheck:
    """Checks shards one after the other. Of a shard it keeps the rows without images, of all only images' sizes.

    `present` are the files that could be read. Those that are known to be damaged are not read again: their shard is
    made anew anyway.
    """

    directory: Path
    plan: Plan
    thresholds: Thresholds | None
    prompts_known: bool
    present: Collection[str]
    findings: ProblemsFound
    pool: Executor
    judges: JudgePins = field(default_factory=dict)
    candidates: int = 0
    images: int = 0
    _sizes: Sizes = field(default_factory=Sizes)
    _receipts: dict[str, str] = field(default_factory=dict)

    @property
    def _columns(self) -> tuple[str, ...]:
        return shared_columns(self.plan)

    @property
    def _form(self) -> TableForm:
        return TableForm.of(self.plan.recipe)

    def check(self, shard: Shard, receipt: Receipt | None) -> Iterator[int]:
        """Every file of a shard; `receipt` is None where it is missing or damaged.

        Yields how many images are decoded so far, those of earlier shards included.
        """
        candidates = self._check_candidates(shard, receipt)
        yield from self._check_images(shard, receipt, "data", candidates)
        yield from self._check_images(shard, receipt, "rejected", candidates)

    def finish(self) -> None:
        """What only all shards together tell: images of another size than most."""
        for path, what in self._sizes.odd():
            self.findings.add(path, what, self.findings.repairs.of_shard(self._receipts[path]))

    def _check_candidates(self, shard: Shard, receipt: Receipt | None) -> list[Row] | None:
        """The rows of all candidates; None where they cannot be read."""
        path = self._path(shard, "candidates")
        rows: list[Row] = []
        if not self._is_readable(path):
            return None
        with self._told(path, shard):
            self._check_form(path, shard, "candidates")
            for batch in read_file(self.directory / path, "candidates", [*self._columns, "reason"], form=self._form):
                rows += batch
        if self.findings.is_damaged(path):
            return None
        self.candidates += len(rows)
        if shard.cells[0].accepted is None and shard.candidates > max(_MOST_PLANNED, 10 * len(rows)):
            # A recipe may promise a million rows a cell: they are not listed one by one as missing.
            self._add(path, shard, f"has {len(rows)} rows, and the plan has {shard.candidates:,}")
            return None
        faults = check_candidates(rows, shard, self.plan, self.thresholds, self.prompts_known, self.judges)
        self._tell(path, shard, faults)
        if receipt is not None and not faults:
            self._check_counts(rows, shard, receipt)
        return rows

    def _check_counts(self, rows: Sequence[Row], shard: Shard, receipt: Receipt) -> None:
        counts: dict[str, dict[str, int]] = {cell.shift: {} for cell in shard.cells}
        for row in rows:
            reasons = counts[row["shift"]]
            reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
        if counts != receipt.counts:
            found, expected = (json.dumps(one, sort_keys=True) for one in (receipt.counts, counts))
            self._add(receipt.path, shard, f"does not count what the candidates say: {found}, expected {expected}")
        elif receipt.filled is not None and receipt.filled != filled_of(shard, rows):
            self._add(receipt.path, shard, "does not say when the candidates filled their cells")

    def _check_images(
        self, shard: Shard, receipt: Receipt | None, what: What, candidates: Sequence[Row] | None
    ) -> Iterator[int]:
        path = self._path(shard, what)
        if candidates is None:
            if not self._is_readable(path):
                return  # nothing says whether it should be there
            expected, optional = planned_rows(shard, self.plan, self.prompts_known)
        else:
            expected, optional = expected_rows(candidates, what, self.plan.recipe.screen.keep_rejected)
        if not self._is_readable(path):
            if len(expected) > len(optional) and not self.findings.is_damaged(path):
                self._add(path, shard, "is missing: candidates say that it has rows")
            return
        faults, count = RowFaults(), 0
        table = TableCheck(expected, optional, faults, self._columns)
        columns = [*self._columns, "image", *(["reason"] if what == "rejected" else [])]
        with self._told(path, shard):
            self._check_form(path, shard, what)
            for rows in read_file(self.directory / path, what, columns, form=self._form):
                count += len(rows)
                self._look(rows, path, faults)
                yield self.images
                table.rows(rows)
            table.end()
        self._receipts[path] = receipt_path(shard.group, shard.number)
        self._tell(path, shard, faults)
        if receipt is not None and not self.findings.is_damaged(path) and receipt.rows[what] != count:
            self._add(receipt.path, shard, f"says that {path} has {receipt.rows[what]} rows, and it has {count}")

    def _look(self, rows: Sequence[Row], path: str, faults: RowFaults) -> None:
        """Decode the images of some rows."""
        format, generator = self.plan.recipe.output.image.format, self.plan.recipe.generator
        # What is not drawn keeps its shape: `size` bounds the shorter side of rows that are corrupted.
        side = generator.saved_size or (generator.size if generator.draws else None)
        size = None if side is None else (side, side)
        for row, look in zip(rows, look_at_all([_encoded(row) for row in rows], self.pool, size), strict=True):
            key, named = row["key"], (row["image"] or {}).get("path")
            if named != f"{key}.{format}":
                faults.add("path", key, f"its image is called {json.dumps(named)}, expected {key}.{format}")
            if look.fault is not None:
                faults.add("image", key, f"its image does not decode: {look.fault}")
            elif (look.format, look.mode) != (FORMATS[format], "RGB"):
                faults.add(
                    "format", key, f"its image is {look.format} in {look.mode}, expected {FORMATS[format]} in RGB"
                )
            elif size is None:
                if generator.draws:  # those of a pool have each its own
                    self._sizes.add(look.size, path, str(key))
            elif look.size != size:
                faults.add("size", key, size_fault(look.size, size))
        self.images += len(rows)

    @contextlib.contextmanager
    def _told(self, path: str, shard: Shard) -> Iterator[None]:
        """A file whose reader fails is a finding, whatever the reader raises."""
        try:
            yield
        except Exception as error:
            self._add(path, shard, unreadable(error, self.directory / path))

    def _check_form(self, path: str, shard: Shard, what: What) -> None:
        fault = form_fault(self.directory / path, what, self.plan.recipe)
        if fault is not None:
            self._add(path, shard, fault)

    def _is_readable(self, path: str) -> bool:
        return path in self.present and not self.findings.is_damaged(path)

    def _path(self, shard: Shard, what: What) -> str:
        output = self.plan.recipe.output
        return shard_path(what, shard.group, output.split, shard.number, shard.of, output.format)

    def _tell(self, path: str, shard: Shard, faults: RowFaults) -> None:
        for line in faults.lines():
            self._add(path, shard, line)

    def _add(self, path: str, shard: Shard, what: str) -> None:
        self.findings.add(path, what, self.findings.repairs.of_shard(receipt_path(shard.group, shard.number)))


def decode_images(
    directory: Path, files: Sequence[tuple[str, str, What]], findings: ProblemsFound, pool: Executor
) -> int:
    """All that can be said without a plan: that every image decodes. `files` are (path, receipt, table); their images.

    For a dataset whose recipe is damaged.
    """
    images = 0
    for path, receipt, what in files:
        repair, faults = findings.repairs.of_shard(receipt), RowFaults()
        try:
            for rows in read_file(directory / path, what, ["key", "image"]):
                images += len(rows)
                for row, look in zip(rows, look_at_all([_encoded(row) for row in rows], pool), strict=True):
                    if look.fault is not None:
                        faults.add("image", row["key"], f"its image does not decode: {look.fault}")
        except Exception as error:  # whatever the reader raises
            findings.add(path, unreadable(error, directory / path), repair)
        for line in faults.lines():
            findings.add(path, line, repair)
    return images


def unreadable(error: Exception, path: Path) -> str:
    """What is said of a file whose reader raised this."""
    if isinstance(error, CounterfoilError):
        return in_one_line(told(error, path))
    shown = " ".join(str(error).split())[:200]
    return f"cannot be read: {type(error).__name__}" + (f": {shown}" if shown else "")


def _encoded(row: Row) -> Any:
    return (row["image"] or {}).get("bytes")


def form_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    """What is wrong with a file's columns, features or members; whatever its reader raises where it is damaged."""
    return _tar_fault(path, what, recipe) if path.suffix == ".tar" else _parquet_fault(path, what, recipe)


def _parquet_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    import pyarrow.parquet as pq

    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    expected = arrow_schema(what, names, TableForm.of(recipe))
    found = pq.read_schema(path)
    if not found.remove_metadata().equals(expected.remove_metadata()):
        wrong = [f"{field.name} ({field.type})" for field in found if field not in expected.remove_metadata()]
        lacking = [name for name in expected.names if name not in found.names]
        return (
            f"has other columns than its table: {_listed(wrong) or 'none wrong'}; lacking: {_listed(lacking) or 'none'}"
        )
    declared = (found.metadata or {}).get(_FEATURES)
    if declared is None or json.loads(declared) != json.loads((expected.metadata or {})[_FEATURES]):
        return "declares other features or class names than the recipe's"
    return None


def _tar_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    from counterfoil.store.shard_files import tar_columns

    # A member that is there twice would hide the other from some readers and not from others.
    with tarfile.open(path, "r:") as tar:
        times = Counter(member.name for member in tar)
    repeated = [name for name, count in times.items() if count > 1]
    if repeated:
        return f"has members more than once: {_listed(repeated)}"
    found, expected = set(tar_columns(path)), set(column_types(what, TableForm.of(recipe)))
    if found != expected:
        wrong, lacking = sorted(found - expected), sorted(expected - found)
        return (
            f"has other columns than its table: {_listed(wrong) or 'none wrong'}; lacking: {_listed(lacking) or 'none'}"
        )
    return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
