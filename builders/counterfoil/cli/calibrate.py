"""`counterfoil calibrate`: choose shift thresholds on a page, and apply them to a built dataset."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from counterfoil.cli.build import doubts_as_json, print_counts, print_next, warnings_as_json
from counterfoil.cli.options import Agreed, Given, Opened, with_options
from counterfoil.cli.terminal import (
    confirmed,
    fields_of,
    next_command,
    open_page,
    print_json,
    print_line,
    print_note,
)
from counterfoil.errors import UserError
from counterfoil.reviewing.options import CalibrateOptions, RecutOptions

if TYPE_CHECKING:
    from counterfoil.reviewing.calibrate_dataset import Calibration
    from counterfoil.reviewing.recut_dataset import CutLosses


@with_options(
    "counterfoil calibrate photos-star --open", CalibrateOptions, RecutOptions, Agreed, Opened
)
def calibrate(given: Given) -> None:
    """Write a page on which you choose thresholds, and print the proposed ones as YAML.

    --apply takes such a YAML file and decides again which images are kept. It renders nothing.
    """
    dataset = given.get("DATASET")
    file = given.get("--apply")
    if file is None:
        if needing := given.others("--out", "--shift", "--open", "--json"):
            raise UserError(
                f"{' and '.join(needing)} need --apply: the page uses no model and no input"
                " dataset, and it changes nothing"
            )
        page_options = given.made(CalibrateOptions)
        from counterfoil.reviewing.calibrate_dataset import calibrate as run

        calibration = run(**vars(page_options))
        _show(calibration, given.json)
        open_page(calibration.page, given.get("--open"))
        return
    before = partial(_ask, dataset, given.get("--yes"))
    options = given.made(RecutOptions, "--apply", "writes no page", "--yes", before=before)
    if options.in_place == (options.out is not None):
        named = "both" if options.in_place else "neither"
        raise UserError(
            "--apply FILE needs either --out NEW (a new directory for the re-cut dataset) or"
            f" --in-place (which changes {dataset} itself); found {named}"
        )
    print_note(f"{dataset}: applying the thresholds of {file}")
    from counterfoil.reviewing.recut_dataset import recut

    result = recut(**vars(options))
    if given.json:
        document = fields_of(
            result,
            "directory",
            "candidates",
            "accepted",
            "shards",
        )
        document |= fields_of(
            result,
            "images_dropped",
            "changed",
            "manifest_sha256",
            "counts",
        )
        print_json(document | warnings_as_json(result))
    else:
        print_counts(result.counts)
        print_line(
            f"{result.accepted} of {result.candidates} candidates accepted; nothing was rendered."
        )
        print_line(
            f"The dataset is in {result.directory} (its card: {result.directory / 'README.md'})."
        )
    if not result.changed:
        print_note("Nothing was left to do: the dataset has these thresholds already.")
    if result.images_dropped > 0:
        print_note(f"{result.images_dropped} rejected images are no longer stored.")
    print_next(result)


def _ask(dataset: Path, yes: bool, losses: CutLosses) -> None:
    """Print what an in-place cut loses, and ask whether to continue. Raise UserError without a
    terminal."""
    print_note(f"This changes {dataset} and cannot be undone:")
    for line in losses.lines():
        print_note(f"  {line}")
    if yes:
        return
    if not confirmed(
        "Apply the thresholds in place?",
        "--in-place asks before it deletes anything, and there is no terminal to ask on",
        "Pass -y to go on without asking, or --out NEW to leave the dataset as it is.",
    ):
        print_note("Nothing was changed.")
        raise typer.Exit(1)


def _show(calibration: Calibration, json: bool) -> None:
    directory = calibration.directory
    shifts = calibration.shifts
    if json:
        cuts = [{**asdict(cut), "yield": cut.passed} for cut in shifts]
        doubts = doubts_as_json(calibration.screen_doubts)
        print_json(
            fields_of(calibration, "directory", "page", "cut")
            | {"shifts": cuts, "screen_doubts": doubts}
        )
    else:
        typer.echo(calibration.cut, nl=False)
    unknown = [cut.shift for cut in shifts if cut.threshold is None]
    if unknown:
        print_note(f"Left out, because no candidate has a score: {', '.join(unknown)}")
    if calibration.shown < len(shifts):
        print_note(
            f"The page shows {calibration.shown} of {len(shifts)} shifts; name others with --shift."
        )
    print_note(
        f"Open {calibration.page} in a browser, move the sliders, and download cut.yaml."
        " Then, in the folder of cut.yaml:"
    )
    next_command(
        "counterfoil",
        "calibrate",
        str(directory),
        "--apply",
        "cut.yaml",
        "--out",
        f"{directory}-cut",
    )
