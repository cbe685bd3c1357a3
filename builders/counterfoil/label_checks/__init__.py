"""Floor 6: who checked whether labels are still true: a second judge, people, or nobody; as numbers."""

from counterfoil.label_checks.judge import checks_of_dataset, judged_checks
from counterfoil.label_checks.people import TASKS, Selection, Task, people_of, read_people, with_people

__all__ = [
    "TASKS",
    "Selection",
    "Task",
    "checks_of_dataset",
    "judged_checks",
    "people_of",
    "read_people",
    "with_people",
]
