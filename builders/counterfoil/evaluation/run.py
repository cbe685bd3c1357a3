"""Score classifiers on a built dataset: open, predict (or recall), measure, write tables and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.evaluation.dataset import OpenDataset, open_dataset
from counterfoil.evaluation.given_models import GivenModel, given_models
from counterfoil.evaluation.hub_entries import FOLDER, entry_files
from counterfoil.evaluation.model_lists import NamedModel, named_models
from counterfoil.evaluation.public_names import with_public_names
from counterfoil.evaluation.results import ClassScore, Evaluation, ModelResult, Score, ShiftResult
from counterfoil.evaluation.scores import Answers, measure_base, measure_shift, share
from counterfoil.hub import DatasetReference
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.devices import resolve_device
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.passes import Progress, Scored, score_models
from counterfoil.recipe.names import REPOSITORY
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder, write_atomically


def run_evaluation(
    dataset: str | Path,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None,
    *,
    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None,
    out: Path | None,
    device: str,
    batch_size: int,
    min_images_per_class: int | None,
    seed: int,
    into_card: bool,
    repo: str | None,
    on_progress: Progress | None,
) -> Evaluation:
    """See `counterfoil.evaluation.evaluate`, which is this with defaults."""
    if repo is not None and not REPOSITORY.fullmatch(repo):
        raise UserError(f"the dataset's repository is {repo!r}: expected user/name")
    if into_card:
        from counterfoil.evaluation.into_card import make_ready

        make_ready(dataset)
    opened = open_dataset(dataset)
    classes = opened.recipe.classes
    given = given_models(models, transform, opened.labelled(), classes)
    names, maps = _named(opened, models, given)
    if batch_size < 1:
        raise UserError(f"batch size {batch_size}: expected 1 or more")
    minimum = opened.recipe.evaluate.min_images_per_class if min_images_per_class is None else min_images_per_class
    if minimum < 1:
        raise UserError(f"min_images_per_class is {minimum}: expected 1 or more")
    used_device = resolve_device(device)
    folder = _report_folder(opened, out)
    progress = on_progress or (lambda stage, done, total: None)
    scored = score_models(
        opened.labelled(), names, maps, opened.workplace / "predictions", used_device, batch_size, progress,
        lambda name: given[name].load() if name in given else load_classifier(name, classes=classes),
    )  # fmt: skip
    evaluation, answers = _measure(opened, [scored[name] for name in names], minimum, seed, progress)
    dataset_id = repo or (opened.reference.repo if opened.reference else opened.recipe.publish.repo)
    written = _write(evaluation, opened, answers, maps, folder, dataset_id)
    if not into_card:
        return written
    from counterfoil.evaluation.into_card import store_results

    return replace(written, files={**written.files, "card": store_results(written, dataset_id)})


def _report_folder(dataset: OpenDataset, out: Path | None) -> Path:
    """The folder of the report, made before the long work, so that a place one may not write to shows at once."""
    folder = named_path(out) if out is not None else dataset.workplace / "evaluation"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder", "Name another with --out.")
    inside = folder.resolve().is_relative_to(dataset.directory.resolve())
    if inside and not folder.resolve().is_relative_to(dataset.workplace.resolve()):
        raise UserError(
            f"{folder} lies inside the dataset, whose manifest lists every file: it would no longer verify",
            f"Name a folder outside, or leave --out away: the report then goes to {dataset.workplace}.",
        )
    try_folder(folder)
    make_folder(folder)
    return folder


def _named(
    dataset: OpenDataset,
    models: str | Path | Sequence[str | Path] | Mapping[str, Any] | None,
    given: Mapping[str, GivenModel],
) -> tuple[tuple[str, ...], dict]:
    """The models to score, and the class map of each, before any weight is loaded; all problems are told together."""
    if models is None:
        # Names only: the recipe of a published dataset must not make this machine read files.
        named, problems = tuple(NamedModel(name) for name in dict.fromkeys(dataset.recipe.evaluate.models)), ()
    elif isinstance(models, Mapping):
        named, problems = tuple(NamedModel(name) for name in given), ()
    else:
        named, problems = named_models([models] if isinstance(models, str | Path) else models)
    if not named and not problems:
        raise UserError(
            "no model to score: none was named, and the recipe lists none under evaluate.models",
            "Name some: counterfoil evaluate DATASET --models resnet50 lab:resnet10t",
        )
    return tuple(one.name for one in named), _class_maps(dataset, named, given, problems)


def _class_maps(
    dataset: OpenDataset, named: Sequence[NamedModel], given: Mapping[str, GivenModel], problems: Sequence[str]
) -> dict[str, ClassMap]:
    maps: dict[str, ClassMap] = {}
    found: list[CounterfoilError] = [UserError(problem) for problem in problems]
    for model in named:
        try:
            classes = dataset.recipe.classes
            own = given.get(model.name)
            maps[model.name] = map_classes(classes, own.facts if own else describe_classifier(model.name, classes))
        except CounterfoilError as error:
            if model.place:
                error = type(error)([f"{model.place}: {problem}" for problem in error.problems], error.hint)
            found.append(error)
    raise_together(found)
    return maps


def _measure(
    dataset: OpenDataset, scored: Sequence[Scored], minimum: int, seed: int, progress: Progress
) -> tuple[Evaluation, Answers]:
    answers = Answers(
        # An image decodes or not whatever the model.
        readable=np.all([one.predictions.readable for one in scored], axis=0),
        prediction=np.stack([one.predictions.prediction for one in scored], axis=1),
        correct=np.stack([one.predictions.correct for one in scored], axis=1),
        correct_top_k=np.stack([one.predictions.correct_top_k for one in scored], axis=1),
    )
    if not np.any((dataset.shifts == 0) & answers.readable):
        raise RunFailure(f"{dataset.directory}: not one base image can be decoded", "Run `counterfoil verify` on it.")
    names = [one.classifier.name for one in scored]
    base, base_accuracy = measure_base(dataset, answers, minimum)
    shifts: list[ShiftResult] = []
    scores: list[Score] = []
    class_scores: list[ClassScore] = []
    described = dataset.recipe.all_shifts()
    for place in range(1, len(described)):
        shift, found, classes = measure_shift(dataset, answers, names, place, min_images=minimum, seed=seed)
        shifts.append(shift)
        scores += found
        class_scores += classes
        progress("measuring", place, len(described) - 1)
    evaluation = Evaluation(
        dataset=dataset.source,
        name=dataset.recipe.name,
        directory=dataset.directory,
        content=dataset.content,
        paired=dataset.recipe.samples.noise == "paired",
        min_images_per_class=minimum,
        seed=seed,
        models=tuple(
            _model_result(
                one,
                answers,
                place,
                dataset,
                None if base_accuracy is None else float(base_accuracy[place]),
                [score for score in scores if score.model == one.classifier.name],
            )
            for place, one in enumerate(scored)
        ),
        base=base,
        shifts=tuple(shifts),
        scores=tuple(scores),
        class_scores=tuple(class_scores),
        unreadable=tuple(np.asarray(dataset.keys, dtype=object)[~answers.readable].tolist()),
        files={},
    )
    return evaluation, answers


def _model_result(
    scored: Scored,
    answers: Answers,
    place: int,
    dataset: OpenDataset,
    base_accuracy: float | None,
    scores: Sequence[Score],
) -> ModelResult:
    rows = np.flatnonzero((dataset.shifts == 0) & answers.readable)
    top1, top_k = share(answers.correct[rows, place]), share(answers.correct_top_k[rows, place])
    assert top1 is not None and top_k is not None  # the base has a readable image, or nothing is measured
    drops = [score.drop.value for score in scores if score.drop is not None]
    one = scored.classifier
    return ModelResult(
        name=one.name,
        architecture=one.architecture,
        outputs=scored.class_map.outputs,
        num_classes=one.num_classes,
        img_size=one.input_size[-1] if one.input_size else None,
        crop_pct=one.crop_pct,
        interpolation=one.interpolation,
        param_count=one.param_count,
        sha256=one.sha256 or "",
        top1=top1,
        top_k=scored.class_map.top_k,
        top_k_accuracy=top_k,
        base_accuracy=base_accuracy,
        average_drop=float(np.mean(drops)) if drops else None,
    )


def _write(
    evaluation: Evaluation,
    dataset: OpenDataset,
    answers: Answers,
    maps: dict[str, ClassMap],
    folder: Path,
    dataset_id: str | None,
) -> Evaluation:
    from counterfoil.evaluation.examples import pick_examples
    from counterfoil.evaluation.report import report_html
    from counterfoil.evaluation.tables import classes_csv, results_csv, robustness_csv, shifts_csv

    examples = pick_examples(dataset, answers, evaluation, list(maps.values()))
    texts = {
        "results": ("results.csv", results_csv(evaluation)),
        "robustness": ("robustness.csv", robustness_csv(evaluation)),
        "shifts": ("shifts.csv", shifts_csv(evaluation)),
        "classes": ("classes.csv", classes_csv(evaluation)),
        "report": ("report.html", report_html(evaluation, examples)),
    }
    files = {}
    for name, (file, text) in texts.items():
        write_atomically(folder / file, text.encode())
        files[name] = (folder / file).resolve()
    if dataset_id is not None:
        entries = (folder / FOLDER).resolve()
        commit = _commit(dataset.reference)
        for file, content in entry_files(with_public_names(evaluation), dataset_id, commit).items():
            write_atomically(entries / file, content)
        files["entries"] = entries
    return replace(evaluation, files=files)


def _commit(reference: DatasetReference | None) -> str | None:
    """The commit that a published dataset was named by; a branch or a tag may move."""
    revision = reference.revision if reference else None
    return revision if revision and re.fullmatch(r"[0-9a-f]{40}", revision) else None
