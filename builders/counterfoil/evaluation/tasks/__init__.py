"""The tasks: how their models answer, and what is measured. `TASKS` of `recipe/tasks` lists them."""

from __future__ import annotations

from counterfoil.evaluation.dataset import OpenDataset, Subject
from counterfoil.evaluation.task import Task
from counterfoil.recipe.tasks import TASKS
from counterfoil.registry import part_named


def task_of(subject: Subject) -> type[Task]:
    """Return what measures models of images: by the task of their recipe, if a build made them, and
    else by one class an image."""
    name = "classes"
    if isinstance(subject, OpenDataset):
        name = subject.recipe.task.name
    return part_named(TASKS[name].measured_by)
