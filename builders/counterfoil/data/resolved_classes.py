"""Classes of recipes that leave their labels or ids to the input dataset. They are read from the
dataset once and written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from counterfoil.data.messages import message
from counterfoil.data.open_source import names_at_hand, open_source
from counterfoil.errors import CounterfoilError, Problems
from counterfoil.recipe import Recipe, load_own_recipe, load_recipe
from counterfoil.recipe.layering import class_slug, same_classes
from counterfoil.recipe.loader import with_classes
from counterfoil.recipe.names import (
    LONGEST_CLASS_NAME,
    RECIPE,
    class_id_problem,
    label_by_name,
    named_problem,
    refuse_disagreements,
)
from counterfoil.recipe.schema_inputs import ClassEntry


def resolve_classes(
    recipe: Recipe | str | Path,
    begun: Path | None = None,
    *,
    fetch: bool = True,
    names: str | Sequence[str] | None = None,
) -> Recipe:
    """Add the source label of every class to a recipe.

    A recipe that already has all source labels is returned unchanged. Source labels that contradict
    the names of the input dataset are refused if those names are available.

    Args:
        recipe: A Recipe, a bundled name or a path.
        begun: A directory in which a build of this recipe may have begun. If the input dataset is
            gone, its classes are read from there.
        fetch: Whether to download a Hub dataset to read labels whose names it does not declare.
        names: Names of the input dataset's labels, if you have just read them.

    Returns:
        The Recipe with source labels.

    Raises:
        UserError: The input dataset lacks a name, labels have no names, two names give one id, or a
            download is needed and `fetch` is False.
        RunFailure: The input dataset cannot be reached.
    """
    recipe = load_recipe(recipe)
    splits = (recipe.source.train_split, recipe.source.validation_split)
    names = [names] if isinstance(names, str) else names
    if recipe.names_every_label:
        if names is None:
            names = names_at_hand(recipe.source, splits)
        if names is not None:
            refuse_disagreements(recipe.classes, names, f"'{recipe.source.dataset}'")
        return recipe
    try:
        if names is None:
            names = open_source(recipe.source).names(splits, fetch=fetch)
    except CounterfoilError as error:
        recorded = None if begun is None else _recorded(recipe, begun)
        if recorded is not None:
            return recorded
        hint = (
            "Or write each class out, so that the input dataset is not needed: {name: mug,"
            " source_label: 0}."
        )
        raise error.at("source.classes", hint) from error
    where = f"'{recipe.source.dataset}'"
    entries = recipe.source.classes
    chosen = every_class(names, where) if entries is None else _labelled(entries, names, where)
    resolved = with_classes(recipe, chosen)
    refuse_disagreements(resolved.classes, names, where)
    return resolved


def every_class(names: Sequence[str], where: str) -> tuple[ClassEntry, ...]:
    """Return a class for each label name, in their order. `_` in a name becomes a space, because
    prompts need words."""
    entries = []
    owners = {}
    problems = Problems(message)
    key = f"source.classes: {where}"
    for label, name in enumerate(names):
        words = " ".join(name.replace("_", " ").split())
        slug = class_slug(words)
        if not slug or class_id_problem(slug) or len(words) > LONGEST_CLASS_NAME:
            problems.add("unclear-label.id", key, name, label=label)
        elif slug in owners:
            both = f"'{owners[slug][:80]}' and '{name[:80]}'"
            problems.add("unclear-label.ids", key, slug, both)
        else:
            owners[slug] = name
            entries.append(ClassEntry(id=slug, name=words, source_label=label))
    problems.refuse()
    return tuple(entries)


def _labelled(
    entries: Sequence[ClassEntry], names: Sequence[str], where: str
) -> tuple[ClassEntry, ...]:
    """Return the classes with source labels. A class without a source label gets it by name."""
    problems = Problems(message)
    labelled = []
    owners = {}
    for index, entry in enumerate(entries):
        if entry.source_label is None:
            key = f"source.classes[{index}]"
            labels = label_by_name(entry.id, entry.name, names)
            problem = named_problem(entry.name, labels, names, where)
            if problem is not None:
                problems.add("unclear-label.named", key, problem)
                continue
            label = labels[0]
            if label in owners:
                owner = owners[label]
                problems.add(
                    "unclear-label.taken", f"{key}: {where}", entry.name, label=label, first=owner
                )
            entry = entry.model_copy(update={"source_label": label})
            owners[label] = entry.name
        labelled.append(entry)
    problems.refuse()
    return tuple(labelled)


def _recorded(recipe: Recipe, directory: Path) -> Recipe | None:
    """Return the recipe with the classes of a dataset that was begun with it. Return None if there
    is no such dataset, or it has other classes.
    """
    if not (directory / RECIPE).is_file():
        return None
    recorded = load_own_recipe(directory).source.classes or ()
    classes = recipe.source.classes
    given = None
    if classes is not None:
        given = [entry.model_dump(exclude_defaults=True) for entry in classes]
    if not same_classes(given, [entry.model_dump() for entry in recorded]):
        return None
    return with_classes(recipe, recorded)
