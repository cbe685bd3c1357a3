"""The parts of a recipe of any form, for checks across its sections. A part of an unexpected form
counts as empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.recipe.kinds.kind import GeneratorKind

RecipePath = tuple[str | int, ...]
RecipeProblem = tuple[RecipePath, str]


class RecipeParts:
    """The parts of a recipe of any form, and the kind of its generator.

    specs: the path and mapping of the base and of each shift. of_screen: those of the screen. ids:
    class ids by their index in the list of classes.
    """

    def __init__(self, recipe: Mapping[str, Any], kind: type[GeneratorKind]) -> None:
        self.recipe = recipe
        self.kind = kind
        self.source = mapping(recipe.get("source"))
        self.generator = mapping(recipe.get("generator"))
        self.prompts = mapping(recipe.get("prompts"))
        self.screen = mapping(recipe.get("screen"))
        self.samples = mapping(recipe.get("samples"))
        self.kind_name = kind.name or self.generator.get("kind")
        self.classes = sequence(self.source.get("classes"))
        self.ids: dict[int, str] = {}
        for index, entry in enumerate(self.classes):
            class_id = mapping(entry).get("id")
            if isinstance(class_id, str):
                self.ids[index] = class_id
        self.known = tuple(self.ids.values())
        self.every = set(self.known)
        self.shifts = mapping(self.prompts.get("shifts"))
        self.of_shifts: list[tuple[RecipePath, Mapping[str, Any]]] = [
            (("prompts", "shifts", name), mapping(spec)) for name, spec in self.shifts.items()
        ]
        of_base: tuple[RecipePath, Mapping[str, Any]] = (
            ("prompts", "base"),
            mapping(self.prompts.get("base")),
        )
        self.specs = [of_base, *self.of_shifts]
        self.of_screen: tuple[RecipePath, Mapping[str, Any]] = (("screen",), self.screen)

    def ids_of(self, spec: Mapping[str, Any]) -> set[str]:
        """Return the class ids of a base or a shift."""
        chosen = spec.get("classes")
        if chosen is None:
            return self.every
        return {item for item in sequence(chosen) if isinstance(item, str)}

    def templates(self) -> Iterator[tuple[RecipePath, str, Mapping[str, Any]]]:
        """Yield the path and text of each template of a class, and the base or shift that the
        template is for."""
        for path, spec in self.specs:
            texts: dict[RecipePath, Any] = {
                (*path, key): spec.get(key) for key in ("prompt", "object_caption")
            }
            if spec.get("object_caption") is None:
                default = "style_object_caption" if spec.get("style") is True else "object_caption"
                texts["screen", default] = self.screen.get(default)
            for text_path, text in texts.items():
                if isinstance(text, str):
                    yield text_path, text, spec


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is, and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: Any) -> Sequence[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return value if isinstance(value, list | tuple) else ()


def embedding_specs(recipe: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and embedding of the base and of each shift, in a recipe of any form."""
    prompts = mapping(recipe.get("prompts"))
    specs: list[tuple[tuple[str, ...], Any]] = [(("prompts", "base"), prompts.get("base"))]
    for name, spec in mapping(prompts.get("shifts")).items():
        specs.append((("prompts", "shifts", name), spec))
    for path, spec in specs:
        embedding = mapping(spec).get("embedding")
        if embedding is not None:
            yield (*path, "embedding"), embedding
