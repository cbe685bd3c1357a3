"""`counterfoil evaluate`: score classifiers on a dataset; print the drops and where the report is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from counterfoil.cli.lists import spread
from counterfoil.cli.options import AddressOption, EngineOption, JsonOption, OpenOption, open_page, print_json
from counterfoil.cli.terminal import say, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from counterfoil.evaluation.results import Evaluation
    from counterfoil.report.nested import Distances, MinedShiftResult, ModelComparison
    from counterfoil.stats import Estimate

MOST_MODELS = 12  # wider tables wrap beyond reading; the report holds every model
MOST_FINDINGS = 20  # the report holds every one
MOST_TRANSFERS = 40
MOST_DISTANCES = 40  # distances.csv holds every one
PIPED_WIDTH = 160

_FILES = (
    "report", "failures", "results", "robustness", "shifts", "classes", "findings", "transfer", "distances", "compare",
    "predictions", "entries", "card",
)  # fmt: skip

_MODELS_FLAGS = ("--models", "-m")


class _ManyModels(TyperCommand):
    """Takes `--models a b c` as `--models a --models b --models c`; an option or `--` ends the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread_models(args))


def spread_models(args: list[str]) -> list[str]:
    """Arguments with the flag repeated before every model that follows it."""
    return spread(args, dict.fromkeys(_MODELS_FLAGS, "--models"))


Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset directory, or user/name\\[@revision].")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        *_MODELS_FLAGS,
        metavar="NAME...",
        help="timm names, hf-hub:…, local-dir:…, lab:…, transformers:NAME or FOLDER, open_clip:ARCH/TAG (zero-shot), "
        "predictions:FILE (.csv or .parquet); several after one flag. A .txt file (or @FILE) lists one name a line, # "
        "begins a comment. Default: the recipe's.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the tables and the report.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda (every GPU), cuda:0,cuda:2 …")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes; default one a GPU, or on a CPU one a core for 2,000 images."),
]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Images a batch; changes no result.")]
Minimum = Annotated[
    int | None,
    typer.Option("--min-images", min=1, help="Leave out classes with fewer accepted images. Default: the recipe's."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap.")]
IntoCard = Annotated[
    bool,
    typer.Option("--into-card", help="Also store the results in the dataset (evaluation/) and show them on its card."),
]
Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="USER/NAME",
        help="The dataset's name on the Hub, for evaluation-result entries. Default: the recipe's publish.repo.",
    ),
]
RecipeOption = Annotated[
    str | None,
    typer.Option("--recipe", help="Images that no build made: the recipe whose classes their labels are."),
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="COLUMN", help="Images that no build made: the column of groups, or `configs`."),
]
Base = Annotated[
    str | None, typer.Option("--base", metavar="GROUP", help="The group that the others are compared with.")
]
Beside = Annotated[
    list[str] | None,
    typer.Option("--beside", metavar="NAME=IMAGES", help="Other images beside the dataset: a natural test set."),
]

DistancesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--distances",
        metavar="FEATURES",
        help="Also compare the images with the source's (KID, FID), in the features of `clip` (the recipe's own) or of "
        "a classifier. Give it again for another.",
    ),
]
Compare = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--compare",
        metavar="MENDED ORIGINAL",
        help="Compare two models image by image: a mended one and its original. Scored too where --models lacks them.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="IMAGES", help="Other images than the source's to measure distances to."),
]

ReferenceOption = Annotated[
    bool | None,
    typer.Option(
        "--reference/--no-reference",
        help="Score the source's validation images too, at most 50 a class: is the base like them? Default: where the "
        "source is on this machine; --reference also fetches it.",
        show_default=False,
    ),
]

WriteKeys = Annotated[
    Path | None,
    typer.Option(
        "--write-keys",
        metavar="FILE",
        help="Score nothing: write a CSV of the images (key, path, label, class), for answers that another program "
        "gives and `--models predictions:FILE` takes.",
    ),
]


