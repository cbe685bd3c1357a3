"""What an evaluation returns: the document of measurements, the files written, and short ways to
both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import plain_value
from counterfoil.errors import some_of
from counterfoil.evaluation.gate import GateResult
from counterfoil.evaluation.messages import refusal
from counterfoil.regular_files import visible_text
from counterfoil.report.comparison import ModelComparison
from counterfoil.report.distances import Distances
from counterfoil.report.findings import MinedShiftResult
from counterfoil.report.headline import by_loss, headline_of, label_clause
from counterfoil.report.labels import LabelChecks
from counterfoil.report.published import PublishedResults
from counterfoil.report.reference import ReferenceResult
from counterfoil.report.results import (
    DROP_BASE,
    KEY,
    GroupFacts,
    LeftOut,
    ModelFacts,
    ResultRow,
    Results,
)
from counterfoil.report.severity import ACCURACY, DROP, FAILED, MEDIAN, RANK, TEN_POINTS
from counterfoil.report.transfer import Transfer
from counterfoil.report.words import (
    NOTHING,
    format_count,
    format_points,
    shown_table,
    with_interval,
)
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from counterfoil.evaluation.task import Task

# These measures have no interval, so each has one column; the others have three.
_BARE = ("accuracy", DROP_BASE)
_COLUMNS = {"top_k": "top_k_accuracy"}
# Column of `severity()` → its measure, and whether it has a number for each level.
_OF_LEVELS = {
    "accuracy": (ACCURACY, True),
    "drop": (DROP, True),
    "failed": (FAILED, True),
    "rank": (RANK, True),
    "ten_points": (TEN_POINTS, False),
    "median_failure": (MEDIAN, False),
}
_OF_LEVELS_OF_DETECTORS = {
    "AP": ("severity_AP", True),
    "drop": (DROP, True),
    "ten_points": (TEN_POINTS, False),
}


def _with_ends(name: str, number: Estimate | ResultRow | None) -> dict[str, float | None]:
    """Return a number and the ends of its interval as three columns."""
    columns = dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    if number:
        ends = number.value, number.low, number.high
        columns = dict(zip(columns, ends, strict=True))
    return columns


@dataclass(frozen=True)
class Score:
    """One model in one group, as the rows have it: `score.drop`, or `score.get(NAME)` of any
    measure.

    Accuracies are averaged over all classes. Drops and their base are over the `classes` of the
    drop.
    """

    model: str
    group: GroupFacts = field(repr=False)
    numbers: Mapping[str, ResultRow] = field(repr=False)

    def get(self, measure: str) -> Estimate | None:
        """Return the number of a measure with its interval; None if there is none."""
        row = self.numbers.get(measure)
        return None if row is None else row.estimate

    def _value(self, measure: str) -> float | None:
        row = self.numbers.get(measure)
        return None if row is None else row.value

    @property
    def shift(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def classes(self) -> int:
        """The number of classes that the drop is over."""
        return self.group.classes

    @property
    def images(self) -> int:
        """The number of images of the drop in the group."""
        return self.group.images

    @property
    def base_images(self) -> int:
        """The number of images of the drop on the base."""
        return self.group.base_images

    @property
    def accuracy(self) -> float | None:
        """Accuracy averaged over all classes."""
        return self._value("accuracy")

    @property
    def drop_base(self) -> float | None:
        """Accuracy on the base, averaged over the classes of the drop."""
        return self._value(DROP_BASE)

    @property
    def drop(self) -> Estimate | None:
        """drop_base less the accuracy over the same classes, with its bootstrap interval."""
        return self.get("drop")

    @property
    def relative_drop(self) -> Estimate | None:
        """Drop over drop_base."""
        return self.get("relative_drop")

    @property
    def pairs(self) -> int:
        """The number of pairs behind `pairs_drop`."""
        row = self.numbers.get("pairs_drop")
        return (row and row.n) or 0

    @property
    def pairs_drop(self) -> Estimate | None:
        """The drop over pairs alone; None if noise is not paired, or no pair is left."""
        return self.get("pairs_drop")

    @property
    def top1(self) -> Estimate | None:
        """The share of all images that is right, each counted once, with its Wilson interval."""
        return self.get("top1")

    @property
    def top_k_accuracy(self) -> Estimate | None:
        """The share of all images whose class is among the best k answers."""
        return self.get("top_k")


@dataclass(frozen=True, repr=False)
class Evaluation:
    """All measurements on one dataset."""

    results: Results
    """The document, with every number as a row."""
    dataset: str
    """The name of the evaluated images."""
    directory: Path | None
    """None if they are not a built dataset."""
    unreadable: tuple[str, ...]
    """The keys of images that could not be decoded."""
    files: Mapping[str, Path]
    """The paths of the written files, by short name."""
    unreadable_paths: tuple[str | None, ...] = ()
    """The paths of the unreadable images below their folder."""
    gate: GateResult | None = None
    """The answers to a gate's lines."""
    notes: tuple[str, ...] = ()
    """On how images were read."""
    task: Task | None = field(default=None, repr=False, compare=False)
    """What was asked, with every model's answer to every image."""

    def __repr__(self) -> str:
        return visible_text(f"<Evaluation of {self.name}: {'; '.join(self._summary())}>")

    def _repr_html_(self) -> str:
        lead = self.results.lead
        names = self.results.short_names
        rows = []
        for score in self.scores:
            share = score.get(self._shown_measure)
            share_cell = NOTHING if share is None else format_points(share.value)
            drop_cell = "" if score.drop is None else format_points(score.drop.value)
            rows.append((names[score.model], score.shift, share_cell, drop_cell))
        columns = ("model", "group", f"{lead} (%)", "drop (points)")
        return shown_table(f"{self.name}: {'; '.join(self._summary())}", columns, rows)

    @property
    def _shown_measure(self) -> str:
        """The measure that leads; without a base, of classifiers the accuracy over all images."""
        lead = self.results.lead
        if lead == "accuracy" and self.base is None:
            return "top1"
        return lead

    def _summary(self) -> list[str]:
        """Return the lead measure in its first group, and the largest drop of a model that is not
        near chance."""
        results = self.results
        first = ""
        if self.groups:
            first = self.groups[0].name
        unit = at = results.lead
        if results.lead == "accuracy":
            unit = "right"
            at = ""  # drops of accuracy name no measure
        shares = []
        for model in self.models:
            share = results.rows.value(self._shown_measure, model=model.name, group=first)
            if share is not None:
                shares.append(share)
        models = format_count(len(self.models), "model")
        if len(self.models) == 1:
            models = self.models[0].short_name
        if shares:
            ends = map(format_points, (min(shares), max(shares)))
            different = " to ".join(dict.fromkeys(ends))
            models += f", {different} % {unit} on {first}"
        sound = {model.name: model.short_name for model in results.sound_models}
        drops = results.rows.where("drop", class_id="", at=at)
        of_sound = [drop for drop in drops if drop.model in sound]
        known = by_loss(results, of_sound)
        if not known:
            return [models, "no base, no drops" if self.base is None else "no drop can be given"]
        worst = known[0]
        whose = ""
        if len(self.models) > 1:
            whose = f" of {sound[worst.model]}"
        over = ""
        if worst.note:
            over = f" {worst.note}"
        drop = f"largest drop{whose} {with_interval(worst.estimate)}{over} in {worst.group}"
        return [models, drop + label_clause(results, known)]

    @property
    def name(self) -> str:
        """The dataset's short name."""
        return self.results.dataset

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        """The models in the order in which they were named."""
        return self.results.models

    @property
    def base(self) -> GroupFacts | None:
        """The group that the others are compared with; None if there is none, and then there are no
        drops."""
        return self.results.base_group

    @property
    def shifts(self) -> tuple[GroupFacts, ...]:
        """All other groups."""
        return self.results.shifts

    @property
    def groups(self) -> tuple[GroupFacts, ...]:
        """The base, if there is one, and every other group."""
        return self.results.groups

    @property
    def sound_models(self) -> tuple[ModelFacts, ...]:
        """The models that averages include."""
        return self.results.sound_models

    @property
    def near_chance_classes(self) -> tuple[LeftOut, ...]:
        """The classes that are near chance on the base, which drops leave out."""
        return self.results.near_chance_classes

    @property
    def findings(self) -> tuple[MinedShiftResult, ...]:
        """The mined shifts, before a classifier's rule selected images."""
        return self.results.findings

    @property
    def transfer(self) -> tuple[Transfer, ...]:
        """The judges whose failures were kept, and every model's failures there."""
        return self.results.transfer

    @property
    def distances(self) -> tuple[Distances, ...]:
        """The distances to the source, one for each model of features."""
        return self.results.distances

    @property
    def comparison(self) -> ModelComparison | None:
        """A mended model against its original."""
        return self.results.comparison

    @property
    def reference(self) -> ReferenceResult | None:
        """The source's validation images."""
        return self.results.reference

    @property
    def published(self) -> PublishedResults | None:
        """The published accuracies of these models, and of many more."""
        return self.results.published

    @property
    def label_checks(self) -> LabelChecks | None:
        """Who checked a built dataset's labels."""
        return self.results.label_checks

    @cached_property
    def scores(self) -> tuple[Score, ...]:
        """Every model in every group but the base, group after group."""
        numbers: dict[tuple[str, str], dict[str, ResultRow]] = {}
        of_lead = ("", self.results.lead)
        for row in self.results.rows:
            if row.class_id or row.against or row.measure.startswith("severity_"):
                continue  # `severity` has a frame of its own
            if row.at in of_lead or row.measure == "top_k":
                of_score = numbers.setdefault((row.model, row.group), {})
                of_score[row.measure] = row
        scores = []
        for group in self.shifts:
            for model in self.models:
                of_score = numbers.get((model.name, group.name), {})
                scores.append(Score(model.name, group, of_score))
        return tuple(scores)

    @cached_property
    def _scores_by_name(self) -> dict[tuple[str, str], Score]:
        return {(score.model, score.shift): score for score in self.scores}

    def score(self, model: str, shift: str) -> Score:
        """Return the score of one model under one shift; KeyError if it was not measured."""
        return self._scores_by_name[model, shift]

    def number(self, measure: str, **key: str) -> Estimate | None:
        """Return a number by its measure and key (model, group, class_id, against, at).

        A name of the key may be left out if one number is left; None if there is none. UserError
        for a measure or a name that no number has, and for a key of several numbers.
        """
        rows = self.results.rows
        row = rows.one(measure, **key)
        if row is not None:
            return row.estimate
        for name, value in {"measure": measure, **key}.items():
            names = [str(getattr(each, name, "")) for each in rows]
            known = dict.fromkeys(names)
            if value not in known:
                shown = some_of(list(filter(None, known)), 12)
                raise refusal("unclear-number", None, value, known, name=name, known=shown)
        fitting = rows.where(measure, **key)
        if len(fitting) > 1:
            differing = []
            for name in KEY[1:]:
                values = [getattr(row, name) for row in fitting]
                if name not in key and len({*values}) > 1:
                    differing.append(f"{name}={values[0]!r}")
            raise refusal(
                "unclear-number.several",
                None,
                measure,
                numbers=len(fitting),
                differing=differing,
            )
        return fitting[0].estimate if fitting else None

    def to_pandas(self) -> Any:
        """Return the scores as a DataFrame: a row per model and group, fractions, intervals as
        `…_low` and `…_high`."""
        import pyarrow as pa

        measures = dict.fromkeys(_BARE)
        for score in self.scores:
            measures |= dict.fromkeys(score.numbers)
        bases = {}
        for model in self.models:
            base = self.results.base_number(model.name)
            bases[model.name] = base and base.value
        rows = []
        for score in self.scores:
            row: dict[str, Any] = {
                "model": score.model,
                "shift": score.shift,
                f"base_{self.results.lead}": bases[score.model],
                "classes": score.classes,
                "images": score.images,
                "base_images": score.base_images,
                "pairs": score.pairs,
            }
            for name in measures:
                estimate = score.get(name)
                column = _COLUMNS.get(name, name)
                row[column] = estimate and estimate.value
                if name not in _BARE:
                    row |= _with_ends(column, estimate)
            rows.append(row)
        return pa.Table.from_pylist(rows).to_pandas()

    def severity(self) -> Any:
        """Return the shifts with levels as a pandas DataFrame: a row a model, shift and level, the
        base at level 0.

        Fractions, with their intervals as `…_low` and `…_high`: accuracy, drop, failed (the share
        of trajectories right at the base that have failed) and rank; then two levels of the whole
        curve, the same in each of its rows: ten_points, where the drop reaches ten points, and
        median_failure. A level that is not reached is NaN. Detectors have AP, its drop and
        ten_points.
        """
        import pyarrow as pa

        columns = _OF_LEVELS
        if self.results.lead == "AP":
            columns = _OF_LEVELS_OF_DETECTORS
        types = {
            "model": pa.string(),
            "shift": pa.string(),
            "level": pa.float64(),
        }
        for column in columns:
            for end in ("", "_low", "_high"):
                types[f"{column}{end}"] = pa.float64()
        rows = []
        for shift in self.results.severity:
            for model in self.models:
                key = {"model": model.name, "group": shift.shift}
                for at in shift.ats:
                    row: dict[str, Any] = {
                        "model": model.name,
                        "shift": shift.shift,
                        "level": float(at),
                    }
                    for column, (measure, of_levels) in columns.items():
                        key["at"] = at if of_levels else ""
                        number = self.results.rows.one(measure, **key)
                        row |= _with_ends(column, number)
                    rows.append(row)
        table = pa.Table.from_pylist(rows, pa.schema(types))
        return table.to_pandas()

    def failures(self, model: str | None = None) -> Any:
        """Return the images that a model gets wrong as a pandas DataFrame: a row per image and
        model.

        Of every model, or of one. Columns: model, key, path (below the folder that the image was
        read from), the truth, the answer, and shift: label, class, answered and confidence of
        classifiers, the surest first; objects, f1, found, missed and false of detectors, the lowest
        F1 first; conditions, missed and wrongly_given of classifiers with several labels, the most
        mistakes first. They are read from `files["predictions"]`. Raise UserError for a model that
        was not scored, or if that file is gone.
        """
        from counterfoil.evaluation.failure_folder import failures_frame

        names = [facts.name for facts in self.models]
        task = type(self._asked())
        return failures_frame(task, self.files["predictions"], names, model)

    def export_failures(self, folder: str | Path) -> Path:
        """Write the images that a model gets wrong as a folder that FiftyOne and other tools open;
        return its path.

        `images/CLASS/` (or `images/SHIFT/`) has the images, failures.csv a row per image and model
        that is wrong, coco.json all answers as COCO has them;
        `fiftyone.Dataset.from_dir(folder, dataset_type=fiftyone.types.FiftyOneDataset)` loads it.
        Raise UserError for a folder that is not empty.
        """
        from counterfoil.evaluation.failure_folder import write_failure_folder

        names = [facts.name for facts in self.models]
        return write_failure_folder(self._asked(), names, folder)

    def _asked(self) -> Task:
        """Return the task. Raise UserError if no evaluation in this process made these results."""
        if self.task is None:
            raise refusal("unfit-results.process")
        return self.task

    def report_to(self, *trackers: str) -> None:
        """Send this evaluation to experiment trackers (wandb, mlflow, trackio, tensorboard), as one
        run each.

        Raise UserError for a tracker that is unknown or not installed, RunFailure for one that
        refuses the run.
        """
        from counterfoil.evaluation.trackers import report_to, tracked_run

        published = None if self.task is None else self.task.subject.published
        commit = None if published is None else published.revision
        run = tracked_run(self.results, self.files, self.gate, commit)
        report_to(run, trackers)

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values, as results.json has it, with what was evaluated, and
        files by path."""
        document = self.results.to_json()
        document["headline"] = headline_of(self.results)
        document["source"] = self.dataset
        document["directory"] = None if self.directory is None else str(self.directory)
        document["unreadable_images"] = plain_value(self.unreadable)
        document["unreadable_paths"] = plain_value(self.unreadable_paths)
        document["notes"] = list(self.notes)
        files = {name: str(path) for name, path in self.files.items()}
        document["files"] = files
        if self.gate is not None:
            document["gate"] = self.gate.to_json()
        return document
