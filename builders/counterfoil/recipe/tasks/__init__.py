"""List the tasks. Each task is a file here, and `task.py` describes its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.recipe.tasks.labels import LabelsSource
from counterfoil.recipe.tasks.masks import MasksSource
from counterfoil.recipe.tasks.objects import ObjectsSource
from counterfoil.recipe.tasks.task import SourceTask, is_every_image

TASKS = {task.name: task for task in (SourceTask(), ObjectsSource(), LabelsSource(), MasksSource())}


def derive_task(source: Mapping[str, Any]) -> SourceTask:
    """Return the task of a recipe's source of any form, as its other keys say it."""
    if source.get("masks") is not None:
        return TASKS["masks"]
    if source.get("objects") is not None:
        return TASKS["objects"]
    classes = source.get("classes")
    undivided = source.get("conditions") is not None and (
        classes is None or is_every_image(classes)
    )
    return TASKS["labels" if undivided else "classes"]
