"""Floor 1: the plan of a recipe (cells, samples, seeds, keys, shards) and what it will cost."""

from counterfoil.plan.estimate import Cost, RenderedBudget, estimate, rendered_budget
from counterfoil.plan.layout import Cell, Plan, Sample, Shard, make_plan, sample_key, sample_seed

__all__ = [
    "Cell",
    "Cost",
    "Plan",
    "RenderedBudget",
    "Sample",
    "Shard",
    "estimate",
    "make_plan",
    "rendered_budget",
    "sample_key",
    "sample_seed",
]
