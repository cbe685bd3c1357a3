"""What an evaluation measured, as one document: facts about models and groups, and one long table of numbers.

A number is a row: what was measured (`measure`), of which model, on which group and class, `against` what (a second
model, group, class or judge) and `at` which bin, level or rule. Whoever shows numbers (CSV, pandas, terminal, report,
card) reads rows. All accuracies and drops are fractions here; intervals are two-sided at 95 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from counterfoil.documents import STRICT, Count
from counterfoil.stats import Estimate

KEY = ("measure", "model", "group", "class_id", "against", "at")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One number with its key: value, interval, how many images (`n`) and independent units, test, p and q, a note."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    measure: str
    model: str = ""
    group: str = ""
    class_id: str = ""
    against: str = ""
    at: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: Annotated[int | None, Field(description="Images (or models, of a line) that the number is of.")] = None
    units: Annotated[int | None, Field(description="Independent units among them, where rows share some.")] = None
    test: str = ""
    p: float | None = None
    q: float | None = None
    note: Annotated[str, Field(description="What must be said of the number, or why there is none.")] = ""

    @property
    def estimate(self) -> Estimate | None:
        """The value with its interval; None where there is none."""
        return None if self.value is None else Estimate(self.value, self.low, self.high)


def row(measure: str, estimate: Estimate | float | None, **others: object) -> ResultRow:
    """A row of an estimate, or of a bare value; the other fields as they are named."""
    if estimate is None or not isinstance(estimate, Estimate):
        return ResultRow(measure, value=estimate, **others)  # type: ignore[arg-type]
    return ResultRow(measure, value=estimate.value, low=estimate.low, high=estimate.high, **others)  # type: ignore[arg-type]


class ResultRows(Sequence[ResultRow]):
    """The long table. `one` finds a row by its whole key, `where` all rows of a measure that agree with part of one."""

    def __init__(self, rows: Iterable[ResultRow]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        return self._rows[place]

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self._rows)

    @cached_property
    def _by_key(self) -> dict[tuple[str, ...], ResultRow]:
        return {tuple(getattr(one, name) for name in KEY): one for one in self._rows}

    @cached_property
    def _by_measure(self) -> dict[str, list[ResultRow]]:
        found: dict[str, list[ResultRow]] = {}
        for one in self._rows:
            found.setdefault(one.measure, []).append(one)
        return found

    def one(self, measure: str, **key: str) -> ResultRow | None:
        """The row of this key, names that are left out being empty; None where nothing was measured."""
        return self._by_key.get((measure, *(key.get(name, "") for name in KEY[1:])))

    def estimate(self, measure: str, **key: str) -> Estimate | None:
        """The number of this key with its interval; None where there is none."""
        found = self.one(measure, **key)
        return None if found is None else found.estimate

    def value(self, measure: str, **key: str) -> float | None:
        """The bare number of this key; None where there is none."""
        found = self.one(measure, **key)
        return None if found is None else found.value

    def where(self, measure: str, **key: str) -> list[ResultRow]:
        """All rows of a measure that agree with these names, in order."""
        return [
            one
            for one in self._by_measure.get(measure, ())
            if all(getattr(one, name) == value for name, value in key.items())
        ]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model: what it is, and whether it is near chance on the base, which averages over models then leave out.

    tied: images whose two best scores are equal. chance: right outputs over all outputs, averaged over classes. What a
    kind of classifier does not tell is None, its hash empty.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    short_name: str
    architecture: str
    outputs: str
    num_classes: Count
    img_size: int | None
    crop_pct: float | None
    interpolation: str | None
    param_count: int | None
    sha256: str
    top_k: Count
    chance: float
    near_chance: bool
    tied: Count


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A class that a group's averages leave out, with the images it has on either side, and why."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    class_id: str
    name: str
    base_images: Count
    shift_images: Count
    why: Literal["few images", "near chance"] = "few images"
    base_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group of images (the base, a shift, or any): its yield, and the classes and images that averages are over."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    kind: str | None
    prompt: str
    group: str
    candidates: int | None
    accepted: Count
    unreadable: Count
    classes: Count
    left_out: tuple[LeftOut, ...]
    images: Count
    base_images: Count

    @property
    def share_kept(self) -> float | None:
        """The yield: accepted over rendered candidates."""
        return self.accepted / self.candidates if self.candidates else None

    @property
    def readable(self) -> int:
        """The accepted images that could be decoded."""
        return self.accepted - self.unreadable
