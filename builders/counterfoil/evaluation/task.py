"""A task: how truth is read from a dataset, which models answer and how, and what is measured of
their answers.

`Task` is what an evaluation asks of every kind of model. `ResampledTask` is a task whose measures
are no means over images, as average precision: images are resampled, each with the same weight
under the base and every shift.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.documents import csv_text, preview_column
from counterfoil.errors import CounterfoilError, collected_in, raise_together
from counterfoil.evaluation.compared_images import ComparedImages
from counterfoil.evaluation.dataset import Group, OpenDataset, Subject, unit_names
from counterfoil.evaluation.entries import NEAR_CHANCE, drop_words, entry_files, interval_words
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer
from counterfoil.evaluation.failures import write_sheets
from counterfoil.evaluation.gate import (
    DIFFERS,
    DROPS,
    Comparing,
    GateLine,
    Judged,
    NamedClasses,
    indices_of_groups,
    labels_named,
    line_number,
    name_problems,
)
from counterfoil.evaluation.gate_changes import Changed, GroupChange
from counterfoil.evaluation.messages import message, refusal
from counterfoil.evaluation.options import EvaluationOptions
from counterfoil.evaluation.page import ReportPage, Tables, drop_bars
from counterfoil.evaluation.resampled_page import (
    compared_sentences,
    group_table,
    loss_beside,
    sorted_drops,
)
from counterfoil.evaluation.scored_models import (
    is_stored,
    models_by_name,
    short_name,
    with_distinct_short_names,
    with_public_names,
)
from counterfoil.recipe.tasks import TASKS
from counterfoil.report.headline import loss_sentence
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    DROP_BASE,
    ClassFacts,
    GroupFacts,
    LeftOut,
    ModelFacts,
    ResultRow,
    ResultRows,
    Results,
    UnitFacts,
    estimate_row,
    rounded_row,
)
from counterfoil.report.sections import MeasureFacts, ReportSection
from counterfoil.report.severity import Severity, severity_words
from counterfoil.report.words import MOST_TERMINAL_ROWS, Table, format_count
from counterfoil.resampled_stats import (
    FEWEST_IMAGES,
    Drawn,
    Number,
    Units,
    simultaneous_intervals,
    weighted_sum,
)
from counterfoil.stats import CONFIDENCE, REPLICATES
from counterfoil.store.atomic import write_atomically

# Only so many models are compared pair by pair: those that are best on the base.
_MOST_COMPARED = 12
# The options that every task takes.
EVERY_TASK = frozenset(
    {
        "recipe",
        "base",
        "groups",
        "out",
        "device",
        "batch_size",
        "class_order",
        "seed",
        "into_card",
        "repo",
        "gate",
        "allow_undecided",
        "limit",
    }
)


class Task(ABC):
    """A kind of model on one dataset."""

    name: ClassVar[str]
    """The task's name, as `source.task` of a recipe has it."""
    of_dataset: ClassVar[str]
    """What its images have, and its models, for an error: "objects, and detectors"."""
    takes: ClassVar[frozenset[str]] = frozenset()
    """The options that it takes beside those of every task."""
    table: ClassVar[str]
    """The file with the rows that the terminal shows."""
    unreadable: tuple[str, ...] = ()
    """Keys of images that could not be decoded, once models have answered."""
    unreadable_paths: tuple[str | None, ...] = ()

    def __init__(self, subject: Subject, models: Any, options: EvaluationOptions) -> None:
        """Raise UserError for options that this task does not take."""
        self.subject = subject
        self.named = models
        self.options = options
        taken = EVERY_TASK | self.takes
        refused = [name for name in options.given() if name not in taken]
        if refused:
            raise refusal("unfit-option.task", None, self.of_dataset, refused)
        self.open()

    def open(self) -> None:
        """Read what answers are measured by from the dataset."""
        return

    @property
    def min_images(self) -> int:
        """The fewest images of a class or label that are measured."""
        return self.options.min_images_per_class or self.subject.min_images_per_class

    @property
    @abstractmethod
    def measures(self) -> Mapping[str, MeasureFacts]:
        """What a line of a gate can name, the measure that leads first."""

    @classmethod
    @abstractmethod
    def write_keys(cls, subject: Any, file: Path) -> int:
        """Write a list of all images for a program that answers them elsewhere, and return their
        number."""

    @property
    @abstractmethod
    def classes(self) -> NamedClasses:
        """The classes that a line of a gate can name, in the order of label numbers."""

    def line_problems(self, line: GateLine) -> Iterator[str]:
        """Yield why this dataset and models of this kind cannot answer a line of a gate."""
        yield from name_problems(line, self.subject, self.classes)

    @abstractmethod
    def choose_models(self, against: Sequence[str]) -> Sequence[str]:
        """Return the names of the models to score. against: those that a gate compares with."""

    def read_earlier(self, lines: Sequence[GateLine], judged: Sequence[str]) -> None:
        """Read the earlier evaluations that lines compare with. judged: the models that a gate
        judges."""
        return

    def prepare(self) -> None:
        """Open what the options name, before any long step and before a folder is made."""
        return

    @abstractmethod
    def ask(self, names: Sequence[str]) -> None:
        """Let all models answer, and measure their answers. One error lists the problems of all
        models."""

    @abstractmethod
    def results(self) -> Results:
        """Return the results: facts about dataset and models, and the rows of every measure."""

    def notes(self, results: Results) -> Iterator[str]:
        """Yield what a reader needs to understand the numbers, beside the notes of the dataset."""
        units = results.units
        if units is not None:
            images = format_count(results.groups[0].images, "image")
            note = f"{images} share {format_count(units.count, 'unit')} of `{units.column}`."
            worth = (
                "Intervals resample these units, for images of one unit are no independent data."
            )
            if units.count < FEWEST_IMAGES:
                worth = f"Numbers have no interval: it needs {FEWEST_IMAGES} units."
            yield f"{note} {worth}"

    def warnings(self, results: Results) -> Iterable[str]:
        """Return what a person must know before reading any number."""
        return ()

    @abstractmethod
    def comparing(self, results: Results) -> Comparing:
        """Return what answers the lines of a gate."""

    @abstractmethod
    def tables(self, results: Results) -> Tables:
        """Return the tables of this task: short name → (file name, CSV)."""

    def all_tables(self, results: Results) -> Tables:
        """Return every table: short name → (file name, CSV). The one of all measures has
        fractions."""
        columns = [field.name for field in fields(ResultRow)]
        measures = csv_text(map(rounded_row, results.rows), columns)
        tables = {"measures": ("measures.csv", measures), **self.tables(results)}
        for name, (file, text) in tables.items():
            tables[name] = file, preview_column(text, results.preview)
        return tables

    def folders(self, results: Results) -> Mapping[str, Mapping[str, str]]:
        """Return further tables: folder → file name → CSV. A card does not get them."""
        return {}

    @abstractmethod
    def page(self, results: Results) -> ReportPage:
        """Return what the report has beside what every report has."""

    @abstractmethod
    def terminal(self, results: Results) -> Iterator[str | Table]:
        """Yield the sentences and tables of the terminal."""

    @abstractmethod
    def write_failures(self, results: Results, folder: Path) -> Path:
        """Write the page of failures, and return its path."""

    def entries(self, results: Results, at_commit: bool = True) -> dict[str, bytes]:
        """Return the Hub's evaluation-result entries: file name → content. at_commit: whether they
        name a commit."""
        subject = self.subject
        published = subject.published
        dataset_id = published.repo if published else subject.repo
        dataset_id = self.options.repo or dataset_id
        # Entries are of whole datasets.
        some = subject.preview is not None or len(subject.parts) > 1
        if dataset_id is None or some or not subject.base:
            return {}
        # The commit that a published dataset was named by; a branch or a tag may move.
        revision = published.revision if published and at_commit else None
        commit = revision if re.fullmatch(r"[0-9a-f]{40}", revision or "") else None
        return entry_files(with_public_names(results), self.entry, dataset_id, commit)

    @abstractmethod
    def entry(
        self,
        results: Results,
        model: ModelFacts,
        group: GroupFacts,
    ) -> tuple[float, str] | None:
        """Return the value (a fraction) and the notes of a model's entry in a group; None without a
        number."""

    @abstractmethod
    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        """Return the scored images, by their rows in the dataset, and their columns in
        predictions.parquet."""

    # ---- Failures

    @classmethod
    def failure_words(cls, failure: Mapping[str, Any]) -> tuple[str, str]:
        """Return what an image shows and what a model answers, in words. failure: the columns of
        both."""
        truth = []
        for column in cls.truth_columns:
            truth.append(_words(column, failure[column]))
        answers = []
        for column in cls.answer_columns:
            if column in failure:
                answers.append(_words(column, failure[column]))
        return ", ".join(truth), ", ".join(answers)

    truth_columns: ClassVar[tuple[str, ...]]
    """The columns of predictions.parquet that say what an image shows."""
    answer_columns: ClassVar[tuple[str, ...]]
    """The columns of a model's answer, before a dot and the model's name."""

    @classmethod
    @abstractmethod
    def wrong(cls, frame: Any) -> Any:
        """Return which rows of a DataFrame of one model's answers are wrong, (n,) bool."""

    @classmethod
    @abstractmethod
    def worst_first(cls, frame: Any) -> Any:
        """Return the rows of a DataFrame of failures in the order in which people read them."""

    @abstractmethod
    def failures(self) -> Iterator[Failure]:
        """Yield the images that some model gets wrong."""

    @abstractmethod
    def partners(self) -> Ints:
        """Return for each image of the dataset the row of its base image, (n,), or -1."""

    def predictions(self, preview: int | None) -> bytes:
        """Return a Parquet table with a row for each scored image."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        subject = self.subject
        rows, of_task = self.image_columns()
        names = [group.name for group in subject.groups]
        texts: dict[str, Sequence[str | None]] = {
            "key": subject.keys,
            "unit": unit_names(subject),
            "shift": [names[group] for group in subject.shifts.tolist()],
        }
        if subject.paths is not None:
            texts["path"] = subject.paths
        columns: dict[str, Any] = {}
        for name, values in texts.items():
            of_subject = pa.array(values, pa.string())
            columns[name] = of_subject.take(rows)
        if preview is not None:
            columns["preview"] = np.full(len(rows), preview)
        buffer = pa.BufferOutputStream()
        table = pa.table(columns | of_task)
        ordered = table.take(np.argsort(rows))
        pq.write_table(ordered, buffer)
        return buffer.getvalue().to_pybytes()


def _words(column: str, value: Any) -> str:
    """Return `missed 2`, `iou 0.31` or `classes road, sky` for a column and its value."""
    if isinstance(value, float):
        text = f"{value:.2f}".removesuffix(".00")
    elif isinstance(value, str | int):
        text = str(value)
    else:
        text = ", ".join(map(str, value)) or "none"
    return f"{column.replace('_', ' ')} {text}"


def _less(number: Drawn, other: Drawn) -> Drawn:
    """Return a number less another one."""
    return weighted_sum([(1.0, number), (-1.0, other)])


@dataclass(frozen=True)
class ResampledModel(ABC):
    """The numbers of a model. All models use the same resamples of images."""

    name: str

    @abstractmethod
    def drop_problem(self, label: int | None) -> str:
        """Return why the model's drops mean nothing, for all labels or for one; empty if they mean
        something."""

    @abstractmethod
    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        """Return a measure in a group, for all labels or for one. of_drop: whether to measure it as
        drops do."""

    def compared_with(self, other: Self) -> Self:
        """Return the model as it is compared with another: its drops are over what both models know
        on the base."""
        return self

    def drop(self, group: int, measure: str, label: int | None = None) -> Drawn:
        """Return the drop of a measure under a shift: base less shift."""
        base = self.share(0, measure, label, True)
        shift = self.share(group, measure, label, True)
        return _less(base, shift)

    def drop_note(self, group: int, measure: str) -> str:
        """Return over how many labels or categories a drop is; empty for a drop over all of
        them."""
        return ""

    def rows(
        self,
        measure: str,
        groups: Sequence[Group],
        images: int,
        units: Units | None,
    ) -> Iterator[ResultRow]:
        """Yield a measure of each group, then its drops, whose intervals hold for all shifts at
        once."""
        key: dict[str, Any] = {"model": self.name, "n": images}
        if units is not None:
            key["units"] = units.count
        for index, group in enumerate(groups):
            number = self.share(index, measure)
            if math.isfinite(number.value):
                yield estimate_row(measure, number.interval(), group=group.name, **key)
        drops = {}
        for index in range(1, len(groups)):
            drop = self.drop(index, measure)
            if math.isfinite(drop.value):
                drops[index] = drop
        key["at"] = measure
        estimates = simultaneous_intervals([*drops.values()])
        for index, estimate in zip(drops, estimates, strict=True):
            key["group"] = groups[index].name
            key["note"] = self.drop_note(index, measure)
            yield estimate_row(DROP, estimate, **key)
            if key["note"]:
                base = self.share(0, measure, None, True)
                yield estimate_row(DROP_BASE, base.value, **key)


Model = TypeVar("Model", bound=ResampledModel)


def difference_rows(
    models: Sequence[Model],
    groups: Sequence[Group],
    measure: str,
) -> Iterator[ResultRow]:
    """Yield how much more of a measure one model loses than another; intervals hold for all pairs
    and shifts at once.

    Models near chance are left out.
    """
    sound = [model for model in models if not model.drop_problem(None)]
    sound.sort(key=lambda model: -model.share(0, measure).value)
    best = [model for model in models if model in sound[:_MOST_COMPARED]]
    keys = []
    differences = []
    for lowest, another in combinations(best, 2):
        first = lowest.compared_with(another)
        second = another.compared_with(lowest)
        for index, group in enumerate(groups[1:], start=1):
            lost = first.drop(index, measure)
            other_lost = second.drop(index, measure)
            difference = _less(lost, other_lost)
            if math.isfinite(difference.value):
                key = {
                    "model": first.name,
                    "against": second.name,
                    "group": group.name,
                    "n": difference.images,
                    "note": first.drop_note(index, measure),
                }
                keys.append(key)
                differences.append(difference)
    estimates = simultaneous_intervals(differences)
    for key, estimate in zip(keys, estimates, strict=True):
        yield estimate_row(DIFFERENCE, estimate, at=measure, **key)


class ResampledTask(Task, Generic[Model]):
    """A task on a built dataset whose images are resampled. `measure` sets what the methods after
    it read."""

    outputs: ClassVar[str]
    """What a model gives, as its facts say."""
    noun: ClassVar[str]
    """What a model is called."""
    metric: ClassVar[str]
    """The name of the measure that leads, as leaderboards have it."""
    shown: ClassVar[tuple[Sequence[str], Sequence[str]]]
    """The measures, and those whose drops stand beside them, in the terminal's tables."""
    hint: ClassVar[str]
    """How to name models, for an error."""
    facts: ClassVar[Sequence[MeasureFacts]]
    """Every measure, the one that leads first."""
    gated: ClassVar[Collection[str]]
    """The measures that a line of a gate can name."""
    replicates: ClassVar[int] = REPLICATES
    """How many resamples are drawn."""
    beside: ClassVar[str] = ""
    """A measure whose loss is told with the one that leads."""
    left_out_because: ClassVar[str] = ""
    """A clause on why images are left out beside rows that some group lacks."""
    subject: OpenDataset  # pyrefly: ignore[bad-override-mutable-attribute]
    compared: ComparedImages
    """The images that the models are compared on."""
    models: Sequence[Model]
    of_dataset_notes: tuple[str, ...] = ()
    """Sentences on the dataset."""

    @property
    def measures(self) -> Mapping[str, MeasureFacts]:
        gated = [facts for facts in self.facts if facts.name in self.gated]
        return {facts.name: facts for facts in gated}

    def line_problems(self, line: GateLine) -> Iterator[str]:
        yield from super().line_problems(line)
        if line.measure == DIFFERS:
            yield message("unfit-line.differs", None, DIFFERS)
        if is_stored(line.other_model):
            yield message("unfit-line.earlier")

    def choose_models(self, against: Sequence[str]) -> Sequence[str]:
        of_recipe = ()
        if self.named is None:
            of_recipe = self.subject.models
        self.given = models_by_name(
            self.noun,
            self.named,
            of_recipe,
            against,
            self.hint,
        )
        return tuple(self.given)

    @abstractmethod
    def answers(self, name: str) -> Any:
        """Return the answers of the model `self.given[name]` to all images."""

    @abstractmethod
    def measure(self, answers: Mapping[str, Any]) -> None:
        """Measure the answers of all models."""

    def ask(self, names: Sequence[str]) -> None:
        answers: dict[str, Any] = {}
        errors: list[CounterfoilError] = []
        for name in names:
            with collected_in(errors):
                answers[name] = self.answers(name)
        raise_together(errors)
        self.measure(answers)

    def notes(self, results: Results) -> Iterator[str]:
        yield from self.of_dataset_notes
        yield from super().notes(results)
        if self.compared.left_out:
            images = format_count(self.compared.left_out, "image")
            why = f"of rows that some group lacks{self.left_out_because}"
            yield f"{images} {why} are left out."

    # ---- Page and terminal

    @abstractmethod
    def near_chance(self, results: Results, model: ModelFacts) -> str:
        """Return what a model near chance on the base does."""

    @abstractmethod
    def sections(self, results: Results) -> Iterator[ReportSection]:
        """Yield the sections of the page that have something to show."""

    def page(self, results: Results) -> ReportPage:
        charts = {}
        for model in results.models:
            charts[model.short_name] = sorted_drops(results, model, results.lead)
        costs = ReportSection(
            title="What each shift costs",
            short="Drops",
            template="report-bars.html.j2",
            more=drop_bars(charts),
        )
        name = "resampled"
        if self.name in TASKS.bundled:
            name = self.name
        method = ReportSection(template=f"report-method-of-{name}.html.j2")
        return ReportPage(
            template=f"report-of-{name}.html.j2",
            sections=[costs, *self.sections(results), method],
            messages=[*self.losses(results)],
            values={"noun": self.noun},
        )

    def terminal(self, results: Results) -> Iterator[str | Table]:
        for model in results.models:
            table = group_table(results, model, *self.shown)
            yield table.first(MOST_TERMINAL_ROWS, "rows", self.table)
        yield from self.losses(results)
        yield from compared_sentences(results)
        yield from severity_words(results)

    def losses(self, results: Results) -> Iterator[str]:
        """Yield a sentence for each model: under which shift it loses most, and how much."""
        for model in results.models:
            who = f"Your {self.noun}" if len(results.models) == 1 else model.short_name
            drops = results.rows.where(
                DROP,
                model=model.name,
                class_id="",
                at=results.lead,
            )
            if model.near_chance:
                yield f"{who} {self.near_chance(results, model)}, so drops say nothing."
            elif not drops:
                yield f"{who} has no drop: the dataset has no shift."
            else:
                beside = ""
                if self.beside:
                    beside = loss_beside(results, model, self.beside)
                yield loss_sentence(results, who, results.lead, drops, beside)

    def entry(
        self,
        results: Results,
        model: ModelFacts,
        group: GroupFacts,
    ) -> tuple[float, str] | None:
        numbers = results.rows
        key = {"model": model.name, "group": group.name}
        number = numbers.estimate(results.lead, **key)
        if number is None:
            return None
        notes = f"{self.metric} in percent; {interval_words(number)}, {group.images} images"
        if model.near_chance and group is results.base_group:
            notes += NEAR_CHANCE
        key["at"] = results.lead
        drop = numbers.one(DROP, **key)
        if drop is not None and drop.estimate is not None:
            base = numbers.value(DROP_BASE, **key)
            if base is None:
                base = numbers.value(
                    results.lead,
                    model=model.name,
                    group=results.base or "",
                )
            over = ""
            if drop.note:
                over = f" {drop.note}"
            notes += drop_words(drop.estimate, base, over)
        return number.value, notes

    def partners(self) -> Ints:
        base, *shifts = self.compared.rows
        partners = np.full(len(self.subject.keys), -1)
        for rows in shifts:
            partners[rows] = base
        return partners

    def failure(
        self,
        group: int,
        image: int,
        truth: dict[str, Any],
        annotations: Sequence[dict[str, Any]],
        answers: Sequence[ModelAnswer],
    ) -> Failure:
        """Return an image that some model gets wrong, in the folder of its group."""
        row = int(self.compared.rows[group, image])
        folder = self.subject.groups[group].name
        return Failure(row, folder, truth, annotations, answers)

    def write_answers(
        self,
        results: Results,
        folder: Path,
        template: str,
        subject: Subject,
        answers: tuple[NDArray[np.integer[Any]], Bools],
        partners: Ints,
        text_of: Callable[[int], str],
        images: int,
    ) -> Path:
        """Write the page of failures of models that give each row of a subject one answer.

        answers: (rows, models), the numbers of answers, and which are right. text_of: gives the
        text of an answer. images: how many rows were asked about.
        """
        answered, right = answers
        unknown = np.full(right.shape, np.nan, np.float32)
        models = [(model.name, text_of, "") for model in self.models]
        base, *shifts = (group.name for group in subject.groups)
        return write_sheets(
            folder,
            template,
            results,
            subject,
            (answered, right, unknown),
            partners,
            models,
            [*shifts, base],
            images=images,
            paired=True,
            changed=True,
        )

    # ---- Lines of a gate

    def comparing(self, results: Results) -> Comparing:
        return self

    def comparisons(self, line: GateLine, model: str) -> Iterator[tuple[Judged, Drawn | None]]:
        """Yield the line once for each of its groups, still undecided, with the number to judge;
        None without one."""
        subject = self.subject
        models = {each.name: each for each in self.models}
        drop = line.measure in DROPS
        judged_model = models[model]
        # The first side of a comparison: the other model, or the same one on the base.
        first = models.get(line.other_model, judged_model)
        first_shift = 1 if drop else 0
        indices: Sequence[int] = range(first_shift, len(subject.groups))
        if not line.every:
            indices = [indices_of_groups(subject)[line.group]]
        if not indices:
            reason = "the dataset has no shift"
            yield Judged(line, model, line.group, reason=reason), None
        label = None
        if line.class_name:
            label, *_ = labels_named(line.class_name, self.classes)
        for index in indices:
            group = subject.groups[index]
            sides = [judged_model.share(index, line.share, label, drop)]
            reason = ""
            if drop or line.other_model:
                first_group = 0 if drop else index
                first_side = first.share(first_group, line.share, label, drop)
                sides.insert(0, first_side)
                problem = first.drop_problem(label)
                if problem:
                    reason = f"{first.name} {problem}"
            number = line_number(line, sides)
            known = math.isfinite(number.value)
            if not known and not reason:
                reason = f"no image shows {line.share} here"
            judged = Judged(
                line,
                model,
                group.name,
                reason=reason,
                level=group.level,
            )
            yield judged, number if known else None

    def changes(self, earlier: str, model: str) -> Iterator[GroupChange]:
        """Yield how a model differs in each group from another that is measured too."""
        models = {each.name: each for each in self.models}
        if earlier not in models:
            return
        lead = next(iter(self.measures))
        now = models[model].compared_with(models[earlier])
        before = models[earlier].compared_with(models[model])
        guessing = before.drop_problem(None) or now.drop_problem(None)
        wrong_before = self._wrong_images(earlier)
        wrong_now = self._wrong_images(model)
        for index, group in enumerate(self.subject.groups):
            share_before = before.share(index, lead)
            share = _changed(share_before, now.share(index, lead))
            if share is None:
                continue
            drop = None
            if index and not guessing:
                drop_before = before.drop(index, lead)
                drop = _changed(drop_before, now.drop(index, lead))
            newly_wrong = wrong_now[index] & ~wrong_before[index]
            newly_right = wrong_before[index] & ~wrong_now[index]
            yield GroupChange(
                group.name,
                share,
                drop,
                images=len(newly_wrong),
                newly_wrong=int(newly_wrong.sum()),
                newly_right=int(newly_right.sum()),
                over=now.drop_note(index, lead),
            )

    def _wrong_images(self, model: str) -> Bools:
        """Return which images a model gets wrong, (groups, images)."""
        import pyarrow as pa

        _, columns = self.image_columns()
        answers = {column: columns[f"{column}.{model}"] for column in self.answer_columns}
        frame = pa.table(answers).to_pandas()
        wrong = np.asarray(self.wrong(frame), dtype=bool)
        return wrong.reshape(self.compared.rows.shape)

    def numbers(self, questions: Sequence[Drawn]) -> Sequence[Number]:
        return questions

    def judged(self, judged: Judged, number: Number, reach: float) -> Judged:
        return judged.measured(number, reach)

    def model_facts(
        self,
        name: str,
        classes: int,
        chance: float,
        near_chance: bool,
        sha256: str = "",
        matched: str = "",
    ) -> ModelFacts:
        """Return what results say of a model without the facts of an image classifier."""
        return ModelFacts(
            name=name,
            short_name=short_name(name),
            architecture="",
            outputs=self.outputs,
            num_classes=classes,
            img_size=None,
            crop_pct=None,
            interpolation=None,
            param_count=None,
            sha256=sha256,
            top_k=1,
            chance=chance,
            near_chance=near_chance,
            tied=0,
            matched=matched,
        )

    @abstractmethod
    def facts_of(self, model: Model) -> ModelFacts:
        """Return what results say of a model."""

    def shared_results(
        self,
        measured_classes: int,
        rows: Iterable[ResultRow],
        *,
        few: tuple[LeftOut, ...] = (),
        classes: Sequence[ClassFacts] = (),
        min_images: int = 1,
        severity: tuple[Severity, ...] = (),
        more: Sequence[MeasureFacts] = (),
    ) -> Results:
        """Return results whose groups all have the same number of images and of measured
        classes.

        more: what rows hold beside the task's measures.
        """
        dataset = self.subject
        images = self.compared.images
        preview = self.compared.preview
        units = self.compared.units
        shared_units = None
        if units is not None:
            column = dataset.recipe.source.unit_column or ""
            shared_units = UnitFacts(column, units.count)
        groups = []
        for index, group in enumerate(dataset.groups):
            accepted = int((dataset.shifts == index).sum())
            facts = GroupFacts(
                name=group.name,
                kind=group.kind,
                prompt=group.prompt,
                group=group.group,
                candidates=group.candidates,
                accepted=images if preview else accepted,
                unreadable=0,
                classes=measured_classes,
                left_out=few,
                images=images,
                base_images=images,
            )
            groups.append(facts)
        return Results(
            content=dataset.content,
            dataset=dataset.name,
            seed=self.options.seed,
            confidence=CONFIDENCE,
            paired=True,
            unreadable=len(self.unreadable),
            image_side=None,
            base=dataset.groups[0].name,
            min_images_per_class=min_images,
            replicates=self.replicates,
            classes=tuple(classes),
            models=with_distinct_short_names(map(self.facts_of, self.models)),
            groups=tuple(groups),
            preview=preview,
            units=shared_units,
            measures=(*self.facts, *more),
            rows=ResultRows(rows),
            severity=severity,
        )


def _changed(before: Drawn, now: Drawn) -> Changed | None:
    """Return a number before and now; None if either is undefined."""
    difference = _less(now, before)
    if not math.isfinite(difference.value):
        return None
    return Changed(before.value, now.value, difference)


def write_key_list(
    subject: Subject,
    file: Path,
    answered: Sequence[str] = (),
    **known: Sequence[str],
) -> int:
    """Write a CSV with a row for each image: its key, its path, columns that are `known`, and empty
    columns for answers. Return the number of images."""
    paths = subject.paths or (None,) * len(subject.keys)
    columns = {"key": subject.keys, "path": paths, **known}
    rows = []
    for values in zip(*columns.values(), strict=True):
        rows.append(dict(zip(columns, values, strict=True)))
    text = csv_text(rows, (*columns, *answered))
    write_atomically(file, text.encode())
    return len(subject.keys)
