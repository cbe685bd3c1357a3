"""The documents of a run of mending: `mend.json`, which is strict, and `mend.csv` of the same
values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Form, Share, csv_text, plain_value
from counterfoil.mending.variants import ANY, CONTROL_WORDS, UNCHANGED
from counterfoil.mining.findings import AuditedImages, Half, MinedRecipe
from counterfoil.report.words import format_count, format_list, format_points, in_words, safe_text

MEND_VERSION = 1

# The sets of rows that a head is judged on, in the order of tables; beside them `context:NAME` and
# `class:ID`.
TEST = "test"
SEED = "debug_seed"
HELDOUT = "debug_heldout"
CONFIRM = "confirm"
IN_CONTEXTS = "in_contexts"
# Test failures judge images that the confirm half chose.
TEST_FAILED = "test_failures"
CONTEXT = "context:"
CLASS = "class:"
# Tables leave out contexts and classes with fewer rows: their accuracy would describe only these
# images.
FEWEST_LISTED = 10
TITLES = {
    TEST: "test",
    TEST_FAILED: "test failures",
    SEED: "debug seed",
    HELDOUT: "debug heldout",
    IN_CONTEXTS: "in contexts",
    CONFIRM: "confirm half",
}
SET_NOTES = {
    TEST_FAILED: "test images that the model gets wrong",
    SEED: "failures of the discover half, which chooses λ",
    HELDOUT: "failures of the confirm half, which chooses nothing",
    IN_CONTEXTS: "all confirm rows in these contexts, right or wrong",
    CONFIRM: "all rows of the confirm half",
}
# The outcome of a variant. Only a model that helps is called mended.
Helped = Literal[
    "helps", "helps in part", "loses elsewhere", "not shown to help", "not known", "learned nothing"
]
HELPS: Helped = "helps"
HEADLINES: Mapping[Helped | None, str] = {
    HELPS: "This helps: the new head gains more than every control, and no loss elsewhere is shown.",
    "helps in part": "This helps in part, and is not shown to beat every control: keep your model"
    " for now.",
    "loses elsewhere": "This helps where your model fails and loses elsewhere: keep your model.",
    "not shown to help": "This is not shown to help: keep your model.",
    "not known": "It is not known whether this helps: keep your model.",
    "learned nothing": "This does not help: keep your model.",
    None: "Only heads for comparison were fitted: keep your model.",
}
# A head may gain more than every control and lose in a class, which `losses` names.
HELPS_AND_LOSES = (
    "This helps where your model fails: there the new head gains more than every control. But "
)
# Suffix of a control's kind: at the λ of the variant that it controls.
SAME_LAMBDA = " at the same λ"


def control_words(against: str, lam: float | None = None) -> str:
    """Return a control in words, with its chosen λ, if any."""
    what = against.removesuffix(SAME_LAMBDA)
    words = CONTROL_WORDS.get(what, what)
    if what != against:
        return f"{words}{SAME_LAMBDA}"
    return words if lam is None else f"{words} at λ = {lam:g}"


# Variants that learn from rows of the discover half, and from no training row.
BALANCED_ROLES = ("rival", "bound")
# The two-sided level at which one head gains more than another on held-out failures.
LEVEL = 0.05
# Fewer units cannot reach that level, even if all agree: 2 / 2^5 is larger.
FEWEST_UNITS = 6
_Named = TypeVar("_Named", MinedRecipe, Half)
COLUMNS = (
    "model",
    "arm",
    "role",
    "against",
    "lambda",
    "images",
    "set",
    "rows",
    "units",
    "before",
    "after",
    "gain",
    "low",
    "high",
    "gained",
    "lost",
    "p",
)


def _hashed(named: _Named) -> _Named:
    if not re.fullmatch("[0-9a-f]{64}", named.sha256):
        raise ValueError("sha256: expected 64 hex digits")
    return named


@dataclass(frozen=True, slots=True)
class SetMeasured:
    """A head on a set of rows: accuracies as fractions, the gain with its 95 % interval by unit;
    None without rows."""

    set: str
    rows: Count
    units: Count
    before: Share | None
    after: Share | None
    gain: float | None
    low: float | None
    high: float | None
    gained: Count
    """Rows that became right."""
    lost: Count
    """Rows that became wrong."""
    p: float | None
    """McNemar's, exact, on rows."""

    @property
    def listed(self) -> bool:
        return not self.set.startswith((CONTEXT, CLASS)) or self.rows >= FEWEST_LISTED


