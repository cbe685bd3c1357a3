"""Evaluate models on a dataset: open it, take its task, ask the models, and conclude."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.errors import UserError, collected_in, raise_together, warn
from counterfoil.evaluation.dataset import open_subject
from counterfoil.evaluation.gate import GateLine, judge_gate, judged_models, models_of, read_gate
from counterfoil.evaluation.options import EvaluateArguments, EvaluationOptions
from counterfoil.evaluation.result_files import make_ready, report_folder, write_results
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.task import Task
from counterfoil.evaluation.tasks import task_of
from counterfoil.models.classifiers.of_python import by_name
from counterfoil.options import takes


@takes(EvaluateArguments)
def evaluate(given: EvaluateArguments) -> Evaluation:
    """Score models on a dataset and write tables and a report.

    Predictions are cached by content and reused. If a run is killed, call the function again: every
    model resumes where it stopped. Accuracies are averaged over all classes. A drop leaves out
    classes whose base accuracy is near chance (`near_chance`), and says how many remain; averages
    over models leave out models that are.

    `out` receives results.json, measures.csv (every number in one table), results.csv,
    robustness.csv, shifts.csv, classes.csv, report.html and predictions.parquet, which has a row
    per image and which `failures()` of the result reads as a DataFrame. A dataset with mined shifts
    adds findings.csv and `findings`: each model's failure rate over all candidates that passed the
    screen, compared with the base. A dataset whose keep rules select what classifiers get wrong
    adds transfer.csv and `transfer`: how often each model fails on the images that a judge got
    wrong.

    A torch module receives a tensor on `device`, in eval mode; its mode and device are restored
    afterwards. Any other callable receives a numpy array. Both answer in this process, however many
    workers there are.

    Outputs are matched to classes by name if the model has names (a callable by an attribute
    `label_names`), and otherwise by position, unless training programs sort these classes in
    different orders. Unmatched outputs are an error; `models[].matched` of the result says how each
    model was matched.

    Returns:
        An Evaluation with every number, and the paths of the files.

    Raises:
        UserError: A dataset, model or class map cannot be used. The message lists all problems
            together.
        RunFailure: A model cannot be fetched or run. The other models are scored and kept first.
    """
    given.check()
    task = opened_task(given)
    lines, errors = read_gate(given.gate, task.line_problems, task.measures)
    judged: tuple[str, ...] = ()
    with collected_in(errors):
        names = task.choose_models(models_of(lines))
        judged = judged_models(lines, names)
    with collected_in(errors):
        task.read_earlier(lines, judged)
    raise_together(errors)
    task.prepare()
    folder = report_folder(task.subject, given.out, given.limit)
    task.ask(names)
    evaluation = measure_and_judge(task, lines, judged, given)
    evaluation = write_results(evaluation, task, folder, into_card=given.into_card)
    for warning in task.warnings(evaluation.results):
        warn(warning)
    return evaluation


def opened_task(given: EvaluateArguments) -> Task:
    """Open a dataset, and return its task of evaluating models."""
    dataset = given.dataset
    models = by_name(given.models)
    if given.into_card:
        make_ready(dataset)
    subject = open_subject(dataset, given.recipe, given.base, given.groups, given.beside or {})
    given.refuse_preview(subject.preview)
    if given.into_card and subject.directory is None:
        raise UserError(f"{dataset} is not a built dataset, so it has no card for results")
    return task_of(subject)(subject, models, given)


def measure_and_judge(
    task: Task, lines: Sequence[GateLine], judged: Sequence[str], given: EvaluationOptions
) -> Evaluation:
    """Measure the answers of a task's models, and judge them by the lines of a gate. No file is
    written."""
    results = task.results()
    subject = task.subject
    gate = None
    if lines:
        gate = judge_gate(task.comparing(results), lines, judged, given.allow_undecided)
    return Evaluation(
        results,
        dataset=subject.source,
        directory=subject.directory,
        unreadable=task.unreadable,
        files={},
        unreadable_paths=task.unreadable_paths,
        gate=gate,
        notes=(*subject.notes, *task.notes(results)),
        task=task,
    )
