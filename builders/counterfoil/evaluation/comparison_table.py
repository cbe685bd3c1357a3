"""compare.csv: a line for each group of a comparison. Accuracies in percent, differences in percentage points."""

from __future__ import annotations

from typing import Any

from counterfoil.csv_text import csv_text
from counterfoil.evaluation.spoken_comparison import spoken_group
from counterfoil.evaluation.tables import interval_columns, percent
from counterfoil.report.nested import GroupComparison, ModelComparison


def compare_csv(comparison: ModelComparison) -> str:
    """One line a group, the base first; the last, without a group, is their average, each counting once."""
    rows = [_row(comparison, one) for one in comparison.groups]
    empty = dict.fromkeys(rows[0], "") if rows else {}
    average: dict[str, Any] = {
        **empty,
        "mended": comparison.mended,
        "original": comparison.original,
        **interval_columns("gain", comparison.average),
        "says": "loses more than it gains" if comparison.loses_more else "",
    }
    return csv_text([*rows, average])


def _row(comparison: ModelComparison, one: GroupComparison) -> dict[str, Any]:
    return {
        "mended": comparison.mended,
        "original": comparison.original,
        "shift": one.name,
        "kind": one.kind or "",
        "n_classes": one.classes,
        "n_images": one.images,
        "mended_accuracy": percent(one.mended_accuracy),
        "original_accuracy": percent(one.original_accuracy),
        **interval_columns("gain", one.gain),
        "only_mended_right": one.only_mended,
        "only_original_right": one.only_original,
        "mcnemar_p": "" if one.p is None else f"{one.p:.6g}",
        "mcnemar_p_holm": "" if one.p_adjusted is None else f"{one.p_adjusted:.6g}",
        **interval_columns("drop_gain", one.drop_gain),
        "says": spoken_group(one),
    }
