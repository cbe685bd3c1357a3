"""What one arm of the proof tested for a target, kept as JSON: words, pairs bit by bit, looks, and
which pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from bugs_proof.audits import Audit
from bugs_proof.drawing import ProofDrawer
from bugs_proof.pictures import PictureCell
from bugs_proof.plan import Arm, slug
from bugs_proof.sequential import Design, Row, Sequential, SimulatedRun, run_of
from bugs_proof.truth import Claims
from bugs_proof.words import named
from counterfoil.arrays import Bools
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.trials import DrawnRound, Trial
from counterfoil.models.names import folder_sha256
from counterfoil.paired_stats import PairCount, count_pairs
from proof_files import PACKAGE, code_of, digest_of, measured, sha256_of

# What reports or writes findings changes no number of them.
_NO_NUMBER = frozenset({"document.py", "mine_bugs.py", "trying.py"})


@dataclass(frozen=True, slots=True)
class Shown:
    """Accepted pictures of a cell that a test looked at: their places in the cell, in drawing
    order."""

    cell: PictureCell
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A hypothesis that was carried to the test. own, base: one bit a pair, whether it failed.

    pictures, beside: of the rounds of its pairs, those of the description and those of its base.
    """

    name: str
    label: int
    words: str
    pieces: tuple[tuple[str, str], ...]
    origin: str
    parent: str | None
    state: str
    confirmed: bool
    shortened_to: str | None
    own: str
    base: str
    looks: tuple[tuple[int, float], ...]
    pictures: tuple[Shown, ...]
    beside: tuple[Shown, ...]

    @property
    def description(self) -> Description:
        pieces = (Piece(words, slot) for words, slot in self.pieces)  # pyrefly: ignore[bad-argument-type]
        return Description(tuple(pieces))

    @property
    def claims(self) -> Claims:
        """Which attributes its words name."""
        return named(self.description)

    @property
    def stands(self) -> bool:
        """Whether this is a finding: confirmed, and not replaced by a shorter one."""
        return self.confirmed and self.shortened_to is None

    @property
    def count(self) -> PairCount:
        return count_pairs(bits(self.own), bits(self.base))


@dataclass(frozen=True, slots=True)
class Run:
    """All of an arm's run. images: drawn for it, its share of the baseline too. left_out: class id
    → why."""

    target: str
    arm: str
    images: int
    rounds: tuple[tuple[str, int], ...]
    tested: tuple[Carried, ...]
    left_out: Mapping[str, str]
    undescribed: int

    @property
    def findings(self) -> tuple[Carried, ...]:
        return tuple(finding for finding in self.tested if finding.stands)


def replayed(run: Run, alpha: float) -> SimulatedRun | None:
    """Return the run's pairs a hypothesis against McNemar's fixed number, as `SimulatedRun`; None
    without a tested pair.

    The test's rates stand for the true ones. Of tests that stopped when they looked well they are
    too large (1 to 19 points at a true difference of 10, `estimates.py`), which favours the fixed
    number.
    """
    rows = []
    for finding in run.tested:
        count = finding.count
        if count.pairs:
            sequential = Sequential(
                float(finding.confirmed),
                float(finding.state == "futile"),
                float(finding.state == "open" and not finding.confirmed),
                count.pairs,
            )
            discordant = count.discordant / count.pairs
            rows.append(
                Row(count.base_rate, count.difference, float("nan"), discordant, sequential, None)
            )
    return run_of(rows, Design(hypotheses=len(rows), alpha=alpha)) if rows else None


def bits(text: str) -> Bools:
    """Return (n,) of a text of zeros and ones."""
    return np.frombuffer(text.encode(), np.uint8) == ord("1")


def carried_of(
    trials: Sequence[Trial],
    confirmed: frozenset[str],
    shortened_to: Mapping[str, str],
    drawer: ProofDrawer,
    class_names: Sequence[str],
) -> tuple[Carried, ...]:
    """Return hypotheses in the form that is kept."""
    carried = []
    for trial in trials:
        hypothesis = trial.hypothesis
        rounds = [pairs.drawn for pairs in trial.pairs]
        failed = [pairs.drawn.failed[pairs.described] for pairs in trial.pairs]
        base = [pairs.drawn.failed[pairs.base] for pairs in trial.pairs]
        carried.append(
            Carried(
                name=hypothesis.name,
                label=hypothesis.label,
                words=hypothesis.description.words(class_names[hypothesis.label]),
                pieces=tuple((piece.words, piece.place) for piece in hypothesis.description.pieces),
                origin=hypothesis.origin,
                parent=hypothesis.parent,
                state=trial.state,
                confirmed=hypothesis.name in confirmed,
                shortened_to=shortened_to.get(hypothesis.name),
                own=_text(failed),
                base=_text(base),
                looks=trial.looks,
                pictures=tuple(_shown(drawer, drawn, hypothesis.name) for drawn in rounds),
                beside=tuple(_shown(drawer, drawn, None, hypothesis.label) for drawn in rounds),
            )
        )
    return tuple(carried)


def kept_run(audit: Audit, arm: Arm, captioner: Path | None, make: Any) -> Run:
    """Return an arm's run, made now or by an earlier proof of the same code, captioner, classifier
    and settings."""
    path = audit.kept / "runs" / f"{slug(audit.target)}-{arm}-{_key(audit, arm, captioner)}.json"
    return TypeAdapter(Run).validate_python(measured(path, lambda: asdict(make())))


def _key(audit: Audit, arm: Arm, captioner: Path | None) -> str:
    decides = [
        _code(arm),
        None if captioner is None else folder_sha256(captioner),
        sha256_of(audit.target),
        audit.store.folder.name,
        audit.mine.model_dump(mode="json"),
        audit.recipe.samples.seed,
    ]
    return digest_of(decides)


@cache
def _code(arm: Arm) -> str:
    bugs = sorted((PACKAGE / "mining" / "methods" / "bugs").glob("*.py"))
    files = [Path(__file__).with_name("arms.py")] if arm != "bugs" else []
    return code_of([*(file for file in bugs if file.name not in _NO_NUMBER), *files])


def _text(parts: Sequence[Bools]) -> str:
    return "".join("01"[int(bit)] for part in parts for bit in part)


def _shown(
    drawer: ProofDrawer, drawn: DrawnRound, name: str | None, label: int | None = None
) -> Shown:
    cells = drawer.cells[f"{drawn.asked.name}/"]
    shift = drawn.shift_names[0] if name is None else name
    wanted = label if name is None else drawn.asked.cells[name].label
    drawn_cell = next(cell for cell in cells if cell.shift == shift and cell.label == wanted)
    return Shown(drawn_cell.cell, tuple(drawn_cell.indices.tolist()))
