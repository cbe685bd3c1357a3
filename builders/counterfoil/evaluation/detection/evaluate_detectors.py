"""Score detectors on a built dataset with objects: read or ask, measure, judge a gate, write tables and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.documents import csv_text, document_text
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.detection.categories import COCO_80, COCO_91, POSITION
from counterfoil.evaluation.detection.detections import (
    PREFIX,
    ModelDetections,
    read_detections,
    run_detector,
)
from counterfoil.evaluation.detection.gate import LINE_FORMS, check_detection_gate, judge_detection_gate
from counterfoil.evaluation.detection.measures import (
    DROP,
    FACTS,
    MPC,
    NAMES,
    REPLICATES,
    RPC,
    DetectionAnswers,
    MeasuredModel,
    category_facts,
    measure_model,
)
from counterfoil.evaluation.detection.report import detection_report
from counterfoil.evaluation.detection.subject import DetectionSubject, open_objects
from counterfoil.evaluation.detection_failures import ScoredDetector, detection_failures, write_detection_failures
from counterfoil.evaluation.gate import JUNIT, MARKDOWN, gate_files, judged_models, models_of, read_gate
from counterfoil.evaluation.result_files import report_folder
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import named_models, short_name, with_gate
from counterfoil.models.classifiers.of_python import imported, is_code
from counterfoil.models.detectors import load_detector
from counterfoil.models.devices import resolve_device
from counterfoil.regular_files import named_path, read_regular
from counterfoil.report.results import GroupFacts, ModelFacts, ResultRow, ResultRows, Results, rounded_row
from counterfoil.report.words import counted, csv_interval
from counterfoil.stats import CONFIDENCE
from counterfoil.store.atomic import remove_stale, write_atomically
from counterfoil.store.decoding import readable_image
from counterfoil.store.directory_lock import writing_lock

_LONGEST_LIST = 10_000_000
_NAMED = (
    "Name detectors as predictions:FILE (.json of COCO results, .parquet or .csv), transformers:FOLDER, onnx:FILE or"
    " lab:NAME; in Python, hand over a function: evaluate(dataset, {'mine': detector})."
)


class DetectionEvaluation(Evaluation):
    """What an evaluation of detectors returns: `results.rows` have every number, `files` the paths."""


@dataclass(frozen=True)
class DetectionSettings:
    """How detectors are scored; as the arguments of `evaluate`."""

    out: Path | None
    device: str
    batch_size: int
    seed: int
    order: Any
    gate: str | Path | Sequence[str] | None
    allow_undecided: bool


def evaluate_detectors(
    dataset: OpenDataset,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None,
    settings: DetectionSettings,
) -> DetectionEvaluation:
    """Score detectors and write every file. Raises as `evaluate`; all models' problems together."""
    lines = () if settings.gate is None else read_gate(settings.gate, NAMES, LINE_FORMS)
    subject = open_objects(dataset)
    if not subject.images:
        raise UserError(f"{dataset.source}: no row of the source is in every group, so groups cannot be compared")
    check_detection_gate(lines, dataset, subject.categories)
    detectors = _asked(with_gate(models, dataset.models, models_of(lines)), dataset)
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
    results = _results(answered, settings.seed)
    notes = list(dataset.notes)
    if subject.left_out:
        notes.append(f"{counted(subject.left_out, 'image')} of rows that some group lacks are left out.")
    gate = judge_detection_gate(answered, lines, judged, settings.allow_undecided) if lines else None
    evaluation = DetectionEvaluation(
        results,
        dataset=dataset.source,
        directory=dataset.directory,
        unreadable=(),
        files={},
        gate=gate,
        notes=tuple(notes),
    )
    with writing_lock(folder):
        return _written(evaluation, answered, folder)


def _asked(models: Any, dataset: OpenDataset) -> dict[str, Any]:
    """Return each model's name → itself, or its name again. UserError for none, and for lists that cannot be read."""
    if isinstance(models, Mapping):
        named_detectors = dict(models)
    else:
        words = dataset.models if models is None else [models] if isinstance(models, str | Path) else models
        named, problems = named_models(words)
        if problems:
            raise UserError(problems, _NAMED)
        named_detectors = {model.name: model.name for model in named}
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
    loaded = load_detector(detector, resolve_device(settings.device))
    return run_detector(name, loaded, subject, names, settings.batch_size, loaded.sha256)


def _order(order: Any, name: str) -> str | Sequence[str] | None:
    """Return what a person says of a model's labels: one of the known orders, or the names in a file or a list."""
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


def _results(answered: DetectionAnswers, seed: int) -> Results:
    """Return the document: facts, and the rows of every measure."""
    subject, dataset = answered.subject, answered.subject.dataset
    groups, present = [], np.unique(subject.truth.category)
    for index, group in enumerate(dataset.groups):
        groups.append(
            GroupFacts(
                name=group.name,
                kind=group.kind,
                prompt=group.prompt,
                group=group.group,
                candidates=group.candidates,
                accepted=int((dataset.shifts == index).sum()),
                unreadable=0,
                classes=len(present),
                left_out=(),
                images=subject.images,
                base_images=subject.images,
            )
        )
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
        models=tuple(_model_facts(model, len(subject.categories)) for model in answered.models),
        groups=tuple(groups),
        measures=FACTS,
        rows=ResultRows(answered.rows),
    )


