"""The names of failure rules: which answers of a classifier are wrong. What they mean is in `prediction/`."""

from __future__ import annotations

TOP1, TOP3, PARENT, ANSWERED = "top1", "top3", "parent", "answered:"
FAILURE_RULES = (TOP1, TOP3, PARENT)
FAILURE_MEANS = (
    "`top1`, the answer is not the label; `top3`, the label is not among the first three; `parent`, none of the first"
    " three shares the label's parent; `answered:CLASS_ID`, answered as that."
)


def failure_problem(name: str) -> str | None:
    """What is wrong with the name of a failure rule, or None."""
    known = name in FAILURE_RULES or answered_class(name) is not None
    return None if known else f"found '{name}', expected {', '.join(FAILURE_RULES)} or {ANSWERED}CLASS_ID"


def answered_class(name: str) -> str | None:
    """The class id of a rule `answered:CLASS_ID`; None for the others."""
    return name.removeprefix(ANSWERED) if name.startswith(ANSWERED) and name != ANSWERED else None
