"""Parts of a plan: whole shards dealt by their position, so that many machines share it by one and the same command."""

from __future__ import annotations

import re
from dataclasses import dataclass

from counterfoil.errors import UserError

_FORM = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlanPart:
    """The `number`-th of `of` parts, counted from 1. It has every `of`-th shard, so that groups are spread evenly."""

    number: int
    of: int

    @classmethod
    def given(cls, shards: str | tuple[int, int]) -> PlanPart:
        """A part as a person writes it, `3/16` or (3, 16). UserError for what is none."""
        text = shards if isinstance(shards, str) else "/".join(map(str, shards))
        match = _FORM.fullmatch(text)
        number, of = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1 <= number <= of:
            raise UserError(
                f"shards: found '{text[:80]}', expected K/N with K from 1 to N",
                "The same N everywhere, and another K on each machine: --shards 3/16 is the third of sixteen parts.",
            )
        return cls(number, of)

    def holds(self, position: int) -> bool:
        """Whether the shard at this position of a plan is of the part."""
        return position % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"
