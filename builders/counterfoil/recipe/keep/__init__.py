"""Decide which candidates of a cell are kept: verdicts, keep rules, quotas and tables."""

from counterfoil.recipe.keep.misclassified import MisclassifiedRule
from counterfoil.recipe.keep.rule import KeepRule
from counterfoil.recipe.keep.same_image import SameImageRule
from counterfoil.recipe.keep.thresholds import ThresholdsRule
from counterfoil.recipe.keep.top import TopRule
from counterfoil.recipe.keep.visible import VisibleRule

# Maps the name of a rule in recipes and in the schema to the rule.
KEEP_RULES: dict[str, type[KeepRule]] = {
    "thresholds": ThresholdsRule,
    "misclassified": MisclassifiedRule,
    "top": TopRule,
    "visible": VisibleRule,
    "same_image": SameImageRule,
}
