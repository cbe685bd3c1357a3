"""Why the screen should not be believed: classes that its CLIP does not know, and thresholds that ask for nothing.

What that CLIP finds in images that exist, the words of findings and contexts, is doubted for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.generate.screen.thresholds import FROM_VALIDATION, Thresholds
from counterfoil.stats import wilson_interval
from counterfoil.store.rows import unique_names

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

_MOST_NAMED = 5
_LONGEST_NAME = 60
_WHAT_TO_DO = (
    "name a CLIP that knows the classes (screen.model), put the class names or screen.object_caption in words that CLIP"
    " knows"
)
_CHECKED = ", or have the labels checked (screen.judge, counterfoil review)"
# What CLIP decides: whether a drawn image keeps its label, which words a finding has, which context a row is in.
Decides = Literal["labels", "words", "contexts"]
_FOLLOWS = {
    "labels": "images accepted as such a class may show anything",
    "words": "the images of a finding may not show what its words say",
    "contexts": "an image of such a class may show another context than CLIP says",
}


@dataclass(frozen=True, slots=True)
class DoubtedClass:
    """A class that the screen may not know: `right` of `n` validation images were nearest to its own caption.

    `near_chance` says that this may be little better than guessing; `margin` is the mean cosine by which the own
    caption is above the best other one, and `taken_for` the name of the class that comes first most often instead.
    `least_threshold` is its lowest measured object threshold, where that is negative. What was not measured is None.
    """

    class_id: str
    name: str
    near_chance: bool = False
    n: int | None = None
    right: int | None = None
    margin: float | None = None
    taken_for: str | None = None
    least_threshold: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.n is not None and self.right is not None and self.margin is not None:
            taken = f", the others most often mistaken for '{self.taken_for}'" if self.taken_for is not None else ""
            parts.append(f"{self.right} of {self.n} images recognised{taken}; margin of its caption {self.margin:+.3f}")
        if self.least_threshold is not None:
            parts.append(f"object threshold {self.least_threshold:.3f}")
        return f"class '{self.name}': {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ScreenDoubts:
    """What speaks against the screen; `classes` are the doubted ones, the worst first, of `of_classes` that were seen.

    `accuracy` with its 95 % interval is that of naming all `n` validation images by the nearest own caption, `chance`
    that of guessing; None where it was not measured. `near_chance` says that the interval begins near chance.
    `decides` is what CLIP's answers are used for: of `labels` validation images were looked at, else audited ones.
    """

    classes: tuple[DoubtedClass, ...]
    of_classes: int
    near_chance: bool = False
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    chance: float | None = None
    n: int | None = None
    decides: Decides = "labels"

    def of_any(self, class_ids: Iterable[str]) -> bool:
        """Return whether any of these classes is doubted."""
        return self.near_chance or not {cls.class_id for cls in self.classes}.isdisjoint(class_ids)

    @property
    def headline(self) -> str:
        """Return the numbers in a sentence."""
        if self.accuracy is None or self.interval is None or self.chance is None:
            them = "its object threshold is" if len(self.classes) == 1 else "their object thresholds are"
            return f"CLIP may not know {_count(len(self.classes))}: {them} negative."
        low, high = self.interval
        images = "validation" if self.decides == "labels" else "audited"
        measured = (
            f"it matches {100 * self.accuracy:.1f} % ({100 * low:.1f} to {100 * high:.1f}) of {self.n:,} {images}"
            f" images to the caption of their class; guessing matches {100 * self.chance:.1f} %"
        )
        if self.near_chance:
            return f"CLIP does not know these classes: {measured}."
        return f"CLIP may not know {len(self.classes):,} of {_count(self.of_classes)}: {measured}."

    @property
    def meaning(self) -> str:
        """Return what follows for the images, in a sentence."""
        who, follows = "The screen" if self.decides == "labels" else "CLIP", _FOLLOWS[self.decides]
        mistaken = next((cls for cls in self.classes if cls.taken_for is not None), None)
        if mistaken is None and self.decides == "labels":
            return "The screen accepts almost any image as such a class: accepted images may show anything."
        if mistaken is None:
            return f"{who} can hardly tell them apart: {follows}."
        others = ", for example" if len(self.classes) > 1 else ""
        return f"{who} cannot tell '{mistaken.name}' from '{mistaken.taken_for}'{others}: {follows}."

    @property
    def what_to_do(self) -> str:
        """Return what a person may do about it, in a sentence."""
        tail = _CHECKED if self.decides == "labels" else ""
        return f"Before you trust these {self.decides}: {_WHAT_TO_DO}{tail}."

    def lines(self, most: int = _MOST_NAMED) -> list[str]:
        """Return the whole warning, a line each: numbers, the worst classes, what it means, what to do."""
        more = [f"  … and {len(self.classes) - most:,} more"] if len(self.classes) > most else []
        return [self.headline, *(f"  {cls}" for cls in self.classes[:most]), *more, self.meaning, self.what_to_do]


def screen_doubts(recipe: Recipe, thresholds: Thresholds) -> ScreenDoubts | None:
    """Return the doubts about a recipe's screen, as far as measured; None if there are none.

    A class is doubted if its accuracy may be near chance, or its mean margin or a measured object threshold is
    negative. Thresholds given by a person count for nothing.
    """
    return doubts_of(recipe, thresholds.known, _negative_thresholds(thresholds))


def doubts_of(
    recipe: Recipe, known: KnownClasses | None, least: Mapping[str, float] | None = None, decides: Decides = "labels"
) -> ScreenDoubts | None:
    """`screen_doubts` by what is known of the classes. least: by class id, negative thresholds that were measured."""
    least = least or {}
    names = _names(recipe)
    found: list[DoubtedClass] = []
    for cls in recipe.classes:
        doubted = _doubted(known, cls.id, names, least.get(cls.id))
        if doubted is not None:
            found.append(doubted)
    near = known is not None and known.is_near_chance(known.right, known.n)
    if not found and not near:
        return None
    found.sort(key=lambda one: (one.right / one.n if one.n and one.right is not None else 1.0, one.margin or 0.0))
    seen = set(least) | set(known.classes if known is not None else ())
    if known is None:
        return ScreenDoubts(tuple(found), len(seen), decides=decides)
    return ScreenDoubts(
        tuple(found),
        len(seen),
        near,
        known.right / known.n,
        wilson_interval(known.right, known.n),
        known.chance,
        known.n,
        decides,
    )


def _doubted(
    known: KnownClasses | None, class_id: str, names: dict[str, str], threshold: float | None
) -> DoubtedClass | None:
    one = known.classes.get(class_id) if known is not None else None
    if known is None or one is None:
        return None if threshold is None else DoubtedClass(class_id, names[class_id], least_threshold=threshold)
    near = known.is_near_chance(one.right, one.n)
    if not near and one.margin >= 0 and threshold is None:
        return None
    taken_for = None if one.taken_for is None else names[one.taken_for]
    return DoubtedClass(class_id, names[class_id], near, one.n, one.right, one.margin, taken_for, threshold)


def _negative_thresholds(thresholds: Thresholds) -> dict[str, float]:
    """Return the lowest measured object threshold of each class that has a negative one."""
    found: dict[str, float] = {}
    for entries in thresholds.object.values():
        for class_id, entry in entries.items():
            if entry["source"] == FROM_VALIDATION and entry["value"] is not None and entry["value"] < 0:
                found[class_id] = min(entry["value"], found.get(class_id, 0.0))
    return found


def _names(recipe: Recipe) -> dict[str, str]:
    """Return printable names by class id, each once."""
    unique = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    plain = ("".join(letter if letter.isprintable() else "\ufffd" for letter in name) for name in unique)
    shown = (name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 2]} …" for name in plain)
    return dict(zip((cls.id for cls in recipe.classes), shown, strict=True))


def _count(classes: int) -> str:
    return f"{classes:,} class" if classes == 1 else f"{classes:,} classes"
