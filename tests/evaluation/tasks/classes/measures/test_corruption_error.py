"""The errors of corruption benchmarks are what plain loops over the answers give, and say whether
they can be compared with published ones."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import counterfoil
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures import corruption_error
from counterfoil.evaluation.tasks.classes.measures.corruption_error import (
    ALEXNET,
    COMPARABLE,
    corrupted_groups,
    mean_ratio,
)
from counterfoil.evaluation.tasks.classes.task import ClassesTask
from counterfoil.prediction.changes import Change
from support.measured import measured
from support.tables import csv_rows

KINDS = tuple(corruption_error._ALEXNET_ERRORS)
# One kind more has one severity.
ALL = (*KINDS, "darker")
FIRST = "lab:resnet14t"
SECOND = "lab:resnet10t"
CLASSES = (
    "[{id: '05', name: sandal, source_label: 5, imagenet: [774]},"
    " {id: '07', name: sneaker, source_label: 7, imagenet: [770]}]"
)


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of all kinds and severities of ImageNet-C, and one kind more."""
    folder = tmp_path_factory.mktemp("corrupted")
    graded = "severity: {by: corruption, levels: [1, 2, 3, 4, 5]}"
    shifts = [f"    {kind}: {{corruption: {kind}, {graded}}}" for kind in KINDS]
    recipe = folder / "recipe.yaml"
    for kind in ("low_resolution", "greyscale", "rotation", "occlusion"):
        shifts.append(f"    {kind}: null")
    lines = ["extends: wardrobe-corrupt", "name: all-kinds", "prompts:", "  shifts:", *shifts]
    recipe.write_text("\n".join(lines) + "\n")
    overrides = [f"source.classes={CLASSES}", "samples.candidates=2", "evaluate.models=null"]
    counterfoil.build(
        recipe,
        folder / "set",
        overrides=overrides,
        workers=1,
        device="cpu",
    )
    return folder / "set"


@pytest.fixture(scope="module")
def evaluation(corrupted: Path) -> Evaluation:
    """Evaluate two models as if ImageNet had two classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corruption_error, "_IMAGENET_CLASSES", 2)
        return measured(corrupted, compare=(FIRST, SECOND), min_images_per_class=1)


def accuracies(answers: pd.DataFrame, model: str) -> tuple[float, dict[str, list[float]]]:
    """Return the class-averaged accuracy on the base, and of each kind at every severity."""
    by_group = {}
    for group, rows in answers.groupby("shift"):
        by_group[group] = rows.groupby("class_id")[f"right.{model}"].mean().mean()
    by_kind: dict[str, list[float]] = {}
    for group, accuracy in by_group.items():
        kind = next((kind for kind in ALL if str(group).startswith(kind)), None)
        if kind is not None:
            by_kind.setdefault(kind, []).append(accuracy)
    return by_group["base"], by_kind


def test_each_number_is_that_of_a_plain_loop(evaluation: Evaluation) -> None:
    task = evaluation.task
    assert isinstance(task, ClassesTask)
    answers = pd.read_parquet(io.BytesIO(task.predictions(None)))
    rows = csv_rows(task.all_tables(evaluation.results)["corruptions"][1])
    assert [(row["model"], row["reference"]) for row in rows] == [
        (FIRST, ALEXNET),
        (FIRST, SECOND),
        (SECOND, ALEXNET),
        (SECOND, SECOND),
    ]
    references = {SECOND: accuracies(answers, SECOND)}
    for row in rows:
        base, by_kind = accuracies(answers, row["model"])
        assert {kind: len(levels) for kind, levels in by_kind.items()} == {
            **dict.fromkeys(KINDS, 5),
            "darker": 1,
        }
        ratios: list[float] = []
        excess: list[float] = []
        for kind, levels in by_kind.items():
            error = 1 - float(np.mean(levels))
            if row["reference"] == ALEXNET and kind not in KINDS:
                continue
            if row["reference"] == ALEXNET:
                clean = 0.435
                of_reference = corruption_error._ALEXNET_ERRORS[kind]
            else:
                other_base, other_kinds = references[SECOND]
                clean = 1 - other_base
                of_reference = 1 - float(np.mean(other_kinds[kind]))
            ratios.append(error / of_reference if of_reference > 0 else np.nan)
            beyond = of_reference - clean
            excess.append((error - (1 - base)) / beyond if beyond > 0 else np.nan)
        mean = np.mean([np.mean(levels) for levels in by_kind.values()])
        assert float(row["mPC"]) == pytest.approx(100 * mean, abs=1e-3)
        assert float(row["rPC"]) == pytest.approx(100 * mean / base, abs=1e-3)
        for name, expected in (("mCE", np.mean(ratios)), ("relative_mCE", np.mean(excess))):
            if np.isnan(expected):
                assert row[name] == ""
            else:
                assert float(row[name]) == pytest.approx(100 * expected, abs=1e-3)
        comparable = row["comparable"]
        if row["reference"] == ALEXNET:
            assert comparable == COMPARABLE
            assert float(row["mCE_low"]) < float(row["mCE"]) < float(row["mCE_high"])
        else:
            assert "the reference is not AlexNet" in comparable


def test_numbers_that_are_not_comparable_say_so(evaluation: Evaluation) -> None:
    assert isinstance(evaluation.task, ClassesTask)
    measure = corruption_error.MEASURES[corruption_error.MCE]
    assert measure.rows is not None
    rows = [*measure.rows(evaluation.task.answered)]
    assert {row.against for row in rows} == {SECOND}
    words = "not comparable with published mCE: not the 1,000 classes of ImageNet"
    assert all(row.note.startswith(words) for row in rows)


def test_a_reference_without_errors_has_no_ratio() -> None:
    errors = np.array([[0.2, 0.4], [0.1, 0.3]])
    assert mean_ratio(errors, np.array([0.4, 0.8])).tolist() == pytest.approx([0.5, 0.3125])
    assert np.isnan(mean_ratio(errors, np.array([0.0, 0.8]))).all()
    rounding = np.array([1 - 0.9 - 0.1, 0.8])
    assert 0 < abs(rounding[0]) < 1e-15
    assert np.isnan(mean_ratio(errors, abs(rounding))).all()


def test_a_kind_is_wholly_stored_or_wholly_computed() -> None:
    stored = {"fog": (1, 3, 5), "snow": (3,), "frost": (3,)}
    computed = {"fog": (2, 4), "snow": (2, 4), "frost": (2,), "contrast": (1,)}
    groups = [SimpleNamespace(change=None, corruption="", severity=0)]
    for kind, severities in stored.items():
        for severity in severities:
            groups.append(SimpleNamespace(change=None, corruption=kind, severity=severity))
    for kind, severities in computed.items():
        for severity in severities:
            groups.append(SimpleNamespace(change=Change(f"{kind}_{severity}", kind, severity)))
    subject = SimpleNamespace(base=True, groups=groups)
    answered: Any = SimpleNamespace(subject=subject, rows=lambda index: [index])
    assert corrupted_groups(answered) == {
        "fog": {1: 1, 3: 2, 5: 3},
        "snow": {2: 8, 4: 9},
        "frost": {3: 5},
        "contrast": {1: 11},
    }
