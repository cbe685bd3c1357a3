"""Score classifiers on a built dataset: drops per shift with intervals, tables, and one report.

Importing this package is cheap; torch and timm are loaded with `evaluate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.evaluation.options import EvaluationOptions

__all__ = ["EvaluationOptions", "evaluate"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from counterfoil.evaluation.evaluate_dataset import evaluate

        return evaluate
    if name == "EvaluationOptions":
        from counterfoil.evaluation.options import EvaluationOptions

        return EvaluationOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
