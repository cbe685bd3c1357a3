"""Keep images of which a model that sees answers a question with yes, as Lin 2024 (VQAScore) asks
whether an image shows a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from counterfoil.recipe.keep.rule import AskingRule, Column, Verdict, as_stored
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import address_problem, nameless_problem, runs_here
from counterfoil.recipe.section import NonEmpty, field_check

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import Shift

YES = "question_yes"
SHIFT_YES = "question_shift_yes"
_SHIFT = "{shift}"


class QuestionRule(AskingRule):
    """Keep images of which a model says yes to a question. Without a limit, it only measures.

    One question is about the object and is asked of every image. The other is about the shift: it
    is not asked of the base, and decides nothing about levels of a shift.
    """

    reasons = ("answered_no", "shift_answered_no")
    texts: ClassVar[Mapping[str, bool]] = {"ask": False, "ask_shift": True}

    model: NonEmpty
    """The model that answers: `transformers:NAME` or `transformers:FOLDER` runs in the build; with
    `base_url`, the name that the server knows."""
    base_url: NonEmpty | None = None
    """Address of a server that speaks OpenAI's protocol; null: the model runs in the build. Its key
    is read from OPENAI_API_KEY and not stored."""
    ask: str = "Is there a {class} in this picture?"
    """Question about the object, which yes or no answers; `{class}` is the name."""
    yes_at_least: float | None = Field(default=None, ge=0, le=1)
    """Lowest probability of yes; null: only measured."""
    ask_shift: str | None = None
    """Question about the shift, such as `Does this picture show {shift}?`; `{shift}` is the caption
    of the shift, and a shift without one is not asked. null: not asked."""
    shift_yes_at_least: float | None = Field(default=None, ge=0, le=1)
    """Lowest probability of yes to `ask_shift`; null: only measured."""

    _has_a_name = field_check("model", by=nameless_problem)
    _reached = field_check("base_url", by=address_problem)

    def problem(self) -> str | None:
        if self.base_url is None and not runs_here(self.model):
            return message("missing-key.address", found=self.model)
        if self.base_url is not None and runs_here(self.model):
            return message("conflicting-keys.address", found=self.model)
        return None

    @property
    def address(self) -> str | None:
        return self.base_url

    def scores(self) -> tuple[str, ...]:
        return (YES,) if self.ask_shift is None else (YES, SHIFT_YES)

    def columns(self) -> dict[str, Column]:
        descriptions = {
            YES: "Probability of yes to the question about the object.",
            SHIFT_YES: "Probability of yes to the question about the shift.",
        }
        return {name: Column("float32", descriptions[name]) for name in self.scores()}

    def asks(self, shift: Shift) -> dict[str, str]:
        questions = {YES: self.ask}
        if self.ask_shift is None or shift.name == "base":
            return questions
        if _SHIFT not in self.ask_shift:
            questions[SHIFT_YES] = self.ask_shift
        elif shift.caption is not None:
            questions[SHIFT_YES] = self.ask_shift.replace(_SHIFT, shift.caption)
        return questions

    def of_level(self) -> Self:
        return self.model_copy(update={"shift_yes_at_least": None})

    def limits(self) -> dict[str, float | None]:
        limits = {YES: self.yes_at_least, SHIFT_YES: self.shift_yes_at_least}
        return {name: limits[name] for name in self.scores()}

    def faults(self, answers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name in self.scores():
            value = answers[name]
            if value is not None and not 0 <= value <= 1:
                yield name, "expected from 0 to 1"

    def reason_of(self, verdict: Verdict) -> str | None:
        for reason, (name, least) in zip(self.reasons, self.limits().items(), strict=False):
            share = verdict.scores.get(name)
            # A candidate without an answer is not dropped.
            if least is not None and share is not None and share < as_stored(least):
                return reason
        return None
