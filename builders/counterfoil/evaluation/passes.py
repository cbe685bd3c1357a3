"""Every model's answers to a dataset: remembered from an earlier run, or computed in as few passes as fit.

A pass decodes each image once for all its models. What a model has answered is kept in parts while the
pass runs, so that a killed run goes on where each model stood, and a model once finished is never scored
again on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation.class_map import ClassMap
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.inference import Task, predict
from counterfoil.evaluation.parts import finish_parts, load_parts, part_rows, save_part
from counterfoil.evaluation.predictions import Predictions, cache_key, cache_path, load_predictions
from counterfoil.models.classifiers import Classifier, load_classifier

# (stage, done, total); a stage is a model or several that share a pass.
Progress = Callable[[str, int, int], None]

# Share of the free memory that the weights of one pass may take; the rest is for activations and images.
_WEIGHTS_SHARE = 0.4
_BYTES_A_PARAMETER = 4


@dataclass(frozen=True)
class Scored:
    """A model after its pass, without its weights."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions


def score_models(
    dataset: OpenDataset,
    names: Sequence[str],
    maps: Mapping[str, ClassMap],
    device: str,
    batch_size: int,
    progress: Progress,
) -> dict[str, Scored]:
    """Every model's answers: remembered where a run before finished them, else computed and kept.

    A model that fails does not end the run: the others are scored and kept, then all failures are told.
    """
    scored: dict[str, Scored] = {}
    failures: list[CounterfoilError] = []
    folder = dataset.workplace / "predictions"
    for tasks in _passes(dataset, names, maps, device, folder, scored, failures):
        stage = tasks[0].classifier.name
        stage = stage if len(tasks) == 1 else f"{len(tasks)} models, {stage} first"
        entries = {task.classifier.name: _entry(dataset, task, device, folder) for task in tasks}
        predict(
            (image for _, image in dataset.images()),
            dataset.labels,
            tasks,
            device=device,
            batch_size=batch_size,
            part_rows=part_rows(batch_size),
            on_part=lambda task, start, entries=entries: save_part(
                *entries[task.classifier.name], dataset.keys, task.answers, start, task.done
            ),
            on_batch=lambda done, stage=stage: progress(stage, done, len(dataset.keys)),
        )
        for task in tasks:
            name = task.classifier.name
            if task.failure is None:
                finish_parts(*entries[name], dataset.keys, task.answers)
                scored[name] = Scored(replace(task.classifier, module=None), maps[name], task.answers)
            else:
                failures.append(task.failure)
            # The list of the pass lives on while the next one is made; its weights must not.
            task.classifier = replace(task.classifier, module=None)
    kept = f"The answers of the other {len(scored)} are kept: mend or leave out what failed, and run it again."
    raise_together(failures, kept if scored else None)
    return scored


def raise_together(errors: Sequence[CounterfoilError], hint: str | None = None) -> None:
    """Raise one error for all of them: a mistake where any is the user's, else a failure; nothing for none."""
    if not errors:
        return
    if len(errors) == 1:
        error = errors[0]
        raise type(error)(error.problems, " ".join(part for part in (error.hint, hint) if part) or None)
    lines = [f"{'; '.join(error.problems)}{f' ({error.hint})' if error.hint else ''}" for error in errors]
    raise (UserError if any(isinstance(error, UserError) for error in errors) else RunFailure)(lines, hint)


def _entry(dataset: OpenDataset, task: Task, device: str, folder: Path) -> tuple[Path, str]:
    """The path and key of a model's predictions."""
    key = cache_key(dataset.content, task.classifier, task.class_map, device)
    return cache_path(folder, task.classifier.name, key), key


def _passes(
    dataset: OpenDataset,
    names: Sequence[str],
    maps: Mapping[str, ClassMap],
    device: str,
    folder: Path,
    scored: dict[str, Scored],
    failures: list[CounterfoilError],
) -> Iterator[list[Task]]:
    """Lists of models whose weights fit in memory together; what is known already goes to `scored` at once."""
    waiting: list[Task] = []
    room = _room(device)
    for name in names:
        try:
            classifier = load_classifier(name)
            _refuse_other_inputs(classifier)
        except CounterfoilError as error:
            failures.append(error)
            continue
        task = Task(classifier, maps[name], Predictions.empty(0))
        entry, key = _entry(dataset, task, device, folder)
        known = load_predictions(entry, key, dataset.keys)
        if known is not None:
            scored[name] = Scored(replace(classifier, module=None), maps[name], known)
            continue
        size = classifier.param_count * _BYTES_A_PARAMETER
        if waiting and size > room:
            yield waiting
            waiting, room = [], _room(device)
        task.classifier = replace(classifier, module=classifier.module.to(device))
        task.answers, task.done = load_parts(entry, key, dataset.keys)
        waiting.append(task)
        room -= size
    if waiting:
        yield waiting


def _room(device: str) -> float:
    """Bytes that the weights of one pass may take."""
    import psutil
    import torch

    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available
    return free * _WEIGHTS_SHARE


def _refuse_other_inputs(classifier: Classifier) -> None:
    channels = classifier.data_config["input_size"][0]
    if channels != 3:
        raise UserError(f"model {classifier.name!r} wants images of {channels} channels; a dataset's are RGB")
