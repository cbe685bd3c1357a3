"""`counterfoil mend`: fit a model's head again with drawn images; print what that gains beside its controls."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from counterfoil.cli.lists import spread
from counterfoil.cli.options import JsonOption, OpenOption, SetOption, open_page, print_json
from counterfoil.cli.terminal import say, terminal

if TYPE_CHECKING:
    from counterfoil.mending.document import ArmResult, ModelMended, SetMeasured
    from counterfoil.mending.mended_files import MendResult

PIPED_WIDTH = 140
MOST_ROWS = 24  # of contexts and of classes each; mend.csv has all
_TEST_FAILED = "test_failures"  # told where it judges
_SETS = (
    ("test", "test (%)"),
    (_TEST_FAILED, "test failures"),
    ("debug_seed", "debug seed"),
    ("debug_heldout", "debug heldout"),
    ("in_contexts", "in contexts"),
    ("confirm", "confirm half"),
)
_LISTS = {"--model": "--model", "-m": "--model", "--with": "--with", "--own": "--own"}


class _Lists(TyperCommand):
    """Takes `--model a b --with c d` as options that are repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, _LISTS))


Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="MODEL...", help="Models to mend, as evaluate takes them. Needed."),
]
On = Annotated[
    str | None,
    typer.Option("--on", metavar="RECIPE", help="The recipe whose source it is mended on, as mine takes it. Needed."),
]
Using = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="DATASET[:GROUP]...",
        help="What to mend with: a built dataset (its group contexts, else hard, else all shifts), weights.parquet of "
        "mine --weights, dfr:clip, dfr:COLUMN or dfr:FILE. Needed.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the model and of what is told. Needed.")]
Audited = Annotated[
    list[str] | None,
    typer.Option("--audited", metavar="SPLIT|DATASET", help="Audited rows, as mine --on. Default: the recipe's."),
]
Test = Annotated[
    str | None,
    typer.Option(
        "--test",
        metavar="SPLIT",
        help="The test. Default: a split neither learned from nor audited, else confirm rows.",
    ),
]
Lambdas = Annotated[
    str | None,
    typer.Option("--lambda", metavar="NUMBERS", help="Weights of drawn images to try. Default: 0,0.1,0.25,0.5,1,2."),
]
Fit = Annotated[
    str, typer.Option("--fit", metavar="lbfgs|sgd", help="To the minimum, or 1,000 steps as Chegini 2023, Table 4.")
]
PerClass = Annotated[
    int | None,
    typer.Option(
        "--per-class", metavar="N", help="Training images a class, at most.", show_default="30, or 30,000 in all"
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Which training images and which of equal numbers.")]
Save = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="WITH",
        help="Whose head is left: one of --with, best (on the discover half, in the contexts of all of --with), none.",
        show_default="best, if it helps",
    ),
]
Own = Annotated[
    list[str] | None,
    typer.Option("--own", metavar="MODEL=DATASET...", help="Of several models, the dataset of one's own failures."),
]
Effects = Annotated[bool, typer.Option("--effects", help="Also fit heads with fewer contexts and fewer images.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")]


