"""Kind `corrupt`: rows of the input dataset, unchanged in the base and with a known corruption in
each shift."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from counterfoil.corrupting.corruptions import MATCH
from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.kinds.kind import AlteringKind, SideInPixels
from counterfoil.recipe.messages import message
from counterfoil.recipe.parts import RecipeParts, RecipeProblem
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.severity import SEVERITY

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import Shift

_SIDE = 256


class CorruptKind(AlteringKind):
    """Rows of the input dataset: unchanged for the base, with a known change (fog, noise) for each
    shift."""

    corrupts = True
    unchanged_base = True
    fewer_rows = True
    prompted = False
    needs_screen = False
    levels = ("corruption",)
    libraries = ("scipy",)
    usual_side = _SIDE
    tags = ((), ("corruptions",))
    annotations = "found"
    meanings: ClassVar[Mapping[str, str]] = {
        "prompt": "Empty: nothing was drawn.",
        "seed": "Seed of the random part of the corruption.",
    }

    kind: Literal["corrupt"] = "corrupt"
    size: SideInPixels | None = None
    """Larger rows are first reduced to this shorter side in pixels; null: rows keep their size."""

    @classmethod
    def may_share_split(cls, parts: RecipeParts) -> bool:
        """Return True for a folder without splits, because its images may be new to classifiers
        (`init` warns)."""
        return parts.source.get("validation_split", "validation") == parts.source.get(
            "train_split", "train"
        )

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if parts.recipe.tokens is not None:
            yield ("tokens",), message("wrong-kind.corrupted-tokens")
        for path, spec in parts.specs:
            for key in ("prompt", "embedding"):
                if spec.get(key) is not None:
                    yield (*path, key), message("wrong-kind.corrupted")
        for path, spec in parts.of_shifts:
            if spec.corruption is None:
                yield (*path, "corruption"), message("missing-key.corruption")
            elif spec["corruption"] == MATCH:
                if spec.severity is not None:
                    yield (*path, "severity"), message("conflicting-keys.match")
                if parts.source.config != "base":
                    yield ("source", "config"), message("conflicting-keys.config")
        yield from super().problems(parts)

    def columns(self) -> dict[str, Column]:
        severity = (
            "Severity of the corruption, 1 to 5; 0 for the base, and for a match, which have none."
        )
        return super().columns() | {SEVERITY: Column("int32", severity)}

    @classmethod
    def made_by(cls, shift: Shift) -> str:
        if shift.name == BASE:
            return "each row unchanged"
        if shift.corruption == MATCH or shift.corruption is None:
            return f"brightness and contrast of {shift.name}"
        return f"{shift.corruption.replace('_', ' ')}, severity {shift.severity}"
