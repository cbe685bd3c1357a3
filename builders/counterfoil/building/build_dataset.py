"""Build a dataset directory from a recipe: resolve inputs, give spans of shards to workers, close
the dataset."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, overload

from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.options import BuildOptions, WholeOptions
from counterfoil.building.spans import shard_spans
from counterfoil.building.workers import (
    Job,
    ShardFiles,
    SpansToCollect,
    imported_for,
    write_collected,
)
from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.dataset.closing import close_dataset
from counterfoil.engines import Advanced, Engine, Finished, Lost, engine_and_device
from counterfoil.engines.local import stack_where_done
from counterfoil.errors import UserError
from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts, warn_of_screen
from counterfoil.generate.screen.thresholds import FewImages, open_shifts
from counterfoil.generate.tokens.learn_tokens import learned_before, learning_folder
from counterfoil.models.diffusion import check_scheduler
from counterfoil.models.stack import rendering_stack
from counterfoil.options import takes
from counterfoil.plan.layout import PlanPart, make_plan
from counterfoil.progress import report_event
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.keep.rule import FIRST_ROWS
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.dataset_store import DatasetStore, refuse_foreign
from counterfoil.store.directory_lock import marked_folder, refuse_held_part
from counterfoil.store.layout import MANIFEST, PRIVATE
from counterfoil.store.lock import Lock, read_lock, refuse_other_hashes
from counterfoil.store.manifest import Entry
from counterfoil.store.receipts import Receipt, counts_of, preview_images
from counterfoil.store.replacement import settle_directory


class _Rendered:
    """The facts of a build's run that its result holds."""

    __slots__ = ()

    @property
    def images_per_second(self: PartResult | BuildResult) -> float | None:
        """Rendering speed of this run, with the loading of models; None if it rendered nothing."""
        if not self.images_made or self.seconds <= 0:
            return None
        return self.images_made / self.seconds


@dataclass(frozen=True, slots=True)
class PartResult(_Rendered):
    """The result of building a part."""

    directory: Path
    part: PlanPart
    shards: int
    """The number of shards of the part."""
    shards_made: int
    """The number that this run made."""
    images_made: int
    all_shards: int
    """The number of shards of the whole plan."""
    all_done: int
    """The number that were finished when the part ended."""
    closed: bool
    """Whether the dataset is complete."""
    seconds: float
    notes: tuple[str, ...] = ()
    """Sentences about what could not be measured."""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """The progress of a build: shards and images of this run, and the counts by shift and reason so
    far."""

    shards_done: int
    shards: int
    images_done: int
    images: int
    counts: Mapping[str, Mapping[str, int]]
    lost: tuple[str, ...] = ()
    """Sentences about workers and devices that failed although the build continues."""
    there: int = 0
    """The number of images that earlier runs made."""


@dataclass(frozen=True, slots=True)
class BuildResult(_Rendered):
    """The result of a finished build, with counts by shift and reason over the whole dataset."""

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
    """The shifts without a threshold (see `counterfoil calibrate`)."""
    few_images: tuple[FewImages, ...] = ()
    """The classes whose object threshold is a percentile of too few validation images."""
    notes: tuple[str, ...] = ()
    """Sentences about what could not be measured."""
    screen_doubts: ScreenDoubts | None = None
    """Doubts about classes that CLIP may not know, or None."""
    preview: int | None = None
    """The largest number of images of a shift if this is a preview, else None."""


_Whole = ParamSpec("_Whole")
_Part = ParamSpec("_Part")


class _Build(Protocol[_Whole, _Part]):
    """`build` for type checkers: its result depends on whether `shards` is given."""

    @overload
    def __call__(self, *args: _Whole.args, **named: _Whole.kwargs) -> BuildResult: ...
    @overload
    def __call__(self, *args: _Part.args, **named: _Part.kwargs) -> PartResult: ...


def _typed_by_options(
    whole: Callable[_Whole, WholeOptions],
    part: Callable[_Part, BuildOptions],
) -> Callable[[Any], _Build[_Whole, _Part]]:
    """Give `build` the type `_Build`, whose parameters are those of the two classes of options."""
    return lambda function: function


