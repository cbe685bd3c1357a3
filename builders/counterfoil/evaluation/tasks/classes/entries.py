"""Evaluation-result entries for the Hub, one file a model.

An entry is a model's plain accuracy on the base or on one shift, every accepted image counting once; its notes give
intervals, the class average, the drop and validation → base.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from counterfoil.recipe.prompts import BASE
from counterfoil.report.reference import OVER_CLASSES, VALIDATION, VALIDATION_GAP
from counterfoil.report.results import DROP_BASE, ModelFacts, Results
from counterfoil.report.words import counted, over_classes
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry

# Notes of every entry begin with this text.
_NOTE = "top-1 accuracy in percent"
_MOST_BYTES = 1 << 26


def entry_files(results: Results, dataset_id: str, revision: str | None = None) -> dict[str, bytes]:
    """Return one YAML file for each model: file name → content.

    dataset_id: the dataset's `user/name`. revision: a commit.
    """
    import yaml
    from huggingface_hub import eval_result_entries_to_yaml

    taken: Counter[str] = Counter()
    files = {}
    for model in results.models:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model.name).strip("-.") or "model"
        while taken[stem.lower()]:  # some file systems ignore case
            taken[stem.lower()] += 1
            stem = f"{stem}-{taken[stem.lower()]}"
        taken[stem.lower()] = 1
        entries = eval_result_entries_to_yaml(_entries(results, model, dataset_id, revision))
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)
        files[f"{stem}.yaml"] = text.encode()
    return files


def _entries(results: Results, model: ModelFacts, dataset_id: str, revision: str | None) -> list[EvalResultEntry]:
    from huggingface_hub import EvalResultEntry

    base = results.base_group
    assert base is not None  # only a dataset with a base has entries
    number, entries = results.rows, []
    for group in results.groups:
        top1 = number.estimate("top1", model=model.name, group=group.name)
        if top1 is None:
            continue
        notes = f"{_interval(top1)}, {group.accepted} images"
        if results.outputs == "classes" and number.where(OVER_CLASSES, model=model.name):
            notes += "; answers over the dataset's classes alone"
        drop = number.estimate("drop", model=model.name, group=group.name)
        if group is base:
            if (average := results.base_number(model.name)) is not None:
                classes = counted(base.classes, "class", "classes")
                notes += f"; averaged over {classes} {100 * average.value:.1f}, {_interval(average)}"
            if model.near_chance:
                notes += "; near chance, so its drops mean nothing"
            gap = number.estimate(VALIDATION_GAP, model=model.name)
            validation = number.value(VALIDATION, model=model.name)
            if gap is not None and validation is not None:
                accuracy = f"{100 * validation:.1f} on validation images of the source"
                notes += f"; {accuracy}: gap to the base {100 * gap.value:.1f} points, {_interval(gap)}"
        elif drop is not None:
            before = number.value(DROP_BASE, model=model.name, group=group.name)
            of = "" if before is None else f" of {100 * before:.1f} %"
            lost = f"{100 * drop.value:.1f} points{of}"
            over = over_classes(group.classes, group.classes + len(group.left_out)) or f"over {group.classes} classes"
            notes += f"; drop from the base {over} {lost}, {_interval(drop)}"
        entry = EvalResultEntry(
            dataset_id=dataset_id,
            task_id=BASE if group is base else group.name,
            value=round(100 * top1.value, 3),
            dataset_revision=revision,
            notes=f"{_NOTE}; {notes}",
        )
        entries.append(entry)
    return entries


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"95 % interval {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
