"""The numbers of an evaluation without its files: pages and figures take most of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil.errors import raise_together
from counterfoil.evaluation.evaluate_dataset import opened_task
from counterfoil.evaluation.gate import judge_gate, judged_models, models_of, read_gate
from counterfoil.evaluation.options import EvaluateArguments
from counterfoil.evaluation.results import Evaluation


def measured(dataset: str | Path, models: Any = None, **options: Any) -> Evaluation:
    """Return what `evaluate` concludes on this CPU, without a reference unless the options ask for
    one. Write no file but the models' answers."""
    if isinstance(models, str | Path):
        models = [models]
    defaults: dict[str, Any] = {"device": "cpu", "reference": False}
    given = EvaluateArguments(dataset, models, **defaults | options)
    given.check()
    task = opened_task(given)
    lines, errors = read_gate(given.gate, task.line_problems, task.measures)
    raise_together(errors)
    names = task.choose_models(models_of(lines))
    judged = judged_models(lines, names)
    task.read_earlier(lines, judged)
    task.prepare()
    task.ask(names)
    results = task.results()
    gate = None
    if lines:
        gate = judge_gate(task.comparing(results), lines, judged, given.allow_undecided)
    subject = task.subject
    return Evaluation(
        results,
        dataset=subject.source,
        directory=subject.directory,
        unreadable=task.unreadable,
        files={},
        unreadable_paths=task.unreadable_paths,
        gate=gate,
        notes=(*subject.notes, *task.notes(results)),
        task=task,
    )
