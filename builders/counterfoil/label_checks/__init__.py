"""Floor 6: who checked whether labels are still true: a second judge, people, or nobody; as numbers."""

from counterfoil.label_checks.checked import CheckedShare, JudgedLabels, LabelChecks, SelectedByPeople, ShiftChecks
from counterfoil.label_checks.judge_estimate import checks_of_dataset, judged_checks, worst_classes

__all__ = [
    "CheckedShare",
    "JudgedLabels",
    "LabelChecks",
    "SelectedByPeople",
    "ShiftChecks",
    "checks_of_dataset",
    "judged_checks",
    "worst_classes",
]
