"""The work of a build's workers: load the models once, then make and write whole shards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.building.chosen_rows import rows_of_pool
from counterfoil.building.inputs import Commits
from counterfoil.building.judges import Judges, Pins
from counterfoil.building.shard import ShardMaker
from counterfoil.generate import PoolRows, Renderer
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Plan, Shard, make_plan
from counterfoil.screen import Scorer, Thresholds
from counterfoil.sources.pins import SourcePin
from counterfoil.store import Receipt, ShardWriter

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs, as plain data that pickles (a `pool.Task`).

    `commits` are those that models of the Hub were pinned to: workers load them and no branch, which may have moved.
    `judges` pin the classifiers that keep rules ask, `pool` what rows are taken from, where nothing is rendered.
    """

    recipe: Recipe
    placeholders: Mapping[str, str] | None
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None
    thresholds: bytes
    device: str
    commits: Commits
    judges: Pins
    writer: ShardWriter
    pool: SourcePin | None = None

    @contextlib.contextmanager
    def ready(self, tell: Callable[[int], None]) -> Iterator[Callable[[Shard], Receipt]]:
        """Load the models; then a shard is rendered, screened, written. Raises what loading raises."""
        maker = self._maker(make_plan(self.recipe, self.placeholders))
        try:
            yield lambda shard: self.writer.write(shard, maker.make(shard, tell))
        finally:
            maker.close()

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
        return Renderer(pipeline, recipe)

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
