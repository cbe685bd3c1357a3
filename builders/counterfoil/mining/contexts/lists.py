"""Lists of contexts that people wrote: of all classes, and of those of a name or a category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from counterfoil.errors import UserError
from counterfoil.mining.contexts.checks import MOST_CONTEXTS, list_problems
from counterfoil.mining.word_files import read_words, with_tuples
from counterfoil.recipe.layering import bundled_folder
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.problems import problem_lines, shown_path
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.section import Section, refuse

_FOLDER = "contexts"
_MOST_PROBLEMS = 20


class ContextList(Section):
    """Contexts of classes along one axis; a class has those of all, those of its category, and those of its name."""

    about: str | None = Field(default=None, description="Where the contexts come from, for people.")
    axis: str | None = Field(default=None, min_length=1, description="What they tell: background, colour, size, light.")
    covers: tuple[str, ...] = Field(
        default=(),
        description="The names and categories of classes that the list was written for; a recipe may have a part of"
        " them. Without it, every name in `by_name` must be of a class of the recipe.",
    )
    contexts: tuple[str, ...] = Field(default=(), description="Contexts of all classes.")
    by_name: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="More contexts of some classes, by their name or their category."
    )

    @model_validator(mode="after")
    def _whole(self) -> ContextList:
        problems = [f"{shown_path(path)}: {problem}" for path, problem in list_problems(self.model_dump())]
        refuse("; ".join(problems) or None)
        return self

    def of(self, cls: RecipeClass) -> tuple[str, ...]:
        """The contexts of a class, as they are written: those of all classes, its category's, its own."""
        names = dict.fromkeys(name for name in (cls.category, cls.name) if name is not None)
        return (*self.contexts, *(text for name in names for text in self.by_name.get(name, ())))

    def refuse_unfit(self, classes: Sequence[RecipeClass], axis: str) -> None:
        """UserError where the list is of another axis, names a class that there is not, or has too many of one."""
        problems = list(self._unfit(classes, axis))
        if problems:
            more = [f"… and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
            raise UserError([*problems[:_MOST_PROBLEMS], *more])

    def _unfit(self, classes: Sequence[RecipeClass], axis: str) -> Iterator[str]:
        if self.axis is not None and self.axis != axis:
            yield (
                f"mine.settings.axis: found '{axis}', and the contexts are of the axis '{self.axis}';"
                f" expected the same: --set mine.settings.axis={self.axis}"
            )
        known = {name: None for cls in classes for name in (cls.name, cls.category) if name is not None}
        unknown = [name for name in self.by_name if name not in known and not self.covers]
        for position, name in enumerate(unknown):
            close = did_you_mean(name, known) if position < _MOST_PROBLEMS else ""
            yield f"contexts: by_name.{name[:80]}: expected the name or the category of a class of the recipe{close}"
        for cls in classes:
            if len(self.of(cls)) > MOST_CONTEXTS:
                yield f"contexts: class '{cls.name}' has {len(self.of(cls)):,}, expected at most {MOST_CONTEXTS:,}"


def load_contexts(source: str | Path) -> ContextList:
    """The list of a bundled name (`imagenet`), of a YAML file, or a plain list (YAML, or .txt with one a line).

    Raises UserError with every problem, each with its file and line.
    """
    raw = read_words(source, _FOLDER, "a list of contexts")
    try:
        return ContextList.model_validate(with_tuples(raw), strict=True)
    except ValidationError as error:
        problems = problem_lines(ContextList, raw, error, across=list_problems)
        hint = f"A list to start from: {bundled_folder() / _FOLDER / 'wardrobe.yaml'}"
        raise UserError(problems, hint) from error
