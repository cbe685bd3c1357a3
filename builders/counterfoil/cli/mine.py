"""`counterfoil mine`: find what a classifier gets wrong; print it, and where the report and the recipe are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterfoil.cli.options import JsonOption, OpenOption, RecipeArgument, SetOption, open_page, print_json
from counterfoil.cli.terminal import say, terminal

if TYPE_CHECKING:
    from counterfoil.mining.answered import AnswersTold
    from counterfoil.mining.findings import Difference, Finding, Findings, Rate
    from counterfoil.mining.mined_files import MineResult

PIPED_WIDTH = 140
MOST_REASONS = 12  # the report tells every class
MOST_CLASSES = 12
OF_SETS = "A q is of a set of images, not of the words for it."
_COLUMNS = ("finding", "wrong (%)", "the rest (%)", "q")
_DRAWN_COLUMNS = ("finding", "wrong (%)", "without it (%)", "more (points)", "pairs", "E", "q")

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the findings, the report and the recipe. Needed.")
]
MethodOption = Annotated[str | None, typer.Option("--method", help="How hypotheses are found. Default: the recipe's.")]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="MODEL",
        help="The classifier to audit, as evaluate --models takes them; predictions:FILE for one that is not here.",
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="SPLIT|DATASET",
        help="What to audit it on: a split of the recipe's source that it has not learned from (repeatable), or a "
        "built dataset. Default: the recipe's.",
    ),
]
ConfirmOption = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="rows|rendered|both",
        help="What hypotheses are tested on: rows of the confirm half, images rendered for them (mine.rendered each), "
        "or both. Default: the recipe's.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes that fit, and that render.")]
Pool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        metavar="SPLIT|FOLDER|DATASET",
        help="Also choose the hardest rows of a pool, as a recipe of their own (pool.yaml): a split of the recipe's "
        "source, a folder, or a dataset of the Hub.",
    ),
]
PoolRows = Annotated[
    int | None,
    typer.Option("--pool-rows", min=1, metavar="K", help="Rows of the pool a class, at most. Default: 50."),
]
PoolLabels = Annotated[
    str | None,
    typer.Option(
        "--pool-labels",
        metavar="COLUMN|predicted",
        help="What tells the pool's classes: a column, or the target's answers. Default: its column of labels.",
    ),
]
Weights = Annotated[
    bool, typer.Option("--weights", help="Also weigh the train split's rows (weights.parquet): 2 where hard, else 1.")
]


Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        metavar="WORDS",
        help="In the folder of an earlier run by bugs, in place of RECIPE: test a description of yours (repeatable), "
        "of the class that --class names.",
    ),
]
ClassOption = Annotated[str | None, typer.Option("--class", metavar="CLASS", help="The class of --try: a name or id.")]
Again = Annotated[
    str | None,
    typer.Option(
        "--again",
        metavar="RECIPE2",
        help="In the folder of an earlier run by bugs, in place of RECIPE: test what it confirmed once more, drawn by "
        "another recipe; with --on, on images of that recipe's source.",
    ),
]


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil mine wardrobe-star --target lab:resnet10t --on audit --out mined")
    def mine(
        recipe: RecipeArgument,
        out: Out = None,
        method: MethodOption = None,
        target: TargetOption = None,
        on: On = None,
        confirm: ConfirmOption = None,
        overrides: SetOption = None,
        device: Device = "auto",
        workers: Workers = None,
        pool: Pool = None,
        pool_rows: PoolRows = None,
        pool_labels: PoolLabels = None,
        weights: Weights = False,
        tries: Try = None,
        class_name: ClassOption = None,
        again: Again = None,
        opened: OpenOption = False,
        json: JsonOption = False,
    ) -> None:
        """Find what a classifier gets wrong: named on half of the images, tested on the other, written as a recipe."""
        from counterfoil.cli.build_summary import print_doubts
        from counterfoil.cli.progress import StageProgress, note
        from counterfoil.errors import UserError

        if tries or class_name is not None or again is not None:
            others = {
                "--out": out, "--method": method, "--target": target, "--confirm": confirm, "--pool": pool,
                "--pool-rows": pool_rows, "--pool-labels": pool_labels, "--weights": weights or None,
                **({} if again else {"--set": overrides, "--on": on}),
            }  # fmt: skip
            work = _further(recipe, tries or (), class_name, again, on, others, overrides or (), device, workers)
        else:
            if out is None:
                raise UserError("--out is missing", "Name a folder: --out mined")
            from counterfoil.mining.mine_recipe import mine

            work = partial(
                mine,
                recipe,
                out,
                overrides=overrides or (),
                method=method,
                target=target,
                on=on,
                confirm=confirm,
                device=device,
                workers=workers,
                pool=pool,
                pool_rows=pool_rows,
                pool_labels=pool_labels,
                weights=weights,
            )
        note(f"{recipe}{'' if out is None else f' → {out}'}: loading libraries and resolving inputs")
        with StageProgress():
            result = work()
        print_doubts(result.findings.doubts)
        if json:
            files = {name: str(path) for name, path in result.files.items()}
            more = {} if result.pool is None else {"pool": result.pool.to_json()}
            print_json(result.findings.to_json() | {"files": files} | more)
        else:
            _print(result)
        open_page(result.files["report"], opened)


def _further(
    folder: str,
    tries: Sequence[str],
    class_name: str | None,
    again: str | None,
    on: Sequence[str] | None,
    others: Mapping[str, object],
    overrides: Sequence[str],
    device: str,
    workers: int | None,
) -> Callable[[], MineResult]:
    """The work of --try or --again. UserError for options that go with neither, all at once."""
    from counterfoil.errors import UserError
    from counterfoil.mining.bugs.trying import mine_again, try_descriptions

    asked = "--try" if again is None else "--again"
    problems = [f"{name} does not go with {asked}" for name, given in others.items() if given is not None]
    if again is not None and (tries or class_name is not None):
        problems.append("--try and --class do not go with --again")
    elif again is None and not (tries and class_name is not None):
        problems.append("--try and --class go together: what is to be seen, and of which class")
    if problems:
        raise UserError(problems, f"As in: counterfoil mine mined {asked} …")
    if again is not None:
        return partial(mine_again, folder, again, on=on, overrides=overrides, device=device, workers=workers)
    return partial(try_descriptions, folder, tries, class_name or "", device=device, workers=workers)


def _print(result: MineResult) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    findings = result.findings
    console = terminal(PIPED_WIDTH)
    if findings.confirmed:
        doubt = f"; {escape(findings.doubt)}" if findings.doubt else ""
        console.print(f"{escape(findings.target.name)}: failures that held on images that named none of them{doubt}")
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        drawn = findings.halves is None
        for column in _DRAWN_COLUMNS if drawn else _COLUMNS:
            table.add_column(column, justify="left" if column == "finding" else "right")
        for one in findings.standing:
            in_pairs = (_more(one.difference), _pairs(one), _evidence(one)) if drawn else ()
            words = escape(one.words) + "".join(f" [yellow]({mark})[/yellow]" for mark in one.marks)
            if one.perhaps_under(findings.margin):
                words += f" [dim](perhaps under {100 * findings.margin:.2g} points)[/dim]"
            table.add_row(words, _percent(one.set), _percent(one.rest), *in_pairs, f"{one.q:.2g}")
        console.print(table)
    if findings.answered is not None and not findings.confirmed:
        _print_answered(findings.answered)
    say(_sentence(findings))
    for told in _of_labels(findings):
        say(told)
    if result.pool is not None:
        say(result.pool.sentence())
    if findings.halves is None and not findings.tested:
        for audit in [audit for audit in findings.classes if audit.reason is not None][:MOST_REASONS]:
            say(f"{audit.name}: {audit.reason}.")
    for told in findings.notes:
        say(f"{told[:1].upper()}{told[1:]}.")
    for one in findings.not_tested:
        say(f"Not tested: {one.words}; {one.reason}.")
    for name in ("report", "findings", "relabel", "rows", "recipe", "adversarial", "pool", "weights"):
        if name in result.files:
            say(f"{name + ':':<13}{result.files[name]}")
    if "recipe" in result.files:
        from counterfoil.cli.progress import next_command

        built = f"{result.directory.name}-built"
        next_command("counterfoil", "build", str(result.files["recipe"]), "--out", built)


def _print_answered(answered: AnswersTold) -> None:
    """Which classes fail, and which are taken for which; a few of each."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("class", "wrong (%)", "all others (%)", "most taken for"):
        table.add_column(column, justify="right" if "%" in column else "left")
    for one in answered.classes[:MOST_CLASSES]:
        taken = [other for other in answered.taken_for if other.id == one.id][:2]
        words = ", ".join(f"{escape(other.other_name)} [dim]({other.count} of {other.rows})[/dim]" for other in taken)
        low, high = one.interval
        name = escape(one.name) + (" [yellow](more)[/yellow]" if one.more else "")
        others = "–" if one.others_rate is None else f"{100 * one.others_rate:.0f}"
        table.add_row(name, f"{100 * one.rate:.0f} [dim]({100 * low:.0f} to {100 * high:.0f})[/dim]", others, words)
    terminal(PIPED_WIDTH).print(table)
    if answered.labels_in_all:
        many = answered.labels_in_all
        say(f"{many:,} label{'s' if many > 1 else ''} to look at: the classifier is sure of another class.")


