"""What an evaluation measured, as one document: facts about models and groups, and one long table
of numbers.

A row has a measure, a model, group and class, `against` what (a second model, group, class or
judge) and `at` which bin, level or rule. Accuracies and drops are fractions; intervals are
two-sided at 95 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.documents import Count, Form, Strict, parse_document, plain_value
from counterfoil.report import (
    comparison,
    distances,
    findings,
    labels,
    published,
    reference,
    severity,
    transfer,
)
from counterfoil.report.comparison import ModelComparison
from counterfoil.report.distances import Distances
from counterfoil.report.findings import MinedShiftResult
from counterfoil.report.labels import LabelChecks
from counterfoil.report.published import PublishedResults
from counterfoil.report.reference import ReferenceResult
from counterfoil.report.sections import MeasureFacts, Shown
from counterfoil.report.severity import Severity
from counterfoil.report.transfer import Transfer
from counterfoil.report.words import preview_sentence
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

KEY = ("measure", "model", "group", "class_id", "against", "at")


@dataclass(frozen=True, slots=True)
class ResultRow(Strict):
    """One number with its key: value, interval, how many images (`n`) and independent units, test,
    p and q, a note."""

    measure: str
    model: str = ""
    group: str = ""
    class_id: str = ""
    against: str = ""
    at: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """Images (or models, of a line) that the number is of."""
    units: int | None = None
    """Independent units among them, where rows share some."""
    test: str = ""
    p: float | None = None
    q: float | None = None
    note: str = ""
    """What must be said of the number, or why there is none."""

    @property
    def estimate(self) -> Estimate | None:
        """The value with its interval; None if there is none."""
        return None if self.value is None else Estimate(self.value, self.low, self.high)

    @property
    def count(self) -> int:
        """How many of the `n` images a share is, each counting once."""
        return round((self.value or 0.0) * (self.n or 0))


def estimate_row(measure: str, estimate: Estimate | float | None, **others: object) -> ResultRow:
    """Return a row of an estimate, or of a bare value; the other fields as they are named.

    A rounding error becomes 0, because words depend on signs.
    """
    if not isinstance(estimate, Estimate):
        return ResultRow(measure, value=_without_noise(estimate), **others)  # type: ignore[arg-type]
    value, low, high = map(_without_noise, (estimate.value, estimate.low, estimate.high))
    return ResultRow(measure, value=value, low=low, high=high, **others)  # type: ignore[arg-type]


def _without_noise(value: float | None) -> float | None:
    if value is not None and abs(value) < _NOISE:
        return 0.0
    return value


class ResultRows(tuple[ResultRow, ...]):
    """The long table. `one` finds a row by its whole key, `where` all rows of a measure that agree
    with part of one."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(cls, handler(tuple[ResultRow, ...]))

    @cached_property
    def _by_key(self) -> dict[tuple[str, ...], ResultRow]:
        key_of = attrgetter(*KEY)
        return {key_of(result): result for result in self}

    @cached_property
    def _by_measure(self) -> dict[str, list[ResultRow]]:
        by_measure: dict[str, list[ResultRow]] = {}
        for result in self:
            by_measure.setdefault(result.measure, []).append(result)
        return by_measure

    def one(self, measure: str, **key: str) -> ResultRow | None:
        """Return the row of this key, names that are left out being empty; None if nothing was
        measured."""
        return self._by_key.get((measure, *(key.get(name, "") for name in KEY[1:])))

    def estimate(self, measure: str, **key: str) -> Estimate | None:
        """Return the number of this key with its interval; None if there is none."""
        result = self.one(measure, **key)
        return None if result is None else result.estimate

    def value(self, measure: str, **key: str) -> float | None:
        """Return the bare number of this key; None if there is none."""
        result = self.one(measure, **key)
        return None if result is None else result.value

    def where(self, measure: str, **key: str) -> list[ResultRow]:
        """Return all rows of a measure that agree with these names, in order."""
        rows = []
        for result in self._by_measure.get(measure, ()):
            if all(getattr(result, name) == value for name, value in key.items()):
                rows.append(result)
        return rows