def register(app: typer.Typer) -> None:
    @app.command(
        cls=_ManyModels,
        epilog="Example: counterfoil evaluate out/wardrobe-mini --models lab:resnet10t models.txt --into-card",
    )
    def evaluate(
        dataset: Dataset,
        models: Models = None,
        out: Out = None,
        device: Device = "auto",
        batch_size: BatchSize = 64,
        min_images: Minimum = None,
        seed: Seed = 0,
        into_card: IntoCard = False,
        repo: Repo = None,
        recipe: RecipeOption = None,
        groups: Groups = None,
        base: Base = None,
        beside: Beside = None,
        distances: DistancesOption = None,
        against: Against = None,
        compare: Compare = None,
        reference: ReferenceOption = None,
        write_keys: WriteKeys = None,
        workers: Workers = None,
        engine: EngineOption = "local",
        address: AddressOption = None,
        opened: OpenOption = False,
        json: JsonOption = False,
    ) -> None:
        """Score classifiers on a dataset, or on any images with labels: drops under each shift, tables, a report."""
        from counterfoil.cli.progress import StageProgress
        from counterfoil.engines import EngineChoice
        from counterfoil.evaluation.evaluate_dataset import evaluate

        if write_keys is not None:
            _write_keys(dataset, write_keys, recipe, groups, base, models, beside)
            return
        with StageProgress():
            evaluation = evaluate(
                dataset,
                models or None,
                out=out,
                device=device,
                batch_size=batch_size,
                min_images_per_class=min_images,
                seed=seed,
                into_card=into_card,
                repo=repo,
                recipe=recipe,
                groups=groups,
                base=base,
                beside=_named_places(beside or []),
                distances=distances,
                against=against,
                compare=compare,
                reference=reference,
                workers=workers,
                engine=EngineChoice(engine, address),
            )
        if json:
            print_json(evaluation.to_json())
        else:
            _print_table(evaluation)
        if "report" in evaluation.files:
            open_page(Path(evaluation.files["report"]), opened)
        for one in evaluation.distances:
            if one.skipped is not None:
                say(f"No distances in the features of {one.features}: {one.skipped}", err=True)
        if into_card and "entries" not in evaluation.files:
            say(
                "No evaluation-result entries for the Hub: the dataset's name there is not known."
                " Give it with --repo USER/NAME, or as publish.repo in the recipe.",
                err=True,
            )


def _write_keys(
    dataset: str,
    out: Path,
    recipe: str | None,
    groups: str | None,
    base: str | None,
    models: list[str] | None,
    beside: list[str] | None,
) -> None:
    from counterfoil.errors import UserError
    from counterfoil.evaluation.keys_table import write_keys

    if models or beside:
        raise UserError("--write-keys goes with neither --models nor --beside: nothing is scored", "Leave them out.")
    count = write_keys(dataset, out, recipe=recipe, base=base, groups=groups)
    say(f"{count:,} images in {out}. --models predictions:FILE takes answers to them: a table with the column key or")
    say("path beside the answer, which is a label (a class's name), a class_id, or a column of scores a class.")


