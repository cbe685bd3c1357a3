"""An evaluation as one run of an experiment tracker: parameters, numbers with intervals, the gate,
the report.

Each tracker is imported only on request. It takes address and key from its own environment and
settings.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from counterfoil import __version__
from counterfoil.errors import Problems, RunFailure
from counterfoil.evaluation.gate import GateResult
from counterfoil.evaluation.messages import message
from counterfoil.registry import Registry, uncallable
from counterfoil.report.results import Results

PROJECT = "counterfoil"
# Short names of files that a run keeps, where an evaluation wrote them.
_FILES = ("report", "document", "measures", "gate", "junit")


@dataclass(frozen=True)
class TrackedRun:
    name: str
    parameters: dict[str, str | int | float]
    metrics: dict[str, float]
    files: tuple[Path, ...]


def tracked_run(
    results: Results,
    files: Mapping[str, Path],
    gate: GateResult | None,
    commit: str | None,
) -> TrackedRun:
    """Return an evaluation as a run: fractions as in results.json, by `MODEL/GROUP/MEASURE`,
    intervals as `…_low`."""
    short_names = results.short_names
    model_keys = _keys([*short_names.values()])
    models = dict(zip(short_names, model_keys, strict=True))
    groups = [group.name for group in results.groups]
    group_keys = dict(zip(groups, _keys(groups), strict=True))
    parameters: dict[str, str | int | float] = {
        "dataset": results.dataset,
        "dataset_content": results.content,
        "dataset_commit": commit or "",
        "counterfoil": __version__,
        "seed": results.seed,
        "min_images_per_class": results.min_images_per_class,
        "outputs": results.outputs,
        "preview": results.preview or "",
    }
    for model in results.models:
        parameters[f"{models[model.name]}/sha256"] = model.sha256
    metrics: dict[str, float] = {}
    for row in results.rows:
        if row.class_id or row.against or row.at not in ("", results.lead):
            continue  # drops may be of several measures
        if row.model in models and row.group in group_keys:
            key = f"{models[row.model]}/{group_keys[row.group]}/{row.measure}"
            ends = {
                key: row.value,
                f"{key}_low": row.low,
                f"{key}_high": row.high,
            }
            metrics |= {name: value for name, value in ends.items() if value is not None}
    if gate is not None:
        parameters["gate"] = gate.verdict
        binding = [judged for judged in gate.judged if not judged.line.advisory]
        counts = Counter(judged.verdict for judged in binding)
        for verdict in ("pass", "fail", "undecided"):
            metrics[f"gate/{verdict}"] = float(counts[verdict])
    kept = tuple(Path(files[name]) for name in _FILES if name in files)
    return TrackedRun(results.dataset, parameters, metrics, kept)


def _keys(names: Sequence[str]) -> list[str]:
    """Return distinct names that every tracker takes as keys."""
    keys = []
    for name in names:
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
        keys.append(safe.strip(".-") or "unnamed")
    times = Counter(keys)
    for number, key in enumerate(keys):
        if times[key] > 1:
            keys[number] = f"{key}-{number}"
    return keys


def _wandb(run: TrackedRun) -> None:
    wandb: Any = import_module("wandb")
    project = os.environ.get("WANDB_PROJECT", PROJECT)
    # The caller may have a run open: leave it alone.
    started = wandb.init(
        project=project,
        name=run.name,
        config=run.parameters,
        reinit="create_new",
    )
    started.log(run.metrics)
    started.log_artifact(_artifact(wandb, run))
    started.finish()


def _artifact(library: Any, run: TrackedRun) -> Any:
    artifact = library.Artifact("evaluation", type="evaluation")
    for file in run.files:
        artifact.add_file(str(file))
    return artifact


def _mlflow(run: TrackedRun) -> None:
    client: Any = import_module("mlflow").MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment and experiment.experiment_id
    if experiment is None:
        experiment_id = client.create_experiment(name)
    run_id = client.create_run(experiment_id, run_name=run.name).info.run_id
    for key, parameter in run.parameters.items():
        client.log_param(run_id, key, parameter)
    for key, metric in run.metrics.items():
        client.log_metric(run_id, key, metric)
    for file in run.files:
        client.log_artifact(run_id, str(file))
    client.set_terminated(run_id)


def _trackio(run: TrackedRun) -> None:
    trackio: Any = import_module("trackio")
    trackio.init(
        os.environ.get("TRACKIO_PROJECT", PROJECT),
        name=run.name,
        config=run.parameters,
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    trackio.log(run.metrics)
    trackio.log_artifact(_artifact(trackio, run))
    trackio.finish()


def _tensorboard(run: TrackedRun) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(comment=f"-{_keys([run.name])[0]}") as writer:
        for key, metric in run.metrics.items():
            writer.add_scalar(key, metric)
        for key, parameter in run.parameters.items():
            writer.add_text(key, f"    {parameter}")
        for file in run.files:
            writer.add_text("files", f"    {file}")


TRACKERS: Registry[Callable[[TrackedRun], None]] = Registry(
    "counterfoil.trackers",
    {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio, "tensorboard": _tensorboard},
    uncallable,
)


def check_trackers(names: Sequence[str]) -> None:
    """Raise UserError with every name that is no tracker, or whose library is not installed."""
    problems = Problems(message)
    known = [*TRACKERS]
    for name in names:
        if name not in TRACKERS:
            problems.add("tracker.unknown", None, name, known)
    for name in dict.fromkeys(names):
        if name in TRACKERS.bundled and importlib.util.find_spec(name) is None:
            how = f"pip install 'counterfoil[{name}]'"
            if name == "trackio":
                how = "it has no extra, since its 0.43 takes no Pillow 13 (see the documentation)"
            problems.add("tracker.absent", name, expected=known, how=how)
    problems.refuse()


def report_to(run: TrackedRun, trackers: Sequence[str]) -> None:
    """Send a run to trackers. Raise UserError as `check_trackers`, and RunFailure if a tracker
    refuses the run.

    The other trackers have it first, and the files of the evaluation stay.
    """
    names = list(dict.fromkeys(trackers))
    check_trackers(names)
    problems = []
    for name in names:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # ours is for data
                TRACKERS[name](run)
        except Exception as error:  # each library has errors of its own
            text = str(error).strip() or type(error).__name__
            # An address may hold a password.
            first_line = text.splitlines()[0]
            reason = re.sub(r"//[^/@ ]+@", "//", first_line)
            problems.append(message("tracker.refused", name, reason, report=run.files[0]))
    if problems:
        raise RunFailure(problems)
