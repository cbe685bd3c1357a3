"""`counterfoil evaluate`: score classifiers on a dataset; print the drops and the paths of the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from counterfoil.cli.options import (
    AddressOption,
    DatasetArgument,
    EngineOption,
    JsonOption,
    LimitOption,
    ManyValues,
    OpenOption,
    named_values,
)
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import open_page, print_json, print_table, say, terminal
from counterfoil.errors import UserError
from counterfoil.report.words import MOST_TERMINAL_ROWS, counted

if TYPE_CHECKING:
    from counterfoil.evaluation.results import Evaluation

app = typer.Typer()

PIPED_WIDTH = 160

# In printing order. Files of nested measures come between the first and the last files.
_FIRST_FILES = ("report", "failures", "document", "measures", "results", "robustness", "shifts", "classes")
_LAST_FILES = ("predictions", "entries", "gate", "junit", "card", "exported")
_SHOWN_AS = {"document": "json", "card": "on the card"}


@app.command(
    cls=ManyValues,
    epilog="Example: counterfoil evaluate out/wardrobe-mini --models lab:resnet10t models.txt --into-card",
)
def evaluate(
    context: typer.Context,
    dataset: DatasetArgument,
    models: Annotated[
        list[str] | None,
        Option(
            "--models",
            "-m",
            metavar="NAME...",
            help="Models to evaluate, several after one flag: timm names, hf-hub:…, local-dir:…, lab:…, "
            "transformers:NAME or FOLDER, open_clip:ARCH/TAG (zero-shot), onnx:FILE, "
            "predictions:FILE (.csv or .parquet), python:PACKAGE.MODULE:FUNCTION (your own code). A .txt "
            "file (or @FILE) lists one name per line; # begins a comment. Default: the recipe's.",
        ),
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder for the tables and the report.")] = None,
    device: Annotated[str, Option(help="Where to compute: auto, cpu, cuda (every GPU), cuda:0,cuda:2 …")] = "auto",
    batch_size: Annotated[int, Option(min=1, help="Images per batch. Does not change results.")] = 64,
    min_images: Annotated[
        int | None, Option(min=1, help="Leave classes with fewer accepted images out of drops. Default: the recipe's.")
    ] = None,
    outputs: Annotated[
        Literal["all", "classes"] | None,
        Option(
            help="Whether models answer over all their outputs, or over those of the dataset's classes alone. Both"
            " accuracies are computed; this one leads. Default: the recipe's (all)."
        ),
    ] = None,
    class_order: Annotated[
        list[str] | None,
        Option(
            metavar="[MODEL=]ORDER",
            help="Which class each output is, whatever a model says: `position` (output i is label i of the dataset),"
            " `timm` (class folders as timm sorts them), or a file with a class on each line. For all models, or"
            " repeated for one each. Default: by name, or by position if all training programs agree on it. Detections"
            " with numbers of categories also take `from1`, `ids`, `coco80` and `coco91`.",
        ),
    ] = None,
    scores_are: Annotated[
        list[str] | None,
        Option(
            metavar="[MODEL=]SCALE",
            help="What a model's scores are: probabilities, percent, log-probabilities, logits or sigmoids. For all"
            " models, or repeated for one each. Default: as their sums show.",
        ),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the bootstrap.")] = 0,
    into_card: Annotated[
        bool,
        Option("--into-card", help="Also store the results in the dataset (evaluation/) and show them on its card."),
    ] = False,
    repo: Annotated[
        str | None,
        Option(
            metavar="USER/NAME",
            help="The dataset's name on the Hub, for the Hub's evaluation-result entries. Default:"
            " the recipe's publish.repo.",
        ),
    ] = None,
    recipe: Annotated[
        str | None, Option(help="For images from elsewhere: the recipe whose classes their labels use.")
    ] = None,
    groups: Annotated[
        str | None,
        Option(
            metavar="COLUMN", help="For images from elsewhere: the column that holds each image's group, or `configs`."
        ),
    ] = None,
    base: Annotated[str | None, Option(metavar="GROUP", help="The group that all others are compared with.")] = None,
    beside: Annotated[
        list[str] | None,
        Option(metavar="NAME=IMAGES", help="Also evaluate on other images, such as a natural test set."),
    ] = None,
    distances: Annotated[
        list[str] | None,
        Option(
            metavar="FEATURES",
            help="Also measure the distance (KID, FID) between these images and the source's, in the features of "
            "`clip` (the recipe's own) or of a classifier. Repeatable.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        Option(metavar="IMAGES", help="With --distances: measure the distance to these images, not to the source's."),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="MODEL OTHER",
            help="Compare a model with another image by image, such as a mended one with its original. They need not be"
            " in --models.",
        ),
    ] = None,
    reference: Annotated[
        bool | None,
        Option(
            "--reference/--no-reference",
            help="Also evaluate on the source's validation images, at most 50 per class, to see whether the base is"
            " like them. Default: if the source is on this machine; --reference also downloads it.",
            show_default=False,
        ),
    ] = None,
    gate: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A YAML list of lines that the models must meet, such as drop(at_night) <= 10. Exit code 3 if a line"
            " fails, 4 if one is undecided. Writes gate.md and gate.xml (JUnit) beside the report.",
        ),
    ] = None,
    allow_undecided: Annotated[
        bool, Option("--allow-undecided", help="With --gate: exit with 0 if no line fails.")
    ] = False,
    export: Annotated[
        Path | None,
        Option(
            "--export-failures",
            metavar="FOLDER",
            help="Also write the images that a model gets wrong to a new folder: by class, as CSV and COCO, and as a"
            " dataset of FiftyOne.",
        ),
    ] = None,
    report_to: Annotated[
        list[str] | None,
        Option(
            metavar="TRACKER...",
            help="Also send the results to experiment trackers, one run each: wandb, mlflow, trackio, tensorboard."
            " Their own environment says where, and with which key.",
        ),
    ] = None,
    write_keys: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Evaluate nothing: write a CSV of the images (key, path, class_id, label). Another program can then"
            " predict on them, and `--models predictions:FILE` reads its predictions.",
        ),
    ] = None,
    limit: LimitOption = None,
    workers: Annotated[
        int | None,
        Option(min=1, help="Processes. Default: one per GPU; on a CPU one, or from 2,000 images on one per core."),
    ] = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Evaluate classifiers on a dataset or any labelled images, and report the accuracy drop under each shift."""
    if write_keys is not None:
        _write_keys(context, dataset, write_keys, recipe, groups, base)
        return
    from counterfoil.models.names import usable_name

    models = [usable_name(name) for name in models or ()]  # at once, before libraries load
    from counterfoil.engines import EngineChoice
    from counterfoil.evaluation.evaluate_dataset import evaluate
    from counterfoil.evaluation.failure_folder import check_new_folder
    from counterfoil.evaluation.trackers import check_trackers
    from counterfoil.report.results import NESTED

    check_trackers(report_to or ())
    if export is not None:
        _check_export(check_new_folder(export), dataset, out)
    with StageProgress():
        evaluation = evaluate(
            dataset, models or None, out=out, device=device, batch_size=batch_size, min_images_per_class=min_images,
            outputs=outputs, class_order=_for_models("--class-order", class_order, "local-dir:my-model=timm"),
            scores_are=_for_models("--scores-are", scores_are, "predictions:answers.csv=percent"),
            seed=seed, into_card=into_card, repo=repo,
            recipe=recipe, groups=groups, base=base, distances=distances, against=against, compare=compare,
            beside=named_values("--beside", beside or (), "NAME=IMAGES", "v2=vaishaal/ImageNetV2:test"),
            reference=reference, gate=gate, allow_undecided=allow_undecided, workers=workers,
            engine=EngineChoice(engine, address), limit=limit,
        )  # fmt: skip
        if export is not None:
            evaluation = replace(evaluation, files={**evaluation.files, "exported": evaluation.export_failures(export)})
    if json:
        print_json(evaluation.to_json())
    else:
        _print(evaluation)
    if "report" in evaluation.files:
        open_page(Path(evaluation.files["report"]), opened)
    for nested in NESTED.values():
        for sentence in nested.skipped(evaluation.results):
            say(sentence, err=True)
    if evaluation.gate is not None and not json:
        from counterfoil.evaluation.gate import gate_sentence, gate_table

        table = gate_table(evaluation.gate).first(MOST_TERMINAL_ROWS, "rows", "gate.md")
        print_table(terminal(PIPED_WIDTH), table)
        say(gate_sentence(evaluation.gate))
    of_hub = into_card and context.info_name != "demo"  # the demo's dataset goes to no repository
    if of_hub and "entries" not in evaluation.files and evaluation.results.lead == "accuracy":
        say(
            "No evaluation-result entries were written for the Hub: the dataset's name there is unknown."
            " Give it as --repo USER/NAME, or as publish.repo in the recipe.",
            err=True,
        )
    evaluation.report_to(*report_to or ())
    if evaluation.gate is not None and evaluation.gate.exit_code:
        raise typer.Exit(evaluation.gate.exit_code)


