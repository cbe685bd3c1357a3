"""`counterfoil mend`: refit a model's head, or train the model again; print its gains and those of
its controls."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import (
    make_console,
    open_page,
    print_json,
    print_line,
    print_note,
    print_plain,
    print_rows,
)
from counterfoil.mending.options import MendCommand, MendOptions
from counterfoil.report.words import format_count, format_points

if TYPE_CHECKING:
    from rich.console import Console

    from counterfoil.mending.document import Collective, ModelMended, SetMeasured, VariantResult
    from counterfoil.mending.mend_models import MendResult

PIPED_WIDTH = 140
MOST_ROWS = 24  # the most contexts, and the most classes, in tables; mend.csv has all


@with_options(
    "counterfoil mend --model lab:resnet10t --on wardrobe-star --with built:contexts --out mended",
    MendCommand,
)
def mend(given: Given) -> None:
    """Refit a model's head with images of its failures, compare it with controls, and save it as a
    folder."""
    options = given.made(MendOptions)
    from counterfoil.mending.mend_models import mend

    models = ", ".join(given.get("--model"))
    print_note(f"{models} → {options.out}: loading libraries and opening images")
    with StageProgress():
        result = mend(**vars(options))
    if given.json:
        files = {name: str(path) for name, path in {**result.files, **result.models}.items()}
        print_json(result.mended.to_json() | {"files": files})
    else:
        _print(result)
    open_page(result.files["report"], given.get("--open"))


def _print(result: MendResult) -> None:
    from rich.markup import escape

    from counterfoil.mending.document import FEWEST_LISTED, HELDOUT, SEED, SET_NOTES, TITLES

    console = make_console(PIPED_WIDTH)
    mended = result.mended
    for model in mended.models:
        headline = model.headline(mended.classes)
        if len(mended.models) > 1:
            headline = f"{model.name}: {headline}"
        console.print(headline, markup=False, highlight=False, style="bold")
    for model in mended.models:
        original = ["original", "", ""]
        for name in model.titles:
            measured = model.arms[0].of_set(name)
            original.append(format_points(measured.before if measured else None))
        heads = [original]
        for arm in model.arms:
            lam = "" if arm.lam is None else f"{arm.lam:g}"
            images = f"{arm.images:,}" if arm.images else ""
            gains = [_gain(arm.in_tables(set)) for set in model.titles]
            row = [_head(arm), lam, images, *gains]
            if arm.role == "retrained":
                row = [f"[dim]{text}[/dim]" for text in row]
            heads.append(row)
        columns = ("head", "λ", "images", *model.titles.values())
        print_rows(console, columns, heads, f"{escape(model.name)}: accuracy (%)")
        for name in (SEED, HELDOUT):
            console.print(
                f"{TITLES[name]}: {SET_NOTES[name]}; any new head gains there.",
                style="dim",
                highlight=False,
            )
        for arm in model.arms:
            if arm.verdict is not None:
                print_plain(console, f"{arm.name}: {arm.verdict}")
        _print_changed(console, model, mended.classes)
        if few := model.shown_first.few:
            contexts = format_count(few, "context")
            print_line(f"{contexts} with fewer than {FEWEST_LISTED} rows left out.")
    if mended.collective is not None:
        _print_collective(mended.collective)
    for line in mended.notes:
        print_line(line)
    print_line(f"{'report:':<10}{result.files['report']}")
    saved = [str(model.saved) for model in mended.models if model.folder is not None]
    for (name, path), head in zip(result.models.items(), saved, strict=True):
        print_line(f"{'model:':<10}{path} ({head})")
        compared = shlex.join((f"local-dir:{path}", name))
        print_note(f"Then: counterfoil evaluate DATASET --models {compared}")
    for name in result.heads:
        what = "network" if mended.fit.how == "network" else "head"
        print_line(
            f"{what + ':':<10}of {name}, in *-{what}.safetensors of {result.directory}: its weights"
        )
    if not result.models and not result.heads:
        print_note("No model was saved. To save the best one anyway, pass --save best.")


def _print_changed(console: Console, model: ModelMended, classes: Mapping[str, str]) -> None:
    """Print the contexts and classes whose accuracy changed most."""
    from rich.markup import escape

    from counterfoil.mending.document import CLASS, CONTEXT

    shown = [arm for arm in model.arms if arm.role != "bound"]
    for kind, what in ((CONTEXT, "context"), (CLASS, "class")):
        changed = model.changed(kind)
        rows = []
        for measured in changed[:MOST_ROWS]:
            name = measured.set.removeprefix(kind)
            label = classes.get(name, name) if kind == CLASS else name
            row = [escape(label), f"{measured.rows:,}", format_points(measured.before)]
            for arm in shown:
                if arm is model.shown_first:
                    gain = _gain(measured)
                else:
                    of_arm = arm.of_set(measured.set)
                    gain = format_points(of_arm.after if of_arm else None)
                row.append(gain)
            rows.append(row)
        if rows:
            columns = (what, "rows", "before (%)", *map(_head, shown))
            print_rows(console, columns, rows)
        if len(changed) > MOST_ROWS:
            print_line(f"{len(changed) - MOST_ROWS:,} more in mend.csv.")


def _print_collective(collective: Collective) -> None:
    from rich.markup import escape

    console = make_console(PIPED_WIDTH)
    columns = ("model", "failures", *map(escape, collective.models))
    rows = []
    facts = (collective.models, collective.failures, collective.overlap)
    for name, count, row in zip(*facts, strict=True):
        shares = [format_points(value, decimals=0) for value in row]
        rows.append([escape(name), f"{count:,}", *shares])
    print_rows(console, columns, rows, "shared failures (%)")
    rows = []
    for kept in collective.kept:
        gains = [(kept.heldout, kept.kept), (kept.over_retrained, kept.kept_over_retrained)]
        cells = []
        for gain, share in gains:
            cells += [format_points(gain, signed=True), format_points(share, decimals=0)]
        arm = escape(kept.arm) + (" (its own)" if kept.own else "")
        rows.append([escape(kept.model), arm, f"{kept.images:,}", *cells])
    columns = ("model", "mended with", "images", "gain (points)", "% of own gain")
    columns += ("more than retrained alone (points)", "% of own")
    title = "several models: gain on debug heldout, the failures of the confirm half"
    if rows:
        print_rows(console, columns, rows, title, left=(0, 1))


def _head(arm: VariantResult) -> str:
    from rich.markup import escape

    called = escape(arm.called)
    if arm.role == "control":
        return f"[dim]{called}[/dim]"
    if arm.role == "retrained":
        return f"{called}\n(training images alone)"
    return called


def _gain(measured: SetMeasured | None) -> str:
    if measured is None or measured.after is None:
        return format_points(None)
    text = format_points(measured.gain, signed=True)
    if measured.low is not None and measured.high is not None:
        low = format_points(measured.low, signed=True)
        text += f" ({low} to {format_points(measured.high, signed=True)})"
    return f"{format_points(measured.after)}\n[dim]{text}[/dim]"
