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
from counterfoil.evaluation.tasks.classes.measures.corruption_error import (
    corrupted_groups,
)
from counterfoil.report.results import Results
from counterfoil.report.words import csv_percent

TIMM = "timm"
_BASE = "base"


def timm_tables(answered: AllAnswers, results: Results) -> Mapping[str, str]:
    """Return file name → CSV; nothing without corruptions."""
    kinds = corrupted_groups(answered)
    if not kinds:
        return {}
    tables = {f"{_BASE}.csv": _table(answered, results, [0])}
    for corruption, severities in kinds.items():
        groups = list(severities.values())
        tables[f"{corruption}.csv"] = _table(answered, results, groups)
    return tables


def _table(answered: AllAnswers, results: Results, groups: Sequence[int]) -> str:
    """Write a line for each model that answered these groups, best first."""
    answers = answered.answers
    able = np.ones(len(results.models), bool)
    top1_of_groups = []
    top5_of_groups = []
    for group in groups:
        able &= answered.able(group)
        rows = answered.rows(group)
        top1 = answers.correct[rows]
        top5 = answers.correct_top_k[rows]
        top1_of_groups.append(top1.mean(axis=0))
        top5_of_groups.append(top5.mean(axis=0))
    top1_of = np.mean(top1_of_groups, axis=0).tolist()
    top5_of = np.mean(top5_of_groups, axis=0).tolist()
    best_first = []
    for index in np.flatnonzero(able):
        name = results.models[index].short_name
        best_first.append((-top1_of[index], name, index))
    lines = []
    for _, name, index in sorted(best_first):
        model = results.models[index]
        top1 = top1_of[index]
        top5 = top5_of[index]
        size = model.param_count
        line: dict[str, object] = {
            "model": name,
            "top1": csv_percent(top1),
            "top1_err": csv_percent(1 - top1),
            "top5": csv_percent(top5),
            "top5_err": csv_percent(1 - top5),
            "param_count": "" if size is None else f"{size / 1e6:,.2f}",
            "img_size": model.img_size,
            "crop_pct": "" if model.crop_pct is None else f"{model.crop_pct:.3f}",
            "interpolation": model.interpolation,
        }
        lines.append(line)
    return csv_text(lines)
