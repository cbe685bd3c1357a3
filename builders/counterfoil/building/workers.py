"""The work of a build's workers: load the models once, then make spans and write each whole shard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.building.chosen_rows import rows_of_pool
from counterfoil.building.inputs import Commits
from counterfoil.building.judges import Judges, Pins
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.building.spans import Span
from counterfoil.engines import Delivered, Doing
from counterfoil.errors import UserError
from counterfoil.generate import EditRenderer, PoolRows, Renderer, encoding_threads
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.rows import corrupted_rows, edit_renderer
from counterfoil.models.adapters import load_adapter
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import computing_on, holds_context, libraries_of, stack_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Edited, Plan, Retrieved, make_plan
from counterfoil.screen import Scorer, Thresholds
from counterfoil.sources.pins import SourcePin
from counterfoil.store import Receipt, ShardWriter
from counterfoil.store.folder_mark import FolderMark
from counterfoil.store.layout import ROWS
from counterfoil.store.lock import refuse_other_stack

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


def imported_for(recipe: Recipe) -> Sequence[str]:
    """The heavy modules that a worker imports for a recipe."""
    always = (__name__, "pandas")  # pandas is what pyarrow looks for where it gets its first list
    screens = () if recipe.screen.model is None else ("open_clip",)
    draws = ("diffusers.pipelines.auto_pipeline",) if recipe.generator.draws else ()
    return (*always, *screens, *draws)


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs, as plain data that pickles (an `engines.Work`).

    `commits` are those that models of the Hub were pinned to: workers load them and no branch, which may have moved.
    `embeddings` are those that samples are drawn from. `judges` pin the classifiers that are asked, `pool` what
    rows are taken from, or edited, and `retrieved` or `edited` is the file that says which. `writer` has the stack
    that the directory was rendered by so far; another one is refused unless `allow_mixed`. `mark` proves that a
    worker's directory is the one that is meant.
    """

    recipe: Recipe
    placeholders: Mapping[str, str] | None
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None
    thresholds: bytes
    device: str
    commits: Commits
    judges: Pins
    writer: ShardWriter
    embeddings: ImageEmbeddings | None = None
    pool: SourcePin | None = None
    retrieved: bytes | None = None
    edited: bytes | None = None
    allow_mixed: bool = False
    mark: FolderMark | None = None

    def on(self, device: str) -> Job:
        """The same for a worker on this device."""
        return replace(self, device=device)

    @property
    def less_memory(self) -> str:
        return "A smaller generator.batch_size (another plan, so in another folder) or generator.offload needs less."

    @property
    def imports(self) -> Sequence[str]:
        return imported_for(self.recipe)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Span], Doing[Any, list[Receipt]]]]:
        """Load the models; then a span is rendered and screened, and its images are counted on the way.

        Each shard is written as soon as it is whole, its receipt is `Delivered`, and it stays whatever becomes of the
        next. One that a worker wrote
        before it was lost with this span is not made again. Raises UserError where this worker's stack or directory is
        refused, and what loading raises.
        """
        if self.mark is not None:
            self.mark.refuse_unseen()
        writer = self._writer_here()
        retrieved = None if self.retrieved is None else Retrieved.read(self.retrieved, ROWS)
        edited = None if self.edited is None else Edited.read(self.edited, ROWS)
        with computing_on(self.device):
            maker = self._maker(make_plan(self.recipe, self.placeholders, retrieved, edited))

            def make(span: Span) -> Doing[Any, list[Receipt]]:
                receipts, left = [], []
                for shard in span:
                    if receipt := writer.made_before(shard):
                        receipts.append(receipt)
                        yield receipt.rows["candidates"]  # what is found done is counted at once
                        yield Delivered(receipt)
                    else:
                        left.append(shard)
                with contextlib.closing(maker.make(left)) as steps:
                    for step in steps:
                        if isinstance(step, Made):
                            receipts.append(writer.write(step.shard, step.candidates))
                            yield Delivered(receipts[-1])
                        else:
                            yield step
                return receipts

            try:
                yield make
            finally:
                maker.close()

    def _writer_here(self) -> ShardWriter:
        """The writer whose receipts tell the stack of this process: an engine's workers may run elsewhere."""
        generator = self.recipe.generator
        libraries = libraries_of(generator)
        here = stack_of(self.device, generator.dtype, generator.batch_size, libraries, compiled=generator.compile)
        if not self.allow_mixed:
            try:
                refuse_other_stack(self.writer.directory, self.writer.stack, here)
            except UserError as error:
                if not holds_context(self.device):
                    raise
                # GPUs of one machine may be of several kinds: which of them differs is what --device needs.
                raise UserError([*error.problems, f"  (measured on {self.device})"], error.hint) from None
        return replace(self.writer, stack=here)

    def _renderer(self, plan: Plan) -> Renderer | PoolRows | EditRenderer:
        recipe, generator = plan.recipe, plan.recipe.generator
        if self.pool is not None and not generator.draws:
            if plan.edited is not None:
                return corrupted_rows(recipe, self.pool, plan.edited)
            return rows_of_pool(recipe, self.pool, plan.retrieved)
        pipeline = load_pipeline(
            generator.model,
            revision=self.commits.generator or generator.revision,
            scheduler=generator.scheduler,
            dtype=generator.dtype,
            device=self.device,
            tokens=self.tokens,
            quantize=generator.quantize,
            offload=generator.offload,
            compiled=generator.compile,
        )
        if self.pool is not None and plan.edited is not None:
            return edit_renderer(pipeline, recipe, self.pool, plan.edited)
        adapter = None
        if self.embeddings is not None and generator.adapter is not None:
            adapter = load_adapter(pipeline, generator.adapter, self.commits.adapter or generator.adapter_revision)
        return Renderer(pipeline, recipe, self.embeddings, adapter)

    def _maker(self, plan: Plan) -> ShardMaker:
        screen = plan.recipe.screen
        scorer = None
        if screen.model is not None:
            clip = load_clip(screen.model, screen.weights, self.device, revision=self.commits.screen)
            scorer = Scorer.for_plan(clip, plan)
        return ShardMaker(
            plan,
            self._renderer(plan),
            scorer,
            Thresholds.read(self.thresholds),
            Judges.load(plan, self.judges, self.device) if plan.recipe.judges else None,
            encoding_threads(self.device),
        )