@dataclass(frozen=True, slots=True)
class GainDifference:
    """How much more a variant gains than a control on the same rows, with its interval."""

    against: str
    """The control's kind, with " at the same λ" if the control has the variant's λ."""
    set: str
    rows: Count
    difference: float
    low: float | None
    high: float | None
    lam: float | None
    """The control's λ, if any."""
    ahead: Count
    """Units of which the variant gets more rows right."""
    behind: Count
    """Units of which the variant gets fewer rows right."""
    p: float
    """The exact two-sided sign test of these."""

    @property
    def side(self) -> int:
        """1 if it gains more by the interval and the sign test, -1 if less, else 0.

        An interval of few units is too narrow: three units that agree already exclude 0.
        """
        if self.p > LEVEL:
            return 0
        if self.low is not None and self.low > 0 and self.ahead > self.behind:
            return 1
        if self.high is not None and self.high < 0 and self.ahead < self.behind:
            return -1
        return 0

    @property
    def too_few(self) -> bool:
        """Whether the sign test could not be significant, whatever the units' signs."""
        return self.ahead + self.behind < FEWEST_UNITS


@dataclass(frozen=True, slots=True)
class LambdaPoint:
    """One λ. The discover half chooses λ; accuracies on other rows are only reported."""

    value: float
    worst_context: Share | None
    """On the discover half."""
    discover: Share
    heldout: Share | None
    in_contexts: Share | None
    confirm: Share | None
    test: Share | None
    allowed: bool


@dataclass(frozen=True, slots=True)
class EffectPoint:
    """A head with fewer images: at most `value` contexts a class (`by_k`), or images a context
    (`by_images`)."""

    value: Count
    images: Count
    heldout: Share | None
    in_contexts: Share | None
    test: Share | None


@dataclass(frozen=True, slots=True)
class VariantResult:
    """A variant with its chosen λ."""

    name: str
    role: str
    of: str | None
    what: str | None
    images: Count
    offered: Count
    """Images before equal numbers."""
    lam: float | None
    within_bound: bool
    settled: bool
    measured: tuple[SetMeasured, ...]
    curve: tuple[LambdaPoint, ...] = ()
    comparisons: tuple[GainDifference, ...] = ()
    verdict: str | None = None
    """None for controls."""
    outcome: Helped | None = None
    """None for controls."""
    by_k: tuple[EffectPoint, ...] = ()
    by_images: tuple[EffectPoint, ...] = ()
    judged_by: str = CONFIRM
    """`confirm`; or `test`, if the confirm half chose the images, and then nothing is measured on
    it."""

    @property
    def few(self) -> int:
        """The number of contexts with too few rows for tables."""
        contexts = [measured for measured in self.measured if measured.set.startswith(CONTEXT)]
        return sum(0 < measured.rows < FEWEST_LISTED for measured in contexts)

    def losses(self, classes: Mapping[str, str]) -> str:
        """Return the class or context that loses most, if an interval shows that any loses; else
        "".

        classes: id → name.
        """
        listed_sets = [measured for measured in self.measured if measured.listed]
        listed_classes = [each for each in listed_sets if each.set.startswith(CLASS)]
        listed_contexts = [each for each in listed_sets if each.set.startswith(CONTEXT)]
        both = listed_classes + listed_contexts
        lost = [each for each in both if each.high is not None and each.high < 0]
        if not lost:
            return ""
        worst = min(lost, key=lambda each: each.gain or 0.0)
        assert worst.gain is not None and worst.low is not None and worst.high is not None
        _, _, name = worst.set.partition(":")
        where = f"the context {in_words(name)}"
        if worst in listed_classes:
            where = classes.get(name, name)
        several = ""
        if len(lost) > 1:
            several = f", the most of {len(lost):,} that lose"
        interval = f"{format_points(-worst.high)} to {format_points(-worst.low)}"
        alone = ""
        if len(both) > 1:
            seen = []
            if listed_classes:
                seen.append(format_count(len(listed_classes), "class", "classes"))
            if listed_contexts:
                seen.append(format_count(len(listed_contexts), "context"))
            alone = f"; the 95 % interval is for one alone of {format_list(seen)}"
        return f"{safe_text(where)} loses {format_points(-worst.gain)} points ({interval}){several}{alone}."

    @property
    def called(self) -> str:
        return "retrained, λ = 0" if self.role == "retrained" else self.name

    @property
    def against(self) -> dict[str, dict[str, GainDifference]]:
        by_control: dict[str, dict[str, GainDifference]] = {}
        for comparison in self.comparisons:
            by_control.setdefault(comparison.against, {})[comparison.set] = comparison
        return by_control

    @property
    def decides(self) -> str:
        """The least lead over a control, and what would decide the verdict; "" without a lead."""
        failures = HELDOUT
        noun = "held-out failure"
        if self.judged_by == TEST:
            failures = TEST_FAILED
            noun = "test failure"
        leads = [each for each in self.comparisons if each.set == failures]
        if not leads or self.lam == 0:
            return ""
        lead = min(leads, key=lambda each: each.difference)
        interval = "no interval"
        if lead.low is not None:
            low = format_points(lead.low, signed=True)
            interval = f"{low} to {format_points(lead.high, signed=True)}"
        text = (
            f" On {format_count(lead.rows, noun)} it gains"
            f" {format_points(lead.difference, signed=True)} points ({interval}) more than"
            f" {control_words(lead.against, lead.lam)}, the nearest control; it learned from"
            f" {self.images:,} of {format_count(self.offered, 'image')}."
        )
        if lead.side or lead.low is None:
            return text
        if lead.difference <= 0:
            return (
                f"{text} More photographs to judge would not change that: give it others to"
                " learn from."
            )
        width = (lead.difference - lead.low) / lead.difference
        needed = math.ceil(lead.rows * width**2)
        return (
            f"{text} About {max(needed, lead.rows + 1):,} such failures would decide it: audit"
            " more photographs."
        )

    def of_set(self, name: str) -> SetMeasured | None:
        return next((measured for measured in self.measured if measured.set == name), None)

    def gain_on(self, name: str) -> float | None:
        measured = self.of_set(name)
        return None if measured is None else measured.gain

    def in_tables(self, name: str) -> SetMeasured | None:
        """Return the set for tables: None for rows that a head of balanced groups learned from."""
        return None if self.role in BALANCED_ROLES and name == SEED else self.of_set(name)


