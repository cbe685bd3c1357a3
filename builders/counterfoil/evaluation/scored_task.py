"""A task whose measures are means over images: each image has a score from 0 to 1, for each measure
and model.

A task of a package extends `ScoredTask`, and says what images show, what models answer, and how
well an answer fits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.documents import csv_text
from counterfoil.evaluation.dataset import (
    OpenDataset,
    compared_units,
    limit_subject,
    rows_in_every_group,
)
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
from counterfoil.evaluation.failures import (
    choose_failures,
    write_sheets,
)
from counterfoil.evaluation.gate import NamedClasses
from counterfoil.evaluation.page import Tables
from counterfoil.evaluation.resampled_page import csv_cells, csv_numbers
from counterfoil.evaluation.task import (
    ResampledModel,
    ResampledTask,
    difference_rows,
    write_key_list,
)
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    ModelFacts,
    ResultRow,
    Results,
)
from counterfoil.report.sections import MeasureFacts, ReportSection
from counterfoil.resampled_stats import Drawn, Units
from counterfoil.stats import chance_line
from counterfoil.store.decoding import readable_image


@dataclass(frozen=True)
class ScoredModel(ResampledModel):
    """The scores of a model's answers.

    answers: of every image of the dataset, as text. scores: measure → (groups, n). units: of the n
    images. chance: the first measure of a model that knows nothing.
    """

    answers: Sequence[str]
    scores: Mapping[str, Floats]
    units: Units
    chance: float

    @cached_property
    def _drawn(self) -> dict[str, Floats]:
        """Return measure → its values in resamples, (r, groups)."""
        units = self.units
        drawn = {}
        for name, scores in self.scores.items():
            drawn[name] = units.mean(units.of_image, scores.T)
        return drawn

    @property
    def lead(self) -> Floats:
        """The scores of the first measure, (groups, n)."""
        return next(iter(self.scores.values()))

    @cached_property
    def near_chance(self) -> bool:
        number = self.share(0, next(iter(self.scores))).interval()
        least = number.value if number.low is None else number.low
        return least < chance_line(self.chance)

    def drop_problem(self, label: int | None) -> str:
        return "is near chance on the base" if self.near_chance else ""

    def share(
        self, group: int, measure: str, label: int | None = None, of_drop: bool = False
    ) -> Drawn:
        value = float(self.scores[measure][group].mean())
        drawn = self._drawn[measure][:, group]
        shared = self.units.shared
        return Drawn(
            value,
            drawn,
            0.0,
            (0.0, 0.0),
            self.units.count,
            by_units=shared,
        )


class ScoredTask(ResampledTask[ScoredModel]):
    """A task whose measures, `facts`, are means of scores of images, in percent. The first is that
    of failures. A model is a function, or a name."""

    truth_columns = ("truth",)
    answer_columns = ("answer", "score")

    def open(self) -> None:
        if self.options.limit is not None:
            self.subject = limit_subject(self.subject, self.options.limit)
        images = len(self.subject.keys)
        self.rows = rows_in_every_group(self.subject, np.arange(images))
        self.left_out = images - self.rows.size, ""
        self.units = compared_units(self.subject, self.rows)
        self.truth = self.read_truth()

    # ---- What a task gives

    @abstractmethod
    def read_truth(self) -> Sequence[Any]:
        """Return what every image of `self.subject` shows, in the order of its keys."""

    @abstractmethod
    def answers(self, name: str) -> Sequence[Any]:
        """Return the answers of the model `self.given[name]` to every image."""

    @abstractmethod
    def scores(self, answers: Sequence[Any]) -> Mapping[str, Floats]:
        """Return measure → a score from 0 to 1 of every image, (n,)."""

    def text_of(self, value: Any) -> str:
        """Return the truth or an answer as people read it."""
        return str(value)

    @property
    def chance(self) -> float:
        """The first measure of a model that knows nothing."""
        return 0.0

    # ---- What follows

    def stored(self, column: str) -> list[Any]:
        """Return a column of the dataset's rows for every image, in the order of keys."""
        values = {row["key"]: row[column] for row in self.subject.stored(column)}
        return [values[key] for key in self.subject.keys]

    @property
    def measures(self) -> Mapping[str, MeasureFacts]:
        return {facts.name: facts for facts in self.facts}

    @property
    def classes(self) -> NamedClasses:
        return ()

    @classmethod
    def write_keys(cls, subject: OpenDataset, file: Path) -> int:
        return write_key_list(subject, file, ("answer",))

    def measure(self, answers: Mapping[str, Sequence[Any]]) -> None:
        units = self.units or Units.of_images(self.rows.shape[1])
        measured = []
        for name, values in answers.items():
            scores = self.scores(values)
            compared = {}
            for facts in self.facts:
                compared[facts.name] = scores[facts.name][self.rows]
            texts = [*map(self.text_of, values)]
            measured.append(ScoredModel(name, texts, compared, units, self.chance))
        self.models = tuple(measured)

    def results(self) -> Results:
        images = self.rows.shape[1]
        lead = self.facts[0].name
        groups = self.subject.groups
        rows: list[ResultRow] = []
        for model in self.models:
            for facts in self.facts:
                rows += model.rows(facts.name, groups, images, self.units)
        rows += difference_rows(self.models, groups, lead)
        of_drop = "base less shift, of the measure that `at` names"
        of_difference = f"drop of {lead} less that of `against`"
        drops = (
            MeasureFacts(DROP, "drop", "points", of_drop),
            MeasureFacts(DIFFERENCE, "drop less another model's", "points", of_difference),
        )
        return self.shared_results(images, 0, rows, self.units, more=drops)

    def facts_of(self, model: ScoredModel) -> ModelFacts:
        return self.model_facts(model.name, 0, model.chance, model.near_chance)

    def tables(self, results: Results) -> Tables:
        rows = []
        for group, key, row in csv_cells(results):
            row["n_images"] = group.images
            rows.append(row | csv_numbers(results, self.measures, key))
        return {"shifts": (self.table, csv_text(rows))}

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        return "is near chance on the base"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        yield from ()

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        rows = self.rows.ravel().tolist()
        truth = [self.text_of(self.truth[row]) for row in rows]
        columns: dict[str, Any] = {"truth": truth}
        for model in self.models:
            columns[f"answer.{model.name}"] = [model.answers[row] for row in rows]
            columns[f"score.{model.name}"] = model.lead.ravel()
        return self.rows.ravel(), columns

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["score"] < 1

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("score", kind="stable")

    def failures(self) -> Iterator[Failure]:
        rows = self.rows.ravel().tolist()
        scores = np.stack([model.lead.ravel() for model in self.models], axis=-1)
        failing = (scores < 1).any(axis=-1)
        for index in np.flatnonzero(failing).tolist():
            row = rows[index]
            truth = self.text_of(self.truth[row])
            answers = []
            for model, score in zip(self.models, scores[index].tolist(), strict=True):
                answer = model.answers[row]
                columns = {"truth": truth, "answer": answer, "score": score}
                given = [{"answer": answer, "score": score}]
                answers.append(ModelAnswer(classification(answer), score == 1, columns, given))
            shift = self.subject.groups[self.subject.shifts[row]].name
            yield Failure(row, shift, classification(truth), [{"truth": truth}], answers)

    def write_failures(self, results: Results, folder: Path) -> Path:
        subject = self.subject
        order = self.rows.ravel()
        texts = np.array([model.answers for model in self.models])
        known, numbers = np.unique(texts, return_inverse=True)
        answered = numbers.reshape(texts.shape).T
        shape = answered.shape
        right = np.ones(shape, dtype=bool)
        scores = np.stack([model.lead.ravel() for model in self.models], axis=-1)
        right[order] = scores == 1
        readable = np.ones(len(subject.keys), dtype=bool)
        chosen = choose_failures(right, readable, subject.labels, subject.shifts, self.partners())
        unknown = np.full(shape, np.nan, np.float32)
        text_of = known.tolist().__getitem__
        names = [(model.name, text_of, "") for model in self.models]
        base, *shifts = (group.name for group in subject.groups)
        groups = [*shifts, base]

        keys = frozenset(subject.keys[row] for row in chosen.images.tolist())
        pictures = (readable_image(encoded) for _, encoded in subject.images(keys))
        return write_sheets(
            folder,
            "failures-of-classes.html.j2",
            results,
            subject,
            (answered, right, unknown),
            chosen,
            names,
            groups,
            pictures,
            images=len(order),
            paired=True,
            changed=True,
        )
