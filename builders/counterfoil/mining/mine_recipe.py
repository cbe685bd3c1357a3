"""`mine`: audit a classifier on a recipe's images, name and test its failures, and write them as a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import UserError
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.method import FindMethod, SearchMethod
from counterfoil.mining.methods import METHODS
from counterfoil.mining.mined_files import MineResult, written_recipe
from counterfoil.mining.rounds import undrawn_problems
from counterfoil.mining.steps import mine_images
from counterfoil.models.classifiers.of_python import HandedOver, Transform, handed_over
from counterfoil.models.devices import resolve_devices
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import CONFIRM, Mine, unknown_method, validate_settings
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.directory_lock import directory_lock

# One model, in any form that `evaluate` takes.
TargetModel: TypeAlias = "str | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any] | str]"


def mine(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    method: str | None = None,
    target: TargetModel | None = None,
    transform: Transform | Mapping[str, Transform] | None = None,
    on: Sequence[str] | None = None,
    confirm: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    pool: str | None = None,
    pool_rows: int | None = None,
    pool_labels: str | None = None,
    weights: bool = False,
    limit: int | None = None,
) -> MineResult:
    """Find what a classifier gets wrong. Write findings, vectors, a report and a recipe of the failures to `out`.

    The same inputs give byte-identical output. If a run is killed, call the function again: it resumes. Images that it
    renders are a dataset of their own inside `out`. If CLIP is not available, it tests groups that need no words
    (method `slices`).

    Args:
        recipe: A bundled name, a path or a Recipe. Its section `mine` says what is audited, on which images, and how
            findings are tested.
        out: The folder to write.
        overrides: Changes to the recipe, as `a.b=c` strings. The written recipe keeps them.
        method: Replaces `mine.method`.
        target: Replaces `mine.target`. It may be a callable, a mapping from one name to a callable, or
            `python:package.module:function`, as `evaluate` takes it. A callable runs in this process and only sees
            existing images.
        transform: Prepares each PIL image for a callable.
        on: Replaces `mine.on`: the splits, or the built dataset, that is audited.
        confirm: Replaces `mine.confirm`: what findings are tested on.
        device: `auto`, `cpu`, `cuda` or a list such as `cuda:0,cuda:2`.
        workers: Number of worker processes.
        pool: A split of the source, or another dataset. Its hardest rows of each class become a recipe of their own.
        pool_rows: How many rows of the pool to take per class.
        pool_labels: The column of the pool's labels, or `predicted`.
        weights: Also write a weight for each row of the train split.
        limit: Audit a preview: at most so many rows of each split or dataset in `on`, as evenly over classes as they
            come. Replaces `mine.limit`.

    Returns:
        A MineResult with the findings and the paths of the files.

    Raises:
        UserError: An input cannot be used.
        RunFailure: The run cannot continue.
    """
    with handed_over([] if target is None else target, transform) as (names, callables):
        if len(names) > 1:
            raise UserError(f"target: found {len(names)} models, expected one")
        values = {"method": method, "target": next(iter(names), None), "on": tuple(on) if on else None}
        values |= {"confirm": confirm, "limit": limit}
        run = choose_run(recipe, overrides, values, out, device, workers)
        used = METHODS[run.mine.method]
        training = {"pool": pool, "pool_rows": pool_rows, "pool_labels": pool_labels, "weights": weights or None}
        refuse_unfit_options(run, used, {"on": on, "confirm": confirm, "limit": run.mine.limit} | training, callables)
        with locked_folder(run):
            if isinstance(used, SearchMethod):
                return used.search(run)
            return mine_images(run, used, callables, training)


def choose_run(
    recipe: Recipe | str | Path,
    overrides: Sequence[str],
    options: Mapping[str, Any],
    out: str | Path,
    device: str,
    workers: int | None,
) -> MiningRun:
    """Return the run of a recipe in the folder `out`. options: values that replace those of its section `mine`, or
    None.
    """
    folder, devices = named_path(out), resolve_devices(device)
    if isinstance(recipe, Recipe):
        recipe = written_recipe(recipe, overrides, folder)
    loaded = load_recipe(recipe, overrides)
    if loaded.samples.limit is not None:  # a preview's recipe: images drawn for a test are not limited
        overrides = (*overrides, "samples.limit=null")
        loaded = load_recipe(recipe, overrides)
    section, method, confirm = loaded.mine or Mine(), options["method"], options["confirm"]
    if method in METHODS and method != section.method:
        # The recipe's settings belong to the recipe's method, so another method drops them, also in the written layer.
        overrides = (*(f"mine.settings.{key}=null" for key in section.settings), f"mine.method={method}", *overrides)
        loaded = load_recipe(recipe, overrides)
    if confirm is not None and confirm not in CONFIRM:
        close = did_you_mean(confirm, CONFIRM)
        raise UserError(f"mine.confirm: found '{confirm}', expected {', '.join(CONFIRM)}{close}")
    loaded = resolve_classes(loaded)
    values: dict[str, Any] = {"on": (loaded.source.validation_split,)}
    values |= {} if loaded.mine is None else loaded.mine.model_dump(exclude_unset=True)
    values |= {key: value for key, value in options.items() if value is not None}
    mined = validate_settings(Mine, values, "mine")
    if mined.method not in METHODS:
        raise unknown_method(mined.method, METHODS)
    settings = validate_settings(METHODS[mined.method].settings, mined.settings, "mine.settings")
    return MiningRun(loaded, mined, settings, recipe, overrides, folder, tuple(devices), workers)


def refuse_unfit_options(
    run: MiningRun, method: FindMethod | SearchMethod, options: Mapping[str, Any], callables: Sequence[HandedOver]
) -> None:
    """Raise UserError if the method cannot do what it is asked for. options: values by name, None by default."""
    mine, draws = run.mine, isinstance(method, SearchMethod)
    wordless = isinstance(method, FindMethod) and method.captions is None
    if callables and (draws or mine.confirm != "rows"):
        renders = f"the method '{mine.method}'" if draws else f"mine.confirm: '{mine.confirm}'"
        raise UserError(
            f"{renders} renders images in other processes, but {callables[0].name} runs only in this one",
            "Name the model (a timm folder: local-dir:PATH), or mine existing images with the method directions.",
        )
    for unfit, names, reason, hint in (
        (
            draws,
            ("on", "confirm", "pool_rows", "pool_labels", "limit"),
            "draws the images that it audits",
            "Leave it out. To describe failures on existing images, name these in mine.settings.seeds.",
        ),
        (
            draws or wordless,
            ("pool", "weights"),
            "gives rows no score",
            "Leave it out, or mine with another method: --method directions",
        ),
    ):
        given = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
        if unfit and given:
            raise UserError(f"{' and '.join(given)}: the method '{mine.method}' {reason}", hint)
    if wordless and mine.confirm != "rows":
        raise UserError(
            f"mine.confirm: '{mine.confirm}' renders images of words, and the method '{mine.method}' has none",
            "Set mine.confirm=rows, or mine with another method: --method directions",
        )
    if mine.confirm != "rows" and not draws:
        problems = undrawn_problems(run.recipe, mine, f"mine.confirm: '{mine.confirm}'")
        if problems:
            raise UserError(problems, "Test on the confirm half: --confirm rows")


@contextmanager
def locked_folder(run: MiningRun) -> Iterator[None]:
    """Hold the run's folder alone. The folder is made if it is missing."""
    try_folder(run.folder)
    refuse_among_inputs(run.folder, run.recipe.source.dataset)
    make_folder(run.folder)
    with directory_lock(run.folder):
        yield
