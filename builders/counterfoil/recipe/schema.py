"""What a recipe may say, as one frozen pydantic model with a description for every key.

The descriptions go into the JSON Schema. Checks of one key or one section live in the `schema_*` files;
checks across sections are in `checks.py`, and `loader.py` reports all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.errors import UserError
from counterfoil.keep import Column
from counterfoil.keep.failure_names import TOP1
from counterfoil.keep.misclassified import failure_of, judge_columns
from counterfoil.recipe.checks import cross_section_problems
from counterfoil.recipe.known_classes import names_every_label
from counterfoil.recipe.names import dataset_name_problem
from counterfoil.recipe.pairs import PAIRED_BY, pair_columns
from counterfoil.recipe.prompts import BASE, RecipeClass, Shift, resolve_shifts
from counterfoil.recipe.schema_generator import Generator, RetrievalClip
from counterfoil.recipe.schema_inputs import ClassEntry, Source, Tokens
from counterfoil.recipe.schema_mine import Mine
from counterfoil.recipe.schema_output import Evaluate, Output, Publish, Samples
from counterfoil.recipe.schema_prompts import Prompts, Screen
from counterfoil.section import Section, refuse


class Recipe(Section):
    """A recipe: everything a dataset is made from."""

    recipe: Literal[1] = Field(description="Version of this schema.")
    name: str = Field(
        description="Name of the dataset, as the Hub takes it: at most 96 letters, digits, '.', '_' and '-'."
    )
    license: str = Field(default="other", description="Licence of the dataset, as the Hub spells it.")
    description: str = Field(default="", description="What the dataset is, in a sentence or two.")
    source: Source = Field(description="The input dataset and its classes.")
    generator: Generator = Field(description="What renders the samples.")
    tokens: Tokens | None = Field(default=None, description="Class tokens; null: prompts use the class names.")
    prompts: Prompts = Field(description="The base and the shifts.")
    screen: Screen = Field(
        default=Screen(), description="How candidates are screened; kind corrupt without it: not at all."
    )
    samples: Samples = Field(description="How many samples a cell has.")
    output: Output = Field(default=Output(), description="How the dataset is stored.")
    evaluate: Evaluate = Field(default=Evaluate(), description="How models are scored.")
    publish: Publish = Field(default=Publish(), description="Where the dataset is published.")
    mine: Mine | None = Field(default=None, description="How failures of a classifier are looked for.")

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        refuse(dataset_name_problem(value))
        return value

    @model_validator(mode="after")
    def _sections_agree(self) -> Recipe:
        problems = cross_section_problems(self.model_dump())
        if problems:
            raise ValueError("; ".join(f"{'.'.join(map(str, path))}: {text}" for path, text in problems))
        return self

    @cached_property
    def classes(self) -> tuple[RecipeClass, ...]:
        """The classes in label order. UserError where the input dataset has yet to tell them."""
        return tuple(
            RecipeClass(entry.id, entry.name, label, source_label, entry.imagenet, entry.parent, entry.category)
            for label, (entry, source_label) in enumerate(self._labelled_entries)
        )

    @property
    def ranking_clip(self) -> RetrievalClip:
        """The CLIP that ranks a pool: the one that `generator.clip` names, or else the screen's."""
        own = self.generator.clip
        return RetrievalClip(model=self.screen.clip, weights=self.screen.weights) if own is None else own

    @property
    def names_every_label(self) -> bool:
        """Whether the source label of every class is told; if not, `resolve_classes` asks the input dataset."""
        return names_every_label(None if self.source.classes is None else [dict(each) for each in self.source.classes])

    @property
    def _labelled_entries(self) -> Iterator[tuple[ClassEntry, int]]:
        entries = self.source.classes or ()
        labelled = [(entry, entry.source_label) for entry in entries if entry.source_label is not None]
        if not entries or len(labelled) < len(entries):
            raise UserError(
                f"recipe {self.name}: the labels of its classes are those of {self.source.dataset}, which was not asked"
                " for them",
                "In Python: recipe = counterfoil.resolve_classes(recipe)",
            )
        yield from labelled

    @cached_property
    def _shifts(self) -> tuple[Shift, ...]:
        return resolve_shifts(
            [entry.id for entry, _ in self._labelled_entries], self.prompts, self.screen, self.samples
        )

    @cached_property
    def judges(self) -> tuple[str, ...]:
        """The classifiers that are asked about images: those of keep rules, each once, in order, and the screen's."""
        rules = [rule for shift in self.all_shifts() for rule in shift.keep]
        second = () if self.screen.judge is None else (self.screen.judge,)
        return tuple(dict.fromkeys((*(name for rule in rules for name in rule.judges()), *second)))

    def failure_asked(self, shift: Shift, judge: str) -> str | None:
        """The failure rule by which a judge is asked about the images of a shift; None where it is not asked.

        The screen's own judge is asked about every image, the base's too, whatever else a keep rule asks it.
        """
        return failure_of(shift.keep, judge) or (TOP1 if judge == self.screen.judge else None)

    @cached_property
    def added_columns(self) -> dict[str, Column]:
        """The columns that every table has because the generator, keep rules or the screen ask for them, in order."""
        rules = [rule for shift in self.all_shifts() for rule in shift.keep]
        asked = {name: column for rule in rules for name, column in rule.columns().items()}
        return self.generator.columns | pair_columns(self.samples.pairs) | asked | self._judge_columns

    def beside_base(self, shift: Shift) -> bool:
        """Whether samples of a shift are drawn beside their base sample, so that the model attends to that too."""
        return self.samples.pairs == "attention" and shift.name != BASE

    def pairing(self, shift: Shift) -> dict[str, str | None]:
        """What the columns of pairs say of a shift's samples: nothing where the recipe asks for none."""
        if self.samples.pairs == "noise":
            return {}
        return {PAIRED_BY: "attention" if self.beside_base(shift) else None}

    def columns_of(self, shift: Shift) -> tuple[str, ...]:
        """Those of them that a shift's own keep rules and the screen ask for."""
        return (*(name for rule in shift.keep for name in rule.columns()), *self._judge_columns)

    @property
    def _judge_columns(self) -> dict[str, Column]:
        return {} if self.screen.judge is None else judge_columns(self.screen.judge)

    @cached_property
    def plan_document(self) -> dict[str, Any]:
        """What the plan hash is over, as JSON reads it back; two of these show how two recipes differ."""
        from counterfoil.recipe.canonical import as_read_back, plan_inputs

        return as_read_back(plan_inputs(self))

    @cached_property
    def screen_document(self) -> dict[str, Any]:
        """What the screen hash is over, as JSON reads it back; two of these show how two recipes differ."""
        from counterfoil.recipe.canonical import as_read_back, screen_inputs

        return as_read_back(screen_inputs(self))

    @cached_property
    def plan_hash(self) -> str:
        """SHA-256 over everything that decides which samples exist, how they are rendered and laid out."""
        from counterfoil.recipe.canonical import sha256_json

        return sha256_json(self.plan_document)

    @cached_property
    def screen_hash(self) -> str:
        """SHA-256 over everything that decides which candidates are accepted and what of them is stored."""
        from counterfoil.recipe.canonical import sha256_json

        return sha256_json(self.screen_document)

    @cached_property
    def recipe_hash(self) -> str:
        """SHA-256 over the plan, the screen and the names of the inputs: the recipe that a layer was written for."""
        from counterfoil.recipe.canonical import recipe_inputs, sha256_json

        return sha256_json(recipe_inputs(self))

    @cached_property
    def portable_yaml(self) -> str:
        """The recipe as a dataset directory holds it, with no path of this machine; of the same hashes."""
        from counterfoil.recipe.loader import portable_text

        return portable_text(self)

    @cached_property
    def portable(self) -> Recipe:
        """The recipe without a path of this machine."""
        from counterfoil.recipe.loader import portable_recipe

        return portable_recipe(self)

    def __copy__(self) -> Recipe:
        # A changed copy (`model_copy(update=…)`) must not bring what was worked out of the old values.
        copied = super().__copy__()
        values: dict[str, Any] = vars(copied)
        for name in set(values) - set(type(self).model_fields):
            values.pop(name)
        return copied

    def all_shifts(self) -> tuple[Shift, ...]:
        """The base first, then every shift in order, with defaults, group and labels filled in."""
        return self._shifts
