"""Score models whose measures are no means over images: detectors, and classifiers of several labels.

Images are resampled, each with the same weight under the base and every shift. `ResampledTask` says what differs
between tasks; `evaluate_task` is the walk of all of them: ask, measure, judge a gate, write tables and the report.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil.documents import csv_text, document_text, preview_column
from counterfoil.errors import collected_in, raise_together
from counterfoil.evaluation.dataset import Group, OpenDataset
from counterfoil.evaluation.gate import (
    DROPS,
    GateLine,
    GateResult,
    Judged,
    NamedClasses,
    gate_files,
    gate_sentence,
    gate_table,
    indices_of_groups,
    judged_models,
    labels_named,
    models_of,
    name_problems,
    read_gate,
)
from counterfoil.evaluation.result_files import report_folder, store_results, write_files
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import is_stored, told_apart
from counterfoil.evaluation.shift_report import DIFFERENCE, DROP, PageSection, ShiftReport
from counterfoil.report.results import (
    DROP_BASE,
    GroupFacts,
    LeftOut,
    ModelFacts,
    ResultRow,
    Results,
    UnitFacts,
    rounded_row,
    row,
)
from counterfoil.report.words import counted
from counterfoil.resampled_stats import FEWEST_IMAGES, Drawn, Units, combined, ratio, simultaneous_intervals
from counterfoil.stats import CONFIDENCE
from counterfoil.store.directory_lock import writing_lock

# Only so many models are compared pair by pair: those that are best on the base.
_MOST_COMPARED = 12


@dataclass(frozen=True)
class TaskSettings:
    """How models are scored. Each field means what the argument of `evaluate` with its name means."""

    out: Path | None
    device: str
    batch_size: int
    seed: int
    class_order: Any
    gate: str | Path | Sequence[str] | None
    allow_undecided: bool
    limit: int | None
    into_card: bool
    transform: Any
    version: str | Mapping[str, str] | None
    min_images_per_class: int


@dataclass(frozen=True)
class ResampledModel(ABC):
    """The numbers of a model. All models use the same resamples of images."""

    name: str

    @abstractmethod
    def guesses(self, label: int | None) -> str:
        """Return why the model's drops mean nothing, for all labels or for one; empty if they mean something."""

    @abstractmethod
    def share(self, group: int, measure: str, label: int | None = None, of_drop: bool = False) -> Drawn:
        """Return a measure in a group, for all labels or for one. of_drop: whether to measure it as drops do."""

    def beside(self, other: Self) -> Self:
        """Return the model as it is compared with another: its drops are over what both models know on the base."""
        return self

    def drop(self, group: int, measure: str, label: int | None = None) -> Drawn:
        """Return the drop of a measure under a shift: base less shift."""
        base, shift = (self.share(side, measure, label, True) for side in (0, group))
        return combined([(1.0, base), (-1.0, shift)])

    def drop_note(self, group: int, measure: str) -> str:
        """Return over how many labels or categories a drop is; empty for a drop over all of them."""
        return ""

    def rows(self, measure: str, groups: Sequence[Group], images: int, units: Units | None) -> Iterator[ResultRow]:
        """Yield a measure of each group, then its drops, whose intervals hold for all shifts at once."""
        key = {"model": self.name, "n": images, "units": None if units is None else units.count}
        for index, group in enumerate(groups):
            number = self.share(index, measure)
            if math.isfinite(number.value):
                yield row(measure, number.interval(), group=group.name, **key)
        drops = {index: self.drop(index, measure) for index in range(1, len(groups))}
        drops = {index: drop for index, drop in drops.items() if math.isfinite(drop.value)}
        for index, estimate in zip(drops, simultaneous_intervals(list(drops.values())), strict=True):
            note = self.drop_note(index, measure)
            yield row(DROP, estimate, group=groups[index].name, at=measure, note=note, **key)
            if note:
                base = self.share(0, measure, None, True).value
                yield row(DROP_BASE, base, group=groups[index].name, at=measure, note=note, **key)


Model = TypeVar("Model", bound=ResampledModel)


def difference_rows(models: Sequence[Model], groups: Sequence[Group], measure: str) -> Iterator[ResultRow]:
    """Yield how much more of a measure one model loses than another; intervals hold for all pairs and shifts at once.

    Models near chance are left out.
    """
    sound = [model for model in models if not model.guesses(None)]
    sound.sort(key=lambda model: -model.share(0, measure).value)
    best = [model for model in models if model in sound[:_MOST_COMPARED]]
    differences = []
    for first, second in combinations(best, 2):
        pair = first.beside(second), second.beside(first)
        for index, group in enumerate(groups[1:], start=1):
            drops = [model.drop(index, measure) for model in pair]
            difference = combined([(1.0, drops[0]), (-1.0, drops[1])])
            if math.isfinite(difference.value):
                key = {"model": first.name, "against": second.name, "group": group.name, "n": difference.images}
                key["note"] = pair[0].drop_note(index, measure)
                differences.append((key, difference))
    estimates = simultaneous_intervals([difference for _, difference in differences])
    for (key, _), estimate in zip(differences, estimates, strict=True):
        yield row(DIFFERENCE, estimate, at=measure, **key)


