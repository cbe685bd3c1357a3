"""`counterfoil mend`: refit a model's head, or train the model again; print its gains and those of its controls."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from counterfoil.cli.options import DeviceOption, JsonOption, ManyValues, OpenOption, SetOption, named_values
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import note, open_page, print_json, print_rows, say, terminal
from counterfoil.errors import UserError
from counterfoil.report.words import counted, points

if TYPE_CHECKING:
    from counterfoil.mending.document import Collective, SetMeasured, VariantResult
    from counterfoil.mending.mend_models import MendResult

app = typer.Typer()

PIPED_WIDTH = 140
MOST_ROWS = 24  # the most contexts, and the most classes, in tables; mend.csv has all


@app.command(
    cls=ManyValues,
    epilog="Example: counterfoil mend --model lab:resnet10t --on wardrobe-star --with built:contexts --out mended",
)
def mend(
    models: Annotated[
        list[str] | None,
        Option("--model", "-m", metavar="MODEL...", help="Models to mend, named as for evaluate. Required."),
    ] = None,
    on: Annotated[
        str | None,
        Option(metavar="RECIPE", help="The recipe whose source the head is fitted on, as for mine. Required."),
    ] = None,
    using: Annotated[
        list[str] | None,
        Option(
            "--with",
            metavar="DATASET[:GROUP]...",
            help="What to mend with: a built dataset (its group contexts, else hard, else all shifts), weights.parquet "
            "from mine --weights, dfr:clip, dfr:COLUMN or dfr:FILE; or rows of a split that direction:SPLIT, "
            "confidence:, domino:, early: or lff: calls hard. Required.",
        ),
    ] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder for the model, the tables and the report. Required.")
    ] = None,
    audited: Annotated[
        list[str] | None,
        Option(metavar="SPLIT|DATASET", help="Rows that are audited, as for mine --on. Default: the recipe's."),
    ] = None,
    test: Annotated[
        str | None,
        Option(
            metavar="SPLIT",
            help="The test split. Default: one that is neither trained on nor audited, else the confirm half.",
        ),
    ] = None,
    lambdas: Annotated[
        str | None,
        Option(
            "--lambda",
            metavar="NUMBERS",
            help="Weights of the images of --with to try. Default: 0,0.1,0.25,0.5,1,2; for a network 0,0.5.",
        ),
    ] = None,
    fit: Annotated[
        str,
        Option(
            metavar="lbfgs|sgd|network",
            help="lbfgs refits the head to the minimum, sgd by 1,000 steps as in Chegini 2023, Table 4. network trains"
            " the whole network again from new weights.",
        ),
    ] = "lbfgs",
    epochs: Annotated[int, Option(metavar="N", help="Epochs of --fit network.")] = 30,
    per_class: Annotated[
        int | None, Option(metavar="N", help="Training images per class, at most.", show_default="30, or 30,000 in all")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed for choosing training images and controls of equal number.")] = 0,
    save: Annotated[
        str | None,
        Option(
            metavar="WITH",
            help="Which head to save: that of one --with, best (on the discover half, in the contexts of all --with), "
            "or none.",
            show_default="best, if it helps",
        ),
    ] = None,
    own: Annotated[
        list[str] | None,
        Option(metavar="MODEL=DATASET...", help="With several models: the dataset built from a model's own failures."),
    ] = None,
    effects: Annotated[bool, Option("--effects", help="Also fit heads with fewer contexts and fewer images.")] = False,
    overrides: SetOption = None,
    device: DeviceOption = "auto",
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Refit a model's head with images of its failures, compare it with controls, and save it as a folder."""
    needed = {"--model": models, "--on": on, "--with": using, "--out": out}
    missing = [option for option, value in needed.items() if not value]
    if missing:
        raise UserError(
            [f"{option} is missing" for option in missing],
            "For example: counterfoil mend --model lab:resnet10t --on wardrobe-star --with built:contexts --out mended",
        )
    assert models and on and using and out
    weights = _numbers(lambdas)
    own_datasets = named_values("--own", own or (), "MODEL=DATASET", "lab:resnet10t=built:contexts")
    from counterfoil.mending.mend_models import mend

    note(f"{', '.join(models)} → {out}: loading libraries and opening images")
    with StageProgress():
        result = mend(
            models, on, using, out, overrides=overrides or (), audited=audited, test=test,
            fit=fit,  # pyrefly: ignore[bad-argument-type]  # another word is refused
            epochs=epochs, per_class=per_class, seed=seed, save=save, own=own_datasets, effects=effects, device=device,
            lambdas=weights,
        )  # fmt: skip
    if json:
        files = {name: str(path) for name, path in {**result.files, **result.models}.items()}
        print_json(result.mended.to_json() | {"files": files})
    else:
        _print(result)
    open_page(result.files["report"], opened)


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UserError(
                f"--lambda: found '{part.strip()}', expected numbers", "For example: --lambda 0,0.5,1"
            ) from None
    return numbers


