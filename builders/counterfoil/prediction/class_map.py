"""Which outputs of a classifier are right for each class of a dataset, and when an answer is a failure.

A classifier that tells the names of its outputs is matched by them, in whatever order they stand: without case, `_`,
`-` and spaces are one, and an output called "tabby, tabby cat", as in the usual lists of ImageNet, answers to each of
its names, and to all of it first. One of ImageNet's 1,000 outputs is matched by the recipe's `imagenet` indices (one
for an ImageNet subset, several for a category), unless its names show that they stand in another order. One that tells
nothing is taken for a model of the input dataset, whose outputs are the source labels, where their number fits.
Anything else is refused, since a wrong map scores near zero silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError, some_of
from counterfoil.models.classifiers.classifier import MOST_LINES, side_by_side
from counterfoil.recipe.names import plain_name

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts
    from counterfoil.recipe import RecipeClass

IMAGENET_OUTPUTS = 1000
# Over which outputs of a model its answer is the best: over all of them, or over those of the dataset's classes.
Outputs = Literal["all", "classes"]


@dataclass(frozen=True)
class ClassMap:
    """For each label of the dataset, the model outputs that count as right; `outputs` says how they were found.

    `label_names` are the outputs' own names where the model tells them. `most_ranked` is how many answers it ranks an
    image, where that is fewer than its outputs. `own` are the outputs that are right for some class, where there are
    others and both ways of answering count: over all outputs, and over `own` alone. `leads` says which of them answers
    and chances follow.
    """

    outputs: Literal["imagenet", "source labels", "names"]
    num_classes: int
    targets: tuple[tuple[int, ...], ...]
    label_names: tuple[str, ...] | None = None
    most_ranked: int | None = None
    own: tuple[int, ...] | None = None
    leads: Outputs = "all"

    @property
    def answering(self) -> int:
        """How many outputs an answer is chosen among."""
        return len(self.own) if self.own is not None and self.leads == "classes" else self.num_classes

    @property
    def chances(self) -> NDArray[np.float64]:
        """(labels,) how often a guess among these outputs is right: more than one in all where several are right."""
        return np.array([len(set(outputs)) / self.answering for outputs in self.targets])

    @property
    def top_k(self) -> int:
        """The k of "top-5": one less than the outputs where five would leave nothing to get wrong."""
        return max(1, min(5, self.answering - 1, self.most_ranked or 5))

    def answered_both_ways(self, leads: Outputs) -> ClassMap:
        """The same, answered over all outputs and over the classes' own, where the model has at least two of these and
        others. A file of labels ranks no second answer, so there is one way."""
        own = tuple(sorted({output for outputs in self.targets for output in outputs}))
        both = self.most_ranked is None and 2 <= len(own) < self.num_classes
        return replace(self, own=own, leads=leads) if both else self


def map_classes(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> ClassMap:
    """The class map between a recipe's classes and a model's outputs; UserError when there is none."""
    named = match_names(classes, facts)
    if facts.num_classes == IMAGENET_OUTPUTS and any(one.imagenet for one in classes):
        if named is None or not _stand_elsewhere(classes, named):
            return _class_map("imagenet", facts, _imagenet_targets(classes, facts))
        refuse_unmatched(classes, facts, named)
    elif named is None:
        return _class_map("source labels", facts, _source_targets(classes, facts))
    else:
        refuse_unmatched(classes, facts, named)
    targets = tuple((output,) for output in named.outputs if output is not None)
    at_source = targets == tuple((one.source_label,) for one in classes)
    return _class_map("source labels" if at_source else "names", facts, targets)


def _class_map(
    outputs: Literal["imagenet", "source labels", "names"], facts: ClassifierFacts, targets: tuple[tuple[int, ...], ...]
) -> ClassMap:
    return ClassMap(outputs, facts.num_classes, targets, facts.label_names, facts.most_ranked)


def _stand_elsewhere(classes: Sequence[RecipeClass], named: NameMatch) -> bool:
    """Whether most of the names that were found stand at other outputs than the `imagenet` indices.

    Most, since two vocabularies use single words for different things.
    """
    found = [(one, output) for one, output in zip(classes, named.outputs, strict=True) if output is not None]
    return 2 * sum(output not in one.imagenet for one, output in found) > len(found)


def _imagenet_targets(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> tuple[tuple[int, ...], ...]:
    missing = [one.id for one in classes if not one.imagenet]
    if missing:
        raise UserError(
            f"model {facts.name!r} has ImageNet outputs, but {len(missing)} of {len(classes)} classes "
            f"of the recipe have no `imagenet` indices: {some_of(missing)}"
        )
    wrong = [one.id for one in classes if not all(0 <= i < IMAGENET_OUTPUTS for i in one.imagenet)]
    if wrong:
        raise UserError(f"classes with `imagenet` indices outside 0 … {IMAGENET_OUTPUTS - 1}: {some_of(wrong)}")
    return tuple(tuple(one.imagenet) for one in classes)


def _source_targets(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> tuple[tuple[int, ...], ...]:
    """One target a class, its source label, where the number of outputs is that of the source labels."""
    labels = [one.source_label for one in classes]
    if facts.num_classes != max(labels) + 1:
        known = (
            "none lists `imagenet` indices"
            if not any(one.imagenet for one in classes)
            else (f"their `imagenet` indices need a model of {IMAGENET_OUTPUTS} outputs")
        )
        raise UserError(
            f"model {facts.name!r} has {facts.num_classes} outputs, which match nothing in the recipe: "
            f"its classes have source labels up to {max(labels)} (a model of {max(labels) + 1} outputs), "
            f"and {known}",
            "Add `imagenet: [indices]` to the recipe's classes to score ImageNet models.",
        )
    return tuple((label,) for label in labels)


# What libraries call outputs that nobody named ("LABEL_3"), and bare numbers: they prove nothing, though one of them
# may be a class's id. Codes of WordNet prove nothing where no class has one.
_NUMBER = re.compile(r"(label|class|output)? ?\d+")
_CODE = re.compile(r"n\d+")


@dataclass(frozen=True)
class NameMatch:
    """For each class its output, None where no output has its name; `problems` are lines on what is ambiguous."""

    outputs: tuple[int | None, ...]
    problems: tuple[str, ...]


def match_names(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> NameMatch | None:
    """The outputs that have the classes' names; None where the classifier tells no names, or only numbers."""
    names = facts.label_names
    if names is None or len(names) != facts.num_classes:
        return None
    whole = _outputs_by_name((plain_name(name), output) for output, name in enumerate(names))
    parts = _outputs_by_name(
        (plain_name(part), output) for output, name in enumerate(names) for part in name.split(",")
    )
    found = [_outputs_of(one, whole, parts) for one in classes]
    numbers = [_NUMBER.fullmatch(plain_name(name)) is not None for name in names]
    if all(numbers) and not all(found):
        return None
    if not any(found) and all(n or _CODE.fullmatch(plain_name(name)) for n, name in zip(numbers, names, strict=True)):
        return None
    problems = [
        f"{one.name!r} is the name of the outputs {', '.join(map(str, outputs[:MOST_LINES]))}"
        for one, outputs in zip(classes, found, strict=True)
        if len(outputs) > 1
    ]
    single = [outputs[0] if len(outputs) == 1 else None for outputs in found]
    taken: dict[int, RecipeClass] = {}
    for one, output in zip(classes, single, strict=True):
        if output is not None and (other := taken.setdefault(output, one)) is not one:
            problems.append(
                f"output {output}, {names[output]!r}, has the names of two classes: {other.id} and {one.id}"
            )
    return NameMatch(tuple(single), tuple(problems))


