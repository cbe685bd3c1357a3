"""The tasks: how their models answer, and what is measured. `TASKS` of `recipe/tasks` lists them."""

from __future__ import annotations

from counterfoil.evaluation.dataset import OpenDataset, Subject
from counterfoil.evaluation.task import Task
from counterfoil.recipe.tasks import TASKS
from counterfoil.registry import part_named


def task_named(name: str) -> type[Task]:
    """Return what measures the models of a task, which has this name in `source.task`."""
    return part_named(TASKS[name].measured_by)


def task_of(subject: Subject) -> type[Task]:
    """Return the task of images: that of their recipe, if a build made them, and else one class an
    image."""
    if isinstance(subject, OpenDataset):
        return task_named(subject.recipe.task.name)
    return task_named("classes")
