"""Find the classifier outputs that are right for each class of a dataset.

If a classifier has names for its outputs, names decide: first exactly equal names, then names that
are equal without case, `_`, `-` and spaces, and then the ids of classes. For an output "tabby,
tabby cat", the whole name is compared first, and then each part. For a model with ImageNet's 1,000
outputs, the recipe's `imagenet` indices decide, unless the model's names show another order.
Outputs without names are the source labels, if the number of outputs fits and all training programs
would sort the class folders in the same way. A user may also give the order of the outputs
(`Order`). In any other case there is an error, because a wrong map would silently give an accuracy
near zero.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.errors import ProblemLine, UserError, some_of
from counterfoil.models.classifiers.classifier import (
    MOST_LINES,
    in_columns,
    shortened,
    side_by_side,
)
from counterfoil.models.messages import message, refusal
from counterfoil.recipe.names import PREDICTIONS, plain_name
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts
    from counterfoil.recipe import RecipeClass

IMAGENET_OUTPUTS = 1000
# The order of a model's outputs, as a user gives it. position: output i is source label i. timm:
# timm's order of the class folders. A tuple: the name of each output.
Order = Literal["position", "timm"] | tuple[str, ...]
_BY_POSITION = "by position, in the dataset's order of labels"
# These words mark a class map that follows an order from the user.
ASKED = "as --class-order says"
# An answer is the best of these outputs: all outputs of the model, or only the outputs of the
# dataset's classes.
Outputs = Literal["all", "classes"]


@dataclass(frozen=True)
class ClassMap:
    """The model outputs that count as right for each label of a dataset."""

    outputs: Literal["imagenet", "source labels", "names"]
    """The method that matched outputs with classes."""
    num_classes: int
    targets: tuple[tuple[int, ...], ...]
    """The right outputs of each label."""
    label_names: tuple[str, ...] | None = None
    """The model's names for its outputs, or None."""
    most_ranked: int | None = None
    """The number of answers that the model ranks, if the model ranks fewer answers than it has
    outputs."""
    class_outputs: tuple[int, ...] | None = None
    """All outputs that are right for a class, if answers are also chosen among these outputs alone.
    """
    leads: Outputs = "all"
    """The outputs among which the main answers are chosen."""
    matched: str = ""
    """A description of the method for users."""
    order_given: bool = False
    """Whether a user gave the order of the outputs."""

    @property
    def answering(self) -> int:
        """The number of outputs among which an answer is chosen."""
        if self.class_outputs is not None and self.leads == "classes":
            return len(self.class_outputs)
        return self.num_classes

    @property
    def chances(self) -> Floats:
        """The probability that a random answer is right, for each label (labels,). The sum may
        exceed 1."""
        right = np.array([len(set(outputs)) for outputs in self.targets])
        return right / self.answering

    @property
    def top_k(self) -> int:
        """The k of top-k accuracy: 5, but less than the number of outputs, so that the k answers
        can all be wrong."""
        return max(1, min(5, self.answering - 1, self.most_ranked or 5))

    def answered_both_ways(self, leads: Outputs) -> ClassMap:
        """Return a map whose answers are also chosen among the outputs of the classes alone.

        Return this map unchanged unless the classes have at least two outputs, and the model has
        other outputs.
        """
        class_outputs = set(chain.from_iterable(self.targets))
        if self.most_ranked is not None or not 2 <= len(class_outputs) < self.num_classes:
            return self
        return replace(self, class_outputs=tuple(sorted(class_outputs)), leads=leads)


