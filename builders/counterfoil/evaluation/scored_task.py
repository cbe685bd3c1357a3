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
from counterfoil.evaluation.compared_images import compared_images
from counterfoil.evaluation.dataset import OpenDataset, limit_subject
from counterfoil.evaluation.failure_folder import Failure, ModelAnswer, classification
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
        """Measure → its values in resamples, (r, groups)."""
        units = self.units
        drawn = {}
        for name, scores in self.scores.items():
            drawn[name] = units.mean(units.of_image, scores.T)
        return drawn

    @property
    def lead(self) -> Floats:
        """The scores of the first measure, (groups, n)."""
        first, *_ = self.scores.values()
        return first

    @cached_property
    def near_chance(self) -> bool:
        lead, *_ = self.scores
        number = self.share(0, lead).interval()
        least = number.value if number.low is None else number.low
        return least < chance_line(self.chance)

    def drop_problem(self, label: int | None) -> str:
        return "is near chance on the base" if self.near_chance else ""

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        scores = self.scores[measure][group]
        drawn = self._drawn[measure][:, group]
        units = self.units
        return Drawn(
            float(scores.mean()),
            drawn,
            0.0,
            (0.0, 0.0),
            units.count,
            by_units=units.shared,
        )


class ScoredTask(ResampledTask[ScoredModel]):
    """A task whose measures, `facts`, are means of scores of images, in percent. The first is that
    of failures. A model is a function, or a name."""

    truth_columns = ("truth",)
    answer_columns = ("answer", "score")

    def open(self) -> None:
        limit = self.options.limit
        if limit is not None:
            self.subject = limit_subject(self.subject, limit)
        self.compared = compared_images(self.subject)
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
        value_of = {}
        for row in self.subject.stored(column):
            value_of[row["key"]] = row[column]
        return [value_of[key] for key in self.subject.keys]

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
        compared = self.compared
        units = compared.units or Units.of_images(compared.images)
        models = []
        for name, values in answers.items():
            scores = self.scores(values)
            of_compared = {}
            for facts in self.facts:
                of_images = scores[facts.name]
                of_compared[facts.name] = of_images[compared.rows]
            model = ScoredModel(
                name,
                list(map(self.text_of, values)),
                of_compared,
                units,
                self.chance,
            )
            models.append(model)
        self.models = models

    def results(self) -> Results:
        compared = self.compared
        lead = self.facts[0].name
        groups = self.subject.groups
        rows: list[ResultRow] = []
        for model in self.models:
            for facts in self.facts:
                rows += model.rows(facts.name, groups, compared.images, compared.units)
        rows += difference_rows(self.models, groups, lead)
        of_drop = "base less shift, of the measure that `at` names"
        of_difference = f"drop of {lead} less that of `against`"
        drops = (
            MeasureFacts(DROP, "drop", "points", of_drop),
            MeasureFacts(DIFFERENCE, "drop less another model's", "points", of_difference),
        )
        return self.shared_results(0, rows, more=drops)

    def facts_of(self, model: ScoredModel) -> ModelFacts:
        return self.model_facts(model.name, 0, model.chance, model.near_chance)

    def tables(self, results: Results) -> Tables:
        rows = []
        for group, key, row in csv_cells(results):
            row["n_images"] = group.images
            row |= csv_numbers(results, self.measures, key)
            rows.append(row)
        return {"shifts": (self.table, csv_text(rows))}

    def near_chance(self, results: Results, model: ModelFacts) -> str:
        return "is near chance on the base"

    def sections(self, results: Results) -> Iterator[ReportSection]:
        yield from ()

    def image_columns(self) -> tuple[Ints, dict[str, Any]]:
        rows = self.compared.rows.ravel()
        places = rows.tolist()
        truth = [self.text_of(self.truth[row]) for row in places]
        columns: dict[str, Any] = {"truth": truth}
        for model in self.models:
            columns[f"answer.{model.name}"] = [model.answers[row] for row in places]
            columns[f"score.{model.name}"] = model.lead.ravel()
        return rows, columns

    @classmethod
    def wrong(cls, frame: Any) -> Any:
        return frame["score"] < 1

    @classmethod
    def worst_first(cls, frame: Any) -> Any:
        return frame.sort_values("score", kind="stable")

    @property
    def _lead_scores(self) -> Floats:
        """The scores of the first measure, (groups, n, models)."""
        return np.stack([model.lead for model in self.models], axis=-1)

    def failures(self) -> Iterator[Failure]:
        scores = self._lead_scores
        failing = (scores < 1).any(axis=-1)
        for group, image in np.argwhere(failing).tolist():
            row = int(self.compared.rows[group, image])
            truth = self.text_of(self.truth[row])
            of_image = scores[group, image].tolist()
            answers = []
            for model, score in zip(self.models, of_image, strict=True):
                answer = model.answers[row]
                given = {"answer": answer, "score": score}
                columns = {"truth": truth, **given}
                label = classification(answer)
                right = score == 1
                answers.append(ModelAnswer(label, right, columns, [given]))
            label = classification(truth)
            yield self.failure(group, image, label, [{"truth": truth}], answers)

    def write_failures(self, results: Results, folder: Path) -> Path:
        rows = self.compared.rows
        texts = np.array([model.answers for model in self.models])
        known, numbers = np.unique(texts, return_inverse=True)
        answered = numbers.reshape(texts.shape).T
        right = np.ones(answered.shape, dtype=bool)
        right[rows] = self._lead_scores == 1
        return self.write_answers(
            results,
            folder,
            "failures-of-classes.html.j2",
            self.subject,
            (answered, right),
            self.partners(),
            known.tolist().__getitem__,
            rows.size,
        )
