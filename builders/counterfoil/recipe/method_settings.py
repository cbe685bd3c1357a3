"""What each method of mining can be told: the forms of `mine.settings`, known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from counterfoil.errors import UserError
from counterfoil.recipe.bugs_settings import BugsSettings
from counterfoil.recipe.contexts_settings import ContextsSettings
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.problems import problem_lines
from counterfoil.recipe.schema_mine import Mine
from counterfoil.recipe.strict_yaml import LocatedMapping
from counterfoil.section import Section

MOST_ALPHA = 0.3  # Jain 2023, A.7: from 0 to 0.3; further on, nothing of the caption is left
_Section = TypeVar("_Section", bound=Section)


class MethodSettings(Section):
    """What every method that chooses among captions can be told."""

    captions: str | None = Field(
        default=None,
        min_length=1,
        description="Candidate captions: a bundled grammar (`any`, `cifar`, `imagenet`, `wardrobe`), or a file;"
        " null: `any`, which fits classes of any names.",
    )
    noun: Literal["class", "category", "hyponyms"] = Field(
        default="class", description="What captions call a class: its name, its category, or its hyponyms."
    )


class DirectionsSettings(MethodSettings):
    """The settings of the method `directions`."""

    score: Literal["difference", "shifted"] = Field(
        default="difference",
        description="How a caption c with reference r is scored: `difference`, (c - r) normalised, as the paper says; "
        "`shifted`, ((c - r) - mean) / deviation normalised, as the released code does.",
    )
    fewest_errors: int = Field(default=10, ge=2, description="A class with fewer failures has no direction.")
    permutations: int = Field(default=200, ge=0, le=100_000, description="Permutations behind the p of a strength.")
    alpha: float = Field(
        default=0.1, ge=0, le=MOST_ALPHA, description="How far a decoded vector turns from the caption's: 0 to 0.3."
    )
    vector_norm: float = Field(
        default=1.0, gt=0, le=1e6, description="The length of the vectors that the generator of embeddings expects."
    )
    pool: bool = Field(
        default=True, description="Also look for a direction of all classes of a category, where classes have one."
    )


METHOD_SETTINGS: Mapping[str, type[Section]] = {
    "directions": DirectionsSettings,
    "bugs": BugsSettings,
    "contexts": ContextsSettings,
}


def method_settings(mine: Mine) -> Section:
    """The settings of the method that `mine` names. UserError for one that there is not, and for wrong settings."""
    if mine.method not in METHOD_SETTINGS:
        raise unknown_method(mine.method, METHOD_SETTINGS)
    return validated(METHOD_SETTINGS[mine.method], mine.settings, "mine.settings")


def unknown_method(method: str, known: Mapping[str, Any]) -> UserError:
    return UserError(f"mine.method: found '{method}'{did_you_mean(method, known)}", f"There is: {', '.join(known)}.")


def validated(section: type[_Section], values: Mapping[str, Any], place: str) -> _Section:
    """A section of what a recipe and the command line say. UserError with every problem of it."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        problems = problem_lines(section, LocatedMapping(values), error, across=lambda raw: ())
        # What is wrong between keys is of no one of them.
        between = [one for one in error.errors(include_url=False) if not one["loc"] and one["type"] == "value_error"]
        told = [f"{place}: {one.get('ctx', {}).get('error', one['msg'])}" for one in between]
        raise UserError([*(f"{place}.{problem}" for problem in problems), *told]) from error
