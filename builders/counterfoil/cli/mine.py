"""`counterfoil mine`: find what a classifier gets wrong; print it and the paths of the report and the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from counterfoil.cli.options import DeviceOption, JsonOption, LimitOption, OpenOption, RecipeArgument, SetOption
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import next_command, note, open_page, print_json, print_rows, say, terminal
from counterfoil.errors import UserError
from counterfoil.report.words import counted, opening

if TYPE_CHECKING:
    from counterfoil.mining.mined_files import MineResult

app = typer.Typer()

PIPED_WIDTH = 140
MOST_REASONS = 12  # the report shows every class
MOST_CLASSES = 12


@app.command(epilog="Example: counterfoil mine wardrobe-star --target lab:resnet10t --on audit --out mined")
def mine(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder for the findings, the report and the recipe. Required.")
    ] = None,
    method: Annotated[
        str | None,
        Option(
            help="Method that finds hypotheses: directions, bugs, contexts, or slices, which needs no CLIP and runs "
            "where none is available. Default: the recipe's."
        ),
    ] = None,
    target: Annotated[
        str | None,
        Option(
            "--target",
            "-t",
            metavar="MODEL",
            help="The classifier to audit, named as for evaluate --models. Use predictions:FILE for"
            " one that runs elsewhere.",
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        Option(
            metavar="SPLIT|DATASET",
            help="Images to audit it on: a split of the recipe's source that it was not trained on (repeatable), "
            "or a built dataset. Default: the recipe's.",
        ),
    ] = None,
    confirm: Annotated[
        str | None,
        Option(
            metavar="rows|rendered|both",
            help="Images that hypotheses are tested on: rows of the confirm half, newly rendered ones (mine.rendered "
            "for each), or both. Default: the recipe's.",
        ),
    ] = None,
    overrides: SetOption = None,
    device: DeviceOption = "auto",
    workers: Annotated[int | None, Option(min=1, help="Processes for fitting and for rendering.")] = None,
    pool: Annotated[
        str | None,
        Option(
            metavar="SPLIT|FOLDER|DATASET",
            help="Also choose the hardest rows of a pool of images and write them as a recipe (pool.yaml). The pool"
            " is a split of the recipe's source, a folder, or a dataset on the Hub.",
        ),
    ] = None,
    pool_rows: Annotated[
        int | None, Option(min=1, metavar="K", help="Rows of the pool per class, at most. Default: 50.")
    ] = None,
    pool_labels: Annotated[
        str | None,
        Option(
            metavar="COLUMN|predicted",
            help="Where the pool's classes come from: a column, or the target's predictions."
            " Default: its label column.",
        ),
    ] = None,
    weights: Annotated[
        bool,
        Option(
            "--weights",
            help="Also write weights for the train split's rows (weights.parquet): 2 for hard ones, else 1.",
        ),
    ] = False,
    limit: LimitOption = None,
    tries: Annotated[
        list[str] | None,
        Option(
            "--try",
            metavar="WORDS",
            help="Give the folder of an earlier run of --method bugs as RECIPE, and test a description of your own "
            "(repeatable) for the class that --class names.",
        ),
    ] = None,
    class_name: Annotated[
        str | None, Option("--class", metavar="CLASS", help="The class for --try: its name or id.")
    ] = None,
    again: Annotated[
        str | None,
        Option(
            metavar="RECIPE2",
            help="Give the folder of an earlier run of --method bugs as RECIPE, and test its confirmed findings once"
            " more on images that RECIPE2 renders; with --on, on images of that recipe's source.",
        ),
    ] = None,
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Find and name what a classifier gets wrong.

    Hypotheses come from one half of the images and are tested on the other. Confirmed ones are written as a recipe.
    """
    if tries or class_name is not None or again is not None:
        others = {
            "--out": out, "--method": method, "--target": target, "--confirm": confirm, "--pool": pool,
            "--pool-rows": pool_rows, "--pool-labels": pool_labels, "--weights": weights or None, "--limit": limit,
            **({} if again else {"--set": overrides, "--on": on}),
        }  # fmt: skip
        option = "--try" if again is None else "--again"
        problems = [f"{name} does not go with {option}" for name, given in others.items() if given is not None]
        if again is not None and (tries or class_name is not None):
            problems.append("--try and --class do not go with --again")
        elif again is None and not (tries and class_name is not None):
            problems.append("--try and --class need each other: a description, and the class that it is about")
        if problems:
            raise UserError(problems, f"For example: counterfoil mine mined {option} …")
        from counterfoil.mining.methods.bugs.trying import mine_again, try_descriptions

        work: Callable[..., MineResult] = partial(try_descriptions, recipe, tries or (), class_name or "")
        if again is not None:
            work = partial(mine_again, recipe, again, on=on, overrides=overrides or ())
    else:
        if out is None:
            raise UserError("--out is missing", "Name a folder: --out mined")
        from counterfoil.mining.mine_recipe import mine

        work = partial(
            mine, recipe, out, overrides=overrides or (), method=method, target=target, on=on, confirm=confirm,
            pool=pool, pool_rows=pool_rows, pool_labels=pool_labels, weights=weights, limit=limit,
        )  # fmt: skip
    note(f"{recipe}{'' if out is None else f' → {out}'}: loading libraries and resolving inputs")
    with StageProgress():
        result = work(device=device, workers=workers)
    if json:
        files = {name: str(path) for name, path in result.files.items()}
        more = {} if result.pool is None else {"pool": result.pool.to_json()}
        print_json(result.findings.to_json() | {"files": files} | more)
    else:
        _print(result)
    open_page(result.files["report"], opened)