def _sentence(findings: Findings) -> str:
    drawn = findings.halves is None
    images = sum(one.images for one in findings.rounds) if drawn else sum(one.rows for one in findings.on)
    tried = f"{len(findings.confirmed)} of {findings.tested} hypotheses confirmed"
    if longer := len(findings.confirmed) - len(findings.standing):
        tried += f" ({longer} of them told here in fewer words)"
    tried += f" in pairs, {images:,} images drawn" if drawn else f" on {images:,} images"
    if findings.confirmed:
        told = f"{tried}; of those confirmed, {findings.fdr:.0%} may be false on average"
        if not drawn:
            return f"{told}. {OF_SETS}"
        return (
            f"{told}: no worse than without the words. Rates are of fresh pairs, drawn once for each after its test;"
            f" the intervals of the differences hold for all of them at once. {OF_SETS}"
        )
    if findings.answered is not None and findings.answered.without_words is not None:
        wrong = f"{findings.answered.failures:,} of {findings.answered.rows:,} images wrong"
        return f"{findings.target.name}, {findings.doubt}: {wrong}. What is above describes them and tests nothing."
    if findings.doubt:
        tried += f"; {findings.doubt}"
    seen = findings.smallest_difference
    least = None if seen is None else seen.difference
    if drawn and least is None:
        return f"No failure found at this size: {tried}; the report tells how large a difference may stay unseen."
    if least is None:
        return f"No failure found at this size: {tried}, and the images are too few to show any difference."
    return (
        f"No failure found at this size: {tried}. A {'description' if drawn else 'set'} that fails {100 * least:.0f} "
        f"points more than {'its base' if drawn else 'the rest of its class'} would have been seen four times in five."
    )


