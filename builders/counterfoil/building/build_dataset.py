"""`build`: plan, lock, render ▶ screen ▶ write every pending shard, then card and manifest. Run again to resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.building.closing import close_dataset, counts_of
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.workers import Job
from counterfoil.engines.local import default_workers, run_items
from counterfoil.errors import UserError
from counterfoil.keep import ACCEPTED
from counterfoil.models.devices import resolve_device, stack_of
from counterfoil.models.diffusion import check_scheduler
from counterfoil.plan import Plan, make_plan
from counterfoil.recipe import (
    Recipe,
    load_recipe,
)
from counterfoil.regular_files import named_path
from counterfoil.screen import FewImages, open_shifts
from counterfoil.sources.pins import SourcePin
from counterfoil.store import DatasetStore, Receipt
from counterfoil.store.atomic import try_folder
from counterfoil.store.lock import read_lock, refuse_other_hashes
from counterfoil.store.manifest import Entry
from counterfoil.store.replacement import settle_directory
from counterfoil.tokens.learn_tokens import TokenProgress


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: shards and images of this run, and the counts by shift and reason so far."""

    shards_done: int
    shards: int
    images_done: int
    images: int
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a finished build made: counts by shift and reason over the whole dataset, and this run's speed.

    `open_shifts` wait for a threshold (see `counterfoil calibrate`); `few_images` are classes whose object
    threshold is a percentile of too few validation images.
    """

    directory: Path
    counts: Mapping[str, Mapping[str, int]]
    candidates: int
    accepted: int
    shards: int
    shards_made: int
    images_made: int
    seconds: float
    manifest_sha256: str
    open_shifts: tuple[str, ...] = ()
    few_images: tuple[FewImages, ...] = ()

    @property
    def images_per_second(self) -> float | None:
        """Rendering speed of this run, models loading included; None where nothing was left to render."""
        return self.images_made / self.seconds if self.images_made and self.seconds > 0 else None


def build(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_token_steps: Callable[[TokenProgress], None] | None = None,
) -> BuildResult:
    """Build the dataset of a recipe in the directory `out`, or go on with one that is there.

    `recipe` is a Recipe, a bundled name, or a path; `overrides` are `a.b=c` strings. `workers` defaults to
    one a CPU core, or one on a GPU; with more than one, a script that calls this needs the usual
    `if __name__ == "__main__":`. `allow_mixed` lets another stack (versions, device) continue a directory.
    Raises UserError for input that cannot be used, RunFailure when the run cannot go on; what is done stays.
    """
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, overrides)
    elif overrides:
        raise UserError("overrides go with a recipe's name or path, not with a loaded Recipe")
    out = named_path(out)
    try_folder(out)
    settle_directory(out)
    device = resolve_device(device)
    workers = default_workers(workers, device)
    _refuse_other_recipe(recipe, out)
    if recipe.generator.scheduler is not None:
        check_scheduler(recipe.generator.scheduler)  # a mistake should not wait for tokens that are learned
    inputs = resolve_inputs(recipe, out, device, workers, on_token_steps)
    return make_dataset(
        recipe, inputs, out, device=device, workers=workers, allow_mixed=allow_mixed, on_progress=on_progress
    )


def make_dataset(
    recipe: Recipe,
    inputs: Inputs,
    out: Path,
    *,
    device: str,
    workers: int,
    allow_mixed: bool = False,
    recipe_yaml: str | None = None,
    repair: Mapping[str, Entry] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> BuildResult:
    """Make what is missing of a recipe's dataset from resolved inputs: what `build` and `regenerate` share.

    `recipe_yaml` is the directory's own recipe where it is written already; `repair` as `DatasetStore.open` takes it.
    """
    plan = make_plan(recipe, inputs.tokens.placeholders if inputs.tokens else None)
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash}
    text = recipe.portable_yaml if recipe_yaml is None else recipe_yaml
    with DatasetStore.open(
        out,
        plan,
        hashes,
        inputs.document,
        stack_of(device, recipe.generator.dtype, recipe.generator.batch_size),
        recipe_yaml=text,
        attachments=inputs.attachments(),
        allow_mixed=allow_mixed,
        repair=repair,
    ) as store:
        started = time.monotonic()
        made = _make_pending(store, plan, _job(inputs, recipe, device, store), workers, on_progress)
        seconds = time.monotonic() - started
        manifest = close_dataset(store, recipe, plan.placeholders)
        counts = counts_of(store.receipts())
    return BuildResult(
        directory=out,
        counts=counts,
        candidates=sum(sum(reasons.values()) for reasons in counts.values()),
        accepted=sum(reasons.get(ACCEPTED, 0) for reasons in counts.values()),
        shards=plan.n_shards,
        shards_made=len(made),
        images_made=sum(receipt.rows["candidates"] for receipt in made),
        seconds=seconds,
        manifest_sha256=manifest,
        open_shifts=open_shifts(recipe),
        few_images=inputs.thresholds.few_images(),
    )


def _refuse_other_recipe(recipe: Recipe, out: Path) -> None:
    """The store refuses another plan or screen too; here it is said before models load and percentiles are taken."""
    there = read_lock(out)
    if there is not None:
        hashes = {**there.hashes, "plan": recipe.plan_hash, "screen": recipe.screen_hash}
        here = replace(there, hashes=hashes, plan=recipe.plan_document, screen=recipe.screen_document)
        refuse_other_hashes(out, there, here)


def _make_pending(
    store: DatasetStore,
    plan: Plan,
    job: Job,
    workers: int,
    on_progress: Callable[[Progress], None] | None,
) -> list[Receipt]:
    pending = store.pending()
    if not pending:
        return []
    images = sum(shard.candidates for shard in pending)
    drawn = 0
    made: list[Receipt] = []
    tell = on_progress or (lambda progress: None)

    def report() -> None:
        tell(Progress(len(made), len(pending), drawn, images, counts_of(made)))

    def on_images(count: int) -> None:
        nonlocal drawn
        drawn += count
        report()

    def on_shard(receipt: Receipt) -> None:
        made.append(receipt)
        report()

    report()
    run_items(job, pending, workers, on_images, on_shard)
    return made


def _job(inputs: Inputs, recipe: Recipe, device: str, store: DatasetStore) -> Job:
    tokens = inputs.tokens
    return Job(
        recipe=recipe,
        placeholders=tokens.placeholders if tokens else None,
        tokens=tokens.by_placeholder() if tokens else None,
        thresholds=inputs.thresholds.content(),
        device=device,
        commits=inputs.commits,
        judges=inputs.judges,
        writer=store.writer,
        pool=SourcePin.of(inputs.document.get("pool")),
    )