def map_classes(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    order: Order | None = None,
    *,
    folders: bool = True,
    trained: Sequence[str] | None = None,
) -> ClassMap:
    """Return the class map from a recipe's classes to a model's outputs. UserError if no map can be
    found.

    order: the order of the outputs, if a user gave one. folders: whether the classes may be
    folders, which training programs sort in different ways. trained: the names of all labels of the
    input dataset by number, if they are known, since a model may have learned from more classes
    than the dataset keeps; empty for folders whose names are not known.
    """
    given = order is not None
    counts = f"{len(classes):,} of {format_count(len(classes), 'class', 'classes')}"
    suffix = f" ({ASKED})" if given else ""
    label_names = facts.label_names
    outputs: Literal["imagenet", "source labels", "names"]
    if order == "position":
        outputs = "source labels"
        targets = _source_targets(classes, facts, trained)
        label_names = None
        matched = f"{_BY_POSITION}{suffix}"
    elif order == "timm":
        outputs = "names"
        targets = _timm_targets(classes, facts, trained)
        label_names = None
        matched = f"by position, in timm's order of the class names{suffix}"
    else:
        if order is not None:
            label_names = order
            facts = replace(facts, label_names=order)
        if facts.of_classes:
            named = NameMatch(tuple(range(len(classes))), ())
        else:
            named = match_output_names(classes, facts, given=given)
        imagenet = facts.num_classes == IMAGENET_OUTPUTS and any(cls.imagenet for cls in classes)
        may_be_indices = named is None or not _stand_elsewhere(classes, named)
        if imagenet and may_be_indices and not (given or facts.of_classes):
            outputs = "imagenet"
            targets = _imagenet_targets(classes, facts)
            matched = f"by the recipe's ImageNet indices: {counts}"
        elif named is None:
            outputs = "source labels"
            targets = _source_targets(classes, facts, trained)
            matched = _BY_POSITION
            if folders:
                matched = _refuse_unknown_order(classes, facts, trained)
        else:
            refuse_unmatched(classes, facts, named)
            targets = tuple((output,) for output in named.outputs if output is not None)
            at_source = targets == tuple((cls.source_label,) for cls in classes)
            outputs = "source labels" if at_source else "names"
            matched = f"by name: {counts}{suffix}"
    return ClassMap(
        outputs,
        facts.num_classes,
        targets,
        label_names,
        facts.most_ranked,
        matched=matched,
        order_given=given,
    )


def _refuse_unknown_order(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    trained: Sequence[str] | None,
) -> str:
    """Describe how outputs without names are matched. UserError if training programs sort the
    folders differently."""
    where = f"model {facts.name!r}"
    names = _folder_names(classes, facts, trained)
    if names is None:
        if trained is not None and len(trained) == 0:
            raise refusal("unmatched-classes.folders", where, facts.num_classes, len(classes))
        return _BY_POSITION
    timms = _timm_order(names)
    if timms == names:
        if len(names) == facts.num_classes:
            return f"{_BY_POSITION}, which is torchvision's and timm's order of the class folders"
        return _BY_POSITION
    others = timms or ["(not known)"] * len(names)
    pairs = list(zip(names, others, strict=True))
    first = 0
    while pairs[first][0] == pairs[first][1]:
        first += 1
    rows = [("torchvision", "timm")]
    for name, other in pairs[first : first + MOST_LINES]:
        rows.append((shortened(name), shortened(other)))
    problem = message("unmatched-classes.sorted", where, first + 1)
    shown = "\n".join(in_columns(rows))
    raise UserError(problem.with_end(f"\n{shown}"))


def _timm_targets(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    trained: Sequence[str] | None,
) -> tuple[tuple[int, ...], ...]:
    """Return the output of each class, with outputs in timm's order of folders. UserError if that
    order is unknown."""
    names = _folder_names(classes, facts, trained)
    timms = None if names is None else _timm_order(names)
    if names is None or timms is None or len(names) != facts.num_classes:
        where = f"model {facts.name!r}"
        raise refusal("unmatched-classes.timm", where, facts.num_classes)
    output_of = {name: output for output, name in enumerate(timms)}
    return tuple((output_of[names[cls.source_label]],) for cls in classes)


def _folder_names(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    trained: Sequence[str] | None,
) -> list[str] | None:
    """Return the names of the folders that a model's outputs may be, by source label, if
    torchvision sorts them in this order, else None.

    If needed, the names have `_` in place of spaces. If only some of the folders are known, these
    are returned.
    """
    names = [cls.name for cls in sorted(classes, key=lambda cls: cls.source_label)]
    if trained is not None and not _are_all(classes, facts):
        if len(trained) == 0:
            return None
        if len(trained) == facts.num_classes:
            names = [*trained]
    underscored = [name.replace(" ", "_") for name in names]
    for spelt in (names, underscored):
        if spelt == sorted(spelt):
            return spelt
    return None


