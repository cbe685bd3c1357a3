"""Conditions: what a row of an input dataset may have several of, or none, each a question of yes or no.

The fourteen findings of ChestX-ray14 are such. A condition is two classes of the recipe, those that have it and those
that do not, each with prompts, failures and a direction of its own (Jain et al. 2023, Appendix C.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field, model_validator

from counterfoil.section import Section, refuse


class Conditions(Section):
    """What rows may have several of. In `classes`, source label 0 is to have the first, 1 not to have it, and so on."""

    labels: tuple[str, ...] = Field(
        default=(),
        description="Labels in `label_column`, which then holds lists of them, or texts parted by `|`.",
    )
    columns: tuple[str, ...] = Field(default=(), description="Columns of 0 and 1, one a condition, beside no `labels`.")
    others: tuple[str, ...] = Field(
        default=(),
        description="Labels of `label_column` that are no condition here (`No Finding`); a further one is refused.",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The conditions in order, as the input dataset calls them."""
        return self.labels or self.columns

    @model_validator(mode="after")
    def _one_form(self) -> Conditions:
        if bool(self.labels) == bool(self.columns):
            found = "labels and columns" if self.labels else "neither labels nor columns"
            raise ValueError(f"found {found}, expected one of them (null drops an inherited one)")
        if self.columns and self.others:
            raise ValueError("found others with columns, expected it with labels only (null drops an inherited one)")
        twice = [name for name, times in Counter((*self.names, *self.others)).items() if times > 1]
        refuse(f"found '{twice[0]}' again, expected each condition and other label once" if twice else None)
        odd = [name for name in (*self.names, *self.others) if name != name.strip() or not name or "|" in name]
        refuse(f"found '{odd[0]}', expected a name without `|`, and without spaces around it" if odd else None)
        return self


def class_problem(names: Sequence[str], source_labels: Sequence[int | None]) -> str | None:
    """What is wrong with a recipe's classes where its input dataset has these conditions; None where nothing is."""
    if list(source_labels) == list(range(2 * len(names))):
        return None
    shown = ", ".join("none" if label is None else str(label) for label in source_labels[:8]) or "none"
    shown += " …" if len(source_labels) > 8 else ""
    last = 2 * len(names) - 1
    return (
        f"the classes have the source labels {shown}; expected two classes a condition, with source labels from 0 to"
        f" {last} in order: 0 has '{names[0]}', 1 does not, and so on"
    )
