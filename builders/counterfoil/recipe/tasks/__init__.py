"""List the tasks. Each task is a file here, and `task.py` describes its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping
from counterfoil.recipe.tasks.labels import LabelsSource
from counterfoil.recipe.tasks.masks import MasksSource
from counterfoil.recipe.tasks.objects import ObjectsSource
from counterfoil.recipe.tasks.task import SourceTask
from counterfoil.registry import Registry


def _problem(registered: Any) -> str | None:
    if isinstance(registered, SourceTask):
        return None
    return "no object of a class that extends `SourceTask`"


# Of our own and of installed plugins.
TASKS: Registry[SourceTask] = Registry(
    "counterfoil.tasks",
    {task.name: task for task in (SourceTask(), ObjectsSource(), LabelsSource(), MasksSource())},
    _problem,
)


def derive_task(source: Mapping[str, Any]) -> SourceTask:
    """Return the task of a recipe's source of any form, as its other keys say it."""
    return [TASKS["classes"], *_fitting(source)][-1]


def task_problems(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Yield problems of a recipe of any form with its task, or with several tasks."""
    task = derive_task(parts.source)
    yield from task.problems(parts)
    for other in _fitting(parts.source)[:-1]:
        message = f"its keys say the tasks {other.name} and {task.name}, expected those of one"
        yield ("source",), message
    evaluate = as_mapping(parts.recipe.evaluate)
    for key in ("preprocessing", "corrupted"):
        if task.name != SourceTask.name and evaluate.get(key):
            message = f"found it with the task {task.name}, expected it with one class an image"
            yield ("evaluate", key), message


def _fitting(source: Mapping[str, Any]) -> list[SourceTask]:
    return [task for task in TASKS.values() if task.fits(source)]
