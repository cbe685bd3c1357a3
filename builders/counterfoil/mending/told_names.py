"""How a document calls models and what mends them: as they were named, without folders, doubles told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from counterfoil.mending.document import Collective, ModelMended
from counterfoil.mending.given import balanced_by
from counterfoil.recipe.layering import without_folders


def told_names(names: Iterable[str]) -> dict[str, str]:
    """Name as it was given → as everybody may see it. Of several that would be called alike the later have a number."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        found[name] = _apart(_plain(name), set(found.values()))
    return found


def told_models(models: Sequence[ModelMended]) -> tuple[ModelMended, ...]:
    """The same models under told names, with their arms."""
    names, arms = told_names(one.name for one in models), _arm_names(models)
    return tuple(
        replace(
            one,
            name=names[one.name],
            best=None if one.best is None else arms[one.best],
            saved=None if one.saved is None else arms[one.saved],
            arms=tuple(
                replace(arm, name=arms[arm.name], of=None if arm.of is None else arms[arm.of]) for arm in one.arms
            ),
        )
        for one in models
    )


def told_collective(collective: Collective | None, models: Sequence[ModelMended]) -> Collective | None:
    """The same under told names. models: as they were named."""
    if collective is None:
        return None
    names, arms = told_names(one.name for one in models), _arm_names(models)
    return replace(
        collective,
        models=tuple(names[name] for name in collective.models),
        kept=tuple(dict(one) | {"model": names[one["model"]], "arm": arms[one["arm"]]} for one in collective.kept),
    )


def _arm_names(models: Sequence[ModelMended]) -> dict[str, str]:
    every = [arm for one in models for arm in one.arms]
    found = told_names(arm.name for arm in every if arm.of is None)
    for arm in every:
        if arm.of is not None:
            found[arm.name] = arm.name.removesuffix(arm.of) + found[arm.of]
    return found


def _plain(name: str) -> str:
    source = balanced_by(name)
    return without_folders(name) if source is None else name.removesuffix(source) + without_folders(source)


def _apart(name: str, taken: set[str]) -> str:
    number, found = 2, name
    while found in taken:
        found, number = f"{name} ({number})", number + 1
    return found
