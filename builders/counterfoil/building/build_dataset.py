"""`build`: plan, lock, render ▶ screen ▶ write every pending shard, then card and manifest. Run again to resume."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.building.closing import close_dataset, counts_of
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.workers import Job
from counterfoil.engines import Advanced, Engine, engine_for
from counterfoil.engines.stack import stack_where_done
from counterfoil.errors import UserError
from counterfoil.keep import ACCEPTED
from counterfoil.models.devices import resolve_device
from counterfoil.models.diffusion import check_scheduler
from counterfoil.plan import make_plan
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
from counterfoil.under_way import UnderWay, finish


@dataclass(frozen=True, slots=True)
class BuildProgress:
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
    threshold is a percentile of too few validation images. `notes` are sentences about what could not be measured.
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
    notes: tuple[str, ...] = ()

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
) -> BuildResult:
    """Build the dataset of a recipe in the directory `out`, or go on with one that is there.

    `recipe` is a Recipe, a bundled name, or a path; `overrides` are `a.b=c` strings. `workers` defaults to
    one a CPU core, or one on a GPU; with more than one, a script that calls this needs the usual
    `if __name__ == "__main__":`. `allow_mixed` lets another stack (versions, device) continue a directory.
    Raises UserError for input that cannot be used, RunFailure when the run cannot go on; what is done stays.
    """
    return finish(
        build_steps(recipe, out, overrides=overrides, device=device, workers=workers, allow_mixed=allow_mixed)
    )


def build_steps(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
) -> UnderWay[BuildProgress | TokenProgress, BuildResult]:
    """`build`, telling how far it is: of class tokens first, where the recipe learns them, then of shards and images.

    A generator, which does nothing before its first step; closed early, it keeps what is done, for another build.
    """
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, overrides)
    elif overrides:
        raise UserError("overrides go with a recipe's name or path, not with a loaded Recipe")
    out = named_path(out)
    try_folder(out)
    settle_directory(out)
    device = resolve_device(device)
    engine = engine_for(device, workers)
    _refuse_other_recipe(recipe, out)
    if recipe.generator.scheduler is not None:
        check_scheduler(recipe.generator.scheduler)  # a mistake should not wait for tokens that are learned
    inputs = yield from resolve_inputs(recipe, out, device, engine)
    return (yield from make_dataset(recipe, inputs, out, device=device, engine=engine, allow_mixed=allow_mixed))


def make_dataset(
    recipe: Recipe,
    inputs: Inputs,
    out: Path,
    *,
    device: str,
    engine: Engine,
    allow_mixed: bool = False,
    recipe_yaml: str | None = None,
    repair: Mapping[str, Entry] | None = None,
) -> UnderWay[BuildProgress, BuildResult]:
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
        stack_where_done(engine, device, recipe.generator.dtype, recipe.generator.batch_size),
        recipe_yaml=text,
        attachments=inputs.attachments(),
        allow_mixed=allow_mixed,
        repair=repair,
    ) as store:
        started = time.monotonic()
        made = yield from _make_pending(store, _job(inputs, recipe, device, store, allow_mixed), engine)
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
        notes=inputs.notes,
    )


def _refuse_other_recipe(recipe: Recipe, out: Path) -> None:
    """The store refuses another plan or screen too; here it is said before models load and percentiles are taken."""
    there = read_lock(out)
    if there is not None:
        hashes = {**there.hashes, "plan": recipe.plan_hash, "screen": recipe.screen_hash}
        here = replace(there, hashes=hashes, plan=recipe.plan_document, screen=recipe.screen_document)
        refuse_other_hashes(out, there, here)


def _make_pending(store: DatasetStore, job: Job, engine: Engine) -> UnderWay[BuildProgress, list[Receipt]]:
    pending = store.pending()
    made: list[Receipt] = []
    if not pending:
        return made
    images = sum(shard.candidates for shard in pending)
    drawn = 0
    yield BuildProgress(0, len(pending), 0, images, {})
    with contextlib.closing(engine.run(job, pending)) as events:
        for event in events:
            if isinstance(event, Advanced):
                drawn += event.count
            else:
                made.append(event.result)
            yield BuildProgress(len(made), len(pending), drawn, images, counts_of(made))
    return made


def _job(inputs: Inputs, recipe: Recipe, device: str, store: DatasetStore, allow_mixed: bool) -> Job:
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
        embeddings=inputs.embeddings,
        pool=SourcePin.of(inputs.document.get("pool")),
        allow_mixed=allow_mixed,
    )