@dataclass(frozen=True, slots=True)
class ModelFacts(Strict):
    """A model, and whether it is near chance on the base (on all images without a base), in no
    average then. Facts unknown for a kind of classifier are None, its hash empty.
    """

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
    """Right outputs over those that it answers over, averaged over classes."""
    near_chance: bool
    tied: Count
    """Images whose two best scores are equal."""
    matched: str = ""
    """How its outputs were matched to classes."""
    likely_order: str = ""
    """Another order that they seem to have."""
    read: str = ""
    """How a file of answers was read, and what scores are, unless they are logits of a network."""
    unsteady: str = ""
    """Why its answer to an image is not always the same: by chance, or by the images beside it."""

    def called(self, short: bool) -> str:
        """Return its short name, or its name."""
        return self.short_name if short else self.name

    @property
    def note(self) -> str:
        """What tables say beside its name, if anything: that it is near chance."""
        return reference.NEAR_CHANCE if self.near_chance else ""


@dataclass(frozen=True, slots=True)
class LeftOut(Strict):
    """A class that a group's drop leaves out or that the group lacks, with its images on either
    side, and why."""

    class_id: str
    name: str
    base_images: Count
    shift_images: Count
    why: Literal["few images", "near chance"] = "few images"
    base_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts(Strict):
    """A group of images (the base, a shift, or any): its yield, and its classes and images.

    Those of a shift are the ones of its drop. Those of the base, or of a group without a base, have
    an image.
    """

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