@dataclass(frozen=True, slots=True)
class ModelMended:
    """A model and its variants."""

    name: str
    architecture: str
    sha256: str
    outputs: Count
    width: Count
    arms: tuple[VariantResult, ...]
    best: str | None
    """The variant that the discover half chose."""
    saved: str | None
    """The variant whose head is saved."""
    folder: str | None
    mended_sha256: str | None

    def variant(self, name: str) -> VariantResult:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def shown_first(self) -> VariantResult:
        """The variant that was saved, else the best, else the first that was asked for."""
        judged = (arm.name for arm in self.arms if arm.verdict is not None)
        return self.variant(self.saved or self.best or next(judged, self.arms[0].name))

    @property
    def titles(self) -> dict[str, str]:
        """The sets of rows in tables: failures of the test only if they judge, contexts only if
        they have rows."""
        titles = dict(TITLES)
        if not any(arm.judged_by == TEST for arm in self.arms):
            del titles[TEST_FAILED]
        if not any(
            measured.set == IN_CONTEXTS and measured.rows
            for arm in self.arms
            for measured in arm.measured
        ):
            del titles[IN_CONTEXTS]
        return titles

    def changed(self, kind: str) -> list[SetMeasured]:
        """Return the listed contexts, or classes, of the variant shown first, the largest change
        first."""
        changed_sets = [
            measured
            for measured in self.shown_first.measured
            if measured.set.startswith(kind) and measured.listed
        ]
        return sorted(changed_sets, key=lambda measured: -abs(measured.gain or 0.0))

    def images_are(self, arm: VariantResult) -> str:
        """Return in words what a variant learns from: changed photographs beside unchanged ones,
        else drawn images."""
        controls = {other.what for other in self.arms if other.of == arm.name}
        if UNCHANGED in controls:
            return "changed photographs"
        return "images of a pool" if ANY in controls else "drawn images"

    def headline(self, classes: Mapping[str, str]) -> str:
        """Return whether the variant shown first helps, and what decides that. classes: id →
        name."""
        several = sum(arm.verdict is not None for arm in self.arms) > 1
        arm = self.shown_first
        says = HEADLINES[arm.outcome]
        losses = arm.losses(classes)
        if losses and arm.outcome == HELPS:
            says = HELPS_AND_LOSES + losses
        reason = arm.decides
        if not arm.lam and arm.outcome == "not known":
            reason = f" {arm.verdict}"
        name = f"{arm.name}: " if several else ""
        return name + says + reason


@dataclass(frozen=True, slots=True)
class ContextShown:
    """A context that rows are judged in, and how many rows of each half CLIP assigns to it."""

    name: str
    class_id: str
    class_name: str
    caption: str
    rank: int | None
    discover: Count
    confirm: Count


