"""`counterfoil review`: a page on which people say what images show, and what their answers come to."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from counterfoil.cli.options import BuiltArgument, JsonOption, ManyValues, OpenOption
from counterfoil.cli.terminal import next_command, note, open_page, print_json, print_rows, say, terminal
from counterfoil.errors import UserError
from counterfoil.report.words import counted, number, points

if TYPE_CHECKING:
    from counterfoil.reviewing import Review, ReviewPage

app = typer.Typer()

_MOST_ROWS = 60  # review/selection.json holds every one


@app.command(
    cls=ManyValues,
    epilog="Example: counterfoil review photos-cut --answers anna.json ben.json",
)
def review(
    dataset: BuiltArgument,
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            "--answers",
            metavar="FILE...",
            help="Count these answers, a file of each person and page, and store what they say in the dataset; those "
            "that were stored before are replaced.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PAGE", help="The page (default: DATASET/.counterfoil/review.html)."),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option("--images", metavar="N", help="Images a shift (default: 40, fewer where a page of 12 MB ends)."),
    ] = None,
    task: Annotated[
        Literal["class", "shift", "both"],
        typer.Option("--task", help="Ask whether images show their class, their shift."),
    ] = "both",
    shifts: Annotated[
        list[str] | None, typer.Option("--shift", metavar="NAME", help="Only this shift. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Chooses and orders the images.")] = 0,
    source: Annotated[
        str | None, typer.Option("--source", metavar="PATH", help="Where the input dataset lies, if it is a folder.")
    ] = None,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls/--no-controls", help="Mix in real images of the classes, from the source's validation split."
        ),
    ] = True,
    opened: OpenOption = False,
    json: JsonOption = False,
) -> None:
    """Write a page on which people select images, or count their --answers: how often each image is selected."""
    if answers:
        given = {"--out": out, "--images": images, "--shift": shifts, "--source": source, "--seed": seed or None}
        given |= {"--task": None if task == "both" else task, "--no-controls": None if controls else True}
        given["--open"] = opened or None
        if with_page := [name for name, value in given.items() if value is not None]:
            raise UserError(f"{', '.join(with_page)} go with the page, and --answers counts what was answered to one")
        from counterfoil.reviewing import review_answers

        _show_answers(review_answers(dataset, answers), json)
        return
    from counterfoil.reviewing import review as run

    tasks: tuple[Literal["class", "shift"], ...] = ("class", "shift") if task == "both" else (task,)
    made = run(
        dataset, out, images=images, tasks=tasks, shifts=shifts or None, seed=seed, source=source, controls=controls
    )
    _show_page(made, json)
    open_page(Path(made.page), opened)


def _show_page(made: ReviewPage, json: bool) -> None:
    if json:
        print_json(asdict(made))
    else:
        say(str(made.page))
    of_classes = f"{len(made.classes)} of {counted(made.all_classes, 'class', 'classes')}"
    note(
        f"{counted(made.grids, 'grid')} of {made.images} of {made.accepted} accepted images, at most {made.each} a"
        " shift:"
        f" {len(made.shifts)} of {counted(made.all_shifts, 'shift')} (the base is one), {of_classes}."
    )
    if made.controls:
        note(f"Mixed in: {counted(made.controls, 'real image')}, and images without the label.")
    if made.without_controls is not None:
        note(f"No real images are mixed in: {made.without_controls}")
    for line in made.notes:
        note(f"Note: {line}.")
    note("Send the page to several people; each opens it in a browser and downloads answers.json at the end. With it:")
    next_command("counterfoil", "review", str(made.directory), "--answers", "answers.json")


def _show_answers(result: Review, json: bool) -> None:
    if json:
        print_json(result.to_json())
    else:
        _print_table(result)
        say(f"Stored in {result.folder}, and shown on the card of {result.directory}.")
    if result.replaced:
        note(f"What {counted(result.replaced, 'person', 'people')} had answered before is replaced.")
    for rater, given in zip(result.selection.raters, result.raters, strict=True):
        controls = rater.controls
        who = f"{rater.rater} ({given.path}{f', “{given.name}”' if given.name else ''})"
        passed = (
            f"{controls.real_passed} of {counted(controls.real, 'real image')} selected, {controls.without_passed} of"
            f" {controls.without} without the label left alone"
        )
        note(
            f"{who}: {counted(rater.grids, 'grid')}, {passed}."
            f"{' FAILED the controls, and counts all the same.' if rater.failed_controls else ''}"
        )
    for line in result.notes:
        note(f"Note: {line}.")
    names = [given.name.casefold() for given in result.raters if given.name]
    if len(set(names)) < len(names):
        note("Note: two of these people gave the same name; should they be one, give one of the files.")


def _print_table(result: Review) -> None:
    shifts, rows = result.selection.shifts, []
    for shift in shifts[:_MOST_ROWS]:
        rows.append([shift.name])
        for one in (shift.by_class, shift.by_shift):
            if one is None:
                rows[-1] += ["–", "–", "–"]
                continue
            selected, low, high = (points(getattr(one.selected, name)) for name in ("value", "low", "high"))
            rows[-1] += [f"{selected} ({low} to {high})", str(one.images), number(one.kappa)]
    columns = ("shift", "shows its class", "images", "kappa", "shows its shift", "images", "kappa")
    title = "Selection frequency in percent, with 95 % intervals over images"
    print_rows(terminal(120), columns, rows, title)
    if len(shifts) > _MOST_ROWS:
        say(f"and {len(shifts) - _MOST_ROWS} more shifts, in {result.folder / 'selection.json'}")