@dataclass(frozen=True, slots=True)
class ClassFacts(Strict):
    """A class: its id in the recipe, and what it is called."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class UnitFacts(Strict):
    """The units that images share, and that intervals resample: the column that names them, and how
    many there are."""

    column: str
    count: Count


DROP_BASE = "drop_base"  # the measure on the base, over the classes that a drop is over
# The names of drops, and of a drop less another model's, in rows; `at` names the measure that
# drops.
DROP = "drop"
DIFFERENCE = "drop_difference"
# What a model's outputs are if one of them is the answer.
_OF_ONE_CLASS = ("imagenet", "source labels", "names")
# The JSON has at most this many rows; measures.csv has all.
MOST_ROWS = 100_000
VERSION = 4  # up to version 3, accuracies left out classes near chance
# A millionth is finer than any interval, and coarser than rounding errors of another library.
_DIGITS = 6
_NOISE = 1e-12  # rounding errors of sums of shares stay below this
_AGAIN = "Run `counterfoil evaluate` again."


@dataclass(frozen=True)
class Results(Strict):
    """Everything that an evaluation measured: `results.json`, from which tables, pages and cards
    are made.
    """

    FORM: ClassVar[Form] = Form("a results document that Counterfoil writes", _AGAIN, VERSION)
    content: str
    """Sha256 of the images."""
    dataset: str
    seed: int
    min_images_per_class: Count
    confidence: float
    replicates: Count
    paired: bool
    unreadable: Count
    """Images that could not be decoded."""
    image_side: int | None
    """The usual shorter side of the images, or of the source's, in pixels."""
    base: str | None
    """The first group, which the others are compared with, if there is one."""
    classes: tuple[ClassFacts, ...]
    models: tuple[ModelFacts, ...]
    groups: tuple[GroupFacts, ...]
    measures: tuple[MeasureFacts, ...]
    rows: ResultRows
    """One number each; fields that are left out are empty."""
    findings: tuple[MinedShiftResult, ...] = ()
    transfer: tuple[Transfer, ...] = ()
    severity: tuple[Severity, ...] = ()
    distances: tuple[Distances, ...] = ()
    comparison: ModelComparison | None = None
    reference: ReferenceResult | None = None
    label_checks: LabelChecks | None = None
    published: PublishedResults | None = None
    rows_left_out: Count = 0
    """How many rows the JSON has no room for, beside those of single classes, which it never has.
    """
    outputs: Literal["all", "classes"] = "all"
    """Whether models answer over all their outputs or over those of the classes alone."""
    preview: Count | None = None
    """The most images of a group, if these are not all."""
    scored: tuple[str, ...] = ()
    """Which images were given and are not scored."""
    units: UnitFacts | None = None
    """The units that images share, if the recipe names any."""
    version: Literal[4] = VERSION

    @property
    def preview_sentence(self) -> str:
        """The sentence that every page of a preview says; empty for a whole evaluation."""
        return preview_sentence(self.preview, "shift" if self.base is not None else "group")

    @property
    def lead(self) -> str:
        """The measure that people see first: accuracy of one class an image, or else the first of
        `measures`."""
        of_one_class = all(model.outputs in _OF_ONE_CLASS for model in self.models)
        if of_one_class or not self.measures:
            return "accuracy"
        return self.measures[0].name

    @property
    def base_group(self) -> GroupFacts | None:
        return self.groups[0] if self.base is not None else None

    @property
    def shifts(self) -> tuple[GroupFacts, ...]:
        """All other groups."""
        return self.groups if self.base is None else self.groups[1:]

    @property
    def by_impact(self) -> tuple[GroupFacts, ...]:
        """The shifts in the order of the whole report: largest impact first, those without any
        last."""

        def place(shift: GroupFacts) -> tuple[bool, float]:
            impact = self.rows.value("impact", group=shift.name)
            return impact is None, -(impact or 0.0)

        return tuple(sorted(self.shifts, key=place))

    @property
    def best_first(self) -> tuple[ModelFacts, ...]:
        """The models, the best on the base first; without a base, by all images."""

        def value(model: ModelFacts) -> float:
            base_number = self.base_number(model.name)
            if base_number is not None:
                return base_number.value
            return self.rows.value("top1", model=model.name, group=self.base or "") or 0.0

        return tuple(sorted(self.models, key=lambda model: (-value(model), model.name)))

    @property
    def best_sound(self) -> tuple[ModelFacts, ...]:
        return tuple(model for model in self.best_first if not model.near_chance)

    @property
    def sound_models(self) -> tuple[ModelFacts, ...]:
        """The models that averages are over: those that are not near chance on the base."""
        return tuple(model for model in self.models if not model.near_chance)

    @property
    def near_chance_models(self) -> set[str]:
        return {model.name for model in self.models if model.near_chance}

    @property
    def short_names(self) -> dict[str, str]:
        """Name of a model → its short name."""
        return {model.name: model.short_name for model in self.models}

    @property
    def near_chance_classes(self) -> tuple[LeftOut, ...]:
        """The classes that are near chance on the base, and in no drop."""
        every = [left_out for shift in self.shifts for left_out in shift.left_out]
        near = {left_out.class_id: left_out for left_out in every if left_out.why == "near chance"}
        return tuple(near[cls.id] for cls in self.classes if cls.id in near)

    def averaged(self, measure: str, **key: str) -> float | None:
        """Return the mean of a measure over the sound models that have one; None without any."""
        values = []
        for model in self.sound_models:
            value = self.rows.value(measure, model=model.name, **key)
            if value is not None:
                values.append(value)
        return sum(values) / len(values) if values else None

    def mean_of_sound(self, values: Sequence[float]) -> float | None:
        """Return the mean of one value a model over the sound models; None without any."""
        sound = [
            value for model, value in zip(self.models, values, strict=True) if not model.near_chance
        ]
        return sum(sound) / len(sound) if sound else None

    def mean_accuracy(self, values: Sequence[float]) -> float:
        """Return the mean of one accuracy a model over the sound models, or over all models if none
        is sound."""
        mean = self.mean_of_sound(values)
        return sum(values) / len(values) if mean is None else mean

    def base_number(self, model: str) -> Estimate | None:
        """Return a model's accuracy on the base, averaged over all classes, or its AP: the number
        that leads."""
        if self.base is None:
            return None
        return self.rows.estimate(self.lead, model=model, group=self.base)

    def drop_sides(self, model: str, group: str) -> tuple[float, float] | None:
        """Return a model's accuracy on the base and under a shift, both over the classes of the
        drop; None without."""
        key = {"model": model, "group": group}
        base = self.rows.value(DROP_BASE, **key)
        drop = self.rows.value("drop", **key)
        if base is None or drop is None:
            return None
        return base, base - drop

    def to_json(self) -> dict[str, Any]:
        """Return the document's JSON: numbers with six digits, no row of a single class, no empty
        field in a row."""
        shown = [result for result in self.rows if not result.class_id]
        if len(shown) > MOST_ROWS:  # rows of bins and rules are dropped first
            shown.sort(key=lambda result: bool(result.at))
        left_out = self.rows_left_out + max(0, len(shown) - MOST_ROWS)
        whole = plain_value(replace(self, rows=ResultRows(()), rows_left_out=left_out))
        optional = {*NESTED, "rows_left_out", "preview", "units"}
        document = {}
        for name, value in whole.items():
            if value or name not in optional:
                document[name] = _rounded(value)
        rows = []
        for shown_row in shown[:MOST_ROWS]:
            values = rounded_row(shown_row)
            rows.append({name: value for name, value in values.items() if value not in ("", None)})
        document["rows"] = rows
        return document