@dataclass(frozen=True, slots=True)
class GainKept:
    """A model's gain by a variant on held-out failures, and its excess over the retrained head's
    gain."""

    model: str
    arm: str
    own: bool
    """Whether the images are those of the model's own failures."""
    images: Count
    heldout: float | None
    test: float | None
    kept: float | None
    """`heldout` as a share of the gain by the model's own images."""
    over_retrained: float | None
    kept_over_retrained: float | None
    """`over_retrained` as a share of that of the model's own images."""


@dataclass(frozen=True, slots=True)
class Collective:
    """The overlap (m, m) of the models' failures, None for NaN, and the gains by other models'
    images."""

    models: tuple[str, ...]
    families: tuple[str, ...]
    failures: tuple[Count, ...]
    overlap: tuple[tuple[Share | None, ...], ...]
    kept: tuple[GainKept, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditedRows:
    on: tuple[AuditedImages, ...]
    failure: str
    seed: Count
    dealt_by: str
    discover: Annotated[Half, AfterValidator(_hashed)]
    confirm: Annotated[Half, AfterValidator(_hashed)]


@dataclass(frozen=True, slots=True)
class TrainRows:
    """The training rows that heads are fitted to, `rows` of `of`; `seed` drew them."""

    name: str
    content: str
    rows: Count
    of: Count
    per_class: Count | None
    seed: Count


@dataclass(frozen=True, slots=True)
class RowsTested:
    """The rows that judge beside the confirm half, or the confirm half again."""

    name: str
    content: str | None
    rows: Count
    is_confirm_half: bool


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How heads are fitted."""

    how: Literal["lbfgs", "sgd", "network"]
    weight_decay: float
    lambdas: tuple[float, ...]
    most_loss: Share
    fewest_rows: Count
    rate: float | None = None
    """For `sgd` and `network`, as are momentum and epochs."""
    momentum: float | None = None
    epochs: Count | None = None
    batch: Count | None = None
    """For `network` alone."""


@dataclass(frozen=True, slots=True)
class ImagesLearned:
    """A set of images that heads learned from."""

    name: str
    group: str
    content: str
    recipe: str | None
    seed: int | None
    role: str
    images: Count
    offered: Count
    """Images before equal numbers."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What a person named: to mend with (`with` in the file), each model's own dataset, and splits
    to audit."""

    using: Annotated[tuple[str, ...], Field(alias="with")]
    own: dict[str, str]
    audited: tuple[str, ...]


@dataclass(frozen=True)
class Mended:
    """A run. Names have no folders."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    FORM: ClassVar[Form] = Form(
        f"a mended document of version {MEND_VERSION}", "Name another folder."
    )
    version: Annotated[int, Field(ge=MEND_VERSION, le=MEND_VERSION)]
    headline: str
    """Whether it helps, a sentence a model."""
    recipe: Annotated[MinedRecipe, AfterValidator(_hashed)]
    classes: dict[str, str]
    """id → name"""
    audited: AuditedRows
    train: TrainRows
    test: RowsTested
    fit: FitSettings
    datasets: tuple[ImagesLearned, ...]
    contexts: tuple[ContextShown, ...]
    models: tuple[ModelMended, ...]
    collective: Collective | None
    asked: AskedFor
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        values = plain_value(self)
        values["asked"]["with"] = values["asked"].pop("using")
        values["fit"] = {key: value for key, value in values["fit"].items() if value is not None}
        return values


def mend_csv(mended: Mended) -> str:
    """Return a line for every set of rows that a head was judged on, and for every difference to a
    control.

    Without `against` the gain is over the original model, with it over that control; gained, lost
    and p are of rows without it, and of units with it. Contexts and classes with few rows have no
    line.
    """
    lines: list[dict[str, Any]] = []
    for model in mended.models:
        for variant in model.arms:
            begin = {
                "model": model.name,
                "arm": variant.name,
                "role": variant.role,
                "lambda": variant.lam,
                "images": variant.images,
            }
            lines += [begin | asdict(measured) for measured in variant.measured if measured.listed]
            for comparison in variant.comparisons:
                numbers = {
                    "gain": comparison.difference,
                    "gained": comparison.ahead,
                    "lost": comparison.behind,
                }
                for name in ("against", "set", "rows", "low", "high", "p"):
                    numbers[name] = getattr(comparison, name)
                lines.append(begin | numbers)
    return csv_text(lines, COLUMNS)