def _model_facts(model: MeasuredModel, categories: int) -> ModelFacts:
    return ModelFacts(
        name=model.name,
        short_name=short_name(model.name),
        architecture="",
        outputs="detections",
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


# ---- Files


def _written(evaluation: DetectionEvaluation, answered: DetectionAnswers, folder: Path) -> DetectionEvaluation:
    results = evaluation.results
    columns = [field.name for field in fields(ResultRow)]
    failures = _failures(answered, folder)
    texts = {
        "report": ("report.html", detection_report(results, evaluation.notes)),
        "document": ("results.json", document_text(results)),
        "measures": ("measures.csv", csv_text(map(rounded_row, results.rows), columns)),
        "detection": ("detection.csv", detection_csv(results)),
    }
    if evaluation.gate is not None:
        texts |= gate_files(evaluation.gate)
    elif (folder / "detection.csv").is_file():
        remove_stale(folder, [MARKDOWN, JUNIT])
    files: dict[str, Path] = {"failures": failures}
    for name, (file, text) in texts.items():
        write_atomically(folder / file, text.encode())
        files[name] = (folder / file).resolve()
    files["predictions"] = (folder / "predictions.parquet").resolve()
    write_atomically(files["predictions"], images_parquet(answered))
    return replace(evaluation, files=files)


def _failures(answered: DetectionAnswers, folder: Path) -> Path:
    """Write the page of missed and false boxes."""
    subject = answered.subject
    groups = [group.name for group in subject.dataset.groups]
    keys = [subject.keys_of(index) for index in range(len(groups))]
    detectors = [
        ScoredDetector(short_name(model.name), model.score, list(zip(model.answers, model.matches, strict=True)))
        for model in answered.models
    ]
    chosen = detection_failures(subject.truth, detectors, groups, subject.categories, subject.sides(), keys)
    shown = frozenset(keys[group][image] for group, image in chosen.pictures)
    encoded = dict(subject.dataset.images(shown))

    def picture(group: int, image: int) -> Any:
        return readable_image(encoded.get(keys[group][image]))

    return write_detection_failures(subject.dataset.name, chosen, subject.images, picture, folder)


def detection_csv(results: Results) -> str:
    """Write a line a model and group: every measure and drop with its interval, in percent and points."""
    rows = []
    for model in results.models:
        for group in results.groups:
            key = {"model": model.name, "group": group.name}
            row: dict[str, Any] = {"model": model.name, "shift": group.name, "n_images": group.images}
            for name in NAMES:
                row |= csv_interval(name, results.rows.estimate(name, **key))
            for name in NAMES:
                row |= csv_interval(f"drop_{name}", results.rows.estimate(DROP, at=name, **key))
            first = group.name == results.base
            for name in (MPC, RPC):
                row |= csv_interval(name, results.rows.estimate(name, model=model.name, at="AP") if first else None)
            rows.append(row)
    return csv_text(rows)


def images_parquet(answered: DetectionAnswers) -> bytes:
    """Write a row an image: key, shift, objects; then `f1.MODEL`, `found.MODEL`, `missed.MODEL` and `false.MODEL`, at
    IoU .50 and the score that is best on the base."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    subject, dataset = answered.subject, answered.subject.dataset
    chosen = [(index, subject.of_group(index)) for index in range(len(dataset.groups))]
    rows = np.concatenate([subject.rows[positions] for _, positions in chosen])
    first = answered.models[0].matches
    truths = [np.bincount(matches.object_image[matches.counted[0]], minlength=subject.images) for matches in first]
    columns: dict[str, Any] = {
        "key": pa.array([dataset.keys[row] for row in rows.tolist()], pa.string()),
        "shift": pa.array([dataset.groups[group].name for group, positions in chosen for _ in positions], pa.string()),
        "objects": pa.array(np.concatenate([truths[group][subject.image[positions]] for group, positions in chosen])),
    }
    for model in answered.models:
        counts: dict[str, list[Any]] = {"f1": [], "found": [], "missed": [], "false": []}
        for group, positions in chosen:
            matches, image = model.matches[group], subject.image[positions]
            counted = (matches.score >= model.score) & ~matches.ignored[0, 0]
            true_positives = np.bincount(matches.image[counted & matches.matched[0, 0]], minlength=subject.images)
            everything = np.bincount(matches.image[counted], minlength=subject.images)
            counts["f1"].append(model.f1[group][image])
            counts["found"].append(true_positives[image])
            counts["missed"].append((truths[group] - true_positives)[image])
            counts["false"].append((everything - true_positives)[image])
        columns |= {f"{name}.{model.name}": pa.array(np.concatenate(values)) for name, values in counts.items()}
    order = np.argsort(rows)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns).take(order), buffer)
    return buffer.getvalue().to_pybytes()


def refuse_of_classifiers(given: Mapping[str, Any]) -> None:
    """Raise UserError for arguments that only classifiers have; `given` are those that are not at their default."""
    named = [name for name, value in given.items() if value not in (None, False, (), {})]
    if named:
        raise UserError(
            f"the dataset has objects, and detectors take no {', '.join(named)}",
            "Leave it out: groups of a built dataset are compared with its base.",
        )
