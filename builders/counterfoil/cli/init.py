"""`counterfoil init`: propose a recipe for one's own images, and say what comes next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil.cli.errors_shown import fit
from counterfoil.cli.options import JsonOption, print_json
from counterfoil.cli.terminal import terminal

if TYPE_CHECKING:
    from counterfoil.starting.init_recipe import InitResult

MOST_CLASSES = 30  # the file lists them all
PIPED_WIDTH = 120

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of class folders (in folders of splits or not), of Parquet files or as `datasets` saves it; or "
        "USER/NAME\\[@REVISION] of the Hub.",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The recipe's file.")]
Name = Annotated[str | None, typer.Option("--name", help="What the built dataset is called. Default: after SOURCE.")]
Config = Annotated[str | None, typer.Option("--config", help="Config of a dataset that has several.")]
ImageColumn = Annotated[str | None, typer.Option("--image-column", help="Column of images. Default: the only one.")]
LabelColumn = Annotated[str | None, typer.Option("--label-column", help="Column of labels. Default: the only one.")]
TrainSplit = Annotated[str | None, typer.Option("--train-split", help="Split to learn from. Default: found by name.")]
ValidationSplit = Annotated[
    str | None, typer.Option("--validation-split", help="Split that thresholds are taken from. Default: found by name.")
]
Generator = Annotated[
    str | None,
    typer.Option("--generator", metavar="MODEL", help="What draws: lab:sd (dry run), a Hub id or a diffusers folder."),
]
Clip = Annotated[
    str | None,
    typer.Option("--clip", metavar="MODEL", help="What screens: open_clip's ARCH/TAG, lab:clip, hf-hub:… or a folder."),
]
Device = Annotated[str, typer.Option("--device", help="The device that models are proposed for: auto, cpu, cuda …")]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil init ./photos --out photos.yaml")
    def init(
        source: Source,
        out: Out = Path("recipe.yaml"),
        name: Name = None,
        config: Config = None,
        image_column: ImageColumn = None,
        label_column: LabelColumn = None,
        train_split: TrainSplit = None,
        validation_split: ValidationSplit = None,
        generator: Generator = None,
        clip: Clip = None,
        device: Device = "auto",
        force: Force = False,
        json: JsonOption = False,
    ) -> None:
        """Read your own images and write a recipe for them: classes, shifts, models and thresholds, with comments."""
        from counterfoil.cli.progress import StageProgress, note
        from counterfoil.starting.init_recipe import init

        note(f"{fit(source)}: reading")
        with StageProgress():
            result = init(
                source, out, name=name, config=config, image_column=image_column, label_column=label_column,
                train_split=train_split, validation_split=validation_split, generator=generator, clip=clip,
                device=device, force=force,
            )  # fmt: skip
        if json:
            print_json(_as_json(result))
        else:
            _print(result)


def _as_json(result: InitResult) -> dict[str, Any]:
    recipe = result.recipe
    return {
        "recipe": str(result.path),
        "name": recipe.name,
        "splits": dict(result.rows),
        "train_split": recipe.source.train_split,
        "validation_split": recipe.source.validation_split,
        "image_column": recipe.source.image_column,
        "label_column": recipe.source.label_column,
        "classes": [{"id": each.id, "name": each.name, "images": result.images[each.name]} for each in recipe.classes],
        "shifts": [shift.name for shift in recipe.all_shifts()],
        "generator": recipe.generator.model or recipe.generator.kind,
        "clip": "/".join(filter(None, (recipe.screen.model, recipe.screen.weights))),
        "models": result.models,
        "notes": list(result.notes),
        "next": list(result.commands),
    }


def _print(result: InitResult) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    recipe = result.recipe
    splits = list(dict.fromkeys((recipe.source.train_split, recipe.source.validation_split)))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("class")
    for split in splits:
        table.add_column(escape(fit(split)), justify="right")
    for each in recipe.classes[:MOST_CLASSES]:
        images = result.images[each.name]
        table.add_row(escape(fit(each.name)), *("?" if images is None else f"{images[split]:,}" for split in splits))
    console = terminal(PIPED_WIDTH)
    console.print(table)
    if len(recipe.classes) > MOST_CLASSES:
        console.print(f"and {len(recipe.classes) - MOST_CLASSES:,} more classes; the file lists them all\n")
    for said in (*result.notes, result.models):
        console.print(f"- {escape(fit(said))}")
    console.print(f"\n[bold]{escape(fit(str(result.path)))}[/bold] is written. Read it, change it, then:")
    for command in result.commands:
        console.print(f"  {escape(fit(command))}", soft_wrap=True)