def _check_export(folder: Path, dataset: str, out: Path | None) -> None:
    """Raise UserError if failures cannot be exported to this folder."""
    from counterfoil.data.labelled_sources import refuse_among_images

    refuse_among_images(folder, dataset)
    if out is not None and folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise UserError("--export-failures names the folder of the report", "Name another one.")


def _for_models(option: str, words: list[str] | None, example: str) -> Any:
    """Return the value of an option for all models, or a mapping from names of models."""
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    return named_values(option, words, "MODEL=VALUE", example)


# Parameters that choose the images listed by `--write-keys`. All other parameters belong to an evaluation.
_OF_KEYS = {"dataset", "write_keys", "recipe", "groups", "base"}


def _write_keys(
    context: typer.Context, dataset: str, out: Path, recipe: str | None, groups: str | None, base: str | None
) -> None:
    option_of = {
        parameter.name: parameter.opts[0] for parameter in context.command.params if parameter.name is not None
    }
    others = []
    for name in option_of.keys() - _OF_KEYS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            others.append(option_of[name])
    if others:
        raise UserError(
            f"--write-keys evaluates nothing, so it takes no {', no '.join(sorted(others))}",
            "Leave out what is of an evaluation; --recipe, --groups and --base say which images are listed.",
        )
    from counterfoil.evaluation.result_files import write_keys

    count = write_keys(dataset, out, recipe=recipe, base=base, groups=groups)
    say(
        f"{count:,} images in {out}. Give predictions on them as --models predictions:FILE: a table with the column"
        " key or"
    )
    say("path, and with a label (a class's name), a class_id, or a column of scores for each class.")
    say("For several labels: a column of scores for each label.")
    say("For a detector: a row a detection, with category, score and bbox, or COCO results.")


