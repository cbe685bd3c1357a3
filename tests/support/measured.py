"""The numbers of an evaluation without its files: pages and figures take most of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil.evaluation.evaluate_dataset import measure
from counterfoil.evaluation.options import EvaluateArguments
from counterfoil.evaluation.results import Evaluation


def measured(dataset: str | Path, models: Any = None, **options: Any) -> Evaluation:
    """Return what `evaluate` concludes on this CPU, without a reference unless the options ask for
    one. Write no file but the models' answers."""
    if isinstance(models, str | Path):
        models = [models]
    defaults: dict[str, Any] = {"device": "cpu", "reference": False}
    return measure(EvaluateArguments(dataset, models, **defaults | options))
