"""An evaluation as files of the dataset that it was made on: results.json, the tables, entries for the Hub.

No clock, no host and no path is in them: equal answers give equal bytes.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from counterfoil.evaluation.distances.distances_table import distances_document
from counterfoil.evaluation.hub_entries import FOLDER, entry_files
from counterfoil.evaluation.public_names import with_public_names
from counterfoil.evaluation.results import Evaluation, ModelResult, Score, ShiftResult
from counterfoil.evaluation.tables import (
    classes_csv,
    distances_csv,
    findings_csv,
    results_csv,
    robustness_csv,
    shifts_csv,
)
from counterfoil.evaluation.transfer_tables import transfer_csv, transfer_document
from counterfoil.report.nested import MinedShiftResult, ReferenceResult
from counterfoil.stats import CONFIDENCE, REPLICATES, Estimate
from counterfoil.store.sealed_folder import EVALUATED

# A millionth is finer than any interval, and coarser than what another library's sums differ by.
_DIGITS = 6


def stored_files(evaluation: Evaluation, dataset_id: str | None) -> dict[str, bytes]:
    """Path below `evaluation/` → content. Without `dataset_id` there are no entries for the Hub."""
    public = with_public_names(evaluation)
    files = {
        "results.csv": results_csv(public).encode(),
        "robustness.csv": robustness_csv(public).encode(),
        "shifts.csv": shifts_csv(public).encode(),
        "classes.csv": classes_csv(public).encode(),
    }
    if public.findings:
        files["findings.csv"] = findings_csv(public).encode()
    if public.transfer:
        files["transfer.csv"] = transfer_csv(public).encode()
    if distances_document(public.distances):
        files["distances.csv"] = distances_csv(public).encode()
    if dataset_id is not None:
        files |= {f"{FOLDER}/{name}": content for name, content in entry_files(public, dataset_id).items()}
    return EVALUATED.files(results_document(public), files)


def results_document(evaluation: Evaluation) -> dict[str, Any]:
    """What was measured, on which content, and how. Accuracies and drops are fractions, intervals at `confidence`."""
    document: dict[str, Any] = {
        "content": evaluation.content,
        "seed": evaluation.seed,
        "min_images_per_class": evaluation.min_images_per_class,
        "confidence": CONFIDENCE,
        "replicates": REPLICATES,
        "paired": evaluation.paired,
        "unreadable": len(evaluation.unreadable),
        "models": [_model(model) for model in evaluation.models],
        "near_chance_classes": [
            {"id": one.class_id, "name": one.name, "base_accuracy": _number(one.base_accuracy)}
            for one in evaluation.near_chance_classes
        ],
        "base": None if evaluation.base is None else _shift(evaluation.base),
        "shifts": [
            {
                **_shift(shift),
                "models": {model.name: _score(evaluation.score(model.name, shift.name)) for model in evaluation.models},
            }
            for shift in evaluation.shifts
        ],
    }
    if evaluation.reference is not None:
        document["reference"] = _reference(evaluation.reference)
    if evaluation.findings:
        document["findings"] = [_finding(finding) for finding in evaluation.findings]
    if evaluation.transfer:
        document["transfer"] = transfer_document(evaluation)
    if distances := distances_document(evaluation.distances):
        document["distances"] = distances
    return document


def _model(model: ModelResult) -> dict[str, Any]:
    return {
        "name": model.name,
        "architecture": model.architecture,
        "sha256": model.sha256,
        "outputs": model.outputs,
        "img_size": model.img_size,
        "crop_pct": model.crop_pct,
        "interpolation": model.interpolation,
        "accuracy": _estimate(model.top1),
        "top_k": model.top_k,
        "top_k_accuracy": _estimate(model.top_k_accuracy),
        "base": _estimate(model.base),
        "chance": _number(model.chance),
        "near_chance": model.near_chance,
        "average_drop": _number(model.average_drop),
    }


def _reference(reference: ReferenceResult) -> dict[str, Any]:
    """Why it was skipped, or is for some models, may name a place of this machine: that it was is all that is told."""
    return {
        "split": reference.split,
        "skipped": reference.skipped is not None,
        "images": reference.images,
        "classes": reference.classes,
        "unseen": _number(reference.unseen),
        "unseen_known": reference.unseen_known,
        "models": {
            one.model: {
                "validation": _estimate(one.validation),
                "base": _estimate(one.base),
                "gap": _estimate(one.gap),
            }
            for one in reference.gaps
        },
    }


def _shift(shift: ShiftResult) -> dict[str, Any]:
    line = None if shift.slope is None else {name: _number(value) for name, value in asdict(shift.slope).items()}
    return {
        "name": shift.name,
        "kind": shift.kind,
        "group": shift.group,
        "accepted": shift.accepted,
        "classes": shift.classes,
        "classes_left_out": [one.class_id for one in shift.left_out],
        "images": shift.images,
        "base_images": shift.base_images,
        "impact": _estimate(shift.impact),
        "slope": line,
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "base_accuracy": _number(score.base_accuracy),
        "accuracy": _number(score.accuracy),
        "drop": _estimate(score.drop),
        "relative_drop": _estimate(score.relative_drop),
        "pairs": score.pairs,
        "pairs_drop": _estimate(score.pairs_drop),
    }


def _finding(finding: MinedShiftResult) -> dict[str, Any]:
    return {
        "shift": finding.shift,
        "words": finding.words,
        "candidates": finding.candidates,
        "screened": finding.screened,
        "accepted": finding.accepted,
        "judges": list(finding.judges),
        "quota": finding.quota,
        "models": {
            score.model: {
                "measured_on": score.measured_on,
                "classes": score.classes,
                "images": score.images,
                "failures": score.failures,
                "base_images": score.base_images,
                "base_failures": score.base_failures,
                "rate": _number(score.rate),
                "base_rate": _number(score.base_rate),
                "difference": _estimate(score.difference),
                "note": score.note,
            }
            for score in finding.scores
        },
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"value": _number(estimate.value), "low": _number(estimate.low), "high": _number(estimate.high)}


def _number(value: float | None) -> float | int | None:
    return value if value is None or isinstance(value, int) else round(float(value), _DIGITS)
