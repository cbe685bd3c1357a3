"""Keep images that classifiers get wrong. Wiles 2022, section 3.1, collects the failures of a model
in this way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from counterfoil.errors import ProblemLine
from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import CHAT, ELSEWHERE, judge_column, last_part
from counterfoil.recipe.section import field_check

# The names of failure rules. A failure rule says which answers of a classifier are wrong, and
# `prediction/` applies it.
TOP1 = "top1"
TOP3 = "top3"
PARENT = "parent"
ANY_PARENT = "parent_any"
ANSWERED = "answered:"
PARENTS = (PARENT, ANY_PARENT)
FAILURE_RULES = (TOP1, TOP3, *PARENTS)
FAILURE_MEANS = (
    "`top1`: the top-1 prediction is wrong. `top3`: the label is not among the top-3 predictions."
    " `parent`: none of the top-3 predictions lies under the label's parent. `parent_any`: one or"
    " more of them do not. `answered:CLASS_ID`: the model predicts this class."
)

ANSWER = "answer"
CONFIDENCE = "confidence"
RIGHT = "right"
FAILED = "failed"
# Type and description of each column. The judge's name replaces the gap in the description.
_COLUMNS: dict[str, tuple[Literal["int32", "float32", "bool"], str]] = {
    ANSWER: ("int32", "Prediction of {}: the number of its output."),
    CONFIDENCE: ("float32", "Probability that {} gives its prediction."),
    RIGHT: ("bool", "Whether the prediction of {} is right."),
}
# This column exists only with a failure rule other than top1.
_FAILED: tuple[Literal["bool"], str] = (
    "bool",
    "Whether {} fails by the failure rule of the row's shift.",
)


def failure_problem(name: str) -> ProblemLine | None:
    """Return a problem with the name of a failure rule, or None."""
    if name in FAILURE_RULES or answered_class(name) is not None:
        return None
    return message("unknown-name.failure", found=name, expected=", ".join(FAILURE_RULES))


def answered_class(name: str) -> str | None:
    """Return the class id in a rule `answered:CLASS_ID`, or None."""
    class_id = name.removeprefix(ANSWERED)
    return None if class_id in ("", name) else class_id


def _judges_problem(models: tuple[str, ...]) -> ProblemLine | None:
    repeated = [name for name, times in Counter(models).items() if times > 1]
    if repeated:
        return message("duplicate.judge", found=repeated[0])
    for model in models:
        if not judge_column(model, ""):
            return message("invalid-name.classifier", found=model)
        if model.removeprefix(ELSEWHERE).startswith(CHAT):
            return message("wrong-type.chat-judge", found=model)
    return None


class MisclassifiedRule(KeepRule):
    """Keep images that at least a given number of classifiers, the judges, get wrong."""

    # If an image does not show its object, the generator failed and not the classifier.
    after = ("thresholds",)
    reasons = ("answered_right",)

    models: tuple[str, ...] = Field(min_length=1, max_length=100)
    """The judges: names of classifiers, as in `evaluate.models`."""
    at_least: int = Field(default=1, ge=1)
    """How many of the judges must be wrong."""
    failure: str = Field(default=TOP1, description=f"When an answer is wrong. {FAILURE_MEANS}")

    _one_column_each = field_check("models", by=_judges_problem)
    _known_failure = field_check("failure", by=failure_problem)

    def problem(self) -> str | None:
        most = len(self.models)
        if self.at_least > most:
            return message("out-of-range.judges", found=self.at_least, most=most)
        return None

    def scores(self) -> tuple[str, ...]:
        return tuple(judge_column(model, self.decides) for model in self.models)

    def columns(self) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for model in self.models:
            columns |= judge_columns(model, self.decides)
        return columns

    @property
    def decides(self) -> str:
        """Return the column that says whether a judge is wrong: `right` for the rule top1, else
        `failed`."""
        return RIGHT if self.failure == TOP1 else FAILED

    def judges(self) -> tuple[str, ...]:
        return self.models

    def reason_of(self, verdict: Verdict) -> str | None:
        value = 0 if self.decides == RIGHT else 1
        # A judge without an answer does not count as wrong.
        wrong = sum(verdict.scores.get(name) == value for name in self.scores())
        return None if wrong >= self.at_least else "answered_right"


def failure_of(rules: Sequence[KeepRule], judge: str) -> str | None:
    """Return the failure rule of a judge among keep rules, or None."""
    for rule in rules:
        if isinstance(rule, MisclassifiedRule) and judge in rule.models:
            return rule.failure
    return None


def judge_columns(model: str, decides: str = RIGHT) -> dict[str, Column]:
    """Return the columns of a judge. `decides` is the column that a rule reads."""
    columns = dict(_COLUMNS)
    if decides == FAILED:
        columns[FAILED] = _FAILED
    name = last_part(model)
    return {
        judge_column(model, column): Column(type, about.format(name))
        for column, (type, about) in columns.items()
    }
