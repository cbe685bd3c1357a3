"""Score classifiers on a built dataset: open, predict (or recall), measure, write tables and report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.engines import EngineChoice, engine_and_device
from counterfoil.errors import UserError, collected_in, raise_together, warn
from counterfoil.evaluation.dataset import OpenDataset, Subject, limit_subject, open_subject, usual_side
from counterfoil.evaluation.gate import judge_gate, judged_models, models_of, name_problems, read_gate
from counterfoil.evaluation.result_files import make_ready, report_folder, store_results, write_evaluation
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import (
    ClassOrder,
    choose_models,
    classifier_facts,
    is_stored,
    read_stored,
    told_apart,
)
from counterfoil.evaluation.task import ResampledTask, TaskSettings, evaluate_task
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking, Request
from counterfoil.evaluation.tasks.classes.measures import MEASURES, NESTED_MEASURES
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels
from counterfoil.evaluation.tasks.classes.measures.source import (
    PreparedReference,
    prepared_distances,
    prepared_reference,
)
from counterfoil.evaluation.tasks.classes.mistaken_order import likely_order
from counterfoil.evaluation.tasks.labels.task import MultilabelTask
from counterfoil.evaluation.tasks.objects.task import DetectionTask
from counterfoil.models.classifiers.of_predictions import RecordedClassifier
from counterfoil.models.classifiers.of_python import by_name
from counterfoil.models.score_scale import Scale
from counterfoil.prediction.class_map import Outputs
from counterfoil.prediction.passes import WORKERS_IMPORT, Placement, Scored
from counterfoil.prediction.predictions import join_predictions
from counterfoil.progress import report
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import REPOSITORY
from counterfoil.recipe.schema_output import MOST_LIMITED
from counterfoil.report.reference import order_warnings
from counterfoil.report.results import NESTED, ClassFacts, ModelFacts, ResultRow, ResultRows, Results
from counterfoil.report.sections import MeasureFacts
from counterfoil.stats import CONFIDENCE, REPLICATES
from counterfoil.store.directory_lock import writing_lock


def evaluate(
    dataset: str | Path,
    models: str
    | Path
    | Sequence[str | Path]
    | Callable[[Any], Any]
    | Mapping[str, Callable[[Any], Any] | str]
    | None = None,
    *,
    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None,
    version: str | Mapping[str, str] | None = None,
    recipe: Recipe | str | Path | None = None,
    base: str | None = None,
    groups: str | None = None,
    beside: Mapping[str, str | Path] | None = None,
    out: Path | None = None,
    device: str = "auto",
    batch_size: int = 64,
    min_images_per_class: int | None = None,
    outputs: Outputs | None = None,
    class_order: ClassOrder | Mapping[str, ClassOrder] | None = None,
    scores_are: Scale | Mapping[str, Scale] | None = None,
    seed: int = 0,
    into_card: bool = False,
    repo: str | None = None,
    distances: str | Sequence[str] | None = None,
    against: str | Path | None = None,
    compare: tuple[str, str] | None = None,
    reference: bool | None = None,
    gate: str | Path | Sequence[str] | None = None,
    allow_undecided: bool = False,
    workers: int | None = None,
    engine: EngineChoice | None = None,
    limit: int | None = None,
) -> Evaluation:
    """Score models on a dataset and write tables and a report.

    Predictions are cached by content and reused. If a run is killed, call the function again: every model resumes where
    it stopped. Accuracies are averaged over all classes. A drop leaves out classes whose base accuracy is near chance
    (`near_chance`), and says how many remain; averages over models leave out models that are.

    `out` receives results.json, measures.csv (every number in one table), results.csv, robustness.csv, shifts.csv,
    classes.csv, report.html and predictions.parquet, which has a row per image and which `failures()` of the result
    reads as a DataFrame. A dataset with mined shifts adds findings.csv and `findings`: each model's failure rate over
    all candidates that passed the screen, compared with the base. A dataset whose keep rules select what classifiers
    get wrong adds transfer.csv and `transfer`: how often each model fails on the images that a judge got wrong.

    A torch module receives a tensor on `device`, in eval mode; its mode and device are restored afterwards. Any other
    callable receives a numpy array. Both answer in this process, however many workers there are.

    Outputs are matched to classes by name if the model has names (a callable by an attribute `label_names`), and
    otherwise by position, unless training programs sort these classes in different orders. Unmatched outputs are an
    error; `models[].matched` of the result says how each model was matched.

    Args:
        dataset: A dataset directory or a Hub id. Or any images with labels: a folder (imagefolder, Parquet,
            WebDataset), a Hub dataset, `lab:wardrobe:validation`, or `source:SPLIT` for a split of the recipe's input
            dataset. Name a split after a colon.
        models: Names of models, a callable, or a mapping from names to callables or names: `{"mine": model}`. A
            callable takes a batch and returns scores [b, classes]. `python:package.module:function` names one of your
            own code: the function takes nothing and returns a module and its transform, or it takes a batch itself. A
            file with one name per line also works: a Path, `@FILE` or a `.txt` file. None: the recipe's models.
        transform: Prepares each PIL image for a callable: one function for all, or a mapping by name. A torch module
            needs one, unless timm made it. None: other callables take float32 [3, height, width] from 0 to 1.
        version: A text that names what a callable and its transform compute, one for all or a mapping by name. Their
            predictions are cached under it: change it whenever you change the code. None: they are not cached.
        recipe: The recipe whose classes the labels of other images are. None: the images' own classes.
        base: The group that the others are compared with, for images that no build made. None: accuracies only.
        groups: The column that holds groups, or "configs", for images that no build made.
        beside: Natural test sets to score as further groups: a mapping from names to images.
        out: Folder for the tables and the report. None: `.counterfoil/evaluation/` inside the dataset, or with a limit
            `.counterfoil/preview/`, which are neither published nor compared, or the user's cache for other images.
        device: `auto`, `cpu`, `cuda` (every GPU) or a list such as `cuda:0,cuda:2`.
        batch_size: Images per batch. It does not change the results.
        min_images_per_class: Leave classes with fewer accepted images out of drops. None: the recipe's value.
        outputs: Whether a model with more outputs than classes answers over "all" of them or over those of the
            "classes" alone. Both accuracies are computed; drops follow this one. None: the recipe's, by default "all".
        class_order: Which class each output is, whatever the model says: "position" (output i is label i of the
            dataset), "timm" (class folders as timm sorts them), the names, or a file with a name on each line. A
            mapping from names of models gives each its own. Files of predictions and open_clip need none.
        scores_are: What a model's scores are: "probabilities", "percent", "log-probabilities", "logits" or "sigmoids".
            For all models, or a mapping from names of models. None: as their sums show; scores that show nothing order
            the classes, and give no confidence.
        seed: Seed of the bootstrap.
        into_card: Also store the results in the dataset (`evaluation/`) and show them on its card until its images
            change. Building again keeps them.
        repo: The dataset's `user/name` on the Hub. If it is known, `eval_results/` gets one YAML file per model with
            evaluation-result entries for the model's repository. None: the recipe's `publish.repo`, or the repository
            that the dataset came from.
        distances: Models in whose features the dataset is compared with its source (KID, FID), as a whole and shift by
            shift: "clip" (the recipe's own) or a classifier. A source that is not available is skipped, and the result
            gives the reason.
        against: Images to measure distances to instead of the source, named like `dataset`.
        compare: A mended model and its original. Both are scored even if `models` lacks them; without `models`, only
            these two. They are compared image by image, with intervals and exact tests adjusted for all groups. A model
            with a `mended.json` is never scored on the data that it was mended on.
        reference: Also score the models on the source's validation split, at most 50 images per class, to compare
            accuracy on the base with it. None: do so if the source is available. True: fetch it from the Hub if
            necessary. False: skip it.
        gate: A file with a YAML list of lines that a model has to meet, or the lines: `accuracy(base) >= 80`,
            `drop(at_night) <= 10`, `relative_drop(fog) <= 10%`, `worse_than(MODEL, any) <= 2`. `gate` of the result has
            pass, fail or undecided for each line and model, and gate.md and gate.xml are written. MODEL is scored too,
            and not judged, or is the results.json of an earlier evaluation of these images.
        allow_undecided: Do not count undecided lines of the gate as errors.
        workers: Worker processes per device. None: one per GPU, or on a CPU one per core from 2,000 images on.
        engine: Where models run, such as a cluster. None: on this machine. Callables always run in this process.
        limit: Score a preview: at most so many images of each group, shifts on the rows of the base first. Every page
            says so. Classes count from one image on, none is near chance, and rates of mined shifts are left out.

    Returns:
        An Evaluation with every number, and the paths of the files.

    Raises:
        UserError: A dataset, model or class map cannot be used. The message lists all problems together.
        RunFailure: A model cannot be fetched or run. The other models are scored and kept first.
    """
    models = by_name(models)
    if repo is not None and not REPOSITORY.fullmatch(repo):
        raise UserError(f"the dataset's repository is {repo!r}: expected user/name")
    if batch_size < 1:
        raise UserError(f"batch size {batch_size}: expected 1 or more")
    if into_card and beside:
        raise UserError("into_card stores the results of a dataset's own shifts", "Leave out one of the two.")
    if allow_undecided and gate is None:
        raise UserError("allow_undecided goes with a gate, and none is given", "Leave it out, or give one.")
    if into_card:
        make_ready(dataset)
    if limit is not None and limit > MOST_LIMITED:
        raise UserError(f"limit is {limit}: expected 1 to {MOST_LIMITED:,}")
    subject = open_subject(dataset, recipe, base, groups, beside or {})
    refuse_preview(subject.preview, limit, gate, into_card, distances)
    if min_images_per_class is not None and min_images_per_class < 1:
        raise UserError(f"min_images_per_class is {min_images_per_class}: expected 1 or more")
    if isinstance(subject, OpenDataset) and not subject.recipe.task.by_class:
        task = MultilabelTask if subject.recipe.task.name == "labels" else DetectionTask
        others: dict[str, Any] = {"beside": beside, "outputs": outputs, "distances": distances, "against": against}
        others |= {"compare": compare, "reference": reference, "workers": workers, "scores_are": scores_are}
        others["engine"] = None if engine == EngineChoice() else engine
        others |= {"transform": transform, "version": version, "min_images_per_class": min_images_per_class}
        _refuse_options(task, others)
        settings = TaskSettings(
            out=out,
            device=device,
            batch_size=batch_size,
            seed=seed,
            class_order=class_order,
            gate=gate,
            allow_undecided=allow_undecided,
            limit=limit,
            into_card=into_card,
            transform=transform,
            version=version,
            min_images_per_class=min_images_per_class or subject.min_images_per_class,
        )
        return evaluate_task(task, subject, models, settings)
    if limit is not None:
        subject = limit_subject(subject, limit)
    minimum = min_images_per_class or subject.min_images_per_class
    if into_card and subject.directory is None:
        raise UserError(f"{dataset} is not a built dataset, so it has no card for results")
    lines, errors = read_gate(gate, lambda line: name_problems(line, subject, subject.classes))
    judged: tuple[str, ...] = ()
    with collected_in(errors):
        chosen = choose_models(
            subject, models, transform, version, outputs, class_order, compare, models_of(lines), scores_are
        )
        judged = judged_models(lines, chosen.names)
    with collected_in(errors):
        stored = read_stored([line.other_model for line in lines if is_stored(line.other_model)], judged, subject)
    raise_together(errors)
    used_device, spread = _placement(subject, device, workers, engine)
    requests = (
        prepared_distances(subject, distances, against),
        prepared_reference(subject, chosen.stands_for, tuple(chosen.mended), reference),
        *([] if compare is None else [ComparedModels(*compare)]),
    )
    folder = report_folder(subject, out, limit)
    answered = _all_answers(subject, Asking(chosen, used_device, batch_size, spread), minimum, seed, requests)
    results = _results(answered)
    unreadable, paths = np.flatnonzero(~answered.answers.readable).tolist(), subject.paths
    evaluation = Evaluation(
        results,
        dataset=subject.source,
        directory=subject.directory,
        unreadable=tuple(subject.keys[row] for row in unreadable),
        files={},
        unreadable_paths=() if paths is None else tuple(paths[row] for row in unreadable),
        gate=judge_gate(answered, lines, judged, results.label_checks, allow_undecided, stored) if lines else None,
        notes=subject.notes,
        answered=answered,
    )
    dataset_id = repo or (subject.published.repo if subject.published else subject.repo)
    if subject.preview is not None:
        dataset_id = None  # entries for the Hub are of whole datasets
    with writing_lock(folder):  # two evaluations into one folder must not mix their files
        written = write_evaluation(evaluation, answered, folder, dataset_id)
    if into_card:
        written = replace(written, files={**written.files, "card": store_results(written, dataset_id)})
    for warnings in (order_warnings, *(shown.warnings for shown in NESTED.values())):
        for warning in warnings(results):
            warn(warning)
    return written


def refuse_preview(built: int | None, limit: int | None, gate: object, into_card: bool, distances: object) -> None:
    """Raise UserError for what a preview does not give: answers to a gate; with a limit, results on a card, distances.

    built: the images a shift of a dataset that is a preview itself.
    """
    given = {"gate": gate is not None, "results on a card": limit and into_card, "distances": limit and distances}
    named = [name for name, value in given.items() if value]
    if named and (limit is not None or built is not None):
        raise UserError(
            f"this is a preview of {built if limit is None else limit:,} images a shift, which takes no"
            f" {', no '.join(named)}",
            "Leave out --limit to evaluate all images." if built is None else "Build the recipe without --limit.",
        )


def _refuse_options(task: type[ResampledTask], given: Mapping[str, Any]) -> None:
    """Raise UserError if `given` sets an argument that this task does not take."""
    named = [name for name, value in given.items() if value not in (None, False, (), {}) and name not in task.takes]
    if named:
        raise UserError(
            f"the dataset has {task.of_dataset} take no {', '.join(named)}",
            "Leave it out: groups are compared with the base, and all models with each other.",
        )


def task_of(results: Results) -> type[ResampledTask] | None:
    """Return the task that made these results; None for classifiers that give each image one class."""
    outputs = {model.outputs for model in results.models}
    return next((task for task in (DetectionTask, MultilabelTask) if task.outputs in outputs), None)


def _placement(
    subject: Subject, device: str, workers: int | None, engine: EngineChoice | None
) -> tuple[str, Placement | None]:
    """Return the device of this process, and where else models answer: with several workers, or many images."""
    made_by, used_device = engine_and_device(device, workers, engine)
    placement = Placement(made_by, used_device, tuple(subject.classes))
    spread = placement if workers is not None and workers > 1 else placement.worth_for(len(subject.keys))
    if spread is not None:
        made_by.expect(WORKERS_IMPORT)
    return used_device, spread


def _all_answers(
    subject: Subject, asking: Asking, minimum: int, seed: int, requests: tuple[Request, ...]
) -> AllAnswers:
    """Collect every model's answers to all images, and compute the drops that many measures share."""
    names = asking.models.names
    # Each part's answers are kept by its own content.
    parts = [asking.scored(part.images, names, subject.workplace / "predictions") for part in subject.parts]
    scored = [
        replace(parts[0][name], predictions=join_predictions([part[name].predictions for part in parts]))
        if len(parts) > 1
        else parts[0][name]
        for name in names
    ]
    answered = AllAnswers.of(subject, scored, minimum, seed, asking, requests)
    # Bootstrapping the drops takes most of the time.
    for done, shift in enumerate(answered.shifts, start=1):
        if subject.base:
            answered.drops(shift)
        report("measuring", done, len(answered.shifts))
    return answered


def _results(answered: AllAnswers) -> Results:
    """Compute the document of results: facts, and the rows of every measure."""
    subject = answered.subject
    reference = answered.request(PreparedReference)
    image_sets = [subject.parts[0].images, *([reference.images] if reference and reference.images else [])]
    rows: list[ResultRow] = []
    nested: dict[str, Any] = {}
    nested_facts: list[MeasureFacts] = []
    for measure in MEASURES.values():
        rows += measure.rows(answered)
    for name, measure in NESTED_MEASURES.items():
        nested[name], measure_rows = measure.measure(answered)
        rows += measure_rows
        names = {result.measure for result in measure_rows}
        nested_facts += [facts for facts in NESTED[name].measures if facts.name in names]
    return Results(
        content=subject.content,
        dataset=subject.name,
        seed=answered.seed,
        min_images_per_class=answered.min_images,
        confidence=CONFIDENCE,
        replicates=REPLICATES,
        paired=any(group.paired for group in subject.groups),
        unreadable=int((~answered.answers.readable).sum()),
        image_side=usual_side(image_sets),
        base=subject.groups[0].name if subject.base else None,
        outputs=answered.asking.models.outputs,
        preview=subject.preview,
        scored=subject.scored_sentences,
        classes=tuple(ClassFacts(cls.id, cls.name) for cls in subject.classes),
        models=told_apart(_model_facts(answered, model) for model in range(len(answered.scored))),
        groups=tuple(answered.facts(index) for index in answered.places),
        measures=(*(measure.facts(name) for name, measure in MEASURES.items()), *nested_facts),
        rows=ResultRows(rows),
        **nested,
    )


def _read(subject: Subject, scored: Scored) -> str:
    """Return how a file of answers, or a model's scores, were read."""
    classifier = scored.classifier
    if not isinstance(classifier, RecordedClassifier):
        return classifier.read
    parts = [(part.images.keys, part.images.paths) for part in subject.parts]
    answers = None if subject.preview is not None else int(scored.predictions.readable.sum())
    return classifier.told(parts, answers)


def _model_facts(answered: AllAnswers, model: int) -> ModelFacts:
    scored, near_chance = answered.scored[model], bool(answered.near_chance.models[model])
    class_map, shares = scored.class_map, scored.predictions.shares
    # The two best answers are equal: a file's scores are rounded, or the model knows neither.
    tied = scored.predictions.tied
    if tied is None:
        tied = shares[:, 0] == shares[:, 1] if shares.shape[1] > 1 else np.zeros(len(shares), dtype=bool)
    tied = scored.predictions.readable & tied
    return classifier_facts(
        scored.classifier,
        outputs=class_map.outputs,
        top_k=class_map.top_k,
        chance=float(class_map.chances.mean()),
        near_chance=near_chance,
        tied=int(tied.sum()),
        matched=class_map.matched,
        read=_read(answered.subject, scored),
        likely_order=likely_order(answered, model) if near_chance else "",
    )
