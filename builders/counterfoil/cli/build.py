"""`counterfoil tokens` and `build`: learn class tokens; build a dataset or rebuild one, or resume
either."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from counterfoil.building.options import BuildOptions, RegenerateOptions
from counterfoil.cli.options import Given, with_options
from counterfoil.cli.progress import BuildDisplay, TokenLines
from counterfoil.cli.terminal import (
    fields_of,
    make_console,
    next_command,
    print_json,
    print_line,
    print_note,
    print_plain,
    print_rows,
)
from counterfoil.errors import UserError, first_of
from counterfoil.generate.tokens.options import ImportOptions, TokenOptions
from counterfoil.progress import listening
from counterfoil.report.words import format_count, preview_sentence

if TYPE_CHECKING:
    from counterfoil.building.build_dataset import BuildResult, PartResult
    from counterfoil.building.regenerate_dataset import Comparison
    from counterfoil.generate.screen.doubts import ScreenDoubts
    from counterfoil.reviewing.recut_dataset import RecutResult

_WIDTH = 120
MOST_LISTED = 10


@with_options(
    "counterfoil tokens wardrobe-star --set 'tokens={path: null, learn: {}}' --out mine",
    TokenOptions,
    ImportOptions,
)
def tokens(given: Given) -> None:
    """Learn a recipe's class tokens (textual inversion), or import released ones. Run again to
    resume."""
    from counterfoil.recipe import load_recipe

    recipe = given.get("RECIPE")
    source = given.get("--import")
    loaded = load_recipe(recipe, given.get("--set") or ())
    folder = given.get("--out") or Path(f"{loaded.name}-tokens")
    print_note(f"{loaded.name} → {folder}: loading libraries and resolving inputs")
    if source is not None:
        from counterfoil.generate.tokens.import_tokens import import_tokens

        does = "computes nothing"
        importing = given.made(
            ImportOptions, "--import", does, recipe=loaded, out=folder, overrides=()
        )
        result = import_tokens(**vars(importing))
    else:
        from counterfoil.generate.tokens.learn_tokens import learn_tokens

        options = given.made(TokenOptions, recipe=loaded, out=folder, overrides=())
        with listening(TokenLines().draw):
            result = learn_tokens(**vars(options))
    if given.json:
        print_json(
            {
                "folder": result.folder,
                "classes": len(result.losses),
                "learned_now": result.learned,
                "losses": dict(result.losses),
                "manifest_sha256": result.manifest_sha256,
            }
        )
    else:
        losses = [loss for loss in result.losses.values() if loss is not None]
        mean = f", mean loss {sum(losses) / len(losses):.4f}" if losses else ""
        made = f"{len(result.learned)} of them made in this run"
        print_line(f"{len(result.losses)} class tokens in {result.folder}{mean}; {made}.")
        shown = result.folder if result.folder.is_absolute() else f"./{result.folder}"
        built = f"{result.folder}-built"
        next_command(
            "counterfoil", "build", recipe, "--set", f"tokens={{path: {shown}}}", "--out", built
        )


@with_options(
    "counterfoil build wardrobe-mini --out wardrobe-mini", BuildOptions, RegenerateOptions
)
def build(given: Given) -> None:
    """Render a recipe's images, screen them, and store them as a dataset with a card. Run again to
    resume.

    --from rebuilds a dataset from what it records and compares the two; only images that were made
    from rows need the input dataset. The exit code is 1 if files differ on the same stack (device
    and library versions).
    """
    recipe = given.get("RECIPE")
    source = given.get("--from")
    shards = given.get("--shards")
    if (recipe is None) == (source is None):
        problem = "build takes RECIPE or --from, not both"
        if recipe is None:
            problem = "build needs RECIPE or --from"
        hint = "Name a recipe to build, or give --from DATASET to rebuild a dataset."
        raise UserError(problem, hint)
    result: BuildResult | PartResult
    if source is not None:
        rebuilding = given.made(RegenerateOptions, "--from", "builds what the dataset has")
        print_note(f"{source} → {rebuilding.out}: loading libraries and checking the original")
        from counterfoil.building.regenerate_dataset import regenerate

        with BuildDisplay():
            result = regenerate(**vars(rebuilding))
    else:
        from counterfoil.plan.layout import PlanPart
        from counterfoil.recipe import load_recipe
        from counterfoil.recipe.names import license_note

        options = given.made(BuildOptions)
        of_part = "" if shards is None else f", part {PlanPart.given(shards)}"
        loaded = load_recipe(options.recipe, options.overrides)
        if unlisted := license_note(loaded.license):
            print_note(unlisted)
        print_note(
            f"{loaded.name} → {options.out}{of_part}: loading libraries and resolving inputs"
        )
        if shards is None:
            options = replace(options, recipe=loaded, overrides=())
        from counterfoil.building.build_dataset import build

        with BuildDisplay():
            result = build(**vars(options))
    from counterfoil.building.build_dataset import PartResult
    from counterfoil.building.regenerate_dataset import Regeneration

    if isinstance(result, PartResult):
        _print_part(result, given.json)
        return
    if given.json:
        print_json(_as_json(result))
    else:
        _print_built(result)
    if isinstance(result, Regeneration) and result.comparison and result.comparison.unexplained:
        raise typer.Exit(1)


def _as_json(result: BuildResult) -> dict[str, Any]:
    from counterfoil.building.regenerate_dataset import Regeneration

    document = {
        **fields_of(
            result,
            "directory",
            "candidates",
            "accepted",
        ),
        **fields_of(
            result,
            "shards",
            "shards_made",
            "images_made",
        ),
        "seconds": round(result.seconds, 3),
        **fields_of(result, "manifest_sha256", "counts"),
    }
    if result.preview:
        document["preview"] = result.preview
    if result.notes:
        document["notes"] = result.notes
    document |= warnings_as_json(result)
    if isinstance(result, Regeneration):
        document |= {"repaired": result.repaired, "comparison": None}
        comparison = result.comparison
        if comparison is not None:
            compared = {"identical": comparison.identical, **asdict(comparison)}
            document["comparison"] = compared
    return document


def _print_built(result: BuildResult) -> None:
    from counterfoil.building.regenerate_dataset import Regeneration

    console = make_console(_WIDTH)
    made = "nothing was left to do"
    if result.shards_made:
        made = f"{result.shards_made} of {format_count(result.shards, 'shard')} made in this run"
    print_counts(result.counts)
    accepted = f"{result.accepted} of {result.candidates} candidates accepted"
    console.print(f"{accepted}; {made}{_rate(result)}.", highlight=False)
    card = f"its card: {result.directory / 'README.md'}"
    print_plain(console, f"The dataset is in {result.directory} ({card}).")
    if result.preview:
        print_note(preview_sentence(result.preview))
    for sentence in result.notes:
        print_plain(make_console(stderr=True), sentence)
    print_next(result)
    if isinstance(result, Regeneration):
        for line in _compared_lines(result.comparison):
            print(line)


def _print_part(result: PartResult, json: bool) -> None:
    if json:
        document = {
            **fields_of(result, "directory", "part", "shards", "shards_made", "images_made"),
            "seconds": round(result.seconds, 3),
            **fields_of(result, "all_shards", "all_done", "closed"),
        }
        if result.notes:
            document["notes"] = result.notes
        print_json(document)
        return
    console = make_console(_WIDTH)
    part = f"Part {result.part}"
    shards = format_count(result.shards, "shard")
    every = format_count(result.all_shards, "shard")
    if not result.shards:
        made = f"{part} is empty: the plan has {every}"
    elif not result.shards_made:
        made = f"{part}: nothing left to do, its {shards} are done"
    else:
        made = f"{part}: {result.shards_made} of its {shards} made in this run{_rate(result)}"
    console.print(f"{made}.", highlight=False)
    done = f"{result.all_done} of {every} in all are done"
    closed = "is complete" if result.closed else "is not complete yet"
    print_plain(console, f"{done}; the dataset in {result.directory} {closed}.")
    for sentence in result.notes:
        print_note(sentence)
    if not result.closed:
        print_note(
            "When all parts have ended, run the same command without --shards: it makes what is"
            " missing and completes the dataset."
        )


def _rate(result: BuildResult | PartResult) -> str:
    if not result.images_per_second:
        return ""
    return f", {result.images_per_second:.1f} images per second with loading"


def warnings_as_json(result: BuildResult | RecutResult) -> dict[str, Any]:
    few = [fields_of(few, "class_id", "percentile", "n", "needs") for few in result.few_images]
    following = "calibrate" if result.open_shifts else "evaluate"
    return {
        "open_shifts": list(result.open_shifts),
        "next": f"counterfoil {following} {result.directory}",
        "few_validation_images": few,
        "screen_doubts": doubts_as_json(result.screen_doubts),
    }


def doubts_as_json(doubts: ScreenDoubts | None) -> dict[str, Any] | None:
    if doubts is None:
        return None
    return {"warning": f"{doubts.headline} {doubts.meaning}", **asdict(doubts)}


def print_counts(by_shift: Mapping[str, Mapping[str, int]]) -> None:
    """Print a row per shift: candidates, accepted, yield ("no threshold" if the shift is open) and
    reasons."""
    from counterfoil.recipe.keep.cells import ACCEPTED, OPEN

    reasons = sorted(set().union(*by_shift.values()) - {ACCEPTED})
    rows = []
    for shift, counts in by_shift.items():
        total = sum(counts.values())
        kept = counts.get(ACCEPTED, 0)
        share = f"{kept / total:.1%}" if total else "-"
        if counts.get(OPEN):
            share = "no threshold"
        dropped = [str(counts.get(reason, 0)) for reason in reasons]
        rows.append((shift, str(total), str(kept), share, *dropped))
    print_rows(make_console(_WIDTH), ("shift", "candidates", "accepted", "yield", *reasons), rows)


def print_next(result: BuildResult | RecutResult) -> None:
    """Print the command that follows: `calibrate`, or `evaluate`. If the recipe names no models,
    the user adds them."""
    from counterfoil.recipe import load_own_recipe
    from counterfoil.recipe.names import ELSEWHERE

    if result.open_shifts:
        print_note(
            "Choose thresholds on a page that shows their images: move the sliders, then download"
            " cut.yaml."
        )
        next_command("counterfoil", "calibrate", str(result.directory))
        return
    words = ("counterfoil", "evaluate", str(result.directory))
    recipe = load_own_recipe(result.directory)
    if any(not name.startswith(ELSEWHERE) for name in recipe.evaluate.models):
        next_command(*words)
    else:
        print_note(
            f"Then evaluate a model of yours: {shlex.join(words)} --models"
            f" {recipe.task.models}:FOLDER"
        )


def _compared_lines(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return ["Nothing was compared: the original has no valid manifest.json."]
    lines = []
    if comparison.identical:
        others = "all other files"
        if comparison.left_out:
            others += " that can be compared"
        lines.append(
            f"Identical to the original: all {comparison.shard_files} shard files and {others}."
        )
    else:
        differing = comparison.differing
        lines.append(
            f"{len(differing)} of {comparison.shard_files} shard files differ from the original's."
        )
        lines += _listed(differing)
        if comparison.others:
            lines += ["Other files that differ:", *_listed(comparison.others)]
    if comparison.stack:
        lines += ["The stack differs, which may change the files:", *_listed(comparison.stack)]
    if comparison.unexplained:
        lines += [
            "These differences are not explained by the stack:",
            *_listed(comparison.unexplained),
        ]
    if comparison.rows is not None:
        rows = comparison.rows
        lines.append(
            f"{rows.rows} images compared in these shards: {rows.same_bytes} are byte-identical,"
            f" {rows.same_pixels} have the same pixels in other bytes,"
            f" {rows.rows - rows.same_bytes - rows.same_pixels} differ."
        )
        if rows.least_psnr is not None:
            psnr = f"lowest {rows.least_psnr:.1f} dB, median {rows.median_psnr:.1f} dB"
            lines.append(f"PSNR of those that differ: {psnr}.")
        lines.append(f"{rows.decisions} candidates of these shards have another screening result.")
        changed = []
        for row in rows.changed:
            original = row.there or "absent"
            rebuilt = row.here or "absent"
            changed.append(f"{row.key}: {original} in the original, {rebuilt} here")
        lines += _listed(changed)
    if comparison.left_out:
        lines += ["Not compared:", *_listed(comparison.left_out)]
    return lines


def _listed(names: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in first_of(names, MOST_LISTED)]
