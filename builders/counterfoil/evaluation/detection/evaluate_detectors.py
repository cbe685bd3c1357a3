"""Score detectors on a built dataset with objects: read or ask, measure, judge a gate, write tables and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.detection.categories import COCO_80, COCO_91, POSITION
from counterfoil.evaluation.detection.detections import (
    PREFIX,
    ModelDetections,
    read_detections,
)
from counterfoil.evaluation.detection.files import detection_tables, write_detection
from counterfoil.evaluation.detection.gate import LINE_FORMS, check_detection_gate, judge_drawn_gate
from counterfoil.evaluation.detection.measures import (
    FACTS,
    NAMES,
    REPLICATES,
    DetectionAnswers,
    MeasuredModel,
    category_facts,
    detector_rows,
    difference_rows,
    measure_levels,
    measure_model,
)
from counterfoil.evaluation.detection.running import DetectionCache, run_detector
from counterfoil.evaluation.detection.subject import DetectionSubject, open_objects
from counterfoil.evaluation.gate import judged_models, models_of, read_gate
from counterfoil.evaluation.result_files import report_folder, store_results
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import named_models, short_name
from counterfoil.models.classifiers.of_python import imported, is_code
from counterfoil.models.detectors import load_detector
from counterfoil.models.devices import resolve_device
from counterfoil.regular_files import named_path, read_regular
from counterfoil.report.results import DETECTIONS, GroupFacts, LeftOut, ModelFacts, ResultRows, Results
from counterfoil.report.words import counted
from counterfoil.stats import CONFIDENCE
from counterfoil.store.directory_lock import writing_lock

_LONGEST_LIST = 10_000_000
_NAMED = (
    "Name detectors as predictions:FILE (.json of COCO results, .parquet or .csv), transformers:FOLDER, onnx:FILE or"
    " lab:NAME; in Python, hand over a function: evaluate(dataset, {'mine': detector})."
)


@dataclass(frozen=True)
class DetectionSettings:
    """How detectors are scored. Each field means what the argument of `evaluate` with its name means."""

    out: Path | None
    device: str
    batch_size: int
    seed: int
    order: Any
    gate: str | Path | Sequence[str] | None
    allow_undecided: bool
    limit: int | None
    into_card: bool


def evaluate_detectors(
    dataset: OpenDataset,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None,
    settings: DetectionSettings,
) -> Evaluation:
    """Score detectors and write every file.

    Raise the errors of `evaluate`. One error lists the problems of all models.
    """
    lines = () if settings.gate is None else read_gate(settings.gate, NAMES, LINE_FORMS)
    subject = open_objects(dataset, settings.limit)
    if not subject.images:
        raise UserError(f"{dataset.source}: no row of the source is in every group, so groups cannot be compared")
    check_detection_gate(lines, dataset, subject.categories)
    detectors = _asked(models, dataset, models_of(lines))
    judged = judged_models(lines, tuple(detectors))
    folder = report_folder(dataset, settings.out)
    detections: list[ModelDetections] = []
    problems: list[CounterfoilError] = []
    for name, detector in detectors.items():
        try:
            detections.append(_detections(name, detector, subject, settings))
        except CounterfoilError as error:
            problems.append(error)
    raise_together(problems)
    answered = DetectionAnswers(
        subject, tuple(measure_model(subject, model_detections, settings.seed) for model_detections in detections)
    )
    results = _results(answered, settings.seed, dataset.preview if settings.limit is None else settings.limit)
    notes = list(dataset.notes)
    if subject.left_out:
        notes.append(f"{counted(subject.left_out, 'image')} of rows that some group lacks are left out.")
    gate = None
    if lines:
        classes = category_facts(subject.categories)
        gate = judge_drawn_gate(dataset, classes, answered.models, lines, judged, settings.allow_undecided)
    evaluation = Evaluation(
        results,
        dataset=dataset.source,
        directory=dataset.directory,
        unreadable=(),
        files={},
        gate=gate,
        notes=tuple(notes),
    )
    with writing_lock(folder):
        written = write_detection(evaluation, answered, folder)
    if not settings.into_card:
        return written
    return replace(written, files={**written.files, "card": store_results(written, None, detection_tables)})


def _asked(models: Any, dataset: OpenDataset, against: Sequence[str]) -> dict[str, Any]:
    """Return the models to score by name: name → the callable, or the name again for a model to load.

    against: names of the models that a gate compares with. Raise UserError if there is no model, if a list cannot be
    read, or if `models` is a mapping without a model of the gate.
    """
    if isinstance(models, Mapping):
        named_detectors = dict(models)
        problems = [f"gate: {name!r} is not one of the given models" for name in against if name not in models]
    else:
        words = [] if models is None else [models] if isinstance(models, str | Path) else list(models)
        named, problems = named_models([*words, *against])
        # Names only: the recipe of a published dataset must not make this machine read files.
        of_recipe = dataset.models if models is None else ()
        named_detectors = {name: name for name in (*of_recipe, *(model.name for model in named))}
    if problems:
        raise UserError(problems, _NAMED)
    if not named_detectors:
        raise UserError("no detector was named", _NAMED)
    return named_detectors


def _detections(name: str, detector: Any, subject: DetectionSubject, settings: DetectionSettings) -> ModelDetections:
    order = _order(settings.order, name)
    if isinstance(detector, str) and detector.startswith(PREFIX):
        return replace(read_detections(detector, subject, order), name=name)
    names = None if order is None else subject.categories if order == POSITION else order
    if isinstance(names, str):
        raise UserError(f"{name}: found the order '{names[:40]}', expected position, or the names of its labels")
    if isinstance(detector, str) and is_code(detector):
        detector, _ = imported(detector)
    if not isinstance(detector, str):
        return run_detector(name, detector, subject, names, settings.batch_size)
    device = resolve_device(settings.device)
    loaded = load_detector(detector, device)
    cache = DetectionCache.of(subject.dataset, loaded, device)
    return run_detector(name, loaded, subject, names, settings.batch_size, cache)


def _order(order: Any, name: str) -> str | Sequence[str] | None:
    """Return the order of a model's labels that the user gives: a known order, or the names in a file or a list."""
    if isinstance(order, Mapping):
        order = order.get(name)
    if order is None or not isinstance(order, str) or order in (POSITION, COCO_80, COCO_91):
        return order
    try:
        text = read_regular(named_path(order), _LONGEST_LIST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise UserError(
            f"class order {order[:200]}: {why}", "Give position, coco80, coco91 or a file of names."
        ) from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _results(answered: DetectionAnswers, seed: int, preview: int | None) -> Results:
    """Return the results: facts about dataset and models, and the rows of every measure."""
    subject, dataset = answered.subject, answered.subject.dataset
    models = answered.models
    severities, severity_rows = measure_levels(subject, models)
    present = np.unique(subject.truth.category)
    return Results(
        content=dataset.content,
        dataset=dataset.name,
        seed=seed,
        min_images_per_class=1,
        confidence=CONFIDENCE,
        replicates=REPLICATES,
        paired=True,
        unreadable=0,
        image_side=None,
        base=dataset.groups[0].name,
        classes=category_facts(subject.categories),
        models=tuple(_model_facts(model, len(subject.categories)) for model in models),
        groups=group_facts(dataset, subject.images, len(present), preview),
        measures=FACTS,
        rows=ResultRows([*detector_rows(subject, models), *difference_rows(models), *severity_rows]),
        severity=severities,
        preview=preview,
    )


def group_facts(
    dataset: OpenDataset, images: int, classes: int, preview: int | None, left_out: tuple[LeftOut, ...] = ()
) -> tuple[GroupFacts, ...]:
    """Return the facts of every group, if all groups have the same number of images and of measured classes."""
    return tuple(
        GroupFacts(
            name=group.name,
            kind=group.kind,
            prompt=group.prompt,
            group=group.group,
            candidates=group.candidates,
            accepted=images if preview else int((dataset.shifts == index).sum()),
            unreadable=0,
            classes=classes,
            left_out=left_out,
            images=images,
            base_images=images,
        )
        for index, group in enumerate(dataset.groups)
    )


def _model_facts(model: MeasuredModel, categories: int) -> ModelFacts:
    return ModelFacts(
        name=model.name,
        short_name=short_name(model.name),
        architecture="",
        outputs=DETECTIONS,
        num_classes=categories,
        img_size=None,
        crop_pct=None,
        interpolation=None,
        param_count=None,
        sha256=model.detections.sha256,
        top_k=1,
        chance=0.0,
        near_chance=model.near_chance,
        tied=0,
        matched=model.detections.matched,
    )


def refuse_of_classifiers(given: Mapping[str, Any], what: str = "objects, and detectors") -> None:
    """Raise UserError if `given` sets an argument that only single-label classifiers take."""
    named = [name for name, value in given.items() if value not in (None, False, (), {})]
    if named:
        raise UserError(
            f"the dataset has {what} take no {', '.join(named)}",
            "Leave it out: groups of a built dataset are compared with its base.",
        )
