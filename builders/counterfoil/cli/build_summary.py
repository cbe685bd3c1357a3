"""What people and machines are told of a finished build: counts by shift, warnings, where it is, what comes next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.cli.terminal import terminal
from counterfoil.report.words import counted

if TYPE_CHECKING:
    from counterfoil.building import BuildResult, PartResult
    from counterfoil.screen import FewImages, ScreenDoubts

PIPED_WIDTH = 120
MOST_LISTED = 10


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
        **({"notes": list(result.notes)} if result.notes else {}),
        **warnings_as_json(result.directory, result.open_shifts, result.few_images, result.screen_doubts),
    }


def part_as_json(result: PartResult) -> dict[str, Any]:
    return {
        "directory": str(result.directory),
        "part": str(result.part),
        "shards": result.shards,
        "shards_made": result.shards_made,
        "images_made": result.images_made,
        "seconds": round(result.seconds, 3),
        "all_shards": result.all_shards,
        "all_done": result.all_done,
        "closed": result.closed,
        **({"notes": list(result.notes)} if result.notes else {}),
    }


def print_part(result: PartResult) -> None:
    """What a part has made, how much of the whole is done, and how the dataset is closed."""
    from counterfoil.cli.progress import note

    console = terminal(PIPED_WIDTH)
    rate = f", {result.images_per_second:.1f} images a second" if result.images_per_second else ""
    if not result.shards:
        made = f"Part {result.part} is empty: the plan has {counted(result.all_shards, 'shard')}"
    elif not result.shards_made:
        made = f"Part {result.part}: nothing was left to do, its {counted(result.shards, 'shard')} are done"
    else:
        made = f"Part {result.part}: {result.shards_made} of its {counted(result.shards, 'shard')} made now{rate}"
    console.print(f"{made}.", highlight=False)
    done = f"{result.all_done} of {counted(result.all_shards, 'shard')} of the whole are done"
    closed = "is closed already" if result.closed else "is not closed"
    console.print(f"{done}; the dataset in {result.directory} {closed}.", highlight=False)
    for sentence in result.notes:
        note(sentence)
    if not result.closed:
        note("When all parts have ended, the same command without --shards makes what is missing, and closes.")


def warnings_as_json(
    directory: Path, open_shifts: Sequence[str], few_images: Sequence[FewImages], doubts: ScreenDoubts | None
) -> dict[str, Any]:
    """What a machine should know of open shifts, of percentiles over too few images, and of what CLIP does not know."""
    return {
        "open_shifts": list(open_shifts),
        "next": f"counterfoil {'calibrate' if open_shifts else 'evaluate'} {directory}",
        "few_validation_images": [
            {"class_id": few.class_id, "percentile": few.percentile, "n": few.n, "needs": few.needs}
            for few in few_images
        ],
        "screen_doubts": doubts_as_json(doubts),
    }


def doubts_as_json(doubts: ScreenDoubts | None) -> dict[str, Any] | None:
    """The warning in words, and its numbers."""
    return None if doubts is None else {"warning": f"{doubts.headline} {doubts.meaning}", **asdict(doubts)}


def print_doubts(lines: Sequence[str]) -> None:
    """What speaks against CLIP (`ScreenDoubts.lines`), before what rests on it: on stderr, a line each."""
    from counterfoil.cli.progress import note

    for at, line in enumerate(lines):
        note(line if at else f"Warning: {line}")


def print_warnings(
    directory: Path, open_shifts: Sequence[str], few_images: Sequence[FewImages], doubts: ScreenDoubts | None
) -> None:
    """The same for people, on stderr; at most a few lines."""
    from counterfoil.cli.progress import next_command, note

    if doubts is not None:
        note(f"Warning: {doubts.headline} {doubts.meaning} The card tells more.")
    if few_images:
        note("Percentiles over fewer validation images than they need, little more than the least of them:")
        for few in few_images[:MOST_LISTED]:
            note(f"  {few}")
        if len(few_images) > MOST_LISTED:
            note(f"  … and {len(few_images) - MOST_LISTED} more (the card and thresholds.json tell)")
    if open_shifts:
        shown = ", ".join(open_shifts[:MOST_LISTED]) + (" …" if len(open_shifts) > MOST_LISTED else "")
        note(f"Waiting for a threshold, so nothing of them is kept yet: {shown}")
        note("A page shows their pictures: move the sliders, look, download cut.yaml.")
        next_command("counterfoil", "calibrate", str(directory))


def print_counts(by_shift: Mapping[str, Mapping[str, int]]) -> None:
    """A table of candidates, accepted, yield and reasons, a row a shift; "waits" where nothing is decided."""
    from rich import box
    from rich.table import Table

    from counterfoil.keep import ACCEPTED, OPEN

    reasons = sorted({r for counts in by_shift.values() for r in counts} - {ACCEPTED})
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("shift")
    for name in ("candidates", "accepted", "yield", *reasons):
        table.add_column(name, justify="right")
    for shift, counts in by_shift.items():
        total, kept = sum(counts.values()), counts.get(ACCEPTED, 0)
        rest = [str(counts.get(reason, 0)) for reason in reasons]
        share = "waits" if counts.get(OPEN) else f"{kept / total:.1%}" if total else "-"
        table.add_row(shift, str(total), str(kept), share, *rest)
    terminal(PIPED_WIDTH).print(table)


def print_summary(result: BuildResult) -> None:
    console = terminal(PIPED_WIDTH)
    print_counts(result.counts)
    rate = f", {result.images_per_second:.1f} images a second" if result.images_per_second else ""
    made = (
        f"{result.shards_made} of {counted(result.shards, 'shard')} made now"
        if result.shards_made
        else "nothing was left to do"
    )
    console.print(f"{result.accepted} of {result.candidates} candidates accepted; {made}{rate}.", highlight=False)
    console.print(
        f"The dataset is in {result.directory} (its card: {result.directory / 'README.md'}).", highlight=False
    )
    print_warnings(result.directory, result.open_shifts, result.few_images, result.screen_doubts)
    for sentence in result.notes:
        terminal(stderr=True).print(sentence, markup=False, highlight=False)
    if not result.open_shifts:
        next_evaluation(result.directory)


def next_evaluation(directory: Path) -> None:
    """What evaluates a dataset: a line that runs where its recipe names models, else one to complete."""
    from counterfoil.cli.progress import next_command, note
    from counterfoil.recipe import load_own_recipe
    from counterfoil.recipe.names import ELSEWHERE

    words = ("counterfoil", "evaluate", str(directory))
    if any(not name.startswith(ELSEWHERE) for name in load_own_recipe(directory).evaluate.models):
        next_command(*words)
    else:
        note(f"Then score a model of yours: {shlex.join(words)} --models local-dir:FOLDER")
