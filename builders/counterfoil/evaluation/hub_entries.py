"""Evaluation-result entries for the Hub: a file a model, for the folder `.eval_results/` of the model's repository.

An entry is a model's plain accuracy in percent on the base or on one shift, every accepted image counting once,
which anybody can measure again on the split. Its notes tell the intervals, the accuracy averaged over classes that card
and report show, the drop beside the base accuracy that it is from, and validation → base.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.recipe.prompts import BASE
from counterfoil.regular_files import read_regular
from counterfoil.report.reference import VALIDATION, VALIDATION_GAP
from counterfoil.report.results import ModelFacts, Results
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry

FOLDER = "eval_results"
# What the notes of every entry begin with.
_NOTE = "top-1 accuracy in percent"
_MOST_BYTES = 1 << 26


def entry_files(results: Results, dataset_id: str, revision: str | None = None) -> dict[str, bytes]:
    """File name → YAML, a file a model. `dataset_id` is the dataset's `user/name`, `revision` a commit of it."""
    import yaml
    from huggingface_hub import eval_result_entries_to_yaml

    names = file_names([model.name for model in results.models])
    files = {}
    for model in results.models:
        entries = eval_result_entries_to_yaml(_entries(results, model, dataset_id, revision))
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)
        files[names[model.name]] = text.encode()
    return files


def stale_entries(folder: Path, written: Collection[str]) -> list[str]:
    """The files of entries in a folder that an earlier evaluation wrote and this one does not, by what they say."""
    found = sorted(folder.glob("*.yaml")) if folder.is_dir() and not folder.is_symlink() else []
    return [
        one.name
        for one in found
        if one.name not in written and one.is_file() and _NOTE.encode() in read_regular(one, _MOST_BYTES)
    ]


def file_names(models: list[str]) -> dict[str, str]:
    """Model → file name: letters, digits, `.`, `_` and `-` of the name; numbered where two would be one."""
    taken: Counter[str] = Counter()
    names = {}
    for model in models:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"
        while taken[stem.lower()]:  # also where a file system knows no upper case
            taken[stem.lower()] += 1
            stem = f"{stem}-{taken[stem.lower()]}"
        taken[stem.lower()] = 1
        names[model] = f"{stem}.yaml"
    return names


def _entries(results: Results, model: ModelFacts, dataset_id: str, revision: str | None) -> list[EvalResultEntry]:
    from huggingface_hub import EvalResultEntry

    base = results.base_group
    assert base is not None  # only a dataset with a base has entries
    number = results.rows
    found = []
    for group in results.groups:
        top1 = number.estimate("top1", model=model.name, group=group.name)
        if top1 is None:
            continue
        notes = f"{_interval(top1)}, {group.accepted} images"
        drop = number.estimate("drop", model=model.name, group=group.name)
        if group is base:
            notes += _of_base(results, model)
        elif drop is not None:
            own = number.value("base_accuracy", model=model.name, group=group.name)
            of = "" if own is None else f" of {100 * own:.1f} %"
            told = f"{100 * drop.value:.1f} points{of}"
            notes += f"; drop from the base over {group.classes} classes {told}, {_interval(drop)}"
        found.append((BASE if group is base else group.name, top1, notes))
    return [
        EvalResultEntry(
            dataset_id=dataset_id,
            task_id=task,
            value=round(100 * accuracy.value, 3),
            dataset_revision=revision,
            notes=f"{_NOTE}; {notes}",
        )
        for task, accuracy, notes in found
    ]


def _of_base(results: Results, model: ModelFacts) -> str:
    """What else is to be known of a model's base accuracy."""
    notes, own = "", results.base_number(model.name)
    if own is not None and results.base_group is not None:
        notes += f"; averaged over {results.base_group.classes} classes {100 * own.value:.1f}, {_interval(own)}"
    if model.near_chance:
        notes += "; near chance, so that its drops say nothing"
    gap = results.rows.estimate(VALIDATION_GAP, model=model.name)
    validation = results.rows.value(VALIDATION, model=model.name)
    if gap is not None and validation is not None:
        told = f"{100 * validation:.1f} on validation images of the source"
        notes += f"; {told}: gap to the base {100 * gap.value:.1f} points, {_interval(gap)}"
    return notes


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"95 % interval {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
