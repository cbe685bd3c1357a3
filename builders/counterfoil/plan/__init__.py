"""The plan of a recipe (cells, samples, seeds, keys, shards) and what it will cost."""

from counterfoil.plan.estimate import (
    Cost,
    JudgedQuota,
    RenderedBudget,
    estimate,
    format_quotas,
    judged_quotas,
    rendered_budget,
)
from counterfoil.plan.layout import (
    Between,
    Cell,
    Plan,
    PlanPart,
    RowTable,
    Sample,
    Shard,
    captions_asked,
    make_plan,
    rows_wanted,
    sample_key,
    sample_seed,
)

__all__ = [
    "Between", "Cell", "Cost", "JudgedQuota", "Plan", "PlanPart", "RenderedBudget", "RowTable", "Sample", "Shard",
    "captions_asked", "estimate", "format_quotas", "judged_quotas", "make_plan", "rendered_budget", "rows_wanted",
    "sample_key", "sample_seed",
]  # fmt: skip
