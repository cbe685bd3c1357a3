"""The parts of a recipe of any form, for checks across its sections: what is of another form counts as empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.recipe.kinds.kind import GeneratorKind

RecipePath = tuple[str | int, ...]
RecipeProblem = tuple[RecipePath, str]


class RecipeParts:
    """The parts of a recipe of any form, and the kind of its generator.

    specs: what the base and each shift say, and where. ids: those of classes, by their place in the list.
    """

    def __init__(self, recipe: Mapping[str, Any], kind: GeneratorKind) -> None:
        self.recipe, self.kind = recipe, kind
        self.source, self.generator, self.prompts, self.screen, self.samples = (
            mapping(recipe.get(name)) for name in ("source", "generator", "prompts", "screen", "samples")
        )
        self.classes = sequence(self.source.get("classes"))
        found = ((index, mapping(entry).get("id")) for index, entry in enumerate(self.classes))
        self.ids = {index: class_id for index, class_id in found if isinstance(class_id, str)}
        self.known = tuple(self.ids.values())
        self.every = set(self.known)
        self.shifts = mapping(self.prompts.get("shifts"))
        own: list[tuple[RecipePath, Any]] = [(("prompts", "shifts", name), spec) for name, spec in self.shifts.items()]
        self.of_shifts = [(place, mapping(spec)) for place, spec in own]
        self.specs = [(("prompts", "base"), mapping(self.prompts.get("base"))), *self.of_shifts]

    def ids_of(self, spec: Mapping[str, Any]) -> set[str]:
        """Return the ids of classes that a base or a shift has."""
        chosen = spec.get("classes")
        return self.every if chosen is None else {each for each in sequence(chosen) if isinstance(each, str)}

    def templates(self) -> Iterator[tuple[RecipePath, str, Mapping[str, Any]]]:
        """Yield each text that is filled with classes: its path, the text, and the base or shift with the classes."""
        for path, own in self.specs:
            default = "style_object_caption" if own.get("style") is True else "object_caption"
            used = [((*path, "prompt"), own.get("prompt")), ((*path, "object_caption"), own.get("object_caption"))]
            if own.get("object_caption") is None:
                used.append((("screen", default), self.screen.get(default)))
            yield from ((place, text, own) for place, text in used if isinstance(text, str))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> Sequence[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return value if isinstance(value, list | tuple) else ()