class ResampledTask(ABC, Generic[Model]):
    """A kind of model on one dataset. `measure` sets `models`, `left_out` and `unreadable` for the methods after it.

    outputs: what a model gives, as its facts say. of_dataset: what its images have, and its models. takes: arguments of
    `evaluate` that not every task takes. shares, line_forms: what a line of a gate measures, and the hint on its form.
    table: the file with the rows that the terminal shows. line_classes: the classes that a line of a gate can name, in
    the order of label numbers. left_out: how many images are not compared, and a clause on why beside rows that some
    group lacks. notes: sentences on the dataset.
    """

    outputs: ClassVar[str]
    of_dataset: ClassVar[str]
    takes: ClassVar[frozenset[str]]
    shares: ClassVar[tuple[str, ...]]
    line_forms: ClassVar[str]
    table: ClassVar[str]
    report: ClassVar[ShiftReport]
    dataset: OpenDataset
    settings: TaskSettings
    line_classes: NamedClasses
    models: Sequence[Model]
    left_out: tuple[int, str]
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, dataset: OpenDataset, models: Any, settings: TaskSettings) -> None: ...

    def line_problems(self, line: GateLine) -> Iterator[str]:
        """Yield why this dataset and models of this kind cannot answer a line of a gate."""
        yield from name_problems(line, self.dataset, self.line_classes)
        if is_stored(line.other_model):
            yield "earlier evaluations are for classifiers of one class an image; name a model, or predictions:FILE"

    @abstractmethod
    def choose_models(self, against: Sequence[str]) -> Sequence[str]:
        """Return the names of the models to score. against: those that a gate compares with."""

    @abstractmethod
    def ask(self, name: str) -> Any:
        """Return a model's answers to all images."""

    @abstractmethod
    def measure(self, answers: Mapping[str, Any]) -> None:
        """Measure the answers of all models."""

    @abstractmethod
    def results(self) -> Results:
        """Return the results: facts about dataset and models, and the rows of every measure."""

    @abstractmethod
    def tables(self, results: Results) -> dict[str, tuple[str, str]]:
        """Return the tables that only this task writes: short name → (file name, CSV)."""

    @abstractmethod
    def write_failures(self, preview: str, folder: Path) -> Path:
        """Write the page of failures, and return its path. preview: the sentence that marks a preview, or empty."""

    @abstractmethod
    def image_columns(self) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Return the compared images, by their rows in the dataset, and their columns in predictions.parquet."""

    def shared_results(
        self,
        images: int,
        measured_classes: int,
        preview: int | None,
        few: tuple[LeftOut, ...] = (),
        *,
        models: Iterable[ModelFacts],
        units: Units | None,
        **others: Any,
    ) -> Results:
        """Return results whose groups all have the same number of images and of measured classes."""
        dataset = self.dataset
        column = dataset.recipe.source.unit_column or ""
        groups = tuple(
            GroupFacts(
                name=group.name,
                kind=group.kind,
                prompt=group.prompt,
                group=group.group,
                candidates=group.candidates,
                accepted=images if preview else int((dataset.shifts == index).sum()),
                unreadable=0,
                classes=measured_classes,
                left_out=few,
                images=images,
                base_images=images,
            )
            for index, group in enumerate(dataset.groups)
        )
        return Results(
            content=dataset.content,
            dataset=dataset.name,
            seed=self.settings.seed,
            confidence=CONFIDENCE,
            paired=True,
            unreadable=len(self.unreadable),
            image_side=None,
            base=dataset.groups[0].name,
            models=told_apart(models),
            groups=groups,
            preview=preview,
            units=None if units is None else UnitFacts(column, units.count),
            **others,
        )

    def all_tables(self, results: Results) -> dict[str, tuple[str, str]]:
        """Return the tables of these results: short name → (file name, CSV)."""
        columns = [field.name for field in fields(ResultRow)]
        tables = {"measures": ("measures.csv", csv_text(map(rounded_row, results.rows), columns))}
        tables |= self.tables(results)
        return {name: (file, preview_column(text, results.preview)) for name, (file, text) in tables.items()}

    def predictions(self, preview: int | None) -> bytes:
        """Return a Parquet table with a row for each compared image."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        dataset = self.dataset
        rows, of_task = self.image_columns()
        columns: dict[str, Any] = {
            "key": pa.array([dataset.keys[row] for row in rows.tolist()], pa.string()),
            "shift": pa.array([dataset.groups[group].name for group in dataset.shifts[rows].tolist()], pa.string()),
            **of_task,
        }
        if preview is not None:
            columns["preview"] = np.full(len(rows), preview)
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table(columns).take(np.argsort(rows)), buffer)
        return buffer.getvalue().to_pybytes()


