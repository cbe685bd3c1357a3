"""Score classifiers on a built dataset: open, predict (or recall), measure, write tables and report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from counterfoil.dataset.card.index_page import write_index
from counterfoil.documents import document_text
from counterfoil.engines import EngineChoice, engine_and_device
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.class_order import ClassOrder, class_orders
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.gate import judge_gate, judged_models, models_of, read_gate
from counterfoil.evaluation.measures import MEASURES, NESTED_MEASURES
from counterfoil.evaluation.measures.comparison import ComparedModels
from counterfoil.evaluation.measures.distances import prepared_distances
from counterfoil.evaluation.measures.reference import prepared_reference
from counterfoil.evaluation.mistaken_order import better_order
from counterfoil.evaluation.result_files import FOLDER, entry_files, stale_entries
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import (
    GivenModel,
    NamedModel,
    given_models,
    named_models,
    refuse_uncompared,
    short_name,
    with_compared,
    with_gate,
    with_public_names,
)
from counterfoil.evaluation.scores import AllAnswers, Asking
from counterfoil.evaluation.subject import open_subject, usual_side
from counterfoil.evaluation.trained_on import mended_notes, refuse_trained_on
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.prediction.class_map import ClassMap, Order, Outputs, folder_orders, map_classes
from counterfoil.prediction.passes import WORKERS_IMPORT, Placement
from counterfoil.prediction.predictions import joined
from counterfoil.progress import report
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import REPOSITORY
from counterfoil.regular_files import named_path
from counterfoil.report.results import NESTED, ClassFacts, ModelFacts, ResultRow, ResultRows, Results
from counterfoil.report.words import listed, percent
from counterfoil.stats import CONFIDENCE, REPLICATES
from counterfoil.store.atomic import make_folder, remove_stale, try_folder, write_atomically
from counterfoil.store.directory_lock import writing_lock
from counterfoil.store.inside import refuse_written_inside
from counterfoil.store.layout import PRIVATE

# What every evaluation writes, and what one writes where it has something to write.
_ALWAYS = ("results.csv", "report.html", "predictions.parquet")
_AT_TIMES = ("classes.csv", *(shown.file for shown in NESTED.values() if shown.file), "gate.md", "gate.xml")


def evaluate(
    dataset: str | Path,
    models: str | Path | Sequence[str | Path] | Mapping[str, Callable[[Any], Any] | str] | None = None,
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
) -> Evaluation:
    """Score models on a dataset and write tables and a report.

    Predictions are cached by content and reused. If a run is killed, call the function again: every model resumes where
    it stopped. A callable's predictions are cached only under a `version`, because its code cannot be hashed. A model
    or class whose base accuracy is near chance (`near_chance`) is in the tables, but averages leave it out.

    `out` receives results.json, measures.csv (every number in one table), results.csv, robustness.csv, shifts.csv,
    classes.csv, report.html and predictions.parquet. The last has a row per image: key, label, shift, the path for
    images in a folder, and each model's answer, confidence and whether the answer is right. `failures()` of the result
    reads it as a DataFrame. Some datasets add files and fields of the result:

    - A dataset with mined shifts adds findings.csv and `findings`: each model's failure rate over all candidates that
      passed the screen, before a classifier's rule selected some, compared with the base.
    - A dataset whose keep rules select what classifiers get wrong adds transfer.csv and `transfer`: how often each
      model fails on the images that a judge got wrong.

    A torch module receives a tensor on `device`, in eval mode; its mode and device are restored afterwards. Any other
    callable receives a numpy array. With several workers, a script that calls this needs `if __name__ == "__main__":`.

    Outputs are matched to classes by name if the model tells names (a callable by an attribute `label_names`), and
    otherwise by position, unless training programs sort these classes in different orders. What cannot be matched is
    refused; `models[].matched` of the result says how each model was matched.

    Args:
        dataset: A dataset directory or a Hub id. Or any images with labels: a folder (imagefolder, Parquet,
            WebDataset), a Hub dataset, `lab:wardrobe:validation`, or `source:SPLIT` for a split of the recipe's input
            dataset. Name a split after a colon.
        models: Names of models, or a mapping from names to callables or names: `{"mine": model}`. A callable takes a
            batch and returns scores [b, classes]. `python:package.module:function` names one of your own code: the
            function takes nothing and returns a module and its transform, or it takes a batch itself. A file with one
            name per line also works: a Path, `@FILE` or a `.txt` file. None: the recipe's models.
        transform: Prepares each PIL image for a callable: one function for all, or a mapping by name. A torch module
            needs one, unless timm made it. None: other callables take float32 [3, height, width] from 0 to 1.
        version: A text that names what a callable and its transform compute, one for all or a mapping by name. Their
            predictions are then cached too, and used again for the same name, version, weights and images. Change the
            version whenever you change the code. None: they are computed each time.
        recipe: The recipe whose classes the labels of other images are. None: the images' own classes.
        base: The group that the others are compared with, for images that no build made. None: accuracies only.
        groups: The column that holds groups, or "configs", for images that no build made.
        beside: Natural test sets to score as further groups: a mapping from names to images.
        out: Folder for the tables and the report. None: `.counterfoil/evaluation/` inside the dataset, which is neither
            published nor compared, or the user's cache for other images.
        device: `auto`, `cpu`, `cuda` (every GPU) or a list such as `cuda:0,cuda:2`.
        batch_size: Images per batch. It does not change the results.
        min_images_per_class: Leave out classes with fewer accepted images. None: the recipe's value.
        outputs: Of a model with more outputs than the dataset has classes, whether it answers over "all" of them or
            over those of the "classes" alone. Both accuracies are computed; drops and tables follow this one. None:
            the recipe's, which is "all" by default.
        class_order: Which class each output is, whatever the model says: "position" (output i is label i of the
            dataset), "timm" (class folders as timm sorts them), the names, or a file with a name on each line. A
            mapping from names of models gives each its own. Files of predictions and open_clip need none.
        seed: Seed of the bootstrap.
        into_card: Also store the results in the dataset (`evaluation/`) and show them on its card until its images
            change. Building again keeps them.
        repo: The dataset's `user/name` on the Hub. If it is known, `eval_results/` gets one YAML file per model with
            evaluation-result entries for the model's repository. None: the recipe's `publish.repo`, or the repository
            that the dataset came from.
        distances: Models in whose features the dataset is compared with its source, as a whole and shift by shift:
            "clip" (the recipe's own) or a classifier. The result and distances.csv have KID with its interval and FID,
            and compare the source's two splits with each other for scale. A source that is not available is skipped,
            and the result gives the reason.
        against: Images to measure distances to instead of the source, named like `dataset`.
        compare: A mended model and its original. Both are scored even if `models` lacks them; without `models`, only
            these two. For each group, the result, compare.csv and the report compare the two models image by image:
            where the mended model is right more often and where less often, with intervals and exact tests adjusted for
            all groups, and whether it loses more elsewhere than it gains. A model with a `mended.json` is never scored
            on the data that it was mended on.
        reference: Also score the models on the source's validation split, at most 50 images per class. `reference` in
            the result then says how far accuracy on the base is from accuracy on the input dataset. None: do so if the
            source is available. True: fetch it from the Hub if necessary. False: skip it. A source that is not
            available is skipped, and the result gives the reason.
        gate: A file with a YAML list of lines that a model has to meet, or the lines: `accuracy(base) >= 80`,
            `drop(at_night) <= 10`, `worse_than(MODEL, any) <= 2`. `gate` of the result has pass, fail or undecided for
            each line and model, and gate.md and gate.xml are written. MODEL is scored too, and not judged.
        allow_undecided: Do not count undecided lines of the gate as errors.
        workers: Worker processes per device. None: one per GPU, or on a CPU one per core from 2,000 images on.
        engine: Where models run, such as a cluster. None: on this machine. Callables always run in this process.

    Returns:
        An Evaluation with every number, and the paths of the files.

    Raises:
        UserError: A dataset, model or class map cannot be used. The message lists all problems together.
        RunFailure: A model cannot be fetched or run. The other models are scored and kept first.
    """
    if repo is not None and not REPOSITORY.fullmatch(repo):
        raise UserError(f"the dataset's repository is {repo!r}: expected user/name")
    if into_card:
        from counterfoil.evaluation.result_files import make_ready

        if beside:
            raise UserError("into_card stores the results of a dataset's own shifts", "Leave out one of the two.")
        make_ready(dataset)
    subject = open_subject(dataset, recipe, base, groups, beside or {})
    if into_card and subject.directory is None:
        raise UserError(f"{dataset} is not a built dataset, so it has no card for results")
    if allow_undecided and gate is None:
        raise UserError("allow_undecided goes with a gate, and none is given", "Leave it out, or give one.")
    lines = () if gate is None else read_gate(gate)
    asked = with_compared(models, compare)
    models = with_gate(asked, subject.models, models_of(lines))
    given = given_models(asked, transform, version, subject.parts[0].images, subject.classes)
    way = outputs or (None if subject.recipe is None else subject.recipe.evaluate.outputs) or "all"
    made_by, used_device = engine_and_device(device, workers, engine)
    # The engine whose workers answer; None where this process does. Who asks for several workers has them.
    workers_of = Placement(made_by, used_device, tuple(subject.classes), frozenset(given))
    spread = workers_of if workers is not None and workers > 1 else workers_of.worth_for(len(subject.keys))
    if spread is not None:
        made_by.expect(WORKERS_IMPORT)
    names, maps = _named(subject, models, given, way, class_order)
    if batch_size < 1:
        raise UserError(f"batch size {batch_size}: expected 1 or more")
    minimum = subject.min_images_per_class if min_images_per_class is None else min_images_per_class
    if minimum < 1:
        raise UserError(f"min_images_per_class is {minimum}: expected 1 or more")
    refuse_uncompared(names, compare)
    judged = judged_models(lines, names) if lines else ()
    stands_for = {name: models[name] if isinstance(models, Mapping) else name for name in names}
    mended = mended_notes({name: model for name, model in stands_for.items() if isinstance(model, str)})
    refuse_trained_on(subject, mended)
    prepared = prepared_distances(subject, distances, against)
    prepared_there = prepared_reference(subject, stands_for, tuple(mended), reference)
    folder = _report_folder(subject, out)

    def load(name: str) -> Classifier:
        return given[name].load() if name in given else load_classifier(name, classes=subject.classes)

    # Where no model has other outputs, there is no choice to tell of.
    told = way if any(own.own is not None for own in maps.values()) else "all"
    asking = Asking(maps, load, used_device, batch_size, spread, stands_for, mended, told)
    # Part after part: each part's answers are kept by its own content.
    parts = [asking.scored(part.images, names, subject.workplace / "predictions") for part in subject.parts]
    scored = [
        replace(parts[0][name], predictions=joined([part[name].predictions for part in parts]))
        if len(parts) > 1
        else parts[0][name]
        for name in names
    ]
    requests = (prepared, prepared_there, *([] if compare is None else [ComparedModels(*compare)]))
    answered = AllAnswers.of(subject, scored, minimum, seed, asking, requests)
    # The bootstraps of drops are what takes long, and many measures share them.
    for done, place in enumerate(answered.shifts, start=1):
        if subject.base:
            answered.drops(place)
        report("measuring", done, len(answered.shifts))
    there = [] if prepared_there.images is None else [prepared_there.images]
    results = _results(answered, usual_side([subject.parts[0].images, *there]))
    unreadable, paths = np.flatnonzero(~answered.answers.readable).tolist(), subject.paths
    evaluation = Evaluation(
        results,
        dataset=subject.source,
        directory=subject.directory,
        unreadable=tuple(subject.keys[row] for row in unreadable),
        files={},
        unreadable_paths=() if paths is None else tuple(paths[row] for row in unreadable),
        gate=judge_gate(answered, lines, judged, results.label_checks, allow_undecided) if lines else None,
        notes=subject.notes,
    )
    dataset_id = repo or (subject.published.repo if subject.published else subject.repo)
    with writing_lock(folder):  # of two evaluations into one folder the files are those of one
        written = _write(evaluation, answered, folder, dataset_id)
    if not into_card:
        return written
    from counterfoil.evaluation.result_files import store_results

    return replace(written, files={**written.files, "card": store_results(written, dataset_id)})


def _report_folder(subject: Subject, out: Path | None) -> Path:
    """The folder of the report, made before the long work, so that a place one may not write to shows at once."""
    folder = named_path(out) if out is not None else subject.workplace / "evaluation"
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder", "Name another with --out.")
    if subject.directory is not None:
        refuse_written_inside(folder, subject.directory, subject.workplace)
    try_folder(folder)
    make_folder(folder)
    return folder


def _named(
    subject: Subject,
    models: str | Path | Sequence[str | Path] | Mapping[str, Any] | None,
    given: Mapping[str, GivenModel],
    outputs: Outputs,
    class_order: ClassOrder | Mapping[str, ClassOrder] | None,
) -> tuple[tuple[str, ...], dict]:
    """The models to score, and the class map of each, before any weight is loaded; problems come all together."""
    if outputs not in get_args(Outputs):
        raise UserError(f"outputs is {outputs!r}: expected {' or '.join(get_args(Outputs))}")
    if outputs == "classes" and subject.judged.shifts:
        raise UserError(
            "this dataset's images were chosen by what classifiers answered over all their outputs, so accuracies over"
            " its classes alone cannot be compared with that choice",
            "Leave out `outputs: classes`.",
        )
    if models is None:
        # Names only: the recipe of a published dataset must not make this machine read files.
        named, problems = tuple(NamedModel(name) for name in dict.fromkeys(subject.models)), ()
    elif isinstance(models, Mapping):
        named, problems = tuple(NamedModel(name) for name in given), ()
    else:
        named, problems = named_models([models] if isinstance(models, str | Path) else models)
    if not named and not problems:
        raise UserError(
            "no model to score: none was named, and the recipe lists none under evaluate.models",
            "Name some: counterfoil evaluate DATASET --models resnet50 lab:resnet10t",
        )
    names = [one.name for one in named]
    stands_for = {name: models.get(name) if isinstance(models, Mapping) else name for name in names}
    maps = _class_maps(subject, named, given, problems, class_orders(class_order, stands_for))
    if outputs == "classes" and (files := [name for name, own in maps.items() if own.most_ranked is not None]):
        raise UserError(
            [f"model {name!r} is a file of labels: its answers among the classes alone are unknown" for name in files],
            "Give a column of scores for each class, or leave out `outputs: classes`.",
        )
    return tuple(names), {name: own.answered_both_ways(outputs) for name, own in maps.items()}


def _class_maps(
    subject: Subject,
    named: Sequence[NamedModel],
    given: Mapping[str, GivenModel],
    problems: Sequence[str],
    orders: Mapping[str, Order],
) -> dict[str, ClassMap]:
    maps: dict[str, ClassMap] = {}
    found: list[CounterfoilError] = [UserError(problem) for problem in problems]
    classes = subject.classes
    # Ids of classes that no recipe wrote are numbers, which an output may be called by chance.
    without_ids = subject.directory is None and subject.recipe is None
    matched = [replace(one, id=one.name) for one in classes] if without_ids else classes
    for model in named:
        try:
            own = given.get(model.name)
            facts = own.facts if own else describe_classifier(model.name, classes)
            maps[model.name] = map_classes(matched, facts, orders.get(model.name))
        except CounterfoilError as error:
            if model.place:
                error = type(error)([f"{model.place}: {problem}" for problem in error.problems], error.hint)
            found.append(error)
    raise_together(found)
    return maps


def _results(answered: AllAnswers, image_side: int | None) -> Results:
    """The document: facts, and the rows of every measure."""
    subject = answered.subject
    rows: list[ResultRow] = []
    nested: dict[str, Any] = {}
    for measure in MEASURES.values():
        rows += measure.rows(answered)
    for name, measure in NESTED_MEASURES.items():
        nested[name], own = measure.measure(answered)
        rows += own
    return Results(
        content=subject.content,
        dataset=subject.name,
        seed=answered.seed,
        min_images_per_class=answered.min_images,
        confidence=CONFIDENCE,
        replicates=REPLICATES,
        paired=any(group.paired for group in subject.groups),
        unreadable=int((~answered.answers.readable).sum()),
        image_side=image_side,
        base=subject.groups[0].name if subject.base else None,
        outputs=answered.asking.outputs,
        classes=tuple(ClassFacts(one.id, one.name) for one in subject.classes),
        models=tuple(_model_facts(answered, model) for model in range(len(answered.scored))),
        groups=tuple(answered.facts(place) for place in answered.places),
        measures=tuple(one.facts(name) for name, one in MEASURES.items()),
        rows=ResultRows(rows),
        **nested,
    )


def _model_facts(answered: AllAnswers, model: int) -> ModelFacts:
    scored, near_chance = answered.scored[model], bool(answered.near_chance.models[model])
    one, shares = scored.classifier, scored.predictions.shares
    # Images whose two best answers have one softmax: a file's rounded scores, or a model that knows neither.
    tied = scored.predictions.readable & (shares[:, 0] == shares[:, 1]) if shares.shape[1] > 1 else np.zeros(1, bool)
    return ModelFacts(
        name=one.name,
        short_name=short_name(one.name),
        architecture=one.architecture,
        outputs=scored.class_map.outputs,
        num_classes=one.num_classes,
        img_size=one.input_size[-1] if one.input_size else None,
        crop_pct=one.crop_pct,
        interpolation=one.interpolation,
        param_count=one.param_count,
        sha256=one.sha256 or "",
        top_k=scored.class_map.top_k,
        chance=float(scored.class_map.chances.mean()),
        near_chance=near_chance,
        tied=int(tied.sum()),
        matched=scored.class_map.matched,
        likely_order=_likely_order(answered, model) if near_chance else "",
    )


def _likely_order(answered: AllAnswers, model: int) -> str:
    """In which other order the outputs of a model near chance look to stand, in words; empty where in none."""
    class_map, classes = answered.maps[model], answered.subject.classes
    outputs = np.array([own[0] for own in class_map.targets])
    if len(np.unique(outputs)) < len(outputs) or any(len(own) > 1 for own in class_map.targets):
        return ""
    # Classes are numbered as their outputs stand.
    class_at = np.argsort(outputs)
    place_of, place_of_output = np.argsort(class_at), np.full(class_map.num_classes, -1)
    place_of_output[outputs] = place_of
    groups = (0,) if answered.subject.base else answered.places
    rows = np.concatenate([answered.rows(group) for group in groups])
    found = better_order(
        place_of[answered.subject.labels[rows]],
        place_of_output[answered.answers.prediction[rows, model]],
        len(outputs),
        [(f"to be in {whose} order of the class names", place_of[order])
         for whose, order in folder_orders(classes).items()],
    )  # fmt: skip
    if found is None:
        return ""
    moved = np.flatnonzero(found.means != np.arange(len(outputs)))
    meant = [f"output {outputs[class_at[at]]} is {classes[class_at[found.means[at]]].name}" for at in moved[:3]]
    told = f"{', '.join(meant)} and so on" if len(moved) > 3 else listed(meant)
    return (
        f"{found.kind}: {percent(found.better.value)} of images are right if {told}, and"
        f" {percent(found.given.value)} as they are matched. Check --class-order."
    )


def _write(evaluation: Evaluation, answered: AllAnswers, folder: Path, dataset_id: str | None) -> Evaluation:
    from counterfoil.evaluation.failures import pick_examples, write_failures
    from counterfoil.evaluation.report import report_html
    from counterfoil.evaluation.result_files import predictions_parquet, result_tables

    subject, results = answered.subject, evaluation.results
    examples = pick_examples(answered, results)
    pictures = {name: measure.pictures(answered, results) for name, measure in NESTED_MEASURES.items()}
    failures = write_failures(results, answered, folder)
    texts = {
        **result_tables(results),
        "document": ("results.json", document_text(results)),
        "report": ("report.html", report_html(results, examples, evaluation.unreadable, pictures)),
    }
    if evaluation.gate is not None:
        from counterfoil.evaluation.gate_files import JUNIT, MARKDOWN, gate_junit, gate_markdown

        texts["gate"] = (MARKDOWN, gate_markdown(evaluation.gate))
        texts["junit"] = (JUNIT, gate_junit(evaluation.gate))
    entries: dict[str, bytes] = {}
    if dataset_id is not None and subject.base and len(subject.parts) == 1:
        # The commit that a published dataset was named by; a branch or a tag may move.
        revision = subject.published.revision if subject.published else None
        commit = revision if revision and re.fullmatch(r"[0-9a-f]{40}", revision) else None
        entries = entry_files(with_public_names(results), dataset_id, commit)
    # What an earlier evaluation left here and this one does not write would stand beside a report that it is not of. In
    # a folder without an earlier report files of these names are somebody's own.
    if all((folder / name).is_file() for name in _ALWAYS):
        written = {file for file, _ in texts.values()}
        remove_stale(folder, [name for name in _AT_TIMES if name not in written])
        remove_stale(folder / FOLDER, old := stale_entries(folder / FOLDER, entries.keys()))
        if old and not any((folder / FOLDER).iterdir()):
            (folder / FOLDER).rmdir()
    files = {"failures": failures}
    for name, (file, text) in texts.items():
        write_atomically(folder / file, text.encode())
        files[name] = (folder / file).resolve()
    files["predictions"] = (folder / "predictions.parquet").resolve()
    write_atomically(files["predictions"], predictions_parquet(answered))
    if entries:
        files["entries"] = (folder / FOLDER).resolve()
        for file, content in entries.items():
            write_atomically(files["entries"] / file, content)
    write_index(folder.parent.parent if folder.parent.name == PRIVATE else folder)
    return replace(evaluation, files=files)
