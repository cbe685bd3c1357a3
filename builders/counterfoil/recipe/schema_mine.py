"""What a recipe says of mining: which classifier is audited on what, and when a failure counts as found."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from counterfoil.keep.failure_names import FAILURE_MEANS, failure_problem
from counterfoil.recipe.free_form import free_form_problem
from counterfoil.recipe.layering import nameless_problem
from counterfoil.section import Section, refuse

CONFIRM = ("rows", "rendered", "both")


class Mine(Section):
    """How failures of a classifier are looked for (`counterfoil mine`); it changes no image of a dataset."""

    method: str = Field(
        default="directions", min_length=1, description="How hypotheses are found: `directions`, `bugs` or `contexts`."
    )
    target: str | None = Field(
        default=None, min_length=1, description="The classifier that is audited, as evaluate.models names them."
    )
    on: tuple[str, ...] = Field(
        default=("validation",),
        min_length=1,
        description="What it is audited on: splits of the source that it was not trained on, or one built dataset.",
    )
    failure: str = Field(
        default="top1",
        description=f"What a failure is: {FAILURE_MEANS}",
    )
    margin: float = Field(
        default=0.05, ge=0, lt=1, description="A set must fail by more than this above the rest of its class."
    )
    fdr: float = Field(
        default=0.1, gt=0, lt=1, description="The share of reported findings that may be false, on average."
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="Seed of the halves, the folds and the permutations.")
    confirm: Literal["rows", "rendered", "both"] = Field(
        default="rows",
        description="What hypotheses are tested on: `rows` of the confirm half, images `rendered` for them, or both.",
    )
    rendered: int = Field(
        default=50, ge=10, le=100_000, description="confirm rendered: images a hypothesis, and as many of its base."
    )
    train_rows: int = Field(
        default=10_000,
        ge=2,
        le=10_000_000,
        description="At most so many rows of the train split tell how features are whitened.",
    )
    others: tuple[str, ...] | None = Field(
        default=None, description="Classifiers that each finding is measured on too; null: evaluate.models."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="The method's own settings.")

    @field_validator("target")
    @classmethod
    def _has_a_name(cls, value: str | None) -> str | None:
        refuse(nameless_problem(value))
        return value

    @field_validator("failure")
    @classmethod
    def _known_failure(cls, value: str) -> str:
        refuse(failure_problem(value))
        return value

    @field_validator("settings")
    @classmethod
    def _plain_settings(cls, value: dict[str, Any]) -> dict[str, Any]:
        refuse(free_form_problem(value))
        return value
