"""`mine`: audit a classifier on a recipe's images, name and test its failures, and write them as a
recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import UserError
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.method import FindMethod, SearchMethod
from counterfoil.mining.methods import METHODS
from counterfoil.mining.mined_files import MineResult, written_recipe
from counterfoil.mining.options import MineOptions
from counterfoil.mining.rounds import undrawn_problems
from counterfoil.mining.steps import mine_images
from counterfoil.models.classifiers.of_python import HandedOver, handed_over
from counterfoil.models.devices import resolve_devices
from counterfoil.options import takes
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import CONFIRM, Mine, unknown_method, validate_settings
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.directory_lock import directory_lock


@takes(MineOptions)
def mine(given: MineOptions) -> MineResult:
    """Find what a classifier gets wrong. Write findings, vectors, a report and a recipe of the
    failures to `out`.

    The same inputs give byte-identical output. If a run is killed, call the function again: it
    resumes. Images that it renders are a dataset of their own inside `out`. If CLIP is not
    available, it tests groups that need no words (method `slices`).

    Returns:
        A MineResult with the findings and the paths of the files.

    Raises:
        UserError: An input cannot be used.
        RunFailure: The run cannot continue.
    """
    targets = [] if given.target is None else given.target
    with handed_over(targets, given.transform) as (names, callables):
        if len(names) > 1:
            raise UserError(f"target: found {len(names)} models, expected one")
        run = choose_run(given, next(iter(names), None))
        method = METHODS[run.mine.method]
        training = {
            "pool": given.pool,
            "pool_rows": given.pool_rows,
            "pool_labels": given.pool_labels,
            "weights": given.weights or None,
        }
        requested = {
            "on": given.on,
            "confirm": given.confirm,
            "limit": run.mine.limit,
        }
        refuse_unfit_options(run, method, requested | training, callables)
        folder = run.folder
        try_folder(folder)
        refuse_among_inputs(folder, run.recipe.source.dataset)
        make_folder(folder)
        with directory_lock(folder):
            if isinstance(method, SearchMethod):
                return method.search(run)
            return mine_images(run, method, callables, training)


def choose_run(given: MineOptions, target: str | None) -> MiningRun:
    """Return the run that options ask for: their values replace those of the recipe's section
    `mine`."""
    folder = named_path(given.out)
    recipe = given.recipe
    overrides = given.overrides
    if isinstance(recipe, Recipe):
        recipe = written_recipe(recipe, overrides, folder)
    loaded = load_recipe(recipe, overrides)
    # a preview's recipe: images drawn for a test are not limited
    if loaded.samples.limit is not None:
        overrides = (*overrides, "samples.limit=null")
        loaded = load_recipe(recipe, overrides)
    section = loaded.mine or Mine()
    method = given.method
    if method in METHODS and method != section.method:
        # The recipe's settings belong to the recipe's method, so another method drops them, also in
        # the written layer.
        dropped = [f"mine.settings.{key}=null" for key in section.settings]
        overrides = (*dropped, f"mine.method={method}", *overrides)
        loaded = load_recipe(recipe, overrides)
    confirm = given.confirm
    if confirm is not None and confirm not in CONFIRM:
        close = did_you_mean(confirm, CONFIRM)
        raise UserError(f"mine.confirm: found '{confirm}', expected {', '.join(CONFIRM)}{close}")
    loaded = resolve_classes(loaded)
    values: dict[str, Any] = {"on": (loaded.source.validation_split,)}
    if loaded.mine is not None:
        values |= loaded.mine.model_dump(exclude_unset=True)
    requested = {
        "method": method,
        "target": target,
        "on": tuple(given.on) if given.on else None,
        "confirm": confirm,
        "limit": given.limit,
    }
    for key, value in requested.items():
        if value is not None:
            values[key] = value
    mined = validate_settings(Mine, values, "mine")
    if mined.method not in METHODS:
        raise unknown_method(mined.method, METHODS)
    form = METHODS[mined.method].settings
    settings = validate_settings(form, mined.settings, "mine.settings")
    devices = tuple(resolve_devices(given.device))
    return MiningRun(
        loaded,
        mined,
        settings,
        recipe,
        overrides,
        folder,
        devices,
        given.workers,
    )


def refuse_unfit_options(
    run: MiningRun,
    method: FindMethod | SearchMethod,
    options: Mapping[str, Any],
    callables: Sequence[HandedOver],
) -> None:
    """Raise UserError if the method cannot do what it is asked for. options: values by name, None
    by default."""
    mine = run.mine
    draws = isinstance(method, SearchMethod)
    wordless = isinstance(method, FindMethod) and method.captions is None
    if callables and (draws or mine.confirm != "rows"):
        renders = f"the method '{mine.method}'" if draws else f"mine.confirm: '{mine.confirm}'"
        raise UserError(
            f"{renders} renders images in other processes, but {callables[0].name} runs only in"
            " this one",
            "Name the model (a timm folder: local-dir:PATH), or mine existing images with the"
            " method directions.",
        )
    unfit: list[tuple[Sequence[str], str, str]] = []
    if draws:
        names = ("on", "confirm", "pool_rows", "pool_labels", "limit")
        hint = "To describe failures on existing images, name these in mine.settings.seeds."
        unfit.append((names, "draws the images that it audits", f"Leave it out. {hint}"))
    if draws or wordless:
        hint = "Leave it out, or mine with another method: --method directions"
        unfit.append((("pool", "weights"), "gives rows no score", hint))
    for names, reason, hint in unfit:
        given = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
        if given:
            raise UserError(f"{' and '.join(given)}: the method '{mine.method}' {reason}", hint)
    if mine.confirm == "rows" or draws:
        return
    if wordless:
        raise UserError(
            f"mine.confirm: '{mine.confirm}' renders images of words, and the method"
            f" '{mine.method}' has none",
            "Set mine.confirm=rows, or mine with another method: --method directions",
        )
    problems = undrawn_problems(run.recipe, mine, f"mine.confirm: '{mine.confirm}'")
    if problems:
        raise UserError(problems, "Test on the confirm half: --confirm rows")
