"""The parts of a recipe of any form, for checks across its sections. A part of an unexpected form
counts as empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.recipe.kinds.kind import GeneratorKind

RecipePath = tuple[str | int, ...]
RecipeProblem = tuple[RecipePath, str]


class RecipePart(dict[str, Any]):
    """A mapping in a recipe of any form. Its keys are attributes too, None if they are not
    written."""

    def __getattr__(self, key: str) -> Any:
        return self.get(key)


PathAndPart = tuple[RecipePath, RecipePart]


class RecipeParts:
    """The parts of a recipe of any form, and the kind of its generator.

    specs: the path and mapping of the base and of each shift. of_screen: those of the screen.
    with_keep: those that may have keep rules. ids: class ids by their index in the list of classes.
    """

    def __init__(self, recipe: Mapping[str, Any], kind: type[GeneratorKind]) -> None:
        self.recipe = as_mapping(recipe)
        self.kind = kind
        self.source = as_mapping(self.recipe.source)
        self.generator = as_mapping(self.recipe.generator)
        self.prompts = as_mapping(self.recipe.prompts)
        self.screen = as_mapping(self.recipe.screen)
        self.samples = as_mapping(self.recipe.samples)
        self.kind_name = kind.name or self.generator.kind
        self.classes = as_sequence(self.source.classes)
        self.ids: dict[int, str] = {}
        for index, entry in enumerate(self.classes):
            class_id = as_mapping(entry).id
            if isinstance(class_id, str):
                self.ids[index] = class_id
        self.known = tuple(self.ids.values())
        self.every = set(self.known)
        self.shifts = as_mapping(self.prompts.shifts)
        self.of_shifts: list[PathAndPart] = []
        for name, spec in self.shifts.items():
            self.of_shifts.append((("prompts", "shifts", name), as_mapping(spec)))
        self.of_base: PathAndPart = (("prompts", "base"), as_mapping(self.prompts.base))
        self.of_screen: PathAndPart = (("screen",), self.screen)
        self.specs = [self.of_base, *self.of_shifts]
        self.with_keep = [self.of_screen, *self.of_shifts]

    def ids_of(self, spec: RecipePart) -> set[str]:
        """Return the class ids of a base or a shift."""
        if spec.classes is None:
            return self.every
        return {item for item in as_sequence(spec.classes) if isinstance(item, str)}

    def keep_of(self, spec: RecipePart) -> Any:
        """Return the keep rules of a shift: its own, or the screen's."""
        return self.screen.keep if spec.keep is None else spec.keep

    def keep_steps(self) -> Iterator[PathAndPart]:
        """Yield the path and mapping of each keep rule of the screen and of shifts."""
        for path, spec in self.with_keep:
            for index, step in enumerate(as_sequence(spec.keep)):
                yield (*path, "keep", index), as_mapping(step)

    def has_quota(self, spec: RecipePart) -> bool:
        """Return whether the cells of a shift have a quota, set by its own samples or by the
        recipe's."""
        samples = self.samples if spec.samples is None else as_mapping(spec.samples)
        return samples.accepted is not None

    def templates(self) -> Iterator[tuple[RecipePath, str, RecipePart]]:
        """Yield the path and text of each template of a class, and the base or shift that the
        template is for."""
        for path, spec in self.specs:
            texts: dict[RecipePath, Any] = {}
            for key in ("prompt", "object_caption"):
                texts[*path, key] = spec.get(key)
            if spec.object_caption is None:
                default = "style_object_caption" if spec.style is True else "object_caption"
                texts["screen", default] = self.screen.get(default)
            for text_path, text in texts.items():
                if isinstance(text, str):
                    yield text_path, text, spec


def as_mapping(value: Any) -> RecipePart:
    """Return the part that a mapping is, and anything else as an empty one."""
    return RecipePart(value) if isinstance(value, Mapping) else RecipePart()


def as_sequence(value: Any) -> Sequence[Any]:
    """Return a list as it is, and anything else as an empty one."""
    return value if isinstance(value, list | tuple) else ()


def embedding_specs(recipe: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the path and embedding of the base and of each shift, in a recipe of any form."""
    prompts = as_mapping(recipe.get("prompts"))
    specs: list[tuple[tuple[str, ...], Any]] = [(("prompts", "base"), prompts.base)]
    for name, spec in as_mapping(prompts.shifts).items():
        specs.append((("prompts", "shifts", name), spec))
    for path, spec in specs:
        embedding = as_mapping(spec).embedding
        if embedding is not None:
            yield (*path, "embedding"), embedding
