"""`build`: a recipe becomes a dataset directory: inputs resolved, spans of shards handed out, the dataset closed.

`build` and `regenerate` share `make_dataset`. A process that makes one part of the plan's shards (`--shards K/N`)
closes nothing: it says how much of the whole is done.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from counterfoil.building.closing import close_dataset
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.spans import spans
from counterfoil.building.workers import Job, ShardFiles, SpansToCollect, imported_for, write_collected
from counterfoil.data.pins import SourcePin
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.engines import Advanced, Delivered, Engine, EngineChoice, Lost, engine_and_device
from counterfoil.engines.local import stack_where_done
from counterfoil.errors import UserError
from counterfoil.generate.screen import FewImages, ScreenDoubts, open_shifts, screen_doubts
from counterfoil.generate.tokens.learn_tokens import learned_before, learning_folder
from counterfoil.models.devices import libraries_of
from counterfoil.models.diffusion import check_scheduler
from counterfoil.plan import PlanPart, make_plan
from counterfoil.progress import tell
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep import ACCEPTED
from counterfoil.regular_files import named_path
from counterfoil.store import DatasetStore, Receipt
from counterfoil.store.atomic import make_folder, try_folder
from counterfoil.store.dataset_store import refuse_foreign
from counterfoil.store.directory_lock import marked, refuse_held_part
from counterfoil.store.layout import MANIFEST, PRIVATE
from counterfoil.store.lock import read_lock, refuse_other_hashes
from counterfoil.store.manifest import Entry
from counterfoil.store.receipts import counts_of
from counterfoil.store.replacement import settle_directory


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of building a part: its shards, the finished shards of the whole plan, and this run's speed.

    shards, shards_made: shards of the part, and those made in this run. all_shards, all_done: shards of the whole plan
    when the part ended; other parts may still be running. closed: whether the dataset is complete already. `notes` are
    sentences about what could not be measured.
    """

    directory: Path
    part: PlanPart
    shards: int
    shards_made: int
    images_made: int
    all_shards: int
    all_done: int
    closed: bool
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float | None:
        """Rendering speed of this run, models loading included; None where nothing was left to render."""
        return self.images_made / self.seconds if self.images_made and self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build is: shards and images of this run, and the counts by shift and reason so far.

    lost: sentences about workers and devices that were lost so far, while the build goes on. there: images that earlier
    runs made.
    """

    shards_done: int
    shards: int
    images_done: int
    images: int
    counts: Mapping[str, Mapping[str, int]]
    lost: tuple[str, ...] = ()
    there: int = 0


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a finished build: counts by shift and reason over the whole dataset, and this run's speed.

    `open_shifts` have no threshold yet (see `counterfoil calibrate`). `few_images` are classes whose object threshold
    is a percentile of too few validation images. `notes` are sentences about what could not be measured.
    `screen_doubts` says which classes CLIP may not know, as far as measured; None if there is no doubt.
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
    screen_doubts: ScreenDoubts | None = None

    @property
    def images_per_second(self) -> float | None:
        """Rendering speed of this run, models loading included; None where nothing was left to render."""
        return self.images_made / self.seconds if self.images_made and self.seconds > 0 else None


@overload
def build(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
    shards: None = None,
) -> BuildResult: ...
@overload
def build(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
    shards: str | tuple[int, int],
) -> PartResult: ...
def build(
    recipe: Recipe | str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
    shards: str | tuple[int, int] | None = None,
) -> BuildResult | PartResult:
    """Build the dataset of a recipe in the directory `out`, or resume a build that is already there.

    With more than one worker, or with a GPU, a script that calls this needs `if __name__ == "__main__":`.

    Args:
        recipe: A Recipe, a bundled name or a path.
        out: The dataset directory.
        overrides: Changes to the recipe, as `a.b=c` strings.
        device: `auto`, `cpu`, `cuda` or a list such as `cuda:0,cuda:2`. `auto` and `cuda` use every visible GPU. With a
            cluster, the device that its workers use.
        workers: Number of worker processes. None: one per CPU core, or one per GPU. With several GPUs, the number on
            each. With a cluster, the number in all.
        allow_mixed: Resume a directory that another stack (library versions, device) began.
        engine: Where shards are made. None: in processes on this machine.
        shards: The part of the plan to build: (3, 16) or "3/16" is the third of sixteen parts. Other processes may
            build other parts at the same time. The dataset stays open until you call `build` without `shards`, which
            makes the missing shards and finishes the dataset.

    Returns:
        A BuildResult with counts and speed; a PartResult if `shards` is given.

    Raises:
        UserError: An input cannot be used.
        RunFailure: The run cannot continue. Finished shards are kept.
    """
    if shards is not None:
        return _build_part(recipe, out, PlanPart.given(shards), overrides, device, workers, allow_mixed, engine)
    out = named_path(out)
    recipe = load_recipe(recipe, overrides)
    refuse_foreign(out)
    try_folder(out)
    recipe, on, made_by = _ready(recipe, out, device, workers, engine)
    inputs = resolve_inputs(recipe, out, on, made_by)
    recipe = inputs.settled(recipe)
    if doubts := screen_doubts(recipe, inputs.thresholds):
        tell(doubts)
    return make_dataset(recipe, inputs, out, device=on, engine=made_by, allow_mixed=allow_mixed)


def _build_part(
    recipe: Recipe | str | Path,
    out: str | Path,
    part: PlanPart,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
) -> PartResult:
    """`build` of one part of the plan's shards; the dataset stays open. Other processes may make other parts.

    UserError where the recipe learns its class tokens, and they are not learned yet.
    """
    out, words = named_path(out), _words(recipe, overrides)
    recipe = load_recipe(recipe, overrides)
    refuse_foreign(out)
    # Not in the folder itself, which others may be opening just now.
    make_folder(out / PRIVATE)
    try_folder(out / PRIVATE)
    recipe, on, made_by = _ready(recipe, out, device, workers, engine)
    if recipe.tokens is not None and recipe.tokens.learn is not None and learned_before(recipe, out) is None:
        raise UserError(
            f"tokens: {recipe.name} learns class tokens, which one part of a build cannot do",
            f"Learn them once: `counterfoil tokens {words} --out {shlex.quote(str(learning_folder(out)))}`. Then every"
            " part finds them there.",
        )
    refuse_held_part(out, part)
    begun = read_lock(out) is not None
    inputs = resolve_inputs(recipe, out, on, made_by, learn=False)
    recipe = inputs.settled(recipe)
    if doubts := screen_doubts(recipe, inputs.thresholds):
        tell(doubts)
    try:
        return _make_part(recipe, inputs, out, part, on, made_by, allow_mixed)
    except UserError:
        there = read_lock(out)
        if begun or there is None or there.hashes.get("inputs") == inputs.hash:
            raise
    # Another part began the directory since: another CPU may give a percentile another last digit, and its stands.
    inputs = resolve_inputs(recipe, out, on, made_by, learn=False)
    return _make_part(inputs.settled(recipe), inputs, out, part, on, made_by, allow_mixed)


def _words(recipe: Recipe | str | Path, overrides: Sequence[str]) -> str:
    """How a recipe is named on the command line."""
    if isinstance(recipe, Recipe):
        return "RECIPE"
    return shlex.join([str(recipe), *(word for override in overrides for word in ("--set", override))])


def _ready(
    recipe: Recipe, out: Path, device: str, workers: int | None, engine: EngineChoice | None
) -> tuple[Recipe, str, Engine]:
    """The recipe with all its classes, the first device and the engine; what can be refused before long work is."""
    settle_directory(out)
    made_by, here = engine_and_device(device, workers, engine)
    recipe = resolve_classes(recipe, out)
    _refuse_other_recipe(recipe, out)
    if recipe.generator.scheduler is not None:
        check_scheduler(recipe.generator.scheduler)  # a mistake should not wait for tokens that are learned
    if not (out / MANIFEST).is_file():
        made_by.expect(imported_for(recipe))
    return recipe, here, made_by


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
) -> BuildResult:
    """Make what is missing of a recipe's dataset from resolved inputs: what `build` and `regenerate` share.

    `recipe_yaml` is the directory's own recipe where it is written already; `repair` as `DatasetStore.open` takes it.
    """
    with _opened(recipe, inputs, out, device, engine, allow_mixed, recipe_yaml, repair) as store:
        started = time.monotonic()
        made = _make_pending(store, _job(inputs, recipe, device, store, allow_mixed), engine)
        seconds = time.monotonic() - started
        manifest = close_dataset(store, recipe, store.plan.placeholders)
        by_name = counts_of(store.receipts())
        # Receipts have them by name, and people read them in the recipe's order.
        counts = {shift.name: by_name[shift.name] for shift in recipe.all_shifts() if shift.name in by_name}
    return BuildResult(
        directory=out,
        counts=counts,
        candidates=sum(sum(reasons.values()) for reasons in counts.values()),
        accepted=sum(reasons.get(ACCEPTED, 0) for reasons in counts.values()),
        shards=store.plan.n_shards,
        shards_made=len(made),
        images_made=sum(receipt.rows["candidates"] for receipt in made),
        seconds=seconds,
        manifest_sha256=manifest,
        open_shifts=open_shifts(recipe),
        few_images=inputs.thresholds.few_images(),
        notes=inputs.notes,
        screen_doubts=screen_doubts(recipe, inputs.thresholds),
    )


def _make_part(
    recipe: Recipe, inputs: Inputs, out: Path, part: PlanPart, device: str, engine: Engine, allow_mixed: bool
) -> PartResult:
    with _opened(recipe, inputs, out, device, engine, allow_mixed, part=part) as store:
        started = time.monotonic()
        made = _make_pending(store, _job(inputs, recipe, device, store, allow_mixed), engine)
        seconds = time.monotonic() - started
        return PartResult(
            directory=out,
            part=part,
            shards=store.n_shards,
            shards_made=len(made),
            images_made=sum(receipt.rows["candidates"] for receipt in made),
            all_shards=store.plan.n_shards,
            all_done=store.done(),
            closed=(out / MANIFEST).is_file(),
            seconds=seconds,
            notes=inputs.notes,
        )


def _opened(
    recipe: Recipe,
    inputs: Inputs,
    out: Path,
    device: str,
    engine: Engine,
    allow_mixed: bool,
    recipe_yaml: str | None = None,
    repair: Mapping[str, Entry] | None = None,
    part: PlanPart | None = None,
) -> contextlib.AbstractContextManager[DatasetStore]:
    """The store of a recipe's dataset, with the stack of this engine's workers."""
    return DatasetStore.open(
        out,
        make_plan(recipe, inputs.tokens.placeholders if inputs.tokens else None, edited=inputs.counted(recipe)),
        {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash},
        inputs.document,
        stack_where_done(
            engine,
            device,
            recipe.generator.dtype,
            recipe.generator.batch_size,
            libraries_of(recipe.generator),
            compiled=recipe.generator.compile,
        ),
        recipe_yaml=recipe.portable_yaml if recipe_yaml is None else recipe_yaml,
        attachments=inputs.attachments(),
        allow_mixed=allow_mixed,
        repair=repair,
        part=part,
    )


def _refuse_other_recipe(recipe: Recipe, out: Path) -> None:
    """The store refuses another plan or screen too; here it is said before models load and percentiles are taken."""
    there = read_lock(out)
    if there is not None:
        hashes = {**there.hashes, "plan": recipe.plan_hash, "screen": recipe.screen_hash}
        here = replace(there, hashes=hashes, plan=recipe.plan_document, screen=recipe.screen_document)
        refuse_other_hashes(out, there, here)


def _make_pending(store: DatasetStore, job: Job, engine: Engine) -> list[Receipt]:
    pending = store.pending()
    made: dict[tuple[str, int, int], Receipt] = {}
    if not pending:
        return []
    images = sum(shard.candidates for shard in pending)
    drawn, counts = 0, {}
    lost: list[str] = []
    done = len(pending) < store.n_shards
    every = store.plan.shards_without(frozenset(), store.part) if done else ()
    there = sum(shard.candidates for shard in every) - images if done else 0
    tell(BuildProgress(0, len(pending), 0, images, counts, there=there))
    items = spans(store.plan, pending, engine.at_once)
    collected = SpansToCollect(items) if engine.collects else None
    asked = {(shard.group, shard.number, shard.of): shard.id for shard in pending}
    with contextlib.ExitStack() as held:
        mark = held.enter_context(marked(store.directory)) if collected is None else None
        events = engine.run(replace(job, mark=mark, collect=engine.collects), items if collected is None else collected)
        for event in held.enter_context(contextlib.closing(events)):
            receipts: list[Receipt] = []
            if isinstance(event, Advanced):
                drawn += event.count
            elif isinstance(event, Lost):
                lost.append(event.message)
            elif not isinstance(event, Delivered):
                receipts = event.result
            elif collected is not None and isinstance(event.part, ShardFiles):
                write_collected(job.writer, event.part, asked)
                receipts = [event.part.receipt]
                collected.note(asked[_shard_of(receipts[0])], receipts[0])
            else:
                receipts = [event.part]
            new = {place: one for one in receipts if (place := _shard_of(one)) not in made}
            made |= new
            counts = counts_of(new.values(), counts)
            tell(BuildProgress(len(made), len(pending), drawn, images, counts, tuple(lost)))
    if lost and store.part is None:  # beside other parts nobody knows whose files are half-written
        store.remove_leftovers()
    return list(made.values())


def _shard_of(receipt: Receipt) -> tuple[str, int, int]:
    return receipt.group, receipt.shard, receipt.of


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
        loras=inputs.loras,
        pool=SourcePin.of(inputs.document.get("pool")),
        rows=inputs.rows,
        allow_mixed=allow_mixed,
    )
