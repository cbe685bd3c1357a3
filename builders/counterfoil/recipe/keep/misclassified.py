"""Keep what classifiers get wrong: Wiles 2022, section 3.1, collects the failures of a model among rendered images."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict
from counterfoil.recipe.section import refuse

# The names of failure rules: which answers of a classifier are wrong. What they mean is in `prediction/`.
TOP1, TOP3, PARENT, ANSWERED = "top1", "top3", "parent", "answered:"
FAILURE_RULES = (TOP1, TOP3, PARENT)
FAILURE_MEANS = (
    "`top1`: the top-1 prediction is wrong. `top3`: the label is not among the top-3 predictions. `parent`: none of the"
    " top-3 predictions has the label's parent. `answered:CLASS_ID`: the model predicts this class."
)

ANSWER, CONFIDENCE, RIGHT, FAILED = "answer", "confidence", "right", "failed"
# By what a column tells; the judge's name goes into the gap.
_COLUMNS: dict[str, tuple[Literal["int32", "float32", "bool"], str]] = {
    ANSWER: ("int32", "Prediction of {}: the number of its output."),
    CONFIDENCE: ("float32", "Probability that {} gives its prediction."),
    RIGHT: ("bool", "Whether the prediction of {} is right."),
}
# Only where a rule other than top1 decides, which is another thing to say than that the first answer is not right.
_FAILED: tuple[Literal["bool"], str] = ("bool", "Whether {} fails by the failure rule of the row's shift.")


class MisclassifiedRule(KeepRule):
    """Keep images that at least a given number of classifiers, the judges, get wrong."""

    # What shows no such object is the generator's fault, and no classifier's.
    after: ClassVar[tuple[str, ...]] = ("thresholds",)
    reasons: ClassVar[tuple[str, ...]] = ("answered_right",)

    models: tuple[str, ...] = Field(
        min_length=1, max_length=100, description="The judges: names of classifiers, as in `evaluate.models`."
    )
    at_least: int = Field(default=1, ge=1, description="How many of the judges must be wrong.")
    failure: str = Field(default=TOP1, description=f"When an answer is wrong. {FAILURE_MEANS}")

    @field_validator("models")
    @classmethod
    def _one_column_each(cls, models: tuple[str, ...]) -> tuple[str, ...]:
        repeated = [name for name, times in Counter(models).items() if times > 1]
        if repeated:
            raise ValueError(f"found '{repeated[0]}' again, expected each judge once")
        empty = [model for model in models if not judge_column(model, "")]
        if empty:
            raise ValueError(f"found '{empty[0]}', expected the name of a classifier")
        return models

    @field_validator("failure")
    @classmethod
    def _known_failure(cls, name: str) -> str:
        refuse(failure_problem(name))
        return name

    @model_validator(mode="after")
    def _enough_judges(self) -> MisclassifiedRule:
        if self.at_least > len(self.models):
            raise ValueError(f"at_least is {self.at_least}, expected at most the number of judges ({len(self.models)})")
        return self

    def scores(self) -> tuple[str, ...]:
        return tuple(judge_column(model, self.decides) for model in self.models)

    def columns(self) -> dict[str, Column]:
        return {name: column for model in self.models for name, column in judge_columns(model, self.decides).items()}

    @property
    def decides(self) -> str:
        """Return the column that decides whether a judge is wrong: `right`, or by another failure rule `failed`."""
        return RIGHT if self.failure == TOP1 else FAILED

    def judges(self) -> tuple[str, ...]:
        return self.models

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        value = 0 if self.decides == RIGHT else 1
        names = self.scores()
        # A judge that gave no answer is not wrong.
        wrong = [sum(verdict.scores.get(name) == value for name in names) for verdict in left]
        return [None if count >= self.at_least else "answered_right" for count in wrong]


def failure_of(rules: Sequence[KeepRule], judge: str) -> str | None:
    """Return the failure rule of a judge among keep rules, or None."""
    return next((rule.failure for rule in rules if isinstance(rule, MisclassifiedRule) and judge in rule.models), None)


def judge_columns(model: str, decides: str = RIGHT) -> dict[str, Column]:
    """Return the columns of a judge; `decides` is the one that a rule reads."""
    columns = _COLUMNS | ({FAILED: _FAILED} if decides == FAILED else {})
    return {
        judge_column(model, what): Column(type, about.format(_last_part(model)))
        for what, (type, about) in columns.items()
    }


def judge_column(model: str, what: str) -> str:
    """Return a judge's column: the last part of its name, in letters that every format takes."""
    plain = re.sub(r"[^a-z0-9]+", "_", _last_part(model).lower()).strip("_")
    return "_".join(filter(None, (plain, what)))


def _last_part(model: str) -> str:
    return re.split(r"[/:]", model.rstrip("/"))[-1]


def failure_problem(name: str) -> str | None:
    """Return a problem with the name of a failure rule, or None."""
    known = name in FAILURE_RULES or answered_class(name) is not None
    return None if known else f"found '{name}', expected {', '.join(FAILURE_RULES)} or {ANSWERED}CLASS_ID"


def answered_class(name: str) -> str | None:
    """Return the class id in a rule `answered:CLASS_ID`, or None."""
    return name.removeprefix(ANSWERED) if name.startswith(ANSWERED) and name != ANSWERED else None