def refuse_unmatched(classes: Sequence[RecipeClass], facts: ClassifierFacts, named: NameMatch) -> None:
    """UserError where a class has no output of its name, or more than one; both lists stand side by side in it."""
    if named.problems:
        shown = [f"model {facts.name!r}: {problem}" for problem in named.problems[:MOST_LINES]]
        raise UserError(shown, "Names decide which output is right; each may stand for one class and one output only.")
    missing = [one for one, output in zip(classes, named.outputs, strict=True) if output is None]
    if not missing:
        return
    names = facts.label_names or ()
    left = len(missing), len(classes)
    raise UserError(
        f"model {facts.name!r}: {left[0]} of {left[1]} classes have no output of their name\n"
        + "\n".join(side_by_side(missing, names, set(named.outputs) - {None})),
        "Name the classes in the recipe (name or id) as the model names its outputs.",
    )


def _outputs_of(
    one: RecipeClass, whole: Mapping[str, Sequence[int]], parts: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """The outputs that may be a class, by its id alone where that suffices; whole names come before parts of them."""
    for table in (whole, parts):
        by_id, by_name = table.get(plain_name(one.id), ()), table.get(plain_name(one.name), ())
        if len(by_id) == 1 and (not by_name or by_id[0] in by_name):
            return tuple(by_id)
        if by_id or by_name:
            return tuple(sorted({*by_id, *by_name}))
    return ()


def _outputs_by_name(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    table: dict[str, list[int]] = {}
    for name, output in pairs:
        outputs = table.setdefault(name, [])
        if name and output not in outputs[-1:]:
            outputs.append(output)
    return table
