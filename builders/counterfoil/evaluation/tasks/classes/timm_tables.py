"""Accuracies under corruptions as timm's own tables hold them: a file for each corruption, and one of
the base.

timm's `results-imagenet-*.csv` have these columns, and numbers of these forms. top1 is the share of
images, each counted once, averaged over severities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from counterfoil.documents import csv_text
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures.corruption_error import corrupted_groups
from counterfoil.report.results import ModelFacts, Results

TIMM = "timm"
_BASE = "base"


def timm_tables(answered: AllAnswers, results: Results) -> Mapping[str, str]:
    """Return file name → CSV; nothing without corruptions."""
    kinds = corrupted_groups(answered)
    if not kinds:
        return {}
    tables = {f"{_BASE}.csv": _table(answered, results, [0])}
    for corruption, severities in kinds.items():
        tables[f"{corruption}.csv"] = _table(answered, results, list(severities.values()))
    return tables


def _table(answered: AllAnswers, results: Results, groups: Sequence[int]) -> str:
    """Write a line for each model that answered these groups, best first."""
    answers = answered.answers
    lines = []
    for index, model in enumerate(results.models):
        if not all(answered.able(group)[index] for group in groups):
            continue
        rows = [answered.rows(group) for group in groups]
        top1 = float(np.mean([answers.correct[of_group, index].mean() for of_group in rows]))
        top5 = float(np.mean([answers.correct_top_k[of_group, index].mean() for of_group in rows]))
        lines.append((top1, top5, model))
    lines.sort(key=lambda line: (-line[0], line[2].short_name))
    return csv_text([_line(*line) for line in lines])


def _line(top1: float, top5: float, model: ModelFacts) -> dict[str, object]:
    size = model.param_count
    return {
        "model": model.short_name,
        "top1": _percent(top1),
        "top1_err": _percent(1 - top1),
        "top5": _percent(top5),
        "top5_err": _percent(1 - top5),
        "param_count": "" if size is None else f"{size / 1e6:,.2f}",
        "img_size": model.img_size,
        "crop_pct": "" if model.crop_pct is None else f"{model.crop_pct:.3f}",
        "interpolation": model.interpolation,
    }


def _percent(share: float) -> str:
    return f"{100 * share:.3f}"
