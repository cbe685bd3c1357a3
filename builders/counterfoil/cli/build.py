"""`counterfoil build`: make the dataset of a recipe, or go on where an earlier run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil.cli.options import JsonOption, RecipeArgument, SetOption, print_json

if TYPE_CHECKING:
    from counterfoil.building import BuildResult

PIPED_WIDTH = 120

Out = Annotated[Path, typer.Option("--out", "-o", help="Directory of the dataset; new, empty, or one to resume.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default one a CPU core, one on a GPU.")
]
Mixed = Annotated[
    bool,
    typer.Option("--allow-mixed", help="Resume under other versions or another device; the card says so."),
]


def register(app: typer.Typer) -> None:
    @app.command(epilog="Example: counterfoil build wardrobe-mini --out wardrobe-mini")
    def build(
        recipe: RecipeArgument,
        out: Out,
        overrides: SetOption = None,
        device: Device = "auto",
        workers: Workers = None,
        allow_mixed: Mixed = False,
        json: JsonOption = False,
    ) -> None:
        """Render, screen and store a recipe's dataset, with its card; run again to resume."""
        from counterfoil.cli.progress import BuildProgress, note
        from counterfoil.recipe import load_recipe

        loaded = load_recipe(recipe, overrides or ())
        note(f"{loaded.name} → {out}: loading libraries and resolving inputs")
        from counterfoil.building import build as run

        with BuildProgress() as progress:
            result = run(
                loaded,
                out,
                device=device,
                workers=workers,
                allow_mixed=allow_mixed,
                on_progress=progress.update,
            )
        if json:
            print_json(_as_json(result))
        else:
            _print_summary(result)


def _as_json(result: BuildResult) -> dict[str, Any]:
    return {
        "directory": str(result.directory),
        "candidates": result.candidates,
        "accepted": result.accepted,
        "shards": result.shards,
        "shards_made": result.shards_made,
        "images_made": result.images_made,
        "seconds": round(result.seconds, 3),
        "manifest_sha256": result.manifest_sha256,
        "counts": result.counts,
    }


def _print_summary(result: BuildResult) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    reasons = sorted({r for counts in result.counts.values() for r in counts} - {"accepted"})
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("shift")
    for name in ("candidates", "accepted", "yield", *reasons):
        table.add_column(name, justify="right")
    for shift, counts in result.counts.items():
        total, kept = sum(counts.values()), counts.get("accepted", 0)
        rest = [str(counts.get(reason, 0)) for reason in reasons]
        table.add_row(shift, str(total), str(kept), f"{kept / total:.1%}" if total else "-", *rest)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH)
    console.print(table)
    rate = f", {result.images_per_second:.1f} images a second" if result.images_per_second else ""
    made = (
        f"{result.shards_made} of {result.shards} shards made now" if result.shards_made else "nothing was left to do"
    )
    console.print(f"{result.accepted} of {result.candidates} candidates accepted; {made}{rate}.", highlight=False)
    console.print(
        f"The dataset is in {result.directory} (its card: {result.directory / 'README.md'}).", highlight=False
    )
    Console(stderr=True).print(f"Next: counterfoil evaluate {result.directory}", style="dim", highlight=False)
