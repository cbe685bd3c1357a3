"""Decide which candidates of a cell are kept: verdicts, keep rules, quotas and tables."""

from counterfoil.recipe.keep.detected import DetectedRule
from counterfoil.recipe.keep.misclassified import MisclassifiedRule
from counterfoil.recipe.keep.question import QuestionRule
from counterfoil.recipe.keep.registered import RegisteredRule
from counterfoil.recipe.keep.rule import KeepRule
from counterfoil.recipe.keep.same_image import SameImageRule
from counterfoil.recipe.keep.thresholds import ThresholdsRule
from counterfoil.recipe.keep.top import TopRule
from counterfoil.recipe.keep.visible import VisibleRule
from counterfoil.registry import Registry, extending

# Maps the name of a rule in recipes and in the schema to the rule: of our own and of installed
# plugins.
KEEP_RULES: Registry[type[KeepRule]] = Registry(
    "counterfoil.keep_rules",
    {
        "thresholds": ThresholdsRule,
        "misclassified": MisclassifiedRule,
        "top": TopRule,
        "visible": VisibleRule,
        "same_image": SameImageRule,
        "question": QuestionRule,
        "detected": DetectedRule,
        "registered": RegisteredRule,
    },
    extending(KeepRule),
)
