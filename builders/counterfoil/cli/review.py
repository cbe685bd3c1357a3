"""`counterfoil review`: a page on which people say what images show, and the result of their
answers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.cli.options import Given, Opened, with_options
from counterfoil.cli.terminal import (
    make_console,
    next_command,
    open_page,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from counterfoil.report.words import NOTHING, format_count, format_number
from counterfoil.reviewing.options import AnswersOptions, ReviewOptions

if TYPE_CHECKING:
    from counterfoil.reviewing.review_answers import Review

_MOST_ROWS = 60  # review/selection.json holds every row


@with_options(
    "counterfoil review photos-cut --answers anna.json ben.json",
    ReviewOptions,
    AnswersOptions,
    Opened,
)
def review(given: Given) -> None:
    """Write a page on which people select the images that show their class and their shift.

    --answers counts what people selected, and stores how often each image was selected.
    """
    if given.get("--answers"):
        counting = given.made(AnswersOptions, "--answers", "writes no page")
        from counterfoil.reviewing.review_answers import review_answers

        _show_answers(review_answers(**vars(counting)), given.json)
        return
    options = given.made(ReviewOptions)
    from counterfoil.reviewing.review_dataset import review as write_page

    written = write_page(**vars(options))
    if given.json:
        print_json(asdict(written))
    else:
        print_line(str(written.page))
    images = f"{written.images} of {written.accepted} accepted images"
    if written.rejected:
        images += f" and {format_count(written.rejected, 'rejected image')}"
    shifts = (
        f"{len(written.shifts)} of {format_count(written.all_shifts, 'shift')} (the base is one)"
    )
    classes = f"{len(written.classes)} of {format_count(written.all_classes, 'class', 'classes')}"
    print_note(
        f"{format_count(written.grids, 'grid')} of {images}, at most {written.each} per shift:"
        f" {shifts}, {classes}."
    )
    if written.controls:
        print_note(
            f"Mixed in: {format_count(written.controls, 'real image')}, and images without the label."
        )
    if written.without_controls is not None:
        print_note(f"No real images are mixed in: {written.without_controls}")
    for line in written.notes:
        print_note(f"Note: {line}.")
    print_note(
        "Send the page to several people. Each opens it in a browser and downloads answers.json at"
        " the end. Then run:"
    )
    next_command("counterfoil", "review", str(written.directory), "--answers", "answers.json")
    open_page(Path(written.page), given.get("--open"))


def _show_answers(result: Review, json: bool) -> None:
    from counterfoil.report.labels import share_words

    if json:
        print_json(result.to_json())
    else:
        shifts = result.selection.shifts
        rows = []
        for shift in shifts[:_MOST_ROWS]:
            row = [shift.name]
            for selection in (shift.by_class, shift.by_shift):
                if selection is None:
                    row += [NOTHING] * 3
                    continue
                selected = share_words(selection.selected)
                row += [selected, str(selection.images), format_number(selection.kappa)]
            rows.append(row)
        columns = (
            "shift",
            "shows its class",
            "images",
            "kappa",
            "shows its shift",
            "images",
            "kappa",
        )
        title = "Selection frequency in percent (95 % confidence interval over images)"
        print_rows(make_console(120), columns, rows, title)
        if len(shifts) > _MOST_ROWS:
            print_line(
                f"and {len(shifts) - _MOST_ROWS} more shifts, in {result.folder / 'selection.json'}"
            )
        _show_screen(result)
        print_line(f"Stored in {result.folder}, and shown on the card of {result.directory}.")
    if result.replaced:
        print_note(
            f"This replaces the earlier answers of {format_count(result.replaced, 'person', 'people')}."
        )
    for rater, file in zip(result.selection.raters, result.raters, strict=True):
        controls = rater.controls
        name = f", “{file.name}”" if file.name else ""
        grids = format_count(rater.grids, "grid")
        selected = f"{controls.real_passed} of {format_count(controls.real, 'real image')} selected"
        unselected = (
            f"{controls.without_passed} of {controls.without} images without the label left"
            " unselected"
        )
        failed = " FAILED the controls, but is counted." if rater.failed_controls else ""
        print_note(f"{rater.rater} ({file.path}{name}): {grids}, {selected}, {unselected}.{failed}")
    for line in result.notes:
        print_note(f"Note: {line}.")
    names = [file.name.casefold() for file in result.raters if file.name]
    if len(set(names)) < len(names):
        print_note(
            "Note: two of these people gave the same name. If they are one person, pass only one of"
            " the files."
        )


def _show_screen(result: Review) -> None:
    """Print the errors of each keep rule over all shifts; the table holds those of each shift."""
    from counterfoil.report.labels import share_words
    from counterfoil.reviewing.screen_errors import ALL, TABLE

    rows = []
    for row in result.screen:
        if row.shift != ALL:
            continue
        errors = row.errors
        cells = [row.rule if row.rule != ALL else "all rules"]
        sides = (
            (errors.kept, errors.kept_answered, errors.false_accepts),
            (errors.dropped, errors.dropped_answered, errors.false_rejects),
        )
        for images, answered, share in sides:
            shown = NOTHING if share is None else share_words(share)
            cells += [f"{answered} of {images:,}", shown]
        rows.append(cells)
    if rows:
        columns = ("keep rule", "kept, seen", "false accepts", "dropped, seen", "false rejects")
        title = (
            "False accepts of what a rule alone keeps, and false rejects of what is right, in percent"
            " (95 % confidence interval)"
        )
        print_rows(make_console(120), columns, rows, title)
        print_line(f"By shift: {result.folder / TABLE}")
