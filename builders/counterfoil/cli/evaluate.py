"""`counterfoil evaluate`: score classifiers on a dataset; print the drops and the paths of the
report."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from counterfoil.cli.options import Given, Opened, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import make_console, open_page, print_json, print_line
from counterfoil.errors import UserError
from counterfoil.evaluation.options import EvaluateArguments, EvaluateCommand
from counterfoil.report.terminal_tables import PIPED_WIDTH, print_table
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.evaluation.results import Evaluation

# In printing order. Files of nested measures come between the first and the last files.
_FIRST_FILES = (
    "report",
    "failures",
    "document",
    "measures",
    "results",
    "robustness",
    "corruptions",
    "shifts",
    "classes",
)
_LAST_FILES = (
    "predictions",
    "entries",
    "gate",
    "junit",
    "card",
    "exported",
)
_SHOWN_AS = {"document": "json", "card": "on the card"}


@with_options(
    "counterfoil evaluate out/wardrobe-mini --models lab:resnet10t models.txt --into-card",
    EvaluateCommand,
    Opened,
)
def evaluate(given: Given) -> None:
    """Evaluate classifiers on a dataset or any labelled images, and report the accuracy drop under
    each shift."""
    if (out := given.get("--write-keys")) is not None:
        _write_keys(given, out)
        return
    arguments = given.made(EvaluateArguments)
    evaluation = evaluate_and_print(arguments, given)
    if (
        arguments.into_card
        and "entries" not in evaluation.files
        and evaluation.results.lead == "accuracy"
    ):
        print_line(
            "No evaluation-result entries were written for the Hub: the dataset's name there is"
            " unknown. Give it as --repo USER/NAME, or as publish.repo in the recipe.",
            err=True,
        )
    if evaluation.gate is not None and evaluation.gate.exit_code:
        raise typer.Exit(evaluation.gate.exit_code)


def evaluate_and_print(arguments: EvaluateArguments, given: Given) -> Evaluation:
    """Evaluate models, print the results, export failures, and send results to trackers."""
    from counterfoil.data.labelled_sources import refuse_among_images
    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.evaluation.failure_folder import check_new_folder
    from counterfoil.evaluation.trackers import check_trackers
    from counterfoil.report.results import NESTED

    export = given.get("--export-failures")
    trackers = given.get("--report-to") or ()
    check_trackers(trackers)
    if export is not None:
        folder = check_new_folder(export)
        refuse_among_images(folder, arguments.dataset)
        report = arguments.out
        if report is not None and report.resolve().is_relative_to(folder.resolve()):
            raise UserError("--export-failures names the folder of the report", "Name another one.")
    with StageProgress():
        evaluation = evaluate(**vars(arguments))
        if export is not None:
            exported = evaluation.export_failures(export)
            evaluation = replace(
                evaluation,
                files={**evaluation.files, "exported": exported},
            )
    if given.json:
        print_json(evaluation.to_json())
    else:
        _print(evaluation)
    if "report" in evaluation.files:
        open_page(Path(evaluation.files["report"]), given.get("--open"))
    for nested in NESTED.values():
        for sentence in nested.skipped(evaluation.results):
            print_line(sentence, err=True)
    if evaluation.gate is not None and not given.json:
        from counterfoil.evaluation.gate import gate_sentence, terminal_table

        print_table(make_console(PIPED_WIDTH), terminal_table(evaluation.gate))
        print_line(gate_sentence(evaluation.gate))
    evaluation.report_to(*trackers)
    return evaluation


def _write_keys(given: Given, out: Path) -> None:
    taken = ("--recipe", "--groups", "--base")
    problems = given.strange("--write-keys", "evaluates nothing", *taken)
    if problems:
        raise UserError(problems, "--recipe, --groups and --base say which images are listed.")
    from counterfoil.evaluation.evaluate_dataset import write_keys

    arguments = given.made(EvaluateArguments)
    count = write_keys(
        arguments.dataset,
        out,
        recipe=arguments.recipe,
        base=arguments.base,
        groups=arguments.groups,
    )
    print_line(f"{count:,} images in {out}. Give predictions on them as --models predictions:FILE.")
    print_line("FILE is a table with the column key or path.")
    print_line(
        "For classes: also a label (a class's name), a class_id, or a column of scores for each."
    )
    print_line("For several labels: a column of scores for each label.")
    print_line(
        "For a detector: one row per detection, with category, score and bbox, or COCO results."
    )
    print_line("For a segmenter: a column mask of PNG, or predictions:FOLDER with KEY.png.")


def _print(evaluation: Evaluation) -> None:
    """Print the tables, the report's first sentences and every path."""
    from counterfoil.regular_files import on_a_line
    from counterfoil.report.results import NESTED
    from counterfoil.store.decoding import UNREAD

    results = evaluation.results
    task = evaluation.task
    if results.preview:
        print_line(results.preview_sentence)
    for note in evaluation.notes:
        print_line(f"Note: {note}")
    lines = () if task is None else task.terminal(results)
    for line in lines:
        if isinstance(line, str):
            print_line(line)
        else:
            print_table(make_console(PIPED_WIDTH), line)
    if evaluation.unreadable:
        names = []
        for key, path in zip_longest(evaluation.unreadable, evaluation.unreadable_paths):
            names.append(on_a_line(path or key))
        images = format_count(len(names), "image")
        verb = "is" if len(names) == 1 else "are"
        more = " …" if len(names) > 5 else ""
        shown = ", ".join(names[:5])
        print_line(f"{images} could not be read ({UNREAD}) and {verb} left out: {shown}{more}")
    nested_files = [Path(nested.file).stem for nested in NESTED.values()]
    ordered = dict.fromkeys((*_FIRST_FILES, *nested_files, *evaluation.files))
    others = [name for name in ordered if name not in _LAST_FILES]
    for name in (*others, *_LAST_FILES):
        if name in evaluation.files:
            label = f"{_SHOWN_AS.get(name, name)}:"
            # Plain echo, so that a path is never wrapped or styled.
            print_line(f"{label:<12} {evaluation.files[name]}")
