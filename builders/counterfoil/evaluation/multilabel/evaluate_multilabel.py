"""Score multi-label classifiers on a built dataset: ask, measure, judge a gate, write tables and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.documents import csv_text, document_text, preview_column
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import OpenDataset, limit_subject
from counterfoil.evaluation.detection.evaluate_detectors import DetectionSettings, group_facts
from counterfoil.evaluation.detection.gate import judge_drawn_gate
from counterfoil.evaluation.gate import (
    JUNIT,
    LINE_HINT,
    MARKDOWN,
    check_names,
    gate_files,
    judged_models,
    models_of,
    read_gate,
)
from counterfoil.evaluation.multilabel.failures import labels_parquet, write_label_failures
from counterfoil.evaluation.multilabel.measures import (
    DROP,
    FACTS,
    MEANS,
    MISSED,
    THRESHOLD,
    WRONGLY_GIVEN,
    MeasuredClassifier,
    measure_classifier,
    multilabel_rows,
)
from counterfoil.evaluation.multilabel.report import multilabel_report
from counterfoil.evaluation.multilabel.subject import MultilabelSubject, open_conditions
from counterfoil.evaluation.result_files import report_folder
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import ChosenModels, choose_models, short_name
from counterfoil.models.devices import resolve_device
from counterfoil.multilabel_stats import REPLICATES
from counterfoil.prediction.failures import ConditionScores, condition_scores
from counterfoil.report.results import LABELS, ClassFacts, ModelFacts, ResultRow, ResultRows, Results, rounded_row
from counterfoil.report.words import counted, csv_interval
from counterfoil.stats import CONFIDENCE
from counterfoil.store.atomic import remove_stale, write_atomically
from counterfoil.store.directory_lock import writing_lock

LINE_FORMS = (
    f"A line is one of: mAP(GROUP) >= PERCENT, drop(SHIFT) <= POINTS (of mAP), drop(SHIFT, accuracy) <= POINTS,"
    f" drop(SHIFT, label=NAME) <= POINTS (of the label's AP), {LINE_HINT}"
)


@dataclass(frozen=True)
class MultilabelSettings(DetectionSettings):
    """How classifiers are scored. Each field means what the argument of `evaluate` with its name means."""

    transform: Any
    version: str | Mapping[str, str] | None
    minimum: int


def evaluate_multilabel(dataset: OpenDataset, models: Any, settings: MultilabelSettings) -> Evaluation:
    """Score classifiers and write every file.

    Raise the errors of `evaluate`. One error lists the problems of all models.
    """
    lines = () if settings.gate is None else read_gate(settings.gate, tuple(MEANS), LINE_FORMS)
    if settings.limit is not None:
        limited = limit_subject(dataset, settings.limit)
        assert isinstance(limited, OpenDataset)
        dataset = limited
    dataset, present = open_conditions(dataset)
    check_names(lines, dataset)
    chosen = choose_models(
        dataset, models, settings.transform, settings.version, None, settings.order, None, models_of(lines)
    )
    judged = judged_models(lines, chosen.names) if lines else ()
    folder = report_folder(dataset, settings.out)
    scored = _scored(dataset, chosen, settings)
    readable = np.all([scores.readable for scores in scored.values()], axis=0)
    subject = MultilabelSubject.of(dataset, present, readable, settings.minimum)
    measured = [
        measure_classifier(subject, name, scores, chosen.maps[name], settings.seed) for name, scores in scored.items()
    ]
    gate = None
    if lines:
        conditions = [ClassFacts(cls.id, cls.name) for cls in dataset.classes]
        gate = judge_drawn_gate(dataset, conditions, measured, lines, judged, settings.allow_undecided)
    notes = list(dataset.notes)
    if left_out := len(dataset.keys) - subject.rows.size:
        notes.append(
            f"{counted(left_out, 'image')} of rows that some group lacks, or that cannot be read, are left out."
        )
    evaluation = Evaluation(
        _results(subject, measured, settings, int((~readable).sum())),
        dataset=dataset.source,
        directory=dataset.directory,
        unreadable=tuple(dataset.keys[row] for row in np.flatnonzero(~readable).tolist()),
        files={},
        gate=gate,
        notes=tuple(notes),
    )
    with writing_lock(folder):
        return _written(evaluation, subject, measured, folder)


def _scored(dataset: OpenDataset, chosen: ChosenModels, settings: MultilabelSettings) -> dict[str, ConditionScores]:
    """Return the scores of every model on all images. One error lists the problems of all models."""
    device, predictions = resolve_device(settings.device), dataset.workplace / "predictions"
    scored: dict[str, ConditionScores] = {}
    problems: list[CounterfoilError] = []
    for name in chosen.names:
        class_map = chosen.maps[name]
        try:
            if class_map.most_ranked == 1:
                raise UserError(
                    f"model {name!r} gives one label per image, but an image may have several conditions",
                    f"Write a column of scores for each: {', '.join(cls.name for cls in dataset.classes[:8])}.",
                )
            scored[name] = condition_scores(
                dataset.labelled(), name, class_map, predictions, device, settings.batch_size, chosen.load
            )
        except CounterfoilError as error:
            problems.append(error)
    raise_together(problems)
    return scored


def _results(
    subject: MultilabelSubject, measured: Sequence[MeasuredClassifier], settings: MultilabelSettings, unreadable: int
) -> Results:
    """Return the results: facts about dataset and models, and the rows of every measure."""
    dataset = subject.dataset
    return Results(
        content=dataset.content,
        dataset=dataset.name,
        seed=settings.seed,
        min_images_per_class=settings.minimum,
        confidence=CONFIDENCE,
        replicates=REPLICATES,
        paired=True,
        unreadable=unreadable,
        image_side=None,
        base=dataset.groups[0].name,
        classes=tuple(ClassFacts(cls.id, cls.name) for cls in subject.labels),
        models=tuple(_model_facts(model) for model in measured),
        groups=group_facts(dataset, subject.images, len(subject.labels), dataset.preview, subject.few),
        measures=FACTS,
        rows=ResultRows(multilabel_rows(subject, measured)),
        preview=dataset.preview,
    )


def _model_facts(model: MeasuredClassifier) -> ModelFacts:
    classifier = model.answered.classifier
    return ModelFacts(
        name=model.name,
        short_name=short_name(model.name),
        architecture=classifier.architecture,
        outputs=LABELS,
        num_classes=classifier.num_classes,
        img_size=classifier.input_size[-1] if classifier.input_size else None,
        crop_pct=classifier.crop_pct,
        interpolation=classifier.interpolation,
        param_count=classifier.param_count,
        sha256=classifier.sha256 or "",
        top_k=1,
        chance=float(model.subject.present.mean()),
        near_chance=not model.sound,
        tied=0,
        matched=model.class_map.matched,
    )


# ---- Files


def _written(
    evaluation: Evaluation, subject: MultilabelSubject, measured: Sequence[MeasuredClassifier], folder: Path
) -> Evaluation:
    results = evaluation.results
    columns = [field.name for field in fields(ResultRow)]
    failures = write_label_failures(subject, measured, results.preview_sentence, folder)
    tables = {
        "measures": ("measures.csv", csv_text(map(rounded_row, results.rows), columns)),
        "shifts": ("multilabel.csv", multilabel_csv(results)),
        "labels": ("labels.csv", labels_csv(results)),
    }
    texts = {
        "report": ("report.html", multilabel_report(results, evaluation.notes)),
        "document": ("results.json", document_text(results)),
        **{name: (file, preview_column(text, results.preview)) for name, (file, text) in tables.items()},
    }
    if evaluation.gate is not None:
        texts |= gate_files(evaluation.gate)
    elif (folder / "multilabel.csv").is_file():
        remove_stale(folder, [MARKDOWN, JUNIT])
    files: dict[str, Path] = {"failures": failures}
    for name, (file, text) in texts.items():
        write_atomically(folder / file, text.encode())
        files[name] = (folder / file).resolve()
    files["predictions"] = (folder / "predictions.parquet").resolve()
    write_atomically(files["predictions"], labels_parquet(subject, measured))
    return replace(evaluation, files=files)


def multilabel_csv(results: Results) -> str:
    """Write one line for each model and group: mAP, accuracy and their drops with intervals, in percent and points."""
    rows = []
    for model in results.models:
        for group in results.groups:
            key = {"model": model.name, "group": group.name}
            row: dict[str, Any] = {"model": model.name, "shift": group.name, "n_images": group.images}
            for name in MEANS:
                row |= csv_interval(name, results.rows.estimate(name, **key))
                row |= csv_interval(f"drop_{name}", results.rows.estimate(DROP, at=name, **key))
            rows.append(row)
    return csv_text(rows)


def labels_csv(results: Results) -> str:
    """Write one line for each model, group and label: measures and drops with intervals; thresholds as scores."""
    rows = []
    for model in results.models:
        for group in results.groups:
            for label in results.classes:
                key = {"model": model.name, "group": group.name, "class_id": label.id}
                row: dict[str, Any] = {"model": model.name, "shift": group.name, "label": label.name}
                for name in MEANS.values():
                    row |= csv_interval(name, results.rows.estimate(name, **key))
                    row |= csv_interval(f"drop_{name}", results.rows.estimate(DROP, at=name, **key))
                for name in (MISSED, WRONGLY_GIVEN):
                    row |= csv_interval(name, results.rows.estimate(name, **key))
                base = {**key, "group": results.base or ""}
                for half in ("half 1", "half 2"):
                    row[f"threshold_{half[-1]}"] = results.rows.value(THRESHOLD, at=half, **base)
                rows.append(row)
    return csv_text(rows)
