"""`counterfoil build`: make the dataset of a recipe, or one of a dataset again, or go on where a run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.build_summary import build_as_json, part_as_json, print_part, print_summary
from counterfoil.cli.options import AddressOption, CollectOption, EngineOption, JsonOption, SetOption, print_json
from counterfoil.errors import UserError

Recipe = Annotated[
    str | None,
    typer.Argument(metavar="RECIPE", help="A bundled name, a YAML file, or a dataset directory; not with --from."),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="DATASET", help="Make this dataset again from what it tells of itself: a directory,"
    " or USER/NAME\\[@REVISION]. With --out the same directory, repair it."),
]  # fmt: skip
Out = Annotated[Path, typer.Option("--out", "-o", help="Directory of the dataset; new, empty, or one to resume.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda (every GPU), cuda:1, cuda:0,cuda:2 …")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes a device; default one a CPU core, one on each GPU.")
]
Mixed = Annotated[
    bool,
    typer.Option("--allow-mixed", help="Resume under other versions or another device; the card says so."),
]
Shards = Annotated[
    str | None,
    typer.Option(
        "--shards",
        metavar="K/N",
        help="Make the K-th of N parts and do not close: the same command with another K on each machine of a cluster."
        " Then build once without it.",
    ),
]


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil build wardrobe-mini --out wardrobe-mini")
    def build(
        out: Out,
        recipe: Recipe = None,
        source: From = None,
        overrides: SetOption = None,
        device: Device = "auto",
        workers: Workers = None,
        allow_mixed: Mixed = False,
        shards: Shards = None,
        engine: EngineOption = "local",
        address: AddressOption = None,
        collect: CollectOption = False,
        json: JsonOption = False,
    ) -> None:
        """Render, screen and store a recipe's dataset, with its card; run again to resume.

        With --from, a dataset is made again without its input dataset, and compared: exit code 1 if files differ
        though the stack is the same.
        """
        from counterfoil.cli.progress import BuildDisplay, note
        from counterfoil.engines import EngineChoice
        from counterfoil.plan.parts import PlanPart
        from counterfoil.recipe import load_recipe
        from counterfoil.recipe.names import license_note

        if (recipe is None) == (source is None):
            raise UserError(
                "build: found neither RECIPE nor --from" if recipe is None else "RECIPE and --from exclude each other",
                "Name a recipe to build, or --from DATASET to make a dataset again.",
            )
        part = None if shards is None else PlanPart.given(shards)
        if part is not None and source is not None:
            raise UserError(
                "build: --shards and --from exclude each other",
                "Parts are made of a recipe; a dataset directory is one too: counterfoil build DATASET --shards K/N.",
            )
        choice = EngineChoice(engine, address, collect)
        if source is not None:
            from counterfoil.cli.regeneration import make_again

            made = make_again(source, out, overrides or (), device, workers, allow_mixed, choice, json)
            raise typer.Exit(made)
        assert recipe is not None
        loaded = load_recipe(recipe, overrides or ())
        if told := license_note(loaded.license):
            note(told)
        note(f"{loaded.name} → {out}{'' if part is None else f', part {part}'}: loading libraries and resolving inputs")
        from counterfoil.building import PartResult, build

        with BuildDisplay():
            if shards is None:
                result = build(loaded, out, device=device, workers=workers, allow_mixed=allow_mixed, engine=choice)
            else:
                result = build(
                    recipe, out, overrides=overrides or (), device=device, workers=workers, allow_mixed=allow_mixed,
                    engine=choice, shards=shards,
                )  # fmt: skip
        if isinstance(result, PartResult):
            if json:
                print_json(part_as_json(result))
            else:
                print_part(result)
        elif json:
            print_json(build_as_json(result))
        else:
            print_summary(result)