@_typed_by_options(WholeOptions, BuildOptions)
@takes(BuildOptions)
def build(options: BuildOptions) -> BuildResult | PartResult:
    """Build the dataset of a recipe in the directory `out`, or resume a build that is already
    there.

    Returns:
        A BuildResult with counts and speed, or a PartResult if `shards` is given.

    Raises:
        UserError: An input cannot be used.
        RunFailure: The run cannot continue. Finished shards are kept.
    """
    part = None if options.shards is None else PlanPart.given(options.shards)
    out = named_path(options.out)
    recipe = load_recipe(options.recipe, options.overrides)
    if options.limit is not None:
        limited = {"limit": options.limit}
        samples = recipe.samples.model_copy(update=limited)
        recipe = recipe.model_copy(update={"samples": samples})
    refuse_foreign(out)
    refuse_among_inputs(out, recipe.source.dataset, recipe.generator.get("dataset"))
    if part is None:
        try_folder(out, of_dataset=True)
    else:
        # Test whether the private folder can be made. Another part may be opening the directory
        # itself at the same time.
        make_folder(out / PRIVATE)
        try_folder(out / PRIVATE)
    settle_directory(out)
    resolved_engine, first_device = engine_and_device(options)
    recipe = resolve_classes(recipe, out)
    lock = read_lock(out)
    begun = lock is not None
    if lock is not None:
        row_version = lock.plan.get("row_version", FIRST_ROWS)
        recipe = recipe.with_rows(row_version)
    _refuse_early(recipe, out, lock, part, options)
    if not (out / MANIFEST).is_file():
        resolved_engine.expect(imported_for(recipe))
    whole = part is None
    inputs = resolve_inputs(recipe, out, first_device, resolved_engine, learn=whole)
    recipe = inputs.settled(recipe)
    warn_of_screen(recipe, inputs.thresholds)
    making = DatasetBuild(
        recipe,
        inputs,
        out,
        first_device,
        resolved_engine,
        options.allow_mixed,
    )
    if part is None:
        return making.whole()
    try:
        return making.part(part)
    except UserError:
        lock = read_lock(out)
        has_other_inputs = lock is not None and lock.hashes.get("inputs") != inputs.hash
        if begun or not has_other_inputs:
            raise
    # Another part has begun the directory in the meantime. On another CPU a percentile can differ
    # in the last digit, so use the percentiles of the lock.
    inputs = resolve_inputs(recipe, out, first_device, resolved_engine, learn=False)
    making = replace(making, recipe=inputs.settled(recipe), inputs=inputs)
    return making.part(part)


def _refuse_early(
    recipe: Recipe,
    out: Path,
    lock: Lock | None,
    part: PlanPart | None,
    options: BuildOptions,
) -> None:
    """Raise UserError for mistakes that the build would else find only after it has loaded
    models."""
    if lock is not None:
        fresh_lock = replace(
            lock,
            hashes={
                **lock.hashes,
                "plan": recipe.plan_hash,
                "screen": recipe.screen_hash,
            },
            plan=recipe.plan_document,
            screen=recipe.screen_document,
        )
        refuse_other_hashes(out, lock, fresh_lock)
    scheduler = recipe.generator.get("scheduler")
    if scheduler is not None:
        check_scheduler(scheduler)
    if part is not None:
        learns = recipe.tokens is not None and recipe.tokens.learn is not None
        if learns and learned_before(recipe, out) is None:
            words = "RECIPE"
            if not isinstance(options.recipe, Recipe):
                typed = [str(options.recipe)]
                for override in options.overrides:
                    typed += ["--set", override]
                words = shlex.join(typed)
            folder = shlex.quote(str(learning_folder(out)))
            command = f"counterfoil tokens {words} --out {folder}"
            raise UserError(
                f"tokens: {recipe.name} learns class tokens, which one part of a build cannot do",
                f"Learn them once: `{command}`. Then every part finds them there.",
            )
        refuse_held_part(out, part)


