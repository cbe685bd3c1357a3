"""The report of classifiers, from results alone."""

from __future__ import annotations

from typing import Any

from counterfoil.evaluation.page import page_html
from counterfoil.evaluation.tasks.classes.report import classes_page
from counterfoil.report.results import Results


def evaluation_html(results: Results, **others: Any) -> str:
    return page_html(results, classes_page(results, {}, {}, (), {}), **others)