def _print(result: MineResult) -> None:
    from rich.markup import escape

    from counterfoil.mining.report import LABELS_WORTH, by_weight, classes_table, findings_table, headline

    findings = result.findings
    head, sentence = headline(findings)
    doubt = f" ({findings.doubt})" if findings.doubt else ""
    if findings.preview:
        say(findings.preview_sentence)
    say(f"{findings.target.name}{doubt}: {head[:1].lower()}{head[1:]}. {sentence}")
    if findings.confirmed:
        columns, rows = findings_table(findings, by_weight(findings.standing))
        cells = []
        for finding, row in rows:
            words = escape(finding.words) + "".join(f" [yellow]({mark})[/yellow]" for mark in finding.marks)
            if finding.perhaps_under(findings.margin):
                words += f" [dim](perhaps under {100 * findings.margin:.2g} points)[/dim]"
            numbers = [f"{cell.text} [dim]({cell.interval})[/dim]" if cell.interval else cell.text for cell in row]
            cells.append((words, *numbers))
        print_rows(terminal(PIPED_WIDTH), ("finding", *columns), cells)
    elif findings.answered is not None:
        columns, classes = classes_table(findings.answered)
        print_rows(terminal(PIPED_WIDTH), columns, [[escape(cell) for cell in row] for row in classes[:MOST_CLASSES]])
    if findings.answered is not None and (many := findings.answered.labels_in_all):
        say(f"{counted(many, 'label')} to check, shown in the report. {LABELS_WORTH}.")
    for sentence in _notes(result):
        say(f"{opening(sentence)}.")
    for name in ("report", "findings", "relabel", "rows", "recipe", "adversarial", "pool", "weights"):
        if name in result.files:
            say(f"{name + ':':<12} {result.files[name]}")
    if "recipe" in result.files:
        next_command("counterfoil", "build", str(result.files["recipe"]), "--out", f"{result.directory.name}-built")


def _notes(result: MineResult) -> Iterator[str]:
    from counterfoil.mining.report import OF_SETS, is_drawn

    findings = result.findings
    drawn = is_drawn(findings)
    sizes = (batch.images for batch in findings.rounds) if drawn else (source.rows for source in findings.on)
    images = sum(sizes)
    tried = f"{len(findings.confirmed)} of {findings.tested} hypotheses confirmed"
    if longer := len(findings.confirmed) - len(findings.standing):
        tried += f" ({longer} of them covered here by a shorter description)"
    tried += f" in pairs, on {images:,} rendered images" if drawn else f" on {images:,} images"
    if not findings.confirmed:
        yield tried
    else:
        yield f"{tried}; on average {findings.fdr:.0%} of those confirmed may be false (false discovery rate)"
        if drawn:
            yield (
                "For a false finding, the classifier fails no more often with the description than without it. The"
                " rates come from fresh pairs, rendered once for each finding after its test. The intervals of the"
                " differences hold for all findings at once"
            )
        yield OF_SETS.removesuffix(".")
    checks = [finding.labels for finding in findings.standing if finding.labels is not None]
    if suspected := sum(check.suspected for check in checks):
        yield f"{suspected} of {len(checks)} may be wrong labels, not failures: look at the images in relabel.csv"
    if unchecked := sum(check.reason is not None for check in checks):
        yield f"The labels behind {unchecked} of {len(checks)} were not checked; the report says why"
    if result.pool is not None:
        yield result.pool.sentence().removesuffix(".")
    if drawn and not findings.tested:
        reasons = [f"{audit.name}: {audit.reason}" for audit in findings.classes if audit.reason is not None]
        yield from reasons[:MOST_REASONS]
    yield from findings.notes
    yield from (f"Not tested: {hypothesis.words}; {hypothesis.reason}" for hypothesis in findings.not_tested)