def _print(result: MendResult) -> None:
    from rich.markup import escape

    from counterfoil.mending.document import CLASS, CONTEXT, FEWEST_LISTED, HELDOUT, SEED, SET_NOTES, TITLES

    console, mended = terminal(PIPED_WIDTH), result.mended
    for model in mended.models:
        several = len(mended.models) > 1
        console.print(
            f"{model.name}: " * several + model.headline(mended.classes), markup=False, highlight=False, style="bold"
        )
    for model in mended.models:
        names = [_head(arm) for arm in model.arms]
        before = [model.arms[0].of_set(name) for name in model.titles]
        heads = [["original", "", "", *(points(measured.before if measured else None) for measured in before)]]
        for arm, name in zip(model.arms, names, strict=True):
            lam, images = "" if arm.lam is None else f"{arm.lam:g}", f"{arm.images:,}" if arm.images else ""
            row = [name, lam, images, *(_gain(arm.in_tables(set)) for set in model.titles)]
            heads.append([f"[dim]{text}[/dim]" for text in row] if arm.role == "retrained" else row)
        columns = ("head", "λ", "images", *model.titles.values())
        print_rows(console, columns, heads, f"{escape(model.name)}: accuracy (%)")
        for name in (SEED, HELDOUT):
            console.print(f"{TITLES[name]}: {SET_NOTES[name]}; any new head gains there.", style="dim", highlight=False)
        for arm in model.arms:
            if arm.verdict is not None:
                console.print(f"{arm.name}: {arm.verdict}", markup=False, highlight=False)
        shown = [(arm, name) for arm, name in zip(model.arms, names, strict=True) if arm.role != "bound"]
        for kind, what in ((CONTEXT, "context"), (CLASS, "class")):
            changed, rows = model.changed(kind), []
            for measured in changed[:MOST_ROWS]:
                name = measured.set.removeprefix(kind)
                label = mended.classes.get(name, name) if kind == CLASS else name
                rows.append([escape(label), f"{measured.rows:,}", points(measured.before)])
                for arm, _ in shown:
                    of_arm = arm.of_set(measured.set)
                    gain = _gain(measured) if arm is model.shown_first else points(of_arm.after if of_arm else None)
                    rows[-1].append(gain)
            if rows:
                print_rows(console, (what, "rows", "before (%)", *(name for _, name in shown)), rows)
            if len(changed) > MOST_ROWS:
                say(f"{len(changed) - MOST_ROWS:,} more in mend.csv.")
        if model.shown_first.few:
            say(f"{counted(model.shown_first.few, 'context')} with fewer than {FEWEST_LISTED} rows left out.")
    if mended.collective is not None:
        _print_collective(mended.collective)
    for line in mended.notes:
        say(line)
    say(f"{'report:':<10}{result.files['report']}")
    saved = [str(model.saved) for model in mended.models if model.folder is not None]
    for (name, path), head in zip(result.models.items(), saved, strict=True):
        say(f"{'model:':<10}{path} ({head})")
        note(f"Then: counterfoil evaluate DATASET --models {shlex.join((f'local-dir:{path}', name))}")
    for name in result.heads:
        what = "network" if mended.fit.how == "network" else "head"
        say(f"{what + ':':<10}of {name}, in *-{what}.safetensors of {result.directory}: its weights")
    if not result.models and not result.heads:
        note("No model was saved. To save the best one anyway, pass --save best.")


def _print_collective(collective: Collective) -> None:
    from rich.markup import escape

    console = terminal(PIPED_WIDTH)
    columns = ("model", "failures", *map(escape, collective.models))
    rows = [
        [escape(name), f"{count:,}", *(points(value, decimals=0) for value in row)]
        for name, count, row in zip(collective.models, collective.failures, collective.overlap, strict=True)
    ]
    print_rows(console, columns, rows, "shared failures (%)")
    rows = []
    for kept in collective.kept:
        gains = [(kept.heldout, kept.kept), (kept.over_retrained, kept.kept_over_retrained)]
        cells = []
        for gain, share in gains:
            cells += [points(gain, signed=True), points(share, decimals=0)]
        arm = escape(kept.arm) + (" (its own)" if kept.own else "")
        rows.append([escape(kept.model), arm, f"{kept.images:,}", *cells])
    columns = ("model", "mended with", "images", "gain (points)", "% of own gain")
    columns += ("more than retrained alone (points)", "% of own")
    title = "several models: gain on debug heldout, the failures of the confirm half"
    if rows:
        print_rows(console, columns, rows, title, left=(0, 1))


def _head(arm: VariantResult) -> str:
    from rich.markup import escape

    note = "\n(training images alone)" if arm.role == "retrained" else ""
    return f"[dim]{escape(arm.called)}[/dim]" if arm.role == "control" else f"{escape(arm.called)}{note}"


def _gain(measured: SetMeasured | None) -> str:
    if measured is None or measured.after is None:
        return points(None)
    text = points(measured.gain, signed=True)
    if measured.low is not None and measured.high is not None:
        text += f" ({points(measured.low, signed=True)} to {points(measured.high, signed=True)})"
    return f"{points(measured.after)}\n[dim]{text}[/dim]"