def register(app: typer.Typer) -> None:
    @app.command(
        cls=_Lists,
        epilog="Example: counterfoil mend --model lab:resnet10t --on wardrobe-star --with built:contexts --out mended",
    )
    def mend(
        models: Models = None,
        on: On = None,
        using: Using = None,
        out: Out = None,
        audited: Audited = None,
        test: Test = None,
        lambdas: Lambdas = None,
        fit: Fit = "lbfgs",
        per_class: PerClass = None,
        seed: Seed = 0,
        save: Save = None,
        own: Own = None,
        effects: Effects = False,
        overrides: SetOption = None,
        device: Device = "auto",
        opened: OpenOption = False,
        json: JsonOption = False,
    ) -> None:
        """Fit a model's head again with images of its failures; judge it beside controls, and leave it as a folder."""
        from counterfoil.cli.progress import StageProgress, note
        from counterfoil.errors import UserError

        needed = {"--model": models, "--on": on, "--with": using, "--out": out}
        missing = [option for option, value in needed.items() if not value]
        if missing:
            raise UserError(
                [f"{option} is missing" for option in missing],
                "As in: counterfoil mend --model lab:resnet10t --on wardrobe-star --with built:contexts --out mended",
            )
        assert models and on and using and out
        asked, owned = _numbers(lambdas), _owned(own or ())
        from counterfoil.mending.choosing import GRID
        from counterfoil.mending.mend_models import mend

        note(f"{', '.join(models)} → {out}: loading libraries and opening images")
        with StageProgress():
            result = mend(
                models, on, using, out, overrides=overrides or (), audited=audited, test=test,
                fit=fit,  # pyrefly: ignore[bad-argument-type]  # another word is refused
                per_class=per_class, seed=seed, save=save, own=owned, effects=effects, device=device,
                lambdas=GRID if asked is None else asked,
            )  # fmt: skip
        if json:
            files = {name: str(path) for name, path in {**result.files, **result.models}.items()}
            print_json(result.mended.to_json() | {"files": files})
        else:
            _print(result)
        open_page(result.files["report"], opened)


def _numbers(text: str | None) -> list[float] | None:
    """The values of --lambda. UserError for what is no number."""
    from counterfoil.errors import UserError

    if text is None:
        return None
    found = []
    for part in text.split(","):
        try:
            found.append(float(part))
        except ValueError:
            raise UserError(f"--lambda: found '{part.strip()}', expected numbers", "As in --lambda 0,0.5,1") from None
    return found


def _owned(written: Sequence[str]) -> dict[str, str]:
    from counterfoil.errors import UserError

    found = {}
    for text in written:
        model, equals, dataset = text.partition("=")
        if not (model and equals and dataset):
            raise UserError(f"--own {text}: expected MODEL=DATASET", "As in --own lab:resnet10t=built:contexts")
        found[model] = dataset
    return found


def _print(result: MendResult) -> None:
    from counterfoil.cli.progress import note
    from counterfoil.mending.document import SET_NOTES

    console = terminal(PIPED_WIDTH)
    for model in result.mended.models:
        several = len(result.mended.models) > 1
        console.print(f"{model.name}: " * several + model.headline, markup=False, highlight=False, style="bold")
    for model in result.mended.models:
        console.print(_arms(model))
        for name, title in _SETS[2:4]:
            console.print(f"{title}: {SET_NOTES[name]}; any new head gains there.", style="dim", highlight=False)
        for arm in model.arms:
            if arm.verdict is not None:
                console.print(f"{arm.name}: {arm.verdict}", markup=False, highlight=False)
        for kind, what in (("context:", "context"), ("class:", "class")):
            table, left = _rows(model, kind, what, result.mended.classes)
            if table is not None:
                console.print(table)
            if left:
                say(f"{left:,} more in mend.csv.")
        few = model.spoken.few
        if few:
            say(f"{few:,} context{'s' if few > 1 else ''} of fewer than 10 rows left out.")
    if result.mended.collective is not None:
        console.print(_overlap(result))
        if result.mended.collective.kept:
            console.print(_kept(result))
    for line in result.mended.notes:
        say(line)
    say(f"{'report:':<10}{result.files['report']}")
    saved = [one.saved for one in result.mended.models if one.saved is not None]
    for (name, path), head in zip(result.models.items(), saved, strict=True):
        say(f"{'model:':<10}{path} ({head})")
        note(f"Then: counterfoil evaluate DATASET --models {shlex.join((f'local-dir:{path}', name))}")
    if not result.models:
        note("No model is left: --save best leaves one all the same.")


