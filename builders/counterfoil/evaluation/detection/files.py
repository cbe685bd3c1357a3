"""The files of an evaluation of detectors: tables, report, failures, and the score of every image."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.dataset.card.index_page import write_index
from counterfoil.documents import csv_text, document_text, preview_column
from counterfoil.evaluation.detection.measures import DROP, MPC, NAMES, RPC, DetectionAnswers
from counterfoil.evaluation.detection.report import detection_report
from counterfoil.evaluation.detection_failures import ScoredDetector, detection_failures, write_detection_failures
from counterfoil.evaluation.gate import JUNIT, MARKDOWN, gate_files
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import short_name
from counterfoil.report.results import ResultRow, Results, rounded_row
from counterfoil.report.severity import at
from counterfoil.report.words import csv_interval
from counterfoil.store.atomic import remove_stale, write_atomically
from counterfoil.store.decoding import readable_image
from counterfoil.store.layout import PRIVATE


def write_detection(evaluation: Evaluation, answered: DetectionAnswers, folder: Path) -> Evaluation:
    """Write every file of an evaluation of detectors into its folder; return the evaluation with their paths."""
    results = evaluation.results
    files: dict[str, Path] = {"failures": _write_failures(answered, results.preview_sentence, folder)}
    texts = {
        "report": ("report.html", detection_report(results, evaluation.notes)),
        "document": ("results.json", document_text(results)),
        **detection_tables(results),
    }
    if evaluation.gate is not None:
        texts |= gate_files(evaluation.gate)
    elif (folder / "detection.csv").is_file():
        remove_stale(folder, [MARKDOWN, JUNIT])
    for name, (file, text) in texts.items():
        write_atomically(folder / file, text.encode())
        files[name] = (folder / file).resolve()
    files["predictions"] = (folder / "predictions.parquet").resolve()
    write_atomically(files["predictions"], images_parquet(answered, results.preview))
    write_index(folder.parent.parent if folder.parent.name == PRIVATE else folder)
    return replace(evaluation, files=files)


def _write_failures(answered: DetectionAnswers, preview: str, folder: Path) -> Path:
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

    return write_detection_failures(subject.dataset.name, chosen, subject.images, picture, folder, preview)


def detection_tables(results: Results) -> dict[str, tuple[str, str]]:
    """Return the tables of these results: short name → (file name, CSV)."""
    columns = [field.name for field in fields(ResultRow)]
    return {
        "measures": (
            "measures.csv",
            preview_column(csv_text(map(rounded_row, results.rows), columns), results.preview),
        ),
        "detection": ("detection.csv", preview_column(detection_csv(results), results.preview)),
    }


def detection_csv(results: Results) -> str:
    """Write one line for each model and group: measures in percent, drops in points, both with intervals.

    The column `level` is the level of a graded shift, and 0 for the base.
    """
    level_of = {level.group: at(level.level) for shift in results.severity for level in shift.levels}
    rows = []
    for model in results.models:
        for group in results.groups:
            key = {"model": model.name, "group": group.name}
            level = level_of.get(group.name, "0" if group.name == results.base else "")
            row: dict[str, Any] = {"model": model.name, "shift": group.name, "level": level, "n_images": group.images}
            for name in NAMES:
                row |= csv_interval(name, results.rows.estimate(name, **key))
            for name in NAMES:
                row |= csv_interval(f"drop_{name}", results.rows.estimate(DROP, at=name, **key))
            first = group.name == results.base
            for name in (MPC, RPC):
                row |= csv_interval(name, results.rows.estimate(name, model=model.name, at="AP") if first else None)
            rows.append(row)
    return csv_text(rows)


def images_parquet(answered: DetectionAnswers, preview: int | None = None) -> bytes:
    """Write one row for each image: key, shift, objects; `f1`, `found`, `missed` and `false` for each model.

    Their columns are named `f1.MODEL` and so on. They count at IoU .50, from the score with the best F1 on the base.
    """
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
    if preview is not None:
        columns["preview"] = pa.array(np.full(len(rows), preview))
    order = np.argsort(rows)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns).take(order), buffer)
    return buffer.getvalue().to_pybytes()