def evaluate_task(kind: type[ResampledTask], dataset: OpenDataset, models: Any, settings: TaskSettings) -> Evaluation:
    """Score models and write every file.

    Raise the errors of `evaluate`. One error lists the problems of all models.
    """
    task = kind(dataset, models, settings)
    lines, errors = read_gate(settings.gate, task.line_problems, kind.shares, kind.line_forms)
    with collected_in(errors):
        names = task.choose_models(models_of(lines))
        judged = judged_models(lines, names)
    raise_together(errors)
    folder = report_folder(task.dataset, settings.out, settings.limit)
    answers: dict[str, Any] = {}
    for name in names:
        with collected_in(errors):
            answers[name] = task.ask(name)
    raise_together(errors)
    task.measure(answers)
    results, notes = task.results(), [*task.dataset.notes, *task.notes]
    if results.units is not None:
        notes.append(unit_note(results.units, results.groups[0].images))
    images, why = task.left_out
    if images:
        notes.append(f"{counted(images, 'image')} of rows that some group lacks{why} are left out.")
    notes += task.report.notes(results)
    evaluation = Evaluation(
        results,
        dataset=task.dataset.source,
        directory=task.dataset.directory,
        unreadable=task.unreadable,
        files={},
        gate=_judge(task, lines, judged, settings.allow_undecided) if lines else None,
        notes=tuple(notes),
    )
    with writing_lock(folder):
        written = _written(task, evaluation, folder)
    if not settings.into_card:
        return written
    return replace(written, files={**written.files, "card": store_results(written, None, task.all_tables)})


def unit_note(units: UnitFacts, images: int) -> str:
    """Say over how many units of what intervals are."""
    note = f"{counted(images, 'image')} share {counted(units.count, 'unit')} of `{units.column}`."
    if units.count < FEWEST_IMAGES:
        return f"{note} Numbers have no interval: it needs {FEWEST_IMAGES} units."
    return f"{note} Intervals resample these units, for images of one unit are no independent data."


def _written(task: ResampledTask, evaluation: Evaluation, folder: Path) -> Evaluation:
    results = evaluation.results
    failures = task.write_failures(results.preview_sentence, folder)
    gate: list[PageSection] = []
    if evaluation.gate is not None:
        gate = [
            PageSection("The gate", [("", gate_table(evaluation.gate))], sentences=[gate_sentence(evaluation.gate)])
        ]
    texts = {
        "report": ("report.html", task.report.html(results, evaluation.notes, gate)),
        "document": ("results.json", document_text(results)),
        **task.all_tables(results),
    }
    if evaluation.gate is not None:
        texts |= gate_files(evaluation.gate)
    return write_files(evaluation, folder, failures, texts, task.predictions(results.preview))


# ---- Judging a gate


def _judge(
    task: ResampledTask, lines: Sequence[GateLine], judged_names: Sequence[str], allow_undecided: bool
) -> GateResult:
    """Judge every line for each of these models, with intervals that hold for all comparisons at once."""
    dataset, classes = task.dataset, task.line_classes
    models = {model.name: model for model in task.models}
    comparisons = [
        comparison
        for line in lines
        for name in judged_names
        for comparison in _comparisons(
            dataset, classes, line, models[name], models[line.other_model] if line.other_model else None
        )
    ]
    numbers = [number for _, number in comparisons if number is not None]
    estimates = iter(simultaneous_intervals(numbers))
    outcomes = tuple(
        judged if number is None else judged.measured(next(estimates), number.images) for judged, number in comparisons
    )
    return GateResult(dataset.name, tuple(judged_names), outcomes, allow_undecided)


def _comparisons(
    dataset: OpenDataset,
    classes: NamedClasses,
    line: GateLine,
    model: ResampledModel,
    other: ResampledModel | None,
) -> Iterator[tuple[Judged, Drawn | None]]:
    """Yield the line once for each of its groups, still undecided, with the number to judge, or None without one."""
    drop = line.measure in DROPS
    indices = range(int(drop), len(dataset.groups)) if line.every else [indices_of_groups(dataset)[line.group]]
    if not indices:
        yield Judged(line, model.name, line.group, "undecided", reason="the dataset has no shift"), None
    label = labels_named(line.class_name, classes)[0] if line.class_name else None

    def share(of_model: ResampledModel, group: int) -> Drawn:
        return of_model.share(group, line.share, label, drop)

    for index in indices:
        number = share(model, index)
        reason = ""
        if drop or other is not None:
            first, first_group = (model, 0) if other is None else (other, index)
            number = combined([(1.0, share(first, first_group)), (-1.0, number)])
            guessing = [each for each in (first, model) if each.guesses(label)]
            if guessing and (drop or guessing != [model]):
                reason = f"{guessing[0].name} {guessing[0].guesses(label)}"
            if line.measure == "relative_drop":
                number = replace(ratio(number, share(model, 0)), signed=True)
        group = dataset.groups[index]
        judged = Judged(line, model.name, group.name, "undecided", reason=reason, level=group.level)
        if math.isfinite(number.value):
            yield judged, number
        else:
            reason = reason or f"no image shows {line.share} here"
            yield replace(judged, reason=reason), None
