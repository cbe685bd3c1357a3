"""What a verification found, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from counterfoil.verification.problems import Problem

Outcome = Literal["identical bytes", "identical pixels", "different", "not rendered"]


@dataclass(frozen=True, slots=True)
class Rerendered:
    """One row that was rendered again from its metadata.

    `psnr` is in dB and `greatest` in levels of 255, both None unless the pixels differ; `psnr` is also None where
    the sizes do. `stack` are the fields in which the stack here is not that of the row's shard.
    """

    path: str
    key: str
    outcome: Outcome
    psnr: float | None
    greatest: int | None
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was read of a dataset, and every problem; none where it is whole.

    `manifest_sha256` is the dataset's hash; None where its manifest is missing or damaged. `notes` tell what a
    person should know and that is no damage: mixed stacks, or what could not be checked since a file is damaged.
    """

    source: str
    directory: Path
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    files: int
    bytes: int
    shards: int
    candidates: int
    images: int
    manifest_sha256: str | None
    rerendered: tuple[Rerendered, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.problems

    def by_repair(self) -> Mapping[str, tuple[Problem, ...]]:
        """The problems by repair, in the order in which they are to be repaired."""
        by_repair: dict[str, list[Problem]] = {}
        for problem in self.problems:
            by_repair.setdefault(problem.repair, []).append(problem)
        return {repair: tuple(problems) for repair, problems in by_repair.items()}

    def to_json(self) -> dict[str, Any]:
        return {"whole": self.whole, **asdict(self), "directory": str(self.directory)}
