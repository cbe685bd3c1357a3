"""The tasks: what each reads from a dataset, how its models answer, and what it measures."""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.dataset import OpenDataset, Subject
from counterfoil.evaluation.task import Task
from counterfoil.evaluation.tasks.classes.task import ClassesTask
from counterfoil.evaluation.tasks.labels.task import LabelsTask
from counterfoil.evaluation.tasks.masks.task import MasksTask
from counterfoil.evaluation.tasks.objects.task import ObjectsTask

TASKS: Mapping[str, type[Task]] = {
    task.name: task for task in (ClassesTask, ObjectsTask, LabelsTask, MasksTask)
}


def task_of(subject: Subject) -> type[Task]:
    """Return the task of images: that of their recipe, if a build made them, and else one class an
    image."""
    return TASKS[subject.recipe.task.name if isinstance(subject, OpenDataset) else ClassesTask.name]