@dataclass(frozen=True, slots=True)
class DatasetBuild:
    """A recipe with its resolved inputs, the directory of the dataset, and the engine that makes
    the shards.
    """

    recipe: Recipe
    inputs: Inputs
    out: Path
    device: str
    engine: Engine
    allow_mixed: bool = False
    recipe_yaml: str | None = None
    """The recipe file of the directory, if the directory already has it."""
    repair: Mapping[str, Entry] | None = None
    """The argument of `DatasetStore.open`."""

    def whole(self) -> BuildResult:
        """Make the missing shards of the plan, and close the dataset."""
        recipe = self.recipe
        inputs = self.inputs
        with self._opened() as store:
            shards_made, images_made, seconds = self._make_pending(store)
            manifest = close_dataset(store)
            receipts = store.receipts()
        by_name = counts_of(receipts)
        # Receipts are sorted by name, so put the counts in the order of the recipe.
        counts = {}
        candidates = accepted = 0
        for shift in recipe.all_shifts():
            reasons = by_name.get(shift.name)
            if reasons is not None:
                counts[shift.name] = reasons
                candidates += sum(reasons.values())
                accepted += reasons.get(ACCEPTED, 0)
        return BuildResult(
            directory=self.out,
            counts=counts,
            candidates=candidates,
            accepted=accepted,
            shards=store.plan.n_shards,
            shards_made=shards_made,
            images_made=images_made,
            seconds=seconds,
            manifest_sha256=manifest,
            open_shifts=open_shifts(recipe),
            few_images=inputs.thresholds.few_images(),
            notes=inputs.notes,
            screen_doubts=screen_doubts(recipe, inputs.thresholds),
            preview=preview_images(recipe, receipts),
        )

    def _opened(
        self, part: PlanPart | None = None
    ) -> contextlib.AbstractContextManager[DatasetStore]:
        """Open the dataset's store, with the stack of this engine's workers."""
        recipe = self.recipe
        inputs = self.inputs
        stack = stack_where_done(
            self.engine,
            self.device,
            partial(rendering_stack, recipe=recipe),
            models=recipe.runs_models,
        )
        plan = make_plan(recipe, inputs.placeholders, inputs.table(recipe))
        hashes = {
            "plan": recipe.plan_hash,
            "screen": recipe.screen_hash,
            "inputs": inputs.hash,
        }
        recipe_yaml = recipe.portable_yaml if self.recipe_yaml is None else self.recipe_yaml
        return DatasetStore.open(
            self.out,
            plan,
            hashes,
            inputs.document,
            stack,
            recipe_yaml=recipe_yaml,
            attachments=inputs.attachments(),
            allow_mixed=self.allow_mixed,
            repair=self.repair,
            part=part,
        )

    def part(self, part: PlanPart) -> PartResult:
        """Make the missing shards of a part of the plan."""
        with self._opened(part) as store:
            shards_made, images_made, seconds = self._make_pending(store)
            return PartResult(
                directory=self.out,
                part=part,
                shards=store.n_shards,
                shards_made=shards_made,
                images_made=images_made,
                all_shards=store.plan.n_shards,
                all_done=store.done(),
                closed=(self.out / MANIFEST).is_file(),
                seconds=seconds,
                notes=self.inputs.notes,
            )

    def _make_pending(self, store: DatasetStore) -> tuple[int, int, float]:
        """Make the shards that the store lacks, and report progress. Return the number of these
        shards, the number of their images, and the seconds it took."""
        started = time.monotonic()
        pending = store.pending()
        made: dict[str, Receipt] = {}
        if not pending:
            return 0, 0, 0.0
        images = sum(shard.candidates for shard in pending)
        drawn = 0
        counts = {}
        lost = []
        earlier = 0
        if len(pending) < store.n_shards:
            all_shards = store.plan.shards_without(frozenset(), store.part)
            earlier = sum(shard.candidates for shard in all_shards) - images
        at_start = BuildProgress(
            0,
            len(pending),
            0,
            images,
            counts,
            there=earlier,
        )
        report_event(at_start)
        items = shard_spans(store.plan, pending, self.engine.at_once)
        collected = SpansToCollect(items) if self.engine.collects else None
        ids = {}
        for shard in pending:
            ids[shard.group, shard.number, shard.of] = shard.id
        with contextlib.ExitStack() as stack:
            mark = None
            if collected is None:
                mark = stack.enter_context(marked_folder(store.directory))
            job = Job(
                self.recipe,
                self.inputs,
                self.device,
                store.writer,
                self.allow_mixed,
                mark,
                self.engine.collects,
            )
            events = self.engine.run(job, items if collected is None else collected)
            for event in stack.enter_context(contextlib.closing(events)):
                receipts: list[Receipt] = []
                if isinstance(event, Advanced):
                    drawn += event.count
                elif isinstance(event, Lost):
                    lost.append(event.message)
                elif isinstance(event, Finished):
                    receipts = event.result
                elif collected is not None and isinstance(event.part, ShardFiles):
                    receipt = event.part.receipt
                    write_collected(job.writer, event.part, ids)
                    shard_id = ids[receipt.group, receipt.shard, receipt.of]
                    collected.note(shard_id, receipt)
                    receipts = [receipt]
                else:
                    receipts = [event.part]
                new = [receipt for receipt in receipts if receipt.path not in made]
                for receipt in new:
                    made[receipt.path] = receipt
                counts = counts_of(new, counts)
                progress = BuildProgress(
                    len(made),
                    len(pending),
                    drawn,
                    images,
                    counts,
                    tuple(lost),
                )
                report_event(progress)
        # If the dataset is built in parts, a temporary file may belong to another part that is
        # still running.
        if lost and store.part is None:
            store.remove_leftovers()
        images_made = sum(receipt.rows["candidates"] for receipt in made.values())
        seconds = time.monotonic() - started
        return len(made), images_made, seconds
