"""Plan the cells, samples and shards of a recipe.

The order is by group (the base first), then by shift, class and index. Each item is computed from
its position on demand, so ten million samples need no more memory than ten samples.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, TypeVar, overload

from counterfoil.errors import UserError, some_of
from counterfoil.recipe.kinds import RANK, ROW, SCORE
from counterfoil.recipe.loader import load_recipe
from counterfoil.recipe.prompts import BASE, RecipeClass, Shift, asks_caption, prompt_for
from counterfoil.recipe.rows_table import (
    MOST_LINES,
    NO_SEED,
    ChosenKind,
    PoolRow,
    RowsByCell,
    chosen_rows_csv,
    read_chosen_rows,
)
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.severity import By
from counterfoil.report.words import shown_table

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class RowTable:
    """The rows that a build chose, and the content of the file in the dataset that lists them."""

    rows: RowsByCell
    content: bytes

    @classmethod
    def of(cls, rows: RowsByCell, kind: ChosenKind) -> RowTable:
        return cls(rows, chosen_rows_csv(rows, kind))

    @classmethod
    def read(
        cls,
        content: bytes,
        file: str,
        kind: ChosenKind,
    ) -> RowTable:
        """Read a table from the content of a file. Raise UserError with every invalid line."""
        return cls(read_chosen_rows(content, file, kind), content)

    def cell(self, shift: str, class_id: str) -> Sequence[PoolRow]:
        """Return the rows of a cell in order of index. Raise KeyError if the cell has no rows."""
        rows = self.rows.get((shift, class_id))
        return self.rows[None, class_id] if rows is None else rows

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def problems(self, recipe: Recipe) -> Iterator[str]:
        """Yield where the table does not fit a recipe: missing, repeated or unknown rows, and
        missing captions."""
        if recipe.kind.alters_rows:
            yield from self._problems_of_edits(recipe)
            return
        wanted = {}
        for shift in recipe.all_shifts():
            for label in shift.class_labels:
                cls = recipe.classes[label]
                wanted[shift.name, cls.id] = shift.candidates
        for shift, class_id in self.rows.keys() - wanted.keys():
            yield f"'{str(shift)[:80]}' of class '{class_id[:80]}' is not a cell of the recipe"
        fewer = recipe.kind.fewer_rows
        for cell, count in wanted.items():
            rows = self.rows.get(cell, ())
            named = f"'{cell[0]}' of class '{cell[1]}'"
            if wrong := _wrong_count(len(rows), count, fewer):
                yield f"{named} {wrong}"
            indices = [row.index or 0 for row in rows]
            if fewer and indices != sorted(set(indices)):
                yield f"{named}: its indices do not rise"
        groups = list(self.rows.values())
        if not recipe.generator.get("repeats"):
            groups = [list(chain(*groups))]
        repeated = 0
        for rows in groups:
            repeated += len(rows) - len({row.row for row in rows})
        if repeated:
            yield f"{repeated:,} rows appear more than once"

    def _problems_of_edits(self, recipe: Recipe) -> Iterator[str]:
        fewer = recipe.kind.fewer_rows
        wanted = rows_wanted(recipe)
        captioned = captions_asked(recipe)
        expected = {(None, class_id) for class_id in wanted}
        for _, class_id in self.rows.keys() - expected:
            yield f"'{class_id[:80]}' is not a class of the recipe"
        for class_id, count in wanted.items():
            rows = self.rows.get((None, class_id), ())
            if wrong := _wrong_count(len(rows), count, fewer):
                yield f"the class '{class_id}' {wrong}"
            if len({row.row for row in rows}) < len(rows):
                yield f"the class '{class_id}' has a row more than once"
            without = [row.row for row in rows if row.caption is None]
            if captioned and without:
                row = f"the class '{class_id}': row {without[0]}"
                yield f"{row} has no caption, which the prompts ask for"


def _wrong_count(rows: int, wanted: int, fewer: bool) -> str | None:
    """Return what is wrong with the number of rows of a cell, or None. `fewer` says whether a cell
    may have fewer rows than wanted."""
    least = 1 if fewer else wanted
    if least <= rows <= wanted:
        return None
    expected = f"1 to {wanted:,}" if fewer else f"{wanted:,}"
    return f"has {rows:,} rows, expected {expected}"


def rows_wanted(recipe: Recipe) -> dict[str, int]:
    """Return the number of rows to choose for each class id.

    The number is the largest number of candidates in a cell of the class.
    """
    wanted: dict[str, int] = {}
    for shift in recipe.all_shifts():
        for label in shift.class_labels:
            class_id = recipe.classes[label].id
            before = wanted.get(class_id, 0)
            wanted[class_id] = max(before, shift.candidates)
    return wanted


def captions_asked(recipe: Recipe) -> bool:
    return any(asks_caption(shift.prompt) for shift in recipe.all_shifts())


_FORM = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlanPart:
    """One of `of` parts of a plan, counted from 1.

    A part holds every `of`-th shard, so that each part gets shards of every group.
    """

    number: int
    of: int

    @classmethod
    def given(cls, shards: str | tuple[int, int]) -> PlanPart:
        """Parse a part such as `3/16` or (3, 16). Raise UserError for any other form."""
        text = shards
        if not isinstance(text, str):
            text = "/".join(map(str, text))
        match = _FORM.fullmatch(text)
        number = of = 0
        if match:
            number = int(match[1])
            of = int(match[2])
        if not 1 <= number <= of:
            raise UserError(
                f"shards: found '{text[:80]}', expected K/N with K from 1 to N",
                "Use the same N everywhere and another K on each machine: --shards 3/16 is the"
                " third of sixteen parts.",
            )
        return cls(number, of)

    def holds(self, position: int) -> bool:
        """Return whether the part includes the shard at this position of a plan."""
        return position % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


SEED_BITS = 53  # readers of JSON in JavaScript keep integers exact only up to 2^53


@dataclass(frozen=True, slots=True)
class Between:
    """How a sample of a level is drawn between the prompt of its base and its own prompt."""

    by: By
    """The quantity that changes along the way."""
    scale: float
    """The distance from the base, from 0 to 1."""
    base_prompt: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One image to render. The shift, the class and the index identify a sample and decide its
    other values.
    """

    key: str
    shift: str
    class_id: str
    label: int
    index: int
    pair: str
    prompt: str | None
    """The prompt, or None for a sample that is drawn from an image embedding alone."""
    seed: int
    group: str
    row: int | None = None
    """The row of the pool, or of the split that is edited."""
    rank: int | None = None
    score: float | None = None
    """The rank and the score of a retrieved row."""
    base_prompt: str | None = None
    """The prompt of the base that is drawn in the same call, or the prompt that describes the row
    to edit."""
    between: Between | None = None
    """How a level of the shift is drawn, or None for a shift at its full strength."""

    @property
    def of_pool(self) -> dict[str, int | float]:
        """Return the columns of the sample's row in the pool that are known."""
        columns = {ROW: self.row, RANK: self.rank, SCORE: self.score}
        return {name: value for name, value in columns.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Cell:
    """One class under one shift.

    A cell has at most `candidates` samples. If `accepted` is set, the build wants this many
    accepted samples.
    """

    shift: str
    label: int
    group: str
    candidates: int
    accepted: int | None


@dataclass(frozen=True, slots=True)
class Shard:
    """Whole cells of one group that are rendered, screened and stored together.

    The shards of a group have the numbers from 0 to `of` - 1.
    """

    group: str
    number: int
    of: int
    cells: tuple[Cell, ...]

    @property
    def id(self) -> str:
        return f"{self.group}-{self.number:05d}"

    @property
    def candidates(self) -> int:
        return sum(cell.candidates for cell in self.cells)

    def samples(self, plan: Plan) -> Iterator[Sample]:
        """Yield every sample in order of shift, class and index."""
        for cell in self.cells:
            yield from plan.samples(cell)


def pair_id(class_id: str, index: int) -> str:
    """Return the id that samples with the same class and index share under every shift."""
    return f"{class_id}_{index:06d}"


def sample_key(shift: str, class_id: str, index: int) -> str:
    """Return the key of a sample's row. The key is unique in a dataset and has no dot."""
    return f"{shift}_{pair_id(class_id, index)}"


def sample_seed(
    seed: int,
    class_id: str,
    index: int,
    shift: str | None,
) -> int:
    """Return the seed of a sample: 53 bits of the SHA-256 of its identity.

    With paired noise `shift` is None, so samples under different shifts share the seed.
    """
    text = f"{seed}\n{class_id}\n{index}"
    if shift is not None:
        text += f"\n{shift}"
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:7], "big") >> (7 * 8 - SEED_BITS)


