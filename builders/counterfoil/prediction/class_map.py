"""Which outputs of a classifier are right for each class of a dataset, and when an answer is a failure.

A classifier that tells the names of its outputs is matched by them, in whatever order they stand, or refused: as they
are written, else without case, `_`, `-` and spaces being one, else by the classes' ids; and an output called "tabby,
tabby cat", as in the usual lists of ImageNet, answers to each of its names, and to all of it first. One of ImageNet's
1,000 outputs is matched by the recipe's `imagenet` indices (one for an ImageNet subset, several for a category), unless
its names show that they stand in another order. One that tells nothing is taken for a model of the input dataset, whose
outputs are the source labels, where their number fits and nothing says that it may have learned another order:
torchvision sorts class folders by code points, timm by numbers and without case. Anything else is refused, since a
wrong map scores near zero silently. A person may say the order instead (`Order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError, some_of
from counterfoil.models.classifiers.classifier import MOST_LINES, in_columns, shortened, side_by_side
from counterfoil.recipe.names import plain_name
from counterfoil.report.words import counted

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts
    from counterfoil.recipe import RecipeClass

IMAGENET_OUTPUTS = 1000
# What a person says of a model's outputs: output i is source label i; or the folders' names as timm sorts them; or the
# name of each output.
Order = Literal["position", "timm"] | tuple[str, ...]
# That a person said so.
ASKED = "as --class-order says"
# Over which outputs of a model its answer is the best: over all of them, or over those of the dataset's classes.
Outputs = Literal["all", "classes"]


@dataclass(frozen=True)
class ClassMap:
    """For each label of the dataset, the model outputs that count as right; `outputs` says how they were found.

    `label_names` are the outputs' own names where the model tells them. `most_ranked` is how many answers it ranks an
    image, where that is fewer than its outputs. `own` are the outputs that are right for some class, where there are
    others and both ways of answering count: over all outputs, and over `own` alone. `leads` says which of them answers
    and chances follow. `matched` says to people how outputs were matched, and `asked` whether a person said so.
    """

    outputs: Literal["imagenet", "source labels", "names"]
    num_classes: int
    targets: tuple[tuple[int, ...], ...]
    label_names: tuple[str, ...] | None = None
    most_ranked: int | None = None
    own: tuple[int, ...] | None = None
    leads: Outputs = "all"
    matched: str = ""
    asked: bool = False

    @property
    def answering(self) -> int:
        """Return how many outputs an answer is chosen among."""
        return len(self.own) if self.own is not None and self.leads == "classes" else self.num_classes

    @property
    def chances(self) -> NDArray[np.float64]:
        """Return how often a guess among these outputs is right (labels,): over 1 in all where several are right."""
        return np.array([len(set(outputs)) / self.answering for outputs in self.targets])

    @property
    def top_k(self) -> int:
        """Return the k of "top-5": one less than the outputs where five would leave nothing to get wrong."""
        return max(1, min(5, self.answering - 1, self.most_ranked or 5))

    def answered_both_ways(self, leads: Outputs) -> ClassMap:
        """Return the same, answered over all outputs and over the classes' own, if it has two of these and others.

        A file of labels ranks no second answer, so there is one way.
        """
        own = tuple(sorted({output for outputs in self.targets for output in outputs}))
        both = self.most_ranked is None and 2 <= len(own) < self.num_classes
        return replace(self, own=own, leads=leads) if both else self


def map_classes(
    classes: Sequence[RecipeClass], facts: ClassifierFacts, order: Order | None = None, *, folders: bool = True
) -> ClassMap:
    """Return the class map between a recipe's classes and a model's outputs. Raise UserError if there is none.

    order: what a person says of the outputs, whatever the model says. folders: whether classes may be folders, which
    training programs sort in different ways.
    """
    counts = f"{len(classes):,} of {counted(len(classes), 'class', 'classes')}"
    if order == "position":
        targets = _source_targets(classes, facts)
        matched = f"by position, in the dataset's order of labels ({ASKED})"
        return _class_map("source labels", replace(facts, label_names=None), targets, matched, asked=True)
    if order == "timm":
        targets = _timm_targets(classes, facts)
        matched = f"by position, in timm's order of the class names ({ASKED})"
        return _class_map("names", replace(facts, label_names=None), targets, matched, asked=True)
    if order is not None:
        facts = replace(facts, label_names=order)
    if facts.of_classes:
        named = NameMatch(tuple(range(len(classes))), ())
    else:
        named = match_names(classes, facts, given=order is not None)
    imagenet = (
        order is None
        and not facts.of_classes
        and facts.num_classes == IMAGENET_OUTPUTS
        and any(one.imagenet for one in classes)
    )
    if imagenet and (named is None or not _stand_elsewhere(classes, named)):
        targets = _imagenet_targets(classes, facts)
        return _class_map("imagenet", facts, targets, f"by the recipe's ImageNet indices: {counts}")
    if named is None:
        targets = _source_targets(classes, facts)
        return _class_map("source labels", facts, targets, _refuse_unknown_order(classes, facts, folders))
    refuse_unmatched(classes, facts, named)
    targets = tuple((output,) for output in named.outputs if output is not None)
    at_source = targets == tuple((one.source_label,) for one in classes)
    matched = f"by name: {counts}" + (f" ({ASKED})" if order is not None else "")
    return _class_map("source labels" if at_source else "names", facts, targets, matched, asked=order is not None)


def _class_map(
    outputs: Literal["imagenet", "source labels", "names"],
    facts: ClassifierFacts,
    targets: tuple[tuple[int, ...], ...],
    matched: str,
    *,
    asked: bool = False,
) -> ClassMap:
    return ClassMap(
        outputs, facts.num_classes, targets, facts.label_names, facts.most_ranked, matched=matched, asked=asked
    )


def _refuse_unknown_order(classes: Sequence[RecipeClass], facts: ClassifierFacts, folders: bool) -> str:
    """Return how outputs without names are matched. Raise UserError if training programs sort folders differently."""
    names = _folder_names(classes) if folders else None
    if names is None:
        return "by position, in the dataset's order of labels"
    timms = _timm_order(names)
    if timms == names:
        complete = {one.source_label for one in classes} == set(range(len(classes)))
        same = ", which is torchvision's and timm's order of the class folders"
        return "by position, in the dataset's order of labels" + (same if complete else "")
    first = next((at for at, name in enumerate(names) if timms is None or timms[at] != name), 0)
    pairs = zip(names, timms or ["(not known)"] * len(names), strict=True)
    rows = [(shortened(name), shortened(other)) for name, other in pairs][first : first + MOST_LINES]
    raise UserError(
        f"model {facts.name!r} does not tell the names of its outputs, and training programs sort these classes"
        f" differently, from the {first + 1}. on:\n" + "\n".join(in_columns([("torchvision", "timm"), *rows])),
        "Save the names with the model: label_names in the config.json of a timm folder, or an attribute label_names."
        " `evaluate` also takes the order in which it was trained: --class-order position (torchvision's),"
        " --class-order timm, or --class-order FILE with the class of each output on a line.",
    )


def _timm_targets(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> tuple[tuple[int, ...], ...]:
    """Return a target for each class, its place as timm sorts all folders. Raise UserError if these are not known."""
    names = _folder_names(classes)
    timms = None if names is None else _timm_order(names)
    if names is None or timms is None or {one.source_label for one in classes} != set(range(facts.num_classes)):
        raise UserError(
            f"model {facts.name!r}: timm's order of {counted(facts.num_classes, 'class folder')} is not known, because"
            " the recipe leaves some out, or calls them by other names, or names differ in nothing that timm sorts by",
            "Give --class-order a file with the class of each output on a line.",
        )
    place = {name: output for output, name in enumerate(timms)}
    return tuple((place[names[one.source_label]],) for one in classes)


def _folder_names(classes: Sequence[RecipeClass]) -> list[str] | None:
    """Return the names in the order of source labels, spelt so that they are sorted as torchvision sorts folders.

    `_` in a folder's name is a space in a recipe. None where they are not sorted: a dataset's own order is no folders'.
    """
    names = [one.name for one in sorted(classes, key=lambda one: one.source_label)]
    for spelt in (names, [name.replace(" ", "_") for name in names]):
        if spelt == sorted(spelt):
            return spelt
    return None


def folder_orders(classes: Sequence[RecipeClass]) -> dict[str, list[int]]:
    """Return how training programs sort class folders of these names: whose order → the classes' labels in it."""
    names = [one.name for one in classes]
    label = {name: one.label for one, name in zip(classes, names, strict=True)}
    orders = {"torchvision's": sorted(names), "timm's": _timm_order(names)}
    return {
        whose: [label[name] for name in order] for whose, order in orders.items() if order and len(label) == len(names)
    }