def _are_all(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> bool:
    """Check whether the source labels of the classes are the numbers of all outputs."""
    return {cls.source_label for cls in classes} == set(range(facts.num_classes))


def folder_orders(classes: Sequence[RecipeClass]) -> dict[str, list[int]]:
    """Return the order in which training programs sort class folders: program → labels in the
    program's order."""
    label = {cls.name: cls.label for cls in classes}
    if len(label) < len(classes):
        return {}
    orders = {"torchvision's": [label[name] for name in sorted(label)]}
    timms = _timm_order(list(label))
    if timms:
        orders["timm's"] = [label[name] for name in timms]
    return orders


def _timm_order(names: Sequence[str]) -> list[str] | None:
    """Sort names as timm's `natural_key` does: ignore case, and compare digits as numbers.

    Return None if two names are equal to timm.
    """
    keys = []
    for name in names:
        parts: list[Any] = re.split(r"(\d+)", name.lower())
        parts[1::2] = map(int, parts[1::2])  # digits are at odd positions
        keys.append(tuple(parts))
    if len(set(keys)) < len(keys):
        return None
    return [name for _, name in sorted(zip(keys, names, strict=True))]


def _stand_elsewhere(classes: Sequence[RecipeClass], named: NameMatch) -> bool:
    """Return whether most matched names belong to other outputs than the `imagenet` indices."""
    matched = 0
    elsewhere = 0
    for cls, output in zip(classes, named.outputs, strict=True):
        if output is not None:
            matched += 1
            elsewhere += output not in cls.imagenet
    return 2 * elsewhere > matched


def _imagenet_targets(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
) -> tuple[tuple[int, ...], ...]:
    missing = [cls.id for cls in classes if not cls.imagenet]
    if missing:
        where = f"model {facts.name!r}"
        raise refusal(
            "unmatched-classes.no-index",
            where,
            len(missing),
            len(classes),
            names=missing,
        )
    wrong = []
    for cls in classes:
        if min(cls.imagenet) < 0 or max(cls.imagenet) >= IMAGENET_OUTPUTS:
            wrong.append(cls.id)
    if wrong:
        raise refusal("unmatched-classes.outside", None, wrong, IMAGENET_OUTPUTS - 1)
    return tuple(tuple(cls.imagenet) for cls in classes)


def _source_targets(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    trained: Sequence[str] | None,
) -> tuple[tuple[int, ...], ...]:
    """Return each class's source label as its output. UserError if the number of outputs
    differs."""
    labels = [cls.source_label for cls in classes]
    wanted = max(labels) + 1
    if trained and not _are_all(classes, facts):
        wanted = len(trained)
    if facts.num_classes == wanted:
        return tuple((label,) for label in labels)
    sentence = "unmatched-classes.outputs"
    if facts.num_classes == 1:
        sentence = "unmatched-classes.two" if wanted == 2 else "unmatched-classes.one"
    elif any(cls.imagenet for cls in classes):
        sentence = "unmatched-classes.imagenet"
    elif facts.num_classes == IMAGENET_OUTPUTS:
        sentence = "unmatched-classes.no-indices"
    by_label = sorted(classes, key=lambda cls: cls.source_label)
    named = [f"{cls.source_label} {shortened(cls.name)}" for cls in by_label]
    where = f"model {facts.name!r}"
    raise refusal(
        sentence,
        where,
        facts.num_classes,
        wanted,
        names=some_of(named, MOST_LINES),
    )


# Matches default names of outputs, such as "LABEL_3", and plain numbers.
_NUMBER = re.compile(r"(?:label|class|output)? ?(\d+)")


@dataclass(frozen=True)
class NameMatch:
    """The output that has the name of each class, or None. `problems` has a line for each ambiguous
    name."""

    outputs: tuple[int | None, ...]
    problems: tuple[ProblemLine, ...]


def match_output_names(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    *,
    given: bool,
) -> NameMatch | None:
    """Match outputs with classes by name. Return None if the outputs have no names, or only numbers
    as names."""
    names = facts.label_names
    if names is None or (not given and _are_numbered(names, classes)):
        return None
    if len(names) != facts.num_classes:
        whose = "class order lists" if given else "it tells"
        shown = "\n".join(side_by_side(classes, names, ()))
        problem = message(
            "unmatched-classes.names",
            f"model {facts.name!r}",
            facts.num_classes,
            len(names),
            whose=whose,
        )
        raise UserError(problem.with_end(f"\n{shown}"))
    # Compare case only if some names differ in nothing else.
    plain_names = {plain_name(cls.name) for cls in classes}
    spelt = plain_name if len(plain_names) == len(classes) else _composed
    spelt_names = [spelt(name) for name in names]
    by_name = _outputs_by_name([name] for name in spelt_names)
    exact = [by_name.get(spelt(cls.name), ()) for cls in classes]
    single = [outputs[0] for outputs in exact if len(outputs) == 1]
    if len(set(single)) == len(classes):
        return NameMatch(tuple(single), ())
    whole = _outputs_by_name([plain_name(name)] for name in names)
    parts = _outputs_by_name(map(plain_name, name.split(",")) for name in names)
    matched: list[int | None] = []
    problems: list[ProblemLine] = []
    for cls in classes:
        outputs = _outputs_of(cls, whole, parts)
        matched.append(outputs[0] if len(outputs) == 1 else None)
        if len(outputs) > 1:
            shown = [str(output) for output in outputs[:MOST_LINES]]
            problems.append(message("unmatched-classes.several", None, cls.name, shown))
    owners: dict[int, RecipeClass] = {}
    for cls, output in zip(classes, matched, strict=True):
        if output is None:
            continue
        owner = owners.setdefault(output, cls)
        if owner is not cls:
            problem = message(
                "unmatched-classes.shared",
                None,
                names[output],
                output=output,
                owners=f"{owner.id} and {cls.id}",
            )
            problems.append(problem)
    return NameMatch(tuple(matched), tuple(problems))


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _are_numbered(names: Sequence[str], classes: Sequence[RecipeClass]) -> bool:
    """Return whether the name of every output is its number, and no class has such a name."""
    class_names = {plain_name(cls.name) for cls in classes}
    plain = [plain_name(name) for name in names]
    for output, name in enumerate(plain):
        number = _NUMBER.fullmatch(name)
        if number is None or int(number[1]) != output:
            return False
    return class_names.isdisjoint(plain)


def refuse_unmatched(
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
    named: NameMatch,
) -> None:
    """Raise UserError if a class has no output of its name, or several. The message shows both
    lists side by side."""
    if named.problems:
        where = f"model {facts.name!r}"
        raise UserError([problem.at(where) for problem in named.problems[:MOST_LINES]])
    pairs = zip(classes, named.outputs, strict=True)
    missing = [cls for cls, output in pairs if output is None]
    if not missing:
        return
    names = facts.label_names or ()
    sentence = "unmatched-classes.missing"
    if facts.name.startswith(PREDICTIONS):
        sentence = "unmatched-classes.no-column"
    problem = message(sentence, f"model {facts.name!r}", len(missing), len(classes))
    taken = set(named.outputs) - {None}
    shown = "\n".join(side_by_side(missing, names, taken))
    raise UserError(problem.with_end(f"\n{shown}"))


def _outputs_of(
    cls: RecipeClass,
    whole: Mapping[str, Sequence[int]],
    parts: Mapping[str, Sequence[int]],
) -> tuple[int, ...]:
    """Return the outputs whose name is the id or the name of a class. Whole names come before parts
    of names.

    If only one output has the id, and the name does not contradict, return this output alone.
    """
    for table in (whole, parts):
        by_id = table.get(plain_name(cls.id), ())
        by_name = table.get(plain_name(cls.name), ())
        if len(by_id) == 1 and (not by_name or by_id[0] in by_name):
            return tuple(by_id)
        if by_id or by_name:
            return tuple(sorted({*by_id, *by_name}))
    return ()


def _outputs_by_name(names: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Return the outputs that have each name. names: those of each output."""
    table: dict[str, list[int]] = {}
    for output, of_output in enumerate(names):
        for name in of_output:
            outputs = table.setdefault(name, [])
            if name and output not in outputs[-1:]:
                outputs.append(output)
    return table