def _print(evaluation: Evaluation) -> None:
    """Print the tables, the report's first sentences and every path."""
    from counterfoil.regular_files import on_a_line
    from counterfoil.report.results import NESTED
    from counterfoil.store.decoding import UNREAD

    results, task = evaluation.results, evaluation.task
    if results.preview:
        say(results.preview_sentence)
    for note in evaluation.notes:
        say(f"Note: {note}")
    for line in () if task is None else task.terminal(results):
        if isinstance(line, str):
            say(line)
        else:
            print_table(terminal(PIPED_WIDTH), line)
    if evaluation.unreadable:
        n = len(evaluation.unreadable)
        text = f"{counted(n, 'image')} could not be read ({UNREAD}) and {'is' if n == 1 else 'are'}"
        paths = evaluation.unreadable_paths or (None,) * n
        named = [on_a_line(path or key) for key, path in zip(evaluation.unreadable, paths, strict=True)]
        say(f"{text} left out: {', '.join(named[:5])}{' …' if n > 5 else ''}")
    first = (*_FIRST_FILES, *(Path(nested.file).stem for nested in NESTED.values()))
    others = [name for name in evaluation.files if name not in (*first, *_LAST_FILES)]
    for name in (*first, *others, *_LAST_FILES):
        if name in evaluation.files:
            # Plain echo, so that a path is never wrapped or styled.
            say(f"{_SHOWN_AS.get(name, name) + ':':<12} {evaluation.files[name]}")
