"""Collect the problems of a verification without raising them. Each has a file and a repair."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from counterfoil.data.hub import HubDataset
from counterfoil.errors import ProblemLine
from counterfoil.regular_files import on_a_line
from counterfoil.store.layout import (
    CARD,
    CROISSANT,
    EVALUATION,
    FIGURES,
    MANIFEST,
    RECEIPTS,
    REVIEW,
    TIMM_INFO,
    WHATS,
)

# A build makes these files again from recipe, lock, thresholds and tokens. These four cannot be
# made again.
_MADE = {CARD, MANIFEST, TIMM_INFO, CROISSANT}
_MADE_FOLDERS = {*WHATS, RECEIPTS, FIGURES}


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged file. `what` continues its path ("is missing"); `repair` is a command or advice;
    `code` is the stable name of the kind of problem."""

    path: str
    what: str
    repair: str
    code: str

    def __str__(self) -> str:
        end = f" [{self.code}]" if self.code else ""
        return f"{on_a_line(self.path)}: {self.what}{end}"


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of a dataset's files. The dataset is a folder, or a published copy of a
    folder."""

    directory: Path
    reference: HubDataset | None = None

    def of(self, path: str) -> str:
        if self.reference is not None:
            return self._published
        folder = path.partition("/")[0]
        if path in _MADE or folder in _MADE_FOLDERS:
            return self.build
        if folder == EVALUATION:
            return f"counterfoil evaluate {self._here} --into-card"
        if folder == REVIEW:
            return f"counterfoil review {self._here} --answers, with all answers.json files"
        return (
            f"restore it from a copy of this dataset, such as the published one, into {self._here}"
        )

    def of_shard(self, receipt: str) -> str:
        """Return the repair of a shard whose files match its receipt but have wrong rows: rebuild
        the shard."""
        again = f"rm {shlex.quote(str(self.directory / receipt))} && {self.build}"
        if self.reference is None:
            return again
        return self._published

    def of_unfit(self, path: str) -> str:
        if self.reference is not None:
            return self._published
        path_text = shlex.quote(str(self.directory / on_a_line(path)))
        return f"remove it (rm {path_text}), and then: {self.of(path)}"

    def of_unexpected(self) -> str:
        if self.reference is None:
            return f"move it out of {self._here}"
        return self._published

    @property
    def _here(self) -> str:
        return shlex.quote(str(self.directory))

    @property
    def build(self) -> str:
        return f"counterfoil build --from {self._here} --out {self._here}"

    @property
    def _published(self) -> str:
        repo = self.reference.repo if self.reference else ""
        return (
            f"verify and repair the directory that {repo} was published from, and publish it again"
            f" (if that one is complete, this copy is damaged: remove {self._here} and fetch it"
            " again)"
        )


class ProblemsFound:
    """The problems and notes of a running verification; each problem is listed once."""

    def __init__(self, repairs: Repairs) -> None:
        self.repairs = repairs
        self.notes: list[str] = []
        self._problems: dict[Problem, None] = {}
        self._damaged: set[str] = set()

    def add(self, path: str, problem: ProblemLine, repair: str | None = None) -> None:
        """Add a problem of a file. By default, its repair is the usual repair of such a file."""
        repair = repair or self.repairs.of(path)
        self._damaged.add(path)
        self._problems[Problem(path, problem.text, repair, problem.code)] = None

    def unexpected(self, path: str, problem: ProblemLine) -> None:
        if path not in self._damaged:
            self.add(path, problem, self.repairs.of_unexpected())

    def is_damaged(self, path: str) -> bool:
        return path in self._damaged

    def problems(self) -> tuple[Problem, ...]:
        """Return the problems by path: first of files to restore or move, then of files that a
        build makes."""
        build = self.repairs.build
        by_path = sorted(self._problems, key=lambda problem: problem.path)
        return tuple(sorted(by_path, key=lambda problem: problem.repair.endswith(build)))


Outcome = Literal["identical bytes", "identical pixels", "different", "not rendered"]


@dataclass(frozen=True, slots=True)
class Rerendered:
    """A row rendered again. psnr (dB), greatest (of 255): how much pixels differ. stack: fields
    that differ here."""

    path: str
    key: str
    outcome: Outcome
    psnr: float | None
    greatest: int | None
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """The counts and all problems of a verification."""

    source: str
    directory: Path
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    """Facts that are not damage, such as mixed stacks."""
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

    def by_repair(self) -> Mapping[str, Sequence[Problem]]:
        by_repair: dict[str, list[Problem]] = {}
        for problem in self.problems:
            by_repair.setdefault(problem.repair, []).append(problem)
        return by_repair

    def to_json(self) -> dict[str, Any]:
        return {"whole": self.whole, **asdict(self), "directory": str(self.directory)}
