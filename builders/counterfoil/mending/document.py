"""What a run of mending tells, as plain values: `mend.json`. No clock, no host: the same run gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MEND_VERSION = 1

# The sets of rows that a head is judged on, in the order of tables; beside them `context:NAME` and `class:ID`.
TEST, SEED, HELDOUT, CONFIRM, IN_CONTEXTS = "test", "debug_seed", "debug_heldout", "confirm", "in_contexts"
# Failures of the test, which judge what the confirm half chose.
TEST_FAILED = "test_failures"
CONTEXT, CLASS = "context:", "class:"
# Of fewer rows an accuracy tells of these few images: no table has a context or a class that has no more.
FEWEST_LISTED = 10
SET_NOTES = {
    TEST_FAILED: "what the model gets wrong of the test",
    SEED: "what it gets wrong of the discover half, which chose λ",
    HELDOUT: "what it gets wrong of the confirm half, which chose nothing",
    IN_CONTEXTS: "all confirm rows there, right ones too",
    CONFIRM: "all its rows",
}
# What is said of an arm in a word: only the first is a model that is mended.
Helped = Literal["helps", "helps in part", "loses elsewhere", "not shown to help", "not known", "learned nothing"]
HELPS: Helped = "helps"
HEADLINES: Mapping[Helped | None, str] = {
    HELPS: "This helps: the new head gains more than every control, and no loss elsewhere is shown.",
    "helps in part": "This helps in part, and is not shown to beat every control: keep your model for now.",
    "loses elsewhere": "This helps where your model fails and loses elsewhere: keep your model.",
    "not shown to help": "This is not shown to help: keep your model.",
    "not known": "Nothing says whether this helps: keep your model.",
    "learned nothing": "This does not help: keep your model.",
    None: "Nothing was asked for but heads to compare with: keep your model.",
}
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
    """One arm with its chosen λ. images: learned from; offered: before equal numbers. verdict: None for controls, as
    `outcome`, which says it in a word.

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
    outcome: Helped | None = None
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
    """A model and everything that was tried on it. best: the arm that the discover half would leave; saved: the one
    whose head is in `folder`, or was given to the code that handed the model over; None where none was.
    """

    name: str
    architecture: str
    sha256: str
    outputs: int
    width: int
    arms: tuple[ArmResult, ...]
    best: str | None
    saved: str | None
    folder: str | None
    mended_sha256: str | None

    def arm(self, name: str) -> ArmResult:
        """An arm by its name."""
        return next(one for one in self.arms if one.name == name)

    @property
    def spoken(self) -> ArmResult:
        """The arm that is told first: the one that was saved, else the best, else the first that was asked for."""
        asked = [one.name for one in self.arms if one.verdict is not None]
        return self.arm(next(name for name in (self.saved, self.best, *asked, self.arms[0].name) if name is not None))

    @property
    def headline(self) -> str:
        """Whether that arm helps, in one sentence."""
        several = sum(one.verdict is not None for one in self.arms) > 1
        return (f"{self.spoken.name}: " if several else "") + HEADLINES[self.spoken.outcome]


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

    @property
    def headline(self) -> str:
        """Whether it helps, in one sentence; of several models one each."""
        several = len(self.models) > 1
        return " ".join((f"{one.name}: " if several else "") + one.headline for one in self.models)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        first = {"version": self.version, "headline": self.headline}
        return first | {key: value for key, value in asdict(self).items() if key != "version"}


def mend_json(mended: Mended) -> str:
    """The document's text; equal runs give equal bytes."""
    return json.dumps(mended.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
