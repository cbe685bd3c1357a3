"""Whether the classes of a recipe and the names of a dataset's labels say the same: pure, and quick to import."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.errors import UserError
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import did_you_mean

_MOST_SHOWN = 20
# A list of labels of which each is another is no list of classes, but of captions.
MOST_LABELS = 20_000


def plain_name(name: str) -> str:
    """A name as it is compared: case, `_` and `-` do not count."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def label_by_name(class_id: str, name: str, labels: Sequence[str]) -> tuple[int, ...]:
    """The labels that a class means by its id, else by its name: none, one, or several of one name."""
    exact = tuple(label for label, known in enumerate(labels) if known == class_id)
    plain = plain_name(name)
    return exact or tuple(label for label, known in enumerate(labels) if plain_name(known) == plain)


def disagreements(classes: Sequence[RecipeClass], labels: Sequence[str], place: str) -> list[str]:
    """What classes say of their source labels that the names of these labels contradict, a line for each class.

    A name that no label has says nothing: people call classes by other names than datasets do. `labels` are the names
    by label, `place` is whose they are.
    """
    by_name: dict[str, list[int]] = {}
    for label, name in enumerate(labels):
        by_name.setdefault(plain_name(name), []).append(label)
    by_id = {name: label for label, name in enumerate(labels)}
    problems = []
    for cls in classes:
        where = f"source.classes[{cls.label}]: '{cls.name[:80]}' has the source_label {cls.source_label}"
        if cls.source_label >= len(labels):
            problems.append(f"{where}, and {place} has the labels 0 to {len(labels) - 1}")
            continue
        own = labels[cls.source_label]
        if cls.id == own or plain_name(cls.name) in {plain_name(own), *map(plain_name, own.split(","))}:
            continue
        meant = [by_id[cls.id]] if cls.id in by_id else by_name.get(plain_name(cls.name), [])
        if meant and cls.source_label not in meant:
            numbers = " or ".join(map(str, meant[:3]))
            problems.append(f"{where}, which is '{own[:80]}' in {place}; write {numbers}")
    return problems


def refuse_disagreements(classes: Sequence[RecipeClass], labels: Sequence[str], place: str) -> None:
    """UserError where the names of an input dataset's labels say that classes have the source labels of others."""
    problems = disagreements(classes, labels, place)
    if problems:
        more = [f"… and {len(problems) - _MOST_SHOWN:,} more"] if len(problems) > _MOST_SHOWN else []
        raise UserError(
            [*problems[:_MOST_SHOWN], *more],
            "Leave source_label out, and it is that of the name; or write the numbers of the input dataset.",
        )


def named_problem(name: str, found: Sequence[int], labels: Sequence[str], place: str) -> str | None:
    """Why a class has no source label by its name: no label is called so, or several are; None where one is."""
    if len(found) == 1:
        return None
    if found:
        return (
            f"'{name[:80]}' is the name of the labels {', '.join(map(str, found[:10]))} of {place}; write source_label"
        )
    near = did_you_mean(name, labels) if len(labels) <= MOST_LABELS else ""
    return f"no label of {place} is called '{name[:80]}'{near} (its labels: {shown_labels(labels)})"


def shown_labels(values: Sequence[object]) -> str:
    """The first of some labels or classes, for people."""
    more = len(values) - _MOST_SHOWN
    shown = ", ".join(str(value)[:80] for value in values[:_MOST_SHOWN]) or "none"
    return shown + (f" and {more} more" if more > 0 else "")
