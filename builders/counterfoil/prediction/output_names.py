"""Find a dataset's classes among the names that a classifier gives its outputs, in whatever order these stand.

Names are compared without case, and `_`, `-` and spaces are one. An output called "tabby, tabby cat", as in the usual
lists of ImageNet, answers to each of its names, and to all of it first. A class answers to its id and its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.models.classifiers.class_names import MOST_LINES, plain_name, side_by_side

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts
    from counterfoil.recipe import RecipeClass

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
        "Call the classes in the recipe (name or id) as the model calls its outputs.",
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
