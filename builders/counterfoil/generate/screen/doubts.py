"""Doubt a CLIP that does not know the classes.

The doubts are about the screen, and about what this CLIP says of existing images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from counterfoil.errors import first_of, some_of, warn
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.generate.screen.thresholds import FROM_VALIDATION, Thresholds, open_shifts
from counterfoil.recipe import Recipe
from counterfoil.report.words import format_count
from counterfoil.stats import wilson_interval
from counterfoil.store.rows import unique_names

_MOST_NAMED = 5
_MOST_LISTED = 10
_LONGEST_NAME = 60
_WHAT_TO_DO = (
    "name a CLIP that knows the classes (screen.model), put the class names or"
    " screen.object_caption in words that CLIP knows"
)
_CHECKED = ", or have the labels checked (screen.judge, counterfoil review)"
# A `Decides` says what CLIP decides: whether a drawn image keeps its label, which words a finding
# has, or which context a row is in.
Decides = Literal["labels", "words", "contexts"]
_FOLLOWS = {
    "labels": "images accepted as such a class may show anything",
    "words": "the images of a finding may not show what its words say",
    "contexts": "an image of such a class may show another context than CLIP says",
}


@dataclass(frozen=True, slots=True)
class DoubtedClass:
    """A class that the screen may not know.

    Of the `n` validation images of the class, `right` images were nearest to the caption of the
    class.
    """

    class_id: str
    name: str
    near_chance: bool = False
    """Whether `right` of `n` may be little better than guessing."""
    n: int | None = None
    right: int | None = None
    margin: float | None = None
    """As in `KnownClass`."""
    taken_for: str | None = None
    """As in `KnownClass`, but with the name of the class."""
    least_threshold: float | None = None
    """The lowest measured object threshold of the class, if it is negative. Values that were not
    measured are None."""

    def __str__(self) -> str:
        parts = []
        if self.n is not None:
            taken = ""
            if self.taken_for is not None:
                taken = f", the others most often mistaken for '{self.taken_for}'"
            parts.append(
                f"{self.right} of {self.n} images recognised{taken}; margin of its caption"
                f" {self.margin:+.3f}"
            )
        if self.least_threshold is not None:
            parts.append(f"object threshold {self.least_threshold:.3f}")
        return f"class '{self.name}': {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ScreenDoubts:
    """The doubted classes, the worst class first, out of `of_classes` measured classes."""

    classes: tuple[DoubtedClass, ...]
    of_classes: int
    near_chance: bool = False
    """Whether the interval begins near chance."""
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    """The accuracy of CLIP in matching all `n` images to the caption of their class, and its 95 %
    confidence interval, or None if they were not measured."""
    chance: float | None = None
    """The accuracy of guessing."""
    n: int | None = None
    decides: Decides = "labels"
    """The use of CLIP's answers. If the use is `labels`, the images are validation images, else
    they are audited images."""

    def of_any(self, class_ids: Iterable[str]) -> bool:
        """Return whether any of these classes is doubted."""
        doubted = {cls.class_id for cls in self.classes}
        return self.near_chance or not doubted.isdisjoint(class_ids)

    @property
    def headline(self) -> str:
        """Return a sentence with the measured numbers."""
        if self.accuracy is None or self.interval is None or self.chance is None:
            thresholds = "their object thresholds are"
            if len(self.classes) == 1:
                thresholds = "its object threshold is"
            classes = format_count(len(self.classes), "class", "classes")
            return f"CLIP may not know {classes}: {thresholds} negative."
        low, high = self.interval
        images = "validation" if self.decides == "labels" else "audited"
        measured = (
            f"it matches {100 * self.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f}) of"
            f" {self.n:,} {images}"
            f" images to the caption of their class; guessing matches {100 * self.chance:.1f} %"
        )
        if self.near_chance:
            return f"CLIP does not know these classes: {measured}."
        classes = format_count(self.of_classes, "class", "classes")
        return f"CLIP may not know {len(self.classes):,} of {classes}: {measured}."

    @property
    def meaning(self) -> str:
        """Return a sentence that says what the doubts mean for the images."""
        model = "The screen" if self.decides == "labels" else "CLIP"
        follows = _FOLLOWS[self.decides]
        mistaken = next((cls for cls in self.classes if cls.taken_for is not None), None)
        if mistaken is None and self.decides == "labels":
            return (
                "The screen accepts almost any image as such a class: accepted images may show"
                " anything."
            )
        if mistaken is None:
            return f"{model} can hardly tell them apart: {follows}."
        others = ", for example" if len(self.classes) > 1 else ""
        return (
            f"{model} cannot tell '{mistaken.name}' from '{mistaken.taken_for}'{others}: {follows}."
        )

    @property
    def what_to_do(self) -> str:
        """Return a sentence that says what a person may do about the doubts."""
        tail = _CHECKED if self.decides == "labels" else ""
        return f"Before you trust these {self.decides}: {_WHAT_TO_DO}{tail}."

    def lines(self, most: int = _MOST_NAMED) -> list[str]:
        """Return the lines of the warning: the numbers, the worst classes, the meaning, and what to
        do."""
        lines = [self.headline]
        lines += [f"  {cls}" for cls in self.classes[:most]]
        if len(self.classes) > most:
            lines.append(f"  … and {len(self.classes) - most:,} more")
        return [*lines, self.meaning, self.what_to_do]


def screen_doubts(recipe: Recipe, thresholds: Thresholds) -> ScreenDoubts | None:
    """Return the doubts about the screen of a recipe that follow from the measurements, or None if
    there are none.

    A class is doubted if its accuracy may be near chance, if its mean margin is negative, or if one
    of its measured object thresholds is negative.
    """
    least: dict[str, float] = {}
    for entries in thresholds.object.values():
        for class_id, entry in entries.items():
            value = entry["value"]
            if entry["source"] == FROM_VALIDATION and value is not None and value < 0:
                least[class_id] = min(value, least.get(class_id, 0.0))
    return doubts_of(recipe, thresholds.known, least)


def warn_of_screen(recipe: Recipe, thresholds: Thresholds) -> None:
    """Warn of a CLIP that may not know the classes, of percentiles over few images, and of open
    shifts."""
    if doubts := screen_doubts(recipe, thresholds):
        warn("\n".join(doubts.lines()))
    few_images = [f"  {few}" for few in thresholds.few_images()]
    if few_images:
        headline = (
            "These percentiles have too few validation images, so they are close to the lowest"
            " score:"
        )
        warn("\n".join([headline, *first_of(few_images, _MOST_LISTED)]))
    if waiting := open_shifts(recipe):
        shown = some_of(waiting, _MOST_LISTED)
        warn(f"These shifts have no threshold yet, so none of their images is kept: {shown}")


def doubts_of(
    recipe: Recipe,
    known: KnownClasses | None,
    least: Mapping[str, float] | None = None,
    decides: Decides = "labels",
) -> ScreenDoubts | None:
    """Return the doubts that follow from CLIP's answers for the classes, or None if there are none.

    `least` holds the lowest measured threshold of each class id where it is negative.
    """
    least = least or {}
    classes = {} if known is None else known.classes
    names: dict[str, str] = {}
    for recipe_class, unique in zip(recipe.classes, unique_names(recipe.classes), strict=True):
        name = "".join(letter if letter.isprintable() else "\ufffd" for letter in unique)
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 2]} …"
        names[recipe_class.id] = name
    doubted: list[DoubtedClass] = []
    for class_id, name in names.items():
        answers = classes.get(class_id)
        threshold = least.get(class_id)
        if known is None or answers is None:
            if threshold is not None:
                doubted.append(DoubtedClass(class_id, name, least_threshold=threshold))
            continue
        near = known.is_near_chance(answers.right, answers.n)
        margin = answers.margin
        if near or margin < 0 or threshold is not None:
            taken_for = None if answers.taken_for is None else names[answers.taken_for]
            cls = DoubtedClass(
                class_id,
                name,
                near_chance=near,
                n=answers.n,
                right=answers.right,
                margin=margin,
                taken_for=taken_for,
                least_threshold=threshold,
            )
            doubted.append(cls)
    near = known is not None and known.is_near_chance(known.right, known.n)
    if not doubted and not near:
        return None

    def order(cls: DoubtedClass) -> tuple[float, float]:
        accuracy = 1.0
        if cls.n and cls.right is not None:
            accuracy = cls.right / cls.n
        return accuracy, cls.margin or 0.0

    doubted.sort(key=order)
    measured = len({*least, *classes})
    if known is None:
        return ScreenDoubts(tuple(doubted), measured, decides=decides)
    interval = wilson_interval(known.right, known.n)
    accuracy = known.right / known.n
    return ScreenDoubts(
        tuple(doubted),
        measured,
        near,
        accuracy,
        interval,
        known.chance,
        known.n,
        decides,
    )
