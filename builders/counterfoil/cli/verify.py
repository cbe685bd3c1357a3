"""`counterfoil verify`: check that a dataset is complete and can be re-rendered; name damaged files
and repairs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import fit_text, print_json, print_line, print_note
from counterfoil.dataset.options import VerifyOptions
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.dataset.verification import Verification

MOST_LISTED = 50  # damaged files shown for each repair; --json has all


@with_options("counterfoil verify wardrobe-mini --rerender 5", VerifyOptions)
def verify(given: Given) -> None:
    """Check that a dataset is complete and undamaged: every file, row and image. The exit code is 1
    if it is damaged.

    --rerender also checks that its images can be rendered again. If the generator is a folder, say
    where it is: --set generator.model=local-dir:PATH
    """
    options = given.made(VerifyOptions)
    from counterfoil.dataset import verification as checks

    with StageProgress():
        verification = checks.verify(**vars(options))
    if given.json:
        print_json(verification.to_json())
    else:
        _print_summary(verification)
    for line in verification.notes:
        print_note(f"Note: {line}")
    if not verification.whole:
        raise typer.Exit(1)


def _print_summary(verification: Verification) -> None:
    if verification.rerendered:
        for row in verification.rerendered:
            outcome = f"{row.key}: {row.outcome}"
            if row.psnr is not None:
                levels = f"largest difference {row.greatest} of 255 levels"
                outcome += f": PSNR {row.psnr:.1f} dB, {levels}"
            print_line(outcome)
        for stack, count in Counter(row.stack for row in verification.rerendered).items():
            where = "on the original stack"
            if stack:
                other = "; ".join(stack)
                where = f"on another stack (“here”) than the original’s (“there”): {other}"
            print_line(f"{format_count(count, 'row')} re-rendered {where}.")
        print_line("")
    for repair, problems in verification.by_repair().items():
        for problem in problems[:MOST_LISTED]:
            print_line(fit_text(str(problem)))
        if len(problems) > MOST_LISTED:
            print_line(f"… and {len(problems) - MOST_LISTED:,} more; --json lists all")
        print_line(f"  Repair: {fit_text(repair)}")
        print_line("")
    if not verification.whole:
        files = len({problem.path for problem in verification.problems})
        print_line(
            f"{verification.source} is damaged: {format_count(files, 'file')} of {verification.files:,}."
        )
        return
    matching = f"{format_count(verification.files, 'file')} ({_size(verification.bytes)})"
    print_line(
        f"{verification.source} is complete and undamaged: {matching} that match"
        f" manifest.json, {format_count(verification.shards, 'shard')},"
        f" {format_count(verification.candidates, 'candidate')} that match the plan,"
        f" {format_count(verification.images, 'image')} that can be decoded."
    )
    print_line(f"Its sha256 is {verification.manifest_sha256}.")


def _size(count: int) -> str:
    size = float(count)
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size = size / 1000
        units = units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