def _more(difference: Difference) -> str:
    """A difference in points, with the interval that holds beside those of all others."""
    if difference.value is None or difference.reported_interval is None:
        return "–"
    low, high = difference.reported_interval
    return f"{100 * difference.value:.0f} [dim]({100 * low:.0f} to {100 * high:.0f})[/dim]"


def _of_labels(findings: Findings) -> Iterator[str]:
    """What is said of the labels behind what was confirmed, a sentence each."""
    checks = [one.labels for one in findings.standing if one.labels is not None]
    if suspected := sum(check.suspected for check in checks):
        yield f"{suspected} of {len(checks)} may be wrong labels and no failures: look at the images of relabel.csv."
    if unchecked := sum(check.reason is not None for check in checks):
        yield f"The labels behind {unchecked} of {len(checks)} were not checked; the report says why."


def _pairs(one: Finding) -> str:
    return "–" if one.pairs is None else f"{one.pairs.pairs:,}"


def _evidence(one: Finding) -> str:
    """The e-value without an equals sign."""
    from counterfoil.mining.report import evidence
    from counterfoil.mining.shown_pairs import last_log_e

    return evidence(last_log_e(one)).removeprefix("=").strip()


def _percent(rate: Rate) -> str:
    if rate.rate is None:
        return "–"
    if rate.interval is None:
        return f"{100 * rate.rate:.0f}"
    low, high = rate.interval
    return f"{100 * rate.rate:.0f} [dim]({100 * low:.0f} to {100 * high:.0f})[/dim]"