def _print_table(evaluation: Evaluation) -> None:
    from rich.markup import escape

    from counterfoil.cli.drops_table import accuracies_table, drops_table
    from counterfoil.evaluation.input_sizes import spoken_sizes
    from counterfoil.evaluation.spoken_floor import spoken_floor, spoken_ties
    from counterfoil.evaluation.spoken_reference import reference_note, reference_warnings
    from counterfoil.sources.labelled_images import on_a_line

    shown = evaluation.models[:MOST_MODELS]
    console = terminal(PIPED_WIDTH)
    for warning in reference_warnings(evaluation):
        say(f"Warning: {warning}")
    if not evaluation.base:
        console.print(f"{escape(evaluation.name)}: accuracy, percent, averaged over classes")
    console.print(drops_table(evaluation, shown) if evaluation.base else accuracies_table(evaluation, shown))
    if len(evaluation.models) > len(shown):
        console.print(f"and {len(evaluation.models) - len(shown)} more models, in the report")
    for sentence in (*spoken_sizes(evaluation), *spoken_floor(evaluation), *spoken_ties(evaluation)):
        say(sentence)
    if note := reference_note(evaluation):
        say(note)
    if evaluation.comparison is not None:
        _print_comparison(console, evaluation.comparison)
    if evaluation.findings:
        _print_findings(console, evaluation)
    if evaluation.transfer:
        _print_transfer(console, evaluation)
    for one in evaluation.distances:
        if one.rows:
            _print_distances(console, one)
    if evaluation.label_checks is not None:
        from counterfoil.evaluation.judged_labels import spoken_labels

        say(spoken_labels(evaluation.label_checks))
    if evaluation.unreadable:
        n = len(evaluation.unreadable)
        told = "1 image could not be decoded and is" if n == 1 else f"{n} images could not be decoded and are"
        paths = evaluation.unreadable_paths or (None,) * n
        named = [on_a_line(path or key) for key, path in zip(evaluation.unreadable, paths, strict=True)]
        say(f"{told} left out: {', '.join(named[:5])}{' …' if n > 5 else ''}")
    for name in _FILES:
        # Plain echo: a path is never wrapped or styled.
        if name in evaluation.files:
            say(f"{name + ':':<13}{evaluation.files[name]}")


def _print_comparison(console: Console, comparison: ModelComparison) -> None:
    """A row a group: accuracies, the gain, how much smaller the drop is, the exact test; then the verdict in words."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from counterfoil.cli.drops_table import points_cell
    from counterfoil.evaluation.spoken_comparison import spoken_group, spoken_p, verdict

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    table.title = f"{escape(comparison.mended)} against {escape(comparison.original)}, paired by image"
    table.add_column("group", overflow="fold")
    for name in (
        "images",
        "original (%)",
        "mended (%)",
        "gain",
        "drop smaller by",
        "only mended",
        "only original",
        "p",
    ):
        table.add_column(name, justify="right")
    table.add_column("says")
    for one in comparison.groups:
        table.add_row(
            escape(one.name),
            f"{one.images:,}",
            _percent(one.original_accuracy),
            _percent(one.mended_accuracy),
            points_cell(one.gain),
            points_cell(one.drop_gain),
            f"{one.only_mended:,}",
            f"{one.only_original:,}",
            spoken_p(one.p_adjusted),
            spoken_group(one),
            style="dim" if one.is_base else None,
        )
    console.print(table)
    for sentence in verdict(comparison):
        say(sentence)


def _print_findings(console: Console, evaluation: Evaluation) -> None:
    """Failure rates of the mined shifts over all candidates that passed the screen, with the base's below."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from counterfoil.evaluation.spoken_findings import by_difference, finding_name, found_failing

    short = {model.name: model.short_name for model in evaluation.models}
    failing = found_failing(evaluation.findings)
    shown = by_difference(failing)[:MOST_FINDINGS]
    # A judge that is no model of this evaluation has a column where its recorded answers are shown.
    names = list(dict.fromkeys([*short, *(score.model for finding in shown for score in finding.scores)]))[:MOST_MODELS]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    table.title = "mined shifts: failures of all candidates that passed the screen (%), and of the base"
    table.add_column("finding", overflow="fold")
    near = {model.name for model in evaluation.models if model.near_chance}
    for name in names:
        told = short.get(name, name) + (" (near chance)" if name in near else "")
        table.add_column(escape(told), justify="right", overflow="fold")
    for finding in shown:
        table.add_row(escape(finding_name(finding)), *_rates(finding, names))
    console.print(table)
    if len(evaluation.findings) > len(shown):
        console.print(f"and {len(evaluation.findings) - len(shown)} more mined shifts, in findings.csv")
    console.print("They were chosen because a classifier failed there: no estimate of accuracy elsewhere.")