def _arms(model: ModelMended):
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=f"{model.name}: accuracy", title_justify="left")
    table.add_column("head")
    by_test = any(arm.judged_by == "test" for arm in model.arms)
    sets = [(name, title) for name, title in _SETS if by_test or name != _TEST_FAILED]
    for column in ("λ", "images", *(title for _, title in sets)):
        table.add_column(column, justify="right")
    before = [model.arms[0].of_set(name) for name, _ in sets]
    table.add_row("as it was", "", "", *("–" if one is None else _percent(one.before) for one in before))
    for arm in model.arms:
        # Heads of balanced groups learn from debug seed.
        learned = arm.role in ("rival", "bound")
        numbers = [None if learned and name == "debug_seed" else arm.of_set(name) for name, _ in sets]
        cells = ["–" if one is None else _told(one.after, one.gain, one.low, one.high) for one in numbers]
        style = "dim" if arm.role == "retrained" else None
        lam = "" if arm.lam is None else f"{arm.lam:g}"
        table.add_row(_arm_name(arm), lam, f"{arm.images:,}" if arm.images else "", *cells, style=style)
    return table


def _arm_name(arm: ArmResult) -> str:
    from rich.markup import escape

    words = {"retrained": "retrained, λ = 0\n(what any refit gains)"}
    return words.get(arm.role, escape(arm.name)) if arm.role != "control" else f"[dim]{escape(arm.name)}[/dim]"


def _rows(model: ModelMended, kind: str, what: str, classes: Mapping[str, str]):
    """Every set of a kind that has rows enough, before and after each head, those that change most first."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    arms = [arm for arm in model.arms if arm.role != "bound"]
    shown = model.spoken
    sets = [one for one in shown.measured if one.set.startswith(kind) and one.listed]
    sets.sort(key=lambda one: -abs(one.gain or 0.0))
    if not sets:
        return None, 0
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(what)
    for column in ("rows", "before (%)", *(_arm_name(arm) for arm in arms)):
        table.add_column(column, justify="right")
    for one in sets[:MOST_ROWS]:
        cells = [
            _told(one.after, one.gain, one.low, one.high) if arm is shown else _after(arm.of_set(one.set))
            for arm in arms
        ]
        name = one.set.removeprefix(kind)
        table.add_row(
            escape(classes.get(name, name) if what == "class" else name), f"{one.rows:,}", _percent(one.before), *cells
        )
    return table, len(sets) - MOST_ROWS if len(sets) > MOST_ROWS else 0


def _after(one: SetMeasured | None) -> str:
    return "–" if one is None else _percent(one.after)


def _overlap(result: MendResult):
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    collective = result.mended.collective
    assert collective is not None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="failures in common (%)", title_justify="left")
    table.add_column("model")
    table.add_column("failures", justify="right")
    for name in collective.models:
        table.add_column(escape(name), justify="right")
    for name, count, row in zip(collective.models, collective.failures, collective.overlap, strict=True):
        table.add_row(escape(name), f"{count:,}", *("–" if value is None else f"{100 * value:.0f}" for value in row))
    return table


def _kept(result: MendResult):
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    collective = result.mended.collective
    assert collective is not None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title="gain on debug heldout", title_justify="left")
    table.add_column("model")
    table.add_column("with")
    for column in ("images", "gain (points)", "of its own (%)", "more than λ = 0", "of its own (%) "):
        table.add_column(column, justify="right")
    for one in collective.kept:
        name = escape(one["arm"]) + (" (its own)" if one["own"] else "")
        kept, over = ("–" if one[key] is None else f"{100 * one[key]:.0f}" for key in ("kept", "kept_over_retrained"))
        numbers = (_points(one["heldout"]), kept, _points(one["over_retrained"]), over)
        table.add_row(escape(one["model"]), name, f"{one['images']:,}", *numbers)
    return table


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _points(value: float | None) -> str:
    from counterfoil.evaluation.spoken_numbers import points

    return points(value, signed=True)


def _told(after: float | None, gain: float | None, low: float | None, high: float | None) -> str:
    """The accuracy, and below it what was gained with its interval."""
    if after is None:
        return "–"
    if low is None or high is None:
        return f"{100 * after:.1f}\n[dim]{_points(gain)}[/dim]"
    return f"{100 * after:.1f}\n[dim]{_points(gain)} ({_points(low)} to {_points(high)})[/dim]"
