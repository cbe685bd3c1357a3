"""Floor 1: the plan of a recipe (cells, samples, seeds, keys, shards) and what it will cost."""

from counterfoil.plan.edited import Edited, captions_asked, rows_wanted
from counterfoil.plan.estimate import Cost, RenderedBudget, estimate, rendered_budget
from counterfoil.plan.judged_quota import JudgedQuota, judged_quotas, spoken_quotas
from counterfoil.plan.layout import Cell, Plan, Sample, Shard, make_plan, sample_key, sample_seed
from counterfoil.plan.parts import PlanPart
from counterfoil.plan.retrieved import Retrieved

__all__ = [
    "Cell",
    "Cost",
    "Edited",
    "JudgedQuota",
    "Plan",
    "PlanPart",
    "RenderedBudget",
    "Retrieved",
    "Sample",
    "Shard",
    "captions_asked",
    "estimate",
    "judged_quotas",
    "make_plan",
    "rendered_budget",
    "rows_wanted",
    "sample_key",
    "sample_seed",
    "spoken_quotas",
]