# Name of a nested measure in the document → how it is shown; in the order of their rows.
NESTED: Mapping[str, Shown] = {
    "findings": findings.SHOWN,
    "transfer": transfer.SHOWN,
    "severity": severity.SHOWN,
    "label_checks": labels.SHOWN,
    "reference": reference.SHOWN,
    "distances": distances.SHOWN,
    "published": published.SHOWN,
    "comparison": comparison.SHOWN,
}
# The sections of a report that every evaluation has; those of nested measures follow the one that
# they name.
_SECTIONS = (
    "impact",
    "drops",
    "counts",
    "classes",
    "figures",
    "shifts",
    "pictures",
    "measures",
    "models",
    "method",
)


def section_order(names: Iterable[str] = _SECTIONS) -> Iterator[str]:
    """Yield the names of all sections as a report has them; the terminal shows nested measures in
    this order."""
    for name in names:
        yield name
        yield from section_order([other for other, shown in NESTED.items() if shown.after == name])


@dataclass(frozen=True)
class ClassNumbers:
    """One class under one shift; the accuracies are one a model, in the order of the models.

    A class with too few images on either side has no accuracies and no impact; one near chance on
    the base has no impact.
    """

    shift: str
    class_id: str
    name: str
    base_images: int
    shift_images: int
    base_accuracy: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()
    drops: tuple[float, ...] = ()
    impact: Estimate | None = None
    near_chance: tuple[bool, ...] = ()
    """For each model, whether its own accuracy on the class's base images is near its chance."""
    class_near_chance: bool = False


def classes_of(results: Results, shift: str) -> list[ClassNumbers]:
    """Return the classes of a shift in the order of the recipe, those with too few images too."""
    rows = results.rows
    group = next(group_facts for group_facts in results.groups if group_facts.name == shift)
    left_out = {class_left_out.class_id: class_left_out for class_left_out in group.left_out}
    numbers = []
    for cls in results.classes:
        if cls.id in left_out and left_out[cls.id].why == "few images":
            few = left_out[cls.id]
            numbers.append(ClassNumbers(shift, cls.id, cls.name, few.base_images, few.shift_images))
            continue
        key = {"group": shift, "class_id": cls.id}
        accuracies = [rows.one("accuracy", model=model.name, **key) for model in results.models]
        base = [rows.one("base_accuracy", model=model.name, **key) for model in results.models]
        drop = [rows.value("drop", model=model.name, **key) for model in results.models]
        if not accuracies or accuracies[0] is None or base[0] is None:
            continue  # the shift does not have this class
        numbers.append(
            ClassNumbers(
                shift, cls.id, cls.name, base[0].n or 0, accuracies[0].n or 0,
                base_accuracy=tuple(each.value or 0.0 for each in base if each),
                accuracy=tuple(each.value or 0.0 for each in accuracies if each),
                drops=tuple(value or 0.0 for value in drop),
                impact=rows.estimate("impact", **key),
                near_chance=tuple(each.note == "near chance" for each in base if each),
                class_near_chance=cls.id in left_out,
            )
        )  # fmt: skip
    return numbers


def results_from(text: str | bytes, where: str) -> Results:
    """Return the document that a text holds. Raise UserError for one of an earlier version, and for
    any other text."""
    return parse_document(Results, text, where)


def rounded_row(result_row: ResultRow) -> dict[str, Any]:
    return _rounded(plain_value(result_row))


def _rounded(value: Any) -> Any:
    """Round to `_DIGITS` decimals; a p-value, however small, to as many digits that count."""
    if isinstance(value, dict):
        rounded = {}
        for name, member in value.items():
            if name in ("p", "q") and member is not None:
                rounded[name] = float(f"{member:.{_DIGITS}g}")
            else:
                rounded[name] = _rounded(member)
        return rounded
    if isinstance(value, list):
        return [_rounded(member) for member in value]
    if isinstance(value, float):
        return round(value, _DIGITS) + 0.0  # -0.0 becomes 0.0
    return value