def _print_transfer(console: Console, evaluation: Evaluation) -> None:
    """Failure rates of the models on what each judge got wrong, with the base's beside them."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from counterfoil.evaluation.spoken_transfer import RELATION_WORDS, spoken_transfer
    from counterfoil.evaluation.transfer import JUDGE

    for judge in spoken_transfer(evaluation):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
        table.title = f"transfer: {escape(judge.kept)} Wrong answers, percent"
        for name in ("model", "family", "to the judge"):
            table.add_column(name, overflow="fold")
        for name in ("top-1", "top-3", "base, top-1", "base, top-3"):
            table.add_column(name, justify="right")
        for row, name in zip(judge.rows[:MOST_TRANSFERS], judge.names, strict=False):
            rates = [row.rate(rule) for rule in ("top1", "top3")]
            shown = [_rate(rate.rate if rate else None) for rate in rates]
            if row.relation == JUDGE:
                shown[0] = f"{shown[0].partition(chr(10))[0]}, by construction"
            bases = [_percent(rate.base_rate if rate else None) for rate in rates]
            table.add_row(escape(name), escape(row.family), RELATION_WORDS[row.relation], *shown, *bases)
        console.print(table)
        if len(judge.rows) > MOST_TRANSFERS:
            console.print(f"and {len(judge.rows) - MOST_TRANSFERS} more models, in transfer.csv")
    console.print("A judge was chosen against: its accuracy there means nothing.")


def _print_distances(console: Console, distances: Distances) -> None:
    """KID first, with its interval; FID; how many images; and the source against itself."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from counterfoil.evaluation.distances.spoken_distances import about_bias, spoken_rows

    rows = spoken_rows(distances)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left")
    table.title = f"distance to {escape(distances.source)}, features of {escape(distances.features)}"
    table.add_column("images", overflow="fold")
    for column in ("KID (95 % interval)", "FID", "n of both"):
        table.add_column(column, justify="right")
    shown = [row for row in rows if not row.near][:MOST_DISTANCES]
    for row in (*shown, *(row for row in rows if row.near)):
        kid = row.note if row.note else f"{row.kid} ({row.interval})"
        table.add_row(escape(row.name), escape(kid), row.fid, row.images, style="dim" if row.near else None)
    console.print(table)
    if len(distances.rows) > len(shown):
        console.print(f"and {len(distances.rows) - len(shown)} more groups, in distances.csv")
    if told := about_bias(distances):
        console.print(escape(told))


def _rates(finding: MinedShiftResult, names: list[str]) -> list[str]:
    """A cell a model: its rate, the base's, and the difference with its interval; a dash where nothing is known."""
    from counterfoil.cli.drops_table import points_cell

    scores = {score.model: score for score in finding.scores}
    cells = []
    for name in names:
        score = scores.get(name)
        if score is None or score.rate is None:
            cells.append("–")
        elif score.difference is None:
            cells.append(_percent(score.rate))
        else:
            cells.append(f"{_percent(score.rate)}, base {_percent(score.base_rate)}\n{points_cell(score.difference)}")
    return cells


def _named_places(words: list[str]) -> dict[str, str]:
    """NAME=PLACE, each name once."""
    from counterfoil.errors import UserError

    found: dict[str, str] = {}
    problems = []
    for word in words:
        name, equals, place = word.partition("=")
        if not (name and equals and place) or name in found:
            problems.append(f"--beside {word}: expected NAME=IMAGES, each name once")
        found[name] = place
    if problems:
        raise UserError(problems, "As in --beside v2=vaishaal/ImageNetV2:test")
    return found


def _rate(estimate: Estimate | None) -> str:
    """A rate in percent, with its interval below."""
    if estimate is None:
        return "–"
    value = f"{100 * estimate.value:.1f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value}\n[dim]{100 * estimate.low:.1f} to {100 * estimate.high:.1f}[/dim]"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