def _timm_order(names: Sequence[str]) -> list[str] | None:
    """Return names as timm sorts class folders (`timm.utils.misc.natural_key`): by their numbers, and without case.

    None where two names differ in nothing of this: timm takes them from a set, in any order.
    """
    keys = [
        tuple(int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name.lower())))
        for name in names
    ]
    if len(set(keys)) < len(keys):
        return None
    return [name for _, name in sorted(zip(keys, names, strict=True))]


def _stand_elsewhere(classes: Sequence[RecipeClass], named: NameMatch) -> bool:
    """Return whether most of the names that were found stand at other outputs than the `imagenet` indices.

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
    """Return a target for each class, its source label. Raise UserError if the outputs are not as many."""
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


# What libraries call outputs that nobody named ("LABEL_3"), and bare numbers.
_NUMBER = re.compile(r"(?:label|class|output)? ?(\d+)")


@dataclass(frozen=True)
class NameMatch:
    """For each class its output, None where no output has its name; `problems` are lines on what is ambiguous."""

    outputs: tuple[int | None, ...]
    problems: tuple[str, ...]


def match_names(classes: Sequence[RecipeClass], facts: ClassifierFacts, *, given: bool = False) -> NameMatch | None:
    """Return the outputs with the classes' names; None where the classifier tells no names, or numbers its outputs.

    given: whether a person gave the names. Raise UserError where there are more or fewer names than outputs.
    """
    names = facts.label_names
    if names is None or (not given and _are_numbered(names, classes)):
        return None
    if len(names) != facts.num_classes:
        whose = "class order lists" if given else "it tells"
        raise UserError(
            f"model {facts.name!r} has {counted(facts.num_classes, 'output')}, and {whose}"
            f" {counted(len(names), 'name')}\n" + "\n".join(side_by_side(classes, names, ())),
            "Give a name for each output: correct label_names, or --class-order FILE.",
        )
    # Case counts where nothing else tells two classes apart.
    spelt = plain_name if len({plain_name(one.name) for one in classes}) == len(classes) else str
    by_name = _outputs_by_name((spelt(name), output) for output, name in enumerate(names))
    alone = {found[0] for one in classes if len(found := by_name.get(spelt(one.name), ())) == 1}
    if len(alone) == len(classes):
        return NameMatch(tuple(by_name[spelt(one.name)][0] for one in classes), ())
    whole = _outputs_by_name((plain_name(name), output) for output, name in enumerate(names))
    parts = _outputs_by_name(
        (plain_name(part), output) for output, name in enumerate(names) for part in name.split(",")
    )
    found = [_outputs_of(one, whole, parts) for one in classes]
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


def _are_numbered(names: Sequence[str], classes: Sequence[RecipeClass]) -> bool:
    """Return whether each name is its output's own number, and none is a class's name: nobody named these outputs.

    A class's id is often a number too, by chance.
    """
    known = {plain_name(one.name) for one in classes}
    plain = [plain_name(name) for name in names]
    numbers = [_NUMBER.fullmatch(name) for name in plain]
    own = all(number is not None and int(number[1]) == output for output, number in enumerate(numbers))
    return own and known.isdisjoint(plain)


def refuse_unmatched(classes: Sequence[RecipeClass], facts: ClassifierFacts, named: NameMatch) -> None:
    """Raise UserError, with both lists side by side, if a class has no output of its name, or more than one."""
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
        "Name the classes in the recipe (name or id) as the model names its outputs, or say which class each output"
        " is: `evaluate --class-order FILE`, with a class on each line.",
    )


def _outputs_of(
    one: RecipeClass, whole: Mapping[str, Sequence[int]], parts: Mapping[str, Sequence[int]]
) -> tuple[int, ...]:
    """Return the outputs that may be a class, by its id alone where that suffices; whole names before parts of them."""
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
