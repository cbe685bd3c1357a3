"""`counterfoil calibrate`: choose shift thresholds on a page, and apply them to a built dataset."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from counterfoil.cli.build import doubts_as_json, print_counts, print_next, warnings_as_json
from counterfoil.cli.options import BuiltArgument, JsonOption, OpenOption
from counterfoil.cli.terminal import agreed, fields_of, next_command, note, open_page, print_json, say
from counterfoil.errors import UserError

if TYPE_CHECKING:
    from counterfoil.reviewing.calibrate_dataset import Calibration
    from counterfoil.reviewing.recut_dataset import CutLosses

app = typer.Typer()


@app.command(epilog="Example: counterfoil calibrate photos-star --open")
def calibrate(
    dataset: BuiltArgument,
    apply: Annotated[
        Path | None, Option(metavar="FILE", help="Apply the thresholds of this YAML file to the dataset.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="The page to write (default: DATASET/.counterfoil/calibrate.html). With --apply: a new"
            " directory for the re-cut dataset.",
        ),
    ] = None,
    in_place: Annotated[
        bool,
        Option(
            "--in-place",
            help="With --apply: replace the dataset by the re-cut one. Lists what will be lost and asks first.",
        ),
    ] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --in-place: do not ask.")] = False,
    shifts: Annotated[
        list[str] | None, Option("--shift", metavar="NAME", help="Only this shift. Repeatable; not with --apply.")
    ] = None,
    source: Annotated[
        str | None,
        Option(
            metavar="PATH",
            help="Folder of the input dataset, if it is one. Needed where --apply sets a new object percentile.",
        ),
    ] = None,
    device: Annotated[str, Option(help="Where CLIP runs, if --apply sets a new object percentile.")] = "auto",
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Write a page on which you choose thresholds, and print the proposed ones as YAML.

    --apply takes such a YAML file and decides again which images are kept. It renders nothing.
    """
    if apply is None:
        if source is not None or device != "auto":
            raise UserError("--source and --device need --apply: the page uses no model and no input dataset")
        if in_place or yes:
            raise UserError("--in-place and --yes need --apply: the page changes nothing")
        from counterfoil.reviewing.calibrate_dataset import calibrate as run

        calibration = run(dataset, out, shifts or None)
        _show(calibration, json)
        open_page(calibration.page, opened)
        return
    if opened:
        raise UserError("--open does not go with --apply, which writes no page")
    if shifts:
        raise UserError("--shift does not go with --apply: the YAML file names the shifts")
    if in_place == (out is not None):
        raise UserError(
            "--apply FILE needs either --out NEW (a new directory for the re-cut dataset) or --in-place (which"
            f" changes {dataset} itself); found {'both' if in_place else 'neither'}"
        )
    note(f"{dataset}: applying the thresholds of {apply}")
    from counterfoil.reviewing.recut_dataset import recut

    ask = partial(_ask, dataset, yes)
    result = recut(dataset, apply, out, in_place=in_place, source=source, device=device, before=ask)
    if json:
        print_json(
            {
                **fields_of(result, "directory", "candidates", "accepted", "shards", "images_dropped", "changed"),
                **fields_of(result, "manifest_sha256", "counts"),
                **warnings_as_json(result),
            }
        )
    else:
        print_counts(result.counts)
        say(f"{result.accepted} of {result.candidates} candidates accepted; nothing was rendered.")
        say(f"The dataset is in {result.directory} (its card: {result.directory / 'README.md'}).")
    if not result.changed:
        note("Nothing was left to do: the dataset has these thresholds already.")
    if result.images_dropped > 0:
        note(f"{result.images_dropped} rejected images are no longer stored.")
    print_next(result)


def _ask(dataset: Path, yes: bool, losses: CutLosses) -> None:
    """Print what an in-place cut loses, and ask whether to continue. Raise UserError without a terminal."""
    note(f"This changes {dataset} and cannot be undone:")
    for line in losses.lines():
        note(f"  {line}")
    if yes:
        return
    if not agreed(
        "Apply the thresholds in place?",
        "--in-place asks before it deletes anything, and there is no terminal to ask on",
        "Pass -y to go on without asking, or --out NEW to leave the dataset as it is.",
    ):
        note("Nothing was changed.")
        raise typer.Exit(1)


def _show(calibration: Calibration, json: bool) -> None:
    directory, shifts = calibration.directory, calibration.shifts
    if json:
        cuts = [{**asdict(cut), "yield": cut.passed} for cut in shifts]
        doubts = doubts_as_json(calibration.screen_doubts)
        print_json(fields_of(calibration, "directory", "page", "cut") | {"shifts": cuts, "screen_doubts": doubts})
    else:
        typer.echo(calibration.cut, nl=False)
    unknown = [cut.shift for cut in shifts if cut.threshold is None]
    if unknown:
        note(f"Left out, because no candidate has a score: {', '.join(unknown)}")
    if calibration.shown < len(shifts):
        note(f"The page shows {calibration.shown} of {len(shifts)} shifts; name others with --shift.")
    note(
        f"Open {calibration.page} in a browser, move the sliders, and download cut.yaml."
        " Then, in the folder of cut.yaml:"
    )
    next_command("counterfoil", "calibrate", str(directory), "--apply", "cut.yaml", "--out", f"{directory}-cut")
