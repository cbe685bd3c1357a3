"""Floor 1: the plan of a recipe (cells, samples, seeds, keys, shards) and what it will cost."""

from counterfoil.plan.estimate import Cost, estimate
from counterfoil.plan.layout import Cell, Plan, Sample, Shard, make_plan, sample_key, sample_seed

__all__ = ["Cell", "Cost", "Plan", "Sample", "Shard", "estimate", "make_plan", "sample_key", "sample_seed"]
