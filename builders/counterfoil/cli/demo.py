"""`counterfoil demo`: from a recipe to a report in two minutes, with the models that ship in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.options import JsonOption, OpenOption
from counterfoil.cli.terminal import next_command, note, say

app = typer.Typer()

RECIPE = "wardrobe-mini"


@app.command(epilog="Example: counterfoil demo --out demo")
def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the dataset and its report.")] = Path("demo"),
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Build a small test set on the CPU, evaluate eight classifiers on it and write a report. Run again to resume.

    Needs no GPU, no network and no data of your own: small models that ship with Counterfoil draw the images.
    """
    from counterfoil.building import build
    from counterfoil.cli.build import print_counts
    from counterfoil.cli.evaluate import evaluate
    from counterfoil.cli.progress import BuildDisplay

    dataset = out / RECIPE
    note(f"{RECIPE} → {dataset}: renders 1,200 images with a small diffusion model, then evaluates eight classifiers.")
    with BuildDisplay():
        built = build(RECIPE, dataset, device="cpu")
    if not json:
        print_counts(built.counts)
    report = out / f"{RECIPE}-evaluation"
    evaluate(context, str(dataset), out=report, device="cpu", into_card=True, opened=opened, json=json)
    if json:
        return
    say(f"{'card:':<13}{dataset / 'README.md'}")
    next_command("counterfoil", "open", str(dataset))
    next_command("counterfoil", "init", "./photos")
