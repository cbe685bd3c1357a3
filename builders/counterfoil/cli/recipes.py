"""`counterfoil init`, `recipes`, `show`, `check`: propose, list, print and validate recipes, with
their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from counterfoil.cli.options import Given, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import (
    fields_of,
    fit_text,
    make_console,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from counterfoil.errors import UserError, some_of
from counterfoil.plan.options import CheckOptions, OfRecipe
from counterfoil.report.words import format_count
from counterfoil.starting.options import InitOptions

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from counterfoil.plan.estimate import (
        AskedBudget,
        ComputedBudget,
        Cost,
        JudgedQuota,
        RenderedBudget,
    )
    from counterfoil.plan.layout import Plan
    from counterfoil.recipe import Recipe, ThresholdSpec
    from counterfoil.starting.lacking import Lack

MOST_CLASSES = 30  # the recipe's file lists all classes
_CANNOT = "The recipe is valid, but it cannot be built on this machine until you fix this."
MOST_LINES = 100  # a person reads no more
_WIDTH = 120
_START_UP = (
    "libraries, models, thresholds and the card; a rough guide without downloads, twice as"
    " long on a busy machine"
)


@with_options("counterfoil init ./photos --out photos.yaml", InitOptions)
def init(given: Given) -> None:
    """Look at your own images and write a commented recipe for them: classes, shifts, models and
    thresholds."""
    if given.get("SOURCE") is None:
        _describe_detector(given.get("--detector"), given.get("--force"), given.json)
        return
    options = given.made(InitOptions)
    from counterfoil.starting.init_recipe import init

    print_note(f"{fit_text(str(options.source))}: reading")
    with StageProgress():
        result = init(**vars(options))
    recipe = result.recipe
    source = recipe.source
    if given.json:
        counts = [
            {"id": cls.id, "name": cls.name, "images": result.images[cls.name]}
            for cls in recipe.classes
        ]
        print_json(
            {
                "recipe": str(result.path),
                "name": recipe.name,
                "splits": dict(result.rows),
                **fields_of(source, "train_split", "validation_split"),
                **fields_of(source, "image_column", "label_column"),
                "classes": counts,
                "shifts": [shift.name for shift in recipe.all_shifts()],
                "generator": recipe.generator.named_models().get(
                    "generator.model", recipe.kind.name
                ),
                "clip": "/".join(filter(None, (recipe.screen.model, recipe.screen.weights))),
                "models": result.models,
                "notes": list(result.notes),
                "copies": [copies.document() for copies in result.copies],
                "next": list(result.commands),
            }
        )
    else:
        from rich.markup import escape

        console = make_console(_WIDTH)
        splits = list(dict.fromkeys((source.train_split, source.validation_split)))
        rows = []
        for cls in recipe.classes[:MOST_CLASSES]:
            images = result.images[cls.name]
            cells = ["?"] * len(splits)
            if images is not None:
                cells = [f"{images[split]:,}" for split in splits]
            rows.append([escape(fit_text(cls.name)), *cells])
        print_rows(console, ("class", *(escape(fit_text(split)) for split in splits)), rows)
        more = len(recipe.classes) - MOST_CLASSES
        if more > 0:
            console.print(f"and {more:,} more classes; the file lists them all\n")
        for sentence in (*result.notes, result.models):
            console.print(f"- {escape(fit_text(sentence))}")
        console.print(
            f"\n[bold]{escape(fit_text(str(result.path)))}[/bold] is written. Read it, change what you"
            " like, then run:"
        )
        for command in result.commands:
            console.print(f"  {escape(fit_text(command))}", soft_wrap=True)


def _describe_detector(detector: Path | None, force: bool, json: bool) -> None:
    """Write the config.json of an exported detector, and print what was found."""
    from counterfoil.starting.found_detector import find_detector

    if detector is None:
        raise UserError(
            "init: no SOURCE is named", "For example: counterfoil init ./photos --out photos.yaml"
        )
    described = find_detector(detector, force=force)
    if json:
        print_json(
            {
                "config": str(described.path),
                "model": described.model,
                "notes": list(described.notes),
            }
        )
        return
    for sentence in described.notes:
        print_line(f"- {sentence}")
    print_line(f"{described.path} is written. Read it, then evaluate --models {described.model}")


@with_options("counterfoil recipes --json")
def recipes(given: Given) -> None:
    """List the bundled recipes."""
    from counterfoil.recipe import bundled_recipes, load_recipe

    bundled = {name: load_recipe(path) for name, path in bundled_recipes().items()}
    if given.json:
        print_json(
            [{"name": name, "description": recipe.description} for name, recipe in bundled.items()]
        )
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 1, 0), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, recipe in bundled.items():
        table.add_row(name, recipe.description)
    make_console().print(table)


@with_options("counterfoil show wardrobe-mini --set samples.candidates=5", OfRecipe)
def show(given: Given) -> None:
    """Print a recipe in full: its base recipe and your changes merged into one YAML file."""
    from counterfoil.recipe import dump_recipe, load_recipe

    options = given.made(OfRecipe)
    resolved = load_recipe(options.recipe, options.overrides)
    if given.json:
        print_json(resolved.model_dump(mode="json", exclude_none=True))
    else:
        typer.echo(dump_recipe(resolved), nl=False)


@with_options(
    "counterfoil check wardrobe-star --set samples.candidates=100 --rate 12", CheckOptions
)
def check(given: Given) -> None:
    """Validate a recipe. Print its plan, the expected files, size and time, and what is missing on
    this machine.

    Loads and downloads no model. The exit code is 2 if the recipe cannot be built here.
    """
    from counterfoil.models.pipeline_settings import edits_by_inversion
    from counterfoil.plan.estimate import (
        asked_budgets,
        computed_budget,
        estimate,
        judged_quotas,
        rendered_budget,
    )
    from counterfoil.plan.layout import make_plan
    from counterfoil.recipe import load_recipe
    from counterfoil.recipe.names import is_local, license_note
    from counterfoil.recipe.schema_mine import method_settings
    from counterfoil.starting.lacking import list_lacking, server_calls, too_few_images
    from counterfoil.starting.source_rows import look_at_source

    options = given.made(CheckOptions)
    loaded = _with_labels(load_recipe(options.recipe, options.overrides))
    rate = options.rate
    if loaded.mine is not None:
        method_settings(loaded.mine)
    with StageProgress():
        source = look_at_source(loaded)
        plan = make_plan(loaded, edited=source.table)
        copies: Sequence[Lack] = ()
        if is_local(loaded.source.dataset):
            from counterfoil.starting.split_copies import copies_for_recipe

            copies = copies_for_recipe(loaded, options.copies)
        noted = (*source.lacks, *copies, *too_few_images(plan), *server_calls(plan))
        lacks = list_lacking(loaded, noted)
    cost = estimate(plan, rate, edits_by_inversion(plan.recipe.generator), source.side)
    budget = rendered_budget(plan.recipe, rate)
    quotas = judged_quotas(plan.recipe)
    questions = asked_budgets(plan)
    computed = computed_budget(plan)
    missing = [lack for lack in lacks if lack.weight == "missing"]
    if unlisted := license_note(loaded.license):
        print_note(unlisted)
    if given.json:
        lists = [{"key": lack.key, "weight": lack.weight, "text": lack.text} for lack in lacks]
        print_json(
            _check_as_json(plan, source.exact, cost, budget, quotas, questions, computed)
            | {"buildable": not missing, "lacks": lists}
        )
    else:
        _print_tables(plan, source.exact, cost, budget, quotas, questions, computed)
        for lack in lacks:
            if lack.weight != "missing":
                print_line(fit_text(lack.line))
    if missing:
        raise UserError([f"{lack.key}: {lack.text}" for lack in missing], _CANNOT)


def _with_labels(recipe: Recipe) -> Recipe:
    """Return the recipe with its classes' labels. A local folder is always read, because its order
    may differ."""
    from counterfoil.recipe.names import is_local
    from counterfoil.starting.lacking import lacking_classes

    if recipe.names_every_label and not is_local(recipe.source.dataset):
        return recipe
    if (lack := lacking_classes(recipe)) is not None:
        raise UserError(f"{lack.key}: {lack.text}", _CANNOT)
    from counterfoil.data.resolved_classes import resolve_classes

    return resolve_classes(recipe, fetch=False)


def _check_as_json(
    plan: Plan,
    exact: bool,
    cost: Cost,
    budget: RenderedBudget | None,
    quotas: Sequence[JudgedQuota],
    questions: Sequence[AskedBudget],
    computed: ComputedBudget | None,
) -> dict[str, Any]:
    shifts = []
    for shift in plan.recipe.all_shifts():
        threshold = shift.threshold
        shifts.append(
            {
                "shift": shift.name,
                "group": shift.group,
                "kind": shift.kind,
                "cells": len(shift.class_labels),
                "samples": plan.n_samples_of(shift),
                "prompt": shift.prompt,
                "embedding": shift.embedding is not None,
                "caption": shift.caption,
                "threshold": threshold.model_dump(exclude_none=True) if threshold else None,
                "object_threshold": shift.object_threshold.model_dump(exclude_none=True),
            }
        )
    document: dict[str, Any] = {
        "name": plan.recipe.name,
        "hashes": {"plan": plan.hash, "screen": plan.recipe.screen_hash},
        "cells": plan.n_cells,
        "samples": plan.n_samples,
        "exact": exact,
        "shards": plan.n_shards,
        "groups": list(plan.groups),
        **fields_of(
            cost,
            "files",
            "bytes",
            "seconds",
            "start_up_seconds",
            "total_seconds",
        ),
        **fields_of(cost, "images_per_second", "assumptions"),
        "shifts": shifts,
    }
    if budget is not None:
        document["mine"] = asdict(budget)
    if quotas:
        document["judged"] = list(map(asdict, quotas))
    if questions:
        document["asked"] = list(map(asdict, questions))
    if computed is not None:
        document["computed"] = asdict(computed)
    return document


def _print_tables(
    plan: Plan,
    exact: bool,
    cost: Cost,
    budget: RenderedBudget | None,
    quotas: Sequence[JudgedQuota],
    questions: Sequence[AskedBudget],
    computed: ComputedBudget | None,
) -> None:
    from rich.filesize import decimal
    from rich.markup import escape
    from rich.table import Table

    from counterfoil.plan.estimate import SPREAD

    totals = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    totals.add_column(style="bold")
    totals.add_column(justify="right")
    totals.add_column(style="dim")
    totals.add_row(
        "cells", f"{plan.n_cells:,}", format_count(len(plan.recipe.classes), "class", "classes")
    )
    most = "" if exact else "at most "
    totals.add_row("samples", f"{most}{plan.n_samples:,}", _per_cell(plan))
    totals.add_row(
        "shards",
        f"{plan.n_shards:,}",
        f"in {format_count(len(plan.groups), 'group')}, {format_count(cost.files, 'file')}",
    )
    totals.add_row("size", f"{most}{decimal(cost.bytes)}", escape("; ".join(cost.assumptions[:2])))
    start_up = _duration(cost.start_up_seconds)
    if cost.start_up_seconds is not None:
        start_up = f"about {start_up}"
    totals.add_row("start-up", start_up, _START_UP)
    totals.add_row("rendering", _duration(cost.seconds), escape(cost.assumptions[2]))
    seconds = cost.total_seconds
    total = _duration(seconds)
    if seconds is not None:
        total = f"{_duration(seconds / SPREAD)} to {_duration(seconds * SPREAD)}"
    totals.add_row(
        "time", total, "start-up and rendering; the range allows for other machines and images"
    )
    if budget is not None:
        _add_mining(totals, budget)
    for model in questions:
        where = "in the build"
        if model.address is not None:
            where = f"at {model.address}, which gets each image"
        totals.add_row(
            "to ask",
            f"{most}{model.questions:,}",
            escape(f"questions about {model.images:,} images, to {model.model} {where}"),
        )
    if computed is not None:
        least = _duration(computed.least_seconds)
        corruptions = format_count(computed.corruptions, "corruption")
        totals.add_row(
            "to evaluate",
            f"{most}{computed.images:,}",
            f"images per model, in {format_count(computed.groups, 'group')} of {corruptions} that"
            " are computed while it answers",
        )
        totals.add_row(
            "",
            f"{least} to {_duration(computed.most_seconds)}",
            "per model on two cores: the shorter time with a ResNet-18, the longer with a ResNet-50,"
            " at 224 pixels",
        )

    console = make_console(_WIDTH)
    console.print(f"[bold]{escape(plan.recipe.name)}[/bold] is valid.\n")
    console.print(totals)
    if quotas:
        from counterfoil.plan.estimate import format_quotas

        console.print(f"\n[bold]Wrong answers[/bold]: {escape(format_quotas(quotas))}")
    _print_shifts(console, plan)


def _add_mining(totals: Table, budget: RenderedBudget) -> None:
    """Add what mining renders, and what it takes."""
    per_hypothesis = f"{budget.hypothesis_images:,} images per hypothesis, its base included"
    if budget.hypothesis_seconds is not None:
        per_hypothesis += f": {_duration(budget.hypothesis_seconds)}"
    totals.add_row(
        "to mine",
        f"{budget.images:,}",
        f"images to render at most, for {budget.hypotheses:,} hypotheses",
    )
    totals.add_row("", _duration(budget.seconds), per_hypothesis)
    if budget.finding_images:
        of_all = f"{budget.finding_images * budget.hypotheses:,} if every hypothesis is confirmed"
        totals.add_row(
            "to estimate",
            f"{budget.finding_images:,}",
            f"more images at most for each confirmed one, to estimate its error rates; {of_all}",
        )
        totals.add_row("", _duration(budget.finding_seconds), "per finding")


def _print_shifts(console: Console, plan: Plan) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    shifts = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shifts.add_column("shift", no_wrap=True)
    shifts.add_column("kind", no_wrap=True)
    for name in ("cells", "samples", "object ≥", "shift ≥"):
        shifts.add_column(name, justify="right", no_wrap=True)
    shifts.add_column("made by" if plan.recipe.kind.corrupts else "prompt", no_wrap=True)
    every = plan.recipe.all_shifts()
    is_screened = plan.recipe.screen.model is not None
    for shift in every[:MOST_LINES]:
        cells = len(shift.class_labels)
        name = shift.name if shift.group == shift.name else f"{shift.name} in {shift.group}"
        shifts.add_row(
            escape(name),
            escape(shift.kind or ""),
            f"{cells:,}",
            f"{plan.n_samples_of(shift):,}",
            _threshold(shift.object_threshold if is_screened else None),
            _threshold(shift.threshold),
            escape(plan.recipe.kind.made_by(shift)),
        )
    console.print(shifts)
    if away := plan.recipe.levels_away_from_base:
        names = ", ".join(away)
        sentence = (
            f"{names}: the prompt does not continue the base's, so more than the shift"
            " changes on the way"
        )
        console.print(f"[bold]Levels[/bold]: {escape(sentence)}", soft_wrap=True)
    for line in _by_class(plan.recipe)[:MOST_LINES]:
        console.print(f"[bold]Object thresholds by class[/bold]: {escape(line)}", soft_wrap=True)
    if len(every) > MOST_LINES:
        console.print(f"and {len(every) - MOST_LINES:,} more shifts; --json lists them all")


def _per_cell(plan: Plan) -> str:
    samples = plan.recipe.samples
    text = f"at most {samples.most_candidates:,} per cell"
    if samples.accepted is not None:
        text += f", until {samples.accepted} are accepted"
    others = sum(spec.samples is not None for spec in plan.recipe.prompts.shifts.values())
    if others == 1:
        text += "; 1 shift has its own number"
    elif others:
        text += f"; {others} shifts have their own number"
    return text


def _threshold(threshold: ThresholdSpec | None) -> str:
    if threshold is None:
        return "-"
    text = f"p{threshold.percentile:g}" if threshold.value is None else f"{threshold.value:g}"
    classes = getattr(threshold, "classes", None)
    return f"{text}, {len(classes)} by class" if classes else text


def _by_class(recipe: Recipe) -> list[str]:
    names = {cls.id: cls.name for cls in recipe.classes}
    shifts_of: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for shift in recipe.all_shifts():
        thresholds = []
        for label in shift.class_labels:
            class_id = recipe.classes[label].id
            value = shift.object_threshold.of_class(class_id)
            if value is not None:
                thresholds.append((class_id, value))
        if thresholds:
            shifts_of.setdefault(tuple(thresholds), []).append(shift.name)
    every = [shift.name for shift in recipe.all_shifts()]
    lines = []
    for thresholds, shifts in shifts_of.items():
        shown = [f"{names[id]} ({id}) {value:g}" for id, value in thresholds]
        line = some_of(shown, MOST_LINES)
        if shifts != every:
            line += f" in {', '.join(shifts[:5])}"
            if len(shifts) > 5:
                line += " …"
        lines.append(line)
    return lines


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.0f} seconds"
