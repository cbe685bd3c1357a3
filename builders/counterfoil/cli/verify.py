"""`counterfoil verify`: check that a dataset is complete and can be re-rendered; name damaged files
and repairs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import fit, note, print_json, say
from counterfoil.dataset.options import VerifyOptions
from counterfoil.report.words import counted

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
        note(f"Note: {line}")
    if not verification.whole:
        raise typer.Exit(1)


def _print_summary(verification: Verification) -> None:
    if verification.rerendered:
        for row in verification.rerendered:
            outcome = f"{row.key}: {row.outcome}"
            if row.psnr is not None:
                outcome += (
                    f": PSNR {row.psnr:.1f} dB, largest difference {row.greatest} of 255 levels"
                )
            say(outcome)
        for stack, count in Counter(row.stack for row in verification.rerendered).items():
            where = "on the original stack"
            if stack:
                where = (
                    f"on another stack (“here”) than the original’s (“there”): {'; '.join(stack)}"
                )
            say(f"{counted(count, 'row')} re-rendered {where}.")
        say("")
    for repair, problems in verification.by_repair().items():
        for problem in problems[:MOST_LISTED]:
            say(fit(str(problem)))
        if len(problems) > MOST_LISTED:
            say(f"… and {len(problems) - MOST_LISTED:,} more; --json lists all")
        say(f"  Repair: {fit(repair)}")
        say("")
    if not verification.whole:
        files = len({problem.path for problem in verification.problems})
        say(
            f"{verification.source} is damaged: {counted(files, 'file')} of {verification.files:,}."
        )
        return
    matching = f"{counted(verification.files, 'file')} ({_size(verification.bytes)})"
    say(
        f"{verification.source} is complete and undamaged: {matching} that match"
        f" manifest.json, {counted(verification.shards, 'shard')},"
        f" {counted(verification.candidates, 'candidate')} that match the plan,"
        f" {counted(verification.images, 'image')} that can be decoded."
    )
    say(f"Its sha256 is {verification.manifest_sha256}.")


def _size(count: int) -> str:
    size = float(count)
    units = ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size = size / 1000
        units = units[1:]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"
