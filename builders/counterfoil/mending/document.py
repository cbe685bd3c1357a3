"""What a run of mending tells, as plain values: `mend.json`. No clock, no host: the same run gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MEND_VERSION = 1

# The sets of rows that a head is judged on, in the order of tables; beside them `context:NAME` and `class:ID`.
TEST, SEED, HELDOUT, CONFIRM, IN_CONTEXTS = "test", "debug_seed", "debug_heldout", "confirm", "in_contexts"
# Failures of the test, which judge what the confirm half chose.
TEST_FAILED = "test_failures"
CONTEXT, CLASS = "context:", "class:"
# Of fewer rows an accuracy tells of these few images: no table has a context or a class that has no more.
FEWEST_LISTED = 10
# Behind a control's kind: with the λ of what it controls.
SAME_LAMBDA = " at the same λ"


@dataclass(frozen=True, slots=True)
class SetMeasured:
    """A head on a set of rows: accuracies as fractions, the gain with its 95 % interval by unit; None of no rows.

    gained, lost: rows that became right, and wrong. p: McNemar's, exact, on rows.
    """

    set: str
    rows: int
    units: int
    before: float | None
    after: float | None
    gain: float | None
    low: float | None
    high: float | None
    gained: int
    lost: int
    p: float | None

    @property
    def listed(self) -> bool:
        """Whether tables have it."""
        return not self.set.startswith((CONTEXT, CLASS)) or self.rows >= FEWEST_LISTED


@dataclass(frozen=True, slots=True)
class GainDifference:
    """How much more an arm gains than a control on the same rows, with its interval.

    against: the control's kind, behind it " at the same λ" where the control has the arm's λ and not the one chosen for
    it; lam: the control's λ, None of what has none. ahead, behind: units of which the arm gets more, and fewer, rows
    right than the control. p: the exact sign test of these, two-sided.
    """

    against: str
    set: str
    rows: int
    difference: float
    low: float | None
    high: float | None
    lam: float | None
    ahead: int
    behind: int
    p: float


@dataclass(frozen=True, slots=True)
class LambdaPoint:
    """One λ. worst_context, discover: on the discover half, by which λ is chosen; the others are only told.

    allowed: whether it loses little enough there.
    """

    value: float
    worst_context: float | None
    discover: float
    heldout: float | None
    in_contexts: float | None
    confirm: float | None
    test: float | None
    allowed: bool


@dataclass(frozen=True, slots=True)
class EffectPoint:
    """A head that had fewer drawn images: at most so many contexts a class (`k`), or images a context."""

    value: int
    images: int
    heldout: float | None
    in_contexts: float | None
    test: float | None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm with its chosen λ. images: learned from; offered: before equal numbers. verdict: None for controls.

    judged_by: `confirm`; or `test`, where the confirm half chose what is learned from: nothing is measured on it then.
    """

    name: str
    role: str
    of: str | None
    what: str | None
    images: int
    offered: int
    lam: float | None
    within_bound: bool
    settled: bool
    measured: tuple[SetMeasured, ...]
    curve: tuple[LambdaPoint, ...] = ()
    comparisons: tuple[GainDifference, ...] = ()
    verdict: str | None = None
    by_k: tuple[EffectPoint, ...] = ()
    by_images: tuple[EffectPoint, ...] = ()
    judged_by: str = CONFIRM

    @property
    def few(self) -> int:
        """How many contexts have rows, and fewer than tables list."""
        return sum(one.set.startswith(CONTEXT) and bool(one.rows) and not one.listed for one in self.measured)

    def of_set(self, name: str) -> SetMeasured | None:
        """What was measured on a set."""
        return next((one for one in self.measured if one.set == name), None)


@dataclass(frozen=True, slots=True)
class ModelMended:
    """A model and everything that was tried on it. saved: the arm whose head is in `folder`; None where none was."""

    name: str
    architecture: str
    sha256: str
    outputs: int
    width: int
    arms: tuple[ArmResult, ...]
    saved: str | None
    folder: str | None
    mended_sha256: str | None

    def arm(self, name: str) -> ArmResult:
        """An arm by its name."""
        return next(one for one in self.arms if one.name == name)


@dataclass(frozen=True, slots=True)
class ContextTold:
    """A context that rows are judged in, and how many rows of each half CLIP finds in it."""

    name: str
    class_id: str
    class_name: str
    caption: str
    rank: int | None
    discover: int
    confirm: int


@dataclass(frozen=True, slots=True)
class Collective:
    """How alike the models fail, and what images of others are worth. overlap: (m, m), NaN as None.

    kept: a line a model and arm: its gain on held-out failures and that beyond the retrained head's, each also as a
    share of the same of the model's own images.
    """

    models: tuple[str, ...]
    families: tuple[str, ...]
    failures: tuple[int, ...]
    overlap: tuple[tuple[float | None, ...], ...]
    kept: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Mended:
    """A run. audited, train, test: what rows were used. classes: id → name. datasets: what images were learned from.

    asked: what a person named: `with`, `own` of a model, `audited`. Names have no folders of any machine.
    """

    recipe: Mapping[str, Any]
    classes: Mapping[str, str]
    audited: Mapping[str, Any]
    train: Mapping[str, Any]
    test: Mapping[str, Any]
    fit: Mapping[str, Any]
    datasets: tuple[Mapping[str, Any], ...]
    contexts: tuple[ContextTold, ...]
    models: tuple[ModelMended, ...]
    collective: Collective | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    version: int = MEND_VERSION
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"version": self.version, **{k: v for k, v in asdict(self).items() if k != "version"}}


def mend_json(mended: Mended) -> str:
    """The document's text; equal runs give equal bytes."""
    return json.dumps(mended.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
