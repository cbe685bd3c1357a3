"""What a process leaves that made one part of a plan's shards: how much of the whole is done, and no closed dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from counterfoil.plan import PlanPart


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of a part: its shards, those of the whole plan that are done so far, and this run's speed.

    shards, shards_made: of the part, and of them made now. all_shards, all_done: of the whole plan, when the part
    ended; other parts may go on. closed: whether a build of the whole has closed the dataset already. `notes` are
    sentences about what could not be measured.
    """

    directory: Path
    part: PlanPart
    shards: int
    shards_made: int
    images_made: int
    all_shards: int
    all_done: int
    closed: bool
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float | None:
        """Rendering speed of this run, models loading included; None where nothing was left to render."""
        return self.images_made / self.seconds if self.images_made and self.seconds > 0 else None
