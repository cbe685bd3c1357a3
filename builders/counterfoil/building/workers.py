"""The work of a build's workers: load the models once, then make and write whole shards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from counterfoil.building.chosen_rows import rows_of_pool
from counterfoil.building.inputs import Commits
from counterfoil.building.judges import Judges, Pins
from counterfoil.building.shard import ShardMaker
from counterfoil.generate import PoolRows, Renderer
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.models.adapters import load_adapter
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import stack_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Plan, Shard, make_plan
from counterfoil.screen import Scorer, Thresholds
from counterfoil.sources.pins import SourcePin
from counterfoil.store import Receipt, ShardWriter
from counterfoil.store.lock import refuse_other_stack
from counterfoil.under_way import UnderWay

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs, as plain data that pickles (an `engines.Work`).

    `commits` are those that models of the Hub were pinned to: workers load them and no branch, which may have moved.
    `embeddings` are those that samples are drawn from. `judges` pin the classifiers that are asked, `pool` what
    rows are taken from, where nothing is rendered. `writer` has the stack that the directory was rendered by so far;
    another one is refused unless `allow_mixed`.
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
    allow_mixed: bool = False

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Shard], UnderWay[int, Receipt]]]:
        """Load the models; then a shard is rendered, screened, written, and its images are counted on the way.

        Raises UserError where this worker's stack is refused, and what loading raises.
        """
        writer = self._writer_here()
        maker = self._maker(make_plan(self.recipe, self.placeholders))

        def make(shard: Shard) -> UnderWay[int, Receipt]:
            return writer.write(shard, (yield from maker.make(shard)))

        try:
            yield make
        finally:
            maker.close()

    def _writer_here(self) -> ShardWriter:
        """The writer whose receipts tell the stack of this process: an engine's workers may run elsewhere."""
        generator = self.recipe.generator
        here = stack_of(self.device, generator.dtype, generator.batch_size)
        if not self.allow_mixed:
            refuse_other_stack(self.writer.directory, self.writer.stack, here)
        return replace(self.writer, stack=here)

    def _renderer(self, recipe: Recipe) -> Renderer | PoolRows:
        generator = recipe.generator
        if self.pool is not None:
            return rows_of_pool(recipe, self.pool)
        pipeline = load_pipeline(
            generator.model,
            revision=self.commits.generator or generator.revision,
            scheduler=generator.scheduler,
            dtype=generator.dtype,
            device=self.device,
            tokens=self.tokens,
        )
        adapter = None
        if self.embeddings is not None and generator.adapter is not None:
            adapter = load_adapter(pipeline, generator.adapter, self.commits.adapter or generator.adapter_revision)
        return Renderer(pipeline, recipe, self.embeddings, adapter)

    def _maker(self, plan: Plan) -> ShardMaker:
        screen = plan.recipe.screen
        clip = load_clip(screen.model, screen.weights, self.device, revision=self.commits.screen)
        return ShardMaker(
            plan,
            self._renderer(plan.recipe),
            Scorer.for_plan(clip, plan),
            Thresholds.read(self.thresholds),
            Judges.load(plan, self.judges, self.device) if plan.recipe.judges else None,
        )
