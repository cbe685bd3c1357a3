"""`counterfoil demo`: from a recipe to a report in two minutes, with the models that ship in the
package."""

from __future__ import annotations

from pathlib import Path

from counterfoil.cli.options import Given, Opened, with_options
from counterfoil.cli.terminal import next_command, print_line, print_note
from counterfoil.options import option, options

RECIPE = "wardrobe-mini"
_WORK = "renders 1,200 images with a small diffusion model, then evaluates eight classifiers"
_QUICK_RECIPE = "wardrobe-corrupt"
_QUICK_WORK = (
    "changes 100 embedded images of garments in twelve ways, then evaluates three classifiers"
)
_QUICK_IMAGES = 10  # images of each class in the base and in each corruption


@options
class _DemoOptions(Opened):
    out: Path = option(Path("demo"), None, "--out", "-o")
    """Folder for the dataset and its report."""
    quick: bool = False
    """Draw nothing: corrupt embedded images of garments, in under a minute."""


@with_options("counterfoil demo --out demo", _DemoOptions)
def demo(given: Given) -> None:
    """Build a small test set on the CPU, evaluate classifiers on it and write a report. Run again
    to resume.

    Needs no GPU, no network and no data of your own: small models that ship with Counterfoil draw
    the images.
    """
    from counterfoil.building.build_dataset import build
    from counterfoil.cli.build import print_counts
    from counterfoil.cli.evaluate import evaluate_and_print
    from counterfoil.cli.progress import BuildDisplay
    from counterfoil.evaluation.options import EvaluateArguments

    out = given.get("--out")
    quick = given.get("--quick")
    recipe, work = (_QUICK_RECIPE, _QUICK_WORK) if quick else (RECIPE, _WORK)
    dataset = out / recipe
    print_note(f"{recipe} → {dataset}: {work}.")
    overrides = [f"samples.candidates={_QUICK_IMAGES}"] if quick else []
    with BuildDisplay():
        built = build(recipe, dataset, overrides=overrides, device="cpu")
    if not given.json:
        print_counts(built.counts)
    report = out / f"{recipe}-evaluation"
    arguments = EvaluateArguments(dataset, out=report, device="cpu", into_card=True)
    evaluate_and_print(arguments, given)
    if given.json:
        return
    print_line(f"{'card:':<12} {dataset / 'README.md'}")
    next_command("counterfoil", "open", str(report))
    next_command("counterfoil", "init", "./photos")