@dataclass(frozen=True, slots=True)
class _Group:
    """The shifts of a group. `ends` holds, for each shift, the position in the group after its last
    cell."""

    name: str
    shifts: tuple[Shift, ...]
    ends: tuple[int, ...]
    cells_per_shard: int

    @property
    def n_cells(self) -> int:
        return self.ends[-1]

    @property
    def n_shards(self) -> int:
        return -(-self.n_cells // self.cells_per_shard)


class LazySequence(Sequence[Item]):
    """A sequence whose items the function `item` computes on demand from their positions."""

    def __init__(
        self,
        positions: Sequence[int],
        item: Callable[[int], Item],
    ) -> None:
        self._positions = positions
        self._item = item

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Item]: ...
    def __getitem__(self, at: int | slice) -> Item | Sequence[Item]:
        if isinstance(at, slice):
            return LazySequence(self._positions[at], self._item)
        return self._item(self._positions[at])


class Plan:
    """The cells, samples and shards of a recipe, computed on demand."""

    def __init__(
        self,
        recipe: Recipe,
        placeholders: Mapping[str, str] | None = None,
        table: RowTable | None = None,
    ) -> None:
        self.recipe = recipe
        self.placeholders = placeholders
        self.table = table
        self.hash = recipe.plan_hash
        members: dict[str, list[Shift]] = {}
        for shift in recipe.all_shifts():
            members.setdefault(shift.group, []).append(shift)
        self._groups = tuple(self._group(name, shifts) for name, shifts in members.items())
        self.groups: tuple[str, ...] = tuple(group.name for group in self._groups)
        self.n_cells: int = sum(group.n_cells for group in self._groups)
        self.n_samples: int = sum(self.n_samples_of(shift) for shift in recipe.all_shifts())
        self.n_shards: int = sum(group.n_shards for group in self._groups)

    def __repr__(self) -> str:
        counts = f"{self.n_samples:,} samples, {self.n_cells:,} cells, {self.n_shards:,} shards"
        return f"<Plan of {self.recipe.name}: {counts}>"

    def _repr_html_(self) -> str:
        rows = []
        for shift in self.recipe.all_shifts():
            classes = f"{len(shift.class_labels):,}"
            samples = f"{self.n_samples_of(shift):,}"
            rows.append((shift.name, shift.group, classes, samples))
        return shown_table(repr(self)[1:-1], ("shift", "group", "classes", "samples"), rows)

    def n_samples_of(self, shift: Shift) -> int:
        """Return the largest number of samples that a shift may have."""
        listed = self.recipe.generator.get("rows")
        if listed is None and not self.counts:
            return len(shift.class_labels) * shift.candidates
        return sum(self._candidates(shift, label) for label in shift.class_labels)

    def _group(self, name: str, shifts: Sequence[Shift]) -> _Group:
        """Return a group.

        The largest cell of the group decides how many cells fit into `rows_per_shard` rows.
        """
        ends = tuple(accumulate(len(shift.class_labels) for shift in shifts))
        most = max(shift.candidates for shift in shifts)
        if self.recipe.generator.get("rows") is not None:
            most = 0
            for shift in shifts:
                for label in shift.class_labels:
                    most = max(most, self._candidates(shift, label))
        cells_per_shard = self.recipe.output.rows_per_shard // max(1, most)
        return _Group(name, tuple(shifts), ends, max(1, cells_per_shard))

    @property
    def edits(self) -> bool:
        """Return whether samples are made by altering the rows of a table."""
        return self.recipe.kind.alters_rows and self.table is not None

    @property
    def counts(self) -> bool:
        """Return whether a table of rows decides how many candidates a cell has."""
        return self.recipe.kind.counts_rows and self.table is not None

    def indices_below(self, cell: Cell) -> int:
        """Return a number above every index of a cell.

        The indices of images that were drawn elsewhere may have gaps.
        """
        return MOST_LINES if self.recipe.kind.drawn_elsewhere else cell.candidates

    @property
    def shards(self) -> Sequence[Shard]:
        """Return all shards as a lazy sequence."""
        return LazySequence(range(self.n_shards), self._shard)

    def shards_without(
        self,
        done: Set[tuple[str, int]],
        part: PlanPart | None = None,
    ) -> Sequence[Shard]:
        """Return the shards of the plan, or of a part, that are not in `done`, as a lazy
        sequence."""
        left = array("q")
        position = 0
        for group in self._groups:
            for number in range(group.n_shards):
                is_wanted = part is None or part.holds(position)
                if is_wanted and (group.name, number) not in done:
                    left.append(position)
                position += 1
        return LazySequence(left, self._shard)

    @cached_property
    def _shifts_by_name(self) -> dict[str, Shift]:
        return {shift.name: shift for shift in self.recipe.all_shifts()}

    @cached_property
    def _classes_by_id(self) -> dict[str, RecipeClass]:
        return {cls.id: cls for cls in self.recipe.classes}

    def shift(self, name: str) -> Shift:
        """Return the shift, or the base, of a cell or sample."""
        return self._shifts_by_name[name]

    def class_of(self, label: int) -> RecipeClass:
        """Return the class of a cell or sample."""
        return self.recipe.classes[label]

    def cells(self) -> Iterator[Cell]:
        """Yield every cell in order."""
        for group in self._groups:
            for position in range(group.n_cells):
                yield self._cell(group, position)

    def samples(self, cell: Cell) -> Iterator[Sample]:
        """Yield the samples of a cell in order of index. For a quota, yield every sample that may
        be needed."""
        shift = self.shift(cell.shift)
        cls = self.class_of(cell.label)
        samples = self.recipe.samples
        rows = self._rows(shift, cls.label)
        prompt = self._prompt(shift, cls) if rows is None else ""
        chosen = None
        if self.table is not None:
            chosen = self.table.cell(shift.name, cls.id)
        seeded_by = None if samples.noise == "paired" else shift.name
        base_prompt = self.base_prompt(shift.name, cls.id)
        for number in range(cell.candidates):
            row = None
            index = number
            if chosen is not None:
                row = chosen[number]
                if row.index is not None:
                    index = row.index
            values: dict[str, Any] = {"base_prompt": base_prompt, "prompt": prompt}
            if self.edits:
                values = self.of_edit(cls, index)
                values["prompt"] = self._prompt(shift, cls, row)
            values["between"] = self.between(shift.name, cls.id, values["base_prompt"])
            values["seed"] = sample_seed(samples.seed, cls.id, index, seeded_by)
            if row is not None:
                values |= {"row": row.row, "rank": row.rank, "score": row.score}
            elif rows is not None:
                values["row"] = rows[index]
            if row is not None and self.recipe.kind.drawn_elsewhere:
                values["prompt"] = row.prompt
                values["seed"] = NO_SEED if row.seed is None else row.seed
            yield Sample(
                key=sample_key(shift.name, cls.id, index),
                shift=shift.name,
                class_id=cls.id,
                label=cls.label,
                index=index,
                pair=pair_id(cls.id, index),
                group=shift.group,
                **values,
            )

    def of_edit(self, cls: RecipeClass, index: int) -> dict[str, Any]:
        """Return the row of the samples with a class and an index, and the prompt of the base for
        this row."""
        assert self.table is not None  # a plan of edits has a table
        rows = self.table.cell(BASE, cls.id)
        row = rows[index]
        base_prompt = self._prompt(self.shift(BASE), cls, row)
        return {"row": row.row, "base_prompt": base_prompt}

    def base_prompt(self, shift: str, class_id: str) -> str | None:
        """Return the prompt of the base that is drawn in one call with samples of a shift and
        class.

        Return None if these samples are drawn without their base.
        """
        known = self._shifts_by_name.get(shift)
        cls = self._classes_by_id.get(class_id)
        if known is None or cls is None or not self.recipe.beside_base(known):
            return None
        return self._prompt(self.shift(BASE), cls)

    def between(
        self,
        shift: str,
        class_id: str,
        base_prompt: str | None,
    ) -> Between | None:
        """Return how samples of a level of a shift are drawn, or None if the shift is no such
        level.

        `base_prompt` is the prompt of the base for this sample. If it is None, the prompt for the
        class is used.
        """
        known = self._shifts_by_name.get(shift)
        cls = self._classes_by_id.get(class_id)
        if known is None or cls is None:
            return None
        if known.by in (None, "corruption") or known.scale in (None, 1):
            return None
        prompt = base_prompt or self.base_prompt_of(class_id)
        return Between(known.by, known.scale, prompt)

    def base_prompt_of(self, class_id: str) -> str:
        cls = self._classes_by_id[class_id]
        return self._prompt(self.shift(BASE), cls) or ""

    def _prompt(
        self,
        shift: Shift,
        cls: RecipeClass,
        edited: PoolRow | None = None,
    ) -> str | None:
        placeholder = None if self.placeholders is None else self.placeholders[cls.id]
        caption = None if edited is None else edited.caption
        return prompt_for(shift, cls, placeholder, caption)

    def batches(self, cell: Cell) -> Iterator[list[Sample]]:
        """Yield the batches of `generator.batch_size` samples of a cell with a quota, whose members
        never change."""
        samples = self.samples(cell)
        size = self.recipe.generator.batch_size
        while batch := list(islice(samples, size)):
            yield batch

    def _cell(self, group: _Group, position: int) -> Cell:
        """Return the cell at a position in its group."""
        number = bisect_right(group.ends, position)
        shift = group.shifts[number]
        start = group.ends[number] - len(shift.class_labels)
        label = shift.class_labels[position - start]
        candidates = self._candidates(shift, label)
        return Cell(shift.name, label, group.name, candidates, shift.accepted)

    def _candidates(self, shift: Shift, label: int) -> int:
        """Return the largest number of samples of a cell, which the recipe or the rows of the cell
        set."""
        rows: Sequence[object] | None = self._rows(shift, label)
        if self.table is not None and self.counts:
            class_id = self.class_of(label).id
            rows = self.table.cell(shift.name, class_id)
        if rows is None:
            return shift.candidates
        return min(shift.candidates, len(rows))

    def _rows(self, shift: Shift, label: int) -> Sequence[int] | None:
        """Return the rows that the recipe lists for a cell, or None if the recipe lists no rows."""
        rows = self.recipe.generator.get("rows")
        if rows is None:
            return None
        of_shift = rows.get(shift.name, {})
        return of_shift.get(self.class_of(label).id, ())

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """Return, for each group, the position in the plan after its last shard."""
        return tuple(accumulate(group.n_shards for group in self._groups))

    def _shard(self, position: int) -> Shard:
        which = bisect_right(self._ends, position)
        group = self._groups[which]
        start = self._ends[which] - group.n_shards
        number = position - start
        first = number * group.cells_per_shard
        last = min(first + group.cells_per_shard, group.n_cells)
        cells = [self._cell(group, cell) for cell in range(first, last)]
        return Shard(group.name, number, group.n_shards, tuple(cells))


def make_plan(
    recipe: Recipe | str | Path,
    placeholders: Mapping[str, str] | None = None,
    retrieved: RowTable | None = None,
    edited: RowTable | None = None,
) -> Plan:
    """Plan a recipe: its cells, samples and shards.

    Args:
        recipe: A Recipe, a bundled name or a path.
        placeholders: The class tokens by class id. If this is None, the plan of a recipe with
            tokens has `<class id>` in their place.
        retrieved: Rows of a recipe that retrieves images. `RowTable.problems` has checked them.
        edited: Rows of a recipe that edits images, or whose images were drawn elsewhere. Without
            this table, samples have no row and their prompts keep `{caption}`.

    Returns:
        The Plan.

    Raises:
        UserError: A class has no placeholder.
    """
    recipe = load_recipe(recipe)
    if placeholders is None and recipe.tokens is not None:
        placeholders = {cls.id: f"<{cls.id}>" for cls in recipe.classes}
    if placeholders is not None:
        without = [cls.id for cls in recipe.classes if cls.id not in placeholders]
        if without:
            raise UserError(
                f"tokens: no class token for {some_of(without, 10)}, expected one for every class"
            )
    return Plan(recipe, placeholders, retrieved or edited)
