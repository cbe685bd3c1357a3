"""`counterfoil build`: make the dataset of a recipe, or one of a dataset again, or go on where a run stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterfoil.cli.options import JsonOption, SetOption, print_json
from counterfoil.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from counterfoil.building import BuildResult
    from counterfoil.screen import FewImages

PIPED_WIDTH = 120
MOST_LISTED = 10

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
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 …")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes; default one a CPU core, one on a GPU.")
]
Mixed = Annotated[
    bool,
    typer.Option("--allow-mixed", help="Resume under other versions or another device; the card says so."),
]


def register(app: typer.Typer) -> None:
    @app.command(
        epilog="Example: counterfoil build wardrobe-mini --out wardrobe-mini; "
        "again: counterfoil build --from wardrobe-mini --out again"
    )
    def build(
        out: Out,
        recipe: Recipe = None,
        source: From = None,
        overrides: SetOption = None,
        device: Device = "auto",
        workers: Workers = None,
        allow_mixed: Mixed = False,
        json: JsonOption = False,
    ) -> None:
        """Render, screen and store a recipe's dataset, with its card; run again to resume.

        With --from, a dataset is made again without its input dataset, and compared: exit code 1 if files differ
        though the stack is the same.
        """
        from counterfoil.cli.progress import BuildProgress, note
        from counterfoil.recipe import load_recipe

        if (recipe is None) == (source is None):
            raise UserError(
                "build: found neither RECIPE nor --from" if recipe is None else "RECIPE and --from exclude each other",
                "Name a recipe to build, or --from DATASET to make a dataset again.",
            )
        if source is not None:
            from counterfoil.cli.regeneration import make_again

            made = make_again(source, out, overrides or (), device, workers, allow_mixed, json)
            raise typer.Exit(made)
        assert recipe is not None
        loaded = load_recipe(recipe, overrides or ())
        note(f"{loaded.name} → {out}: loading libraries and resolving inputs")
        from counterfoil.building import build as run
        from counterfoil.cli.tokens import TokenLines

        with BuildProgress() as progress:
            result = run(
                loaded,
                out,
                device=device,
                workers=workers,
                allow_mixed=allow_mixed,
                on_progress=progress.update,
                on_token_steps=TokenLines(),
            )
        if json:
            print_json(build_as_json(result))
        else:
            print_summary(result)


def build_as_json(result: BuildResult) -> dict[str, Any]:
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
        **warnings_as_json(result.directory, result.open_shifts, result.few_images),
    }


def warnings_as_json(directory: Path, open_shifts: Sequence[str], few_images: Sequence[FewImages]) -> dict[str, Any]:
    """What a machine should know of open shifts and of percentiles over too few images."""
    return {
        "open_shifts": list(open_shifts),
        "next": f"counterfoil {'calibrate' if open_shifts else 'evaluate'} {directory}",
        "few_validation_images": [
            {"class_id": few.class_id, "percentile": few.percentile, "n": few.n, "needs": few.needs}
            for few in few_images
        ],
    }


def print_warnings(directory: Path, open_shifts: Sequence[str], few_images: Sequence[FewImages]) -> None:
    """The same for people, on stderr; at most a few lines."""
    from counterfoil.cli.progress import note

    if few_images:
        note("Percentiles over fewer validation images than they need, little more than the least of them:")
        for few in few_images[:MOST_LISTED]:
            note(f"  {few}")
        if len(few_images) > MOST_LISTED:
            note(f"  … and {len(few_images) - MOST_LISTED} more (the card and thresholds.json tell)")
    if open_shifts:
        shown = ", ".join(open_shifts[:MOST_LISTED]) + (" …" if len(open_shifts) > MOST_LISTED else "")
        note(f"Open, without a threshold yet, so nothing of them is accepted: {shown}")
        note(f"Choose: counterfoil calibrate {directory} > cut.yaml")
        note(f"Then cut: counterfoil calibrate {directory} --apply cut.yaml")


def print_counts(by_shift: Mapping[str, Mapping[str, int]]) -> None:
    """A table of candidates, accepted, yield and reasons, a row a shift; "open" where nothing is decided."""
    from rich import box
    from rich.table import Table

    reasons = sorted({r for counts in by_shift.values() for r in counts} - {"accepted"})
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("shift")
    for name in ("candidates", "accepted", "yield", *reasons):
        table.add_column(name, justify="right")
    for shift, counts in by_shift.items():
        total, kept = sum(counts.values()), counts.get("accepted", 0)
        rest = [str(counts.get(reason, 0)) for reason in reasons]
        share = "open" if counts.get("open") else f"{kept / total:.1%}" if total else "-"
        table.add_row(shift, str(total), str(kept), share, *rest)
    _console().print(table)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def print_summary(result: BuildResult) -> None:
    from rich.console import Console

    console = _console()
    print_counts(result.counts)
    rate = f", {result.images_per_second:.1f} images a second" if result.images_per_second else ""
    made = (
        f"{result.shards_made} of {result.shards} shards made now" if result.shards_made else "nothing was left to do"
    )
    console.print(f"{result.accepted} of {result.candidates} candidates accepted; {made}{rate}.", highlight=False)
    console.print(
        f"The dataset is in {result.directory} (its card: {result.directory / 'README.md'}).", highlight=False
    )
    print_warnings(result.directory, result.open_shifts, result.few_images)
    if not result.open_shifts:
        Console(stderr=True).print(f"Next: counterfoil evaluate {result.directory}", style="dim", highlight=False)
