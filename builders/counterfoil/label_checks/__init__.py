"""Floor 6: who checked whether labels are still true: a second judge, people, or nobody; as numbers."""

from counterfoil.label_checks.judge_estimate import checks_of_dataset, judged_checks, worst_classes
from counterfoil.label_checks.people import people_of, read_people, with_people
from counterfoil.report.nested import (
    LEAST_IMAGES,
    CheckedShare,
    JudgedLabels,
    LabelChecks,
    SelectedByPeople,
    ShiftChecks,
)

__all__ = [
    "LEAST_IMAGES",
    "CheckedShare",
    "JudgedLabels",
    "LabelChecks",
    "SelectedByPeople",
    "ShiftChecks",
    "checks_of_dataset",
    "judged_checks",
    "people_of",
    "read_people",
    "with_people",
    "worst_classes",
]
